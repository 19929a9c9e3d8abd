//! The parse state of one running request.

use std::collections::VecDeque;
use std::sync::Arc;

use gramary_compiler::unit::ByteSet;
use parking_lot::{Mutex, RwLockReadGuard, RwLockWriteGuard};
use thiserror::Error;

use crate::bounds::Lexer;
use crate::counted::Counts;
use crate::distinct::{self, Place as StringPlace, Strings};
use crate::grammar::Grammar;
use crate::table::Table;

mod advance;
mod counts;
mod fill;
mod jump;
mod tags;

pub use tags::TagEvent;

/// What a matcher cannot do.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum MatcherError {
    #[error("cannot roll back {asked} tokens: {kept} are kept; make the matcher with a larger max_rollback_tokens")]
    Rollback { asked: usize, kept: usize },
    #[error("the mask row has {got} words, {need} are needed for this vocabulary; allocate ceil(vocab_size / 32) int32 words")]
    Row { got: usize, need: usize },
    #[error("a parse set exceeds {limit} items: the grammar is too ambiguous at byte {at}; raise Limits(items_per_set=...) or rewrite it with loops")]
    Ambiguous { limit: usize, at: u64 },
}

/// The state after a token.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    pub(crate) set: u32,
    /// Bytes so far.
    at: u64,
    /// Events so far.
    events: u64,
    /// The tag that is open.
    tag: Option<u32>,
    terminated: bool,
    lexer: Lexer,
    /// Where it stands among the values that must differ.
    pub(crate) place: StringPlace,
    /// Tokens that have begun in texts whose tokens are counted.
    counts: Counts,
}

impl Step {
    fn start(grammar: &Grammar, set: u32) -> Step {
        // Among tags, JSON begins with the first of them.
        let lexer = if grammar.tags.is_some() { Lexer::OFF } else { Lexer::START };
        Step {
            set,
            at: 0,
            events: 0,
            tag: None,
            terminated: false,
            lexer,
            place: StringPlace::START,
            counts: Counts::default(),
        }
    }
}

/// What a flush must know of a matcher.
#[derive(Debug)]
pub struct Record {
    /// Oldest kept state first; never empty.
    steps: VecDeque<Step>,
    events: VecDeque<TagEvent>,
    /// The values that must differ, up to the newest step or some trial from it.
    strings: Strings,
    /// Number of the first event in `events`.
    first_event: u64,
    /// Events from this one on have not been reported.
    unreported: u64,
    tokens: u64,
}

impl Record {
    pub(crate) fn sets_mut(&mut self) -> impl Iterator<Item = &mut u32> {
        self.steps.iter_mut().map(|s| &mut s.set)
    }

    fn now(&self) -> Step {
        self.steps[self.steps.len() - 1]
    }
}

/// What [`Matcher::accept_all`] took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// How many tokens, those of a text that had ended before included.
    pub tokens: usize,
    /// Whether the text has ended with a stop token.
    pub terminated: bool,
}

/// The parse state of one request. Calls from several threads run one after the other.
#[derive(Debug)]
pub struct Matcher {
    grammar: Arc<Grammar>,
    record: Arc<Mutex<Record>>,
    stop_tokens: Box<[u32]>,
    max_rollback: usize,
}

/// Either lock of the table. Under the read lock a miss gives up with `None`.
pub(crate) enum Access<'a> {
    Read(RwLockReadGuard<'a, Table>),
    Write(RwLockWriteGuard<'a, Table>),
}

impl Access<'_> {
    #[inline]
    pub(crate) fn step(&mut self, set: u32, b: u8) -> Option<u32> {
        match self {
            Access::Read(t) => t.machine.peek(set, b),
            Access::Write(t) => Some(t.machine.step(set, b)),
        }
    }

    /// The set without its items in marked states.
    #[inline]
    pub(crate) fn unmarked(&mut self, set: u32) -> Option<u32> {
        match self {
            Access::Read(t) => t.machine.unmarked(set),
            Access::Write(t) => Some(t.machine.find_unmarked(set)),
        }
    }

    /// Bytes that may follow, guards not tested.
    #[inline]
    pub(crate) fn live(&mut self, set: u32) -> Option<ByteSet> {
        match self {
            Access::Read(t) => t.machine.known_live(set),
            Access::Write(t) => Some(*t.machine.live(set)),
        }
    }

    #[inline]
    pub(crate) fn takes_tokens(&mut self, set: u32) -> Option<bool> {
        match self {
            Access::Read(t) => t.machine.takes_tokens(set),
            Access::Write(t) => Some(t.machine.find_takes_tokens(set)),
        }
    }

    /// The next byte on a short way to the end of an item; inner `None`: it is too far.
    pub(crate) fn ending(&mut self, spot: distinct::Spot) -> Option<Option<u8>> {
        match self {
            Access::Read(t) => t.known_ending(spot),
            Access::Write(t) => Some(t.find_ending(spot)),
        }
    }

    fn table(&self) -> &Table {
        match self {
            Access::Read(t) => t,
            Access::Write(t) => t,
        }
    }
}

