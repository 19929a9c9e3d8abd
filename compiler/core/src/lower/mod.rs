//! Lowering: the body of each rule becomes an [`Fsm`](crate::fsm::Fsm).
//!
//! [`lower_expr`] lowers an expression. What is not an expression (objects, dispatch) is put together with a
//! [`Builder`]: an automaton under construction into which states and edges are put by hand, expressions are spliced
//! between any two states, and which [`Builder::finish`] makes deterministic and minimal. A hand-made deterministic
//! state that ends up alone in its subset is kept as it is, its fallback included; one that shares a subset with others
//! has its fallback expanded. So hand-made tries cost about a copy.
//!
//! No unit is nullable at run time: a lowered rule is the language without the empty string, and a flag.

mod builder;
pub mod cache;
mod chars;
pub mod dispatch;
mod expr;
pub mod grammar;
mod language;
mod literals;
mod measure;
pub mod object;
mod operators;
mod repeat;
#[cfg(test)]
mod simulator;
mod splice;
#[cfg(test)]
mod tests;

pub use crate::automata::{fsm_is_empty, minimal_is_empty, minimize};
pub use builder::{Builder, Lowered};
pub use chars::{json_spelling, json_string_fsm};
pub use expr::lower_expr;
pub use language::Language;
pub use measure::nullable;
pub use operators::dfa;
