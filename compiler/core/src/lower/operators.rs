//! Intersection and difference, resolved on automata.
//!
//! Operands are lowered by builders of their own. A product keeps the counters of both sides; the second operand of a
//! difference, and everything where counters are not wanted, is made a [`Dfa`] with every repeat unrolled.
//!
//! An operand may be far larger than the result: what a look-ahead describes can be in as many states as there are sets of places
//! where a part of it may have ended, of which the rest of the pattern leaves few. So where one operand alone takes too many
//! states, all of them are determinized together, as far as their strings lead ([`joint`]).
//!
//! Counters that are met together can lead into dead ends. A product with few configurations is searched for them, and unrolled
//! if there are any. One with many is nearly always a string with a bound on its length, which [`layers`](crate::automata::layers)
//! works out without unrolling it. What is too large for all of this stays as it is: whatever it takes to the end is right, but it may
//! have dead ends.

use super::builder::{split_start, Builder, Lowered};
use super::language::Language;
use crate::automata::dead_ends::has_dead_ends;
use crate::automata::joint::joint;
use crate::automata::layers::{layered, Layered};
use crate::automata::nfa::Nfa;
use crate::automata::{determinize, fsm_is_empty, minimize, product};
use crate::error::{CompileError, Result};
use crate::fsm::{PLAIN, REJECT, UNBOUNDED};
use crate::ir::{Dfa, Expr};
use crate::limits::Budget;

/// Most operators (`And`, `Sub`) inside one another.
const MAX_OPERATORS: u32 = 64;

/// Most configurations of counters that are searched for dead ends and, if they have some, unrolled. For more, copies near
/// the bounds are cheaper than a state for each configuration.
const MOST_CONFIGURATIONS: usize = 256;
/// The same where nothing else is known of the counters.
const MOST_CONFIGURATIONS_AT_LAST: usize = 1 << 17;
/// States that the operands of an operator may take one by one before they are tried together.
const FIRST_STATES: usize = 100_000;
/// States that they may take together, before it is operand by operand after all.
const TOGETHER_STATES: usize = 150_000;
/// Most states of operands that are written out for that: what is larger is so because of its repeats, not of what it may be
/// in at once, and stays large.
const MOST_WRITTEN: usize = 40_000;
/// Most states that are built to find out.
const MOST_STATES: usize = 100_000;

/// The minimal automaton of a regular expression, without counters: every repeat is unrolled, within the budget.
pub fn dfa(e: &Expr, budget: &Budget) -> Result<Dfa> {
    regular_dfa(e, budget, 0)
}

