//! Masks: the entry of the set at hand, less what bounds, distinct strings and stop tokens take out of it.

use std::collections::VecDeque;

use gramary_compiler::machine::DEAD_SET;

use super::{Access, Matcher, MatcherError, Record, Step};
use crate::bounds::beyond;
use crate::distinct::Strings;

impl Matcher {
    /// Write the mask of the next token: bit `t & 31` of word `t >> 5` is set where token `t` is allowed. False: none is.
    pub fn fill(&self, row: &mut [u32]) -> Result<bool, MatcherError> {
        self.check_row(row)?;
        self.with(|access, record| self.fill_in(access, record, row))
    }

    /// [`Matcher::fill`], if it takes microseconds; `None`: nothing of use was written, call that.
    pub fn fill_at_once(&self, row: &mut [u32]) -> Option<bool> {
        self.check_row(row).ok()?;
        self.at_once(|access, record| {
            // Values that must differ take up to hundreds.
            let compared = self.grammar.distinct && !record.now().place.is_off();
            if compared {
                None
            } else {
                self.fill_in(access, record, row)
            }
        })
    }

    fn check_row(&self, row: &[u32]) -> Result<(), MatcherError> {
        let need = self.grammar.row_words;
        if row.len() < need {
            return Err(MatcherError::Row { got: row.len(), need });
        }
        Ok(())
    }

    fn fill_in(&self, access: &mut Access<'_>, record: &mut Record, row: &mut [u32]) -> Option<bool> {
        let Record { steps, strings, .. } = record;
        let step = &steps[steps.len() - 1];
        if step.terminated {
            row.fill(0);
        } else {
            let begun = if self.grammar.watched { self.begin_token(access, *step)?.set } else { step.set };
            let recipe = match access {
                Access::Read(t) => t.recipe(begun)?,
                Access::Write(t) => t.find_recipe(begun),
            };
            access.table().write(recipe, row);
            if self.may_be_bounded(step) {
                self.within_bounds(access, *step, row, strings)?;
            }
            if self.grammar.distinct {
                self.withhold_repeats(access, *step, strings, row)?;
            }
        }
        if step.terminated || access.table().machine.is_done(step.set) {
            for &t in self.stop_tokens.iter() {
                if let Some(word) = row.get_mut(t as usize / 32) {
                    *word |= 1 << (t % 32);
                }
            }
        } else if access.takes_tokens(step.set)? {
            self.withhold_stops(access, *step, row, strings)?;
        }
        Some(row.iter().any(|&w| w != 0))
    }

    /// "Any token" of a grammar is none that ends the text: entries know nothing of stop tokens, so their bits are looked
    /// at here.
    #[inline(never)]
    fn withhold_stops(
        &self,
        access: &mut Access<'_>,
        step: Step,
        row: &mut [u32],
        strings: &mut Strings,
    ) -> Option<()> {
        for &t in self.stop_tokens.iter() {
            let Some(word) = row.get(t as usize / 32).copied().filter(|w| w >> (t % 32) & 1 == 1) else { continue };
            if self.advance(access, step, t, &mut VecDeque::new(), strings)?.is_none() {
                row[t as usize / 32] = word & !(1 << (t % 32));
            }
        }
        Some(())
    }

    /// Whether there are tokens that could go beyond a bound from here. Nearly always the longest run of any token fits.
    #[inline]
    fn may_be_bounded(&self, step: &Step) -> bool {
        let (bounds, longest) = (&self.grammar.bounds, &self.grammar.tokens.bounded.longest);
        if !bounds.any() {
            return false;
        }
        let (spaces, digits) = self.room(step);
        bounds.ascii || longest.spaces > spaces || longest.digits > digits || longest.inner > bounds.inner()
    }

    /// How many more bytes of whitespace and of digits may follow. Outside of JSON a token may open a tag and go on inside.
    #[inline]
    fn room(&self, step: &Step) -> (u32, u32) {
        let bounds = &self.grammar.bounds;
        let whole = (bounds.whitespace, bounds.digits);
        let inside = if step.lexer.is_off() { whole } else { (u32::MAX, u32::MAX) };
        step.lexer.room(bounds).unwrap_or(inside)
    }

    /// Take the tokens out of a row that would go beyond a bound. `None`: a memo is missing.
    #[inline(never)]
    fn within_bounds(&self, access: &mut Access<'_>, step: Step, row: &mut [u32], strings: &mut Strings) -> Option<()> {
        let (bounds, runs) = (&self.grammar.bounds, &self.grammar.tokens.bounded);
        let set = |row: &[u32], t: u32| row[t as usize / 32] >> (t % 32) & 1 == 1;
        let mut ignored = VecDeque::new();
        // As itself a token is within all bounds.
        let as_tokens = access.takes_tokens(step.set)?;
        if bounds.ascii && step.lexer.is_off() {
            for &t in &runs.quoted {
                if set(row, t) && self.advance(access, step, t, &mut ignored, strings)?.is_none() {
                    row[t as usize / 32] &= !(1 << (t % 32));
                }
            }
        } else if bounds.ascii {
            // A tag may be closed by what a token begins with, which in a string takes a quote.
            let closing = self.grammar.tags.is_some();
            let tried = as_tokens || closing && !step.lexer.is_inside();
            let quoted = runs.quoted.iter().filter(|_| closing && !tried);
            let quoted: Vec<u32> = quoted.copied().filter(|&t| set(row, t)).collect();
            let mut back = vec![];
            for (i, ascii) in runs.ascii.iter().enumerate() {
                let mut beyond = row.get(i).map_or(0, |w| w & !ascii);
                row[i] &= ascii;
                while tried && beyond != 0 {
                    back.push(i as u32 * 32 + beyond.trailing_zeros());
                    beyond &= beyond - 1;
                }
            }
            for t in back.into_iter().chain(quoted) {
                if self.advance(access, step, t, &mut ignored, strings)?.is_some() {
                    row[t as usize / 32] |= 1 << (t % 32);
                }
            }
        }
        let (spaces, digits) = self.room(&step);
        // A set that loops on whitespace has another way on: nothing beyond the room is forced.
        let mut free: Option<bool> = (as_tokens || step.lexer.is_off()).then_some(false);
        for t in beyond(&runs.spaces, spaces) {
            if !set(row, t) {
                continue;
            }
            let free = match free {
                Some(known) => known,
                None => *free.insert(self.loops_on_space(access, step.set)?),
            };
            if free || self.advance(access, step, t, &mut ignored, strings)?.is_none() {
                row[t as usize / 32] &= !(1 << (t % 32));
            }
        }
        for t in beyond(&runs.digits, digits).chain(beyond(&runs.inner, bounds.inner())) {
            if set(row, t) && self.advance(access, step, t, &mut ignored, strings)?.is_none() {
                row[t as usize / 32] &= !(1 << (t % 32));
            }
        }
        Some(())
    }

    /// Whether a set goes on with any whitespace to one that loops on it.
    fn loops_on_space(&self, access: &mut Access<'_>, set: u32) -> Option<bool> {
        let next = access.step(set, b' ')?;
        if next == DEAD_SET {
            return Some(false);
        }
        for from in [set, next] {
            for b in [b' ', b'\n', b'\r', b'\t'] {
                if access.step(from, b)? != next {
                    return Some(false);
                }
            }
        }
        Some(true)
    }
}
