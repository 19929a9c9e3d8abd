//! Values that must differ from each other: what the marks of a grammar's states (`gramary_compiler::fsm`) demand of the text.
//!
//! A grammar cannot compare values, but a matcher reads the text. From the `[` or `{` with which an item arrives in a marked
//! state, up to the bracket that closes it, the text is read as JSON ([`strings`]): which containers are open, what the string
//! at hand spells, and, for each container, which values ended in marked states before: strings in a trie, others by digests
//! of what they are ([`digest`]). When a value ends that its container has already, the items that its last byte brought into
//! marked states die; others live on, so a grammar that demands distinct values in one alternative only stays exact. Numbers
//! end with the byte behind them, which then goes on from the unmarked items only.
//!
//! # Dead ends
//!
//! Behind `["ab","a` a pattern may leave nothing but to write `"ab"` once more. A byte that leads there is refused
//! ([`alive`]): a place in a string is alive if some byte makes it differ from all earlier strings, or closes it without
//! being refused, or leads to a place that is alive. Nothing needs to be looked at where no earlier string begins like this
//! one, which is nearly everywhere; nor right behind an opening quote, since strings are marked only where there are
//! infinitely many.
//!
//! Of other values every way on is tried, shortest first, until one of them ends a value that is new. That happens while the
//! item has nothing yet that sets it apart from all earlier ones: mostly up to its first property.
//!
//! # Masks
//!
//! Mask entries know nothing of texts, so a row is corrected afterwards ([`masks`]). The tokens that can be refused are few:
//! those that go on along an earlier string, however that is spelled, those that end a value, and, while an item may still
//! become an earlier one, those that do not just go on in a string, or write a number that no earlier value has. They are
//! tried one by one, by the very function that takes tokens, so mask and matcher cannot disagree.
//!
//! A grammar without marks pays one test a byte.

mod alive;
mod digest;
mod endings;
mod masks;
mod spelling;
pub(crate) mod strings;
mod tokens;

pub(crate) use alive::alive;
pub(crate) use endings::{Endings, Spot};
pub(crate) use strings::{Place, Strings};
pub(crate) use tokens::Quoted;

use gramary_compiler::machine::DEAD_SET;

use crate::matcher::{Access, Step};
use strings::Event;

/// Read the byte that led from the set `before` to `step.set`, and take the items of a repeated value out. False: none is
/// left, or the byte leads there; `None`: a memo is missing.
pub(crate) fn read(
    access: &mut Access<'_>,
    step: &mut Step,
    before: u32,
    b: u8,
    strings: &mut Strings,
) -> Option<bool> {
    if let Some(from) = strings.ends_scalar(&step.place, b) {
        let rest = access.unmarked(before)?;
        if rest != before && !strings.note_value(&mut step.place, from) {
            step.set = if rest == DEAD_SET { DEAD_SET } else { access.step(rest, b)? };
        }
    }
    let now = strings.feed(&mut step.place, b);
    match now {
        Event::Nothing => {}
        Event::Bracket => {
            if access.unmarked(step.set)? != step.set {
                strings.begin(&mut step.place);
            }
        }
        Event::Ended | Event::Closed(_) => {
            let rest = access.unmarked(step.set)?;
            if rest != step.set {
                let new = match now {
                    Event::Closed(from) => strings.note_value(&mut step.place, from),
                    _ => strings.note(&mut step.place),
                };
                if !new {
                    step.set = rest;
                }
            }
        }
    }
    Some(step.set != DEAD_SET)
}
