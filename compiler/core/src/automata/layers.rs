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
//!
//! [`apart`] tells states apart, [`zones`] finds what is alive where, and [`Layers`] makes the copies.

use rustc_hash::FxHashMap;

use self::apart::Apart;
use self::zones::{Zone, Zones};
use super::acts::Acts;
use crate::error::Result;
use crate::fsm::{Edge, Fsm, Op, State, DEAD, NONE, REJECT, UNBOUNDED};
use crate::limits::Budget;

mod apart;
mod zones;

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
    let Some(apart) = Apart::of(&automaton, fsm.counters, budget)? else { return Ok(Layered::Unknown) };
    let Some(zones) = apart.zones(min, max, budget)? else { return Ok(Layered::Unknown) };
    match zones.together(&apart.list, automaton.states.len()) {
        Some(zones) => Layers::of(&automaton, zones, fsm.counters, budget),
        None => Layers::of(&apart.spelled(&automaton), zones, fsm.counters, budget),
    }
}

/// An edge of which the length is read and the other ops are kept.
#[derive(Clone, Copy)]
struct Step {
    lo: u8,
    hi: u8,
    target: u32,
    /// A character begins.
    begins: bool,
    /// The other ops, by the act that they are part of.
    others: u16,
}

/// An FSM one of whose counters is read as a length. State 0 is entered by nothing.
struct Automaton {
    /// The counter.
    r: u8,
    min: u32,
    states: Vec<Vec<Step>>,
    /// Where the state accepts, the ops besides.
    accepts: Vec<Option<u16>>,
    /// By act: its ops on the other counters.
    others: Vec<Vec<Op>>,
}

impl Automaton {
    /// `None`: counter `r` is not one that is loaded at the start, ticks, and is left at the end.
    fn of(fsm: &Fsm, r: u8, min: u32, max: u32) -> Option<Automaton> {
        if max < min {
            return None;
        }
        let rest = if max == UNBOUNDED { max } else { max.checked_sub(1)? };
        let first = Op::Load { r, min: min.saturating_sub(1), max: rest };
        let mine = |op: &Op| match *op {
            Op::Load { r: s, .. } | Op::Tick { r: s } | Op::Exit { r: s } | Op::Room { r: s } => Some(s == r),
            _ => None,
        };
        let parts = |ops: &Vec<Op>| -> Option<(Vec<Op>, Vec<Op>)> {
            ops.iter().all(|op| mine(op).is_some()).then(|| ops.iter().partition(|op| mine(op) == Some(true)))
        };
        let parts: Vec<Option<(Vec<Op>, Vec<Op>)>> = fsm.acts.iter().map(parts).collect();
        let length = |act: u16| Some(&parts.get(usize::from(act))?.as_ref()?.0[..]);
        let mut states = Vec::with_capacity(fsm.states.len());
        let mut accepts = Vec::with_capacity(fsm.states.len());
        for (q, state) in fsm.states.iter().enumerate() {
            if !state.refs.is_empty() || !state.tokens.is_empty() || state.fallback != NONE || state.distinct {
                return None;
            }
            let mut steps = Vec::with_capacity(state.edges.len());
            for &Edge { lo, hi, act, target } in state.edges.iter().filter(|e| e.target != DEAD) {
                let begins = match length(act)? {
                    [] if q != 0 => false,
                    [Op::Tick { .. }] if q != 0 => true,
                    &[op] if q == 0 && op == first => true,
                    _ => return None,
                };
                if target == 0 {
                    return None;
                }
                steps.push(Step { lo, hi, target, begins, others: act });
            }
            states.push(steps);
            accepts.push(match state.accept {
                REJECT => None,
                act if q != 0 && length(act)? == [Op::Exit { r }] => Some(act),
                _ => return None,
            });
        }
        let others = parts.into_iter().map(|parts| parts.map_or(vec![], |(_, others)| others)).collect();
        Some(Automaton { r, min, states, accepts, others })
    }
}

/// The FSM in the making: one copy of the automaton for each zone.
struct Layers<'a> {
    automaton: &'a Automaton,
    zones: Zones,
    budget: &'a Budget,
    acts: Acts,
    ids: FxHashMap<(u32, usize), u32>,
    /// State and zone.
    list: Vec<(u32, usize)>,
    /// An edge was left out.
    cut: bool,
}

impl<'a> Layers<'a> {
    fn of(automaton: &'a Automaton, zones: Zones, counters: u8, budget: &'a Budget) -> Result<Layered> {
        let mut layers = Layers {
            automaton,
            zones,
            budget,
            acts: Acts::default(),
            ids: [((0, 0), 0)].into_iter().collect(),
            list: vec![(0, 0)],
            cut: false,
        };
        if !layers.zones.alive(0, 0) {
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

    /// What enters a zone at its first count.
    fn enter(&self, zone: usize) -> Option<Op> {
        let n = self.zones.list.get(zone).map_or(0, Zone::room);
        (n > 0).then_some(Op::Load { r: self.automaton.r, min: n, max: n })
    }

    fn state(&mut self, q: u32, zone: usize) -> Result<State> {
        let automaton = self.automaton;
        let r = automaton.r;
        let Zone { first, last, .. } = self.zones.list[zone];
        let room = self.zones.list[zone].room();
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
            if zone + 1 < self.zones.list.len() && (q != 0 || room == 0) {
                let leave = (room > 0).then_some(Op::Exit { r });
                self.edge(step, leave, self.enter(zone + 1), zone + 1, &mut edges)?;
            }
        }
        edges.sort_unstable();
        let accept = match &automaton.accepts[q as usize] {
            &Some(others) if first >= automaton.min => {
                // What is left in the counter would only tell sets apart.
                let clear = (room > 0).then_some(Op::Load { r, min: 0, max: 0 });
                self.act(others, [clear, None])?
            }
            _ => REJECT,
        };
        Ok(State { edges, accept, ..State::default() })
    }

    /// `others`: the other ops, by act; they come first.
    fn act(&mut self, others: u16, ops: [Option<Op>; 2]) -> Result<u16> {
        let others = &self.automaton.others[usize::from(others)];
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
        if !self.zones.alive(step.target, zone) {
            self.cut = true;
            return Ok(());
        }
        let act = self.act(step.others, [op, then])?;
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
