//! Whether any string is in all of some languages and in none of others, without building their product.
//!
//! Tuples of states are visited depth-first, and the first that says yes ends the search: of constraints that can be met at
//! all, most are met by something short.

use rustc_hash::FxHashSet;
use smallvec::SmallVec;

use crate::fsm::NONE;
use crate::ir::{Dfa, DfaState};

/// A state of each automaton; [`NONE`] where one has failed for good.
type Tuple = SmallVec<[u32; 4]>;

/// Whether no string is in every language of `all` (at least one) and in none of `not`. `None` if more than `most` tuples would
/// have to be visited to tell.
pub fn disjoint(all: &[&Dfa], not: &[&Dfa], most: usize) -> Option<bool> {
    let machines: SmallVec<[&Dfa; 4]> = all.iter().chain(not).copied().collect();
    let state = |i: usize, s: u32| -> Option<&DfaState> { machines[i].states.get(s as usize) };
    let start: Tuple = machines.iter().map(|m| if m.states.is_empty() { NONE } else { 0 }).collect();
    let fails = |t: &Tuple| t[..all.len()].contains(&NONE);
    if fails(&start) {
        return Some(true);
    }
    let mut seen: FxHashSet<Tuple> = FxHashSet::default();
    seen.insert(start.clone());
    let mut work = vec![start];
    let mut cuts: Vec<u16> = vec![];
    while let Some(tuple) = work.pop() {
        let accepts = |i: usize| state(i, tuple[i]).is_some_and(|s| s.accept);
        if (0..all.len()).all(accepts) && !(all.len()..machines.len()).any(accepts) {
            return Some(false);
        }
        cuts.clear();
        for (i, &s) in tuple.iter().enumerate() {
            let edges = state(i, s).map_or(&[][..], |s| &s.edges);
            cuts.extend(edges.iter().flat_map(|e| [u16::from(e.0), u16::from(e.1) + 1]));
        }
        cuts.sort_unstable();
        cuts.dedup();
        let mut before: Option<Tuple> = None;
        for &byte in cuts.iter().filter(|&&c| c < 256) {
            let next: Tuple = machines.iter().zip(&tuple).map(|(m, &s)| m.step(s, byte as u8)).collect();
            if fails(&next) || before.as_ref() == Some(&next) || !seen.insert(next.clone()) {
                continue;
            }
            if seen.len() > most {
                return None;
            }
            before = Some(next.clone());
            work.push(next);
        }
    }
    Some(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::{Budget, Limits};
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
            prop_assert_eq!(disjoint(&all, &not, 1 << 20), Some(product.is_empty()));
            if let Some(told) = disjoint(&all, &not, 3) {
                prop_assert_eq!(told, product.is_empty());
            }
        }
    }

    #[test]
    fn nothing_is_in_an_empty_language() {
        let (none, any) = (Dfa::default(), automaton(""));
        assert_eq!(disjoint(&[&none], &[], 10), Some(true));
        assert_eq!(disjoint(&[&any], &[&none], 10), Some(false));
        assert_eq!(disjoint(&[&any], &[&any], 100), Some(true));
    }
}
