//! Set operations on [`Dfa`]s: regular languages without counters. Every result is minimal.

use super::minimize::minimize;
use super::product;
use crate::error::Result;
use crate::fsm::{Edge, Fsm, State, DEAD, NONE, PLAIN, REJECT};
use crate::ir::{Dfa, DfaState};
use crate::limits::Budget;

impl Dfa {
    /// The automaton of a counter-free FSM without references. An FSM of a nullable rule excludes the empty string; this
    /// one may accept at its start.
    pub(crate) fn from_fsm(fsm: &Fsm) -> Dfa {
        let state = |s: &State| DfaState {
            edges: s.edges.iter().filter(|e| e.target != DEAD).map(|e| (e.lo, e.hi, e.target)).collect(),
            accept: s.accept != REJECT,
        };
        Dfa { states: fsm.states.iter().map(state).collect() }
    }

    /// The same automaton as an FSM, whose start state accepts if the empty string is in the language.
    pub fn to_fsm(&self) -> Fsm {
        let n = self.states.len();
        let state = |s: &DfaState| State {
            edges: s
                .edges
                .iter()
                .filter(|e| (e.2 as usize) < n)
                .map(|&(lo, hi, target)| Edge { lo, hi, act: PLAIN, target })
                .collect(),
            accept: if s.accept { PLAIN } else { REJECT },
            ..State::default()
        };
        let mut states: Vec<State> = self.states.iter().map(state).collect();
        if states.is_empty() {
            states.push(State::default());
        }
        Fsm { states, acts: vec![vec![]], ..Fsm::default() }
    }

    /// The smallest automaton of the same language, canonically numbered: equal languages give equal automata.
    pub fn minimized(&self) -> Dfa {
        Dfa::from_fsm(&minimize(self.to_fsm()))
    }

    /// Strings of both.
    pub fn intersect(&self, other: &Dfa, budget: &Budget) -> Result<Dfa> {
        Ok(Dfa::from_fsm(&minimize(product::intersect(&self.to_fsm(), &other.to_fsm(), budget)?)))
    }

    /// Strings of this one that are not in `other`; also the complement of `other` within this one.
    pub fn difference(&self, other: &Dfa, budget: &Budget) -> Result<Dfa> {
        Ok(Dfa::from_fsm(&minimize(product::subtract(&self.to_fsm(), other, budget)?)))
    }

    /// Strings of this one's complement within `universe`.
    pub fn complement_within(&self, universe: &Dfa, budget: &Budget) -> Result<Dfa> {
        universe.difference(self, budget)
    }

    /// Strings of either.
    pub fn union(&self, other: &Dfa, budget: &Budget) -> Result<Dfa> {
        // The complement of the intersection of the complements, without making any of them: a product in which a side
        // that has failed stays failed.
        use rustc_hash::FxHashMap;
        let mut ids: FxHashMap<(u32, u32), u32> = FxHashMap::default();
        let start = |d: &Dfa| if d.states.is_empty() { NONE } else { 0 };
        let mut pairs = vec![(start(self), start(other))];
        ids.insert(pairs[0], 0);
        let mut out: Vec<DfaState> = vec![];
        let none: &[(u8, u8, u32)] = &[];
        while let Some(&(p, q)) = pairs.get(out.len()) {
            budget.states(1)?;
            let (a, b) = (self.states.get(p as usize), other.states.get(q as usize));
            let mut edges = vec![];
            let (x, y) = (a.map_or(none, |s| &s.edges), b.map_or(none, |s| &s.edges));
            for (lo, hi, s, t) in aligned(x, y) {
                let id = *ids.entry((s, t)).or_insert_with(|| {
                    pairs.push((s, t));
                    pairs.len() as u32 - 1
                });
                edges.push((lo, hi, id));
            }
            out.push(DfaState { edges, accept: a.is_some_and(|s| s.accept) || b.is_some_and(|s| s.accept) });
        }
        Ok(Dfa { states: out }.minimized())
    }

