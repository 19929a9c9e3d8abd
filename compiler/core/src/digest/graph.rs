//! References between rules, and their circles.

use crate::error::Result;
use crate::fsm::{Callee, NONE};
use crate::lower::grammar::LoweredRule;

/// Which rules each rule refers to, bindings of holes included.
pub(super) struct Graph {
    start: Vec<u32>,
    target: Vec<u32>,
}

impl Graph {
    pub(super) fn new(rules: &[LoweredRule]) -> Graph {
        let mut g = Graph { start: vec![0], target: vec![] };
        for r in rules {
            g.target.extend(r.fsm.callees.iter().filter_map(|c| match *c {
                Callee::Rule(t) => Some(t),
                Callee::Hole(_) => None,
            }));
            g.target.extend(&r.holes);
            g.start.push(g.target.len() as u32);
        }
        g
    }

    pub(super) fn targets(&self, r: u32) -> &[u32] {
        &self.target[self.start[r as usize] as usize..self.start[r as usize + 1] as usize]
    }

    /// Strongly connected components, each after those it refers to (Tarjan's algorithm, with a stack of its own since
    /// rules may be nested deep).
    pub(super) fn components(&self, mut found: impl FnMut(&[u32]) -> Result<()>) -> Result<()> {
        const DONE: u32 = u32::MAX - 1;
        let n = self.start.len() - 1;
        let mut index = vec![NONE; n];
        let mut low = vec![0u32; n];
        let mut next = 0u32;
        let mut open: Vec<u32> = Vec::new();
        let mut work: Vec<(u32, u32)> = Vec::new();
        for root in 0..n as u32 {
            if index[root as usize] != NONE {
                continue;
            }
            work.push((root, self.start[root as usize]));
            index[root as usize] = next;
            low[root as usize] = next;
            next += 1;
            open.push(root);
            while let Some(top) = work.last_mut() {
                let v = top.0 as usize;
                if top.1 < self.start[v + 1] {
                    let t = self.target[top.1 as usize] as usize;
                    top.1 += 1;
                    match index[t] {
                        NONE => {
                            index[t] = next;
                            low[t] = next;
                            next += 1;
                            open.push(t as u32);
                            work.push((t as u32, self.start[t]));
                        }
                        DONE => {}
                        i => low[v] = low[v].min(i),
                    }
                    continue;
                }
                work.pop();
                if let Some(&(parent, _)) = work.last() {
                    low[parent as usize] = low[parent as usize].min(low[v]);
                }
                if low[v] == index[v] {
                    let from = open.iter().rposition(|&o| o == v as u32).unwrap_or(0);
                    found(&open[from..])?;
                    open.drain(from..).for_each(|m| index[m as usize] = DONE);
                }
            }
        }
        Ok(())
    }
}
