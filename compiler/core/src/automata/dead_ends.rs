//! Whether counters lead an FSM into dead ends.
//!
//! A product of two FSMs with counters can hold configurations (a state with the values of its counters) from which
//! nothing is accepted any more, though the state alone could: `a{2,3}` within at least four characters. Such a product must
//! not be used as it is, since a byte would be allowed after which there is no way to end.
//!
//! All configurations are looked at, but not one by one. The states that are reached with the same values are one set, and a
//! set is taken along all edges at once ([`Spread`]): edges without ops add states to it, and the edges of each act lead to a set
//! with other values. What is reached in this way is searched once more, backwards, for what can be completed.
//! Mostly a byte does no more to the counters than make one of them less, so the same sets come with many of its values,
//! and a set that was taken along the edges once is not taken again.

use std::collections::{BinaryHeap, VecDeque};
use std::rc::Rc;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::sets::Set;
use crate::error::Result;
use crate::fsm::{Fsm, Op, DEAD, PLAIN, REJECT, UNBOUNDED};
use crate::limits::Budget;

/// `(need, room)` of each counter.
pub(super) type Counters = SmallVec<[(u32, u32); 4]>;

/// Whether `fsm`, which has neither references nor fallbacks, has a reachable configuration that cannot reach
/// acceptance; `None` if there are more than `most` configurations, or other registers than counters.
pub fn has_dead_ends(fsm: &Fsm, most: usize, budget: &Budget) -> Result<Option<bool>> {
    let steps = Steps::of(fsm);
    let mut search = Search { fsm, values: vec![], ids: FxHashMap::default(), taken: vec![] };
    if !search.reach(&steps, most, budget)? {
        return Ok(None);
    }
    search.complete(&steps.reversed(), budget)?;
    Ok(Some(search.values.iter().any(|v| v.alive != v.states)))
}

/// The edges of all states: what they do and where they lead, whatever the byte.
#[derive(Default)]
struct Steps {
    /// Where those of each state begin.
    start: Vec<u32>,
    /// Act and target, in order: those without ops come first.
    list: Vec<(u16, u32)>,
    /// The act of each state that accepts; nothing is accepted backwards.
    accept: Vec<u16>,
}

impl Steps {
    fn of(fsm: &Fsm) -> Steps {
        let mut steps = Steps { start: vec![0], ..Steps::default() };
        let mut own: Vec<(u16, u32)> = vec![];
        for state in &fsm.states {
            let edges = state.edges.iter().map(|e| (e.act, e.target));
            let edges = edges.chain(state.tokens.iter().map(|e| (e.act, e.target)));
            own.extend(edges.filter(|&(_, target)| target != DEAD));
            own.sort_unstable();
            own.dedup();
            steps.list.append(&mut own);
            steps.start.push(steps.list.len() as u32);
            steps.accept.push(state.accept);
        }
        steps
    }

    fn reversed(&self) -> Steps {
        let states = self.accept.len() as u32;
        let turned = |q: u32| self.from(q).iter().map(move |&(act, to)| (to, act, q));
        let mut all: Vec<(u32, u16, u32)> = (0..states).flat_map(turned).collect();
        all.sort_unstable();
        let start = (0..=states).map(|q| all.partition_point(|e| e.0 < q) as u32).collect();
        Steps { start, list: all.into_iter().map(|(_, act, from)| (act, from)).collect(), accept: vec![] }
    }

    fn from(&self, q: u32) -> &[(u16, u32)] {
        &self.list[self.start[q as usize] as usize..self.start[q as usize + 1] as usize]
    }
}

/// What comes of a set of states.
#[derive(Default)]
struct Spread {
    /// Those of the set that were not there yet, and what edges without ops lead to from them.
    added: Set,
    /// What edges with ops lead to, by act.
    leaving: Vec<(u16, Set)>,
    /// Which of those added accept, by act.
    accepting: Vec<(u16, Set)>,
}

