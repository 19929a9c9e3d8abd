//! A language within bounds on its length, without dead ends.
//!
//! The product of an automaton with a counter of characters lets a text go on until the counter is full, wherever the automaton
//! stands then: `a.*z` of at most 90 characters would take 90 characters without a `z`, after which nothing may follow.
//! Telling all counts apart by states is exact and makes as many copies of the automaton as there are counts. But which
//! states can still be completed only changes near the bounds: the last few counts before the upper one, and the last few
//! before the lower one. So the counts fall into *zones* in each of which the same states are alive. The result
//! has one copy of the automaton for each zone, restricted to what is alive there; a zone of several counts keeps a counter that
//! must be run through (need and room are the same), so it is left exactly where the next zone begins.
//!
//! What is alive: let `T(q)` be the numbers of characters with which state `q` can be completed. After `k` characters `q` is alive
//! if some `t` of `T(q)` has `min <= k + t <= max`. From `min` characters on that depends on the least `t` alone. Before, it
//! depends on the least `t` of at least `min - k`, which is found for one `k` after the other; and where `min` is too large for
//! that but the bounds are at least as far apart as there are states, on the greatest `t` alone: a way that is longer than needed by
//! that much holds a loop that can be left out.
//!
//! Other counters of the product are told apart to find out what is alive. If a state is alive at a count with all of their values
//! or with none, they are kept as they are; else the result has a state for each value.

use rustc_hash::FxHashMap;

use super::acts::Acts;
use super::dead_ends::{run, Counters};
use crate::error::Result;
use crate::fsm::{Edge, Fsm, Op, State, DEAD, NONE, REJECT, UNBOUNDED};
use crate::limits::Budget;

/// Most (count, edge) pairs that are looked at to find which states are alive before the least length.
const MOST_WORK: usize = 1 << 24;
/// Most states, each with values of the other counters.
const MOST_STATES: usize = 1 << 16;

/// What became of an FSM.
pub enum Layered {
    /// It has no dead ends as it is.
    Sound,
    /// The same language without dead ends; not minimal.
    Cut(Fsm),
    /// It does not count as a length does, or would be too much work.
    Unknown,
}

/// Removes the dead ends of `fsm`, the product of some FSM and a repeat of `min` to `max` characters.
pub fn layered(fsm: &Fsm, min: u32, max: u32, budget: &Budget) -> Result<Layered> {
    let Some(automaton) = (0..fsm.counters).find_map(|r| Automaton::of(fsm, r, min, max)) else {
        return Ok(Layered::Unknown);
    };
    let Some((told_apart, state_of)) = automaton.told_apart(fsm.counters, budget)? else { return Ok(Layered::Unknown) };
    let Some(mut zones) = told_apart.zones(budget)? else { return Ok(Layered::Unknown) };
    if together(&mut zones, &state_of, automaton.states.len()) {
        Layers::of(&automaton, zones, fsm.counters, budget)
    } else {
        Layers::of(&told_apart, zones, fsm.counters, budget)
    }
}

/// Brings what is alive from states that are told apart to states that are not, unless some are alive with some values of
/// the counters only.
fn together(zones: &mut [Zone], state_of: &[u32], states: usize) -> bool {
    let mut all = vec![];
    for zone in zones.iter() {
        let mut alive: Vec<Option<bool>> = vec![None; states];
        for (&q, &is) in state_of.iter().zip(&zone.alive) {
            if *alive[q as usize].get_or_insert(is) != is {
                return false;
            }
        }
        all.push(alive.into_iter().map(|a| a.unwrap_or(false)).collect());
    }
    for (zone, alive) in zones.iter_mut().zip(all) {
        zone.alive = alive;
    }
    true
}

/// An edge of which the length is read and the other ops are kept.
#[derive(Clone)]
struct Step {
    lo: u8,
    hi: u8,
    target: u32,
    /// A character begins.
    begins: bool,
    others: Vec<Op>,
}

