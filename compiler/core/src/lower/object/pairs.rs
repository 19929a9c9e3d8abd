//! Declared names and undeclared keys read side by side.
//!
//! A *pair* is what a beginning of a key has reached: a node of the trie of names, and the state of the undeclared-key
//! automaton (or none, if no undeclared key begins like that). Where a key parts from the trie only the second is left.

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::names::{Names, FORBIDDEN};
use super::others::Others;
use crate::error::Result;
use crate::fsm::NONE;
use crate::limits::Budget;

pub(super) struct Pair {
    pub node: u32,
    /// State of the undeclared-key automaton, or [`NONE`].
    pub other: u32,
    /// Byte and pair.
    pub edges: SmallVec<[(u8, u32); 2]>,
    /// Some undeclared key parts from the names right here.
    pub parts: bool,
    /// Some undeclared key begins like this.
    pub open: bool,
    /// Number of the set of declared keys that begin like this.
    pub keys: u32,
}

/// All pairs that keys reach; pair 0 is the start.
pub(super) struct Pairs {
    pub pairs: Vec<Pair>,
    /// Sets of declared keys, sorted. Set 0 is empty.
    pub sets: Vec<Vec<u32>>,
}

impl Pairs {
    pub fn new(names: &Names, others: &Others, budget: &Budget) -> Result<Pairs> {
        let mut p = Pairs { pairs: Vec::with_capacity(names.nodes.len()), sets: vec![vec![]] };
        // Almost always a node occurs in one pair only.
        let mut first = vec![NONE; names.nodes.len()];
        let mut further: FxHashMap<(u32, u32), u32> = FxHashMap::default();
        p.push(0, if others.states.is_empty() { NONE } else { 0 });
        first[0] = 0;
        let mut stack: Vec<(u32, usize)> = vec![(0, 0)];
        while let Some(top) = stack.last_mut() {
            let at = top.0;
            let (node, other) = (p.pairs[at as usize].node, p.pairs[at as usize].other);
            let Some(&(byte, child)) = names.nodes[node as usize].edges.get(top.1) else {
                stack.pop();
                p.conclude(at, names, others, budget)?;
                continue;
            };
            top.1 += 1;
            let other = others.step(other, byte);
            let known = first[child as usize];
            let to =
                if known == NONE || p.pairs[known as usize].other != other && !further.contains_key(&(child, other)) {
                    budget.states(1)?;
                    let to = p.push(child, other);
                    if known == NONE {
                        first[child as usize] = to;
                    } else {
                        further.insert((child, other), to);
                    }
                    stack.push((to, 0));
                    to
                } else if p.pairs[known as usize].other == other {
                    known
                } else {
                    further[&(child, other)]
                };
            p.pairs[at as usize].edges.push((byte, to));
        }
        Ok(p)
    }

    fn push(&mut self, node: u32, other: u32) -> u32 {
        self.pairs.push(Pair { node, other, edges: SmallVec::new(), parts: false, open: false, keys: 0 });
        self.pairs.len() as u32 - 1
    }

    /// What is known of a pair once its children are done.
    fn conclude(&mut self, at: u32, names: &Names, others: &Others, budget: &Budget) -> Result<()> {
        let pair = &self.pairs[at as usize];
        let end = names.nodes[pair.node as usize].end;
        let parts = others.states.get(pair.other as usize).is_some_and(|o| {
            (!o.alternatives.is_empty() && end == NONE)
                || o.edges.iter().any(|&(lo, hi, _)| {
                    let own = pair.edges.iter().filter(|e| lo <= e.0 && e.0 <= hi).count();
                    own <= (hi - lo) as usize
                })
        });
        let open = parts || pair.edges.iter().any(|e| self.pairs[e.1 as usize].open);
        let own = if end == FORBIDDEN { NONE } else { end };
        let mut sets = pair.edges.iter().map(|e| self.pairs[e.1 as usize].keys).filter(|&s| s != 0);
        let keys = match (sets.next(), own) {
            (None, NONE) => 0,
            (Some(s), NONE) if sets.all(|t| t == s) => s,
            _ => {
                let mut set: Vec<u32> = (own != NONE).then_some(own).into_iter().collect();
                pair.edges.iter().for_each(|e| set.extend(&self.sets[self.pairs[e.1 as usize].keys as usize]));
                set.sort_unstable();
                set.dedup();
                budget.states(set.len() / 16)?;
                self.sets.push(set);
                self.sets.len() as u32 - 1
            }
        };
        let pair = &mut self.pairs[at as usize];
        (pair.parts, pair.open, pair.keys) = (parts, open, keys);
        Ok(())
    }

    pub fn same_keys(&self, a: u32, b: u32) -> bool {
        // One is a subset of the other wherever this is asked.
        a == b || self.sets[a as usize].len() == self.sets[b as usize].len()
    }
}
