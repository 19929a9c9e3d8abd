//! Finished automata put between two states: characters, values of the IR that are automata, and lowered operators.
//!
//! Each begins at a copy of its start state's edges, so nothing that leads back to its start leads to the state before it.

use std::sync::Arc;

use super::{chars, Builder};
use crate::automata::product;
use crate::automata::utf8::{self, FINAL};
use crate::error::Result;
use crate::fsm::{Edge, Fsm, ANY_TOKEN, DEAD, PLAIN, REJECT};
use crate::ir::{Dfa, TokenRuns};

/// Code point ranges and how their members are spelled: 0 for UTF-8, 1 and 2 for JSON (2: free).
pub(super) type Spelled = (Vec<(u32, u32)>, u8);

impl Builder<'_> {
    /// One character in the given spelling (see [`Spelled`]).
    pub(super) fn chars(&mut self, ranges: &[(u32, u32)], spelling: u8, from: u32, to: u32) -> Result<()> {
        if spelling == 0 && ranges.iter().all(|r| r.1 < 0x80) {
            for &(lo, hi) in ranges {
                self.byte(from, lo as u8, hi as u8, PLAIN, to);
            }
            return Ok(());
        }
        let key = (ranges.to_vec(), spelling);
        let template = match self.templates.get(&key) {
            Some(t) => t.clone(),
            None => {
                let t = match spelling {
                    0 => Arc::new(utf8::template(ranges)),
                    _ => chars::template(ranges, spelling == 2),
                };
                self.templates.insert(key, t.clone());
                t
            }
        };
        let base = self.extend(template.states.len())?;
        let place = |t: u32| match t {
            FINAL => to,
            t if t == template.start => from,
            t => base + t,
        };
        for (i, edges) in template.states.iter().enumerate() {
            // A template is acyclic: nothing leads to its start, whose edges go to `from` itself.
            let at = place(i as u32) as usize;
            self.nfa.states[at].edges.extend(edges.iter().map(|&(lo, hi, t)| Edge {
                lo,
                hi,
                act: PLAIN,
                target: place(t),
            }));
        }
        Ok(())
    }

    /// Puts an automaton between two states, without the empty string.
    pub(super) fn splice_dfa(&mut self, dfa: &Dfa, from: u32, to: u32) -> Result<()> {
        let base = self.extend(dfa.states.len())?;
        for (i, s) in dfa.states.iter().enumerate() {
            let at = base as usize + i;
            let edges = s.edges.iter().filter(|e| (e.2 as usize) < dfa.states.len());
            let edges = edges.map(|&(lo, hi, t)| Edge { lo, hi, act: PLAIN, target: base + t });
            self.nfa.states[at].edges.extend(edges);
            if s.accept {
                self.epsilon(at as u32, PLAIN, to);
            }
        }
        if !dfa.states.is_empty() {
            let edges = self.nfa.states[base as usize].edges.clone();
            self.nfa.states[from as usize].edges.extend(edges);
        }
        Ok(())
    }

    /// Like [`Builder::splice_dfa`], over tokens. The way in has a state of its own, as in [`Expr::TokenExcept`].
    pub(super) fn token_runs(&mut self, runs: &TokenRuns, from: u32, to: u32) -> Result<()> {
        let n = runs.states.len() as u32;
        let base = self.extend(runs.states.len() + 1)?;
        self.epsilon(from, PLAIN, base + n);
        for (i, edges) in (0..).zip(&runs.states).chain(runs.states.first().map(|start| (n, start))) {
            for &(token, target) in edges {
                let target = if target < n { base + target } else { DEAD };
                self.token(base + i, token, PLAIN, target);
            }
            self.token(base + i, ANY_TOKEN, PLAIN, base);
            if i < n {
                self.epsilon(base + i, PLAIN, to);
            }
        }
        Ok(())
    }

    /// Puts a lowered operator (no references, no fallbacks, start not accepting) between two states. Its counters are
    /// renumbered to begin at `counter`.
    pub(super) fn splice(&mut self, fsm: &Fsm, counter: u8, from: u32, to: u32) -> Result<()> {
        self.use_counters(counter.saturating_add(fsm.counters))?;
        let mut acts = Vec::with_capacity(fsm.acts.len());
        for ops in &fsm.acts {
            acts.push(self.act(&product::shifted(ops, counter))?);
        }
        let act = |a: u16| acts.get(usize::from(a)).copied().unwrap_or(PLAIN);
        let base = self.extend(fsm.states.len())?;
        for (i, s) in fsm.states.iter().enumerate() {
            let at = base as usize + i;
            let edges = s.edges.iter().filter(|e| e.target != DEAD);
            let edges = edges.map(|e| Edge { act: act(e.act), target: base + e.target, ..*e });
            self.nfa.states[at].edges.extend(edges);
            if s.accept != REJECT {
                self.epsilon(at as u32, act(s.accept), to);
            }
        }
        if !fsm.states.is_empty() {
            let edges = self.nfa.states[base as usize].edges.clone();
            self.nfa.states[from as usize].edges.extend(edges);
        }
        Ok(())
    }
}
