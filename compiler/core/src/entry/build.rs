//! The entry builder: a walk of the vocabulary trie inside one unit.
//!
//! The walk steps the machine along the trie. It skips a subtree when nothing survives its first byte, and accepts one
//! whole when the set loops on everything in it (R6): all bytes below are in the loop; or those of one byte are, and the
//! rest is whole UTF-8 characters, on all of which the set loops; and a counted loop has rounds left for the subtree's
//! height.

use std::sync::Arc;
use std::time::Instant;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::place::{Place, Steps};
use super::rests::Leaves;
use super::runs::{self, Run};
use super::{Entry, Exit, ExitTo, Remainder, TokenSet, VocabMasks, WalkNode, WalkTree};
use crate::fsm::{Callee, NONE};
use crate::machine::{Item, Machine, OUTSIDE};
use crate::unit::{has_byte, ByteSet};
use crate::vocab::{TokenKind, Trie, Vocabulary};

/// Sorted, disjoint ranges of the trie's token order.
#[derive(Default)]
pub(super) struct Ranges(pub Vec<(u32, u32)>);

impl Ranges {
    pub fn add(&mut self, a: u32, b: u32) {
        match self.0.last_mut() {
            Some(last) if a <= last.1 => last.1 = last.1.max(b),
            _ if a < b => self.0.push((a, b)),
            _ => {}
        }
    }

    /// The tokens in the ranges.
    pub fn tokens<'a>(&'a self, trie: &'a Trie<'_>) -> impl Iterator<Item = u32> + 'a {
        self.0.iter().flat_map(|&(a, b)| &trie.order[a as usize..b as usize]).copied()
    }

    /// Whether all of `a..b` is in.
    fn cover(&self, a: u32, b: u32) -> bool {
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

/// Build the entry of `(node's unit, state, regs)`. `regs` must be clamped.
pub fn build(m: &mut Machine, vocab: &Vocabulary, masks: &VocabMasks, node: u32, state: u32, regs: u32) -> Entry {
    let began = Instant::now();
    let trie = vocab.trie();
    let start = m.set_of(Item { node, state, regs, ret: OUTSIDE });
    let tokens = m.tokens(start);
    // A start that itself stands before a hole is not noted: the matcher masks what the hole is bound to as an item of
    // its own (`Machine::hole_starts`), which is the same and needs no remainder of the whole vocabulary.
    // A state that loops on whitespace, say, takes tokens of nothing else as they are, and those that begin with some by
    // what follows it; the walk of the vocabulary keeps to the others.
    let open = m.unit(node).callees.iter().any(|c| matches!(c, Callee::Hole(_)));
    let run = if open { None } else { loop_on_run(m, start, vocab, masks) };
    let mut live = *m.live(start);
    let behind = run.as_ref().map(|(_, run)| Found::walk(m, &run.tree, (node, regs), start, live)).unwrap_or_default();
    if let Some((bytes, _)) = &run {
        (0..4).for_each(|w| live[w] &= !bytes[w]);
    }
    let found = Found::walk(m, &masks.tree, (node, regs), start, live);
    let mut exits = vec![];
    if !found.leaves.is_empty() || !behind.leaves.is_empty() {
        let make = || {
            let mut left = below(&trie, vocab, &found.leaves, &found.accepted, |_| 0);
            if let Some((bytes, run)) = &run {
                let skip = |text: &[u8]| runs::length(bytes, text);
                left.extend(below(&run.trie(), vocab, &behind.leaves, &behind.accepted, skip));
            }
            rest_of(left)
        };
        let rest = match found.parted || behind.parted {
            true => make(),
            false => {
                let (nodes, behind) = (found.leaves.clone(), behind.leaves.clone());
                masks.rests.of(&Leaves { nodes, run: run.as_ref().map(|(bytes, _)| *bytes), behind }, make)
            }
        };
        exits.extend(rest.map(|rest| Exit { to: ExitTo::Return, rest }));
    }
    for (state, regs, nodes) in found.holes {
        let rest = rest_of(below(&trie, vocab, &nodes, &found.accepted, |_| 0));
        exits.extend(rest.map(|rest| Exit { to: ExitTo::Hole { state, regs }, rest }));
    }
    let mut special: Vec<u32> = tokens.named;
    special.retain(|&t| vocab.kind(t) != TokenKind::Unused);
    let mut accepted = TokenSet::from_ranges(&found.accepted.0, &trie, masks);
    if let Some((_, run)) = run {
        accepted = match accepted.with(behind.accepted.tokens(&run.trie()), masks) {
            TokenSet::Accepted(ids) => TokenSet::Shared(run.within.clone(), ids),
            many => {
                let mut words = many.to_words(masks);
                words.iter_mut().zip(run.within.iter()).for_each(|(w, r)| *w |= r);
                TokenSet::Dense(words)
            }
        };
    }
    if let Some(but) = tokens.any_but {
        // What bytes allow stays allowed, whatever is said of the tokens.
        let mut words = accepted.to_words(masks);
        let all = (0..vocab.len() as u32).filter(|&t| vocab.kind(t) != TokenKind::Unused);
        for t in all.filter(|t| but.binary_search(t).is_err()) {
            words[t as usize / 32] |= 1 << (t % 32);
        }
        accepted = TokenSet::Dense(words);
    }
    Entry {
        base: None,
        removed: Box::default(),
        accepted,
        special: special.into(),
        exits: exits.into(),
        bounds: None,
        cost: began.elapsed().as_nanos() as u64,
    }
}

/// The bytes of whitespace, say, on which a set loops for good, with what tokens look like after a run of them.
pub(super) fn loop_on_run(
    m: &mut Machine,
    set: u32,
    vocab: &Vocabulary,
    masks: &VocabMasks,
) -> Option<(ByteSet, Arc<Run>)> {
    let bytes = m.loop_of(set).filter(|l| l.rounds == u32::MAX)?.bytes;
    let looped = (0..=255u8).filter(|&b| has_byte(&bytes, b)).all(|b| m.step(set, b) == set);
    looped.then(|| masks.runs.of(&bytes, vocab)).flatten().map(|run| (bytes, run))
}

/// What a walk found.
#[derive(Default)]
struct Found {
    accepted: Ranges,
    /// Where the unit completes, as nodes of the trie.
    leaves: SmallVec<[u32; 8]>,
    /// Whether something else went on there.
    parted: bool,
    holes: Vec<FoundHole>,
}

impl Found {
    /// Walk a tree from `start`, of whose bytes only those in `live` are followed. `node`, `regs`: the entry's own.
    fn walk(m: &mut Machine, tree: &WalkTree, (node, regs): (u32, u32), start: u32, live: ByteSet) -> Found {
        let mut found = Found::default();
        let mut hole_index: FxHashMap<(u32, u32), usize> = FxHashMap::default();
        let frame = |place: Place, live: ByteSet, at: &WalkNode| {
            let (at, end) = tree.children(at);
            Frame { at, end, place, live }
        };
        let mut steps = Steps::new(m, node, regs, NONE);
        let mut path = vec![frame(steps.place(start), live, tree.root())];
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
            let m = &mut *steps.m;
            if covers(m, set, tree, at) {
                found.accepted.add(at.own, at.hi);
                continue;
            }
            if m.has_left(set) {
                found.leaves.push(at.node);
                if m.kernel(set).len() == 1 {
                    continue;
                }
                found.parted = true;
            }
            let live = *m.live(set);
            if m.before_hole(set) {
                note_holes(m, set, node, at.node, &mut found.holes, &mut hole_index);
            }
            path.push(frame(place, live, at));
        }
        found
    }
}

