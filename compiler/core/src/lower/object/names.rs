//! The trie of an object's declared names, over the bytes of their JSON spellings.

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::error::Result;
use crate::fsm::NONE;
use crate::ir::Dfa;
use crate::limits::Budget;
use crate::lower::{dfa, json_spelling};

/// `end` of a node that spells a forbidden name.
pub(super) const FORBIDDEN: u32 = u32::MAX - 1;

/// A deterministic, acyclic automaton; node 0 is its root. Text that needs no escape makes a plain trie; a character
/// with several spellings has several paths to one node.
pub(super) struct Names {
    pub nodes: Vec<Node>,
}

pub(super) struct Node {
    /// Sorted by byte.
    pub edges: SmallVec<[(u8, u32); 2]>,
    /// The name spelled here: its number, [`FORBIDDEN`], or [`NONE`].
    pub end: u32,
}

impl Names {
    /// The trie of `names`, which must be sorted by their bytes and distinct.
    pub fn new(names: &[(&str, u32)], budget: &Budget) -> Result<Names> {
        let mut trie = Names { nodes: vec![Node { edges: SmallVec::new(), end: NONE }] };
        // Children by characters with several spellings, in the order of the characters.
        let mut special: FxHashMap<u32, Vec<(char, u32)>> = FxHashMap::default();
        for &(name, number) in names {
            let mut at = 0u32;
            for c in name.chars() {
                // Since names are sorted, a child that exists is the last of its kind.
                at = if plain(c) {
                    match trie.nodes[at as usize].edges.last() {
                        Some(&(b, to)) if b == c as u8 => to,
                        _ => {
                            let to = trie.node(budget)?;
                            trie.nodes[at as usize].edges.push((c as u8, to));
                            to
                        }
                    }
                } else {
                    match special.get(&at).and_then(|v| v.last()) {
                        Some(&(d, to)) if d == c => to,
                        _ => {
                            let to = trie.node(budget)?;
                            special.entry(at).or_default().push((c, to));
                            to
                        }
                    }
                };
            }
            trie.nodes[at as usize].end = number;
        }
        if !special.is_empty() {
            trie.spell(special, budget)?;
        }
        Ok(trie)
    }

    fn node(&mut self, budget: &Budget) -> Result<u32> {
        budget.states(1)?;
        self.nodes.push(Node { edges: SmallVec::new(), end: NONE });
        Ok(self.nodes.len() as u32 - 1)
    }

    /// Replaces children by character with paths over bytes. The spellings of different characters are disjoint and none
    /// is the beginning of another, so the paths part before they end.
    fn spell(&mut self, special: FxHashMap<u32, Vec<(char, u32)>>, budget: &Budget) -> Result<()> {
        let mut spellings: FxHashMap<char, Dfa> = FxHashMap::default();
        let mut parents: Vec<(u32, Vec<(char, u32)>)> = special.into_iter().collect();
        parents.sort_unstable_by_key(|p| p.0);
        for (parent, children) in parents {
            for &(c, _) in &children {
                if let std::collections::hash_map::Entry::Vacant(e) = spellings.entry(c) {
                    e.insert(dfa(&json_spelling(c.encode_utf8(&mut [0; 4])), budget)?);
                }
            }
            // Subsets of (child, state of its spelling) that the same bytes reach.
            type Subset = Vec<(u32, u32)>;
            let start: Subset = (0..children.len() as u32).map(|i| (i, 0)).collect();
            let mut number: FxHashMap<Subset, u32> = FxHashMap::default();
            let mut work = vec![(start, parent)];
            while let Some((subset, node)) = work.pop() {
                let mut next: FxHashMap<u8, Subset> = FxHashMap::default();
                for &(child, state) in &subset {
                    for &(lo, hi, to) in &spellings[&children[child as usize].0].states[state as usize].edges {
                        (lo..=hi).for_each(|b| next.entry(b).or_default().push((child, to)));
                    }
                }
                let mut next: Vec<(u8, Subset)> = next.into_iter().collect();
                next.sort_unstable_by_key(|n| n.0);
                for (byte, subset) in next {
                    let ends = subset
                        .iter()
                        .find(|&&(child, s)| spellings[&children[child as usize].0].states[s as usize].accept);
                    let to = match (ends, number.get(&subset)) {
                        (Some(&(child, _)), _) => children[child as usize].1,
                        (None, Some(&to)) => to,
                        (None, None) => {
                            let to = self.node(budget)?;
                            number.insert(subset.clone(), to);
                            work.push((subset, to));
                            to
                        }
                    };
                    self.nodes[node as usize].edges.push((byte, to));
                }
                self.nodes[node as usize].edges.sort_unstable();
            }
        }
        Ok(())
    }
}

/// Characters whose only spelling inside a JSON string (without needless escapes) is their own byte.
fn plain(c: char) -> bool {
    matches!(c, ' '..='~') && !matches!(c, '"' | '\\' | '/')
}
