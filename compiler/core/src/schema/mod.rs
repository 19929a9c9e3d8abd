//! schema

pub mod numbers;
