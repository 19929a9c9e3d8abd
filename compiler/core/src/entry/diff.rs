//! Difference entries: what sets a state's mask apart from its base's.
//!
//! The walk steps two sets along the vocabulary trie, the state's and the base's. Where both are the same set they have
//! one future, and the whole subtree is alike; so the walk only follows the names that the state could still become.
//! A state before a key and its opening both loop on whitespace: as in `build`, tokens that begin with some are walked by
//! what follows it.

use std::sync::Arc;
use std::time::Instant;

use super::build::{below, loop_on_run, loops_on, rest_of};
use super::place::{Place, Steps};
use super::runs;
use super::walk::{covers, Ranges};
use super::{Beneath, Entry, Exit, ExitTo, TokenSet, VocabMasks, WalkNode, WalkTree};
use crate::machine::{Item, Machine, DEAD_SET, OUTSIDE};
use crate::unit::ByteSet;
use crate::vocab::{Trie, Vocabulary};

/// The sets along the current path.
#[derive(Clone, Copy)]
struct Pair {
    /// Children of the trie node that are still to be looked at.
    at: u32,
    end: u32,
    own: Place,
    base: u32,
    /// Bytes on which the two can differ.
    differ: ByteSet,
}

/// More tokens than this to take away, and the state is not much like its base after all.
const MAX_REMOVED: usize = 4096;

/// Build the entry of `(node's unit, state, regs)` as a difference from `base` (see [`crate::unit::Unit::base_of`]); `None`
/// if it is not one that is worth while.
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
    let item = Item { node, state, regs, ret: OUTSIDE };
    let own = m.set_of(item);
    let based = m.based(item, base);
    if based == DEAD_SET {
        return None;
    }
    let alias = m.unit(node).opening(base).map_or(base, |o| o.alias);
    let set = if alias == base { based } else { m.arrive(Item { state: alias, ..item }) };
    let fallen = Fallen { alias, set };
    let trie = vocab.trie();
    let run = loop_on_run(m, own, vocab, masks).filter(|(bytes, _)| loops_on(m, based, bytes));
    let mut steps = Steps::new(m, node, regs, alias);
    let own = steps.place(own);
    let mut start = Pair { at: 0, end: 0, own, base: based, differ: fallen.differing(&mut steps, own, based) };
    let behind = match &run {
        Some((_, run)) => Found::walk(&mut steps, &run.tree, &run.trie(), &fallen, start)?,
        None => Found::default(),
    };
    if let Some((bytes, _)) = &run {
        (0..4).for_each(|w| start.differ[w] &= !bytes[w]);
    }
    let mut found = Found::walk(&mut steps, &masks.tree, &trie, &fallen, start)?;
    let mut left = below(&trie, vocab, &found.leaves, &found.accepted, |_| 0);
    let mut accepted = TokenSet::from_ranges(&found.accepted.0, &trie, masks);
    if let Some((bytes, run)) = &run {
        left.extend(below(&run.trie(), vocab, &behind.leaves, &behind.accepted, |text| runs::length(bytes, text)));
        accepted = accepted.with(behind.accepted.tokens(&run.trie()), masks);
        found.removed.extend(behind.removed);
    }
    // What is taken away and given back is left alone.
    if let (false, TokenSet::Accepted(ids)) = (found.removed.is_empty(), &accepted) {
        found.removed.retain(|t| !ids.contains(t));
    }
    let exits: Vec<Exit> = rest_of(left).map(|rest| Exit { to: ExitTo::Return, rest }).into_iter().collect();
    Some(Entry {
        base: Some(base),
        removed: found.removed.into(),
        accepted,
        special: Box::default(),
        exits: exits.into(),
        bounds: None,
        cost: began.elapsed().as_nanos() as u64,
    })
}

/// What a walk found.
#[derive(Default)]
struct Found {
    accepted: Ranges,
    removed: Vec<u32>,
    leaves: Vec<u32>,
}

impl Found {
    /// Walk a tree of tokens from `start`; `None`: too much is to be taken away.
    fn walk(steps: &mut Steps<'_>, tree: &WalkTree, trie: &Trie<'_>, fallen: &Fallen, start: Pair) -> Option<Found> {
        let mut found = Found::default();
        let (at, end) = tree.children(tree.root());
        let mut path = vec![Pair { at, end, ..start }];
        while let Some(top) = path.last_mut() {
            let Some((byte, at)) = tree.next(&mut top.at, top.end, &top.differ) else {
                path.pop();
                continue;
            };
            let from = (top.own, top.base);
            let own = steps.step(from.0, byte);
            let base = steps.m.step(from.1, byte);
            if own == Place::Set(base) {
                continue;
            }
            if own == Place::DEAD {
                found.removed.extend_from_slice(&trie.order[at.lo as usize..at.hi as usize]);
                if found.removed.len() > MAX_REMOVED {
                    return None;
                }
                continue;
            }
            found.accepted.add(at.lo, at.own);
            if at.is_leaf() {
                continue;
            }
            if let Place::Set(own) = own {
                if covers(steps.m, own, tree, at) {
                    found.accepted.add(at.own, at.hi);
                    continue;
                }
                if steps.m.has_left(own) {
                    found.leaves.push(at.node);
                }
                if let Some((both, ret)) = in_other_units(steps, own, base, tree, at) {
                    found.removed.extend(both[1].taken(trie));
                    if found.removed.len() > MAX_REMOVED {
                        return None;
                    }
                    found.accepted.extend(&both[0].accepted);
                    if steps.m.has_left(ret) {
                        found.leaves.extend(both[0].leaves.iter().map(|at| at.node));
                    }
                    let (place, differ) = (steps.place(ret), *steps.m.live(ret));
                    path.extend(both[0].leaves.iter().map(|at| {
                        let (at, end) = tree.children(at);
                        Pair { at, end, own: place, base: DEAD_SET, differ }
                    }));
                    continue;
                }
            }
            let (at, end) = tree.children(at);
            let differ = fallen.differing(steps, own, base);
            path.push(Pair { at, end, own, base, differ });
        }
        found.accepted.settle();
        found.leaves.sort_unstable();
        Some(found)
    }
}

/// What a name's value and an undeclared key's rest allow from here on, if each is a unit's business; and what follows
/// the first.
fn in_other_units(
    steps: &mut Steps<'_>,
    own: u32,
    base: u32,
    tree: &WalkTree,
    at: &WalkNode,
) -> Option<([Arc<Beneath>; 2], u32)> {
    let (own, ret) = steps.beneath(own, tree, at)?;
    let (base, _) = steps.beneath(base, tree, at)?;
    Some(([own, base], ret))
}

/// Where an item falls that is in no name any more.
struct Fallen {
    alias: u32,
    /// The set of arriving in the alias with the item's registers.
    set: u32,
}

impl Fallen {
    /// Bytes on which the next sets can differ: those alive, and of a state that falls back to the very alias that the base
    /// stands in those of its own edges only.
    fn differing(&self, steps: &mut Steps<'_>, own: Place, base: u32) -> ByteSet {
        match own {
            Place::Own(state) if base == self.set => steps.bytes_apart(state, self.alias),
            _ => None,
        }
        .unwrap_or_else(|| {
            let (own, base) = (steps.live(own), *steps.m.live(base));
            std::array::from_fn(|w| own[w] | base[w])
        })
    }
}
