//! Minimization of random FSMs: the language stays, the form is canonical and as small as it can be.

use proptest::prelude::*;

use super::determinize::determinize;
use super::minimize::minimize;
use super::nfa::{Nfa, NfaState};
use super::run::accepts;
use crate::fsm::{Edge, Fsm, Op, RefEdge, State, DEAD, NONE, PLAIN, REJECT};
use crate::limits::{Budget, Limits};

/// What a state is made from: edges `(lo, length - 1, target, act)`, acceptance, fallback.
type Drawn = (Vec<(u8, u8, u32, u16)>, u8, u32);

/// A random automaton with `n` states; edges on `a` to `h`, mostly short ranges. `fallbacks`: some states have one, and
/// some edges lead to `DEAD`. `acts`: some edges tick, so the automaton is nondeterministic.
fn automaton(n: u32, fallbacks: bool, acts: bool) -> impl Strategy<Value = Fsm> {
    let state = (prop::collection::vec((0..8u8, 0..3u8, 0..n + 1, 0..4u16), 0..4), 0..4u8, 0..n * 2);
    prop::collection::vec(state, n as usize).prop_map(move |states| {
        // The last third of the states has no fallback and may be one.
        let plain = n - n / 3;
        let make = |(i, (edges, accept, fallback)): (usize, Drawn)| {
            let has = fallbacks && (i as u32) < plain && fallback < n / 3;
            let mut taken = [false; 8];
            let mut state = State {
                fallback: if has { plain + fallback } else { NONE },
                accept: if accept == 0 { PLAIN } else { REJECT },
                ..State::default()
            };
            for (lo, len, target, act) in edges {
                let hi = (lo + len).min(7);
                let act = u16::from(acts && act == 0);
                if act == 0 && (lo..=hi).any(|b| std::mem::replace(&mut taken[usize::from(b)], true)) {
                    continue;
                }
                let target = if target == n { DEAD } else { target };
                state.edges.push(Edge { lo: b'a' + lo, hi: b'a' + hi, act, target });
            }
            state.edges.sort_unstable();
            state
        };
        let states = states.into_iter().enumerate().map(make).collect();
        Fsm { states, acts: vec![vec![], vec![Op::Load { r: 0, min: 0, max: 1 }]], counters: 1, ..Fsm::default() }
    })
}

/// The same automaton with its states (but the start) in another order.
fn permuted(fsm: &Fsm, dice: &[u32]) -> Fsm {
    let n = fsm.states.len();
    let mut order: Vec<usize> = (0..n).collect();
    for i in 1..n {
        order.swap(i, 1 + dice[i % dice.len()] as usize % i.max(1));
    }
    let mut number = vec![0; n];
    for (new, &old) in order.iter().enumerate() {
        number[old] = new as u32;
    }
    let go = |t: u32| number.get(t as usize).copied().unwrap_or(t);
    let mut states: Vec<State> = order.iter().map(|&old| fsm.states[old].clone()).collect();
    for s in &mut states {
        s.edges.iter_mut().for_each(|e| e.target = go(e.target));
        s.edges.reverse();
        s.fallback = go(s.fallback);
    }
    Fsm { states, ..fsm.clone() }
}

/// The number of classes of useful states, by the textbook's table of distinguishable pairs.
fn smallest(fsm: &Fsm) -> usize {
    let n = fsm.states.len();
    let to = |s: usize, b: u8| {
        fsm.states[s].edges.iter().find(|e| e.lo <= b && b <= e.hi && e.target != DEAD).map(|e| e.target as usize)
    };
    let mut reached = vec![false; n];
    let mut stack = vec![0];
    while let Some(s) = stack.pop() {
        if !std::mem::replace(&mut reached[s], true) {
            stack.extend((b'a'..=b'h').filter_map(|b| to(s, b)));
        }
    }
    // State n is where everything fails.
    let accept = |s: usize| s < n && fsm.states[s].accept != REJECT;
    let mut differ = vec![vec![false; n + 1]; n + 1];
    loop {
        let mut changed = false;
        for p in 0..=n {
            for q in 0..=n {
                let step = |s: usize, b| if s == n { n } else { to(s, b).unwrap_or(n) };
                if !differ[p][q] && (accept(p) != accept(q) || (b'a'..=b'h').any(|b| differ[step(p, b)][step(q, b)])) {
                    differ[p][q] = true;
                    changed = true;
                }
            }
        }
        if !changed {
            break;
        }
    }
    let useful: Vec<usize> = (0..n).filter(|&s| reached[s] && differ[s][n]).collect();
    useful.iter().enumerate().filter(|&(i, &s)| useful[..i].iter().all(|&t| differ[s][t])).count().max(1)
}

fn texts(dice: &[u32]) -> Vec<Vec<u8>> {
    dice.iter().map(|d| (0..d % 9).map(|i| b'a' + (d >> (4 + 3 * i) & 7) as u8).collect()).collect()
}