/// Takes sets of states along edges, and keeps what comes of them.
struct Spreader<'a> {
    steps: &'a Steps,
    /// By state, 64 a word: it may still be added. Between two uses all words are `idle`.
    open: Vec<u64>,
    idle: u64,
    leaving: Gathered,
    accepting: Gathered,
    /// By the states that may be added (none: any) and those to start from.
    known: FxHashMap<(Set, Set), Rc<Spread>>,
}

impl<'a> Spreader<'a> {
    /// `any`: any state may be added that is not excluded; else none but those that are named.
    fn new(steps: &'a Steps, acts: usize, any: bool) -> Spreader<'a> {
        let idle = if any { u64::MAX } else { 0 };
        let words = steps.start.len() / 64 + 1;
        let [leaving, accepting] = [(); 2].map(|()| Gathered::new(acts, words));
        Spreader { steps, open: vec![idle; words], idle, leaving, accepting, known: FxHashMap::default() }
    }

    /// The first time that something comes to a value: `within` are the states that may be added.
    fn first(&mut self, within: &Set, from: Set) -> Rc<Spread> {
        let key = (within.clone(), from);
        if let Some(known) = self.known.get(&key) {
            return known.clone();
        }
        let spread = Rc::new(self.spread(within.words().iter().copied(), &key.1));
        self.known.insert(key, spread.clone());
        spread
    }

    /// `open`: the words that differ from `idle`.
    fn spread(&mut self, open: impl Iterator<Item = (u32, u64)> + Clone, from: &Set) -> Spread {
        open.clone().for_each(|(word, bits)| self.open[word as usize] = bits);
        let mut take = |q: u32| {
            let (word, bit) = (&mut self.open[q as usize / 64], 1 << (q % 64));
            let new = *word & bit != 0;
            *word &= !bit;
            new
        };
        let mut added: Vec<u32> = from.iter().filter(|&q| take(q)).collect();
        let mut next = 0;
        while let Some(&q) = added.get(next) {
            next += 1;
            for &(act, target) in self.steps.from(q) {
                if act != PLAIN {
                    self.leaving.put(act, target);
                } else if take(target) {
                    added.push(target);
                }
            }
            match self.steps.accept.get(q as usize) {
                None | Some(&REJECT) => {}
                Some(&act) => self.accepting.put(act, q),
            }
        }
        open.for_each(|(word, _)| self.open[word as usize] = self.idle);
        added.iter().for_each(|&q| self.open[q as usize / 64] = self.idle);
        let added = Set::unordered(&mut added, &mut self.leaving.marks);
        Spread { added, leaving: self.leaving.take(), accepting: self.accepting.take() }
    }
}

/// States by act.
struct Gathered {
    by_act: Vec<Vec<u32>>,
    /// The acts that have any.
    used: Vec<u16>,
    /// For [`Set::unordered`].
    marks: Vec<u64>,
}

impl Gathered {
    fn new(acts: usize, words: usize) -> Gathered {
        Gathered { by_act: vec![vec![]; acts], used: vec![], marks: vec![0; words] }
    }

    fn put(&mut self, act: u16, q: u32) {
        let states = &mut self.by_act[usize::from(act)];
        if states.is_empty() {
            self.used.push(act);
        }
        states.push(q);
    }

    fn take(&mut self) -> Vec<(u16, Set)> {
        self.used.sort_unstable();
        let (by_act, marks) = (&mut self.by_act, &mut self.marks);
        self.used.drain(..).map(|act| (act, Set::unordered(&mut by_act[usize::from(act)], marks))).collect()
    }
}

/// The values of all counters, and the states that are reached with them.
struct Value {
    counters: Counters,
    states: Set,
    /// Those of the states from which acceptance is known to be reached.
    alive: Set,
    /// States that were found and not followed yet: forwards first, then backwards.
    found: Set,
    /// States that accept.
    accepting: Set,
}

struct Search<'a> {
    fsm: &'a Fsm,
    /// In the order in which they were found.
    values: Vec<Value>,
    ids: FxHashMap<Counters, u32>,
    /// The acts that were run: the value after, the act, the value before.
    taken: Vec<(u32, u16, u32)>,
}

