//! Tests of the digests.

use proptest::prelude::*;

use super::*;
use crate::fsm::{Edge, KeyRegister, Op, RefEdge, State};
use crate::ir::PropertyOrder;
use crate::limits::Limits;

fn of(rules: &[LoweredRule]) -> Digests {
    digests(rules, &Budget::new(Limits::default())).unwrap()
}

fn rule(name: &str, fsm: Fsm) -> LoweredRule {
    LoweredRule { name: name.into(), fsm, holes: vec![] }
}

/// `byte` then each of `refs` in turn.
fn chain(byte: u8, refs: &[u32]) -> Fsm {
    let mut states = vec![State { edges: vec![Edge { lo: byte, hi: byte, act: 0, target: 1 }], ..State::default() }];
    for i in 0..refs.len() as u32 {
        states.push(State { refs: vec![RefEdge { callee: i, args: NONE, act: 0, target: i + 2 }], ..State::default() });
    }
    states.push(State { accept: 0, ..State::default() });
    Fsm { states, callees: refs.iter().map(|&r| Callee::Rule(r)).collect(), acts: vec![vec![]], ..Fsm::default() }
}

fn grammar(spec: &[(u8, Vec<u32>)]) -> Vec<LoweredRule> {
    spec.iter().map(|(b, refs)| rule("r", chain(*b, refs))).collect()
}

fn hex(d: Digest) -> String {
    d.iter().map(|b| format!("{b:02x}")).collect()
}

/// Units that refer to each other in circles, as bytes: verified together, each for itself not, and not under others' names.
#[test]
fn circles_as_bytes() {
    use crate::flat::{verify, Manifest};
    use crate::lower::grammar::LoweredGrammar;
    use crate::program::UnitStore;
    use std::sync::Arc;
    let circles = [
        vec![(b'a', vec![1]), (b'b', vec![0])],
        vec![(b'a', vec![1, 2]), (b'a', vec![2, 0]), (b'a', vec![0, 1])],
        vec![(b'a', vec![0])],
        vec![(b'a', vec![1]), (b'b', vec![2, 3]), (b'c', vec![1]), (b'd', vec![])],
    ];
    for circle in circles {
        let rules = grammar(&circle);
        let digests = of(&rules);
        let store = Arc::new(UnitStore::default());
        let artifact = store.install(LoweredGrammar { rules, root: 0, root_nullable: false, digests });
        let (manifest, units) = store.export(&artifact);
        let given: Vec<(Digest, &[u8])> = units.iter().map(|(d, b)| (*d, &b[..])).collect();
        assert_eq!(verify(&given), vec![], "{circle:?}");
        for i in 0..given.len().min(2) {
            let mut swapped = given.clone();
            swapped[i].0[0] ^= 1;
            assert!(!verify(&swapped).is_empty(), "{circle:?}");
        }
        let other = Arc::new(UnitStore::default());
        let by_digest = given.iter().copied().collect();
        let copy = other.take_over(&Manifest::parse(&manifest.to_bytes()).unwrap(), &by_digest).unwrap();
        assert_eq!(other.export(&copy), (manifest, units));
    }
}

#[test]
fn golden() {
    // A change here means that every stored unit is lost: raise FORMAT_VERSION with it.
    let d = of(&grammar(&[(b'a', vec![1]), (b'b', vec![]), (b'c', vec![2, 0])]));
    assert_eq!(crate::FORMAT_VERSION, 2);
    assert_eq!(hex(d.unit[0]), "e1da8ca1bff821fcba30469a5b2fdfc3c144d17410b8eb2a8bf73356ce70fee3");
    assert_eq!(hex(d.unit[1]), "0d5fcaa10150d08fd56c09a17e8e871c0e9fb3b9352cc7c4ff4c51b63822bc26");
    assert_eq!(hex(d.unit[2]), "98e46822fb8ffb29d35d2b866545cb1d650beba6a4457654aba6df60101a8cf6");
}