/// An FSM one of whose counters is read as a length. State 0 is entered by nothing.
struct Automaton {
    /// The counter.
    r: u8,
    min: u32,
    max: u32,
    states: Vec<Vec<Step>>,
    /// The ops besides, where the state accepts.
    accepts: Vec<Option<Vec<Op>>>,
    /// Edges backwards: (from, whether a character begins).
    back: Vec<Vec<(u32, bool)>>,
}

/// Counts `first` to `last` (inclusive; [`UNBOUNDED`] if it never ends), with the states that are alive at each.
struct Zone {
    first: u32,
    last: u32,
    alive: Vec<bool>,
}

impl Zone {
    /// Characters that can be written without leaving the zone, by one that enters it at its first count.
    fn room(&self) -> u32 {
        if self.last == UNBOUNDED {
            0
        } else {
            self.last - self.first
        }
    }
}

impl Automaton {
    /// `None`: counter `r` is not one that is loaded at the start, ticks, and is left at the end.
    fn of(fsm: &Fsm, r: u8, min: u32, max: u32) -> Option<Automaton> {
        if max < min {
            return None;
        }
        let rest = if max == UNBOUNDED { max } else { max.checked_sub(1)? };
        let first = Op::Load { r, min: min.saturating_sub(1), max: rest };
        let parts = |act: u16| -> Option<(Vec<Op>, Vec<Op>)> {
            let mine = |op: &Op| match *op {
                Op::Load { r: s, .. } | Op::Tick { r: s } | Op::Exit { r: s } | Op::Room { r: s } => Some(s == r),
                _ => None,
            };
            let ops = fsm.acts.get(usize::from(act))?;
            ops.iter().all(|op| mine(op).is_some()).then(|| ops.iter().partition(|op| mine(op) == Some(true)))
        };
        let mut states = Vec::with_capacity(fsm.states.len());
        let mut accepts = Vec::with_capacity(fsm.states.len());
        for (q, state) in fsm.states.iter().enumerate() {
            if !state.refs.is_empty() || !state.tokens.is_empty() || state.fallback != NONE || state.distinct {
                return None;
            }
            let mut steps = Vec::with_capacity(state.edges.len());
            for &Edge { lo, hi, act, target } in state.edges.iter().filter(|e| e.target != DEAD) {
                let (length, others) = parts(act)?;
                let begins = match length[..] {
                    [] if q != 0 => false,
                    [Op::Tick { .. }] if q != 0 => true,
                    [op] if q == 0 && op == first => true,
                    _ => return None,
                };
                if target == 0 {
                    return None;
                }
                steps.push(Step { lo, hi, target, begins, others });
            }
            states.push(steps);
            accepts.push(match state.accept {
                REJECT => None,
                act => match parts(act)? {
                    (length, others) if q != 0 && length == [Op::Exit { r }] => Some(others),
                    _ => return None,
                },
            });
        }
        Some(Automaton { r, min, max, states, accepts, back: vec![] }.linked())
    }

    fn linked(mut self) -> Automaton {
        self.back = vec![vec![]; self.states.len()];
        for (q, steps) in (0u32..).zip(&self.states) {
            for step in steps {
                self.back[step.target as usize].push((q, step.begins));
            }
        }
        self
    }

    /// The automaton with a state for all values of the other counters, and the state that each comes from. `None`: too many.
    fn told_apart(&self, counters: u8, budget: &Budget) -> Result<Option<(Automaton, Vec<u32>)>> {
        let start = (0u32, Counters::from_elem((0, 0), usize::from(counters)));
        let mut ids: FxHashMap<(u32, Counters), u32> = [(start.clone(), 0)].into_iter().collect();
        let mut list = vec![start];
        let (mut states, mut accepts) = (vec![], vec![]);
        while let Some((q, values)) = list.get(states.len()).cloned() {
            budget.tick()?;
            let mut steps = vec![];
            for step in &self.states[q as usize] {
                let Some(after) = run(&step.others, &values) else { return Ok(None) };
                let Some(after) = after else { continue };
                let new = list.len() as u32;
                let target = *ids.entry((step.target, after.clone())).or_insert(new);
                if target == new {
                    if list.len() == MOST_STATES {
                        return Ok(None);
                    }
                    list.push((step.target, after));
                }
                steps.push(Step { target, others: vec![], ..*step });
            }
            states.push(steps);
            let accept = self.accepts[q as usize].as_ref().and_then(|others| run(others, &values)).flatten();
            accepts.push(accept.map(|_| vec![]));
        }
        let all = Automaton { r: self.r, min: self.min, max: self.max, states, accepts, back: vec![] };
        Ok(Some((all.linked(), list.into_iter().map(|(q, _)| q).collect())))
    }

