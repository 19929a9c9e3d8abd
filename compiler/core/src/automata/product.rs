//! Products of FSMs: intersection of two with counters, and a difference.
//!
//! A pair of states carries the registers of both sides, those of the second numbered after those of the first. Where a
//! side has several edges on one byte (different acts), every combination is an edge. Operands have neither references nor
//! fallbacks: lowering sees to that.

use rustc_hash::FxHashMap;

use super::acts::Acts;
use crate::error::{CompileError, Result};
use crate::fsm::{Edge, Fsm, Op, State, DEAD, NONE, NO_COUNTER, PLAIN, REJECT};
use crate::ir::Dfa;
use crate::limits::Budget;

/// The same ops on counters `by` higher.
pub fn shifted(ops: &[Op], by: u8) -> Vec<Op> {
    let up = |r: u8| if r == NO_COUNTER { r } else { r.saturating_add(by) };
    ops.iter()
        .map(|&op| match op {
            Op::Load { r, min, max } => Op::Load { r: up(r), min, max },
            Op::Tick { r } => Op::Tick { r: up(r) },
            Op::Exit { r } => Op::Exit { r: up(r) },
            Op::Room { r } => Op::Room { r: up(r) },
            Op::Spare { r } => Op::Spare { r: up(r) },
            Op::Viable { r, mask, other } => Op::Viable { r: up(r), mask, other },
            other => other,
        })
        .collect()
}

/// Strings that both accept.
pub fn intersect(a: &Fsm, b: &Fsm, budget: &Budget) -> Result<Fsm> {
    let counters = a
        .counters
        .checked_add(b.counters)
        .filter(|&c| c <= 200)
        .ok_or_else(|| CompileError::limit("depth", "the number of counters of an intersection", 200))?;
    let mut pairs = Pairs::new(a, Side::Fsm(b), budget)?;
    pairs.run(0)?;
    Ok(pairs.finish(counters))
}

/// Strings of `a` that are not strings of `b`.
pub fn subtract(a: &Fsm, b: &Dfa, budget: &Budget) -> Result<Fsm> {
    let mut pairs = Pairs::new(a, Side::Not(b), budget)?;
    pairs.run(if b.states.is_empty() { NONE } else { 0 })?;
    Ok(pairs.finish(a.counters))
}

/// The second operand.
enum Side<'a> {
    Fsm(&'a Fsm),
    /// The complement. State [`NONE`] is where `b` has failed for good.
    Not(&'a Dfa),
}

struct Pairs<'a> {
    a: &'a Fsm,
    b: Side<'a>,
    budget: &'a Budget,
    acts: Acts,
    /// Acts of the operands in the table of the product.
    a_acts: Vec<u16>,
    b_acts: Vec<u16>,
    ids: FxHashMap<(u32, u32), u32>,
    pairs: Vec<(u32, u32)>,
    states: Vec<State>,
}

impl<'a> Pairs<'a> {
    fn new(a: &'a Fsm, b: Side<'a>, budget: &'a Budget) -> Result<Self> {
        let mut acts = Acts::default();
        let a_acts = a.acts.iter().map(|ops| acts.intern(ops)).collect::<Result<Vec<_>>>()?;
        let b_acts = match &b {
            Side::Fsm(b) => {
                b.acts.iter().map(|ops| acts.intern(&shifted(ops, a.counters))).collect::<Result<Vec<_>>>()?
            }
            Side::Not(_) => vec![],
        };
        let (ids, pairs, states) = (FxHashMap::default(), vec![], vec![]);
        Ok(Pairs { a, b, budget, acts, a_acts, b_acts, ids, pairs, states })
    }

    fn id(&mut self, p: u32, q: u32) -> Result<u32> {
        if let Some(&id) = self.ids.get(&(p, q)) {
            return Ok(id);
        }
        self.budget.states(1)?;
        let id = self.pairs.len() as u32;
        self.ids.insert((p, q), id);
        self.pairs.push((p, q));
        Ok(id)
    }

    fn run(&mut self, b_start: u32) -> Result<()> {
        if self.a.states.is_empty() {
            self.states.push(State::default());
            return Ok(());
        }
        self.id(0, b_start)?;
        let mut other: Vec<Edge> = vec![];
        while let Some(&(p, q)) = self.pairs.get(self.states.len()) {
            let state = &self.a.states[p as usize];
            let accept = self.edges_of(q, &mut other);
            let accept = match (state.accept, accept) {
                (REJECT, _) | (_, REJECT) => REJECT,
                (x, y) => self.acts.compose(self.a_acts[usize::from(x)], y)?,
            };
            let mut edges = vec![];
            for e in &state.edges {
                if e.target == DEAD {
                    continue;
                }
                for f in &other {
                    let (lo, hi) = (e.lo.max(f.lo), e.hi.min(f.hi));
                    if lo > hi {
                        continue;
                    }
                    let act = self.acts.compose(self.a_acts[usize::from(e.act)], f.act)?;
                    edges.push(Edge { lo, hi, act, target: self.id(e.target, f.target)? });
                }
            }
            edges.sort_unstable();
            self.states.push(State { edges, accept, ..State::default() });
        }
        Ok(())
    }

    /// The edges of the second side's state `q`, with acts of the product's table, and its accept act.
    fn edges_of(&self, q: u32, out: &mut Vec<Edge>) -> u16 {
        out.clear();
        match &self.b {
            Side::Fsm(b) => {
                let Some(state) = b.states.get(q as usize) else { return REJECT };
                let edges = state.edges.iter().filter(|e| e.target != DEAD);
                out.extend(edges.map(|e| Edge { act: self.b_acts[usize::from(e.act)], ..*e }));
                self.b_acts.get(usize::from(state.accept)).copied().unwrap_or(REJECT)
            }
            Side::Not(b) => {
                let mut next = 0u16;
                let state = b.states.get(q as usize);
                for &(lo, hi, target) in state.map_or(&[][..], |s| &s.edges) {
                    if next < u16::from(lo) {
                        out.push(Edge { lo: next as u8, hi: lo - 1, act: PLAIN, target: NONE });
                    }
                    out.push(Edge { lo, hi, act: PLAIN, target });
                    next = u16::from(hi) + 1;
                }
                if next <= 0xff {
                    out.push(Edge { lo: next as u8, hi: 0xff, act: PLAIN, target: NONE });
                }
                if state.is_some_and(|s| s.accept) {
                    REJECT
                } else {
                    PLAIN
                }
            }
        }
    }

    fn finish(self, counters: u8) -> Fsm {
        Fsm { states: self.states, acts: self.acts.into_list(), counters, ..Fsm::default() }
    }
}
