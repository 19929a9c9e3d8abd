//! An automaton under construction, state by state and edge by edge.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::splice::Spelled;
use crate::automata::nfa::{Nfa, NfaState};
use crate::automata::utf8::Template;
use crate::automata::{determinize, minimize};
use crate::error::{CompileError, Result};
use crate::fsm::{Callee, Edge, Fsm, KeyRegister, Op, RefEdge, TokenEdge, DEAD, NONE, PLAIN, REJECT};
use crate::limits::Budget;

/// Most counters of one FSM.
const MAX_COUNTERS: u8 = 200;

/// A lowered rule: the FSM of its language without the empty string, and whether the empty string is in it.
#[derive(Clone, Debug)]
pub struct Lowered {
    pub fsm: Fsm,
    pub nullable: bool,
}

/// An automaton under construction.
///
/// States are made by [`state`](Self::state) and joined by byte, epsilon, reference and token edges, whose acts come from
/// [`act`](Self::act); [`expr`](Self::expr) puts a whole expression between two of them. See [`crate::automata::nfa`] for
/// the rules on epsilon edges.
pub struct Builder<'a> {
    pub(super) nfa: Nfa,
    pub(super) rule_nullable: &'a [bool],
    pub(super) budget: &'a Budget,
    /// First counter that expressions may use.
    pub(super) first_counter: u8,
    /// Unroll every repeat.
    pub(super) exact: bool,
    /// Inside an operand of `And` or `Sub`: references are errors.
    pub(super) operators: u32,
    callees: FxHashMap<Callee, u32>,
    args: FxHashMap<Vec<(u32, u32)>, u32>,
    pub(super) templates: FxHashMap<Spelled, Arc<Template>>,
}

impl<'a> Builder<'a> {
    pub fn new(rule_nullable: &'a [bool], budget: &'a Budget) -> Self {
        Builder {
            nfa: Nfa::default(),
            rule_nullable,
            budget,
            first_counter: 0,
            exact: false,
            operators: 0,
            callees: FxHashMap::default(),
            args: FxHashMap::default(),
            templates: FxHashMap::default(),
        }
    }

    /// Keeps counters `0..n` for the caller; expressions use those from `n` on. Call it before any expression is added.
    pub fn reserve_counters(&mut self, n: u8) -> Result<()> {
        self.first_counter = n;
        self.use_counters(n)
    }

    /// The key register of the finished FSM.
    pub fn set_keys(&mut self, keys: KeyRegister) {
        self.nfa.keys = Some(keys);
    }

    /// A new state without edges.
    pub fn state(&mut self) -> Result<u32> {
        self.budget.states(1)?;
        self.nfa.states.push(NfaState::default());
        Ok(self.nfa.states.len() as u32 - 1)
    }

    /// The id of an op list. `&[]` is [`PLAIN`].
    pub fn act(&mut self, ops: &[Op]) -> Result<u16> {
        self.nfa.acts.intern(ops)
    }

    /// Bytes `lo..=hi` lead from `from` to `to`.
    pub fn byte(&mut self, from: u32, lo: u8, hi: u8, act: u16, to: u32) {
        self.nfa.states[from as usize].edges.push(Edge { lo, hi, act, target: to });
    }

    /// A chain of states for a literal, which must not be empty; `act` runs on its first byte.
    pub fn literal(&mut self, from: u32, bytes: &[u8], act: u16, to: u32) -> Result<()> {
        let (mut at, mut act) = (from, act);
        for (i, &b) in bytes.iter().enumerate() {
            let next = if i + 1 == bytes.len() { to } else { self.state()? };
            self.byte(at, b, b, act, next);
            (at, act) = (next, PLAIN);
        }
        Ok(())
    }

    /// Bytes `lo..=hi` are blocked at `from`, which matters where its fallback would take them.
    pub fn block(&mut self, from: u32, lo: u8, hi: u8) {
        self.byte(from, lo, hi, PLAIN, DEAD);
    }

    /// `act` runs before whatever follows at `to`.
    pub fn epsilon(&mut self, from: u32, act: u16, to: u32) {
        if from != to || act != PLAIN {
            self.nfa.states[from as usize].epsilon.push((act, to));
        }
    }

    pub fn reference(&mut self, from: u32, callee: Callee, args: Option<&[(u32, u32)]>, act: u16, to: u32) {
        let next = self.nfa.callees.len() as u32;
        let callee = *self.callees.entry(callee).or_insert_with(|| {
            self.nfa.callees.push(callee);
            next
        });
        let args = match args {
            None => NONE,
            Some(a) => match self.args.get(a) {
                Some(&id) => id,
                None => {
                    let id = self.nfa.args.len() as u32;
                    self.nfa.args.push(a.to_vec());
                    self.args.insert(a.to_vec(), id);
                    id
                }
            },
        };
        self.nfa.states[from as usize].refs.push(RefEdge { callee, args, act, target: to });
    }

    pub fn token(&mut self, from: u32, token: u32, act: u16, to: u32) {
        self.nfa.states[from as usize].tokens.push(TokenEdge { token, act, target: to });
    }

    /// Bytes without an edge at `state` behave as at `fallback`, which must have no fallback itself.
    pub fn fallback(&mut self, state: u32, fallback: u32) {
        self.nfa.states[state as usize].fallback = fallback;
    }

    /// Marks a state `distinct` (see [`crate::fsm`]), and what follows it through epsilon edges.
    pub fn mark(&mut self, state: u32) {
        self.nfa.states[state as usize].distinct = true;
    }

    pub fn accept(&mut self, state: u32, act: u16) {
        self.nfa.states[state as usize].accept = act;
    }

    /// Makes the automaton deterministic and minimal.
    pub fn finish(self, start: u32) -> Result<Lowered> {
        let mut fsm = determinize(self.nfa, start, self.budget)?;
        let nullable = fsm.states[0].accept != REJECT;
        if nullable {
            split_start(&mut fsm);
        }
        Ok(Lowered { fsm: minimize(fsm), nullable })
    }

    /// Room for `n` new states; returns the first.
    pub(super) fn extend(&mut self, n: usize) -> Result<u32> {
        self.budget.states(n)?;
        let base = self.nfa.states.len();
        self.nfa.states.resize_with(base + n, NfaState::default);
        Ok(base as u32)
    }

    pub(super) fn use_counters(&mut self, n: u8) -> Result<()> {
        if n > MAX_COUNTERS {
            return Err(CompileError::limit(
                "depth",
                "the number of counted repeats inside one another",
                u64::from(MAX_COUNTERS),
            ));
        }
        self.nfa.counters = self.nfa.counters.max(n);
        Ok(())
    }
}

/// Makes the start state non-accepting: where edges lead back to it, they lead to a copy that still accepts.
pub(super) fn split_start(fsm: &mut Fsm) {
    let copy = fsm.states.len() as u32;
    let mut used = false;
    for s in &mut fsm.states {
        let targets = s
            .edges
            .iter_mut()
            .map(|e| &mut e.target)
            .chain(s.refs.iter_mut().map(|e| &mut e.target))
            .chain(s.tokens.iter_mut().map(|e| &mut e.target))
            .chain(std::iter::once(&mut s.fallback));
        for t in targets {
            if *t == 0 {
                *t = copy;
                used = true;
            }
        }
    }
    if used {
        let state = fsm.states[0].clone();
        fsm.states.push(state);
    }
    fsm.states[0].accept = REJECT;
}