    /// Whether no string is accepted.
    pub fn is_empty(&self) -> bool {
        self.example().is_none()
    }

    /// How many strings of `min` to `max` characters an automaton over UTF-8 accepts, counted up to `most`.
    pub fn count(&self, min: u64, max: Option<u64>, most: u64) -> u64 {
        if max.is_none() && self.has_loop() {
            return most;
        }
        let n = self.states.len();
        let mut found = 0u64;
        // By state: strings that lead there, of one length after the other.
        let mut at = vec![0u64; n];
        if let Some(first) = at.first_mut() {
            *first = 1;
        }
        for length in 0..=max.unwrap_or(u64::MAX) {
            if length >= min {
                let here = at.iter().zip(&self.states).filter(|(_, s)| s.accept).map(|(n, _)| *n);
                found = here.fold(found, u64::saturating_add);
            }
            if found >= most || length >= most {
                return most;
            }
            if at.iter().all(|n| *n == 0) {
                break;
            }
            at = self.one_more(&at);
        }
        found
    }

    /// The strings, if they are at most `most`. An automaton has no states that lead nowhere.
    pub fn strings(&self, most: usize) -> Option<Vec<Vec<u8>>> {
        if self.has_loop() {
            return None;
        }
        let mut found = vec![];
        let mut work: Vec<(u32, Vec<u8>)> = if self.states.is_empty() { vec![] } else { vec![(0, vec![])] };
        while let Some((at, text)) = work.pop() {
            let state = &self.states[at as usize];
            for &(lo, hi, to) in state.edges.iter().rev() {
                work.extend((lo..=hi).rev().map(|b| (to, [&text[..], &[b]].concat())));
            }
            if state.accept {
                found.push(text);
            }
            // Each text that is begun leads to one at least.
            if found.len() + work.len() > most {
                return None;
            }
        }
        Some(found)
    }

    /// The numbers of strings that lead to each state, one character further.
    fn one_more(&self, at: &[u64]) -> Vec<u64> {
        // By bytes of the character still to come.
        let mut waiting: [Vec<u64>; 4] = std::array::from_fn(|_| vec![0; self.states.len()]);
        let go = |from: &[u64], (low, high): (u8, u8), to: &mut [u64]| {
            for (s, &n) in self.states.iter().zip(from).filter(|(_, n)| **n > 0) {
                for &(lo, hi, next) in &s.edges {
                    let (lo, hi) = (lo.max(low), hi.min(high));
                    if lo <= hi {
                        let sum = &mut to[next as usize];
                        *sum = sum.saturating_add(n.saturating_mul(u64::from(hi - lo) + 1));
                    }
                }
            }
        };
        for (bytes, to) in [(0, 0x7f), (0xc0, 0xdf), (0xe0, 0xef), (0xf0, 0xf7)].into_iter().zip(&mut waiting) {
            go(at, bytes, to);
        }
        let [mut whole, mut one, mut two, three] = waiting;
        go(&three, (0x80, 0xbf), &mut two);
        go(&two, (0x80, 0xbf), &mut one);
        go(&one, (0x80, 0xbf), &mut whole);
        whole
    }

    /// Whether infinitely many strings are accepted.
    pub fn has_loop(&self) -> bool {
        let n = self.states.len();
        let mut sources: Vec<Vec<u32>> = vec![vec![]; n];
        for (i, s) in self.states.iter().enumerate() {
            s.edges.iter().for_each(|e| sources[e.2 as usize].push(i as u32));
        }
        let mut live: Vec<bool> = self.states.iter().map(|s| s.accept).collect();
        let mut work: Vec<usize> = (0..n).filter(|&i| live[i]).collect();
        while let Some(i) = work.pop() {
            for &from in &sources[i] {
                if !std::mem::replace(&mut live[from as usize], true) {
                    work.push(from as usize);
                }
            }
        }
        // Depth first from the start: an edge to a state still on the path closes a loop.
        let mut seen = vec![0u8; n];
        let mut path: Vec<(usize, usize)> = vec![];
        if n > 0 && live[0] {
            seen[0] = 1;
            path.push((0, 0));
        }
        while let Some((at, edge)) = path.last_mut() {
            let Some(e) = self.states[*at].edges.get(*edge) else {
                seen[*at] = 2;
                path.pop();
                continue;
            };
            *edge += 1;
            let to = e.2 as usize;
            match seen[to] {
                _ if !live[to] => {}
                1 => return true,
                0 => {
                    seen[to] = 1;
                    path.push((to, 0));
                }
                _ => {}
            }
        }
        false
    }

