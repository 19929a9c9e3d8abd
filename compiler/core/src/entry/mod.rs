//! Mask entries: what one state of one unit allows, computed once and kept for good.
//!
//! # Context-free by construction
//!
//! The entry of (unit, state, register class) says which tokens are *accepted*, that is, can be consumed inside the unit
//! and what it references, and which *leave* it: the unit completes and bytes are left over. Leaving tokens that are not
//! accepted inside anyway (R5) are kept as a trie of their remainders. Nothing here depends on who uses the unit, so
//! every hit is a full hit. At run time the mask of a set is the union of its items' accepted tokens and of a walk of
//! the remainder tries from each item's return set, which visits only what the context allows.
//!
//! A unit with holes may also be left *into* a hole: the walk stops before it, and the remainder is walked from the item
//! itself once the hole is bound.
//!
//! # Differences
//!
//! A state in the middle of a declared name allows what "the rest of any key" allows, but for the few tokens that go on
//! along the names. Its entry is a *base* (the alias state, see `tails`) and differences: tokens removed, tokens accepted.
//! So is that of a state before a key, whose base is the opening of an undeclared key.
//!
//! # Register classes
//!
//! Counters are clamped (see `machine::registers::clamp`). Where one counter governs a state of a unit without references
//! (strings with length bounds), a [`Family`] holds the entries of all classes at once: see `family`.

pub mod beneath;
pub mod build;
pub mod codec;
pub mod diff;
pub mod family;
pub mod onward;
mod place;
pub mod rests;
pub mod runs;
mod ticks;
mod tree;
mod walk;

use std::ops::Range;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::machine::{Machine, DEAD_SET};
use crate::vocab::{Trie, Vocabulary};

pub use beneath::{Beneath, BeneathKey};
pub use family::Family;
pub use tree::{WalkNode, WalkTree};

/// Tokens, in whichever form is smallest and quickest to apply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenSet {
    /// These ids.
    Accepted(Box<[u32]>),
    /// Every text token but these.
    Rejected(Box<[u32]>),
    /// A bitmask over the vocabulary, 32 ids a word.
    Dense(Box<[u32]>),
    /// The tokens of a mask that many entries share (see [`runs`]), and these ids.
    Shared(Arc<[u32]>, Box<[u32]>),
}

/// What an entry knows of a unit's state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The state of the unit whose mask this entry is a difference from: its tokens, without `removed`, count too.
    pub base: Option<u32>,
    pub removed: Box<[u32]>,
    pub accepted: TokenSet,
    /// Special tokens on edges of the state or of what it predicts.
    pub special: Box<[u32]>,
    pub exits: Box<[Exit]>,
    /// For entries made from a family: need and room that the remainders' ticks are tested against.
    pub bounds: Option<(u32, u32)>,
    /// Nanoseconds it took to build.
    pub cost: u64,
}

/// A way out of the unit with bytes left over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exit {
    pub to: ExitTo,
    pub rest: Arc<Remainder>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExitTo {
    /// The unit completes.
    Return,
    /// The unit stands before a hole, in this state with these registers.
    Hole { state: u32, regs: SmallVec<[u32; 4]> },
}

/// The bytes of tokens that are left over, as a trie in depth-first layout; node 0 is the root.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Remainder {
    pub byte: Vec<u8>,
    pub depth: Vec<u16>,
    pub end: Vec<u32>,
    /// `tokens[first[i]..first[i + 1]]` end at node `i`.
    pub first: Vec<u32>,
    pub tokens: Vec<u32>,
    /// Ticks that each token makes before it leaves (families only, else empty).
    pub ticks: Vec<u8>,
}

impl Remainder {
    /// Build from (remaining bytes, token, ticks); bytes must not be empty.
    pub fn build(mut tokens: Vec<(&[u8], u32, u8)>, counted: bool) -> Remainder {
        tokens.sort_unstable();
        tokens.dedup();
        let mut r = Remainder::default();
        let mut path: Vec<usize> = vec![0];
        r.open(0, 0);
        let mut previous: &[u8] = &[];
        for (bytes, token, ticks) in tokens {
            let shared = bytes.iter().zip(previous).take_while(|(a, b)| a == b).count();
            while path.len() > shared + 1 {
                if let Some(node) = path.pop() {
                    r.end[node] = r.byte.len() as u32;
                }
            }
            for (d, &b) in bytes.iter().enumerate().skip(shared) {
                path.push(r.byte.len());
                r.open(b, d as u16 + 1);
            }
            r.tokens.push(token);
            if counted {
                r.ticks.push(ticks);
            }
            previous = bytes;
        }
        for node in path {
            r.end[node] = r.byte.len() as u32;
        }
        r.first.push(r.tokens.len() as u32);
        r
    }

    fn open(&mut self, byte: u8, depth: u16) {
        self.byte.push(byte);
        self.depth.push(depth);
        self.end.push(0);
        self.first.push(self.tokens.len() as u32);
    }

    /// Which of `tokens` end at node `i`.
    #[inline]
    pub fn own(&self, i: usize) -> Range<usize> {
        self.first[i] as usize..self.first[i + 1] as usize
    }

    /// Step a machine along the trie, from a set at its root; `at` is told each node with its set, where there is one.
    pub fn walk(&self, m: &mut Machine, from: u32, mut at: impl FnMut(&Machine, usize, u32)) {
        if from == DEAD_SET || *m.live(from) == [0; 4] {
            return;
        }
        let mut path: SmallVec<[u32; 64]> = SmallVec::from_elem(from, 64);
        let mut i = 1;
        while i < self.byte.len() {
            let depth = self.depth[i] as usize;
            let set = m.step(path[depth - 1], self.byte[i]);
            if set == DEAD_SET {
                i = self.end[i] as usize;
                continue;
            }
            at(m, i, set);
            if path.len() <= depth {
                path.resize(depth * 2, DEAD_SET);
            }
            path[depth] = set;
            i += 1;
        }
    }

