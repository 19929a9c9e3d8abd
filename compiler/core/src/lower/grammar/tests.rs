//! Tests of whole grammars.

use super::*;
use crate::ir::{DispatchRule, OtherProperties, Property, PropertyOrder, Rule, Separators};
use crate::limits::Limits;
use crate::lower::simulator::Simulator;

fn grammar(bodies: Vec<Body>) -> Grammar {
    let rules = bodies.into_iter().enumerate().map(|(i, body)| Rule { name: format!("r{i}"), body }).collect();
    Grammar { rules, root: 0 }
}

fn lower(g: &Grammar) -> Result<LoweredGrammar> {
    lower_grammar(g, &Budget::new(Limits::default()))
}

fn object(properties: &[(&str, Expr, bool)]) -> ObjectRule {
    ObjectRule {
        properties: properties
            .iter()
            .map(|(n, v, required)| Property { name: n.to_string(), value: Some(v.clone()), required: *required })
            .collect(),
        others: vec![],
        order: PropertyOrder::Any,
        min_properties: 0,
        distinct: false,
        max_properties: None,
        space: Separators::compact(),
    }
}

#[test]
fn only_what_is_reached_is_lowered_and_aliases_are_resolved() {
    let g = grammar(vec![
        Body::Expr(Expr::seq([Expr::lit("a"), Expr::Rule(1)])),
        Body::Expr(Expr::Rule(2)),
        Body::Expr(Expr::Rule(3)),
        Body::Expr(Expr::lit("b")),
        Body::Expr(Expr::lit("unused")),
    ]);
    let l = lower(&g).unwrap();
    assert_eq!(l.rules.iter().map(|r| r.name.as_str()).collect::<Vec<_>>(), ["r0", "r3"]);
    assert!(Simulator::new(&g).unwrap().accepts(b"ab"));
}

#[test]
fn aliases_of_one_rule_are_one_reference() {
    let twice = grammar(vec![
        Body::Expr(Expr::alt([Expr::Rule(1), Expr::Rule(2)])),
        Body::Expr(Expr::lit("b")),
        Body::Expr(Expr::Rule(1)),
    ]);
    let once = grammar(vec![Body::Expr(Expr::seq([Expr::Empty, Expr::Rule(1)])), Body::Expr(Expr::lit("b"))]);
    assert_eq!(lower(&twice).unwrap().digests, lower(&once).unwrap().digests);
}

#[test]
fn nullable_rules_are_optional_where_they_are_used() {
    let g = grammar(vec![
        Body::Expr(Expr::seq([Expr::Rule(1), Expr::Rule(2)])),
        Body::Expr(Expr::alt([Expr::Empty, Expr::seq([Expr::lit("a"), Expr::Rule(1)])])),
        Body::Expr(Expr::lit("b").opt()),
    ]);
    let sim = Simulator::new(&g).unwrap();
    assert!(sim.grammar.root_nullable);
    for t in ["", "a", "aaa", "b", "aab"] {
        assert!(sim.accepts(t.as_bytes()), "{t}");
    }
    assert!(!sim.accepts(b"bb") && !sim.accepts(b"ba"));
}

#[test]
fn what_never_ends_is_cut_out() {
    // Rule 1 never ends; rule 2 holds an empty intersection, which only its automaton shows.
    let g = grammar(vec![
        Body::Expr(Expr::alt([
            Expr::seq([Expr::lit("a"), Expr::Rule(1)]),
            Expr::seq([Expr::lit("b"), Expr::Rule(2)]),
            Expr::seq([Expr::lit("c"), Expr::Rule(3)]),
        ])),
        Body::Expr(Expr::seq([Expr::lit("x"), Expr::Rule(1)])),
        Body::Expr(Expr::And(vec![Expr::lit("p"), Expr::lit("q")])),
        Body::Object(object(&[("k", Expr::Rule(2), false), ("l", Expr::lit("1"), false)])),
    ]);
    let sim = Simulator::new(&g).unwrap();
    assert!(sim.accepts(b"c{}") && sim.accepts(b"c{\"l\":1}"));
    let start = sim.start();
    assert_eq!(sim.bytes(&start), [b'c']);
    assert_eq!(sim.dead_end(20, |n| n - 1), None);
    assert_eq!(sim.grammar.rules.len(), 2);
}

#[test]
fn a_root_without_strings_is_unsatisfiable() {
    for body in [
        Body::Expr(Expr::Never),
        Body::Expr(Expr::seq([Expr::lit("a"), Expr::Rule(0)])),
        Body::Expr(Expr::Rule(0)),
        Body::Expr(Expr::And(vec![Expr::lit("p"), Expr::lit("q")])),
        Body::Object(object(&[("k", Expr::Never, true)])),
        Body::Object(ObjectRule { min_properties: 2, ..object(&[("k", Expr::lit("1"), true)]) }),
        Body::Object(object(&[("k", Expr::Rule(0), true)])),
    ] {
        assert!(matches!(lower(&grammar(vec![body])), Err(CompileError::Unsatisfiable { .. })));
    }
    let empty = Simulator::new(&grammar(vec![Body::Expr(Expr::Empty)])).unwrap();
    assert!(empty.accepts(b"") && !empty.accepts(b"a"));
}