fn check(fsm: &Fsm, dice: &[u32]) {
    let small = minimize(fsm.clone());
    for text in texts(dice) {
        assert_eq!(accepts(&small, &text), accepts(fsm, &text), "{:?}", String::from_utf8_lossy(&text));
    }
    assert_eq!(minimize(small.clone()), small);
    assert_eq!(minimize(permuted(fsm, dice)), small);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_500))]

    #[test]
    fn deterministic(fsm in automaton(10, false, false), dice in prop::collection::vec(any::<u32>(), 100)) {
        check(&fsm, &dice);
        prop_assert_eq!(minimize(fsm.clone()).states.len(), smallest(&fsm));
    }

    #[test]
    fn with_fallbacks(fsm in automaton(10, true, false), dice in prop::collection::vec(any::<u32>(), 100)) {
        check(&fsm, &dice);
    }

    #[test]
    fn nondeterministic(fsm in automaton(8, false, true), dice in prop::collection::vec(any::<u32>(), 100)) {
        let small = minimize(fsm.clone());
        for text in texts(&dice) {
            prop_assert_eq!(accepts(&small, &text), accepts(&fsm, &text));
        }
        prop_assert_eq!(minimize(small.clone()).states.len(), small.states.len());
    }
}

/// Loops of one state, which are classed without refinement: equal ones are one, a state before a loop that does the same
/// as the loop joins it, and so does a looping state that leads to its equal.
#[test]
fn loops_of_one_state() {
    let edge = |b: u8, target| Edge { lo: b, hi: b, act: PLAIN, target };
    let state = |edges: Vec<Edge>, accept: bool| State {
        edges,
        accept: if accept { PLAIN } else { REJECT },
        ..State::default()
    };
    let fsm = |states| Fsm { states, acts: vec![vec![]], ..Fsm::default() };
    let joined = fsm(vec![
        state(vec![edge(b'a', 1), edge(b'b', 2)], true),
        state(vec![edge(b'a', 1), edge(b'b', 2)], true),
        state(vec![edge(b'a', 2), edge(b'b', 2)], true),
    ]);
    assert_eq!(minimize(joined).states, [state(vec![Edge { lo: b'a', hi: b'b', act: PLAIN, target: 0 }], true)]);
    // A larger cycle that equals a loop.
    let cycle = fsm(vec![
        state(vec![edge(b'a', 1), edge(b'c', 3)], true),
        state(vec![edge(b'a', 2), edge(b'c', 3)], true),
        state(vec![edge(b'a', 1), edge(b'c', 3)], true),
        state(vec![edge(b'a', 3), edge(b'c', 3)], true),
    ]);
    assert_eq!(minimize(cycle).states, [state(vec![edge(b'a', 0), edge(b'c', 0)], true)]);
}

#[test]
fn references_are_labels() {
    let to = |callee, target| RefEdge { callee, args: NONE, act: PLAIN, target };
    let end = State { accept: PLAIN, ..State::default() };
    let mut fsm = Fsm {
        states: vec![
            State { refs: vec![to(2, 1), to(0, 2)], ..State::default() },
            State { refs: vec![to(0, 3)], ..State::default() },
            State { refs: vec![to(0, 4)], ..State::default() },
            end.clone(),
            end,
        ],
        callees: vec![crate::fsm::Callee::Rule(9), crate::fsm::Callee::Rule(1), crate::fsm::Callee::Rule(4)],
        acts: vec![vec![]],
        ..Fsm::default()
    };
    let small = minimize(fsm.clone());
    assert_eq!(small.states.len(), 3);
    // Sorted, without the one that is not used.
    assert_eq!(small.callees, [crate::fsm::Callee::Rule(4), crate::fsm::Callee::Rule(9)]);
    fsm.states[2].refs[0].callee = 1;
    assert_eq!(minimize(fsm).states.len(), 4);
}

/// Marked states are like no others, and no set of members mixes both kinds: an edge to such a set is two.
#[test]
fn marks_stay_apart() {
    let edge = |b: u8, target| Edge { lo: b, hi: b, act: PLAIN, target };
    let state = |edges: &[Edge], distinct| NfaState { edges: edges.into(), distinct, ..NfaState::default() };
    // Two ways to read `ab*c`, of which one is marked behind the `a`; its mark goes for what follows by epsilon, too.
    let mut nfa = Nfa { states: vec![state(&[edge(b'a', 1), edge(b'a', 2)], false)], ..Nfa::default() };
    nfa.states.push(state(&[edge(b'b', 1), edge(b'c', 4)], false));
    nfa.states.push(state(&[], true));
    nfa.states[2].epsilon.push((PLAIN, 3));
    nfa.states.push(state(&[edge(b'b', 3), edge(b'c', 4)], false));
    nfa.states.push(NfaState { accept: PLAIN, ..NfaState::default() });
    let fsm = minimize(determinize(nfa, 0, &Budget::new(Limits::default())).unwrap());
    let marked: Vec<u32> = fsm.marked().collect();
    assert_eq!(fsm.states[0].edges, [edge(b'a', 1), edge(b'a', 2)]);
    assert_eq!(marked.len(), 1);
    let (plain, marked) = (3 - marked[0], marked[0]);
    // Behind a `b` nothing is marked any more.
    assert_eq!(fsm.states[marked as usize].edges, [edge(b'b', plain), edge(b'c', 3)]);
    assert_eq!(fsm.states[plain as usize].edges, [edge(b'b', plain), edge(b'c', 3)]);
    for (text, yes) in [(&b"abbc"[..], true), (b"ac", true), (b"ab", false)] {
        assert_eq!(accepts(&fsm, text), yes);
    }
    // Without the mark it is the smaller automaton.
    let mut plain = fsm.clone();
    plain.states[marked as usize].distinct = false;
    assert_eq!(minimize(plain).states.len(), 3);
}