    /// Adds the states that reach a member without beginning a character.
    fn close(&self, set: &mut [bool]) {
        let mut work: Vec<u32> = (0u32..).zip(set.iter()).filter(|(_, &is)| is).map(|(q, _)| q).collect();
        while let Some(q) = work.pop() {
            for &(p, begins) in &self.back[q as usize] {
                if !begins && !std::mem::replace(&mut set[p as usize], true) {
                    work.push(p);
                }
            }
        }
    }

    /// The states from which one more character leads into the set.
    fn before(&self, set: &[bool]) -> Vec<bool> {
        let mut found = vec![false; set.len()];
        for (q, _) in set.iter().enumerate().filter(|(_, &is)| is) {
            for &(p, _) in self.back[q].iter().filter(|(_, begins)| *begins) {
                found[p as usize] = true;
            }
        }
        self.close(&mut found);
        found
    }

    fn completed(&self) -> Vec<bool> {
        let mut set: Vec<bool> = self.accepts.iter().map(Option::is_some).collect();
        self.close(&mut set);
        set
    }

    /// Least number of characters that completes each state; [`UNBOUNDED`] if none does.
    fn least(&self, budget: &Budget) -> Result<Vec<u32>> {
        let mut least = vec![UNBOUNDED; self.states.len()];
        let mut set = self.completed();
        for t in 0.. {
            budget.tick()?;
            let mut new = false;
            for (is, least) in set.iter_mut().zip(&mut least) {
                *is &= *least == UNBOUNDED;
                if *is {
                    (*least, new) = (t, true);
                }
            }
            if !new {
                break;
            }
            set = self.before(&set);
        }
        Ok(least)
    }

    /// Greatest number of characters; [`UNBOUNDED`] if there is no greatest. `least`: which states can be completed at all.
    fn greatest(&self, least: &[u32], budget: &Budget) -> Result<Vec<u32>> {
        let mut greatest = vec![0; least.len()];
        // Those that can be completed with `t` characters or more.
        let mut set: Vec<bool> = least.iter().map(|&t| t != UNBOUNDED).collect();
        for t in 1.. {
            budget.tick()?;
            let next = self.before(&set);
            if next == set {
                break;
            }
            for (greatest, _) in greatest.iter_mut().zip(&next).filter(|(_, &is)| is) {
                *greatest = t;
            }
            set = next;
        }
        for (greatest, _) in greatest.iter_mut().zip(&set).filter(|(_, &is)| is) {
            *greatest = UNBOUNDED;
        }
        Ok(greatest)
    }

