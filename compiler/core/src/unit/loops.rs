//! Where a state of a unit may go on as long as it likes: what lets the entry builder accept whole subtrees of the vocabulary at
//! once (R6).
//!
//! A *loop* leads from a state back to it. In a *region* the states may be several: one that looks for a word anywhere in a string
//! goes from state to state, but as long as no quote or escape comes it cannot fail.

use std::sync::OnceLock;

use parking_lot::RwLock;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::{insert_range, ByteSet, Unit};
use crate::fsm::{Edge, Op, NONE};

/// How a state loops on itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loop {
    /// Bytes that lead back to the state.
    pub bytes: ByteSet,
    /// Every well-formed multi-byte UTF-8 character leads back to the state.
    pub utf8: bool,
    /// The counter that each round ticks.
    pub counter: Option<u8>,
}

/// The bytes on which a state, and every state that they lead to, goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// Of ASCII; and of those above, which count as parts of whole UTF-8 characters.
    pub bytes: ByteSet,
}

/// What is known of a unit's loops and regions.
#[derive(Debug, Default)]
pub(super) struct Loops {
    loops: OnceLock<FxHashMap<u32, Loop>>,
    /// By state; `None`: it is known to have none.
    regions: RwLock<FxHashMap<u32, Option<Region>>>,
}

/// Targets, each with the bytes that lead there, and all of those bytes.
#[derive(Default)]
struct Ways {
    to: SmallVec<[(u32, ByteSet); 4]>,
    alive: ByteSet,
}

fn both(a: &ByteSet, b: &ByteSet) -> ByteSet {
    std::array::from_fn(|w| a[w] & b[w])
}

fn without(a: &ByteSet, b: &ByteSet) -> ByteSet {
    std::array::from_fn(|w| a[w] & !b[w])
}

fn count(a: &ByteSet) -> u32 {
    a.iter().map(|w| w.count_ones()).sum()
}

/// Regions of more states than this are not looked for: patterns have fewer, but for those that count by their states.
const MOST_STATES: usize = 64;

type Range = (u8, u8);

/// The well-formed multi-byte characters: first bytes, and what follows them.
const CHARACTERS: [(Range, &[Range]); 8] = [
    ((0xc2, 0xdf), &[(0x80, 0xbf)]),
    ((0xe0, 0xe0), &[(0xa0, 0xbf), (0x80, 0xbf)]),
    ((0xe1, 0xec), &[(0x80, 0xbf), (0x80, 0xbf)]),
    ((0xed, 0xed), &[(0x80, 0x9f), (0x80, 0xbf)]),
    ((0xee, 0xef), &[(0x80, 0xbf), (0x80, 0xbf)]),
    ((0xf0, 0xf0), &[(0x90, 0xbf), (0x80, 0xbf), (0x80, 0xbf)]),
    ((0xf1, 0xf3), &[(0x80, 0xbf), (0x80, 0xbf), (0x80, 0xbf)]),
    ((0xf4, 0xf4), &[(0x80, 0x8f), (0x80, 0xbf), (0x80, 0xbf)]),
];

impl Unit {
    /// The loop of a state, if it has one over at least three bytes (whitespace, say).
    pub fn loop_of(&self, state: u32) -> Option<&Loop> {
        self.loops.loops.get_or_init(|| self.find_loops()).get(&state)
    }

    /// The region of a state, if it has one that is not too large. Counters are left alone in it.
    pub fn region_of(&self, state: u32) -> Option<Region> {
        if let Some(&known) = self.loops.regions.read().get(&state) {
            return known;
        }
        let found = self.find_region(state);
        self.loops.regions.write().insert(state, found);
        found
    }

