//! Several languages at once: whether any string is in all of some and in none of others, and the automaton of these strings.
//!
//! Languages are looked at together, as far as they lead together: a pattern that is large by itself may be small beside
//! another. To tell whether there is a string at all, no product is built. Tuples of states are visited depth-first, and the first that says yes ends the search: of constraints that can be met at
//! all, most are met by something short.

use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use super::bytes::Bytes;
use super::dfa;
use crate::error::Result;
use crate::fsm::NONE;
use crate::ir::{Dfa, DfaState};
use crate::limits::Budget;

/// A deterministic automaton.
pub trait Machine {
    /// `None` if it has no states.
    fn start(&self) -> Option<u32>;
    /// Appends the edges of a state, sorted; returns whether it accepts.
    fn look(&self, state: u32, edges: &mut Vec<(u8, u8, u32)>) -> Result<bool>;
    /// All bytes that occur in its strings, and perhaps others.
    fn bytes(&self) -> Bytes;
    /// Whether it accepts a string of nothing but `bytes`; perhaps it says so of some that have others.
    fn ends_within(&self, bytes: &Bytes) -> bool;
}

impl Machine for Dfa {
    fn start(&self) -> Option<u32> {
        (!self.states.is_empty()).then_some(0)
    }

    fn look(&self, state: u32, edges: &mut Vec<(u8, u8, u32)>) -> Result<bool> {
        let Some(state) = self.states.get(state as usize) else { return Ok(false) };
        edges.extend_from_slice(&state.edges);
        Ok(state.accept)
    }

    fn bytes(&self) -> Bytes {
        let mut bytes = Bytes::default();
        self.states.iter().flat_map(|s| &s.edges).for_each(|e| bytes.add(e.0, e.1));
        bytes
    }

    fn ends_within(&self, bytes: &Bytes) -> bool {
        let mut seen = vec![false; self.states.len()];
        let mut work: Vec<u32> = self.start().into_iter().collect();
        while let Some(s) = work.pop() {
            if std::mem::replace(&mut seen[s as usize], true) {
                continue;
            }
            let state = &self.states[s as usize];
            if state.accept {
                return true;
            }
            work.extend(state.edges.iter().filter(|e| bytes.meets(e.0, e.1)).map(|e| e.2));
        }
        false
    }
}

/// A state of each automaton; [`NONE`] where one has failed for good.
type Tuple = SmallVec<[u32; 4]>;

/// So many tuples are visited before bytes are looked at.
const GLANCE: usize = 64;

/// Whether no string is in every language of `all` (at least one) and in none of `not`. `None` if more than `most` tuples would
/// have to be visited to tell.
pub fn disjoint<M: Machine>(all: &[&M], not: &[&M], most: usize, budget: &Budget) -> Result<Option<bool>> {
    let machines: SmallVec<[&M; 4]> = all.iter().chain(not).copied().collect();
    let start: Tuple = machines.iter().map(|m| m.start().unwrap_or(NONE)).collect();
    let fails = |t: &Tuple| t[..all.len()].contains(&NONE);
    if fails(&start) {
        return Ok(Some(true));
    }
    let mut seen: FxHashSet<Tuple> = FxHashSet::default();
    seen.insert(start.clone());
    let mut work = vec![start];
    let mut cuts: Vec<u16> = vec![];
    let mut edges: SmallVec<[Vec<(u8, u8, u32)>; 4]> = machines.iter().map(|_| vec![]).collect();
    let mut visited = 0;
    while let Some(tuple) = work.pop() {
        budget.states(1)?;
        visited += 1;
        if visited == GLANCE && all.len() > 1 && !meet_in_bytes(all) {
            return Ok(Some(true));
        }
        cuts.clear();
        let (mut in_all, mut in_none) = (true, true);
        for (i, (&s, edges)) in tuple.iter().zip(&mut edges).enumerate() {
            edges.clear();
            let accepts = s != NONE && machines[i].look(s, edges)?;
            cuts.extend(edges.iter().flat_map(|e| [u16::from(e.0), u16::from(e.1) + 1]));
            match i < all.len() {
                true => in_all &= accepts,
                false => in_none &= !accepts,
            }
        }
        if in_all && in_none {
            return Ok(Some(false));
        }
        cuts.sort_unstable();
        cuts.dedup();
        let mut before: Option<Tuple> = None;
        for &byte in cuts.iter().filter(|&&c| c < 256) {
            let next: Tuple = edges.iter().map(|e| dfa::step(e, byte as u8)).collect();
            if fails(&next) || before.as_ref() == Some(&next) || !seen.insert(next.clone()) {
                continue;
            }
            if seen.len() > most {
                return Ok(None);
            }
            before = Some(next.clone());
            work.push(next);
        }
    }
    Ok(Some(true))
}

