//! Minimization and canonical numbering.
//!
//! States are equivalent if they accept alike and have the same edges to equivalent states, an edge being labelled by its
//! byte range and act, its reference, or its token; a fallback counts as one more labelled edge and is not expanded. Byte
//! ranges are compared after merging neighbours that lead to the same class, so it does not matter how they were split.
//!
//! First the states from which no cycle can be reached are classed bottom-up, each by one look-up of its *signature* (its
//! edges with classes for targets): all of a trie is. The others are refined as partitions are: one block to begin
//! with; a state whose successor got a new block is looked at again; and when a block falls apart its largest part keeps
//! the number, so a state's block changes at most log n times.
//!
//! Where registers make an automaton nondeterministic the same procedure computes bisimilarity, which is sound.

use rustc_hash::{FxHashMap, FxHasher};
use std::hash::Hasher;

use crate::fsm::{Edge, Fsm, RefEdge, State, TokenEdge, DEAD, NONE, PLAIN, REJECT};

/// Whether no string (and no sequence of references and tokens) is accepted.
pub fn is_empty(fsm: &Fsm) -> bool {
    !live(fsm).first().copied().unwrap_or(false)
}

/// The canonical form of `fsm`: without states that are unreachable or cannot reach acceptance, minimal, numbered
/// breadth-first from the start (which stays 0), with the tables of acts, callees and arguments sorted and free of unused
/// entries. If nothing is accepted, one state without edges.
pub fn minimize(mut fsm: Fsm) -> Fsm {
    let live = live(&fsm);
    if !live.first().copied().unwrap_or(false) {
        return Fsm {
            states: vec![State::default()],
            acts: vec![vec![]],
            counters: fsm.counters,
            keys: fsm.keys,
            ..Fsm::default()
        };
    }
    prune(&mut fsm, &live);
    sort_tables(&mut fsm);
    let classes = Classes::of(&fsm).run();
    renumber(fsm, &classes)
}

/// Which states can reach acceptance.
fn live(fsm: &Fsm) -> Vec<bool> {
    let n = fsm.states.len();
    let back = Backward::of(fsm);
    let mut live = vec![false; n];
    // Fallbacks that have a live byte edge, which is what is inherited.
    let mut heirs: Vec<Vec<u32>> = vec![];
    if fsm.states.iter().any(|s| s.fallback != NONE) {
        heirs.resize(n, vec![]);
        for (i, s) in fsm.states.iter().enumerate() {
            if let Some(h) = heirs.get_mut(s.fallback as usize) {
                h.push(i as u32);
            }
        }
    }
    let mut stack: Vec<u32> = vec![];
    for (i, s) in fsm.states.iter().enumerate() {
        if s.accept != REJECT {
            live[i] = true;
            stack.push(i as u32);
        }
    }
    while let Some(t) = stack.pop() {
        for &s in back.of_state(t) {
            let by_byte = || fsm.states[s as usize].edges.iter().any(|e| e.target == t);
            if !heirs.is_empty() && !heirs[s as usize].is_empty() && by_byte() {
                for h in std::mem::take(&mut heirs[s as usize]) {
                    if !std::mem::replace(&mut live[h as usize], true) {
                        stack.push(h);
                    }
                }
            }
            // A fallback is not a way out of a state by itself.
            let own = || {
                let state = &fsm.states[s as usize];
                by_byte() || state.refs.iter().any(|e| e.target == t) || state.tokens.iter().any(|e| e.target == t)
            };
            if !live[s as usize] && (fsm.states[s as usize].fallback != t || own()) {
                live[s as usize] = true;
                stack.push(s);
            }
        }
    }
    live
}

/// Removes edges into dead states, or turns them into blocks where a fallback would take over, and sorts byte edges.
fn prune(fsm: &mut Fsm, live: &[bool]) {
    let alive = |t: u32| live.get(t as usize).copied().unwrap_or(false);
    // A state whose byte edges are all dead has nothing to inherit.
    let inheritable: Vec<bool> = fsm.states.iter().map(|s| s.edges.iter().any(|e| alive(e.target))).collect();
    for s in &mut fsm.states {
        if s.fallback != NONE && !inheritable.get(s.fallback as usize).copied().unwrap_or(false) {
            s.fallback = NONE;
        }
        if s.fallback == NONE {
            s.edges.retain(|e| alive(e.target));
        } else {
            for e in &mut s.edges {
                if !alive(e.target) {
                    *e = Edge { act: PLAIN, target: DEAD, ..*e };
                }
            }
        }
        s.refs.retain(|e| alive(e.target));
        s.tokens.retain(|e| alive(e.target));
        if s.edges.windows(2).any(|w| w[0] > w[1]) {
            s.edges.sort_unstable();
        }
    }
}

