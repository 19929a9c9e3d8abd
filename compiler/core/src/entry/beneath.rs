//! What a unit allows below a node of a token tree, whoever refers to it.
//!
//! Tokens that begin with a quote make up a good part of what is walked: a string begins, or a key. What a string allows
//! there is the same for every state before one, so it is worked out once for the string's unit, as an entry is, but
//! from that node on: the tokens, and the nodes where the string is complete. The walk that came there goes on at those
//! nodes only, with what follows the string.

use std::sync::Arc;

use smallvec::SmallVec;

use super::walk::{Found, Ranges};
use super::{WalkNode, WalkTree};
use crate::machine::{Item, Machine, OUTSIDE};
use crate::vocab::Trie;

/// See the module.
#[derive(Debug)]
pub struct Beneath {
    pub(super) accepted: Ranges,
    /// Where the unit completes; tokens end below.
    pub(super) leaves: Box<[WalkNode]>,
    /// Whether the unit also goes on at some of them.
    pub(super) parted: bool,
}

/// A state of a unit with its registers, a tree and one of its nodes.
pub type BeneathKey = (u32, SmallVec<[u32; 4]>, u32, u32);

/// Fewer tokens than this below a node are walked.
const FEW: u32 = 128;

impl Beneath {
    /// What the only item of `set` allows below `at`, and the set in which its unit completes. `None`: there are several
    /// items, or the item is not one of many alike, or there are few tokens.
    pub(super) fn of(m: &mut Machine, set: u32, tree: &WalkTree, at: &WalkNode) -> Option<(Arc<Beneath>, u32)> {
        if at.hi - at.own < FEW {
            return None;
        }
        let &[item] = m.kernel(set) else { return None };
        let ret = m.plain_return(item)?;
        let unit = m.unit(item.node).clone();
        // Keys seen make too many kinds of them; bounds of lengths are few, and most are beyond what the tokens reach.
        if unit.local || unit.has_holes() || item.regs != 0 && unit.layout.keys.is_some() {
            return None;
        }
        let regs = m.clamp_regs_to(item.node, item.regs, at.height.into());
        let words = SmallVec::from_slice(m.regs(regs));
        let beneath = unit.cache.beneath((item.state, words, tree.id(), at.node), || {
            let start = m.set_of(Item { ret: OUTSIDE, regs, ..item });
            let live = *m.live(start);
            let Found { accepted, leaves, parted, .. } = Found::walk(m, tree, at, (item.node, regs), start, live);
            let leaves = leaves.iter().filter_map(|&leaf| tree.below_at(at, leaf)).collect();
            Beneath { accepted, leaves, parted }
        });
        Some((beneath, ret))
    }

    /// Tokens of which a part or all is taken by the unit.
    pub(super) fn taken<'a>(&'a self, trie: &'a Trie<'_>) -> impl Iterator<Item = u32> + 'a {
        let below = self.leaves.iter().flat_map(|at| &trie.order[at.own as usize..at.hi as usize]).copied();
        self.accepted.tokens(trie).chain(below)
    }

    pub fn size(&self) -> usize {
        std::mem::size_of::<Beneath>()
            + self.accepted.0.len() * std::mem::size_of::<(u32, u32)>()
            + self.leaves.len() * std::mem::size_of::<WalkNode>()
    }
}