impl Builder<'_> {
    /// Lowers an intersection or a difference on automata.
    pub(super) fn operator(&self, e: &Expr) -> Result<Lowered> {
        let lowered = self.product(e)?;
        if lowered.fsm.counters == 0 {
            return Ok(lowered);
        }
        // Counters that cannot be met together are told apart by states instead.
        match has_dead_ends(&lowered.fsm, MOST_CONFIGURATIONS, self.budget)? {
            Some(false) => Ok(lowered),
            Some(true) => self.unrolled(e),
            None => self.without_dead_ends(e, lowered),
        }
    }

    fn unrolled(&self, e: &Expr) -> Result<Lowered> {
        Ok(dfa_to_lowered(&operator_dfa(e, self.budget, self.operators + 1)?))
    }

    /// `lowered`, which has many configurations, or another FSM of the same language if it has dead ends.
    fn without_dead_ends(&self, e: &Expr, lowered: Lowered) -> Result<Lowered> {
        let attempt = self.budget.part(MOST_STATES);
        match within_length(e, &lowered, &attempt) {
            Ok(Layered::Sound) => return Ok(lowered),
            Ok(Layered::Cut(fsm)) => {
                self.budget.states(fsm.states.len())?;
                return Ok(Lowered { fsm: minimize(fsm), nullable: lowered.nullable });
            }
            Ok(Layered::Unknown) => {}
            Err(e) if gave_up(&e) => {}
            Err(e) => return Err(e),
        }
        match has_dead_ends(&lowered.fsm, MOST_CONFIGURATIONS_AT_LAST, self.budget)? {
            Some(false) => Ok(lowered),
            Some(true) => self.unrolled(e),
            None => match operator_dfa(e, &self.budget.part(MOST_STATES), self.operators + 1) {
                Ok(dfa) => {
                    self.budget.states(dfa.states.len())?;
                    Ok(dfa_to_lowered(&dfa))
                }
                Err(e) if gave_up(&e) => Ok(lowered),
                Err(e) => Err(e),
            },
        }
    }

    /// An operand by a builder of its own.
    fn operand(&self, e: &Expr, budget: &Budget) -> Result<Lowered> {
        let mut b = Builder::new(&[], budget);
        b.operators = self.operators + 1;
        b.lower(e)
    }

    fn product(&self, e: &Expr) -> Result<Lowered> {
        let operators = self.operators + 1;
        if self.exact {
            return Ok(dfa_to_lowered(&operator_dfa(e, self.budget, operators)?));
        }
        apart_or_together(e, self.budget, operators, |few| self.one_by_one(e, few), |dfa| dfa_to_lowered(&dfa))
    }

    /// The product of operands, which are made on an account of their own.
    fn one_by_one(&self, e: &Expr, operands: &Budget) -> Result<Lowered> {
        let operators = self.operators + 1;
        match e {
            Expr::And(items) => {
                let Some((first, rest)) = items.split_first() else {
                    return Err(CompileError::invalid("", "an intersection of nothing has no operands"));
                };
                let mut acc = self.operand(first, operands)?;
                for item in rest {
                    // An empty intersection stays empty; the operands left must still be well-formed.
                    let next = self.operand(item, operands)?;
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
                let a = self.operand(a, operands)?;
                let b = regular_dfa(b, operands, operators)?;
                let nullable = a.nullable && !b.accepts(b"");
                Ok(Lowered { fsm: minimize(product::subtract(&a.fsm, &b, self.budget)?), nullable })
            }
            other => self.operand(other, operands),
        }
    }
}

/// Takes the dead ends out of a product of something and a bounded length, if `e` is one. `lowered` is the product.
fn within_length(e: &Expr, lowered: &Lowered, budget: &Budget) -> Result<Layered> {
    match length_of(e) {
        Some((min, max)) => layered(&lowered.fsm, min, max.unwrap_or(UNBOUNDED), budget),
        None => Ok(Layered::Unknown),
    }
}

/// The bounds of a repeat of single characters that is intersected with the rest of `e`.
fn length_of(e: &Expr) -> Option<(u32, Option<u32>)> {
    match e {
        Expr::And(items) => items.iter().rev().find_map(|e| match e {
            Expr::Repeat { body, min, max } => {
                let single = matches!(**body, Expr::Class(_) | Expr::Chars(_) | Expr::JsonChars { .. });
                single.then_some((*min, *max))
            }
            e => length_of(e),
        }),
        Expr::Sub(a, _) => length_of(a),
        _ => None,
    }
}

/// Whether an attempt ended at its share of the states.
fn gave_up(e: &CompileError) -> bool {
    matches!(e, CompileError::Limit { name: "fsm_states", .. })
}

fn too_many_operators() -> CompileError {
    CompileError::limit("depth", "the nesting of intersections and differences", u64::from(MAX_OPERATORS))
}

/// See [`dfa`]. `operators` is the number of operators around `e`.
pub(super) fn regular_dfa(e: &Expr, budget: &Budget, operators: u32) -> Result<Dfa> {
    if matches!(e, Expr::And(_) | Expr::Sub(..)) {
        return operator_dfa(e, budget, operators + 1);
    }
    let (nfa, start) = nfa_within(e, budget, operators)?;
    Ok(Dfa::from_fsm(&minimize(determinize(nfa, start, budget)?)))
}