#[test]
fn recursion_in_an_object_that_may_stop_is_fine() {
    let g = grammar(vec![Body::Object(object(&[("k", Expr::Rule(0), false)]))]);
    assert!(Simulator::new(&g).unwrap().accepts(b"{\"k\":{\"k\":{}}}"));
}

#[test]
fn unknown_rules_are_errors() {
    assert!(matches!(lower(&grammar(vec![Body::Expr(Expr::Rule(7))])), Err(CompileError::Invalid { .. })));
    assert!(matches!(lower(&Grammar::default()), Err(CompileError::Invalid { .. })));
}

/// The same grammar with its rules in another order.
fn renumbered(g: &Grammar, to: &[u32]) -> Grammar {
    fn expr(e: &mut Expr, to: &[u32]) {
        match e {
            Expr::Rule(r) | Expr::Call { rule: r, .. } => *r = to[*r as usize],
            Expr::Seq(v) | Expr::Alt(v) | Expr::And(v) => v.iter_mut().for_each(|e| expr(e, to)),
            Expr::Repeat { body, .. } => expr(body, to),
            _ => {}
        }
    }
    let mut rules = vec![None; g.rules.len()];
    for (i, r) in g.rules.iter().enumerate() {
        let mut r = r.clone();
        match &mut r.body {
            Body::Expr(e) => expr(e, to),
            Body::Object(o) => {
                o.properties.iter_mut().flat_map(|p| &mut p.value).for_each(|e| expr(e, to));
                o.others.iter_mut().for_each(|p| expr(&mut p.value, to));
            }
            Body::Dispatch(d) => d.handlers.iter_mut().for_each(|e| expr(e, to)),
            Body::JsonString => {}
        }
        rules[to[i] as usize] = Some(r);
    }
    Grammar { rules: rules.into_iter().flatten().collect(), root: to[g.root as usize] }
}

/// Any JSON, tools with it, and a dispatch over them.
fn sample() -> Grammar {
    let ws = || Expr::Class(vec![(b' ', b' ')]).star();
    let list = |r| {
        let more = Expr::seq([ws(), Expr::lit(","), ws(), Expr::Rule(r)]).star();
        Expr::seq([Expr::lit("["), ws(), Expr::seq([Expr::Rule(r), more]).opt(), ws(), Expr::lit("]")])
    };
    let open = ObjectRule {
        others: vec![OtherProperties { keys: None, value: Expr::Rule(1), marks: 0 }],
        ..object(&[("é", Expr::alt([Expr::Rule(4), Expr::Rule(3), Expr::lit("0")]), false)])
    };
    grammar(vec![
        Body::Dispatch(DispatchRule {
            triggers: vec![b"<".to_vec(), b"<<x".to_vec()],
            handlers: vec![Expr::alt([Expr::Rule(2), Expr::Rule(4)]), Expr::Rule(3)],
            stops: vec![],
            excludes: vec![],
            min_tags: 0,
            max_tags: None,
            stop_after_last: false,
            open_end: true,
        }),
        Body::Expr(Expr::alt([Expr::json_string(5, 0, None), Expr::Rule(2), Expr::Rule(4), Expr::lit("null")])),
        Body::Object(open),
        Body::Object(object(&[("a", Expr::Rule(1), true), ("b", Expr::Rule(4), false), ("c", Expr::Rule(0), false)])),
        Body::Expr(list(1)),
        Body::JsonString,
    ])
}

#[test]
fn digests_do_not_depend_on_numbers() {
    let g = sample();
    let first = lower(&g).unwrap();
    let mut by_name: Vec<_> = first.rules.iter().map(|r| r.name.clone()).zip(&first.digests.node).collect();
    by_name.sort();
    let mut to: Vec<u32> = (0..6).collect();
    let mut seed = 1u64;
    for _ in 0..200 {
        for i in (1..6).rev() {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            to.swap(i, (seed >> 33) as usize % (i + 1));
        }
        let other = lower(&renumbered(&g, &to)).unwrap();
        let mut names: Vec<_> = other.rules.iter().map(|r| r.name.clone()).zip(&other.digests.node).collect();
        names.sort();
        assert_eq!(names, by_name);
        for (i, r) in other.rules.iter().enumerate() {
            let j = first.rules.iter().position(|f| f.name == r.name).unwrap();
            assert_eq!(other.digests.unit[i], first.digests.unit[j]);
            // Entries are found by state number, so these must agree too.
            let bytes = |f: &Fsm| f.states.iter().map(|s| (s.edges.clone(), s.fallback)).collect::<Vec<_>>();
            assert_eq!(bytes(&r.fsm), bytes(&first.rules[j].fsm));
        }
    }
    assert_eq!(crate::digest::digests(&first.rules, &Budget::new(Limits::default())).unwrap(), first.digests);
}

