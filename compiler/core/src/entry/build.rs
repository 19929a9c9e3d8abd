//! The entry builder: a walk of the vocabulary trie inside one unit.
//!
//! The walk steps the machine along the trie. It skips a subtree when nothing survives its first byte, and accepts one
//! whole when the set loops on everything in it (R6): all bytes below are in the loop; or those of one byte are, and the
//! rest is whole UTF-8 characters, on all of which the set loops; and a counted loop has rounds left for the subtree's
//! height.

use std::sync::Arc;
use std::time::Instant;

use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use super::rests::Leaves;
use super::runs::Run;
use super::{Children, Entry, Exit, ExitTo, Remainder, TokenSet, VocabMasks, WalkNode};
use crate::fsm::Callee;
use crate::machine::{Item, Machine, DEAD_SET, OUTSIDE};
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

    /// Whether all of `a..b` is in.
    fn cover(&self, a: u32, b: u32) -> bool {
        a >= b || {
            let i = self.0.partition_point(|r| r.0 <= a);
            i > 0 && self.0[i - 1].1 >= b
        }
    }
}

/// A trie node on the current path: which of its children are still to be looked at, and the set there.
struct Frame {
    at: u32,
    end: u32,
    set: u32,
    live: ByteSet,
}

/// Build the entry of `(node's unit, state, regs)`. `regs` must be clamped.
pub fn build(m: &mut Machine, vocab: &Vocabulary, masks: &VocabMasks, node: u32, state: u32, regs: u32) -> Entry {
    let began = Instant::now();
    let trie = vocab.trie();
    let start = m.set_of(Item { node, state, regs, ret: OUTSIDE });
    let mut accepted = Ranges::default();
    // Where the unit completes, and where it stands before a hole (by position in `holes`).
    let mut leaves: SmallVec<[u32; 8]> = SmallVec::new();
    // Whether something else went on where the unit completed.
    let mut parted = false;
    let mut holes: Vec<FoundHole> = vec![];
    let mut hole_index: FxHashMap<(u32, u32), usize> = FxHashMap::default();
    let tokens = m.tokens(start);
    // A start that itself stands before a hole is not noted: the matcher masks what the hole is bound to as an item of
    // its own (`Machine::hole_starts`), which is the same and needs no remainder of the whole vocabulary.
    // A state that loops on whitespace, say, takes tokens of nothing else as they are, and those that begin with some by
    // what follows it; the walk of the vocabulary keeps to the others.
    let open = m.unit(node).callees.iter().any(|c| matches!(c, Callee::Hole(_)));
    let run = m.loop_of(start).filter(|l| l.rounds == u32::MAX && !open).and_then(|l| {
        let looped = (0..=255u8).filter(|&b| has_byte(&l.bytes, b)).all(|b| m.step(start, b) == start);
        looped.then(|| masks.runs.of(&l.bytes, vocab)).flatten().map(|run| (l.bytes, run))
    });
    let kids = &masks.children;
    let frame = |set: u32, live: ByteSet, node: u32| {
        let (at, end) = kids.range(node);
        Frame { at, end, set, live }
    };
    let mut live = *m.live(start);
    let mut behind = Behind::default();
    if let Some((bytes, run)) = &run {
        behind.walk(m, run, start);
        (0..4).for_each(|w| live[w] &= !bytes[w]);
    }
    let mut path = vec![frame(start, live, 0)];
    while let Some(top) = path.last_mut() {
        let Some((byte, i)) = kids.next(&mut top.at, top.end, &top.live) else {
            path.pop();
            continue;
        };
        let from = top.set;
        let set = m.step(from, byte);
        if set == DEAD_SET {
            continue;
        }
        let at = kids.get(i);
        accepted.add(at.lo, kids.get(i + 1).lo);
        if at.end == i + 1 {
            continue;
        }
        if covers(m, set, kids, at) {
            accepted.add(at.lo, kids.get(at.end).lo);
            continue;
        }
        if m.has_left(set) {
            leaves.push(i);
            if m.kernel(set).len() == 1 {
                continue;
            }
            parted = true;
        }
        let live = *m.live(set);
        if m.before_hole(set) {
            note_holes(m, set, node, i, &mut holes, &mut hole_index);
        }
        path.push(frame(set, live, i));
    }
    let mut exits = vec![];
    if !leaves.is_empty() || !behind.leaves.is_empty() {
        let make = || {
            let more = run.as_ref().map(|(_, run)| behind.leaving(vocab, run)).unwrap_or_default();
            remainder(&trie, vocab, &leaves, &accepted, more)
        };
        let rest = match parted || behind.parted {
            true => make().map(Arc::new),
            false => {
                let (nodes, behind) = (leaves.clone(), behind.leaves.clone());
                masks.rests.of(&Leaves { nodes, run: run.as_ref().map(|(bytes, _)| *bytes), behind }, make)
            }
        };
        exits.extend(rest.map(|rest| Exit { to: ExitTo::Return, rest }));
    }
    for (state, regs, nodes) in holes {
        if let Some(rest) = remainder(&trie, vocab, &nodes, &accepted, vec![]) {
            exits.push(Exit { to: ExitTo::Hole { state, regs }, rest: rest.into() });
        }
    }
    let mut special: Vec<u32> = tokens.named;
    special.retain(|&t| vocab.kind(t) != TokenKind::Unused);
    let mut entry = Entry {
        base: None,
        removed: Box::default(),
        accepted: match run {
            Some((_, run)) => match TokenSet::from_ranges(&accepted.0, &trie, masks) {
                TokenSet::Accepted(ids) => {
                    TokenSet::Shared(run.within.clone(), ids.iter().copied().chain(behind.accepted).collect())
                }
                many => {
                    let mut words = many.to_words(masks);
                    words.iter_mut().zip(run.within.iter()).for_each(|(w, r)| *w |= r);
                    behind.accepted.iter().for_each(|&t| words[t as usize / 32] |= 1 << (t % 32));
                    TokenSet::Dense(words)
                }
            },
            None => TokenSet::from_ranges(&accepted.0, &trie, masks),
        },
        special: special.into(),
        exits: exits.into(),
        bounds: None,
        cost: 0,
    };
    if let Some(but) = tokens.any_but {
        // What bytes allow stays allowed, whatever is said of the tokens.
        let mut words = entry.accepted.to_words(masks);
        let all = (0..vocab.len() as u32).filter(|&t| vocab.kind(t) != TokenKind::Unused);
        for t in all.filter(|t| but.binary_search(t).is_err()) {
            words[t as usize / 32] |= 1 << (t % 32);
        }
        entry.accepted = TokenSet::Dense(words);
    }
    entry.cost = began.elapsed().as_nanos() as u64;
    entry
}