    /// The zones in order of their counts. `None`: too much work.
    fn zones(&self, budget: &Budget) -> Result<Option<Vec<Zone>>> {
        let states = self.states.len() as u32;
        let edges: usize = self.states.iter().map(Vec::len).sum();
        let mut zones = vec![];
        let least = self.least(budget)?;
        if (self.min as usize).saturating_mul(edges) <= MOST_WORK {
            let Some(before) = self.before_minimum(&least, budget)? else { return Ok(None) };
            zones.extend(before);
        } else if self.max == UNBOUNDED || self.max - self.min >= states {
            let greatest = self.greatest(&least, budget)?;
            let cuts = greatest.iter().map(|&t| self.min.saturating_sub(t)).chain([0]);
            for (first, last) in ranges(cuts, self.min) {
                let alive = greatest.iter().zip(&least).map(|(&g, &l)| l != UNBOUNDED && g >= self.min - first);
                zones.push(Zone { first, last, alive: alive.collect() });
            }
        } else {
            return Ok(None);
        }
        let room = |first: u32| if self.max == UNBOUNDED { UNBOUNDED - 1 } else { self.max - first };
        let cuts = least.iter().map(|&t| self.max.saturating_sub(t).saturating_add(1)).filter(|&k| k > self.min);
        let end = self.max.saturating_add(1);
        let cuts: Vec<u32> = if self.max == UNBOUNDED { vec![] } else { cuts.collect() };
        for (first, last) in ranges(cuts.into_iter().chain([self.min]), end) {
            let alive = least.iter().map(|&t| t <= room(first)).collect();
            zones.push(Zone { first, last: if self.max == UNBOUNDED { UNBOUNDED } else { last }, alive });
        }
        Ok(Some(zones))
    }

    /// The zones before `min` characters. `None`: a character may go on for ever.
    fn before_minimum(&self, least: &[u32], budget: &Budget) -> Result<Option<Vec<Zone>>> {
        let Some(order) = self.within_characters() else { return Ok(None) };
        // By state: the least number of characters that completes it and is at least `wanted`.
        let mut numbers = least.to_vec();
        let mut zones: Vec<Zone> = vec![];
        for wanted in 1..=self.min {
            budget.tick()?;
            let mut next = vec![UNBOUNDED; numbers.len()];
            for &q in &order {
                let ways = self.states[q as usize].iter().map(|step| match step.begins {
                    true => numbers[step.target as usize].saturating_add(1),
                    false => next[step.target as usize],
                });
                next[q as usize] = ways.min().unwrap_or(UNBOUNDED);
            }
            numbers = next;
            let k = self.min - wanted;
            let room = if self.max == UNBOUNDED { UNBOUNDED - 1 } else { self.max - k };
            let alive: Vec<bool> = numbers.iter().map(|&t| t <= room).collect();
            match zones.last_mut() {
                Some(zone) if zone.alive == alive => zone.first = k,
                _ => zones.push(Zone { first: k, last: k, alive }),
            }
        }
        zones.reverse();
        Ok(Some(zones))
    }

    /// The states, each after those to which its edges within a character lead; `None` if these go in a circle.
    fn within_characters(&self) -> Option<Vec<u32>> {
        let within = |steps: &Vec<Step>| steps.iter().filter(|step| !step.begins).count();
        let mut left: Vec<usize> = self.states.iter().map(within).collect();
        let mut order: Vec<u32> = (0u32..).zip(&left).filter(|(_, &n)| n == 0).map(|(q, _)| q).collect();
        let mut done = 0;
        while let Some(&q) = order.get(done) {
            done += 1;
            for &(p, _) in self.back[q as usize].iter().filter(|(_, begins)| !begins) {
                left[p as usize] -= 1;
                if left[p as usize] == 0 {
                    order.push(p);
                }
            }
        }
        (order.len() == self.states.len()).then_some(order)
    }
}

/// The ranges of counts below `end` that begin at the given ones.
fn ranges(begins: impl Iterator<Item = u32>, end: u32) -> Vec<(u32, u32)> {
    let mut begins: Vec<u32> = begins.filter(|&k| k < end).collect();
    begins.sort_unstable();
    begins.dedup();
    let ends: Vec<u32> = begins.iter().skip(1).copied().chain([end]).map(|k| k.saturating_sub(1)).collect();
    begins.into_iter().zip(ends).collect()
}

/// The FSM in the making: one copy of the automaton for each zone.
struct Layers<'a> {
    automaton: &'a Automaton,
    zones: Vec<Zone>,
    budget: &'a Budget,
    acts: Acts,
    ids: FxHashMap<(u32, usize), u32>,
    /// State and zone.
    list: Vec<(u32, usize)>,
    /// An edge was left out.
    cut: bool,
}

