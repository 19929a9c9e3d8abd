//! The text of undeclared keys: one deterministic automaton whose accepting states say which alternatives a key belongs
//! to.

use std::sync::OnceLock;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::automata;
use crate::error::Result;
use crate::fsm::NONE;
use crate::ir::{Dfa, DfaState, Expr, OtherProperties};
use crate::limits::{Budget, Limits};
use crate::lower::dfa;

/// All states reach an accepting one. State 0 is the start; no states: no undeclared key exists.
#[derive(Clone, Debug, Default)]
pub(super) struct Others {
    pub states: Vec<OtherState>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct OtherState {
    pub edges: Vec<(u8, u8, u32)>,
    /// The alternatives of the keys that end here.
    pub alternatives: SmallVec<[u32; 1]>,
}

impl Others {
    /// The keys of `alternatives`, of which those with `possible` count. `named`: there are declared or forbidden names, so
    /// that keys must be spelled without needless escapes (or a declared name could come back in disguise).
    pub fn new(alternatives: &[OtherProperties], possible: &[bool], named: bool, budget: &Budget) -> Result<Others> {
        let mut parts: Vec<(u32, Dfa)> = Vec::new();
        for (i, other) in alternatives.iter().enumerate().filter(|(i, _)| possible[*i]) {
            match &other.keys {
                None if alternatives.len() == 1 => return Ok(Others::any_key(named)),
                None => parts.push((i as u32, any_text(!named))),
                Some(keys) => parts.push((i as u32, dfa(keys, budget)?)),
            }
        }
        if parts.is_empty() {
            return Ok(Others::default());
        }
        let filter = named.then(|| any_text(false));
        product(&parts, filter.as_ref(), budget)
    }

    /// Any string.
    fn any_key(named: bool) -> Others {
        static CACHE: [OnceLock<Others>; 2] = [OnceLock::new(), OnceLock::new()];
        CACHE[named as usize]
            .get_or_init(|| {
                let state = |s: DfaState| OtherState {
                    alternatives: s.accept.then_some(0).into_iter().collect(),
                    edges: s.edges,
                };
                Others { states: any_text(!named).states.into_iter().map(state).collect() }
            })
            .clone()
    }

    pub fn step(&self, state: u32, byte: u8) -> u32 {
        self.states.get(state as usize).map_or(NONE, |s| automata::dfa::step(&s.edges, byte))
    }
}

/// Any text between the quotes of a JSON string.
fn any_text(free: bool) -> Dfa {
    static CACHE: [OnceLock<Dfa>; 2] = [OnceLock::new(), OnceLock::new()];
    CACHE[free as usize]
        .get_or_init(|| {
            let all = Expr::JsonChars { ranges: vec![(0, 0xd7ff), (0xe000, 0x10ffff)], free };
            // Ten states or so: default limits are never reached, and the default automaton stands for nothing else.
            dfa(&all.star(), &Budget::new(Limits::default())).unwrap_or_default()
        })
        .clone()
}

/// The union of `parts` (those that accept give their numbers), of the strings that `filter` accepts.
fn product(parts: &[(u32, Dfa)], filter: Option<&Dfa>, budget: &Budget) -> Result<Others> {
    let machines: Vec<&Dfa> = filter.into_iter().chain(parts.iter().map(|p| &p.1)).collect();
    let skip = filter.is_some() as usize;
    let mut others = Others::default();
    let mut number: FxHashMap<Vec<u32>, u32> = FxHashMap::default();
    let start: Vec<u32> = machines.iter().map(|m| if m.states.is_empty() { NONE } else { 0 }).collect();
    number.insert(start.clone(), 0);
    others.states.push(OtherState::default());
    let mut work = vec![start];
    let mut cuts: Vec<u16> = Vec::new();
    while let Some(tuple) = work.pop() {
        budget.states(1)?;
        let from = number[&tuple];
        let accepts = |i: usize| tuple[i] != NONE && machines[i].states[tuple[i] as usize].accept;
        let alternatives = match skip == 1 && !accepts(0) {
            true => SmallVec::new(),
            false => (0..parts.len()).filter(|&i| accepts(i + skip)).map(|i| parts[i].0).collect(),
        };
        cuts.clear();
        let live = tuple.iter().zip(&machines).filter(|(&s, _)| s != NONE);
        for &(lo, hi, _) in live.flat_map(|(&s, m)| &m.states[s as usize].edges) {
            cuts.extend([lo as u16, hi as u16 + 1]);
        }
        cuts.sort_unstable();
        cuts.dedup();
        let mut edges: Vec<(u8, u8, u32)> = Vec::new();
        for pair in cuts.windows(2) {
            let (lo, hi) = (pair[0] as u8, (pair[1] - 1) as u8);
            let next: Vec<u32> = tuple.iter().zip(&machines).map(|(&s, m)| m.step(s, lo)).collect();
            if skip == 1 && next[0] == NONE || next[skip..].iter().all(|&s| s == NONE) {
                continue;
            }
            let to = match number.get(&next) {
                Some(&to) => to,
                None => {
                    let to = others.states.len() as u32;
                    others.states.push(OtherState::default());
                    number.insert(next.clone(), to);
                    work.push(next);
                    to
                }
            };
            match edges.last_mut() {
                Some(last) if last.2 == to && last.1 as u16 + 1 == lo as u16 => last.1 = hi,
                _ => edges.push((lo, hi, to)),
            }
        }
        others.states[from as usize] = OtherState { edges, alternatives };
    }
    trim(others)
}

/// Removes the states from which no key ends.
fn trim(others: Others) -> Result<Others> {
    let n = others.states.len();
    let mut back: Vec<Vec<u32>> = vec![Vec::new(); n];
    for (i, s) in others.states.iter().enumerate() {
        s.edges.iter().for_each(|e| back[e.2 as usize].push(i as u32));
    }
    let mut live: Vec<bool> = others.states.iter().map(|s| !s.alternatives.is_empty()).collect();
    let mut work: Vec<u32> = (0..n as u32).filter(|&i| live[i as usize]).collect();
    while let Some(i) = work.pop() {
        for &p in &back[i as usize] {
            if !std::mem::replace(&mut live[p as usize], true) {
                work.push(p);
            }
        }
    }
    if !live[0] {
        return Ok(Others::default());
    }
    let mut next = 0;
    let renumbered: Vec<u32> = live
        .iter()
        .map(|&l| {
            next += l as u32;
            if l {
                next - 1
            } else {
                NONE
            }
        })
        .collect();
    let keep = |mut s: OtherState| {
        s.edges.retain_mut(|e| {
            e.2 = renumbered[e.2 as usize];
            e.2 != NONE
        });
        s
    };
    Ok(Others { states: others.states.into_iter().zip(&live).filter(|(_, &l)| l).map(|(s, _)| keep(s)).collect() })
}
