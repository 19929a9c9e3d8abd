//! schema

pub mod formats;
pub mod numbers;
pub mod strings;
