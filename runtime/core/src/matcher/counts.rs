//! Tokens that begin in texts with a bounded number of them; see [`crate::counted`].

use super::{Access, Matcher, Step};
use crate::counted::stands_in;
use crate::table::Table;

impl Matcher {
    /// A state as the next token finds it: texts that may have no more tokens must end. `None`: a memo is missing.
    pub(crate) fn begin_token(&self, access: &mut Access<'_>, mut step: Step) -> Option<Step> {
        for (number, text) in (0u8..).zip(&self.grammar.texts) {
            if !stands_in(&access.table().machine, step.set, text) {
                continue;
            }
            let count = &mut step.counts[usize::from(number)];
            if *count < text.most {
                *count += 1;
                continue;
            }
            step.set = match access {
                Access::Read(table) => table.closed(step.set, number)?,
                Access::Write(table) => table.find_closed(step.set, number, text),
            };
        }
        Some(step)
    }

    /// Counts after a byte or a token, the first of its token or not: a text that begins with it has one, one that is over
    /// none.
    #[inline]
    pub(super) fn count_texts(&self, table: &Table, step: &mut Step, first: bool) {
        for (count, text) in step.counts.iter_mut().zip(&self.grammar.texts) {
            *count = match stands_in(&table.machine, step.set, text) {
                true => (*count).max(first.into()),
                false => 0,
            };
        }
    }
}