impl Search<'_> {
    /// Finds all configurations. `false`: they are more than `most`, or have other registers than counters.
    fn reach(&mut self, steps: &Steps, most: usize, budget: &Budget) -> Result<bool> {
        let mut spreader = Spreader::new(steps, self.fsm.acts.len(), true);
        let start = self.value(Counters::from_elem((0, 0), usize::from(self.fsm.counters)));
        self.values[start as usize].found = Set::one(0);
        let mut work: VecDeque<u32> = [start].into();
        let mut configurations = 0;
        while let Some(v) = work.pop_front() {
            budget.tick()?;
            let value = &mut self.values[v as usize];
            let found = std::mem::take(&mut value.found).without(&value.states);
            if found.is_empty() {
                continue;
            }
            let spread = match value.states.is_empty() {
                true => spreader.first(&value.states, found),
                false => Rc::new(spreader.spread(value.states.words().iter().map(|&(w, bits)| (w, !bits)), &found)),
            };
            configurations += spread.added.len();
            if configurations > most {
                return Ok(false);
            }
            value.states.add(&spread.added);
            for (act, states) in &spread.accepting {
                let Some(after) = self.run(v, *act) else { return Ok(false) };
                if after.is_some() {
                    self.values[v as usize].accepting.add(states);
                }
            }
            for (act, states) in &spread.leaving {
                let Some(after) = self.run(v, *act) else { return Ok(false) };
                let Some(after) = after else { continue };
                let to = self.value(after);
                self.taken.push((to, *act, v));
                let found = &mut self.values[to as usize].found;
                if found.is_empty() {
                    work.push_back(to);
                }
                found.add(states);
            }
        }
        Ok(true)
    }

    /// Finds the configurations that can be completed, among those that were reached.
    fn complete(&mut self, back: &Steps, budget: &Budget) -> Result<()> {
        let mut spreader = Spreader::new(back, self.fsm.acts.len(), false);
        self.taken.sort_unstable();
        self.taken.dedup();
        // Counters run down: what was found last is nearest to the end.
        let mut work = BinaryHeap::new();
        for (v, value) in (0u32..).zip(&mut self.values) {
            value.found = std::mem::take(&mut value.accepting);
            if !value.found.is_empty() {
                work.push(v);
            }
        }
        while let Some(v) = work.pop() {
            budget.tick()?;
            let value = &mut self.values[v as usize];
            let found = std::mem::take(&mut value.found).within(&value.states).without(&value.alive);
            if found.is_empty() {
                continue;
            }
            let spread = match value.alive.is_empty() {
                true => spreader.first(&value.states, found),
                false => Rc::new(spreader.spread(value.states.without(&value.alive).words().iter().copied(), &found)),
            };
            value.alive.add(&spread.added);
            for (act, states) in &spread.leaving {
                let first = self.taken.partition_point(|&(to, by, _)| (to, by) < (v, *act));
                let taken = self.taken[first..].iter().take_while(|&&(to, by, _)| (to, by) == (v, *act));
                for &(_, _, from) in taken {
                    let found = &mut self.values[from as usize].found;
                    if found.is_empty() {
                        work.push(from);
                    }
                    found.add(states);
                }
            }
        }
        Ok(())
    }

    fn run(&self, v: u32, act: u16) -> Option<Option<Counters>> {
        run(self.fsm.acts.get(usize::from(act))?, &self.values[v as usize].counters)
    }

    /// The number of these counters.
    fn value(&mut self, counters: Counters) -> u32 {
        let new = self.values.len() as u32;
        let id = *self.ids.entry(counters.clone()).or_insert(new);
        if id == new {
            let [states, alive, found, accepting] = <[Set; 4]>::default();
            self.values.push(Value { counters, states, alive, found, accepting });
        }
        id
    }
}

