//! JSON numbers within bounds, as deterministic automata over their digits.
//!
//! Everything is by value and exact, for bounds of any length: `-0` is zero, `1.0` is an integer. Plain spellings
//! (`-12.50`) are complete. Spellings with an exponent are complete where no bound or `multipleOf` applies to that sign. Under
//! bounds they are those of normal scientific notation, one digit from 1 to 9 before the point and any number after it
//! (`1.5e+300`, what serialisers write), exact for bounds up to [`EXPONENT`] in decimal exponent. With `multipleOf` there are
//! none. Integers have exponents from 0 on, and only zeros after the point.
//!
//! The automaton is found by walking the text and comparing it with each bound digit by digit: for the part before the
//! point, how many digits there were and how they compare; then, while equal, how far. `multipleOf` adds the remainder
//! ([`multiple`]).

mod bounds;
mod machine;
mod multiple;
mod plain;
mod scientific;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::error::Result;
use crate::ir::{Dfa, DfaState, Expr};
use crate::limits::Budget;
use bounds::{Branch, Decimal};
use machine::{Machine, State};
use multiple::Multiple;

pub use bounds::EXPONENT;

/// A bound, as JSON writes numbers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Bound {
    pub text: String,
    pub exclusive: bool,
}

/// What a number has to be.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct NumberSpec {
    pub min: Option<Bound>,
    pub max: Option<Bound>,
    /// Positive decimals, all of which divide the number.
    pub multiple_of: Vec<String>,
    /// Values that it must not have.
    pub except: Vec<String>,
    /// Integers only as `-?(0|[1-9][0-9]*)`: no `1.0`, no `1e3`.
    pub plain: bool,
}

/// Which values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    Integer,
    /// Not an integer.
    Fraction,
    Number,
}

/// Integers; [`Expr::Never`] if there are none.
pub fn integer(spec: &NumberSpec, budget: &Budget) -> Result<Expr> {
    of_kind(Kind::Integer, spec, budget)
}

/// Any numbers; [`Expr::Never`] if there are none.
pub fn number(spec: &NumberSpec, budget: &Budget) -> Result<Expr> {
    of_kind(Kind::Number, spec, budget)
}

/// The number of this value, in every spelling.
pub fn constant(text: &str, plain: bool, budget: &Budget) -> Result<Expr> {
    let bound = Bound { text: text.into(), exclusive: false };
    let spec = NumberSpec { min: Some(bound.clone()), max: Some(bound), plain, ..NumberSpec::default() };
    number(&spec, budget)
}

pub fn of_kind(kind: Kind, spec: &NumberSpec, budget: &Budget) -> Result<Expr> {
    let free = spec.min.is_none() && spec.max.is_none() && spec.multiple_of.is_empty();
    let all = if free && kind != Kind::Fraction { unbounded(kind, spec.plain) } else { bounded(kind, spec, budget)? };
    if spec.except.is_empty() || all == Expr::Never {
        return Ok(all);
    }
    let mut except = vec![];
    for text in &spec.except {
        except.push(constant(text, false, budget)?);
    }
    Ok(Expr::Sub(Box::new(all), Box::new(Expr::Alt(except))))
}

/// The values an OpenAPI format allows: (minimum, maximum), and whether they are integers.
pub fn format_bounds(format: &str) -> Option<(&'static str, &'static str, bool)> {
    Some(match format {
        "int32" => ("-2147483648", "2147483647", true),
        "int64" => ("-9223372036854775808", "9223372036854775807", true),
        "float" => ("-3.4028234663852886e38", "3.4028234663852886e38", false),
        "double" => ("-1.7976931348623157e308", "1.7976931348623157e308", false),
        _ => return None,
    })
}

