//! Regular expressions: patterns of ECMA-262 to [`Expr`].
//!
//! [`parse`](parse::parse) makes a tree; `compose` turns it into an expression directly, conditions of neighbouring
//! characters included; what it cannot resolve (look-around in a loop, longer look-behind) becomes a deterministic
//! automaton in `boolean`. Matching is that of Unicode mode: a character is a scalar value, `\d` and `\w` are ASCII, `.`
//! is any but a line end. Which strings match is all that counts here: greed, captures and names change nothing.
//!
//! `^` and `$` are the edges of the string (of a line under `(?m)`). Counted repeats stay [`Expr::Repeat`]; lowering makes
//! counters of them.

mod ast;
mod bdd;
mod boolean;
mod class;
mod compose;
mod parse;
mod program;
mod side;
mod spelled;
#[cfg(test)]
mod tests;

use crate::error::Result;
use crate::ir::Expr;
use crate::limits::Budget;
use ast::Node;
use class::CharSet;
use compose::{Composer, Stop};

/// How the characters of a matched string are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alphabet {
    /// As themselves, in UTF-8.
    Utf8,
    /// As they may stand between the quotes of a JSON string ([`Expr::JsonChars`]): the pattern is about the string that
    /// the text stands for.
    Json,
}

/// Where a pattern has to match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Anchoring {
    /// Anywhere in the string, as JSON Schema's `pattern` does.
    Search,
    /// From start to end.
    Full,
}

/// The strings that a pattern matches. No string at all is [`Expr::Never`].
pub fn regex(pattern: &str, alphabet: Alphabet, anchoring: Anchoring, budget: &Budget) -> Result<Expr> {
    let node = parse::parse(pattern, budget)?;
    compile(&node, alphabet, anchoring, budget)
}

/// The same among strings of at most `most` characters; of longer ones it may say anything. Repeats need not be counted up to
/// what such a string cannot reach: beside a bound on the length, every bound on repeats multiplies the states.
pub fn regex_within(
    pattern: &str,
    alphabet: Alphabet,
    anchoring: Anchoring,
    most: u64,
    budget: &Budget,
) -> Result<Expr> {
    let node = parse::parse(pattern, budget)?.within(most);
    compile(&node, alphabet, anchoring, budget)
}

fn compile(node: &Node, alphabet: Alphabet, anchoring: Anchoring, budget: &Budget) -> Result<Expr> {
    let search = anchoring == Anchoring::Search;
    match Composer::new(alphabet, budget).whole(node, search) {
        Ok(e) => Ok(spell(e, alphabet)),
        Err(Stop::Error(e)) => Err(e),
        Err(Stop::Hard) => {
            let dfa = boolean::automaton(node, search, search, alphabet, budget)?;
            Ok(Expr::Automaton(std::sync::Arc::new(dfa)))
        }
    }
}

/// Printable ASCII that has one spelling in a JSON string.
fn plain_json(c: u32) -> bool {
    matches!(c, 0x20..=0x7E) && !matches!(c, 0x22 | 0x2F | 0x5C)
}

/// Code points become text: runs of characters that have one spelling are literals, other sets classes of the alphabet.
fn spell(e: Expr, alphabet: Alphabet) -> Expr {
    let all = |v: Vec<Expr>| v.into_iter().map(|e| spell(e, alphabet)).collect::<Vec<_>>();
    match e {
        Expr::Chars(ranges) => match (alphabet, ranges.as_slice()) {
            (Alphabet::Utf8, &[(c, d)]) if c == d => {
                Expr::Bytes(char::from_u32(c).map(String::from).unwrap_or_default().into_bytes())
            }
            (Alphabet::Utf8, _) => Expr::Chars(ranges),
            (Alphabet::Json, &[(c, d)]) if c == d && plain_json(c) => Expr::Bytes(vec![c as u8]),
            (Alphabet::Json, _) => Expr::JsonChars { ranges, free: false },
        },
        Expr::Seq(v) => {
            let mut out: Vec<Expr> = Vec::with_capacity(v.len());
            for e in v {
                match (out.last_mut(), spell(e, alphabet)) {
                    (Some(Expr::Bytes(run)), Expr::Bytes(more)) => run.extend(more),
                    (_, e) => out.push(e),
                }
            }
            side::seq(out)
        }
        Expr::Alt(v) => Expr::Alt(all(v)),
        Expr::And(v) => Expr::And(all(v)),
        Expr::Sub(a, b) => Expr::Sub(Box::new(spell(*a, alphabet)), Box::new(spell(*b, alphabet))),
        Expr::Repeat { body, min, max } => Expr::Repeat { body: Box::new(spell(*body, alphabet)), min, max },
        e => e,
    }
}

/// Any string, of `min` to `max` characters.
pub fn any_string(alphabet: Alphabet, min: u32, max: Option<u32>) -> Expr {
    spell(Expr::Chars(CharSet::any().into_ranges()).repeat(min, max), alphabet)
}
