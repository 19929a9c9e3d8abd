//! Plain numbers (`-12.50`): digit by digit before the point, where longer is larger, then after it, where the first
//! difference decides.

use std::cmp::Ordering;

use super::bounds::Edge;
use super::machine::{Cmp, Machine, Place};
use super::Kind;
use crate::error::Result;

/// A plain number being read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Plain {
    place: Place,
    minus: bool,
    lo: Cmp,
    hi: Cmp,
    /// Remainder and digits after the point, for `multipleOf`.
    rest: u32,
    digits: u32,
    /// Whether a digit other than zero stands after the point (where that matters).
    fraction: bool,
}

impl Machine {
    pub(super) fn first(&mut self, minus: bool, byte: u8) -> Result<Option<Plain>> {
        let Some(branch) = self.branch(minus) else { return Ok(None) };
        let begin = |e: &Option<Edge>| if e.is_some() { Cmp::Whole(0, Ordering::Equal) } else { Cmp::Off };
        let place = if byte == b'0' { Place::Zero } else { Place::Whole };
        let (lo, hi) = (begin(&branch.lo), begin(&branch.hi));
        let rest = match &mut self.multiple {
            Some(m) => m.zero()?,
            None => 0,
        };
        self.whole(Plain { place, minus, lo, hi, rest, digits: 0, fraction: false }, byte)
    }

    /// A digit before the point.
    fn whole(&mut self, mut p: Plain, byte: u8) -> Result<Option<Plain>> {
        let Some(branch) = self.branch(p.minus) else { return Ok(None) };
        let compare = |c: Cmp, edge: &Option<Edge>| match (c, edge) {
            (Cmp::Whole(k, order), Some(e)) => {
                e.size.whole.get(k as usize).map(|d| Cmp::Whole(k + 1, order.then(byte.cmp(d))))
            }
            (c, _) => Some(c),
        };
        // More digits than the bound has: larger.
        p.lo = compare(p.lo, &branch.lo).unwrap_or(Cmp::Off);
        let Some(hi) = compare(p.hi, &branch.hi) else { return Ok(None) };
        if let (Cmp::Whole(k, Ordering::Greater), Some(e)) = (hi, &branch.hi) {
            if k as usize == e.size.whole.len() {
                return Ok(None);
            }
        }
        p.hi = hi;
        if let Some(m) = &mut self.multiple {
            p.rest = m.append(p.rest, byte)?;
        }
        Ok(Some(p))
    }

    /// The part before the point is complete. `None`: out of bounds whatever follows.
    fn point(&self, mut p: Plain) -> Option<Plain> {
        let branch = self.branch(p.minus)?;
        if let (Cmp::Whole(k, order), Some(e)) = (p.lo, &branch.lo) {
            p.lo = match (k as usize).cmp(&e.size.whole.len()).then(order) {
                Ordering::Less => return None,
                Ordering::Equal => Cmp::Equal(0),
                Ordering::Greater => Cmp::Off,
            };
        }
        if let (Cmp::Whole(k, order), Some(e)) = (p.hi, &branch.hi) {
            p.hi = match (k as usize).cmp(&e.size.whole.len()).then(order) {
                Ordering::Less => Cmp::Off,
                Ordering::Equal => Cmp::Equal(0),
                Ordering::Greater => return None,
            };
        }
        Some(p)
    }

    pub(super) fn next(&mut self, p: Plain, byte: u8) -> Result<Option<Plain>> {
        match (p.place, byte) {
            (Place::Whole, b'0'..=b'9') => self.whole(p, byte),
            (Place::Zero | Place::Whole, b'.') if !(self.kind == Kind::Integer && self.plain) => {
                Ok(self.point(Plain { place: Place::Point, ..p }))
            }
            (Place::Point | Place::Part, b'0'..=b'9') => self.part(Plain { place: Place::Part, ..p }, byte),
            _ => Ok(None),
        }
    }

    /// A digit after the point.
    fn part(&mut self, mut p: Plain, byte: u8) -> Result<Option<Plain>> {
        if self.kind == Kind::Integer && byte != b'0' {
            return Ok(None);
        }
        let Some(branch) = self.branch(p.minus) else { return Ok(None) };
        let lo = branch.lo.as_ref().map_or(&[][..], |e| &e.size.part);
        let hi = branch.hi.as_ref().map_or(&[][..], |e| &e.size.part);
        let (Some(lo), Some(hi)) = (digit(p.lo, lo, byte, true), digit(p.hi, hi, byte, false)) else { return Ok(None) };
        (p.lo, p.hi) = (lo, hi);
        p.fraction |= self.kind == Kind::Fraction && byte != b'0';
        if let Some(m) = &mut self.multiple {
            if p.digits < m.scale() {
                p.digits += 1;
                p.rest = m.append(p.rest, byte)?;
            } else if byte != b'0' {
                return Ok(None);
            }
        }
        Ok(Some(p))
    }

    pub(super) fn accepts_plain(&self, p: Plain) -> bool {
        let p = match p.place {
            Place::Zero | Place::Whole => self.point(p),
            Place::Part => Some(p),
            _ => None,
        };
        let (Some(p), Some(branch)) = (p, p.and_then(|p| self.branch(p.minus))) else { return false };
        // Equal so far means smaller if the bound has digits left.
        let equal = |c: Cmp, e: &Edge| c == Cmp::Equal(e.size.part.len() as u32);
        let above = branch.lo.as_ref().is_none_or(|e| p.lo == Cmp::Off || (equal(p.lo, e) && !e.strict));
        let below = branch.hi.as_ref().is_none_or(|e| p.hi == Cmp::Off || !equal(p.hi, e) || !e.strict);
        let divided = self.multiple.as_ref().is_none_or(|m| m.divides(p.rest, p.digits));
        above && below && divided && (self.kind != Kind::Fraction || p.fraction)
    }
}

/// A digit after the point against a bound; `None`: out of bounds.
fn digit(c: Cmp, bound: &[u8], byte: u8, lower: bool) -> Option<Cmp> {
    let Cmp::Equal(k) = c else { return Some(c) };
    match byte.cmp(bound.get(k as usize).unwrap_or(&b'0')) {
        Ordering::Equal => Some(Cmp::Equal((k + 1).min(bound.len() as u32))),
        order => ((order == Ordering::Greater) == lower).then_some(Cmp::Off),
    }
}
