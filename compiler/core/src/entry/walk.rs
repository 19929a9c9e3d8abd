//! The walk of the vocabulary trie inside one unit.
//!
//! The walk steps the machine along the trie. It skips a subtree when nothing survives its first byte, and accepts one
//! whole when the set loops on everything in it (R6): all bytes below are in the loop; or those of one byte are, and the
//! rest is whole UTF-8 characters, on all of which the set loops; and a counted loop has rounds left for the subtree's
//! height. Where it comes into a unit that many refer to, what that unit allows there is known, as a rule (`beneath`).

use smallvec::SmallVec;

use super::place::{Place, Steps};
use super::{WalkNode, WalkTree};
use crate::fsm::NONE;
use crate::machine::{Machine, OUTSIDE};
use crate::unit::ByteSet;
use crate::vocab::Trie;

/// Ranges of the trie's token order: sorted and disjoint once they are settled.
#[derive(Debug, Default)]
pub(super) struct Ranges(pub Vec<(u32, u32)>);

impl Ranges {
    pub fn add(&mut self, a: u32, b: u32) {
        match self.0.last_mut() {
            Some(last) if last.0 <= a && a <= last.1 => last.1 = last.1.max(b),
            _ if a < b => self.0.push((a, b)),
            _ => {}
        }
    }

    pub fn extend(&mut self, more: &Ranges) {
        more.0.iter().for_each(|&(a, b)| self.add(a, b));
    }

    /// Sort what was not added in order.
    pub fn settle(&mut self) {
        if self.0.windows(2).any(|w| w[1].0 <= w[0].1) {
            let mut all = std::mem::take(&mut self.0);
            all.sort_unstable();
            all.into_iter().for_each(|(a, b)| self.add(a, b));
        }
    }

    /// The tokens in the ranges.
    pub fn tokens<'a>(&'a self, trie: &'a Trie<'_>) -> impl Iterator<Item = u32> + 'a {
        self.0.iter().flat_map(|&(a, b)| &trie.order[a as usize..b as usize]).copied()
    }

    /// Whether all of `a..b` is in.
    pub fn cover(&self, a: u32, b: u32) -> bool {
        a >= b || {
            let i = self.0.partition_point(|r| r.0 <= a);
            i > 0 && self.0[i - 1].1 >= b
        }
    }
}

/// A node on the current path: which of its children are still to be looked at, and the set there.
struct Frame {
    at: u32,
    end: u32,
    place: Place,
    live: ByteSet,
}

/// What a walk found.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub accepted: Ranges,
    /// Where the unit completes, as nodes of the trie.
    pub leaves: SmallVec<[u32; 8]>,
    /// Whether something else went on there.
    pub parted: bool,
    pub holes: Vec<FoundHole>,
}

impl Found {
    /// Walk what is below `from` in a tree, of whose bytes only those in `live` are followed. `start`: the set there; `node`,
    /// `regs`: of the item whose entry it is for.
    pub fn walk(
        m: &mut Machine,
        tree: &WalkTree,
        from: &WalkNode,
        (node, regs): (u32, u32),
        start: u32,
        live: ByteSet,
    ) -> Found {
        let mut found = Found::default();
        let frame = |place: Place, live: ByteSet, at: &WalkNode| {
            let (at, end) = tree.children(at);
            Frame { at, end, place, live }
        };
        let mut steps = Steps::new(m, node, regs, NONE);
        let mut path = vec![frame(steps.place(start), live, from)];
        while let Some(top) = path.last_mut() {
            let Some((byte, at)) = tree.next(&mut top.at, top.end, &top.live) else {
                path.pop();
                continue;
            };
            let from = top.place;
            let place = steps.step(from, byte);
            if place == Place::DEAD {
                continue;
            }
            found.accepted.add(at.lo, at.own);
            if at.is_leaf() {
                continue;
            }
            let Place::Set(set) = place else {
                let live = steps.live(place);
                path.push(frame(place, live, at));
                continue;
            };
            if covers(steps.m, set, tree, at) {
                found.accepted.add(at.own, at.hi);
                continue;
            }
            if let Some((beneath, ret)) = steps.beneath(set, tree, at) {
                found.accepted.extend(&beneath.accepted);
                found.parted |= beneath.parted;
                let place = steps.place(ret);
                for at in &beneath.leaves {
                    if let Some(live) = found.go_on(&mut steps, ret, node, at) {
                        path.push(frame(place, live, at));
                    }
                }
            } else if let Some(live) = found.go_on(&mut steps, set, node, at) {
                path.push(frame(place, live, at));
            }
        }
        found.accepted.settle();
        found.leaves.sort_unstable();
        found
    }

    /// Note what is to be known of `set` at a node: whether the unit completes, what holes it stands before. The bytes to
    /// follow from there, if it goes on.
    #[inline]
    fn go_on(&mut self, steps: &mut Steps<'_>, set: u32, node: u32, at: &WalkNode) -> Option<ByteSet> {
        let m = &mut *steps.m;
        if m.has_left(set) {
            self.leaves.push(at.node);
            if m.kernel(set).len() == 1 {
                return None;
            }
            self.parted = true;
        }
        let live = *m.live(set);
        if m.before_hole(set) {
            note_holes(m, set, node, at.node, &mut self.holes);
        }
        Some(live)
    }
}

/// Whether `set`, reached at `node`, survives everything below it (R6).
#[inline]
pub(super) fn covers(m: &mut Machine, set: u32, tree: &WalkTree, node: &WalkNode) -> bool {
    let below = tree.below(node);
    let within = |bytes: &ByteSet, utf8: bool| {
        let ascii = (below[0] & !bytes[0]) | (below[1] & !bytes[1]) == 0;
        let high = (below[2] & !bytes[2]) | (below[3] & !bytes[3]) == 0;
        ascii && (high || utf8)
    };
    if m.loop_of(set).is_some_and(|l| node.height as u32 <= l.rounds && within(&l.bytes, l.utf8 && node.utf8)) {
        return true;
    }
    // Mostly a byte below is out of the question at once.
    let whole = node.utf8 || below[2] | below[3] == 0;
    if !whole || !within(m.live(set), true) {
        return false;
    }
    let region = m.known_region(set).or_else(|| {
        let live = m.live(set);
        let wide = live[0].count_ones() + live[1].count_ones() >= WIDE && node.hi - node.own >= MANY;
        wide.then(|| m.region_of(set))
    });
    region.flatten().is_some_and(|bytes| within(&bytes, false))
}

/// A region of fewer bytes of ASCII, or fewer tokens below a node, are not worth looking for one.
const WIDE: u32 = 26;
const MANY: u32 = 32;

/// A hole that the walk came to: the state before it, its registers, and the trie nodes where it stood there.
pub(super) type FoundHole = (u32, SmallVec<[u32; 4]>, Vec<u32>);

/// Add trie node `at` to every hole before which the entry's own items stand in `set`.
fn note_holes(m: &Machine, set: u32, node: u32, at: u32, holes: &mut Vec<FoundHole>) {
    let standing: SmallVec<[(u32, u32); 4]> = m
        .kernel(set)
        .iter()
        .filter(|i| i.node == node && i.ret == OUTSIDE)
        .filter(|i| m.at_hole(**i))
        .map(|i| (i.state, i.regs))
        .collect();
    for (state, regs) in standing {
        let regs = m.regs(regs);
        let known = holes.iter().position(|(q, r, _)| *q == state && r.as_slice() == regs);
        let slot = known.unwrap_or_else(|| {
            holes.push((state, SmallVec::from_slice(regs), vec![]));
            holes.len() - 1
        });
        holes[slot].2.push(at);
    }
}