    fn find_loops(&self) -> FxHashMap<u32, Loop> {
        let mut found = FxHashMap::default();
        for q in 0..self.states() as u32 {
            let fallback = self.fallback[q as usize];
            let width = |edges: &[Edge]| -> u32 {
                edges.iter().filter(|e| e.target == q).map(|e| (e.hi - e.lo) as u32 + 1).sum()
            };
            let wide = width(self.own_edges(q)) + if fallback != NONE { width(self.own_edges(fallback)) } else { 0 };
            if wide < 3 {
                continue;
            }
            let mut bytes = [[0u64; 4]; 2];
            let mut counter = None;
            let mut mixed = false;
            let mut b = 0usize;
            while b < 256 {
                let (_, hi, edges) = self.lookup(q, b as u8);
                if let Some(e) = edges.iter().find(|e| e.target == q) {
                    match *self.acts[e.act as usize] {
                        [] => insert_range(&mut bytes[0], b as u8, hi),
                        [Op::Tick { r }] => {
                            mixed |= counter.is_some_and(|c| c != r);
                            counter = Some(r);
                            insert_range(&mut bytes[1], b as u8, hi);
                        }
                        _ => {}
                    }
                }
                b = hi as usize + 1;
            }
            if mixed {
                continue;
            }
            let bytes = if counter.is_some() { bytes[1] } else { bytes[0] };
            if bytes != [0; 4] {
                found.insert(q, Loop { bytes, utf8: self.loops_on_utf8(q, counter), counter });
            }
        }
        found
    }

    /// Whether every well-formed multi-byte character leads from `q` back to `q`, ticking `counter` (only) on its first byte.
    fn loops_on_utf8(&self, q: u32, counter: Option<u8>) -> bool {
        CHARACTERS.iter().all(|(lead, rest)| {
            let first = |act: &[Op]| match (act, counter) {
                ([Op::Tick { r }], Some(c)) => *r == c,
                (act, c) => act.is_empty() && c.is_none(),
            };
            let behind = self.on_all(&[q], *lead, first).and_then(|now| self.behind(now, rest));
            behind.is_some_and(|behind| behind.as_slice() == [q])
        })
    }

    /// The states to which some bytes lead from others without an act, if all of them lead on.
    fn behind(&self, from: SmallVec<[u32; 4]>, bytes: &[(u8, u8)]) -> Option<SmallVec<[u32; 4]>> {
        bytes.iter().try_fold(from, |now, range| self.on_all(&now, *range, |act| act.is_empty()))
    }

    /// The states to which each byte of a range leads from each of `from` with a fitting act.
    fn on_all(&self, from: &[u32], (lo, hi): (u8, u8), fits: impl Fn(&[Op]) -> bool) -> Option<SmallVec<[u32; 4]>> {
        let mut next: SmallVec<[u32; 4]> = SmallVec::new();
        for &state in from {
            let mut b = lo as usize;
            while b <= hi as usize {
                let (_, end, edges) = self.lookup(state, b as u8);
                let e = edges.iter().find(|e| fits(&self.acts[e.act as usize]))?;
                if !next.contains(&e.target) {
                    next.push(e.target);
                }
                b = end as usize + 1;
            }
        }
        Some(next)
    }

