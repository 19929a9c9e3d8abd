//! A deterministic automaton that is made as far as it is looked at.
//!
//! Most questions about a pattern (does it match this name, does it meet that pattern) are answered by a few of its states,
//! and a pattern with bounded repeats has thousands. The subset construction of [`super::determinize`] makes a state when
//! one of its neighbours is expanded; here states are expanded when somebody asks for their edges.

use super::bytes::Bytes;
use super::determinize::Determinizer;
use super::nfa::Nfa;
use crate::error::Result;
use crate::fsm::{State, REJECT};
use crate::limits::Budget;

/// The automaton of an NFA without counters, references, tokens or fallbacks. State 0 is the start, which may accept.
pub struct Lazy<'a> {
    machine: Determinizer<'a>,
    expanded: Vec<bool>,
}

impl<'a> Lazy<'a> {
    pub fn new(nfa: Nfa, start: u32, budget: &'a Budget) -> Result<Self> {
        Ok(Lazy { machine: Determinizer::new(nfa, start, budget)?.0, expanded: vec![] })
    }

    /// A state with its edges: sorted, one for each byte at most, none of them blocked. Unlike in a minimal automaton some
    /// may lead where nothing is accepted.
    pub fn state(&mut self, s: u32) -> Result<&State> {
        let i = s as usize;
        if self.expanded.len() <= i {
            self.expanded.resize(self.machine.states().len(), false);
        }
        if !std::mem::replace(&mut self.expanded[i], true) {
            self.machine.expand(i)?;
        }
        Ok(&self.machine.states()[i])
    }

    /// All bytes that may occur in its strings.
    pub fn bytes(&self) -> Bytes {
        let mut bytes = Bytes::default();
        for e in self.machine.nfa().iter().flat_map(|s| &s.edges) {
            bytes.add(e.lo, e.hi);
        }
        bytes
    }

    /// Whether some string of nothing but `bytes` may be accepted.
    pub fn ends_within(&self, bytes: &Bytes) -> bool {
        let nfa = self.machine.nfa();
        let mut seen = vec![false; nfa.len()];
        let mut work = vec![self.machine.start()];
        while let Some(q) = work.pop() {
            if std::mem::replace(&mut seen[q as usize], true) {
                continue;
            }
            let state = &nfa[q as usize];
            if state.accept != REJECT {
                return true;
            }
            work.extend(state.epsilon.iter().map(|e| e.1));
            work.extend(state.edges.iter().filter(|e| bytes.meets(e.lo, e.hi)).map(|e| e.target));
        }
        false
    }
}