/// Whether `set`, reached at `node`, survives everything below it (R6).
#[inline]
pub(super) fn covers(m: &mut Machine, set: u32, kids: &Children, node: &WalkNode) -> bool {
    let Some(l) = m.loop_of(set) else { return false };
    let below = kids.below(node);
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

/// What a walk behind a run found.
#[derive(Default)]
struct Behind {
    accepted: Vec<u32>,
    /// Where the unit completes, as nodes of the run's rest.
    leaves: SmallVec<[u32; 8]>,
    /// Whether something else went on there.
    parted: bool,
}

impl Behind {
    /// Walk what follows the run, from the looping set itself.
    fn walk(&mut self, m: &mut Machine, run: &Run, start: u32) {
        let rest = &run.rest;
        let live = *m.live(start);
        let mut path = vec![(run.children(0), start, live)];
        while let Some((children, set, live)) = path.last_mut() {
            let Some(i) = children.next() else {
                path.pop();
                continue;
            };
            let (byte, node) = run.children[i as usize];
            if !has_byte(live, byte) {
                continue;
            }
            let from = *set;
            let set = m.step(from, byte);
            if set == DEAD_SET {
                continue;
            }
            let at = node as usize;
            self.accepted.extend_from_slice(&rest.tokens[rest.first[at] as usize..rest.first[at + 1] as usize]);
            if rest.end[at] == node + 1 {
                continue;
            }
            if m.has_left(set) {
                self.leaves.push(node);
                if m.kernel(set).len() == 1 {
                    continue;
                }
                self.parted = true;
            }
            let live = *m.live(set);
            path.push((run.children(node), set, live));
        }
    }

    /// Tokens that leave and are not accepted, by what remains of them.
    fn leaving<'a>(&self, vocab: &'a Vocabulary, run: &Run) -> Vec<(&'a [u8], u32, u8)> {
        let rest = &run.rest;
        let accepted: FxHashSet<u32> = self.accepted.iter().copied().collect();
        let mut leaving = vec![];
        for &leaf in &self.leaves {
            let depth = rest.depth[leaf as usize];
            for node in leaf as usize + 1..rest.end[leaf as usize] as usize {
                let left = (rest.depth[node] - depth) as usize;
                for &token in &rest.tokens[rest.first[node] as usize..rest.first[node + 1] as usize] {
                    let text = vocab.bytes(token);
                    if !accepted.contains(&token) {
                        leaving.push((&text[text.len() - left..], token, 0));
                    }
                }
            }
        }
        leaving
    }
}

/// The tokens strictly below `nodes` that are not accepted anyway, by what remains of them, and those of `more`.
pub(super) fn remainder<'a>(
    trie: &Trie<'_>,
    vocab: &'a Vocabulary,
    nodes: &[u32],
    accepted: &Ranges,
    more: Vec<(&'a [u8], u32, u8)>,
) -> Option<Remainder> {
    let mut tokens = more;
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
                tokens.push((&vocab.bytes(token)[depth..], token, 0));
            }
        }
    }
    (!tokens.is_empty()).then(|| Remainder::build(tokens, false))
}
