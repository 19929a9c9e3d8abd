//! Runs: what all tokens look like after leading bytes of a small set, whitespace above all.
//!
//! Nearly every state of a JSON unit loops on whitespace, and a vocabulary has hundreds of tokens of nothing but
//! whitespace and tens of thousands that begin with some. Which tokens lie wholly inside the run, and what remains of the
//! others behind it, depends on the vocabulary alone: it is worked out once per set of bytes. An entry of a state that
//! loops on the set then takes the first as they are and walks the second from the state itself.

use std::sync::Arc;

use parking_lot::RwLock;
use rustc_hash::FxHashMap;

use super::WalkTree;
use crate::unit::{has_byte, ByteSet};
use crate::vocab::{Trie, TrieArrays, Vocabulary};

/// The tokens of a vocabulary by what follows a run of certain bytes.
#[derive(Debug)]
pub struct Run {
    /// Tokens of nothing but the bytes, as a bitmask.
    pub within: Arc<[u32]>,
    /// How many.
    pub count: usize,
    /// The other tokens that begin with at least one of the bytes, by what follows the run.
    rest: TrieArrays,
    pub tree: WalkTree,
}

/// Runs by their bytes, each made on first use.
#[derive(Debug, Default)]
pub struct Runs {
    known: RwLock<FxHashMap<ByteSet, Arc<Run>>>,
}

/// Sets of more bytes than this have no run of their own: most tokens would be inside.
const MOST_BYTES: u32 = 6;
/// Sets kept.
const MOST_RUNS: usize = 8;

impl Runs {
    /// The run of a set of bytes, if it is small enough to have one.
    pub fn of(&self, bytes: &ByteSet, vocab: &Vocabulary) -> Option<Arc<Run>> {
        if bytes.iter().map(|w| w.count_ones()).sum::<u32>() > MOST_BYTES {
            return None;
        }
        if let Some(run) = self.known.read().get(bytes) {
            return Some(run.clone());
        }
        if self.known.read().len() >= MOST_RUNS {
            return None;
        }
        // Built under the lock: it is done a few times in a process, and each has a number.
        let mut known = self.known.write();
        if !known.contains_key(bytes) {
            let id = known.len() as u32 + 1;
            known.insert(*bytes, Arc::new(Run::build(bytes, vocab, id)?));
        }
        known.get(bytes).cloned()
    }
}

impl Runs {
    /// The bytes whose run has this mask.
    pub fn bytes_of(&self, within: &Arc<[u32]>) -> Option<ByteSet> {
        self.known.read().iter().find(|(_, run)| Arc::ptr_eq(&run.within, within)).map(|(bytes, _)| *bytes)
    }
}

impl Run {
    /// `None`: the vocabulary has no trie of this kind. `id`: of its tree.
    fn build(bytes: &ByteSet, vocab: &Vocabulary, id: u32) -> Option<Run> {
        let mut within = vec![0u32; vocab.len().div_ceil(32)];
        let mut count = 0;
        let mut rest: Vec<(&[u8], u32)> = vec![];
        for &t in vocab.trie().order {
            let text = vocab.bytes(t);
            match length(bytes, text) {
                run if run == text.len() => {
                    within[t as usize / 32] |= 1 << (t % 32);
                    count += 1;
                }
                0 => {}
                run => rest.push((&text[run..], t)),
            }
        }
        let rest = TrieArrays::build(&rest).ok()?;
        let tree = WalkTree::of(&rest.view(), id);
        Some(Run { within: within.into(), count, rest, tree })
    }

    /// The trie of what follows the run.
    pub fn trie(&self) -> Trie<'_> {
        self.rest.view()
    }
}

/// How many of `bytes` a text begins with.
pub fn length(bytes: &ByteSet, text: &[u8]) -> usize {
    text.iter().position(|&b| !has_byte(bytes, b)).unwrap_or(text.len())
}
