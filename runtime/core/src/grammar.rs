//! A compiled grammar: a program, the table that its matchers share, and what a caller may want to know of it.
//!
//! # Locks
//!
//! The table is behind a read-write lock. Everything that finds what it needs memoised runs under the read lock, so many
//! matchers fill at once; a miss takes the write lock and starts over. A matcher's record has a lock of its own and is
//! only ever locked while the table's lock is held; a flush holds the write lock and renumbers every live record.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use gramary_compiler::digest::node_digest;
use gramary_compiler::machine::Machine;
use gramary_compiler::program::Program;
use gramary_compiler::tools::choice;
use gramary_compiler::unit::{Digest, Link, Node};
use gramary_compiler::Limits;
use parking_lot::{Mutex, RwLock};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::ahead;
use crate::bounds::{Bounds, Lexer};
use crate::counted::CountedText;
use crate::matcher::Record;
use crate::table::Table;
use crate::tokens::Tokens;

/// Which nodes are choices of tags, to tell where a tag is open.
#[derive(Debug, Default)]
pub struct TagMap {
    pub choices: FxHashMap<Link, TagStates>,
    /// Nodes that are inside a tag, end included: the number of the tag.
    pub inside: FxHashMap<Link, u32>,
    /// Tags whose content is not JSON: bounds do not look at them.
    pub other: FxHashSet<u32>,
}

impl TagMap {
    /// How what comes after the begin of `tag` is read for the bounds.
    pub(crate) fn lexer(&self, tag: Option<u32>) -> Lexer {
        match tag.is_some_and(|t| !self.other.contains(&t)) {
            true => Lexer::START,
            false => Lexer::OFF,
        }
    }
}

/// The states of a choice; see `gramary_compiler::tools::choice` for their numbering.
#[derive(Debug)]
pub struct TagStates {
    /// Number in the request of the choice's tags.
    pub tags: Vec<u32>,
    /// First state outside of all tags (besides the root).
    pub inner: u32,
}

/// How far a state is inside a tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    Outside,
    /// After the begin or the content of this tag.
    In(u32),
    /// Inside the end of some tag.
    Ending,
}

impl TagStates {
    pub fn place(&self, state: u32) -> Place {
        let n = self.tags.len() as u32;
        match state {
            0 => Place::Outside,
            q if q <= 2 * n => Place::In(self.tags[((q - 1) % n) as usize]),
            q if q < self.inner => Place::Ending,
            _ => Place::Outside,
        }
    }
}

/// Units bound together for one source, ready to match.
#[derive(Debug)]
pub struct Grammar {
    pub tokens: Arc<Tokens>,
    pub program: Arc<Program>,
    pub limits: Limits,
    pub tags: Option<TagMap>,
    /// Stop tokens of matchers that name none.
    pub stop_tokens: Box<[u32]>,
    /// What matchers bound besides.
    pub bounds: Bounds,
    /// Some of its strings must differ from each other.
    pub distinct: bool,
    /// Texts whose tokens are counted.
    pub(crate) texts: Vec<CountedText>,
    /// Matchers look at more than sets and bounds: tags, texts, or values that must differ.
    pub(crate) watched: bool,
    /// Words of a row: the model's vocabulary, which may be padded beyond the tokenizer's.
    pub row_words: usize,
    pub(crate) table: RwLock<Table>,
    pub(crate) records: Mutex<Vec<Weak<Mutex<Record>>>>,
    pub(crate) flushes: AtomicU64,
    /// Bytes at which the table is flushed next: the limit, or twice what was live at the last flush. Matchers that hold
    /// more than the limit must not have it flushed for every token.
    pub(crate) flush_at: AtomicUsize,
}

/// What [`Grammar::stats`] reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GrammarStats {
    pub units: usize,
    pub sets: usize,
    pub recipes: usize,
    pub entries: usize,
    pub table_bytes: usize,
    pub flushes: u64,
    pub matchers: usize,
}

impl Grammar {
    pub fn new(
        tokens: Arc<Tokens>,
        program: Program,
        limits: Limits,
        tags: Option<TagMap>,
        stop_tokens: Box<[u32]>,
        model_vocab: usize,
    ) -> Grammar {
        let distinct = program.is_distinct();
        if distinct {
            // Milliseconds, once per tokenizer: not in the middle of a request.
            tokens.quoted();
        }
        let program = Arc::new(program);
        let memory = limits.memory;
        let table = Table::new(program.clone(), tokens.clone(), limits.items_per_set);
        Grammar {
            row_words: model_vocab.max(tokens.vocab.len()).div_ceil(32),
            watched: distinct || tags.is_some(),
            tokens,
            program,
            limits,
            tags,
            bounds: Bounds::NONE,
            distinct,
            texts: vec![],
            stop_tokens,
            table: RwLock::new(table),
            records: Mutex::default(),
            flushes: AtomicU64::new(0),
            flush_at: AtomicUsize::new(memory),
        }
    }

    /// The same with bounds. Not before a matcher is made.
    pub fn within(mut self, bounds: Bounds) -> Grammar {
        self.bounds = bounds;
        self
    }

    /// The same with texts whose tokens are counted. Not before a matcher is made.
    pub(crate) fn counting(mut self, texts: Vec<CountedText>) -> Grammar {
        self.watched |= !texts.is_empty();
        self.texts = texts;
        self
    }