#[test]
fn names_and_places_do_not_matter() {
    let a = of(&grammar(&[(b'a', vec![1]), (b'b', vec![])]));
    let mut other = grammar(&[(b'b', vec![]), (b'x', vec![0]), (b'a', vec![0])]);
    other[2].name = "something else".into();
    let b = of(&other);
    assert_eq!(a.unit[0], b.unit[2]);
    assert_eq!(a.unit[1], b.unit[0]);
    assert_ne!(a.unit[0], b.unit[1]);
}

#[test]
fn equal_callees_are_one() {
    let twice = of(&grammar(&[(b'a', vec![1, 1]), (b'b', vec![])]));
    let both = of(&grammar(&[(b'a', vec![1, 2]), (b'b', vec![]), (b'b', vec![])]));
    assert_eq!(twice.unit[0], both.unit[0]);
}

#[test]
fn self_reference_is_not_reference_to_an_equal() {
    let own = of(&grammar(&[(b'a', vec![0])]));
    let two = of(&grammar(&[(b'a', vec![1]), (b'a', vec![])]));
    assert_ne!(own.unit[0], two.unit[0]);
    let (l, r) =
        (of(&grammar(&[(b'a', vec![0, 1]), (b'b', vec![])])), of(&grammar(&[(b'a', vec![1, 0]), (b'b', vec![])])));
    assert_ne!(l.unit[0], r.unit[0]);
}

#[test]
fn isomorphic_cycles_agree() {
    // Two circles that share a member, numbered in two ways.
    let a = of(&grammar(&[(b'm', vec![1, 3]), (b'a', vec![2]), (b'b', vec![0]), (b'c', vec![4]), (b'd', vec![0])]));
    let b = of(&grammar(&[(b'd', vec![4]), (b'b', vec![4]), (b'c', vec![0]), (b'a', vec![1]), (b'm', vec![3, 2])]));
    for (x, y) in [(0, 4), (1, 3), (2, 1), (3, 2), (4, 0)] {
        assert_eq!(a.unit[x], b.unit[y]);
    }
    let mut distinct = a.unit.clone();
    distinct.sort();
    distinct.dedup();
    assert_eq!(distinct.len(), 5);
}

#[test]
fn length_of_a_cycle_matters_where_one_member_is_marked() {
    let cycle =
        |n: u32| grammar(&(0..n).map(|i| (if i == 0 { b'm' } else { b'a' }, vec![(i + 1) % n])).collect::<Vec<_>>());
    let all: Vec<Vec<Digest>> = (2..7).map(|n| of(&cycle(n)).unit).collect();
    let mut flat: Vec<Digest> = all.concat();
    let total = flat.len();
    flat.sort();
    flat.dedup();
    assert_eq!(flat.len(), total, "all members of all cycles differ");
}

#[test]
fn members_alike_are_one_unit() {
    let d = of(&grammar(&[(b'a', vec![1]), (b'a', vec![2]), (b'a', vec![0])]));
    assert_eq!(d.unit[0], d.unit[1]);
    assert_eq!(d.unit[1], d.unit[2]);
}

#[test]
fn holes_are_holes_in_the_unit_and_bound_in_the_node() {
    let mut open = chain(b'h', &[0]);
    open.callees = vec![Callee::Hole(0)];
    let bound = |to: u32| {
        let mut g = grammar(&[(b'a', vec![]), (b'b', vec![]), (b'r', vec![3])]);
        g.push(LoweredRule { name: "dispatch".into(), fsm: open.clone(), holes: vec![to] });
        of(&g)
    };
    let (x, y, circle) = (bound(0), bound(1), bound(2));
    assert_eq!(x.unit[3], y.unit[3]);
    assert_ne!(x.node[3], y.node[3]);
    assert_ne!(x.unit[2], y.unit[2]);
    assert_eq!(circle.unit[3], x.unit[3], "a circle through a binding leaves the unit alone");
    assert_ne!(circle.node[3], x.node[3]);
    assert_ne!(circle.node[2], circle.node[3]);
}

