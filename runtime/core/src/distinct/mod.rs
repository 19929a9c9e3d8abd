//! Strings that must differ from each other: what the marks of a grammar's states (`gramary_compiler::fsm`) demand of the text.
//!
//! A grammar cannot compare strings, but a matcher reads the text. From the `[` or `{` with which an item arrives in a marked
//! state, up to the bracket that closes it, the text is read as JSON ([`strings`]): which containers are open, what the string
//! at hand spells, and, in a trie for each container, which strings ended in marked states before. When a string ends that
//! its container has already, the items that its closing quote brought into marked states die; others live on, so a grammar
//! that demands distinct strings in one alternative only stays exact.
//!
//! # Dead ends
//!
//! Behind `["ab","a` a pattern may leave nothing but to write `"ab"` once more. A byte that leads there is refused
//! ([`alive`]): a place in a string is alive if some byte makes it differ from all earlier strings, or closes it without
//! being refused, or leads to a place that is alive. Nothing needs to be looked at where no earlier string begins like this
//! one, which is nearly everywhere; nor right behind an opening quote, since strings are marked only where there are
//! infinitely many.
//!
//! # Masks
//!
//! Mask entries know nothing of texts, so a row is corrected afterwards ([`masks`]). The tokens that can be refused are few:
//! those that go on along an earlier string, however that is spelled, and those that hold further strings themselves. They
//! are tried one by one, by the very function that takes tokens, so mask and matcher cannot disagree.
//!
//! A grammar without marks pays one test a byte.

mod alive;
mod masks;
mod spelling;
pub(crate) mod strings;
mod tokens;

pub(crate) use alive::alive;
pub(crate) use strings::{Place, Strings};
pub(crate) use tokens::Quoted;

use crate::matcher::{Access, Step};
use strings::Event;

/// Read the byte that led to `step.set`, and take the items of a repeated string out. False: none is left, or the byte leads
/// there; `None`: a memo is missing.
pub(crate) fn read(access: &mut Access<'_>, step: &mut Step, b: u8, strings: &mut Strings) -> Option<bool> {
    let now = strings.feed(&mut step.place, b);
    match now {
        Event::Nothing => {}
        Event::Bracket => {
            if access.unmarked(step.set)? != step.set {
                strings.begin(&mut step.place);
            }
        }
        Event::Ended => {
            let rest = access.unmarked(step.set)?;
            if rest != step.set && !strings.note(&mut step.place) {
                step.set = rest;
            }
        }
    }
    Some(step.set != gramary_compiler::machine::DEAD_SET)
}