    /// Whether every string of this one is in `other`.
    pub fn is_subset(&self, other: &Dfa, budget: &Budget) -> Result<bool> {
        Ok(self.difference(other, budget)?.is_empty())
    }

    /// Whether both accept the same strings.
    pub fn equal(&self, other: &Dfa) -> bool {
        self.minimized() == other.minimized()
    }

    /// Where a byte leads from a state; [`NONE`] if nowhere, and from there.
    pub(crate) fn step(&self, state: u32, byte: u8) -> u32 {
        self.states.get(state as usize).map_or(NONE, |s| step(&s.edges, byte))
    }

    pub fn accepts(&self, bytes: &[u8]) -> bool {
        let mut at = 0;
        for &b in bytes {
            at = self.step(at, b);
        }
        self.states.get(at as usize).is_some_and(|s| s.accept)
    }

    /// A shortest string of the language; the first of them in byte order.
    pub fn example(&self) -> Option<Vec<u8>> {
        // Breadth-first: how each state was reached first.
        let mut from: Vec<Option<(u32, u8)>> = vec![None; self.states.len()];
        let mut order = vec![0u32];
        let mut next = 0;
        while let Some(&s) = order.get(next) {
            next += 1;
            let state = self.states.get(s as usize)?;
            if state.accept {
                let mut text = vec![];
                let mut at = s;
                while let Some((p, b)) = from[at as usize] {
                    text.push(b);
                    at = p;
                }
                text.reverse();
                return Some(text);
            }
            for &(lo, _, t) in &state.edges {
                if t != 0 && (t as usize) < from.len() && from[t as usize].is_none() {
                    from[t as usize] = Some((s, lo));
                    order.push(t);
                }
            }
        }
        None
    }
}

/// Where a byte leads along sorted, disjoint edges; [`NONE`] if nowhere.
pub(crate) fn step(edges: &[(u8, u8, u32)], byte: u8) -> u32 {
    let i = edges.partition_point(|e| e.1 < byte);
    match edges.get(i) {
        Some(e) if e.0 <= byte => e.2,
        _ => NONE,
    }
}

/// The common refinement of two sorted, disjoint edge lists: `(lo, hi, target in a, target in b)`, [`NONE`] for none.
fn aligned(a: &[(u8, u8, u32)], b: &[(u8, u8, u32)]) -> Vec<(u8, u8, u32, u32)> {
    let mut cuts: Vec<u16> = a.iter().chain(b).flat_map(|e| [u16::from(e.0), u16::from(e.1) + 1]).collect();
    cuts.sort_unstable();
    cuts.dedup();
    let (mut i, mut j) = (0, 0);
    let mut out = vec![];
    for w in cuts.windows(2) {
        let (lo, hi) = (w[0] as u8, (w[1] - 1) as u8);
        while a.get(i).is_some_and(|e| e.1 < lo) {
            i += 1;
        }
        while b.get(j).is_some_and(|e| e.1 < lo) {
            j += 1;
        }
        let s = a.get(i).filter(|e| e.0 <= lo).map_or(NONE, |e| e.2);
        let t = b.get(j).filter(|e| e.0 <= lo).map_or(NONE, |e| e.2);
        if s != NONE || t != NONE {
            out.push((lo, hi, s, t));
        }
    }
    out
}
