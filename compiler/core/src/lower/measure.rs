//! What lowering asks of an expression before it builds anything: its depth, whether it matches the empty string, and
//! about how many states it makes. None of it recurses.

use crate::error::Result;
use crate::ir::Expr;
use crate::limits::Budget;

/// Most copies of a body that a bounded repeat is unrolled to.
pub(super) const UNROLL_COPIES: u32 = 16;
/// Most states (as estimated) that the copies may have together.
pub(super) const UNROLL_STATES: usize = 64;

/// Fails if `e` nests deeper than the budget allows. Without recursion.
pub(super) fn check_depth(e: &Expr, budget: &Budget) -> Result<()> {
    let mut stack = vec![(e, 0)];
    while let Some((e, depth)) = stack.pop() {
        match e {
            Expr::Seq(v) | Expr::Alt(v) | Expr::And(v) => {
                budget.depth(depth)?;
                stack.extend(v.iter().map(|e| (e, depth + 1)));
            }
            Expr::Repeat { body, .. } => {
                budget.depth(depth)?;
                stack.push((body, depth + 1));
            }
            Expr::Sub(a, b) => {
                budget.depth(depth)?;
                stack.extend([(&**a, depth + 1), (&**b, depth + 1)]);
            }
            _ => {}
        }
    }
    Ok(())
}

/// Whether `e` matches the empty string, given which rules do.
pub fn nullable(e: &Expr, rule_nullable: &[bool]) -> bool {
    enum Frame<'e> {
        All(std::slice::Iter<'e, Expr>),
        Any(std::slice::Iter<'e, Expr>),
        Minus(&'e Expr),
        Not,
    }
    let mut frames: Vec<Frame> = vec![];
    let mut at = e;
    loop {
        let mut value = match at {
            Expr::Empty | Expr::Tokens(_) | Expr::Distinct => true,
            Expr::Bytes(b) => b.is_empty(),
            Expr::Seq(v) | Expr::And(v) => {
                frames.push(Frame::All(v.iter()));
                true
            }
            Expr::Alt(v) => {
                frames.push(Frame::Any(v.iter()));
                false
            }
            Expr::Repeat { body, min, max } => {
                if max.is_some_and(|m| m < *min) {
                    false
                } else if *min == 0 {
                    true
                } else {
                    at = body;
                    continue;
                }
            }
            Expr::Rule(r) | Expr::Call { rule: r, .. } => rule_nullable.get(*r as usize).copied().unwrap_or(false),
            Expr::Sub(a, b) => {
                frames.push(Frame::Minus(b));
                at = a;
                continue;
            }
            Expr::Automaton(d) => d.states.first().is_some_and(|s| s.accept),
            Expr::Never
            | Expr::Class(_)
            | Expr::Chars(_)
            | Expr::JsonChars { .. }
            | Expr::Token(_)
            | Expr::TokenExcept(_)
            | Expr::Hole(_) => false,
        };
        // Hand the value to the frames above until one of them asks for another operand.
        loop {
            let next = match frames.last_mut() {
                None => return value,
                Some(Frame::All(rest)) if value => rest.next(),
                Some(Frame::Any(rest)) if !value => rest.next(),
                Some(Frame::Minus(b)) if value => {
                    let b = *b;
                    frames.pop();
                    frames.push(Frame::Not);
                    at = b;
                    break;
                }
                Some(Frame::Not) => {
                    value = !value;
                    None
                }
                Some(_) => None,
            };
            match next {
                Some(e) => {
                    at = e;
                    break;
                }
                None => {
                    frames.pop();
                }
            }
        }
    }
}

/// About how many states one copy of `e` makes; beyond [`UNROLL_STATES`] only that it is more.
pub(super) fn estimate(e: &Expr) -> usize {
    struct Frame<'e> {
        rest: std::slice::Iter<'e, Expr>,
        sum: usize,
        copies: usize,
    }
    let mut frames: Vec<Frame> = vec![];
    let mut at = e;
    loop {
        let mut size = match at {
            Expr::Seq(v) | Expr::Alt(v) => {
                frames.push(Frame { rest: v.iter(), sum: 0, copies: 1 });
                0
            }
            Expr::Repeat { body, min, max } => {
                let copies = max.unwrap_or(*min).max(1) as usize;
                frames.push(Frame { rest: std::slice::from_ref(&**body).iter(), sum: 0, copies });
                0
            }
            Expr::And(_) | Expr::Sub(..) => return UNROLL_STATES + 1,
            Expr::Bytes(b) => b.len().max(1),
            Expr::Chars(r) if r.iter().any(|r| r.1 >= 0x80) => 4,
            Expr::JsonChars { ranges, .. } => match ranges[..] {
                [(a, b)] if a == b => 2,
                _ => 16,
            },
            Expr::Automaton(d) => d.states.len().max(1),
            _ => 1,
        };
        loop {
            let Some(top) = frames.last_mut() else { return size };
            top.sum += size;
            if top.sum > UNROLL_STATES {
                return UNROLL_STATES + 1;
            }
            if let Some(e) = top.rest.next() {
                at = e;
                break;
            }
            // A repeat too big to be unrolled becomes a loop.
            let unrolled = top.sum.saturating_mul(top.copies);
            let small = top.copies <= UNROLL_COPIES as usize && unrolled <= UNROLL_STATES;
            size = if small { unrolled.max(1) } else { top.sum + 1 };
            frames.pop();
        }
    }
}
