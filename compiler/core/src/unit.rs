//! Units: the frozen, flat form of an FSM, and nodes: a unit with its references bound.
//!
//! A [`Unit`] is identified by its digest and knows nothing of names or of the grammar it came from. A [`Node`] binds a
//! unit's callees (and holes) to other nodes; the stepping machine walks nodes. Mask entries hang on the unit, because
//! they depend on nothing else (see `entry`).

mod loops;

use std::sync::{Arc, OnceLock};

use smallvec::SmallVec;

use crate::fsm::{Callee, Edge, Fsm, Op, RefEdge, State, TokenEdge, DEAD, NONE, REJECT};
use crate::ir::PropertyOrder;
use crate::mask_cache::MaskCache;
use crate::tails::{self, Alias, Opening};
use loops::Loops;
pub use loops::{Loop, Region};

/// A hierarchical structural hash: see `digest`.
pub type Digest = [u8; 32];

/// A set of bytes.
pub type ByteSet = [u64; 4];

/// Insert `lo..=hi`.
#[inline]
pub fn insert_range(set: &mut ByteSet, lo: u8, hi: u8) {
    let (first, last) = ((lo >> 6) as usize, (hi >> 6) as usize);
    let from = u64::MAX << (lo & 63);
    let to = u64::MAX >> (63 - (hi & 63));
    if first == last {
        set[first] |= from & to;
        return;
    }
    set[first] |= from;
    set[first + 1..last].fill(u64::MAX);
    set[last] |= to;
}

#[inline]
pub fn has_byte(set: &ByteSet, b: u8) -> bool {
    set[(b >> 6) as usize] >> (b & 63) & 1 == 1
}

/// Shape of a unit's register file: counters first (two words each: need, room), then the key register.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    pub counters: u8,
    pub keys: Option<Keys>,
}

/// The key register in the form that is tested at run time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keys {
    pub order: PropertyOrder,
    pub count: u32,
    /// Sorted numbers.
    pub required: Vec<u32>,
    /// The same as words (order `Any`).
    pub required_words: Vec<u32>,
    pub open: bool,
    /// `Avail` masks: sorted numbers.
    pub masks: Vec<Vec<u32>>,
}

impl Layout {
    /// Words of a register file.
    pub fn words(&self) -> usize {
        2 * self.counters as usize + self.key_words()
    }

    pub fn key_words(&self) -> usize {
        match &self.keys {
            None => 0,
            Some(k) if k.order == PropertyOrder::Declared => 1,
            Some(k) => (k.count as usize).div_ceil(32),
        }
    }
}

/// The bounds with which a reference starts the counters of its unit: (min, max).
pub type Arguments = Box<[(u32, u32)]>;

/// One sub-grammar's FSM, flat. Slices are indexed by state; `*_start` have one element more than there are states.
#[derive(Debug)]
pub struct Unit {
    pub digest: Digest,
    /// For people.
    pub name: String,
    /// Belongs to one request: never cached, stored or counted.
    pub local: bool,
    /// A stretch of an object: see [`crate::tails`].
    pub tail: bool,
    pub layout: Layout,
    pub edge_start: Box<[u32]>,
    pub edges: Box<[Edge]>,
    pub ref_start: Box<[u32]>,
    pub refs: Box<[RefEdge]>,
    pub token_start: Box<[u32]>,
    pub tokens: Box<[TokenEdge]>,
    pub fallback: Box<[u32]>,
    pub accept: Box<[u16]>,
    pub callees: Box<[Callee]>,
    pub args: Box<[Arguments]>,
    pub acts: Box<[Box<[Op]>]>,
    loops: Loops,
    /// See [`crate::tails`]; sorted by state.
    aliases: Box<[(u32, Alias)]>,
    /// See [`crate::tails`]; sorted by state.
    openings: Box<[Opening]>,
    /// The states that are marked `distinct`, sorted: see [`crate::fsm`].
    pub distinct: Box<[u32]>,
    pub cache: MaskCache,
}

/// A state and its register class (clamped words; empty for all zeros).
pub type EntryKey = (u32, SmallVec<[u32; 4]>);

impl Unit {
    pub fn new(name: &str, digest: Digest, fsm: Fsm) -> Unit {
        Unit::with_tails(name, digest, fsm, Box::default(), Box::default())
    }

