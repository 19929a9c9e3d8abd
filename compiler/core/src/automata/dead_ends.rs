//! Whether counters lead an FSM into dead ends.
//!
//! A product of two FSMs with counters can hold configurations (a state with the values of its counters) from which
//! nothing is accepted any more, though the state alone could: `a{2,3}` within at least four characters. Such a product must
//! not be used as it is, since a byte would be allowed after which there is no way to end.

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::fsm::{Fsm, Op, DEAD, REJECT, UNBOUNDED};

/// `(need, room)` of each counter.
pub(super) type Counters = SmallVec<[(u32, u32); 4]>;

/// Whether `fsm`, which has neither references nor fallbacks, has a reachable configuration that cannot reach
/// acceptance; `None` if there are more than `most` configurations, or other registers than counters.
pub fn has_dead_ends(fsm: &Fsm, most: usize) -> Option<bool> {
    let start = (0u32, Counters::from_elem((0, 0), usize::from(fsm.counters)));
    let mut number: FxHashMap<(u32, Counters), u32> = FxHashMap::default();
    let mut list = vec![start.clone()];
    number.insert(start, 0);
    // Edges backwards, as pairs (to, from); and what accepts.
    let mut back: Vec<(u32, u32)> = vec![];
    let mut live: Vec<u32> = vec![];
    let mut next = 0;
    while let Some((state, counters)) = list.get(next).cloned() {
        let from = next as u32;
        next += 1;
        let state = fsm.states.get(state as usize)?;
        if state.accept != REJECT && run(acts(fsm, state.accept)?, &counters)?.is_some() {
            live.push(from);
        }
        let edges = state.edges.iter().map(|e| (e.act, e.target));
        for (act, target) in edges.chain(state.tokens.iter().map(|e| (e.act, e.target))) {
            if target == DEAD {
                continue;
            }
            let Some(counters) = run(acts(fsm, act)?, &counters)? else { continue };
            let to = match number.get(&(target, counters.clone())) {
                Some(&to) => to,
                None if list.len() == most => return None,
                None => {
                    list.push((target, counters.clone()));
                    number.insert((target, counters), list.len() as u32 - 1);
                    list.len() as u32 - 1
                }
            };
            back.push((to, from));
        }
    }
    back.sort_unstable();
    let mut reached = vec![false; list.len()];
    let mut alive = 0;
    while let Some(to) = live.pop() {
        if std::mem::replace(&mut reached[to as usize], true) {
            continue;
        }
        alive += 1;
        let first = back.partition_point(|e| e.0 < to);
        live.extend(back[first..].iter().take_while(|e| e.0 == to).map(|e| e.1));
    }
    Some(alive < list.len())
}

fn acts(fsm: &Fsm, act: u16) -> Option<&[Op]> {
    Some(fsm.acts.get(usize::from(act))?)
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
