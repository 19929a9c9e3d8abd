//! Equivalence classes of states.
//!
//! States are classed successors first, each by one look-up of its *signature* (what it does, with classes for targets).
//! Loops of one state (whitespace, a counted class) are part of its signature. A larger loop has a state that its own
//! successors lead back to, its head ([`Order::heads`]), which gets a class of its own beforehand. What this finds to be equal
//! is equal; it misses only what equals because a head equals another state. So it is the answer if none does, which
//! *shades* show most often: hashes of what a state does, of what its successors do, and so on for a few steps. Equal states
//! have the same shade, so a head whose shade nothing else has equals nothing else. Objects whose members come in any order
//! are loops of this kind. Where a head may have an equal, [`super::refine`] goes on from the shades.

use rustc_hash::{FxHashMap, FxHasher};
use smallvec::SmallVec;
use std::hash::Hasher;

use super::bytes::Bytes;
use super::order::Order;
use super::refine;
use crate::fsm::{Edge, Fsm, RefEdge, State, TokenEdge, NONE};

/// In a signature: the state that is signed.
const ITSELF: u32 = NONE - 1;
/// How many steps shades look ahead at most.
const STEPS: usize = 6;

/// All successors of a state, its fallback included.
pub(super) fn successors(s: &State) -> impl Iterator<Item = u32> + '_ {
    let edges = s.edges.iter().map(|e| e.target);
    let rest = s.refs.iter().map(|e| e.target).chain(s.tokens.iter().map(|e| e.target));
    edges.chain(rest).chain([s.fallback]).filter(|&t| t != NONE)
}

/// The class of each state, [`NONE`] of those that cannot be reached. Classes are numbered from 0 without gaps.
pub(super) fn equivalent(fsm: &Fsm, order: &Order) -> Vec<u32> {
    let mut classes = Classes::of(fsm, order);
    classes.bottom_up(order);
    if order.heads.is_empty() {
        return classes.class;
    }
    let kinds = Kinds::of(fsm, order, classes.class);
    if kinds.outlines_tell(&order.heads) {
        return kinds.kind;
    }
    let mut shades = Shades::of(&kinds);
    for _ in 0..STEPS {
        if shades.unique(order.heads.iter().map(|&h| kinds.of_state(h))) {
            return kinds.kind;
        }
        if !shades.step(&kinds) {
            break;
        }
    }
    let class = refine::refine(&kinds, &shades.shade);
    kinds.kind.iter().map(|&k| if k == NONE { NONE } else { class[k as usize] }).collect()
}

/// Signatures, as words. Scratch for one lies beside them.
#[derive(Default)]
pub(super) struct Words {
    pub(super) words: Vec<u32>,
    edges: Vec<Edge>,
}

impl Words {
    /// Appends what `state` does, with `class` of each target.
    pub(super) fn sign(&mut self, state: &State, class: impl Fn(u32) -> u32) {
        let class = |t: u32| if t == NONE { NONE } else { class(t) };
        let Words { words, edges } = self;
        edges.clear();
        edges.extend(state.edges.iter().map(|e| Edge { target: class(e.target), ..*e }));
        merge(edges);
        words.push(u32::from(state.accept) | u32::from(state.distinct) << 16);
        words.push(class(state.fallback));
        words.push(edges.len() as u32);
        for e in edges.iter() {
            words.push(u32::from(e.lo) << 24 | u32::from(e.hi) << 16 | u32::from(e.act));
            words.push(e.target);
        }
        if !state.refs.is_empty() {
            let mut refs: Vec<RefEdge> = state.refs.iter().map(|e| RefEdge { target: class(e.target), ..*e }).collect();
            refs.sort_unstable();
            refs.dedup();
            words.push(refs.len() as u32);
            words.extend(refs.iter().flat_map(|e| [e.callee, e.args, u32::from(e.act), e.target]));
        }
        if !state.tokens.is_empty() {
            let mut tokens: Vec<TokenEdge> =
                state.tokens.iter().map(|e| TokenEdge { target: class(e.target), ..*e }).collect();
            tokens.sort_unstable();
            tokens.dedup();
            // The mark keeps them apart from references.
            words.extend([NONE, tokens.len() as u32]);
            words.extend(tokens.iter().flat_map(|e| [e.token, u32::from(e.act), e.target]));
        }
    }
}

/// Classes by signature. The words of the signatures are kept elsewhere.
struct Signatures {
    /// The newest entry of each hash.
    heads: FxHashMap<u64, u32>,
    entries: Vec<Signature>,
}

struct Signature {
    words: std::ops::Range<u32>,
    class: u32,
    /// The entry before it with the same hash.
    next: u32,
}