/// Drops unused acts, callees and argument lists and sorts the rest, so that equal automata get equal tables.
fn sort_tables(fsm: &mut Fsm) {
    if fsm.acts.is_empty() {
        fsm.acts.push(vec![]);
    }
    if fsm.acts.len() > 1 {
        let mut used = vec![false; fsm.acts.len()];
        for s in &fsm.states {
            let acts = s.edges.iter().map(|e| e.act).chain(s.refs.iter().map(|e| e.act));
            for a in acts.chain(s.tokens.iter().map(|e| e.act)).chain([s.accept]) {
                if let Some(u) = used.get_mut(usize::from(a)) {
                    *u = true;
                }
            }
        }
        used[usize::from(PLAIN)] = true;
        let map = sort_table(&mut fsm.acts, &used);
        let new = |a: u16| map.get(usize::from(a)).map_or(a, |&m| m as u16);
        for s in &mut fsm.states {
            s.edges.iter_mut().for_each(|e| e.act = new(e.act));
            s.refs.iter_mut().for_each(|e| e.act = new(e.act));
            s.tokens.iter_mut().for_each(|e| e.act = new(e.act));
            s.accept = new(s.accept);
            s.edges.sort_unstable();
        }
    }
    if !fsm.callees.is_empty() || !fsm.args.is_empty() {
        let mut callees = vec![false; fsm.callees.len()];
        let mut args = vec![false; fsm.args.len()];
        for e in fsm.states.iter().flat_map(|s| &s.refs) {
            callees[e.callee as usize] = true;
            if e.args != NONE {
                args[e.args as usize] = true;
            }
        }
        let callee_map = sort_table(&mut fsm.callees, &callees);
        let args_map = sort_table(&mut fsm.args, &args);
        for e in fsm.states.iter_mut().flat_map(|s| &mut s.refs) {
            e.callee = callee_map[e.callee as usize];
            if e.args != NONE {
                e.args = args_map[e.args as usize];
            }
        }
    }
}

/// Keeps the used entries of a table in sorted order and returns where each old index went.
fn sort_table<T: Ord + Clone>(table: &mut Vec<T>, used: &[bool]) -> Vec<u32> {
    let mut order: Vec<u32> = (0..table.len() as u32).filter(|&i| used[i as usize]).collect();
    order.sort_by(|&a, &b| table[a as usize].cmp(&table[b as usize]));
    let mut map = vec![0; table.len()];
    let mut out: Vec<T> = Vec::with_capacity(order.len());
    for i in order {
        if out.last() != Some(&table[i as usize]) {
            out.push(table[i as usize].clone());
        }
        map[i as usize] = out.len() as u32 - 1;
    }
    *table = out;
    map
}

/// All successors of a state, its fallback included.
fn successors(s: &State) -> impl Iterator<Item = u32> + '_ {
    let edges = s.edges.iter().map(|e| e.target);
    let rest = s.refs.iter().map(|e| e.target).chain(s.tokens.iter().map(|e| e.target));
    edges.chain(rest).chain([s.fallback]).filter(|&t| t != NONE)
}

/// Predecessors by state, one for each edge.
struct Backward {
    offsets: Vec<u32>,
    sources: Vec<u32>,
}

