//! Equivalence classes of states.
//!
//! Most automata of lowered grammars have no cycles but loops of one state (whitespace, a counted class). Their states are
//! classed bottom-up, each by one look-up of its *signature* (its edges with classes for targets). Where larger cycles
//! remain, what has been found so far is merged and the rest refined as partitions are: one block to begin with; a state
//! whose successor got a new block is looked at again; and when a block falls apart its largest part keeps the number, so
//! a state's block changes at most log n times.

use rustc_hash::{FxHashMap, FxHasher};
use std::hash::Hasher;

use crate::fsm::{Edge, Fsm, RefEdge, State, TokenEdge, NONE};

/// All successors of a state, its fallback included.
pub(super) fn successors(s: &State) -> impl Iterator<Item = u32> + '_ {
    let edges = s.edges.iter().map(|e| e.target);
    let rest = s.refs.iter().map(|e| e.target).chain(s.tokens.iter().map(|e| e.target));
    edges.chain(rest).chain([s.fallback]).filter(|&t| t != NONE)
}

/// Predecessors by state, one for each edge.
pub(super) struct Backward {
    offsets: Vec<u32>,
    sources: Vec<u32>,
}

impl Backward {
    pub(super) fn of(fsm: &Fsm) -> Self {
        let n = fsm.states.len();
        let mut offsets = vec![0u32; n + 2];
        for s in &fsm.states {
            for t in successors(s) {
                offsets[t as usize + 2] += 1;
            }
        }
        for i in 2..n + 2 {
            offsets[i] += offsets[i - 1];
        }
        let mut sources = vec![0; offsets[n + 1] as usize];
        for (i, s) in fsm.states.iter().enumerate() {
            for t in successors(s) {
                let at = &mut offsets[t as usize + 1];
                sources[*at as usize] = i as u32;
                *at += 1;
            }
        }
        Backward { offsets, sources }
    }

    pub(super) fn of_state(&self, t: u32) -> &[u32] {
        &self.sources[self.offsets[t as usize] as usize..self.offsets[t as usize + 1] as usize]
    }
}

/// In a signature: the state that is signed.
const ITSELF: u32 = NONE - 1;

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

/// The refinement under way.
pub(super) struct Classes<'f> {
    fsm: &'f Fsm,
    back: Backward,
    /// The class of each state: below `acyclic` those found bottom-up, from there on blocks.
    pub(super) class: Vec<u32>,
    acyclic: u32,
    // Signatures, as words; scratch for one.
    words: Vec<u32>,
    edges: Vec<Edge>,
    // Blocks of the cyclic part: a permutation of its states, and for each block its segment and how many states at the
    // end of the segment are to be looked at again.
    order: Vec<u32>,
    place: Vec<u32>,
    blocks: Vec<(u32, u32, u32)>,
    queue: Vec<u32>,
}

impl<'f> Classes<'f> {
    pub(super) fn of(fsm: &'f Fsm, back: Backward) -> Self {
        let n = fsm.states.len();
        Classes {
            fsm,
            back,
            class: vec![NONE; n],
            acyclic: 0,
            words: vec![],
            edges: vec![],
            order: vec![],
            place: vec![0; n],
            blocks: vec![],
            queue: vec![],
        }
    }

