//! Intersection and difference, resolved on automata.
//!
//! Operands are lowered by builders of their own. A product keeps the counters of both sides; the second operand of a
//! difference, and everything where counters are not wanted, is made a [`Dfa`] with every repeat unrolled.

use super::expr::{split_start, Builder, Lowered};
use crate::automata::dead_ends::has_dead_ends;
use crate::automata::{determinize, fsm_is_empty, minimize, product};
use crate::error::{CompileError, Result};
use crate::fsm::{PLAIN, REJECT};
use crate::ir::{Dfa, Expr};
use crate::limits::Budget;

/// Most operators (`And`, `Sub`) inside one another.
const MAX_OPERATORS: u32 = 64;

/// Most configurations of counters that are searched for dead ends.
const MOST_CONFIGURATIONS: usize = 4096;

/// The minimal automaton of a regular expression, without counters: every repeat is unrolled, within the budget.
pub fn dfa(e: &Expr, budget: &Budget) -> Result<Dfa> {
    regular_dfa(e, budget, 0)
}

impl Builder<'_> {
    /// Lowers an intersection or a difference on automata.
    pub(super) fn operator(&self, e: &Expr) -> Result<Lowered> {
        let lowered = self.product(e)?;
        // Counters that cannot be met together are told apart by states instead.
        if lowered.fsm.counters > 0 && has_dead_ends(&lowered.fsm, MOST_CONFIGURATIONS) == Some(true) {
            return Ok(dfa_to_lowered(&operator_dfa(e, self.budget, self.operators + 1)?));
        }
        Ok(lowered)
    }

    fn product(&self, e: &Expr) -> Result<Lowered> {
        let operators = self.operators + 1;
        if self.exact {
            return Ok(dfa_to_lowered(&operator_dfa(e, self.budget, operators)?));
        }
        if operators > MAX_OPERATORS {
            return Err(too_many_operators());
        }
        let lower = |e: &Expr| {
            let mut b = Builder::new(&[], self.budget);
            b.operators = operators;
            b.lower(e)
        };
        match e {
            Expr::And(items) => {
                let Some((first, rest)) = items.split_first() else {
                    return Err(CompileError::invalid("", "an intersection of nothing has no operands"));
                };
                let mut acc = lower(first)?;
                for item in rest {
                    // An empty intersection stays empty; the operands left must still be well-formed.
                    let next = lower(item)?;
                    let nullable = acc.nullable && next.nullable;
                    let fsm = if fsm_is_empty(&acc.fsm) {
                        acc.fsm
                    } else {
                        minimize(product::intersect(&acc.fsm, &next.fsm, self.budget)?)
                    };
                    acc = Lowered { fsm, nullable };
                }
                Ok(acc)
            }
            Expr::Sub(a, b) => {
                let a = lower(a)?;
                let b = regular_dfa(b, self.budget, operators)?;
                let nullable = a.nullable && !b.accepts(b"");
                Ok(Lowered { fsm: minimize(product::subtract(&a.fsm, &b, self.budget)?), nullable })
            }
            other => lower(other),
        }
    }
}

fn too_many_operators() -> CompileError {
    CompileError::limit("depth", "the nesting of intersections and differences", u64::from(MAX_OPERATORS))
}

/// See [`dfa`]. `operators` is the number of operators around `e`.
fn regular_dfa(e: &Expr, budget: &Budget, operators: u32) -> Result<Dfa> {
    if matches!(e, Expr::And(_) | Expr::Sub(..)) {
        return operator_dfa(e, budget, operators + 1);
    }
    let mut b = Builder::new(&[], budget);
    b.exact = true;
    b.operators = operators;
    let (start, end) = (b.state()?, b.state()?);
    b.expr(e, start, end)?;
    b.accept(end, PLAIN);
    Ok(Dfa::from_fsm(&minimize(determinize(b.nfa, start, budget)?)))
}

fn operator_dfa(e: &Expr, budget: &Budget, operators: u32) -> Result<Dfa> {
    if operators > MAX_OPERATORS {
        return Err(too_many_operators());
    }
    match e {
        Expr::And(items) => {
            let Some((first, rest)) = items.split_first() else {
                return Err(CompileError::invalid("", "an intersection of nothing has no operands"));
            };
            let mut acc = regular_dfa(first, budget, operators)?;
            for item in rest {
                acc = acc.intersect(&regular_dfa(item, budget, operators)?, budget)?;
            }
            Ok(acc)
        }
        Expr::Sub(a, b) => {
            let a = regular_dfa(a, budget, operators)?;
            a.difference(&regular_dfa(b, budget, operators)?, budget)
        }
        other => regular_dfa(other, budget, operators),
    }
}

fn dfa_to_lowered(dfa: &Dfa) -> Lowered {
    let mut fsm = dfa.to_fsm();
    let nullable = fsm.states[0].accept != REJECT;
    if nullable {
        split_start(&mut fsm);
    }
    Lowered { fsm, nullable }
}