impl Signatures {
    fn with_capacity(n: usize) -> Self {
        let heads = FxHashMap::with_capacity_and_hasher(n, rustc_hash::FxBuildHasher);
        Signatures { heads, entries: Vec::with_capacity(n) }
    }

    /// The class of the signature `words[from..]`, whose hash is `hash`.
    fn get(&self, words: &[u32], from: usize, hash: u64) -> Option<u32> {
        let mut at = *self.heads.get(&hash)?;
        while let Some(e) = self.entries.get(at as usize) {
            if words[e.words.start as usize..e.words.end as usize] == words[from..] {
                return Some(e.class);
            }
            at = e.next;
        }
        None
    }

    fn insert(&mut self, from: usize, to: usize, hash: u64, class: u32) {
        let id = self.entries.len() as u32;
        let next = self.heads.insert(hash, id).unwrap_or(NONE);
        self.entries.push(Signature { words: from as u32..to as u32, class, next });
    }
}

/// The pass over the states, successors first.
struct Classes<'f> {
    fsm: &'f Fsm,
    class: Vec<u32>,
    signatures: Words,
    table: Signatures,
    /// Which classes have a loop of one state.
    looping: Vec<bool>,
}

impl<'f> Classes<'f> {
    fn of(fsm: &'f Fsm, order: &Order) -> Self {
        let n = order.post.len();
        let mut signatures = Words::default();
        signatures.words.reserve(6 * n);
        let class = vec![NONE; fsm.states.len()];
        Classes { fsm, class, signatures, table: Signatures::with_capacity(n), looping: vec![] }
    }

    fn bottom_up(&mut self, order: &Order) {
        for (i, &head) in order.heads.iter().enumerate() {
            self.class[head as usize] = i as u32;
            self.looping.push(false);
        }
        let fsm = self.fsm;
        for &s in &order.post {
            let looped = successors(&fsm.states[s as usize]).any(|t| t == s);
            let given = Some(self.class[s as usize]).filter(|&c| c != NONE);
            let (from, hashed) = self.sign(s, ITSELF);
            let mut found = given;
            if found.is_none() {
                found = self.table.get(&self.signatures.words, from, hashed);
                if found.is_none() && looped {
                    found = self.joins_successor(s);
                }
                if let Some(class) = found {
                    self.signatures.words.truncate(from);
                    self.class[s as usize] = class;
                    continue;
                }
            }
            let class = given.unwrap_or(self.looping.len() as u32);
            match given {
                Some(class) => self.looping[class as usize] = looped,
                None => self.looping.push(looped),
            }
            self.class[s as usize] = class;
            self.table.insert(from, self.signatures.words.len(), hashed, class);
            if looped {
                // Once more with its class for itself, so that a state without a loop that does the same is found.
                let (from, hashed) = self.sign(s, class);
                self.table.insert(from, self.signatures.words.len(), hashed, class);
            }
        }
    }

    /// Appends the signature of `s`, whose edges to itself count as edges to class `own`: where it begins, and its hash.
    fn sign(&mut self, s: u32, own: u32) -> (usize, u64) {
        let from = self.signatures.words.len();
        let class = &self.class;
        self.signatures.sign(&self.fsm.states[s as usize], |t| if t == s { own } else { class[t as usize] });
        (from, hash(&self.signatures.words[from..]))
    }

    /// Whether `s`, which has a loop, equals a looping state that it leads to: it does if taking it for that one gives
    /// that one's signature.
    fn joins_successor(&mut self, s: u32) -> Option<u32> {
        let fsm = self.fsm;
        let mut tried = NONE;
        for t in successors(&fsm.states[s as usize]) {
            let class = self.class[t as usize];
            if t == s || class == tried || !self.looping[class as usize] {
                continue;
            }
            let (from, hashed) = self.sign(s, class);
            let found = self.table.get(&self.signatures.words, from, hashed);
            self.signatures.words.truncate(from);
            if found == Some(class) {
                return found;
            }
            tried = class;
        }
        None
    }
}

/// What the pass has left apart: an FSM whose states are its classes, each with a state that stands for it.
pub(super) struct Kinds<'f> {
    fsm: &'f Fsm,
    /// By state.
    kind: Vec<u32>,
    example: Vec<u32>,
}

impl<'f> Kinds<'f> {
    fn of(fsm: &'f Fsm, order: &Order, kind: Vec<u32>) -> Self {
        let mut example: Vec<u32> = vec![];
        for &s in &order.post {
            let k = kind[s as usize] as usize;
            if k >= example.len() {
                example.resize(k + 1, NONE);
            }
            example[k] = s;
        }
        Kinds { fsm, kind, example }
    }