    /// Appends the signature of `s` to `self.words`: what it does, with classes for targets. An edge of `s` to itself counts
    /// as one to class `own`.
    fn sign(&mut self, s: u32, own: u32) {
        let state = &self.fsm.states[s as usize];
        let class = |t: u32| match t {
            NONE => NONE,
            t if t == s => own,
            t => self.class[t as usize],
        };
        let edges = &mut self.edges;
        edges.clear();
        edges.extend(state.edges.iter().map(|e| Edge { target: class(e.target), ..*e }));
        merge(edges);
        let words = &mut self.words;
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

    /// Classes every state that reaches no cycle, successors first; with `loops`, edges of a state to itself are not
    /// counted as cycles. Returns whether those are all.
    pub(super) fn bottom_up(&mut self, loops: bool) -> bool {
        let n = self.fsm.states.len() as u32;
        let counted = |s: u32, t: u32| !loops || s != t;
        let mut waiting: Vec<u32> = (0..n)
            .map(|s| successors(&self.fsm.states[s as usize]).filter(|&t| counted(s, t)).count() as u32)
            .collect();
        let mut ready: Vec<u32> = (0..n).filter(|&s| waiting[s as usize] == 0).collect();
        let mut left = n;
        let mut table = Signatures::with_capacity(n as usize);
        self.words.reserve(6 * n as usize);
        // Which classes have a loop.
        let mut looping: Vec<bool> = vec![];
        while let Some(s) = ready.pop() {
            left -= 1;
            let looped = loops && successors(&self.fsm.states[s as usize]).any(|t| t == s);
            let from = self.words.len();
            self.sign(s, ITSELF);
            let hashed = hash(&self.words[from..]);
            let mut found = table.get(&self.words, from, hashed);
            if found.is_none() && looped {
                found = self.joins_successor(&table, &looping, s);
            }
            let class = found.unwrap_or(looping.len() as u32);
            if found.is_some() {
                self.words.truncate(from);
            } else {
                looping.push(looped);
                table.insert(from, self.words.len(), hashed, class);
                if looped {
                    // Once more with its class for itself, so that a state without a loop that does the same is found.
                    let from = self.words.len();
                    self.sign(s, class);
                    table.insert(from, self.words.len(), hash(&self.words[from..]), class);
                }
            }
            self.class[s as usize] = class;
            for i in self.back.offsets[s as usize]..self.back.offsets[s as usize + 1] {
                let p = self.back.sources[i as usize];
                if !counted(p, s) {
                    continue;
                }
                waiting[p as usize] -= 1;
                if waiting[p as usize] == 0 {
                    ready.push(p);
                }
            }
        }
        self.acyclic = looping.len() as u32;
        left == 0
    }

    /// Whether `s`, which has a loop, equals a looping state that it leads to: it does if taking it for that one gives
    /// that one's signature.
    fn joins_successor(&mut self, table: &Signatures, looping: &[bool], s: u32) -> Option<u32> {
        let fsm = self.fsm;
        let mut tried = NONE;
        for t in successors(&fsm.states[s as usize]) {
            let class = self.class[t as usize];
            if t == s || class == tried || !looping[class as usize] {
                continue;
            }
            let from = self.words.len();
            self.sign(s, class);
            let found = table.get(&self.words, from, hash(&self.words[from..]));
            self.words.truncate(from);
            if found == Some(class) {
                return found;
            }
            tried = class;
        }
        None
    }

    /// The automaton with the states of each class merged, and the number of each old state in it.
    pub(super) fn merged(&self) -> (Fsm, Vec<u32>) {
        let mut first = vec![NONE; self.acyclic as usize];
        let mut number = vec![NONE; self.class.len()];
        let mut kept = vec![];
        for (s, &class) in self.class.iter().enumerate() {
            let n = first.get_mut(class as usize);
            number[s] = match n {
                Some(n) if *n != NONE => *n,
                n => {
                    let new = kept.len() as u32;
                    if let Some(n) = n {
                        *n = new;
                    }
                    kept.push(s);
                    new
                }
            };
        }
        let new = |t: u32| number.get(t as usize).copied().unwrap_or(NONE);
        let states = kept.iter().map(|&s| {
            let mut state = self.fsm.states[s].clone();
            state.edges.iter_mut().for_each(|e| e.target = new(e.target));
            state.refs.iter_mut().for_each(|e| e.target = new(e.target));
            state.tokens.iter_mut().for_each(|e| e.target = new(e.target));
            state.fallback = new(state.fallback);
            state
        });
        (Fsm { states: states.collect(), ..Fsm::default() }, number)
    }

    /// Refines the states that reach a cycle.
    pub(super) fn refine(&mut self) {
        for s in 0..self.class.len() as u32 {
            if self.class[s as usize] == NONE {
                self.place[s as usize] = self.order.len() as u32;
                self.order.push(s);
                self.class[s as usize] = self.acyclic;
            }
        }
        let n = self.order.len() as u32;
        if n == 0 {
            return;
        }
        self.blocks.push((0, n, n));
        self.queue.push(0);
        let mut keys: Vec<(u64, u32, u32, u32)> = vec![];
        let mut parts: Vec<(u32, u32)> = vec![];
        let mut moved: Vec<u32> = vec![];
        while let Some(b) = self.queue.pop() {
            let (start, end, dirty) = self.blocks[b as usize];
            self.blocks[b as usize].2 = 0;
            // Sort the states to look at by signature. None of them can equal the others of the block, which have no
            // edge into any new block.
            self.words.clear();
            keys.clear();
            for i in end - dirty..end {
                let s = self.order[i as usize];
                let from = self.words.len();
                self.sign(s, self.class[s as usize]);
                keys.push((hash(&self.words[from..]), from as u32, self.words.len() as u32, s));
            }
            let words = &self.words;
            let text = |k: &(u64, u32, u32, u32)| &words[k.1 as usize..k.2 as usize];
            keys.sort_unstable_by(|a, b| a.0.cmp(&b.0).then_with(|| text(a).cmp(text(b))));
            parts.clear();
            if dirty < end - start {
                parts.push((start, end - dirty));
            }
            let mut at = end - dirty;
            for same in keys.chunk_by(|a, b| a.0 == b.0 && text(a) == text(b)) {
                let from = at;
                for k in same {
                    self.order[at as usize] = k.3;
                    self.place[k.3 as usize] = at;
                    at += 1;
                }
                parts.push((from, at));
            }
            if parts.len() == 1 {
                continue;
            }
            let largest = (0..parts.len()).max_by_key(|&i| parts[i].1 - parts[i].0).unwrap_or(0);
            moved.clear();
            for (i, &(from, to)) in parts.iter().enumerate() {
                if i == largest {
                    self.blocks[b as usize] = (from, to, 0);
                    continue;
                }
                let id = self.blocks.len() as u32;
                self.blocks.push((from, to, 0));
                for k in from..to {
                    let s = self.order[k as usize];
                    self.class[s as usize] = self.acyclic + id;
                    moved.push(s);
                }
            }
            for &s in &moved {
                for i in self.back.offsets[s as usize]..self.back.offsets[s as usize + 1] {
                    let p = self.back.sources[i as usize];
                    self.mark(p);
                }
            }
        }
    }

    /// Notes that `s` must be looked at again.
    fn mark(&mut self, s: u32) {
        let block = self.class[s as usize] - self.acyclic;
        let (_, end, dirty) = self.blocks[block as usize];
        let (at, boundary) = (self.place[s as usize], end - dirty);
        if at >= boundary {
            return;
        }
        let other = self.order[boundary as usize - 1];
        self.order.swap(at as usize, boundary as usize - 1);
        self.place[s as usize] = boundary - 1;
        self.place[other as usize] = at;
        self.blocks[block as usize].2 = dirty + 1;
        if dirty == 0 {
            self.queue.push(block);
        }
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

fn hash(words: &[u32]) -> u64 {
    let mut h = FxHasher::default();
    for &w in words {
        h.write_u32(w);
    }
    h.finish()
}
