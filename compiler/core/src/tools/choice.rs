//! The choice of tags after a trigger: a request-local unit, built flat and in one go.
//!
//! A tag is what remains of its begin after the trigger, its content (a reference), and its end. Numbering of states, on
//! which tag events rely: 0 is the root of the trie; `1..=n` stand after the complete begin of tag `i`; `n+1..=2n` stand
//! after its content; then the states inside ends; then the trie's inner states.

use rustc_hash::FxHashMap;

use crate::fsm::{Callee, Edge, RefEdge, NONE, PLAIN, REJECT};
use crate::unit::{Digest, Link, Unit};
use crate::FORMAT_VERSION;

/// One tag.
#[derive(Clone, Debug)]
pub struct Tag<'a> {
    /// The begin without the trigger.
    pub rest: std::borrow::Cow<'a, [u8]>,
    pub content: Link,
    /// The content may be empty.
    pub optional: bool,
    pub end: &'a [u8],
}

/// The unit of a choice, with its links.
#[derive(Debug)]
pub struct Choice {
    pub unit: Unit,
    pub links: Box<[Link]>,
    /// Number of tags.
    pub tags: u32,
    /// First state that is outside of all tags, the root aside.
    pub inner: u32,
    /// Some tag may be nothing at all. The unit itself matches no empty text.
    pub nullable: bool,
}

/// Build the choice among `tags` (at least one). Tags with one begin are alternatives.
pub fn choose(tags: &[Tag<'_>]) -> Choice {
    let n = tags.len() as u32;
    let bytes: usize = tags.iter().map(|t| t.rest.len() + 1).sum();
    let mut edges: Vec<(u32, Edge)> = Vec::with_capacity(bytes);
    let mut refs: Vec<(u32, RefEdge)> = Vec::with_capacity(tags.len());
    let mut next = 2 * n + 1;
    let mut callees: Vec<Link> = vec![];
    let mut callee_of: FxHashMap<Link, u32> = FxHashMap::default();
    // Ends: a tag's own state takes the first byte, the states behind it are shared by equal ends.
    let mut ends: FxHashMap<&[u8], u32> = FxHashMap::default();
    let mut accepting = vec![];
    // Where each tag's end goes on from; `None`: there is no end.
    let mut first_of_end: Vec<Option<(u8, u32)>> = Vec::with_capacity(tags.len());
    for (i, tag) in tags.iter().enumerate() {
        let after = n + 1 + i as u32;
        match tag.end {
            [] => {
                accepting.push(after);
                first_of_end.push(None);
            }
            [first, behind @ ..] => {
                let target = *ends.entry(tag.end).or_insert_with(|| {
                    let first_state = next;
                    for &b in behind {
                        edges.push((next, Edge { lo: b, hi: b, act: PLAIN, target: next + 1 }));
                        next += 1;
                    }
                    accepting.push(next);
                    next += 1;
                    first_state
                });
                edges.push((after, Edge { lo: *first, hi: *first, act: PLAIN, target }));
                first_of_end.push(Some((*first, target)));
            }
        }
    }
    let inner = next;
    // The trie, from sorted begins: `path` holds the states along the begin before.
    let mut sorted: Vec<u32> = (0..n).collect();
    sorted.sort_unstable_by(|&a, &b| (&tags[a as usize].rest, a).cmp(&(&tags[b as usize].rest, b)));
    let mut path: Vec<u32> = vec![0];
    let mut before: &[u8] = &[];
    let mut nullable = false;
    for &i in &sorted {
        let tag = &tags[i as usize];
        let rest: &[u8] = &tag.rest;
        let shared = rest.iter().zip(before).take_while(|(a, b)| a == b).count();
        path.truncate(shared + 1);
        for (d, &b) in rest.iter().enumerate().skip(shared) {
            let last = d + 1 == rest.len();
            let target = if last { 1 + i } else { next };
            next += u32::from(!last);
            edges.push((path[d], Edge { lo: b, hi: b, act: PLAIN, target }));
            path.push(target);
        }
        let callee = *callee_of.entry(tag.content).or_insert_with(|| {
            callees.push(tag.content);
            callees.len() as u32 - 1
        });
        let state = path[rest.len()];
        if tag.optional {
            match first_of_end[i as usize] {
                Some((b, target)) => edges.push((state, Edge { lo: b, hi: b, act: PLAIN, target })),
                None if state == 0 => nullable = true,
                None => accepting.push(state),
            }
        }
        refs.push((state, RefEdge { callee, args: NONE, act: PLAIN, target: n + 1 + i }));
        before = rest;
    }
    let states = next as usize;
    let (edge_start, mut edges) = group(states, edges);
    for q in 0..states {
        // Edges of ends came after those of the trie.
        edges[edge_start[q] as usize..edge_start[q + 1] as usize].sort_unstable();
    }
    let (ref_start, refs) = group(states, refs);
    let mut accept = vec![REJECT; states];
    accepting.iter().for_each(|&q| accept[q as usize] = PLAIN);
    let unit = Unit::local(
        "choice of tags",
        (edge_start, edges),
        (ref_start, refs),
        accept,
        (0..callees.len() as u32).map(Callee::Rule).collect(),
    );
    Choice { unit, links: callees.into(), tags: n, inner, nullable }
}

/// The identity of a choice: its tags, in whatever order they were given. `content` is the digest of a callee.
pub fn digest(unit: &Unit, content: impl Fn(u32) -> Digest) -> Digest {
    let mut tags: Vec<(Vec<u8>, Digest, Vec<u8>)> = vec![];
    let mut work: Vec<(u32, Vec<u8>)> = vec![(0, vec![])];
    while let Some((state, path)) = work.pop() {
        if unit.accept[state as usize] != REJECT {
            // A tag that may end without content.
            tags.push((path.clone(), [0xff; 32], vec![]));
        }
        for r in unit.own_refs(state) {
            let mut end = vec![];
            let mut at = r.target;
            while let Some(e) = unit.own_edges(at).first() {
                end.push(e.lo);
                at = e.target;
            }
            tags.push((path.clone(), content(r.callee), end));
        }
        for e in unit.own_edges(state) {
            let mut longer = path.clone();
            longer.push(e.lo);
            work.push((e.target, longer));
        }
    }
    tags.sort_unstable();
    let mut h = blake3::Hasher::new();
    h.update(b"choice");
    h.update(&FORMAT_VERSION.to_le_bytes());
    for (begin, content, end) in tags {
        h.update(&(begin.len() as u32).to_le_bytes());
        h.update(&begin);
        h.update(&content);
        h.update(&(end.len() as u32).to_le_bytes());
        h.update(&end);
    }
    *h.finalize().as_bytes()
}

/// Sort by state into offsets and values; the order within a state is kept.
fn group<T: Copy>(states: usize, items: Vec<(u32, T)>) -> (Vec<u32>, Vec<T>) {
    let mut start = vec![0u32; states + 1];
    items.iter().for_each(|(q, _)| start[*q as usize + 1] += 1);
    for q in 0..states {
        start[q + 1] += start[q];
    }
    let mut at = start.clone();
    let Some(&(_, first)) = items.first() else { return (start, vec![]) };
    let mut out = vec![first; items.len()];
    for (q, item) in items {
        out[at[q as usize] as usize] = item;
        at[q as usize] += 1;
    }
    (start, out)
}
