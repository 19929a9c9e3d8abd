//! Remainders that many entries share.
//!
//! Most units are left in few ways: a value behind `,` or `}`, a string behind its quote. Where nothing else goes on at the
//! trie nodes at which a walk left the unit, what remains of the tokens below them depends on the vocabulary alone, and
//! sorting a few hundred texts into a trie takes longer than the walk. So such a remainder is made once, by the nodes.

use std::sync::Arc;

use parking_lot::RwLock;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::Remainder;
use crate::unit::ByteSet;

/// Where walks left: nodes of the vocabulary's trie, and nodes behind a run of bytes (see [`super::runs`]).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Leaves {
    pub nodes: SmallVec<[u32; 8]>,
    pub run: Option<ByteSet>,
    pub behind: SmallVec<[u32; 8]>,
}

/// Remainders by where walks left, each made on first use.
#[derive(Debug, Default)]
pub struct Rests {
    known: RwLock<Known>,
}

#[derive(Debug, Default)]
struct Known {
    rests: FxHashMap<Leaves, Arc<Remainder>>,
    bytes: usize,
}

/// Units that are left in more ways are rare, and seldom in the same.
const MOST_LEAVES: usize = 16;
/// Bytes kept.
const MOST_BYTES: usize = 4 << 20;

impl Rests {
    /// The remainder at `leaves`, made by `make` if it is not known.
    pub fn of(&self, leaves: &Leaves, make: impl FnOnce() -> Option<Arc<Remainder>>) -> Option<Arc<Remainder>> {
        if let Some(known) = self.known.read().rests.get(leaves) {
            return Some(known.clone());
        }
        let made = make()?;
        let mut known = self.known.write();
        let bytes = made.size() + std::mem::size_of::<Leaves>();
        if leaves.nodes.len() + leaves.behind.len() <= MOST_LEAVES && known.bytes + bytes <= MOST_BYTES {
            known.bytes += bytes;
            return Some(known.rests.entry(leaves.clone()).or_insert(made).clone());
        }
        Some(made)
    }
}