/// The grammar of JSON numbers, or of integers among them.
fn unbounded(kind: Kind, plain: bool) -> Expr {
    let class = |bytes: &[u8]| Expr::Class(bytes.iter().map(|&b| (b, b)).collect());
    let digits = || Expr::Class(vec![(b'0', b'9')]);
    let whole = Expr::alt([Expr::lit("0"), Expr::seq([Expr::Class(vec![(b'1', b'9')]), digits().star()])]);
    let mut items = vec![Expr::lit("-").opt(), whole];
    if kind == Kind::Integer && plain {
        return Expr::Seq(items);
    }
    let (after_point, signs) = match kind {
        Kind::Integer => (Expr::lit("0"), class(b"+")),
        _ => (digits(), class(b"+-")),
    };
    items.push(Expr::seq([Expr::lit("."), after_point.plus()]).opt());
    items.push(Expr::seq([class(b"Ee"), signs.opt(), digits().plus()]).opt());
    Expr::Seq(items)
}

/// What a state of numbers costs, in states: it is stepped on each byte that numbers are written with.
const STEPS: usize = 2;

fn bounded(kind: Kind, spec: &NumberSpec, budget: &Budget) -> Result<Expr> {
    let bound = |b: &Option<Bound>| match b {
        Some(b) => Decimal::parse(&b.text).map(|d| Some((d, b.exclusive))),
        None => Ok(None),
    };
    let (min, max) = (bound(&spec.min)?, bound(&spec.max)?);
    let negated = |b: &Option<(Decimal, bool)>| {
        b.as_ref().map(|(d, strict)| (Decimal { negative: !d.negative && !d.is_zero(), ..d.clone() }, *strict))
    };
    let branches =
        [Branch::new(min.as_ref(), max.as_ref()), Branch::new(negated(&max).as_ref(), negated(&min).as_ref())];
    let multiple = if spec.multiple_of.is_empty() { None } else { Some(Multiple::new(&spec.multiple_of)?) };
    let scientific = [0, 1].map(|i| {
        multiple.is_none()
            && !(kind == Kind::Integer && spec.plain)
            && branches[i].as_ref().is_some_and(Branch::scientific)
    });
    let mut machine = Machine { kind, plain: spec.plain, branches, scientific, multiple };
    let mut ids: FxHashMap<State, u32> = FxHashMap::default();
    let mut states = vec![State::Start];
    ids.insert(State::Start, 0);
    let mut dfa = Dfa::default();
    while dfa.states.len() < states.len() {
        let state = states[dfa.states.len()];
        budget.states(STEPS)?;
        let mut edges: Vec<(u8, u8, u32)> = vec![];
        for &byte in b"+-.0123456789Ee" {
            let Some(next) = machine.step(state, byte)? else { continue };
            let to = *ids.entry(next).or_insert_with(|| {
                states.push(next);
                states.len() as u32 - 1
            });
            match edges.last_mut() {
                Some(e) if e.2 == to && e.1 + 1 == byte => e.1 = byte,
                _ => edges.push((byte, byte, to)),
            }
        }
        dfa.states.push(DfaState { edges, accept: machine.accepts(state) });
    }
    Ok(match trim(dfa) {
        Some(dfa) => Expr::Automaton(Arc::new(dfa)),
        None => Expr::Never,
    })
}

/// Without the states that lead nowhere; `None` if nothing is accepted.
fn trim(dfa: Dfa) -> Option<Dfa> {
    let n = dfa.states.len();
    let mut sources = vec![vec![]; n];
    for (i, s) in dfa.states.iter().enumerate() {
        for e in &s.edges {
            sources[e.2 as usize].push(i);
        }
    }
    let mut todo: Vec<usize> = (0..n).filter(|&i| dfa.states[i].accept).collect();
    let mut live = vec![false; n];
    todo.iter().for_each(|&i| live[i] = true);
    while let Some(i) = todo.pop() {
        for &from in &sources[i] {
            if !std::mem::replace(&mut live[from], true) {
                todo.push(from);
            }
        }
    }
    if n == 0 || !live[0] {
        return None;
    }
    let mut number = vec![0u32; n];
    let mut next = 0;
    for i in 0..n {
        number[i] = next;
        next += u32::from(live[i]);
    }
    let kept = dfa.states.into_iter().zip(&live).filter(|(_, &l)| l).map(|(mut s, _)| {
        s.edges.retain(|e| live[e.2 as usize]);
        s.edges.iter_mut().for_each(|e| e.2 = number[e.2 as usize]);
        s
    });
    Some(Dfa { states: kept.collect() })
}
