//! Difference entries: what sets a state's mask apart from its base's.
//!
//! The walk steps two sets along the vocabulary trie, the state's and the base's. Where both are the same set they have
//! one future, and the whole subtree is alike; so the walk only follows the names that the state could still become.

use std::time::Instant;

use super::build::{below, covers, rest_of, Ranges};
use super::{Entry, Exit, ExitTo, TokenSet, VocabMasks};
use crate::machine::{Item, Machine, DEAD_SET, OUTSIDE};
use crate::unit::{insert_range, ByteSet};
use crate::vocab::Vocabulary;

/// The sets along the current path.
#[derive(Clone, Copy)]
struct Pair {
    /// Children of the trie node that are still to be looked at.
    at: u32,
    end: u32,
    own: u32,
    base: u32,
    /// Bytes on which the two can differ.
    differ: ByteSet,
}

const ALL: ByteSet = [u64::MAX; 4];

/// More tokens than this to take away, and the state is not much like its base after all.
const MAX_REMOVED: usize = 4096;

/// Build the entry of `(node's unit, state, regs)` as a difference from alias state `base`; `None` if it is not one that
/// is worth while.
pub fn build(
    m: &mut Machine,
    vocab: &Vocabulary,
    masks: &VocabMasks,
    node: u32,
    state: u32,
    regs: u32,
    base: u32,
) -> Option<Entry> {
    let began = Instant::now();
    let trie = vocab.trie();
    let item = Item { node, state, regs, ret: OUTSIDE };
    let own = m.set_of(item);
    let based = m.arrive(Item { state: base, ..item });
    let mut removed: Vec<u32> = vec![];
    let mut accepted = Ranges::default();
    let mut leaves: Vec<u32> = vec![];
    let tree = &masks.tree;
    let (at, end) = tree.children(tree.root());
    let start = (item, based);
    let differ = differing(m, own, based, start, base);
    let mut path = vec![Pair { at, end, own, base: based, differ }];
    while let Some(top) = path.last_mut() {
        let Some((byte, at)) = tree.next(&mut top.at, top.end, &top.differ) else {
            path.pop();
            continue;
        };
        let from = (top.own, top.base);
        let own = m.step(from.0, byte);
        let based = m.step(from.1, byte);
        if own == based {
            continue;
        }
        if own == DEAD_SET {
            removed.extend_from_slice(&trie.order[at.lo as usize..at.hi as usize]);
            if removed.len() > MAX_REMOVED {
                return None;
            }
            continue;
        }
        accepted.add(at.lo, at.own);
        if at.is_leaf() {
            continue;
        }
        if covers(m, own, tree, at) {
            accepted.add(at.own, at.hi);
            continue;
        }
        if m.has_left(own) {
            leaves.push(at.node);
        }
        let (at, end) = tree.children(at);
        let differ = differing(m, own, based, start, base);
        path.push(Pair { at, end, own, base: based, differ });
    }
    let rest = rest_of(below(&trie, vocab, &leaves, &accepted, |_| 0));
    let exits: Vec<Exit> = rest.map(|rest| Exit { to: ExitTo::Return, rest }).into_iter().collect();
    Some(Entry {
        base: Some(base),
        removed: removed.into(),
        accepted: TokenSet::from_ranges(&accepted.0, &trie, masks),
        special: Box::default(),
        exits: exits.into(),
        bounds: None,
        cost: began.elapsed().as_nanos() as u64,
    })
}

/// Bytes on which the next sets can differ: a state that falls back to the very alias the base stands in differs on its
/// own edges only. `start`: the entry's item, and the set of arriving in `base` with its registers.
fn differing(m: &Machine, own: u32, based: u32, start: (Item, u32), base: u32) -> ByteSet {
    let &[item] = m.kernel(own) else { return ALL };
    if (item.node, item.regs, item.ret) != (start.0.node, start.0.regs, start.0.ret) || based != start.1 {
        return ALL;
    }
    let unit = m.unit(item.node);
    if unit.fallback[item.state as usize] != base {
        return ALL;
    }
    let mut bytes = [0; 4];
    unit.own_edges(item.state).iter().for_each(|e| insert_range(&mut bytes, e.lo, e.hi));
    bytes
}