#[test]
fn deep_chains_need_no_stack() {
    let n = 200_000u32;
    let g: Vec<LoweredRule> =
        (0..n).map(|i| rule("", chain(b'a', &if i + 1 < n { vec![i + 1] } else { vec![] }))).collect();
    let d = of(&g);
    assert_ne!(d.unit[0], d.unit[1]);
}

type Spec = Vec<(u8, Vec<u32>)>;

fn any_grammar() -> impl Strategy<Value = Spec> {
    (1usize..9)
        .prop_flat_map(|n| proptest::collection::vec((b'a'..b'c', proptest::collection::vec(0..n as u32, 0..4)), n))
}

/// Whether two rules generate the same shape down to any depth (the largest bisimulation): the oracle.
fn bisimilar(g: &Spec, h: &Spec) -> Vec<Vec<bool>> {
    let mut same = vec![vec![true; h.len()]; g.len()];
    loop {
        let mut changed = false;
        for i in 0..g.len() {
            for j in 0..h.len() {
                let ok = g[i].0 == h[j].0
                    && g[i].1.len() == h[j].1.len()
                    && g[i].1.iter().zip(&h[j].1).all(|(&a, &b)| same[a as usize][b as usize]);
                if same[i][j] && !ok {
                    same[i][j] = false;
                    changed = true;
                }
            }
        }
        if !changed {
            return same;
        }
    }
}

proptest! {
    #[test]
    fn renumbering_keeps_digests(g in any_grammar(), seed in any::<u64>()) {
        let n = g.len();
        let mut to: Vec<u32> = (0..n as u32).collect();
        let mut s = seed;
        for i in (1..n).rev() {
            s = s.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            to.swap(i, (s >> 33) as usize % (i + 1));
        }
        let mut h: Spec = vec![(0, vec![]); n];
        for (i, (b, refs)) in g.iter().enumerate() {
            h[to[i] as usize] = (*b, refs.iter().map(|&r| to[r as usize]).collect());
        }
        let (a, b) = (of(&grammar(&g)), of(&grammar(&h)));
        for (x, &place) in a.unit.iter().zip(&to) {
            prop_assert_eq!(x, &b.unit[place as usize]);
        }
    }

    #[test]
    fn equal_digests_mean_equal_structure(g in any_grammar(), h in any_grammar()) {
        let (a, b) = (of(&grammar(&g)), of(&grammar(&h)));
        let same = bisimilar(&g, &h);
        for (x, row) in a.unit.iter().zip(same) {
            for (y, same) in b.unit.iter().zip(row) {
                prop_assert!(x != y || same);
            }
        }
    }

    #[test]
    fn every_part_counts(pick in 0usize..12, v in 1u32..4) {
        let mut base = chain(b'a', &[0]);
        base.callees = vec![Callee::Hole(0)];
        base.acts.push(vec![Op::Load { r: 0, min: 1, max: 2 }, Op::Avail { mask: 0 }]);
        base.args.push(vec![(0, 5)]);
        base.states[1].refs[0].args = 0;
        base.states[0].edges[0].act = 1;
        base.counters = 1;
        base.keys = Some(KeyRegister { order: PropertyOrder::Any, keys: 9, required: vec![1], open: false, masks: vec![vec![1]] });
        let mut m = base.clone();
        let keys = m.keys.as_mut().unwrap();
        match pick {
            0 => m.states[0].edges[0].hi += v as u8,
            1 => m.states[0].edges[0].target += 1,
            2 => m.states[0].edges[0].act = 0,
            3 => m.states[0].accept = 0,
            4 => m.states[0].fallback = v,
            5 => m.states[1].refs[0].args = NONE,
            6 => m.args[0][0].1 += v,
            7 => m.acts[1][0] = Op::Load { r: 0, min: 1, max: 2 + v },
            8 => keys.masks[0].push(v + 1),
            9 => keys.required.push(v + 1),
            10 => m.callees[0] = Callee::Hole(v),
            _ => m.states[2].tokens.push(crate::fsm::TokenEdge { token: v, act: 0, target: 0 }),
        }
        prop_assert_ne!(of(&[rule("", base)]).unit[0], of(&[rule("", m)]).unit[0]);
    }
}