    pub fn size(&self) -> usize {
        self.byte.len() * 11 + self.tokens.len() * 4 + self.ticks.len() + 120
    }
}

impl TokenSet {
    /// The best form for the tokens in `ranges` (sorted, disjoint ranges of the trie's `order`).
    pub fn from_ranges(ranges: &[(u32, u32)], trie: &Trie<'_>, masks: &VocabMasks) -> TokenSet {
        let count: usize = ranges.iter().map(|&(a, b)| (b - a) as usize).sum();
        let total = trie.order.len();
        if count <= SPARSE {
            let mut ids = Vec::with_capacity(count);
            ranges.iter().for_each(|&(a, b)| ids.extend_from_slice(&trie.order[a as usize..b as usize]));
            return TokenSet::Accepted(ids.into());
        }
        let gaps = || {
            let ends = std::iter::once(0).chain(ranges.iter().map(|r| r.1));
            let starts = ranges.iter().map(|r| r.0).chain(std::iter::once(total as u32));
            ends.zip(starts)
        };
        if total - count <= SPARSE {
            let mut ids = Vec::with_capacity(total - count);
            gaps().for_each(|(a, b)| ids.extend_from_slice(&trie.order[a as usize..b as usize]));
            return TokenSet::Rejected(ids.into());
        }
        if count * 2 > total {
            let mut words = masks.text.clone();
            for (a, b) in gaps() {
                trie.order[a as usize..b as usize].iter().for_each(|&t| words[t as usize / 32] &= !(1 << (t % 32)));
            }
            return TokenSet::Dense(words);
        }
        let mut words = vec![0u32; masks.words].into_boxed_slice();
        for &(a, b) in ranges {
            trie.order[a as usize..b as usize].iter().for_each(|&t| words[t as usize / 32] |= 1 << (t % 32));
        }
        TokenSet::Dense(words)
    }

    /// As a bitmask.
    pub fn to_words(&self, masks: &VocabMasks) -> Box<[u32]> {
        match self {
            TokenSet::Dense(words) => words.clone(),
            TokenSet::Rejected(ids) => {
                let mut words = masks.text.clone();
                ids.iter().for_each(|&t| words[t as usize / 32] &= !(1 << (t % 32)));
                words
            }
            TokenSet::Accepted(ids) => {
                let mut words = vec![0u32; masks.words].into_boxed_slice();
                ids.iter().for_each(|&t| words[t as usize / 32] |= 1 << (t % 32));
                words
            }
            TokenSet::Shared(shared, ids) => {
                let mut words: Box<[u32]> = shared[..].into();
                ids.iter().for_each(|&t| words[t as usize / 32] |= 1 << (t % 32));
                words
            }
        }
    }

    /// These tokens and others; any form but [`TokenSet::Shared`].
    fn with(self, more: impl Iterator<Item = u32>, masks: &VocabMasks) -> TokenSet {
        if let TokenSet::Accepted(own) = self {
            return TokenSet::Accepted(own.iter().copied().chain(more).collect());
        }
        let mut words = self.to_words(masks);
        more.for_each(|t| words[t as usize / 32] |= 1 << (t % 32));
        TokenSet::Dense(words)
    }

    /// How many tokens.
    pub fn len(&self, masks: &VocabMasks) -> usize {
        match self {
            TokenSet::Accepted(ids) => ids.len(),
            TokenSet::Rejected(ids) => masks.text_tokens - ids.len(),
            TokenSet::Dense(words) => words.iter().map(|w| w.count_ones() as usize).sum(),
            TokenSet::Shared(words, ids) => ids.len() + words.iter().map(|w| w.count_ones() as usize).sum::<usize>(),
        }
    }

    pub fn size(&self) -> usize {
        match self {
            TokenSet::Accepted(v) | TokenSet::Rejected(v) | TokenSet::Dense(v) | TokenSet::Shared(_, v) => v.len() * 4,
        }
    }
}

/// Up to this many ids a list beats a bitmask.
const SPARSE: usize = 1024;

impl Entry {
    /// Whether registers are part of it.
    pub fn tells_registers(&self) -> bool {
        self.exits.iter().any(|e| matches!(e.to, ExitTo::Hole { .. }))
    }

    /// Bytes held. Remainders shared within a family are counted once for each entry that uses them.
    pub fn size(&self) -> usize {
        self.accepted.size()
            + self.removed.len() * 4
            + self.special.len() * 4
            + self.exits.iter().map(|e| e.rest.size()).sum::<usize>()
            + std::mem::size_of::<Entry>()
    }
}

/// What masks need of a vocabulary besides its trie.
#[derive(Clone, Debug)]
pub struct VocabMasks {
    /// Words of a bitmask over the tokenizer's ids.
    pub words: usize,
    /// All text tokens.
    pub text: Box<[u32]>,
    pub text_tokens: usize,
    pub tree: WalkTree,
    pub runs: Arc<runs::Runs>,
    pub rests: Arc<rests::Rests>,
}

impl VocabMasks {
    pub fn of(vocab: &Vocabulary) -> VocabMasks {
        let words = vocab.len().div_ceil(32);
        let mut text = vec![0u32; words].into_boxed_slice();
        let order = vocab.trie().order;
        order.iter().for_each(|&t| text[t as usize / 32] |= 1 << (t % 32));
        VocabMasks {
            words,
            text,
            text_tokens: order.len(),
            tree: WalkTree::of(&vocab.trie(), 0),
            runs: Arc::default(),
            rests: Arc::default(),
        }
    }
}