    /// A stretch of an object.
    pub fn tail(name: &str, digest: Digest, fsm: Fsm) -> Unit {
        let mut unit = Unit::new(name, digest, fsm);
        unit.tail = true;
        unit
    }

    /// `aliases`, `openings`: see [`crate::tails`]; sorted by state.
    pub fn with_tails(
        name: &str,
        digest: Digest,
        fsm: Fsm,
        aliases: Box<[(u32, Alias)]>,
        openings: Box<[Opening]>,
    ) -> Unit {
        let n = fsm.states.len();
        let distinct = fsm.marked().collect();
        let keys = fsm.keys.map(|k| {
            let mut words = vec![0u32; (k.keys as usize).div_ceil(32)];
            for &r in &k.required {
                words[r as usize / 32] |= 1 << (r % 32);
            }
            Keys {
                order: k.order,
                count: k.keys,
                required: k.required,
                required_words: words,
                open: k.open,
                masks: k.masks,
            }
        });
        let (mut es, mut rs, mut ts) =
            (Vec::with_capacity(n + 1), Vec::with_capacity(n + 1), Vec::with_capacity(n + 1));
        let sum = |len: fn(&State) -> usize| fsm.states.iter().map(len).sum();
        let mut edges = Vec::with_capacity(sum(|s| s.edges.len()));
        let mut refs = Vec::with_capacity(sum(|s| s.refs.len()));
        let mut tokens = Vec::with_capacity(sum(|s| s.tokens.len()));
        let (mut fallback, mut accept) = (Vec::with_capacity(n), Vec::with_capacity(n));
        for s in fsm.states {
            es.push(edges.len() as u32);
            rs.push(refs.len() as u32);
            ts.push(tokens.len() as u32);
            edges.extend(s.edges);
            refs.extend(s.refs);
            tokens.extend(s.tokens);
            fallback.push(s.fallback);
            accept.push(s.accept);
        }
        es.push(edges.len() as u32);
        rs.push(refs.len() as u32);
        ts.push(tokens.len() as u32);
        let acts = if fsm.acts.is_empty() { vec![vec![]] } else { fsm.acts };
        Unit {
            digest,
            name: name.to_owned(),
            local: false,
            tail: false,
            layout: Layout { counters: fsm.counters, keys },
            edge_start: es.into(),
            edges: edges.into(),
            ref_start: rs.into(),
            refs: refs.into(),
            token_start: ts.into(),
            tokens: tokens.into(),
            fallback: fallback.into(),
            accept: accept.into(),
            callees: fsm.callees.into(),
            args: fsm.args.into_iter().map(Into::into).collect(),
            acts: acts.into_iter().map(Into::into).collect(),
            loops: Loops::default(),
            aliases,
            openings,
            distinct,
            cache: MaskCache::default(),
        }
    }

    /// A request-local unit without registers, from flat parts. It has no digest: nobody looks it up.
    pub fn local(
        name: &str,
        (edge_start, edges): (Vec<u32>, Vec<Edge>),
        (ref_start, refs): (Vec<u32>, Vec<RefEdge>),
        accept: Vec<u16>,
        callees: Box<[Callee]>,
    ) -> Unit {
        let n = accept.len();
        Unit {
            digest: [0; 32],
            name: name.to_owned(),
            local: true,
            tail: false,
            layout: Layout::default(),
            edge_start: edge_start.into(),
            edges: edges.into(),
            ref_start: ref_start.into(),
            refs: refs.into(),
            token_start: vec![0; n + 1].into(),
            tokens: Box::default(),
            fallback: vec![NONE; n].into(),
            accept: accept.into(),
            callees,
            args: Box::default(),
            acts: Box::new([Box::default()]),
            loops: Loops::default(),
            aliases: Box::default(),
            openings: Box::default(),
            distinct: Box::default(),
            cache: MaskCache::default(),
        }
    }

    /// What arriving at a state is replaced by, if anything.
    #[inline]
    pub fn alias(&self, state: u32) -> Option<Alias> {
        if self.aliases.is_empty() {
            return None;
        }
        self.aliases.binary_search_by_key(&state, |a| a.0).ok().map(|i| self.aliases[i].1)
    }

    /// Whether the state is marked `distinct`.
    #[inline]
    pub fn is_marked(&self, state: u32) -> bool {
        !self.distinct.is_empty() && self.distinct.binary_search(&state).is_ok()
    }