impl<'a> Layers<'a> {
    fn of(automaton: &'a Automaton, zones: Vec<Zone>, counters: u8, budget: &'a Budget) -> Result<Layered> {
        let mut layers = Layers {
            automaton,
            zones,
            budget,
            acts: Acts::default(),
            ids: [((0, 0), 0)].into_iter().collect(),
            list: vec![(0, 0)],
            cut: false,
        };
        if !layers.alive(0, 0) {
            return Ok(Layered::Cut(Fsm { states: vec![State::default()], acts: vec![vec![]], ..Fsm::default() }));
        }
        let mut states = vec![];
        while let Some(&(q, zone)) = layers.list.get(states.len()) {
            let state = layers.state(q, zone)?;
            states.push(state);
        }
        if !layers.cut {
            return Ok(Layered::Sound);
        }
        let counters = if layers.acts.len() > 1 { counters } else { 0 };
        Ok(Layered::Cut(Fsm { states, acts: layers.acts.into_list(), counters, ..Fsm::default() }))
    }

    fn alive(&self, q: u32, zone: usize) -> bool {
        self.zones.get(zone).is_some_and(|z| z.alive[q as usize])
    }

    /// What enters a zone at its first count.
    fn enter(&self, zone: usize) -> Option<Op> {
        let n = self.zones.get(zone).map_or(0, Zone::room);
        (n > 0).then_some(Op::Load { r: self.automaton.r, min: n, max: n })
    }

    fn state(&mut self, q: u32, zone: usize) -> Result<State> {
        let automaton = self.automaton;
        let r = automaton.r;
        let (first, last, room) = (self.zones[zone].first, self.zones[zone].last, self.zones[zone].room());
        // The counter is not loaded yet in the start.
        let start = if q == 0 { self.enter(zone) } else { None };
        let mut edges = vec![];
        for step in &automaton.states[q as usize] {
            if !step.begins || last == UNBOUNDED {
                self.edge(step, start, None, zone, &mut edges)?;
                continue;
            }
            if room > 0 {
                self.edge(step, start, Some(Op::Tick { r }), zone, &mut edges)?;
            }
            // Beyond the last zone there is no room: that is no dead end.
            if zone + 1 < self.zones.len() && (q != 0 || room == 0) {
                let leave = (room > 0).then_some(Op::Exit { r });
                self.edge(step, leave, self.enter(zone + 1), zone + 1, &mut edges)?;
            }
        }
        edges.sort_unstable();
        let accept = match &automaton.accepts[q as usize] {
            Some(others) if first >= automaton.min => {
                // What is left in the counter would only tell sets apart.
                let clear = (room > 0).then_some(Op::Load { r, min: 0, max: 0 });
                self.act(others, [clear, None])?
            }
            _ => REJECT,
        };
        Ok(State { edges, accept, ..State::default() })
    }

    fn act(&mut self, others: &[Op], ops: [Option<Op>; 2]) -> Result<u16> {
        let ops: Vec<Op> = others.iter().copied().chain(ops.into_iter().flatten()).collect();
        self.acts.intern(&ops)
    }

    fn edge(
        &mut self,
        step: &Step,
        op: Option<Op>,
        then: Option<Op>,
        zone: usize,
        edges: &mut Vec<Edge>,
    ) -> Result<()> {
        if !self.alive(step.target, zone) {
            self.cut = true;
            return Ok(());
        }
        let act = self.act(&step.others, [op, then])?;
        let new = self.list.len() as u32;
        let target = *self.ids.entry((step.target, zone)).or_insert(new);
        if target == new {
            self.budget.states(1)?;
            self.list.push((step.target, zone));
        }
        edges.push(Edge { lo: step.lo, hi: step.hi, act, target });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeSet, HashSet};

    use proptest::prelude::*;

    use super::*;
    use crate::automata::dead_ends::has_dead_ends;
    use crate::automata::run::Registers;
    use crate::automata::{minimize, product};
    use crate::ir::{Dfa, Expr};
    use crate::limits::Limits;
    use crate::lower;