    /// Whether what shows at a glance tells each of the heads from everything else.
    fn outlines_tell(&self, heads: &[u32]) -> bool {
        let mut looks: SmallVec<[u64; 8]> = heads.iter().map(|&h| outline(&self.fsm.states[h as usize])).collect();
        looks.sort_unstable();
        if looks.windows(2).any(|w| w[0] == w[1]) {
            return false;
        }
        let alike =
            self.example.iter().filter(|&&s| looks.binary_search(&outline(&self.fsm.states[s as usize])).is_ok());
        alike.count() == looks.len()
    }

    pub(super) fn len(&self) -> usize {
        self.example.len()
    }

    pub(super) fn state(&self, kind: u32) -> &State {
        &self.fsm.states[self.example[kind as usize] as usize]
    }

    pub(super) fn of_state(&self, state: u32) -> u32 {
        self.kind[state as usize]
    }
}

/// Something that equal states have in common, however their ranges are split.
fn outline(s: &State) -> u64 {
    let has = |yes: bool, bit: u32| u32::from(yes) << bit;
    // Which bytes lead on, and under which acts.
    let mut bytes = Bytes::default();
    let mut acts = 0u64;
    for e in &s.edges {
        bytes.add(e.lo, e.hi);
        acts |= 1 << (e.act % 64);
    }
    let rest =
        has(s.distinct, 16) | has(s.fallback != NONE, 17) | has(s.refs.is_empty(), 18) | has(s.tokens.is_empty(), 19);
    let mut h = FxHasher::default();
    h.write_u32(u32::from(s.accept) | rest);
    h.write_u64(acts);
    bytes.words().iter().for_each(|&w| h.write_u64(w));
    h.finish()
}

/// A hash for each kind of what it does within some steps.
struct Shades {
    shade: Vec<u32>,
    signatures: Words,
    distinct: usize,
}

impl Shades {
    fn of(kinds: &Kinds) -> Self {
        let mut shades = Shades { shade: vec![0; kinds.len()], signatures: Words::default(), distinct: 1 };
        shades.step(kinds);
        shades
    }

    /// One step more. Returns whether it told any kinds apart.
    fn step(&mut self, kinds: &Kinds) -> bool {
        let Shades { shade, signatures, .. } = self;
        let mut next = Vec::with_capacity(shade.len());
        for kind in 0..kinds.len() as u32 {
            signatures.words.clear();
            signatures.sign(kinds.state(kind), |t| shade[kinds.of_state(t) as usize]);
            // A new shade says what the old one said: two that differ stay apart.
            signatures.words.push(shade[kind as usize]);
            let h = hash(&signatures.words);
            next.push((h >> 32) as u32 ^ h as u32);
        }
        self.shade = next;
        let mut sorted = self.shade.clone();
        sorted.sort_unstable();
        sorted.dedup();
        let before = std::mem::replace(&mut self.distinct, sorted.len());
        self.distinct > before
    }

    /// Whether nothing else has the shade of any of the kinds.
    fn unique(&self, kinds: impl Iterator<Item = u32>) -> bool {
        let mut asked: SmallVec<[u32; 8]> = kinds.map(|k| self.shade[k as usize]).collect();
        asked.sort_unstable();
        asked.windows(2).all(|w| w[0] != w[1])
            && self.shade.iter().filter(|s| asked.binary_search(s).is_ok()).count() == asked.len()
    }
}

/// Joins neighbours with one act and target in a sorted list.
pub(super) fn merge(edges: &mut Vec<Edge>) {
    let (mut kept, mut overlap) = (0, false);
    for i in 1..edges.len() {
        let (last, e) = (edges[kept], edges[i]);
        if last.act == e.act && last.target == e.target && u16::from(last.hi) + 1 == u16::from(e.lo) {
            edges[kept].hi = e.hi;
        } else {
            overlap |= last.hi >= e.lo;
            kept += 1;
            edges[kept] = e;
        }
    }
    edges.truncate(kept + 1);
    if overlap {
        merge_overlapping(edges);
    }
}

/// The same for edges that overlap: for each act and target the union of its ranges.
fn merge_overlapping(edges: &mut Vec<Edge>) {
    edges.sort_unstable_by_key(|e| (e.act, e.target, e.lo, e.hi));
    let mut out: Vec<Edge> = Vec::with_capacity(edges.len());
    for &e in edges.iter() {
        match out.last_mut() {
            Some(last) if last.act == e.act && last.target == e.target && u16::from(last.hi) + 1 >= u16::from(e.lo) => {
                last.hi = last.hi.max(e.hi);
            }
            _ => out.push(e),
        }
    }
    out.sort_unstable();
    *edges = out;
}

pub(super) fn hash(words: &[u32]) -> u64 {
    let mut h = FxHasher::default();
    for &w in words {
        h.write_u32(w);
    }
    h.finish()
}
