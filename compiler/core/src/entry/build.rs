//! The entry builder: what a walk of the vocabulary found, in the form that is kept.

use std::sync::Arc;
use std::time::Instant;

use super::rests::Leaves;
use super::runs::{self, Run};
use super::walk::{Found, Ranges};
use super::{Entry, Exit, ExitTo, Remainder, TokenSet, VocabMasks, WalkTree};
use crate::machine::{Item, Machine, OUTSIDE};
use crate::unit::{has_byte, ByteSet};
use crate::vocab::{TokenKind, Trie, Vocabulary};

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
    let run = if m.unit(node).has_holes() { None } else { loop_on_run(m, start, vocab, masks) };
    let mut live = *m.live(start);
    let mut walk = |tree: &WalkTree, live| Found::walk(m, tree, tree.root(), (node, regs), start, live);
    let behind = run.as_ref().map(|(_, run)| walk(&run.tree, live)).unwrap_or_default();
    if let Some((bytes, _)) = &run {
        (0..4).for_each(|w| live[w] &= !bytes[w]);
    }
    let found = walk(&masks.tree, live);
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
                let run = run.as_ref().map(|(bytes, _)| *bytes);
                masks.rests.of(&Leaves { nodes: found.leaves.clone(), run, behind: behind.leaves.clone() }, make)
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
    loops_on(m, set, &bytes).then(|| masks.runs.of(&bytes, vocab)).flatten().map(|run| (bytes, run))
}

/// Whether each of some bytes leads from a set back to it.
pub(super) fn loops_on(m: &mut Machine, set: u32, bytes: &ByteSet) -> bool {
    (0..=255u8).filter(|&b| has_byte(bytes, b)).all(|b| m.step(set, b) == set)
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