impl Backward {
    fn of(fsm: &Fsm) -> Self {
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

    fn of_state(&self, t: u32) -> &[u32] {
        &self.sources[self.offsets[t as usize] as usize..self.offsets[t as usize + 1] as usize]
    }
}

/// The refinement under way.
struct Classes<'f> {
    fsm: &'f Fsm,
    back: Backward,
    /// The class of each state: below `acyclic` those found bottom-up, from there on blocks.
    class: Vec<u32>,
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
    fn of(fsm: &'f Fsm) -> Self {
        let n = fsm.states.len();
        Classes {
            fsm,
            back: Backward::of(fsm),
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

    fn run(mut self) -> Vec<u32> {
        self.bottom_up();
        self.refine();
        self.class
    }

    /// Appends the signature of `s` to `self.words`: what it does, with classes for targets.
    fn sign(&mut self, s: u32) {
        let state = &self.fsm.states[s as usize];
        let class = |t: u32| if t == NONE { NONE } else { self.class[t as usize] };
        let edges = &mut self.edges;
        edges.clear();
        let mut overlap = false;
        for e in &state.edges {
            let e = Edge { target: class(e.target), ..*e };
            match edges.last_mut() {
                Some(last) if joins(last, &e) => last.hi = e.hi,
                Some(last) => {
                    overlap |= last.hi >= e.lo;
                    edges.push(e);
                }
                None => edges.push(e),
            }
        }
        if overlap {
            merge_overlapping(edges);
        }
        let words = &mut self.words;
        words.push(u32::from(state.accept));
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

    /// Classes every state that reaches no cycle, successors first.
    fn bottom_up(&mut self) {
        let mut waiting: Vec<u32> = self.fsm.states.iter().map(|s| successors(s).count() as u32).collect();
        let mut ready: Vec<u32> = (0..waiting.len() as u32).filter(|&s| waiting[s as usize] == 0).collect();
        // Signatures by hash: class, where its words are, and the next class with the same hash.
        let mut by_hash: FxHashMap<u64, u32> = FxHashMap::default();
        let mut signed: Vec<(u32, u32, u32)> = vec![];
        while let Some(s) = ready.pop() {
            let from = self.words.len();
            self.sign(s);
            let head = by_hash.entry(hash(&self.words[from..])).or_insert(NONE);
            let mut at = *head;
            while let Some(&(lo, hi, next)) = signed.get(at as usize) {
                if self.words[lo as usize..hi as usize] == self.words[from..] {
                    break;
                }
                at = next;
            }
            if at == NONE {
                at = signed.len() as u32;
                signed.push((from as u32, self.words.len() as u32, *head));
                *head = at;
            } else {
                self.words.truncate(from);
            }
            self.class[s as usize] = at;
            for i in self.back.offsets[s as usize]..self.back.offsets[s as usize + 1] {
                let p = self.back.sources[i as usize];
                waiting[p as usize] -= 1;
                if waiting[p as usize] == 0 {
                    ready.push(p);
                }
            }
        }
        self.acyclic = signed.len() as u32;
    }

    /// Refines the states that reach a cycle.
    fn refine(&mut self) {
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
                self.sign(s);
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

fn joins(last: &Edge, e: &Edge) -> bool {
    last.act == e.act && last.target == e.target && u16::from(last.hi) + 1 == u16::from(e.lo)
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

/// One state for each class that is reachable from the start, breadth-first.
fn renumber(fsm: Fsm, class: &[u32]) -> Fsm {
    let classes = class.iter().max().map_or(0, |&c| c as usize + 1);
    let mut number = vec![NONE; classes];
    let mut order: Vec<u32> = vec![0];
    number[class[0] as usize] = 0;
    let mut states: Vec<State> = vec![];
    while let Some(&s) = order.get(states.len()) {
        let old = &fsm.states[s as usize];
        let mut edges: Vec<Edge> = Vec::with_capacity(old.edges.len());
        let mut visit = |t: u32| {
            if t == NONE {
                return NONE;
            }
            let n = &mut number[class[t as usize] as usize];
            if *n == NONE {
                *n = order.len() as u32;
                order.push(t);
            }
            *n
        };
        let mut overlap = false;
        for e in &old.edges {
            let e = Edge { target: visit(e.target), ..*e };
            match edges.last_mut() {
                Some(last) if joins(last, &e) => last.hi = e.hi,
                Some(last) => {
                    overlap |= last.hi >= e.lo;
                    edges.push(e);
                }
                None => edges.push(e),
            }
        }
        if overlap {
            merge_overlapping(&mut edges);
        }
        let mut refs = old.refs.clone();
        refs.sort_unstable();
        refs.iter_mut().for_each(|e| e.target = visit(e.target));
        refs.sort_unstable();
        refs.dedup();
        let mut tokens = old.tokens.clone();
        tokens.sort_unstable();
        tokens.iter_mut().for_each(|e| e.target = visit(e.target));
        tokens.sort_unstable();
        tokens.dedup();
        let fallback = visit(old.fallback);
        states.push(State { edges, refs, tokens, fallback, accept: old.accept });
    }
    Fsm { states, ..fsm }
}
