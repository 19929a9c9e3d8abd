//! States told apart by the values of the counters that are no length.

use rustc_hash::FxHashMap;

use super::{Automaton, Step};
use crate::automata::dead_ends::{run, Counters};
use crate::error::Result;
use crate::fsm::PLAIN;
use crate::limits::Budget;

/// Most states, each with values of the other counters.
const MOST_STATES: usize = 1 << 16;

/// The states of an automaton, told apart by the values of the other counters, without the bytes of their edges.
pub(super) struct Apart {
    /// The automaton's state and the values.
    pub(super) list: Vec<(u32, u32)>,
    ids: FxHashMap<(u32, u32), u32>,
    values: Vec<Counters>,
    value_ids: FxHashMap<Counters, u32>,
    /// What the other ops of an act make of a value; `None`: they fail.
    after: FxHashMap<(u32, u16), Option<u32>>,
    /// Where each leads, and whether a character begins.
    pub(super) steps: Lists,
    /// The same backwards.
    pub(super) back: Lists,
    pub(super) accepts: Vec<bool>,
    /// How many edges there are if every range of bytes is counted.
    pub(super) edges: usize,
}

/// A list for each state.
#[derive(Default)]
pub(super) struct Lists {
    start: Vec<u32>,
    all: Vec<(u32, bool)>,
}

impl Lists {
    pub(super) fn of(&self, q: u32) -> &[(u32, bool)] {
        &self.all[self.start[q as usize] as usize..self.start[q as usize + 1] as usize]
    }

    fn reversed(&self) -> Lists {
        let n = self.start.len() - 1;
        let mut start = vec![0u32; n + 1];
        self.all.iter().for_each(|&(to, _)| start[to as usize + 1] += 1);
        (0..n).for_each(|q| start[q + 1] += start[q]);
        let mut place = start.clone();
        let mut all = vec![(0, false); self.all.len()];
        for q in 0..n as u32 {
            for &(to, begins) in self.of(q) {
                let place = &mut place[to as usize];
                all[*place as usize] = (q, begins);
                *place += 1;
            }
        }
        Lists { start, all }
    }
}

impl Apart {
    /// `None`: they are too many.
    pub(super) fn of(automaton: &Automaton, counters: u8, budget: &Budget) -> Result<Option<Apart>> {
        let mut apart = Apart {
            list: vec![],
            ids: FxHashMap::default(),
            values: vec![],
            value_ids: FxHashMap::default(),
            after: FxHashMap::default(),
            steps: Lists { start: vec![0], all: vec![] },
            back: Lists::default(),
            accepts: vec![],
            edges: 0,
        };
        // By state of the automaton: what its edges do, whatever the byte, and how many do it.
        let mut kinds: Vec<Vec<(u32, bool, u16, usize)>> = Vec::with_capacity(automaton.states.len());
        for steps in &automaton.states {
            let mut all: Vec<(u32, bool, u16)> = steps.iter().map(|s| (s.target, s.begins, s.others)).collect();
            all.sort_unstable();
            kinds.push(all.chunk_by(|a, b| a == b).map(|run| (run[0].0, run[0].1, run[0].2, run.len())).collect());
        }
        let start = apart.value(Counters::from_elem((0, 0), usize::from(counters)));
        apart.state(0, start);
        let mut own: Vec<(u32, bool)> = vec![];
        while let Some(&(q, v)) = apart.list.get(apart.accepts.len()) {
            budget.tick()?;
            for &(target, begins, others, count) in &kinds[q as usize] {
                let Some(after) = apart.after(automaton, others, v) else { return Ok(None) };
                let Some(after) = after else { continue };
                let target = apart.state(target, after);
                if apart.list.len() > MOST_STATES {
                    return Ok(None);
                }
                apart.edges += count;
                own.push((target, begins));
            }
            own.sort_unstable();
            own.dedup();
            apart.steps.all.append(&mut own);
            apart.steps.start.push(apart.steps.all.len() as u32);
            let accepts = automaton.accepts[q as usize].is_some_and(|others| {
                run(&automaton.others[usize::from(others)], &apart.values[v as usize]).flatten().is_some()
            });
            apart.accepts.push(accepts);
        }
        apart.back = apart.steps.reversed();
        Ok(Some(apart))
    }

    fn value(&mut self, counters: Counters) -> u32 {
        let new = self.values.len() as u32;
        let id = *self.value_ids.entry(counters.clone()).or_insert(new);
        if id == new {
            self.values.push(counters);
        }
        id
    }

    fn state(&mut self, q: u32, value: u32) -> u32 {
        let new = self.list.len() as u32;
        let id = *self.ids.entry((q, value)).or_insert(new);
        if id == new {
            self.list.push((q, value));
        }
        id
    }

    /// The value after the other ops of an act. Outer `None`: they are not about counters alone. Inner `None`: they fail.
    fn after(&mut self, automaton: &Automaton, others: u16, value: u32) -> Option<Option<u32>> {
        let ops = &automaton.others[usize::from(others)];
        if ops.is_empty() {
            return Some(Some(value));
        }
        if let Some(&after) = self.after.get(&(value, others)) {
            return Some(after);
        }
        let after = run(ops, &self.values[value as usize])?.map(|counters| self.value(counters));
        self.after.insert((value, others), after);
        Some(after)
    }

    /// The automaton with a state for all values of the other counters.
    pub(super) fn spelled(mut self, automaton: &Automaton) -> Automaton {
        let mut states = Vec::with_capacity(self.list.len());
        let mut accepts = Vec::with_capacity(self.list.len());
        for (&(q, v), accept) in std::mem::take(&mut self.list).iter().zip(std::mem::take(&mut self.accepts)) {
            let steps = automaton.states[q as usize].iter().filter_map(|step| {
                let after = self.after(automaton, step.others, v).flatten()?;
                Some(Step { target: *self.ids.get(&(step.target, after))?, others: PLAIN, ..*step })
            });
            states.push(steps.collect());
            accepts.push(accept.then_some(PLAIN));
        }
        Automaton { r: automaton.r, min: automaton.min, states, accepts, others: vec![vec![]] }
    }
}
