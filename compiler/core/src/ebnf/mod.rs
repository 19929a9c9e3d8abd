//! Grammars in EBNF: the superset of GBNF that serving engines take, as XGrammar reads it.
//!
//! ```text
//! # a comment
//! root  ::= greeting ("," name)* "!"?
//! greeting ::= "Hello" | "Hi"
//! name  ::= [A-Z] [a-z]{1,20}
//! ```
//!
//! A rule is `name ::= alternatives` and ends where the next begins. See [`parse`] for elements and [`calls`] for the
//! functions (`Regex`, `Substring`, `Token`, `ExcludeToken`, `TagDispatch`, `TokenTagDispatch`). Left recursion is
//! allowed. A rule that refers to nothing and is small is written out where it is used, so that how a grammar is cut into
//! rules changes neither its automata nor their digests.

mod calls;
mod inline;
mod lexer;
mod parse;

pub use calls::token_dispatch;

use crate::error::{CompileError, Result};
use crate::ir::Grammar;
use crate::limits::Budget;
use crate::schema::Warning;

/// A grammar's IR, and what in its text has no effect.
#[derive(Clone, Debug, PartialEq)]
pub struct Compiled {
    pub grammar: Grammar,
    pub warnings: Vec<Warning>,
}

/// Compiles a grammar whose matching starts at the rule `root`.
///
/// # Errors
/// `Invalid` with "line 3, column 14" for a pointer; `Unsupported` for what other grammar languages have.
pub fn compile(text: &str, root: &str, budget: &Budget) -> Result<Compiled> {
    let (mut grammar, warnings) = parse::parse(text, root, budget)?;
    inline::inline(&mut grammar, budget)?;
    Ok(Compiled { grammar, warnings })
}

/// A grammar of fixed texts: one of `choices`, a JSON array of strings.
pub fn choice(text: &[u8], budget: &Budget) -> Result<Grammar> {
    let choices: Vec<String> = serde_json::from_slice(text)
        .map_err(|e| CompileError::invalid("", format!("a choice is a list of strings: {e}")))?;
    budget.states(choices.len())?;
    if choices.is_empty() {
        return Err(CompileError::invalid("", "a choice needs at least one string"));
    }
    let words = choices.into_iter().map(|c| crate::ir::Expr::Bytes(c.into_bytes())).collect();
    let rule = crate::ir::Rule { name: "choice".into(), body: crate::ir::Body::Expr(crate::ir::Expr::Alt(words)) };
    Ok(Grammar { rules: vec![rule], root: 0 })
}