/// An NFA of a regular expression, without counters, and its start: every repeat is unrolled, within the budget. `operators` is
/// the number of operators around `e`.
pub(super) fn nfa_within(e: &Expr, budget: &Budget, operators: u32) -> Result<(Nfa, u32)> {
    let mut b = Builder::new(&[], budget);
    b.exact = true;
    b.operators = operators;
    let (start, end) = (b.state()?, b.state()?);
    b.expr(e, start, end)?;
    b.accept(end, PLAIN);
    Ok((b.nfa, start))
}

fn operator_dfa(e: &Expr, budget: &Budget, operators: u32) -> Result<Dfa> {
    apart_or_together(e, budget, operators, |few| one_by_one(e, (few, budget), operators), |dfa| dfa)
}

/// An operator resolved operand by operand (`apart`, which makes them on the account that it is given), or, where one alone
/// takes too many states, on all of them together.
fn apart_or_together<T>(
    e: &Expr,
    budget: &Budget,
    operators: u32,
    apart: impl Fn(&Budget) -> Result<T>,
    of: impl FnOnce(Dfa) -> T,
) -> Result<T> {
    if operators > MAX_OPERATORS {
        return Err(too_many_operators());
    }
    // What is large by itself may be small beside the others, with every repeat unrolled.
    let few = budget.part(FIRST_STATES);
    let made = apart(&few);
    budget.states(few.spent())?;
    match made {
        Err(error) if gave_up(&error) => match together(e, budget, operators)? {
            Some(dfa) => Ok(of(dfa)),
            None => apart(budget),
        },
        made => made,
    }
}

/// The operands of intersections and differences inside each other: strings are in all of the first, and in none of the
/// second.
fn operands<'e>(e: &'e Expr, all: &mut Vec<&'e Expr>, not: &mut Vec<&'e Expr>) {
    match e {
        Expr::And(items) => items.iter().for_each(|e| operands(e, all, not)),
        Expr::Sub(a, b) => {
            operands(a, all, not);
            match &**b {
                Expr::Alt(ways) => not.extend(ways),
                b => not.push(b),
            }
        }
        e => all.push(e),
    }
}

/// An operator resolved on all of its operands together; `None` if that takes more than [`TOGETHER_STATES`].
fn together(e: &Expr, budget: &Budget, operators: u32) -> Result<Option<Dfa>> {
    if operators >= MAX_OPERATORS {
        return Ok(None);
    }
    let few = budget.part(TOGETHER_STATES);
    let made = || {
        let (mut all, mut not) = (vec![], vec![]);
        operands(e, &mut all, &mut not);
        let languages = |of: &[&Expr]| -> Result<Vec<Language>> {
            of.iter().map(|e| Language::within(e, &few, operators + 1)).collect()
        };
        let (all, not) = (languages(&all)?, languages(&not)?);
        if few.spent() > MOST_WRITTEN {
            return Ok(None);
        }
        joint(&all.iter().collect::<Vec<_>>(), &not.iter().collect::<Vec<_>>(), &few).map(Some)
    };
    let made = made();
    budget.states(few.spent())?;
    match made {
        Err(error) if gave_up(&error) => Ok(None),
        made => made,
    }
}

/// An operator resolved operand by operand; these are made on an account of their own, the first.
fn one_by_one(e: &Expr, (few, budget): (&Budget, &Budget), operators: u32) -> Result<Dfa> {
    match e {
        Expr::And(items) => {
            let Some((first, rest)) = items.split_first() else {
                return Err(CompileError::invalid("", "an intersection of nothing has no operands"));
            };
            let mut acc = regular_dfa(first, few, operators)?;
            for item in rest {
                acc = acc.intersect(&regular_dfa(item, few, operators)?, budget)?;
            }
            Ok(acc)
        }
        Expr::Sub(a, b) => {
            let a = regular_dfa(a, few, operators)?;
            a.difference(&regular_dfa(b, few, operators)?, budget)
        }
        other => regular_dfa(other, few, operators),
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
