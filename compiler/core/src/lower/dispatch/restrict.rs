//! A handler without the strings that begin with certain bytes.

use crate::ir::{Body, Expr, Rule};
use crate::limits::Budget;
use crate::lower::{dfa, nullable};

/// Most expressions that a restriction looks at; handlers begin with a literal almost always.
const MOST: usize = 10_000;

/// The non-empty strings of `e` that begin with none of the bytes; `None` if there are none. Fails where that cannot be
/// written as an expression (left recursion, a dispatch).
pub(super) fn without_first(
    e: &Expr,
    bytes: &[u8],
    rules: &[Rule],
    rule_nullable: &[bool],
    budget: &Budget,
) -> Result<Option<Expr>, ()> {
    let mut r =
        Restrict { bytes, rules, rule_nullable, budget, left: MOST, inside: vec![], depth: budget.limits.depth };
    Ok(match r.expr(e)? {
        Expr::Never => None,
        e => Some(e),
    })
}

struct Restrict<'a> {
    bytes: &'a [u8],
    rules: &'a [Rule],
    rule_nullable: &'a [bool],
    budget: &'a Budget,
    left: usize,
    /// Rules whose beginnings are being looked at.
    inside: Vec<u32>,
    depth: usize,
}

impl Restrict<'_> {
    fn taken(&self, byte: u8) -> bool {
        self.bytes.contains(&byte)
    }

    fn expr(&mut self, e: &Expr) -> Result<Expr, ()> {
        self.left = self.left.checked_sub(1).ok_or(())?;
        self.depth = self.depth.checked_sub(1).ok_or(())?;
        let result = self.inner(e);
        self.depth += 1;
        result
    }

    fn inner(&mut self, e: &Expr) -> Result<Expr, ()> {
        Ok(match e {
            Expr::Empty | Expr::Never => Expr::Never,
            Expr::Bytes(b) => match b.first() {
                Some(&first) if !self.taken(first) => e.clone(),
                _ => Expr::Never,
            },
            Expr::Token(_) | Expr::TokenExcept(_) | Expr::Tokens(_) | Expr::Hole(_) => e.clone(),
            Expr::Alt(v) => {
                let mut ways = Vec::with_capacity(v.len());
                for e in v {
                    match self.expr(e)? {
                        Expr::Never => {}
                        e => ways.push(e),
                    }
                }
                if ways.is_empty() {
                    Expr::Never
                } else {
                    Expr::Alt(ways)
                }
            }
            Expr::Seq(v) => {
                // One way for each item that may be the first to match something.
                let mut ways = Vec::new();
                for (i, head) in v.iter().enumerate() {
                    match self.expr(head)? {
                        Expr::Never => {}
                        // Untouched, so that references stay references.
                        same if i == 0 && same == *head => return Ok(e.clone()),
                        head => ways.push(Expr::seq([head].into_iter().chain(v[i + 1..].iter().cloned()))),
                    }
                    if !nullable(head, self.rule_nullable) {
                        break;
                    }
                }
                if ways.is_empty() {
                    Expr::Never
                } else {
                    Expr::Alt(ways)
                }
            }
            Expr::Repeat { body, min, max } if !regular(body) => {
                if *max == Some(0) || max.is_some_and(|m| m < *min) {
                    return Ok(Expr::Never);
                }
                match self.expr(body)? {
                    Expr::Never => Expr::Never,
                    first => {
                        let rest = (**body).clone().repeat(min.saturating_sub(1), max.map(|m| m - 1));
                        Expr::seq([first, rest])
                    }
                }
            }
            Expr::Rule(r) => self.rule(e, *r)?,
            Expr::Call { rule, .. } => match &self.rules.get(*rule as usize).ok_or(())?.body {
                Body::JsonString => self.begins(e, b'"'),
                _ => return Err(()),
            },
            // Regular: what is left is found on automata.
            e => {
                let any = || Expr::Class(vec![(0, 255)]).star();
                let first = Expr::Class(self.bytes.iter().map(|&b| (b, b)).collect());
                let not = Expr::alt([Expr::Empty, Expr::seq([first, any()])]);
                let rest = Expr::Sub(Box::new(e.clone()), Box::new(not));
                let (all, left) = (dfa(e, self.budget).map_err(|_| ())?, dfa(&rest, self.budget).map_err(|_| ())?);
                if left.is_empty() {
                    Expr::Never
                } else if left == all {
                    e.clone()
                } else {
                    rest
                }
            }
        })
    }

    fn begins(&self, e: &Expr, byte: u8) -> Expr {
        if self.taken(byte) {
            Expr::Never
        } else {
            e.clone()
        }
    }

    fn rule(&mut self, e: &Expr, r: u32) -> Result<Expr, ()> {
        if self.inside.contains(&r) {
            return Err(());
        }
        match &self.rules.get(r as usize).ok_or(())?.body {
            Body::JsonString => Ok(self.begins(e, b'"')),
            Body::Object(_) => Ok(self.begins(e, b'{')),
            Body::Dispatch(_) => Err(()),
            Body::Expr(body) => {
                self.inside.push(r);
                let restricted = self.expr(body);
                self.inside.pop();
                let restricted = restricted?;
                // Untouched rules stay references.
                Ok(if restricted == *body { e.clone() } else { restricted })
            }
        }
    }
}

/// Whether an expression refers to nothing.
fn regular(e: &Expr) -> bool {
    let mut stack = vec![e];
    while let Some(e) = stack.pop() {
        match e {
            Expr::Rule(_)
            | Expr::Call { .. }
            | Expr::Token(_)
            | Expr::TokenExcept(_)
            | Expr::Tokens(_)
            | Expr::Hole(_) => return false,
            Expr::Seq(v) | Expr::Alt(v) => stack.extend(v),
            Expr::Repeat { body, .. } => stack.push(body),
            _ => {}
        }
    }
    true
}