    /// What stands in a state's place in the unit of an undeclared key's rest, if the state is before a key.
    pub fn opening(&self, state: u32) -> Option<Opening> {
        self.openings.binary_search_by_key(&state, |o| o.state).ok().map(|i| self.openings[i])
    }

    /// The state whose mask a state's differs from in little: an alias, or, before a key, the state itself, which stands for
    /// its opening.
    pub fn base_of(&self, state: u32) -> Option<u32> {
        if self.aliases.is_empty() || self.alias(state).is_some() {
            return None;
        }
        if self.opening(state).is_some() {
            return Some(state);
        }
        let in_key = |q: u32| self.alias(q).is_some_and(|a| a.begins_in_key());
        tails::base_of(state, self.fallback[state as usize], |q| self.own_edges(q), in_key)
    }

    /// Whether [`Unit::base_of`] can be `state`.
    pub fn is_base(&self, state: u32) -> bool {
        self.alias(state).is_some_and(|a| a.at == 0) || self.opening(state).is_some()
    }

    pub fn states(&self) -> usize {
        self.accept.len()
    }

    #[inline]
    pub fn own_edges(&self, state: u32) -> &[Edge] {
        let q = state as usize;
        &self.edges[self.edge_start[q] as usize..self.edge_start[q + 1] as usize]
    }

    #[inline]
    pub fn own_refs(&self, state: u32) -> &[RefEdge] {
        let q = state as usize;
        &self.refs[self.ref_start[q] as usize..self.ref_start[q + 1] as usize]
    }

    #[inline]
    pub fn own_tokens(&self, state: u32) -> &[TokenEdge] {
        let q = state as usize;
        &self.tokens[self.token_start[q] as usize..self.token_start[q + 1] as usize]
    }

    /// Whether the state has byte or token edges.
    #[inline]
    pub fn scans(&self, state: u32) -> bool {
        let q = state as usize;
        self.edge_start[q] != self.edge_start[q + 1]
            || self.fallback[q] != NONE
            || self.token_start[q] != self.token_start[q + 1]
    }

    #[inline]
    pub fn has_refs(&self, state: u32) -> bool {
        self.ref_start[state as usize] != self.ref_start[state as usize + 1]
    }

    /// The edges that byte `b` takes, and the widest range around `b` whose bytes take the very same edges.
    #[inline]
    pub fn lookup(&self, state: u32, b: u8) -> (u8, u8, SmallVec<[Edge; 2]>) {
        let (mut lo, mut hi) = (0u8, 255u8);
        let mut out = SmallVec::new();
        narrow(self.own_edges(state), b, &mut lo, &mut hi, &mut out);
        let fallback = self.fallback[state as usize];
        if out.is_empty() && fallback != NONE {
            narrow(self.own_edges(fallback), b, &mut lo, &mut hi, &mut out);
        }
        out.retain(|e: &mut Edge| e.target != DEAD);
        (lo, hi, out)
    }

    /// All ranges on which the state takes `edge`, one of its own or its fallback's, or its like, and nothing else.
    pub fn twins(&self, state: u32, edge: &Edge) -> SmallVec<[(u8, u8); 8]> {
        let own = self.own_edges(state);
        if own.len() == 1 && self.fallback[state as usize] == NONE {
            return SmallVec::from_slice(&[(edge.lo, edge.hi)]);
        }
        let same = |e: &&Edge| e.target == edge.target && e.act == edge.act;
        let mut ranges = SmallVec::new();
        if overlap(own) {
            // Some bytes take several edges: where another one counts, too, the step is another.
            let others: SmallVec<[Edge; 8]> = own.iter().filter(|e| !same(e)).copied().collect();
            own.iter().filter(same).for_each(|e| without(e, &others, &mut ranges));
        } else {
            ranges.extend(own.iter().filter(same).map(|e| (e.lo, e.hi)));
        }
        let fallback = self.fallback[state as usize];
        if fallback == NONE {
            return ranges;
        }
        let below = self.own_edges(fallback);
        if overlap(below) {
            let others = below.iter().filter(|e| !same(e));
            let mut others: SmallVec<[Edge; 8]> = others.chain(own).copied().collect();
            others.sort_unstable_by_key(|e| e.lo);
            below.iter().filter(same).for_each(|e| without(e, &others, &mut ranges));
        } else {
            below.iter().filter(same).for_each(|e| without(e, own, &mut ranges));
        }
        ranges
    }