/// Whether `set`, reached at `node`, survives everything below it (R6).
#[inline]
pub(super) fn covers(m: &mut Machine, set: u32, tree: &WalkTree, node: &WalkNode) -> bool {
    let Some(l) = m.loop_of(set) else { return false };
    let below = tree.below(node);
    let ascii = (below[0] & !l.bytes[0]) | (below[1] & !l.bytes[1]) == 0;
    let high = (below[2] & !l.bytes[2]) | (below[3] & !l.bytes[3]) == 0;
    ascii && (high || (l.utf8 && node.utf8)) && node.height as u32 <= l.rounds
}

/// A hole that the walk came to: the state before it, its registers, and the trie nodes where it stood there.
type FoundHole = (u32, SmallVec<[u32; 4]>, Vec<u32>);

/// Add trie node `at` to every hole before which the entry's own items stand in `set`.
fn note_holes(
    m: &mut Machine,
    set: u32,
    node: u32,
    at: u32,
    holes: &mut Vec<FoundHole>,
    index: &mut FxHashMap<(u32, u32), usize>,
) {
    if !m.before_hole(set) {
        return;
    }
    let unit = m.unit(node).clone();
    let standing: SmallVec<[(u32, u32); 4]> = m
        .kernel(set)
        .iter()
        .filter(|i| i.node == node && i.ret == OUTSIDE)
        .filter(|i| unit.own_refs(i.state).iter().any(|r| matches!(unit.callees[r.callee as usize], Callee::Hole(_))))
        .map(|i| (i.state, i.regs))
        .collect();
    for (state, regs) in standing {
        let slot = *index.entry((state, regs)).or_insert_with(|| {
            holes.push((state, SmallVec::from_slice(m.regs(regs)), vec![]));
            holes.len() - 1
        });
        holes[slot].2.push(at);
    }
}

/// The tokens strictly below `nodes` of a trie that are not accepted anyway, by what remains of them. `skip`: how many bytes
/// of a token are before the trie's root.
pub(super) fn below<'a>(
    trie: &Trie<'_>,
    vocab: &'a Vocabulary,
    nodes: &[u32],
    accepted: &Ranges,
    skip: impl Fn(&[u8]) -> usize,
) -> Vec<(&'a [u8], u32, u8)> {
    let mut left = vec![];
    for &node in nodes {
        let at = node as usize;
        let (from, to) = (trie.lo[at + 1], trie.lo[trie.end[at] as usize]);
        if accepted.cover(from, to) {
            continue;
        }
        let depth = trie.depth[at] as usize;
        for k in from..to {
            if !accepted.cover(k, k + 1) {
                let token = trie.order[k as usize];
                let text = vocab.bytes(token);
                left.push((&text[skip(text) + depth..], token, 0));
            }
        }
    }
    left
}

/// The remainder of what [`below`] found, if it found anything.
pub(super) fn rest_of(left: Vec<(&[u8], u32, u8)>) -> Option<Arc<Remainder>> {
    (!left.is_empty()).then(|| Arc::new(Remainder::build(left, false)))
}
