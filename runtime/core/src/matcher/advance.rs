//! A token, byte by byte, from one state to the next.
//!
//! What every token of every text goes through is kept apart from what only some grammars need (distinct values, tags,
//! counted texts), which is out of line: between two tokens an engine has driven this code out of the processor's caches,
//! and what is not passed through need not be fetched.

use std::collections::VecDeque;

use gramary_compiler::machine::DEAD_SET;
use gramary_compiler::vocab::TokenKind;

use super::{Access, Matcher, Step, TagEvent};
use crate::bounds::{Lexer, Verdict};
use crate::distinct::{self, Strings};

impl Matcher {
    /// One token from `from`. Outer `None`: a memo is missing. Inner `None`: not allowed.
    pub(crate) fn advance(
        &self,
        access: &mut Access<'_>,
        from: Step,
        token: u32,
        events: &mut VecDeque<TagEvent>,
        strings: &mut Strings,
    ) -> Option<Option<Step>> {
        let mut step = from;
        Some(self.take(access, &mut step, token, events, strings)?.then_some(step))
    }

    /// Bytes from `from`, likewise.
    pub(crate) fn advance_bytes(
        &self,
        access: &mut Access<'_>,
        from: Step,
        bytes: &[u8],
        events: &mut VecDeque<TagEvent>,
        strings: &mut Strings,
    ) -> Option<Option<Step>> {
        let mut step = from;
        Some(self.take_bytes(access, &mut step, bytes, events, strings)?.then_some(step))
    }

    /// The same, without looking whether values that must differ leave a way on.
    pub(crate) fn advance_alive_or_not(
        &self,
        access: &mut Access<'_>,
        from: Step,
        bytes: &[u8],
        events: &mut VecDeque<TagEvent>,
        strings: &mut Strings,
    ) -> Option<Option<Step>> {
        let mut step = from;
        Some(self.read(access, &mut step, bytes, events, strings)?.then_some(step))
    }

    /// Move `step` over a token. `None`: a memo is missing. False: the token is not allowed, and `step` of no use.
    pub(super) fn take(
        &self,
        access: &mut Access<'_>,
        step: &mut Step,
        token: u32,
        events: &mut VecDeque<TagEvent>,
        strings: &mut Strings,
    ) -> Option<bool> {
        let stops = self.stop_tokens.contains(&token);
        if step.terminated {
            // Engines may ask once more after the end: stop tokens stay allowed, nothing else is.
            return Some(stops);
        }
        if self.grammar.watched {
            *step = self.begin_token(access, *step)?;
        }
        if stops {
            return self.take_stop(access, step, token, events, strings);
        }
        let vocab = &self.grammar.tokens.vocab;
        let kind = vocab.kind(token);
        if kind == TokenKind::Unused {
            return Some(false);
        }
        if access.takes_tokens(step.set)? {
            return self.take_as_token(access, step, token, events, strings);
        }
        match kind.is_text() {
            true => self.take_bytes(access, step, vocab.bytes(token), events, strings),
            false => Some(false),
        }
    }

    /// A stop token may be part of the text before it ends it.
    #[cold]
    fn take_stop(
        &self,
        access: &mut Access<'_>,
        step: &mut Step,
        token: u32,
        events: &mut VecDeque<TagEvent>,
        strings: &mut Strings,
    ) -> Option<bool> {
        let from = *step;
        let vocab = &self.grammar.tokens.vocab;
        let kind = vocab.kind(token);
        let written = if kind != TokenKind::Unused && access.takes_tokens(from.set)? {
            self.take_as_token(access, step, token, events, strings)?
        } else {
            kind.is_text() && self.take_bytes(access, step, vocab.bytes(token), events, strings)?
        };
        if !written {
            *step = Step { terminated: true, ..from };
        }
        Some(written || access.table().machine.is_done(from.set))
    }

    /// A token where it may count as itself, or as its bytes, or both.
    #[inline(never)]
    fn take_as_token(
        &self,
        access: &mut Access<'_>,
        step: &mut Step,
        token: u32,
        events: &mut VecDeque<TagEvent>,
        strings: &mut Strings,
    ) -> Option<bool> {
        let from = *step;
        let text = self.grammar.tokens.vocab.kind(token).is_text();
        let Access::Write(table) = access else { return None };
        let any = !self.stop_tokens.contains(&token);
        let itself = table.machine.step_token(from.set, token, any);
        let bytes = if text { self.grammar.tokens.vocab.bytes(token) } else { &[] };
        let had = events.len();
        let spelled = if text { self.advance_bytes(access, from, bytes, events, strings)? } else { None };
        *step = match spelled {
            Some(step) => step,
            None => Step { at: from.at + bytes.len() as u64, ..from },
        };
        if itself == DEAD_SET {
            return Some(spelled.is_some());
        }
        if spelled.is_some() {
            // Which tag is open is known where both readings agree; events come from the set of both.
            events.truncate(had);
            (step.tag, step.events) = (from.tag, from.events);
        }
        let Access::Write(table) = access else { return None };
        step.set = table.machine.union(itself, spelled.map_or(DEAD_SET, |s| s.set));
        self.count_texts(table, step, true);
        if let Some(tags) = &self.grammar.tags {
            let read = spelled.map_or(from.tag, |s| s.tag);
            self.watch(table, step, events);
            if read != step.tag {
                step.lexer = tags.lexer(step.tag);
            }
        }
        Some(true)
    }

