//! Numbers with an exponent (`1.5e+300`).
//!
//! Under a bound the digits of the mantissa are compared with the bound's while it is read; what they come to moves the
//! bound of the exponent by one or not at all, and of the exponent's digits only their value is left to compare.

use std::cmp::Ordering;

use super::bounds::Edge;
use super::machine::{Cmp, Machine, Place};
use super::Kind;

const UNBOUNDED: i64 = i64::MAX;

/// A number with an exponent being read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Scientific {
    pub place: Place,
    minus: bool,
    lo: Cmp,
    hi: Cmp,
    /// Bounds of the exponent (of its size, once its sign is known).
    pub from: i64,
    to: i64,
    pub value: i64,
}

impl Machine {
    pub(super) fn first_scientific(&self, minus: bool, byte: u8) -> Option<Scientific> {
        let branch = self.branch(minus).filter(|_| self.scientific[usize::from(minus)])?;
        let free = branch.free() && self.kind != Kind::Fraction;
        // No size is below zero or zero.
        if (byte == b'0' && !free) || branch.hi.as_ref().is_some_and(|e| e.size.is_zero()) {
            return None;
        }
        let begin = |e: &Option<Edge>| match e {
            Some(e) if !e.size.is_zero() => Cmp::Equal(0),
            _ => Cmp::Off,
        };
        let place = if free && byte != b'0' { Place::Whole } else { Place::Zero };
        let s = Scientific { place, minus, lo: begin(&branch.lo), hi: begin(&branch.hi), from: 0, to: 0, value: 0 };
        Some(self.mantissa(s, byte))
    }

    /// A digit of the mantissa. `Whole(1, order)` is a comparison that is decided.
    fn mantissa(&self, mut s: Scientific, byte: u8) -> Scientific {
        let compare = |c: Cmp, edge: Option<&Edge>| match (c, edge) {
            (Cmp::Equal(k), Some(e)) => match byte.cmp(e.digits.get(k as usize).unwrap_or(&b'0')) {
                Ordering::Equal => Cmp::Equal((k + 1).min(e.digits.len() as u32)),
                order => Cmp::Whole(1, order),
            },
            (c, _) => c,
        };
        if let Some(branch) = self.branch(s.minus) {
            (s.lo, s.hi) = (compare(s.lo, branch.lo.as_ref()), compare(s.hi, branch.hi.as_ref()));
        }
        s
    }

    pub(super) fn next_scientific(&self, s: Scientific, byte: u8) -> Option<Scientific> {
        match (s.place, byte) {
            (Place::Whole, b'0'..=b'9') => Some(s),
            (Place::Zero | Place::Whole, b'.') => Some(Scientific { place: Place::Point, ..s }),
            (Place::Point | Place::Part, b'1'..=b'9') if self.kind == Kind::Integer => None,
            (Place::Point | Place::Part, b'0'..=b'9') => {
                Some(self.mantissa(Scientific { place: Place::Part, ..s }, byte))
            }
            (Place::Zero | Place::Whole | Place::Part, b'e' | b'E') => self.mark(s),
            (Place::Mark, b'+') => sign(s, false),
            (Place::Mark, b'-') if self.kind != Kind::Integer => sign(s, true),
            (Place::Mark, b'0'..=b'9') => exponent(sign(s, false)?, byte),
            (Place::Sign | Place::Exponent, b'0'..=b'9') => exponent(s, byte),
            _ => None,
        }
    }

    /// The mantissa is complete: what the exponent may be.
    fn mark(&self, s: Scientific) -> Option<Scientific> {
        let branch = self.branch(s.minus)?;
        let order = |c: Cmp, e: &Edge| match c {
            Cmp::Whole(_, order) => order,
            Cmp::Equal(k) if (k as usize) < e.digits.len() => Ordering::Less,
            _ => Ordering::Equal,
        };
        let (mut from, mut to) = (-UNBOUNDED, UNBOUNDED);
        if let Some(e) = branch.lo.as_ref().filter(|_| s.lo != Cmp::Off) {
            let order = order(s.lo, e);
            let enough = order == Ordering::Greater || (order == Ordering::Equal && !e.strict);
            from = e.exponent + i64::from(!enough);
        }
        if let Some(e) = branch.hi.as_ref().filter(|_| s.hi != Cmp::Off) {
            let order = order(s.hi, e);
            let fits = order == Ordering::Less || (order == Ordering::Equal && !e.strict);
            to = e.exponent - i64::from(!fits);
        }
        match self.kind {
            Kind::Integer => from = from.max(0),
            // One digit before the point and a negative exponent: below one. Others may or may not be whole.
            Kind::Fraction => to = to.min(-1),
            Kind::Number => {}
        }
        (from <= to).then_some(Scientific { place: Place::Mark, lo: Cmp::Off, hi: Cmp::Off, from, to, ..s })
    }
}

fn sign(s: Scientific, minus: bool) -> Option<Scientific> {
    let (from, to) = if minus { (-s.to, -s.from) } else { (s.from, s.to) };
    let from = from.max(0);
    (from <= to).then_some(Scientific { place: Place::Sign, from, to, ..s })
}

fn exponent(s: Scientific, byte: u8) -> Option<Scientific> {
    let mut value = s.value * 10 + i64::from(byte - b'0');
    if s.to == UNBOUNDED {
        value = value.min(s.from);
    } else if value > s.to {
        return None;
    } else if value * 10 > s.to {
        // No further digit fits: one state for all of these.
        if value < s.from {
            return None;
        }
        value = s.to;
    }
    Some(Scientific { place: Place::Exponent, value, ..s })
}