#[test]
fn the_order_of_properties_does_not_matter_where_any_order_is_allowed() {
    let a = object(&[("a", Expr::lit("1"), true), ("b", Expr::Rule(1), false), ("ab", Expr::lit("2"), true)]);
    let mut b = a.clone();
    b.properties.reverse();
    let g = |o: ObjectRule| grammar(vec![Body::Object(o), Body::Expr(Expr::lit("x"))]);
    assert_eq!(lower(&g(a.clone())).unwrap(), lower(&g(b.clone())).unwrap());
    let declared = |o: ObjectRule| g(ObjectRule { order: PropertyOrder::Declared, ..o });
    assert_ne!(lower(&declared(a)).unwrap().digests, lower(&declared(b)).unwrap().digests);
}

#[test]
fn a_long_chain_needs_no_stack() {
    let n = 20_000u32;
    let next = |i: u32| Expr::seq([Expr::lit("a"), if i + 1 < n { Expr::Rule(i + 1) } else { Expr::Empty }]);
    let g = grammar((0..n).map(|i| Body::Expr(next(i))).collect());
    assert_eq!(lower(&g).unwrap().rules.len(), n as usize);
}

/// `GRAMARY_TIMES=200 cargo test --release times -- --nocapture` prints what lowering costs.
#[test]
fn times() {
    let Some(rounds) = std::env::var("GRAMARY_TIMES").ok().and_then(|r| r.parse::<u32>().ok()) else { return };
    let names: Vec<String> = (0..20).map(|i| format!("property_{}_{i}", "abcdefghij".repeat(i % 2))).collect();
    let value = |i: usize| match i % 5 {
        0 => Expr::json_string(1, 0, None),
        1 => Expr::alt([Expr::lit("true"), Expr::lit("false")]),
        2 => Expr::alt([Expr::lit("\"red\""), Expr::lit("\"green\""), Expr::lit("\"blue\"")]),
        3 => Expr::json_string(1, 1, Some(100)),
        _ => Expr::Rule(2),
    };
    let list: Vec<_> = names.iter().enumerate().map(|(i, n)| (n.as_str(), value(i), i % 3 == 0)).collect();
    for (what, open, order) in [
        ("closed, any", false, PropertyOrder::Any),
        ("closed, declared", false, PropertyOrder::Declared),
        ("open, any", true, PropertyOrder::Any),
        ("open, declared", true, PropertyOrder::Declared),
    ] {
        let mut o = ObjectRule { order, space: Separators::flexible(), ..object(&list) };
        if open {
            o.others = vec![OtherProperties { keys: None, value: Expr::Rule(2), marks: 0 }];
        }
        let g = grammar(vec![Body::Object(o), Body::JsonString, Body::Expr(Expr::lit("x"))]);
        let mut best = f64::MAX;
        let mut states = 0;
        for _ in 0..rounds {
            let start = std::time::Instant::now();
            states = lower(&g).unwrap().rules[0].fsm.states.len();
            best = best.min(start.elapsed().as_secs_f64() * 1e6);
        }
        println!("{what}: {best:.1} us, {states} states");
    }
    for n in [1_000usize, 10_000, 60_000, 100_000] {
        let names: Vec<String> = (0..n).map(|i| format!("p{:x}", i * 7919)).collect();
        let list: Vec<_> = names.iter().map(|n| (n.as_str(), Expr::json_string(1, 0, None), false)).collect();
        let g = grammar(vec![Body::Object(object(&list)), Body::JsonString]);
        let start = std::time::Instant::now();
        let result = lower(&g).map(|l| l.rules[0].fsm.states.len());
        println!("{n} properties: {:?}, {:.1} ms", result, start.elapsed().as_secs_f64() * 1e3);
    }
}

#[test]
fn an_empty_difference_beside_a_recursion_leaves_nothing() {
    let nothing = Expr::Sub(Box::new(Expr::lit("a")), Box::new(Expr::lit("a")));
    let body = Body::Expr(Expr::alt([Expr::seq([Expr::Rule(0), Expr::lit("a")]), nothing]));
    let grammar = Grammar { rules: vec![Rule { name: "r".into(), body }], root: 0 };
    let result = lower_grammar(&grammar, &Budget::new(Limits::default()));
    assert!(matches!(result, Err(CompileError::Unsatisfiable { .. })), "{result:?}");
}