    /// Move `step` over bytes, as [`Matcher::take`].
    pub(super) fn take_bytes(
        &self,
        access: &mut Access<'_>,
        step: &mut Step,
        bytes: &[u8],
        events: &mut VecDeque<TagEvent>,
        strings: &mut Strings,
    ) -> Option<bool> {
        match self.grammar.distinct {
            true => self.take_distinct(access, step, bytes, events, strings),
            false => self.read(access, step, bytes, events, strings),
        }
    }

    #[inline(never)]
    fn take_distinct(
        &self,
        access: &mut Access<'_>,
        step: &mut Step,
        bytes: &[u8],
        events: &mut VecDeque<TagEvent>,
        strings: &mut Strings,
    ) -> Option<bool> {
        let (from, had) = (*step, events.len());
        let taken = self.read(access, step, bytes, events, strings)?;
        if taken && !distinct::alive(access, &from, step, strings)? {
            events.truncate(had);
            return Some(false);
        }
        Some(taken)
    }

    /// Move `step` over bytes, without looking whether values that must differ leave a way on.
    #[inline]
    fn read(
        &self,
        access: &mut Access<'_>,
        step: &mut Step,
        bytes: &[u8],
        events: &mut VecDeque<TagEvent>,
        strings: &mut Strings,
    ) -> Option<bool> {
        let (watched, bounds) = (self.grammar.watched, &self.grammar.bounds);
        let (bounded, begun, had) = (bounds.any(), step.at, events.len());
        if watched {
            strings.back_to(&step.place);
        }
        for &b in bytes {
            let before = (step.set, step.tag);
            step.set = access.step(before.0, b)?;
            if step.set == DEAD_SET {
                events.truncate(had);
                return Some(false);
            }
            step.at += 1;
            if watched && !self.read_watched(access, step, (before.0, b, begun), events, strings)? {
                events.truncate(had);
                return Some(false);
            }
            if bounded && !self.admits(access, step, (before.0, b, before.1), events)? {
                events.truncate(had);
                return Some(false);
            }
        }
        Some(true)
    }

    /// What grammars with counted texts, distinct values or tags make of the byte `b` that led from the set `before`;
    /// `begun`: where its token began. False: a value is there for the second time.
    #[inline(never)]
    fn read_watched(
        &self,
        access: &mut Access<'_>,
        step: &mut Step,
        (before, b, begun): (u32, u8, u64),
        events: &mut VecDeque<TagEvent>,
        strings: &mut Strings,
    ) -> Option<bool> {
        self.count_texts(access.table(), step, step.at == begun + 1);
        if self.grammar.distinct && !distinct::read(access, step, before, b, strings)? {
            return Some(false);
        }
        if self.grammar.tags.is_some() {
            self.watch(access.table(), step, events);
        }
        Some(true)
    }

    /// Read a byte for the bounds: `before` is the set that took it, `tag` what was open then. False: beyond a bound;
    /// `None`: a memo is missing.
    #[inline]
    fn admits(
        &self,
        access: &mut Access<'_>,
        step: &mut Step,
        (before, b, tag): (u32, u8, Option<u32>),
        events: &VecDeque<TagEvent>,
    ) -> Option<bool> {
        if self.grammar.watched && self.is_no_json(step, tag, events) {
            return Some(true);
        }
        match step.lexer.feed(&self.grammar.bounds, b) {
            Verdict::Fine => Some(true),
            Verdict::Never => Some(false),
            Verdict::Beyond(kind) => {
                let Access::Write(table) = access else { return None };
                Some(match (table.way_out(before, kind), step.set) {
                    (None, _) => true,
                    (Some(0), _) => false,
                    (Some(far), after) => table.way_out(after, kind).is_some_and(|near| near < far),
                })
            }
        }
    }

    /// Whether the last byte belongs to no tag that is read as JSON; `tag`: the one that was open before it.
    #[inline(never)]
    fn is_no_json(&self, step: &mut Step, tag: Option<u32>, events: &VecDeque<TagEvent>) -> bool {
        let Some(tags) = &self.grammar.tags else { return false };
        match (tag, step.tag) {
            (_, None) => {
                step.lexer = Lexer::OFF;
                true
            }
            (None, opened) => {
                step.lexer = tags.lexer(opened);
                // The byte is the last of the tag's begin, unless the tag shows one byte late.
                events.back().is_some_and(|e| e.at == step.at)
            }
            _ => false,
        }
    }
}
