//! Small rules that refer to nothing are written out where they are used.

use rustc_hash::FxHashMap;

use crate::error::Result;
use crate::ir::{Body, Expr, Grammar, RuleId};
use crate::limits::Budget;

/// A rule with more expressions than this stays a rule.
const SMALL: usize = 24;
/// Bytes of literals count as this many to an expression.
const BYTES: usize = 8;
/// A body that has grown to this many expressions takes in no more.
const MOST: usize = 10_000;

/// Replaces references to small rules without references by their bodies, until there is nothing left to replace.
pub(super) fn inline(grammar: &mut Grammar, budget: &Budget) -> Result<()> {
    let n = grammar.rules.len();
    let mut size = vec![0usize; n];
    let mut waits_for: Vec<FxHashMap<RuleId, u32>> = vec![FxHashMap::default(); n];
    let mut used_by: Vec<Vec<RuleId>> = vec![vec![]; n];
    for (i, rule) in grammar.rules.iter().enumerate() {
        let Body::Expr(e) = &rule.body else {
            // A dispatch is never written out.
            size[i] = usize::MAX;
            continue;
        };
        let mut stack = vec![e];
        while let Some(e) = stack.pop() {
            budget.tick()?;
            size[i] += 1;
            match e {
                Expr::Rule(r) => {
                    *waits_for[i].entry(*r).or_default() += 1;
                }
                Expr::Bytes(b) => size[i] += b.len() / BYTES,
                Expr::Chars(v) => size[i] += v.len() / BYTES,
                Expr::Automaton(d) => size[i] += d.states.len(),
                Expr::Seq(v) | Expr::Alt(v) | Expr::And(v) => stack.extend(v),
                Expr::Repeat { body, .. } => stack.push(body),
                Expr::Sub(a, b) => stack.extend([&**a, &**b]),
                _ => {}
            }
        }
        for &r in waits_for[i].keys() {
            used_by[r as usize].push(i as RuleId);
        }
    }
    let mut ready: Vec<RuleId> =
        (0..n as RuleId).filter(|&r| waits_for[r as usize].is_empty() && size[r as usize] <= SMALL).collect();
    while let Some(rule) = ready.pop() {
        budget.tick()?;
        let Body::Expr(small) = grammar.rules[rule as usize].body.clone() else { continue };
        for user in std::mem::take(&mut used_by[rule as usize]) {
            let i = user as usize;
            let copies = waits_for[i].get(&rule).copied().unwrap_or(0) as usize;
            let grown = size[i].saturating_add(copies.saturating_mul(size[rule as usize]));
            if grown > MOST {
                continue;
            }
            if let Body::Expr(e) = &mut grammar.rules[i].body {
                replace(e, rule, &small);
            }
            waits_for[i].remove(&rule);
            size[i] = grown;
            if waits_for[i].is_empty() && grown <= SMALL {
                ready.push(user);
            }
        }
    }
    Ok(())
}

fn replace(e: &mut Expr, rule: RuleId, body: &Expr) {
    let mut stack = vec![e];
    while let Some(e) = stack.pop() {
        match e {
            Expr::Rule(r) if *r == rule => *e = body.clone(),
            Expr::Seq(v) | Expr::Alt(v) => stack.extend(v),
            Expr::Repeat { body, .. } => stack.push(body),
            _ => {}
        }
    }
}