/// The strings that are in every language of `all` (at least one) and in none of `not`: states of the machines are looked at
/// as far as strings of all of them lead.
pub fn joint<M: Machine>(all: &[&M], not: &[&M], budget: &Budget) -> Result<Dfa> {
    let machines: SmallVec<[&M; 4]> = all.iter().chain(not).copied().collect();
    let start: Tuple = machines.iter().map(|m| m.start().unwrap_or(NONE)).collect();
    let fails = |t: &Tuple| t[..all.len()].contains(&NONE);
    let mut ids: FxHashMap<Tuple, u32> = FxHashMap::default();
    let mut tuples: Vec<Tuple> = if fails(&start) { vec![] } else { vec![start] };
    let mut made = Dfa::default();
    let mut cuts: Vec<u16> = vec![];
    let mut edges: SmallVec<[Vec<(u8, u8, u32)>; 4]> = machines.iter().map(|_| vec![]).collect();
    ids.extend(tuples.first().cloned().map(|t| (t, 0)));
    while let Some(tuple) = tuples.get(made.states.len()) {
        budget.states(1)?;
        cuts.clear();
        let mut accept = true;
        for (i, (&s, edges)) in tuple.iter().zip(&mut edges).enumerate() {
            edges.clear();
            let accepts = s != NONE && machines[i].look(s, edges)?;
            cuts.extend(edges.iter().flat_map(|e| [u16::from(e.0), u16::from(e.1) + 1]));
            accept &= accepts == (i < all.len());
        }
        cuts.sort_unstable();
        cuts.dedup();
        let mut state = DfaState { edges: vec![], accept };
        for w in cuts.windows(2) {
            let (lo, hi) = (w[0] as u8, (w[1] - 1) as u8);
            let next: Tuple = edges.iter().map(|e| dfa::step(e, lo)).collect();
            if fails(&next) {
                continue;
            }
            let target = *ids.entry(next).or_insert_with_key(|next| {
                tuples.push(next.clone());
                tuples.len() as u32 - 1
            });
            match state.edges.last_mut() {
                Some(e) if e.2 == target && e.1.checked_add(1) == Some(lo) => e.1 = hi,
                _ => state.edges.push((lo, hi, target)),
            }
        }
        made.states.push(state);
    }
    Ok(made.minimized())
}

/// Whether each of some languages has a string of bytes that all of them use. (A host name has no colon, and every URI has
/// one: with lengths in play, a product would be long in finding that out.)
fn meet_in_bytes<M: Machine>(all: &[&M]) -> bool {
    let shared = all.iter().map(|m| m.bytes()).reduce(Bytes::and).unwrap_or_default();
    all.iter().all(|m| m.ends_within(&shared))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::Limits;
    use crate::lower::dfa;
    use crate::regex::{regex, Alphabet, Anchoring};
    use proptest::prelude::*;

    fn automaton(pattern: &str) -> Dfa {
        let budget = Budget::new(Limits::default());
        dfa(&regex(pattern, Alphabet::Utf8, Anchoring::Search, &budget).unwrap(), &budget).unwrap()
    }

    fn patterns() -> impl Strategy<Value = Vec<Dfa>> {
        let part = proptest::sample::select(vec!["[ab]", "a*", "b+", "(ab)*", "a?b", "[^a]", "^", "$"]);
        let pattern = proptest::collection::vec(part, 1..4).prop_map(|v| automaton(&v.concat()));
        proptest::collection::vec(pattern, 1..3)
    }

    proptest! {
        #[test]
        fn as_the_products_say(all in patterns(), not in patterns()) {
            let budget = Budget::new(Limits::default());
            let mut product = all[0].clone();
            for d in &all[1..] {
                product = product.intersect(d, &budget).unwrap();
            }
            for d in &not {
                product = product.difference(d, &budget).unwrap();
            }
            let (all, not): (Vec<&Dfa>, Vec<&Dfa>) = (all.iter().collect(), not.iter().collect());
            prop_assert_eq!(disjoint(&all, &not, 1 << 20, &budget).unwrap(), Some(product.is_empty()));
            prop_assert_eq!(&joint(&all, &not, &budget).unwrap(), &product);
            if let Some(told) = disjoint(&all, &not, 3, &budget).unwrap() {
                prop_assert_eq!(told, product.is_empty());
            }
        }
    }

    #[test]
    fn nothing_is_in_an_empty_language() {
        let budget = Budget::new(Limits::default());
        let (none, any) = (Dfa::default(), automaton(""));
        assert_eq!(disjoint(&[&none], &[], 10, &budget).unwrap(), Some(true));
        assert_eq!(disjoint(&[&any], &[&none], 10, &budget).unwrap(), Some(false));
        assert_eq!(disjoint(&[&any], &[&any], 100, &budget).unwrap(), Some(true));
    }

    #[test]
    fn bytes_that_only_one_has_to_use_keep_languages_apart() {
        let budget = Budget::new(Limits::default());
        // Neither ends within the tuples that may be visited.
        let (host, uri) = (automaton("^[a-z.]{150,200}$"), automaton("^[a-z.]*:[a-z./]*$"));
        assert_eq!(disjoint(&[&host, &uri], &[], 100, &budget).unwrap(), Some(true));
        assert_eq!(disjoint(&[&host, &automaton("^[a-z.]*:?[a-z./]*$")], &[], 100, &budget).unwrap(), None);
    }
}