/// The counters after an act. Outer `None`: it is not about counters alone. Inner `None`: it fails.
pub(super) fn run(ops: &[Op], counters: &Counters) -> Option<Option<Counters>> {
    let mut counters = counters.clone();
    for op in ops {
        match *op {
            Op::Load { r, min, max } => *counters.get_mut(usize::from(r))? = (min, max),
            Op::Tick { r } => {
                let (need, room) = counters.get_mut(usize::from(r))?;
                if *room == 0 {
                    return Some(None);
                }
                *need = need.saturating_sub(1);
                if *room != UNBOUNDED {
                    *room -= 1;
                }
            }
            Op::Exit { r } => {
                let counter = counters.get_mut(usize::from(r))?;
                if counter.0 != 0 {
                    return Some(None);
                }
                *counter = (0, 0);
            }
            Op::Room { r } => {
                if counters.get(usize::from(r))?.1 == 0 {
                    return Some(None);
                }
            }
            _ => return None,
        }
    }
    Some(Some(counters))
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, HashSet};

    use proptest::prelude::*;

    use super::*;
    use crate::fsm::{Edge, State};
    use crate::limits::Limits;

    /// One configuration after the other.
    fn naive(fsm: &Fsm, most: usize) -> Option<bool> {
        let start = (0u32, Counters::from_elem((0, 0), usize::from(fsm.counters)));
        let mut before: HashMap<(u32, Counters), Vec<(u32, Counters)>> = [(start.clone(), vec![])].into();
        let mut alive = HashSet::new();
        let mut list = vec![start];
        let mut next = 0;
        while let Some((q, counters)) = list.get(next).cloned() {
            next += 1;
            let state = &fsm.states[q as usize];
            if state.accept != REJECT && run(&fsm.acts[state.accept as usize], &counters)?.is_some() {
                alive.insert((q, counters.clone()));
            }
            for e in state.edges.iter().filter(|e| e.target != DEAD) {
                let Some(after) = run(&fsm.acts[e.act as usize], &counters)? else { continue };
                let to = (e.target, after);
                let from = before.entry(to.clone()).or_insert_with(|| {
                    list.push(to);
                    vec![]
                });
                from.push((q, counters.clone()));
            }
            if list.len() > most {
                return None;
            }
        }
        let mut work: Vec<_> = alive.iter().cloned().collect();
        while let Some(at) = work.pop() {
            work.extend(before[&at].iter().filter(|from| alive.insert((*from).clone())).cloned());
        }
        Some(alive.len() < list.len())
    }

    fn op() -> impl Strategy<Value = Op> {
        let r = || 0u8..2;
        prop_oneof![
            2 => (r(), 0u32..4, prop_oneof![4 => 0u32..12, 1 => Just(UNBOUNDED)])
                .prop_map(|(r, min, max)| Op::Load { r, min, max }),
            3 => r().prop_map(|r| Op::Tick { r }),
            1 => r().prop_map(|r| Op::Exit { r }),
            1 => r().prop_map(|r| Op::Room { r }),
        ]
    }

    fn fsm() -> impl Strategy<Value = Fsm> {
        let states = prop_oneof![2usize..6, 60usize..140];
        let acts = prop::collection::vec(prop::collection::vec(op(), 1..3), 1..5);
        (states, acts, prop::bool::weighted(0.05)).prop_flat_map(|(n, mut acts, more)| {
            acts.insert(0, vec![]);
            let act = 0..acts.len() as u16;
            let target = prop_oneof![9 => 0..n as u32, 1 => Just(DEAD)];
            let edge = (any::<u8>(), prop_oneof![Just(PLAIN), act.clone()], target);
            let edge = edge.prop_map(|(lo, act, target)| Edge { lo, hi: lo, act, target });
            let accept = prop_oneof![3 => Just(REJECT), 1 => act];
            let state = (prop::collection::vec(edge, 0..4), accept);
            let state = state.prop_map(|(edges, accept)| State { edges, accept, ..State::default() });
            // A register that is no counter, now and then.
            let last = acts.len() - 1;
            acts[last].extend(more.then_some(Op::Other));
            let whole = move |states| Fsm { states, acts: acts.clone(), counters: 2, ..Fsm::default() };
            prop::collection::vec(state, n).prop_map(whole)
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4000))]

        #[test]
        fn sets_find_what_single_configurations_find(fsm in fsm(), most in prop_oneof![1usize..40, Just(3000)]) {
            let budget = Budget::new(Limits::default());
            prop_assert_eq!(has_dead_ends(&fsm, most, &budget).unwrap(), naive(&fsm, most));
        }
    }
}
