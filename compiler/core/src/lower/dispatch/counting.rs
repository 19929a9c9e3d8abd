//! How tags are counted, where they are: which registers there are, and what ends the text.

use crate::fsm::UNBOUNDED;
use crate::ir::DispatchRule;

/// How tags are counted.
#[derive(Clone, Copy)]
pub(super) struct Counting {
    /// Register 0 holds how many tags are still needed and possible.
    pub tags: Option<(u32, u32)>,
    /// The text ends with the last tag: register 0 (if `needed`) or else 1 still needs something until then.
    pub last: Last,
    /// Before the first tag the text must not end (and there is no second).
    pub first_ends: bool,
}

#[derive(Clone, Copy, PartialEq)]
pub(super) enum Last {
    /// Text goes on after every tag.
    No,
    /// The only tag is the last.
    Only,
    /// The counter tells.
    Counter(u8),
}

impl Counting {
    pub fn of(rule: &DispatchRule) -> Counting {
        let max = rule.max_tags.unwrap_or(UNBOUNDED);
        if rule.stop_after_last && max == 1 {
            return Counting { tags: None, last: Last::Only, first_ends: rule.min_tags > 0 };
        }
        let last = match rule.stop_after_last && max != UNBOUNDED {
            true if rule.min_tags == max => Last::Counter(0),
            true => Last::Counter(1),
            false => Last::No,
        };
        let counted = rule.min_tags > 0 || max != UNBOUNDED;
        Counting { tags: counted.then_some((rule.min_tags, max)), last, first_ends: false }
    }

    pub fn bounded(&self) -> bool {
        self.tags.is_some_and(|t| t.1 != UNBOUNDED)
    }
}
