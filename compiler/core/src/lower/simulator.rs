//! Runs lowered grammars naively, for tests: a configuration is a whole call stack, a parse a set of configurations.
//! Left recursion would not end.

use std::collections::{BTreeSet, HashSet, VecDeque};

use super::grammar::{lower_grammar, LoweredGrammar};
use crate::automata::run::Registers;
use crate::fsm::{Callee, Edge, DEAD, NONE, REJECT};
use crate::ir::Grammar;
use crate::limits::{Budget, Limits};

/// Rule, state (below the top: where it goes on) and registers of each open call.
type Stack = Vec<(u32, u32, Registers)>;
pub(crate) type Set = BTreeSet<Stack>;

pub(crate) struct Simulator {
    pub grammar: LoweredGrammar,
}

impl Simulator {
    pub fn new(g: &Grammar) -> crate::Result<Simulator> {
        Ok(Simulator { grammar: lower_grammar(g, &Budget::new(Limits::default()))? })
    }

    pub fn start(&self) -> Set {
        let fsm = &self.grammar.rules[self.grammar.root as usize].fsm;
        self.close([vec![(self.grammar.root, 0, Registers::initial(fsm, &[]))]].into())
    }

    fn close(&self, set: Set) -> Set {
        let mut all = set.clone();
        let mut work: Vec<Stack> = set.into_iter().collect();
        while let Some(mut c) = work.pop() {
            let Some((rule, state, registers)) = c.last().cloned() else { continue };
            let lowered = &self.grammar.rules[rule as usize];
            let s = &lowered.fsm.states[state as usize];
            for r in &s.refs {
                let Some(after) = registers.run(&lowered.fsm, r.act) else { continue };
                let callee = match lowered.fsm.callees[r.callee as usize] {
                    Callee::Rule(i) => i,
                    Callee::Hole(h) => lowered.holes[h as usize],
                };
                let args = if r.args == NONE { &[][..] } else { &lowered.fsm.args[r.args as usize] };
                let mut called = c.clone();
                *called.last_mut().unwrap() = (rule, r.target, after);
                called.push((callee, 0, Registers::initial(&self.grammar.rules[callee as usize].fsm, args)));
                assert!(called.len() < 50, "left recursion");
                if all.insert(called.clone()) {
                    work.push(called);
                }
            }
            if s.accept != REJECT && c.len() > 1 && registers.run(&lowered.fsm, s.accept).is_some() {
                c.pop();
                if all.insert(c.clone()) {
                    work.push(c);
                }
            }
        }
        all
    }

    pub fn step(&self, set: &Set, byte: u8) -> Set {
        let mut next = Set::new();
        for c in set {
            let (rule, state, registers) = c.last().unwrap();
            let fsm = &self.grammar.rules[*rule as usize].fsm;
            let own = |s: u32| -> Vec<Edge> {
                fsm.states[s as usize].edges.iter().filter(|e| e.lo <= byte && byte <= e.hi).copied().collect()
            };
            let mut edges = own(*state);
            let fallback = fsm.states[*state as usize].fallback;
            if edges.is_empty() && fallback != NONE {
                edges = own(fallback);
            }
            for e in edges.iter().filter(|e| e.target != DEAD) {
                if let Some(r) = registers.run(fsm, e.act) {
                    let mut c = c.clone();
                    *c.last_mut().unwrap() = (*rule, e.target, r);
                    next.insert(c);
                }
            }
        }
        self.close(next)
    }

    pub fn complete(&self, set: &Set) -> bool {
        set.iter().any(|c| match &c[..] {
            [(rule, state, registers)] => {
                let fsm = &self.grammar.rules[*rule as usize].fsm;
                let accept = fsm.states[*state as usize].accept;
                accept != REJECT && registers.run(fsm, accept).is_some()
            }
            _ => false,
        })
    }

    pub fn accepts(&self, text: &[u8]) -> bool {
        let mut set = self.start();
        for &b in text {
            set = self.step(&set, b);
        }
        self.complete(&set) || text.is_empty() && self.grammar.root_nullable
    }

    /// One byte of each kind that the set tells apart.
    pub fn bytes(&self, set: &Set) -> Vec<u8> {
        let mut cuts = BTreeSet::new();
        for c in set {
            let (rule, state, _) = c.last().unwrap();
            let fsm = &self.grammar.rules[*rule as usize].fsm;
            let s = &fsm.states[*state as usize];
            let inherited = fsm.states.get(s.fallback as usize).map_or(&[][..], |f| &f.edges);
            for e in s.edges.iter().chain(inherited) {
                cuts.insert(e.lo);
                cuts.insert(e.hi);
                cuts.extend(e.hi.checked_add(1));
            }
        }
        cuts.into_iter().filter(|&b| !self.step(set, b).is_empty()).collect()
    }

    /// A shortest way to complete from a set, if one is found among the first `most` sets.
    pub fn completion(&self, set: &Set, most: usize) -> Option<Vec<u8>> {
        let mut seen: HashSet<Set> = HashSet::new();
        let mut queue: VecDeque<(Set, Vec<u8>)> = [(set.clone(), vec![])].into();
        while let Some((set, way)) = queue.pop_front() {
            if self.complete(&set) {
                return Some(way);
            }
            if seen.len() > most {
                return None;
            }
            for b in self.bytes(&set) {
                let next = self.step(&set, b);
                if seen.insert(next.clone()) {
                    queue.push_back((next, [way.as_slice(), &[b]].concat()));
                }
            }
        }
        None
    }

    /// Walks from the start along bytes that `choose` picks; returns the text whose end cannot be completed, if there is
    /// one. Each configuration is tried alone, so that no other one hides it.
    pub fn dead_end(&self, steps: usize, mut choose: impl FnMut(usize) -> usize) -> Option<Vec<u8>> {
        let mut set = self.start();
        let mut text = vec![];
        for _ in 0..steps {
            let bytes = self.bytes(&set);
            if bytes.is_empty() {
                break;
            }
            let b = bytes[choose(bytes.len()) % bytes.len()];
            text.push(b);
            set = self.step(&set, b);
            for c in &set {
                // A caller whose callee has just begun or ended again is tried with it.
                if self.completion(&self.close([c.clone()].into()), 4_000).is_none() && !self.passing(c) {
                    return Some(text);
                }
            }
        }
        None
    }

    /// A configuration that only stands for what its closure added.
    fn passing(&self, c: &Stack) -> bool {
        let (rule, state, _) = c.last().unwrap();
        let s = &self.grammar.rules[*rule as usize].fsm.states[*state as usize];
        s.edges.is_empty() && s.fallback == NONE
    }
}
