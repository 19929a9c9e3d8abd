//! placeholder
use super::ast::Node;
use super::Alphabet;
use crate::error::{CompileError, Result};
use crate::ir::Dfa;
use crate::limits::Budget;
pub fn automaton(_n: &Node, _search: bool, _open: bool, _a: Alphabet, _b: &Budget) -> Result<Dfa> {
    Err(CompileError::unsupported("", "look-around", "it stands in a loop", "Move it out of the loop"))
}
