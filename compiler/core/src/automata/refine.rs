//! Refinement of partitions.
//!
//! Blocks of states that may be equal fall apart until the states of each have the same signature (what a state does, with
//! blocks for targets). A state whose successor got a new block is looked at again; and when a block falls apart, its largest
//! part keeps the number, so a state's block changes at most log n times (Hopcroft, "An n log n algorithm for minimizing
//! states in a finite automaton", 1971; Paige and Tarjan, 1987).

use super::classes::{hash, successors, Kinds, Words};

/// Predecessors by kind, one for each edge.
struct Backward {
    offsets: Vec<u32>,
    sources: Vec<u32>,
}

impl Backward {
    fn of(kinds: &Kinds) -> Self {
        let n = kinds.len();
        let to = |k: u32| successors(kinds.state(k)).map(|t| kinds.of_state(t) as usize);
        let mut offsets = vec![0u32; n + 2];
        for k in 0..n as u32 {
            to(k).for_each(|t| offsets[t + 2] += 1);
        }
        for i in 2..n + 2 {
            offsets[i] += offsets[i - 1];
        }
        let mut sources = vec![0; offsets[n + 1] as usize];
        for k in 0..n as u32 {
            for t in to(k) {
                let at = &mut offsets[t + 1];
                sources[*at as usize] = k;
                *at += 1;
            }
        }
        Backward { offsets, sources }
    }

    fn of_kind(&self, k: u32) -> &[u32] {
        &self.sources[self.offsets[k as usize] as usize..self.offsets[k as usize + 1] as usize]
    }
}

/// The coarsest partition that is finer than the one by `shade`: the block of each kind.
pub(super) fn refine(kinds: &Kinds, shade: &[u32]) -> Vec<u32> {
    let mut partition = Partition::by(shade);
    let back = Backward::of(kinds);
    let mut signatures = Words::default();
    let mut keys: Vec<(u64, u32, u32, u32)> = vec![];
    let mut parts: Vec<(u32, u32)> = vec![];
    let mut moved: Vec<u32> = vec![];
    while let Some(b) = partition.queue.pop() {
        let (start, end, dirty) = partition.blocks[b as usize];
        partition.blocks[b as usize].2 = 0;
        // Sort the kinds to look at by signature. None of them can equal the others of the block, which have no edge into
        // any new block.
        signatures.words.clear();
        keys.clear();
        for i in end - dirty..end {
            let k = partition.order[i as usize];
            let from = signatures.words.len();
            signatures.sign(kinds.state(k), |t| partition.block[kinds.of_state(t) as usize]);
            keys.push((hash(&signatures.words[from..]), from as u32, signatures.words.len() as u32, k));
        }
        let words = &signatures.words;
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
                partition.put(k.3, at);
                at += 1;
            }
            parts.push((from, at));
        }
        moved.clear();
        partition.split(b, &parts, &mut moved);
        for &k in &moved {
            back.of_kind(k).iter().for_each(|&p| partition.mark(p));
        }
    }
    partition.block
}

/// A permutation of the kinds, of which each block is a segment.
struct Partition {
    order: Vec<u32>,
    place: Vec<u32>,
    /// By kind.
    block: Vec<u32>,
    /// From, to, and how many at the end of the segment are to be looked at.
    blocks: Vec<(u32, u32, u32)>,
    /// Blocks with any to be looked at.
    queue: Vec<u32>,
}

impl Partition {
    /// One block for each shade, all of which are to be looked at.
    fn by(shade: &[u32]) -> Self {
        let n = shade.len();
        let mut order: Vec<u32> = (0..n as u32).collect();
        order.sort_unstable_by_key(|&k| shade[k as usize]);
        let mut p = Partition { order, place: vec![0; n], block: vec![0; n], blocks: vec![], queue: vec![] };
        let mut at = 0;
        for same in p.order.chunk_by(|&a, &b| shade[a as usize] == shade[b as usize]) {
            let (id, len) = (p.blocks.len() as u32, same.len() as u32);
            for (i, &k) in same.iter().enumerate() {
                p.place[k as usize] = at + i as u32;
                p.block[k as usize] = id;
            }
            p.blocks.push((at, at + len, len));
            p.queue.push(id);
            at += len;
        }
        p
    }

    fn put(&mut self, kind: u32, at: u32) {
        self.order[at as usize] = kind;
        self.place[kind as usize] = at;
    }

    /// Makes the segments blocks of their own, but for the largest, which remains block `b`. Those that moved are noted.
    fn split(&mut self, b: u32, parts: &[(u32, u32)], moved: &mut Vec<u32>) {
        let largest = (0..parts.len()).max_by_key(|&i| parts[i].1 - parts[i].0);
        for (i, &(from, to)) in parts.iter().enumerate() {
            if Some(i) == largest {
                self.blocks[b as usize] = (from, to, 0);
                continue;
            }
            let id = self.blocks.len() as u32;
            self.blocks.push((from, to, 0));
            for at in from..to {
                let k = self.order[at as usize];
                self.block[k as usize] = id;
                moved.push(k);
            }
        }
    }

    /// Notes that `k` must be looked at again.
    fn mark(&mut self, k: u32) {
        let block = self.block[k as usize];
        let (_, end, dirty) = self.blocks[block as usize];
        let (at, boundary) = (self.place[k as usize], end - dirty);
        if at >= boundary {
            return;
        }
        let other = self.order[boundary as usize - 1];
        self.put(k, boundary - 1);
        self.put(other, at);
        self.blocks[block as usize].2 = dirty + 1;
        if dirty == 0 {
            self.queue.push(block);
        }
    }
}