    /// One character of one or two bytes.
    fn any() -> Expr {
        Expr::Chars(vec![(0x61, 0x63), (0xe9, 0xeb)])
    }

    fn language() -> impl Strategy<Value = Expr> {
        let chars = |c: char| Expr::Chars(vec![(c as u32, c as u32)]);
        let leaf = prop_oneof![Just(chars('a')), Just(chars('b')), Just(chars('é')), Just(any()), Just(any().star())];
        leaf.prop_recursive(4, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 2..5).prop_map(Expr::seq),
                prop::collection::vec(inner.clone(), 2..3).prop_map(Expr::alt),
                inner.clone().prop_map(Expr::star),
                (inner, 0u32..4, 0u32..4).prop_map(|(e, min, more)| e.repeat(min, Some(min + more))),
            ]
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(3000))]

        #[test]
        fn the_language_stays_and_dead_ends_go(
            e in language(), min in prop_oneof![Just(0u32), 0u32..40], more in prop_oneof![0u32..3, 17u32..40, Just(UNBOUNDED)],
        ) {
            let budget = Budget::new(Limits::default());
            let max = if more == UNBOUNDED { (min < 17).then_some(min + 20) } else { Some(min + more) };
            let length = any().repeat(min, max);
            let counted = lower::lower_expr(&length, &[], &budget).unwrap().fsm;
            let exact = lower::dfa(&Expr::And(vec![e.clone(), length]), &budget).unwrap();
            let both = minimize(product::intersect(&lower::dfa(&e, &budget).unwrap().to_fsm(), &counted, &budget).unwrap());
            let cut = match layered(&both, min, max.unwrap_or(UNBOUNDED), &budget).unwrap() {
                // Short lengths are unrolled.
                Layered::Unknown => {
                    prop_assert!(counted.counters == 0 || both.states.len() == 1);
                    return Ok(());
                }
                Layered::Sound => both,
                Layered::Cut(fsm) => minimize(fsm),
            };
            let filled = exact.difference(&lower::dfa(&Expr::Empty, &budget).unwrap(), &budget).unwrap();
            prop_assert_eq!(has_dead_ends(&cut, 1 << 20, &budget).unwrap(), Some(filled.is_empty()));
            same(&cut, &exact)?;
        }
    }

    /// Steps through both in all ways: what one takes the other takes.
    fn same(fsm: &Fsm, exact: &Dfa) -> std::result::Result<(), TestCaseError> {
        let start = (vec![(0u32, Registers::initial(fsm, &[]))], Some(0u32));
        let mut seen: HashSet<_> = [start.clone()].into();
        let mut work = vec![(start, true)];
        while let Some(((set, q), first)) = work.pop() {
            let state = q.and_then(|q| exact.states.get(q as usize));
            let ends = set.iter().any(|(s, r)| r.run(fsm, fsm.states[*s as usize].accept).is_some());
            // A unit never matches the empty string.
            prop_assert!(first || ends == state.is_some_and(|s| s.accept));
            for byte in [b'a', b'b', b'c', 0xc3, 0xa9, 0xaa, b'x'] {
                let to = state.and_then(|s| s.edges.iter().find(|e| e.0 <= byte && byte <= e.1)).map(|e| e.2);
                let edges = set.iter().flat_map(|(s, r)| fsm.states[*s as usize].edges.iter().map(move |e| (e, r)));
                let taken = edges.filter(|(e, _)| e.lo <= byte && byte <= e.hi);
                let next: BTreeSet<_> = taken.filter_map(|(e, r)| Some((e.target, r.run(fsm, e.act)?))).collect();
                prop_assert_eq!(next.is_empty(), to.is_none());
                prop_assert!(next.len() <= 1, "deterministic");
                let next = (next.into_iter().collect::<Vec<_>>(), to);
                if to.is_some() && seen.insert(next.clone()) {
                    work.push((next, false));
                }
            }
        }
        Ok(())
    }
}