impl Matcher {
    /// `stop_tokens`: those of the grammar if `None`. `max_rollback`: tokens that can be taken back at least.
    pub fn new(grammar: Arc<Grammar>, stop_tokens: Option<Vec<u32>>, max_rollback: usize) -> Matcher {
        let stop_tokens = stop_tokens.map_or_else(|| grammar.stop_tokens.clone(), Into::into);
        let mut table = grammar.table.write();
        let set = table.machine.start();
        let step = Step::start(&grammar, set);
        let record = Arc::new(Mutex::new(Record {
            steps: VecDeque::from([step]),
            events: VecDeque::new(),
            strings: Strings::default(),
            first_event: 0,
            unreported: 0,
            tokens: 0,
        }));
        // Still under the table's lock: a flush in between would not know the record.
        grammar.enlist(&record);
        drop(table);
        Matcher { grammar, record, stop_tokens, max_rollback }
    }

    pub fn grammar(&self) -> &Arc<Grammar> {
        &self.grammar
    }

    /// Run `work` under the read lock; if it gives up for want of a memo, run it again under the write lock.
    fn with<T>(&self, mut work: impl FnMut(&mut Access<'_>, &mut Record) -> Option<T>) -> Result<T, MatcherError> {
        {
            let mut access = Access::Read(self.grammar.table.read());
            let mut record = self.record.lock();
            if let Some(done) = work(&mut access, &mut record) {
                return Ok(done);
            }
        }
        let (result, overflow, full) = {
            let mut access = Access::Write(self.grammar.table.write());
            let mut record = self.record.lock();
            let result = work(&mut access, &mut record);
            let Access::Write(table) = &mut access else { unreachable!("just made") };
            if self.grammar.tags.is_some() {
                table.extend_places();
            }
            let overflow = table.machine.overflowed().then(|| record.now().at);
            (result, overflow, table.size() > self.grammar.flush_at.load(std::sync::atomic::Ordering::Relaxed))
        };
        if full {
            self.grammar.tidy();
        }
        match (result, overflow) {
            (_, Some(at)) => Err(MatcherError::Ambiguous { limit: self.grammar.limits.items_per_set, at }),
            (Some(result), None) => Ok(result),
            (None, None) => unreachable!("nothing is missing under the write lock"),
        }
    }

    /// Run `work` if that needs neither waiting for a lock nor a memo that is missing. It may be run again if it gives up.
    fn at_once<T>(&self, work: impl FnOnce(&mut Access<'_>, &mut Record) -> Option<T>) -> Option<T> {
        let mut access = Access::Read(self.grammar.table.try_read()?);
        let mut record = self.record.try_lock()?;
        work(&mut access, &mut record)
    }

    /// Take one token. False: it is not allowed, and nothing has changed.
    pub fn accept(&self, token: u32) -> Result<bool, MatcherError> {
        Ok(self.accept_all(&[token])?.tokens == 1)
    }

    /// Take tokens until one is not allowed.
    pub fn accept_all(&self, tokens: &[u32]) -> Result<Taken, MatcherError> {
        self.with(|access, record| self.accept_in(access, record, tokens))
    }

    /// [`Matcher::accept_all`], if it takes microseconds; `None`: nothing was taken, call that.
    pub fn accept_at_once(&self, tokens: &[u32]) -> Option<Taken> {
        self.at_once(|access, record| self.accept_in(access, record, tokens))
    }

    fn accept_in(&self, access: &mut Access<'_>, record: &mut Record, tokens: &[u32]) -> Option<Taken> {
        let begun = (record.steps.len(), record.tokens);
        let mut step = record.now();
        let mut taken = Taken { tokens: 0, terminated: step.terminated };
        for &token in tokens {
            match self.take(access, &mut step, token, &mut record.events, &mut record.strings) {
                None => {
                    // A memo is missing: undo this attempt, the caller runs it again under the write lock.
                    self.undo(record, begun.0, begun.1);
                    return None;
                }
                Some(false) => break,
                Some(true) => {
                    record.steps.push_back(step);
                    record.tokens += 1;
                    taken = Taken { tokens: taken.tokens + 1, terminated: step.terminated };
                }
            }
        }
        self.trim(record);
        Some(taken)
    }

    /// Length of the longest prefix of `tokens` that could be taken. Changes nothing.
    pub fn validate(&self, tokens: &[u32]) -> Result<usize, MatcherError> {
        self.judge(tokens, false)
    }

    /// The same, up to the stop token that ends the text: more of them could be taken, but mean nothing.
    pub fn validate_to_end(&self, tokens: &[u32]) -> Result<usize, MatcherError> {
        self.judge(tokens, true)
    }

    fn judge(&self, tokens: &[u32], to_end: bool) -> Result<usize, MatcherError> {
        self.with(|access, record| {
            let mut step = record.now();
            let mut events = VecDeque::new();
            for (i, &token) in tokens.iter().enumerate() {
                match self.advance(access, step, token, &mut events, &mut record.strings)? {
                    None => return Some(i),
                    Some(next) if to_end && next.terminated => return Some(i + 1),
                    Some(next) => step = next,
                }
            }
            Some(tokens.len())
        })
    }

    /// Take bytes, all or none, as one step for [`Matcher::rollback`].
    pub fn accept_bytes(&self, bytes: &[u8]) -> Result<bool, MatcherError> {
        self.with(|access, record| {
            let from = record.now();
            let begun = (record.steps.len(), record.tokens);
            if from.terminated {
                return Some(bytes.is_empty());
            }
            match self.advance_bytes(access, from, bytes, &mut record.events, &mut record.strings) {
                None => {
                    self.undo(record, begun.0, begun.1);
                    None
                }
                Some(None) => Some(false),
                Some(Some(mut step)) => {
                    // Bytes are no tokens.
                    for (count, before) in step.counts.iter_mut().zip(from.counts) {
                        *count = if *count == 0 { 0 } else { before };
                    }
                    record.steps.push_back(step);
                    record.tokens += 1;
                    self.trim(record);
                    Some(true)
                }
            }
        })
    }

    #[cold]
    fn undo(&self, record: &mut Record, steps: usize, tokens: u64) {
        record.steps.truncate(steps);
        record.tokens = tokens;
        let events = record.now().events - record.first_event;
        record.events.truncate(events as usize);
    }

    fn trim(&self, record: &mut Record) {
        while record.steps.len() > self.max_rollback.saturating_add(1) {
            record.steps.pop_front();
        }
        // Events that are reported and can no longer be taken back are forgotten.
        let settled = record.steps[0].events.min(record.unreported);
        while record.first_event < settled && record.events.pop_front().is_some() {
            record.first_event += 1;
        }
    }

    /// Take back the last `n` steps.
    pub fn rollback(&self, n: usize) -> Result<(), MatcherError> {
        let _table = self.grammar.table.read();
        let mut record = self.record.lock();
        let kept = record.steps.len() - 1;
        if n > kept {
            return Err(MatcherError::Rollback { asked: n, kept });
        }
        let tokens = record.tokens - n as u64;
        self.undo(&mut record, kept + 1 - n, tokens);
        record.unreported = record.unreported.min(record.now().events);
        Ok(())
    }

    /// A matcher in the same state that goes its own way.
    pub fn fork(&self) -> Matcher {
        let _table = self.grammar.table.read();
        let record = {
            let r = self.record.lock();
            Record {
                steps: r.steps.clone(),
                events: r.events.clone(),
                strings: r.strings.clone(),
                first_event: r.first_event,
                unreported: r.unreported,
                tokens: r.tokens,
            }
        };
        let record = Arc::new(Mutex::new(record));
        self.grammar.enlist(&record);
        Matcher {
            grammar: self.grammar.clone(),
            record,
            stop_tokens: self.stop_tokens.clone(),
            max_rollback: self.max_rollback,
        }
    }

    /// Back to the start.
    pub fn reset(&self) {
        let mut table = self.grammar.table.write();
        let set = table.machine.start();
        let mut record = self.record.lock();
        record.steps.clear();
        record.steps.push_back(Step::start(&self.grammar, set));
        record.events.clear();
        record.strings = Strings::default();
        (record.first_event, record.unreported, record.tokens) = (0, 0, 0);
    }

    /// Whether a stop token would be accepted now.
    pub fn is_complete(&self) -> bool {
        let table = self.grammar.table.read();
        let now = self.record.lock().now();
        !now.terminated && table.machine.is_done(now.set)
    }

    /// Whether a stop token was accepted.
    pub fn is_terminated(&self) -> bool {
        let _table = self.grammar.table.read();
        let now = self.record.lock().now();
        now.terminated
    }

    pub fn token_count(&self) -> u64 {
        self.record.lock().tokens
    }
}
