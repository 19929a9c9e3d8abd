//! The patterns of a dispatch: Aho and Corasick's trie, closed over outputs.
//!
//! What ends at a node includes what ends at the nodes that its suffixes reach, so a pattern that lies inside another is
//! found. Of several, a stop string counts before an excluded string and that before a trigger.

use smallvec::SmallVec;

use super::characters::next_middle;
use crate::error::{CompileError, Result};
use crate::fsm::NONE;
use crate::ir::{pattern_symbols, DispatchRule};
use crate::limits::Budget;

/// What a node's text ends with.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Ends {
    Nothing,
    Excluded,
    /// The length of the longest stop string.
    Stop(u32),
    Trigger(u32),
}

pub(super) struct Node {
    /// Sorted by symbol.
    pub children: SmallVec<[(u64, u32); 2]>,
    /// The longest proper suffix of the node's text that is a node.
    pub suffix: u32,
    pub depth: u32,
    /// The character begun here: [`NONE`] at the end of one, else an index into [`MIDDLE`].
    pub middle: u32,
    pub ends: Ends,
    /// A stop string goes through here.
    pub to_stop: bool,
}

pub(super) struct Trie {
    pub nodes: Vec<Node>,
    /// Symbols of each trigger.
    pub lengths: Vec<u32>,
}

impl Trie {
    pub fn new(rule: &DispatchRule, budget: &Budget) -> Result<Trie> {
        let root =
            Node { children: SmallVec::new(), suffix: 0, depth: 0, middle: NONE, ends: Ends::Nothing, to_stop: false };
        let mut trie = Trie { nodes: vec![root], lengths: vec![] };
        for (i, t) in rule.triggers.iter().enumerate() {
            let at = trie.insert(t, budget)?;
            let length = trie.nodes[at as usize].depth;
            trie.lengths.push(length);
            match trie.nodes[at as usize].ends {
                Ends::Trigger(_) => {
                    let t = String::from_utf8_lossy(t);
                    return Err(CompileError::invalid("", format!("the trigger {t:?} stands twice")));
                }
                _ => trie.nodes[at as usize].ends = Ends::Trigger(i as u32),
            }
        }
        let ends_early = rule.stop_after_last && rule.max_tags == Some(1) && rule.min_tags > 0;
        for stop in &rule.stops {
            let at = trie.insert(stop, budget)?;
            if ends_early {
                trie.nodes[at as usize].ends = Ends::Excluded;
                continue;
            }
            trie.nodes[at as usize].ends = Ends::Stop(trie.nodes[at as usize].depth);
            let mut at = 0;
            for b in pattern_symbols(stop).unwrap_or_default() {
                at = trie.child(at, b).unwrap_or(0);
                trie.nodes[at as usize].to_stop = true;
            }
        }
        for text in &rule.excludes {
            let at = trie.insert(text, budget)?;
            let ends = &mut trie.nodes[at as usize].ends;
            if !matches!(ends, Ends::Stop(_)) {
                *ends = Ends::Excluded;
            }
        }
        trie.link();
        Ok(trie)
    }

    fn insert(&mut self, text: &[u8], budget: &Budget) -> Result<u32> {
        let mut at = 0u32;
        for b in pattern_symbols(text).unwrap_or_default() {
            at = match self.nodes[at as usize].children.binary_search_by_key(&b, |c| c.0) {
                Ok(i) => self.nodes[at as usize].children[i].1,
                Err(i) => {
                    budget.states(1)?;
                    let to = self.nodes.len() as u32;
                    let from = &self.nodes[at as usize];
                    let (depth, middle) = (from.depth + 1, next_middle(from.middle, b));
                    let ends = Ends::Nothing;
                    self.nodes.push(Node { children: SmallVec::new(), suffix: 0, depth, middle, ends, to_stop: false });
                    self.nodes[at as usize].children.insert(i, (b, to));
                    to
                }
            };
        }
        Ok(at)
    }

    /// Suffix links, and what ends at each node by way of them, breadth-first.
    fn link(&mut self) {
        let mut queue = vec![0u32];
        let mut next = 0;
        while let Some(&at) = queue.get(next) {
            next += 1;
            for (b, child) in self.nodes[at as usize].children.clone() {
                queue.push(child);
                let mut suffix = 0;
                if at != 0 {
                    let mut s = self.nodes[at as usize].suffix;
                    suffix = loop {
                        if let Some(to) = self.child(s, b) {
                            break to;
                        }
                        if s == 0 {
                            break 0;
                        }
                        s = self.nodes[s as usize].suffix;
                    };
                }
                let below = self.nodes[suffix as usize].ends;
                let node = &mut self.nodes[child as usize];
                node.suffix = suffix;
                // Stop before excluded before trigger; of stops and triggers the longer, which is the node's own.
                node.ends = match (node.ends, below) {
                    (Ends::Stop(n), _) | (_, Ends::Stop(n)) => Ends::Stop(n),
                    (Ends::Excluded, _) | (_, Ends::Excluded) => Ends::Excluded,
                    (Ends::Trigger(t), _) => Ends::Trigger(t),
                    (Ends::Nothing, below) => below,
                };
            }
        }
    }

    fn child(&self, at: u32, symbol: u64) -> Option<u32> {
        let children = &self.nodes[at as usize].children;
        children.binary_search_by_key(&symbol, |c| c.0).ok().map(|i| children[i].1)
    }

    /// Where bytes lead that continue a pattern under way at `at` of which at least `least` bytes are read; with `stop`,
    /// a stop string.
    pub fn continuations(&self, at: u32, least: u32, stop: bool) -> Vec<(u64, u32)> {
        let mut found: Vec<(u64, u32)> = Vec::new();
        let mut s = at;
        while s != 0 && self.nodes[s as usize].depth >= least {
            let children = self.nodes[s as usize].children.iter();
            found.extend(children.filter(|c| !stop || self.nodes[c.1 as usize].to_stop));
            s = self.nodes[s as usize].suffix;
        }
        // The sort keeps the longest pattern first.
        found.sort_by_key(|f| f.0);
        found.dedup_by_key(|f| f.0);
        found
    }
}
