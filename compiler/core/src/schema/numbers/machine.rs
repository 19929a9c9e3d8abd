//! What reads the text of a number: a state and a byte give the next state.
//!
//! Until an `e` stands there, a text may be the beginning of a plain number and of one with an exponent, which are bound
//! in different ways. So a state holds both readings, of which each ends for itself.

use std::cmp::Ordering;

use super::bounds::Branch;
use super::multiple::Multiple;
use super::plain::Plain;
use super::scientific::Scientific;
use super::Kind;
use crate::error::Result;

/// Numbers of one kind within bounds.
pub(super) struct Machine {
    pub kind: Kind,
    pub plain: bool,
    /// Without and with a minus.
    pub branches: [Option<Branch>; 2],
    /// With which of them there may be an exponent.
    pub scientific: [bool; 2],
    pub multiple: Option<Multiple>,
}

/// What matters of the text so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum State {
    Start,
    Minus,
    In(Option<Plain>, Option<Scientific>),
}

/// How the text read so far compares with a bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Cmp {
    /// The bound is absent, or satisfied whatever follows.
    Off,
    /// Before the point: digits read, and how they compare with as many of the bound's.
    Whole(u32, Ordering),
    /// Equal so far; the number of digits passed that matter now (after the point, or of the mantissa).
    Equal(u32),
}

/// What the last byte was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Place {
    /// After a leading zero.
    Zero,
    Whole,
    Point,
    /// A digit after the point.
    Part,
    /// The `e`.
    Mark,
    Sign,
    Exponent,
}

impl Machine {
    pub fn step(&mut self, state: State, byte: u8) -> Result<Option<State>> {
        let (plain, scientific) = match state {
            State::Start if byte == b'-' => return Ok(self.branches[1].is_some().then_some(State::Minus)),
            State::Start | State::Minus if !byte.is_ascii_digit() => return Ok(None),
            State::Start => (self.first(false, byte)?, self.first_scientific(false, byte)),
            State::Minus => (self.first(true, byte)?, self.first_scientific(true, byte)),
            State::In(p, s) => (
                match p {
                    Some(p) => self.next(p, byte)?,
                    None => None,
                },
                s.and_then(|s| self.next_scientific(s, byte)),
            ),
        };
        Ok((plain.is_some() || scientific.is_some()).then_some(State::In(plain, scientific)))
    }

    pub fn accepts(&self, state: State) -> bool {
        let State::In(plain, scientific) = state else { return false };
        let plain = plain.is_some_and(|p| self.accepts_plain(p));
        plain || scientific.is_some_and(|s| s.place == Place::Exponent && s.value >= s.from)
    }

    pub(super) fn branch(&self, minus: bool) -> Option<&Branch> {
        self.branches[usize::from(minus)].as_ref()
    }
}