    /// Start a new generation of the table if it has outgrown its budget. The caller holds no lock.
    pub(crate) fn tidy(&self) {
        if self.table.read().size() > self.flush_at.load(Ordering::Relaxed) {
            self.flush();
        }
    }

    /// Start a new generation of the table: what no live matcher holds is forgotten.
    pub fn flush(&self) {
        let mut table = self.table.write();
        let mut records = self.records.lock();
        records.retain(|r| r.strong_count() > 0);
        let live: Vec<_> = records.iter().filter_map(Weak::upgrade).collect();
        let mut guards: Vec<_> = live.iter().map(|r| r.lock()).collect();
        table.flush(guards.iter_mut().flat_map(|r| r.sets_mut()));
        self.flush_at.store(self.limits.memory.max(2 * table.size()), Ordering::Relaxed);
        self.flushes.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn enlist(&self, record: &Arc<Mutex<Record>>) {
        let mut records = self.records.lock();
        if records.len() >= 64 && records.len().is_power_of_two() {
            records.retain(|r| r.strong_count() > 0);
        }
        records.push(Arc::downgrade(record));
    }

    pub fn stats(&self) -> GrammarStats {
        let table = self.table.read();
        let (recipes, entries) = table.counts();
        GrammarStats {
            units: self.nodes().len(),
            sets: table.machine.len(),
            recipes,
            entries,
            table_bytes: table.size(),
            flushes: self.flushes.load(Ordering::Relaxed),
            matchers: self.records.lock().iter().filter(|r| r.strong_count() > 0).count(),
        }
    }

    /// Every node reachable from the root, callers first.
    pub fn nodes(&self) -> Vec<(Link, Arc<Node>)> {
        let mut seen = FxHashSet::default();
        let mut found = vec![];
        let mut work = std::collections::VecDeque::from([self.program.root]);
        seen.insert(self.program.root);
        while let Some(link) = work.pop_front() {
            let node = self.program.node(link);
            for &l in node.links.iter() {
                if seen.insert(l) {
                    work.push_back(l);
                }
            }
            found.push((link, node));
        }
        found
    }

    /// Identity of the whole grammar.
    pub fn digest(&self) -> Digest {
        self.digest_of(self.program.root)
    }

    /// Request-local nodes have no digest of their own until somebody asks. They do not refer to each other in circles.
    fn digest_of(&self, link: Link) -> Digest {
        let node = self.program.node(link);
        match link {
            Link::Store(_) => node.digest,
            Link::Local(_) if node.unit.local => {
                let bound: Vec<Digest> = node.links.iter().map(|&l| self.digest_of(l)).collect();
                choice::digest(&node.unit, |c| bound[c as usize])
            }
            Link::Local(_) => {
                let bound: Vec<Digest> = node.links.iter().map(|&l| self.digest_of(l)).collect();
                node_digest(node.unit.digest, bound.into_iter())
            }
        }
    }

    /// The states without an entry that are most expensive to build, dearest first, at most `k`.
    ///
    /// The estimate is the number of bytes a state can start with, and whether it loops on many: what decides how much
    /// of the vocabulary a walk visits. States with registers are left to first use: their class is not known.
    pub fn dearest(&self, k: usize) -> Vec<(Link, u32)> {
        let mut found: Vec<(u64, Link, u32)> = vec![];
        for (link, node) in self.nodes() {
            let unit = &node.unit;
            let known: FxHashSet<u32> = unit.cache.entries().keys().map(|key| key.0).collect();
            if unit.layout.words() > 0 {
                continue;
            }
            for state in (0..unit.states() as u32).filter(|q| !known.contains(q)) {
                let looped = unit.loop_of(state).map_or(0, |l| l.bytes.iter().map(|w| w.count_ones() as u64).sum());
                let live: u64 = unit.live(state).iter().map(|w| w.count_ones() as u64).sum();
                let refs = unit.own_refs(state).len() as u64;
                found.push((looped * 8 + live + refs * 32, link, state));
            }
        }
        let rank = |&(cost, link, state): &(u64, Link, u32)| (std::cmp::Reverse(cost), link, state);
        if k < found.len() {
            found.select_nth_unstable_by_key(k, rank);
            found.truncate(k);
        }
        found.sort_unstable_by_key(rank);
        found.into_iter().map(|(_, link, state)| (link, state)).collect()
    }

    /// Build the `k` dearest missing entries in the background, where they are also looked for: nobody waits for any of it.
    /// They go to their units, where every grammar that has the unit finds them.
    pub fn prefetch(self: &Arc<Self>, k: usize) {
        let grammar = Arc::downgrade(self);
        ahead::spawn(move || {
            let Some(first) = grammar.upgrade() else { return };
            let wanted = first.dearest(k);
            if wanted.is_empty() {
                return;
            }
            let limit = first.limits.items_per_set;
            let mut machine = Machine::new(first.program.clone(), limit, first.tokens.reach());
            drop(first);
            for (link, state) in wanted {
                // A request that has gone needs nothing any more.
                let Some(g) = grammar.upgrade() else { return };
                let node = machine.bind(link);
                g.tokens.entry_ahead(&mut machine, node, state, 0);
                machine.clear();
            }
        });
    }
}
