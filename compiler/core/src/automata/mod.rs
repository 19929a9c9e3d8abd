//! Finite automata over bytes: what lowering and the front ends compute with.
//!
//! An [`nfa::Nfa`] is an FSM under construction: the same kinds of edges as [`crate::fsm::Fsm`], plus epsilon edges that
//! may carry register operations. [`determinize`] turns it into an FSM whose states are sets of NFA states that agree
//! about every register, [`minimize`] gives that FSM its canonical form, [`product`] intersects and subtracts, [`dfa`]
//! has the set operations of counter-free languages, [`joint`] tells whether they meet, for which [`lazy`] makes only what is looked at, [`dead_ends`] finds and
//! [`layers`] removes what counters would allow and nothing could follow, and [`run`] executes an FSM directly (an oracle for tests).

pub mod acts;
pub mod bytes;
mod classes;
pub mod dead_ends;
pub mod determinize;
pub mod dfa;
pub mod joint;
pub mod layers;
pub mod lazy;
pub mod minimize;
pub mod nfa;
mod order;
pub mod product;
mod refine;
pub mod run;
mod sets;
#[cfg(test)]
mod tests;
pub mod utf8;

pub use determinize::determinize;
pub use minimize::{is_empty as fsm_is_empty, minimal_is_empty, minimize};
