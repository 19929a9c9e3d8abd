//! lower
pub mod grammar;