    /// Bytes on which the state has an edge (whose act may still fail).
    pub fn live(&self, state: u32) -> ByteSet {
        let mut set = [0; 4];
        let mut own: ByteSet = [0; 4];
        for e in self.own_edges(state) {
            insert_range(&mut own, e.lo, e.hi);
            if e.target != DEAD {
                insert_range(&mut set, e.lo, e.hi);
            }
        }
        let fallback = self.fallback[state as usize];
        if fallback != NONE {
            let mut below: ByteSet = [0; 4];
            for e in self.own_edges(fallback).iter().filter(|e| e.target != DEAD) {
                insert_range(&mut below, e.lo, e.hi);
            }
            for w in 0..4 {
                set[w] |= below[w] & !own[w];
            }
        }
        set
    }

    /// Whether some reference is bound by who uses the unit.
    pub fn has_holes(&self) -> bool {
        self.callees.iter().any(|c| matches!(c, Callee::Hole(_)))
    }

    /// Whether the state accepts (its act may still fail).
    #[inline]
    pub fn accepts(&self, state: u32) -> bool {
        self.accept[state as usize] != REJECT
    }

    /// Bytes held, without entries.
    pub fn size(&self) -> usize {
        std::mem::size_of::<Unit>()
            + self.edges.len() * 8
            + self.refs.len() * 16
            + self.states() * 22
            + self.distinct.len() * 4
            + self.acts.iter().map(|a| 16 + a.len() * 12).sum::<usize>()
            + self.layout.keys.as_ref().map_or(0, |k| k.masks.iter().map(|m| 24 + m.len() * 4).sum::<usize>())
    }
}

#[inline]
fn narrow(edges: &[Edge], b: u8, lo: &mut u8, hi: &mut u8, out: &mut SmallVec<[Edge; 2]>) {
    for e in edges {
        if e.hi < b {
            *lo = (*lo).max(e.hi + 1);
        } else if e.lo > b {
            *hi = (*hi).min(e.lo - 1);
            break;
        } else {
            *lo = (*lo).max(e.lo);
            *hi = (*hi).min(e.hi);
            out.push(*e);
        }
    }
}

/// Whether some byte takes two of `edges`, which are sorted.
fn overlap(edges: &[Edge]) -> bool {
    edges.windows(2).any(|e| e[0].hi >= e[1].lo)
}

/// Adds the ranges of `edge` that none of `others` takes, which are sorted by their first bytes.
fn without(edge: &Edge, others: &[Edge], ranges: &mut SmallVec<[(u8, u8); 8]>) {
    let mut from = edge.lo as u16;
    for o in others.iter().filter(|o| o.hi >= edge.lo && o.lo <= edge.hi) {
        if (o.lo as u16) > from {
            ranges.push((from as u8, o.lo - 1));
        }
        from = from.max(o.hi as u16 + 1);
    }
    if from <= edge.hi as u16 {
        ranges.push((from as u8, edge.hi));
    }
}

/// Where a reference of a node leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Link {
    /// A node of the store, shared by all grammars.
    Store(u32),
    /// A node of this request.
    Local(u32),
}

/// A unit with its callees bound.
#[derive(Debug)]
pub struct Node {
    pub unit: Arc<Unit>,
    /// One for each of `unit.callees`, then one for each tail that the unit's aliases call.
    pub links: Box<[Link]>,
    /// What the unit's holes are bound to, by number of the hole: store nodes. Empty for request-local nodes.
    pub holes: Box<[u32]>,
    pub digest: Digest,
    /// Label of the left-recursive component (equal for its members), 0 if there is none.
    pub component: u32,
    /// Longest chain of leftmost references below; callers are higher than what they predict.
    pub height: u32,
    /// Its bytes, once somebody asked for them: what tools share is exported with every one of them.
    pub exported: OnceLock<Arc<[u8]>>,
}

impl Node {
    /// A request-local node: nothing names it but its request's program.
    pub fn local(unit: Arc<Unit>, links: Box<[Link]>, height: u32) -> Node {
        Node { unit, links, holes: Box::default(), digest: [0; 32], component: 0, height, exported: OnceLock::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_bytes() {
        for lo in 0..=255u8 {
            for hi in lo..=255 {
                let mut set = [0; 4];
                insert_range(&mut set, lo, hi);
                let right = (0..=255u8).all(|b| has_byte(&set, b) == (lo <= b && b <= hi));
                assert!(right, "{lo}..={hi}");
            }
        }
    }
}