    /// Takes bytes away until those that are left lead to nothing but states on which they lead on: those that lead to a state
    /// that cannot go on, or those on which it cannot, whichever are fewer.
    fn find_region(&self, state: u32) -> Option<Region> {
        let mut ways: FxHashMap<u32, Ways> = FxHashMap::default();
        let mut bytes = self.ways(state).alive;
        'fewer: while bytes != [0; 4] {
            let mut met = vec![state];
            let mut at = 0;
            while at < met.len() {
                if met.len() > MOST_STATES {
                    return None;
                }
                let from = ways.entry(met[at]).or_insert_with(|| self.ways(met[at])).to.clone();
                for (target, on) in from {
                    let on = both(&on, &bytes);
                    if on == [0; 4] || met.contains(&target) {
                        continue;
                    }
                    let missing = without(&bytes, &ways.entry(target).or_insert_with(|| self.ways(target)).alive);
                    if missing != [0; 4] {
                        bytes = without(&bytes, if count(&missing) > count(&on) { &on } else { &missing });
                        continue 'fewer;
                    }
                    met.push(target);
                }
                at += 1;
            }
            // A character that may begin may go on.
            if bytes[3] != 0 {
                insert_range(&mut bytes, 0x80, 0xbf);
            }
            return Some(Region { bytes });
        }
        None
    }

    /// Where characters lead from a state without an act, by their first byte.
    fn ways(&self, state: u32) -> Ways {
        let mut ways = Ways::default();
        let ascii = ((0, 0x7f), &[][..]);
        for &((lo, hi), rest) in std::iter::once(&ascii).chain(&CHARACTERS) {
            let mut b = lo as usize;
            while b <= hi as usize {
                let (_, end, edges) = self.lookup(state, b as u8);
                let end = end.min(hi);
                let e = edges.iter().find(|e| self.acts[e.act as usize].is_empty());
                let to = e.and_then(|e| self.behind(smallvec::smallvec![e.target], rest));
                if let Some(to) = to.filter(|to| to.iter().all(|&q| self.is_ordinary(q))) {
                    insert_range(&mut ways.alive, b as u8, end);
                    for target in to {
                        let known = ways.to.iter().position(|t| t.0 == target).unwrap_or_else(|| {
                            ways.to.push((target, [0; 4]));
                            ways.to.len() - 1
                        });
                        insert_range(&mut ways.to[known].1, b as u8, end);
                    }
                }
                b = end as usize + 1;
            }
        }
        ways
    }

    /// Whether whoever arrives in a state goes on from there, whatever was read. An alias's tail goes on as the state would.
    fn is_ordinary(&self, state: u32) -> bool {
        self.alias(state).is_none_or(|a| self.acts[a.act as usize].is_empty()) && !self.is_marked(state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fsm::{Fsm, State, PLAIN};
    use crate::unit::has_byte;

    /// States as lists of edges.
    fn unit(states: Vec<Vec<(u8, u8, u32)>>) -> Unit {
        let edge = |(lo, hi, target)| Edge { lo, hi, act: PLAIN, target };
        let state = |edges: Vec<_>| State { edges: edges.into_iter().map(edge).collect(), ..State::default() };
        let states = states.into_iter().map(state).collect();
        Unit::new("u", [0; 32], Fsm { states, acts: vec![vec![]], ..Fsm::default() })
    }

    #[test]
    fn a_search_is_one_region() {
        // "ab" somewhere, of letters and digits.
        let u = unit(vec![
            vec![(b'0', b'9', 0), (b'a', b'a', 1), (b'b', b'z', 0)],
            vec![(b'0', b'9', 0), (b'a', b'a', 1), (b'b', b'b', 2), (b'c', b'z', 0)],
            vec![(b'0', b'9', 2), (b'a', b'z', 2)],
        ]);
        for q in 0..3 {
            let region = u.region_of(q).unwrap();
            (0..=255u8).for_each(|b| {
                assert_eq!(has_byte(&region.bytes, b), b.is_ascii_digit() || b.is_ascii_lowercase(), "{q} {b}")
            });
        }
    }

    #[test]
    fn what_leads_to_an_end_is_not_in_the_region() {
        let bytes = |u: &Unit, q: u32| u.region_of(q).map(|r| (0..128u8).filter(|&b| has_byte(&r.bytes, b)).collect());
        let range = |from: u8, to: u8| Some((from..=to).collect::<Vec<u8>>());
        // A quote ends a string of letters; an escape goes on with another byte.
        let string = unit(vec![
            vec![(b'"', b'"', 1), (b'\\', b'\\', 2), (b'a', b'm', 0), (b'n', b'z', 3)],
            vec![],
            vec![(b'n', b'n', 0)],
            vec![(b'"', b'"', 1), (b'a', b'z', 0)],
        ]);
        assert_eq!(bytes(&string, 0), range(b'a', b'z'));
        assert_eq!(bytes(&string, 3), range(b'a', b'z'));
        assert_eq!(bytes(&string, 1), None);
        // Digits, and no more letters behind the first of them: either kind could be kept.
        let either = unit(vec![vec![(b'0', b'9', 1), (b'a', b'z', 0)], vec![(b'0', b'9', 1)]]);
        assert_eq!(bytes(&either, 0), range(b'a', b'z'));
        // Three letters and no more.
        let counted = unit(vec![vec![(b'a', b'z', 1)], vec![(b'a', b'z', 2)], vec![(b'a', b'z', 3)], vec![]]);
        assert_eq!(bytes(&counted, 0), None);
    }
}
