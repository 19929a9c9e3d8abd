//! Dispatch against a direct reading of what it means.

use proptest::prelude::*;

use super::*;
use crate::ir::{Body, Grammar};
use crate::limits::Limits;
use crate::lower::simulator::Simulator;

fn grammar(d: DispatchRule) -> Grammar {
    let rule = |body| Rule { name: "r".into(), body };
    let nested = Expr::alt([Expr::lit("["), Expr::seq([Expr::lit("b"), Expr::Rule(1), Expr::lit("]")])]);
    Grammar { rules: vec![rule(Body::Dispatch(d)), rule(Body::Expr(nested))], root: 0 }
}

fn dispatch(tags: &[(&str, Expr)]) -> DispatchRule {
    DispatchRule {
        triggers: tags.iter().map(|t| t.0.as_bytes().to_vec()).collect(),
        handlers: tags.iter().map(|t| t.1.clone()).collect(),
        stops: vec![],
        excludes: vec![],
        min_tags: 0,
        max_tags: None,
        stop_after_last: false,
        open_end: true,
    }
}

fn check(d: DispatchRule, yes: &[&str], no: &[&str]) {
    let sim = Simulator::new(&grammar(d)).unwrap();
    for t in yes {
        assert!(sim.accepts(t.as_bytes()), "{t}");
    }
    for t in no {
        assert!(!sim.accepts(t.as_bytes()), "{t}");
    }
}

#[test]
fn a_trigger_inside_another_is_found() {
    let d = dispatch(&[("bc", Expr::lit("Z")), ("abcd", Expr::lit("!"))]);
    check(
        d,
        &["", "abcZ", "bcZ", "abcd!", "xxabcZabcd!", "ab", "zabZ"],
        &["abc", "abcd", "abcdZ", "bc", "abc!", "bcd"],
    );
}

#[test]
fn the_longest_of_those_that_end_together_wins() {
    let d = dispatch(&[("b", Expr::lit("1")), ("ab", Expr::lit("2"))]);
    check(d, &["ab2", "b1", "xb1ab2"], &["ab1", "b2"]);
}

#[test]
fn what_continues_a_longer_trigger_belongs_to_it() {
    let d = dispatch(&[("b", Expr::alt([Expr::lit("c1"), Expr::lit("d")])), ("abc", Expr::lit("2"))]);
    check(d, &["bc1", "bd", "abd", "abc2"], &["abc1", "abc"]);
}

#[test]
fn a_handler_that_is_a_rule_is_restricted_too() {
    let d = dispatch(&[("a", Expr::Rule(1)), ("ab", Expr::lit("!"))]);
    check(d, &["a[", "ab!"], &["ab[]", "a", "ab"]);
    let looping = Expr::alt([Expr::seq([Expr::Rule(1), Expr::lit("b")]), Expr::lit("b")]);
    let mut g = grammar(dispatch(&[("a", Expr::Rule(1)), ("ab", Expr::lit("!"))]));
    g.rules[1].body = Body::Expr(looping);
    let error = Simulator::new(&g).map(|_| ()).unwrap_err();
    assert!(error.to_string().contains("\"a\" lies inside \"ab\""), "{error}");
}

#[test]
fn text_is_utf8() {
    let d = dispatch(&[("é", Expr::lit("1")), ("aè", Expr::lit("2"))]);
    let sim = Simulator::new(&grammar(d)).unwrap();
    for t in ["é1", "aè2", "ê", "aê", "x\u{7ff}\u{800}\u{ffff}\u{10000}\u{10ffff}é1", "aé1", "a\u{d7ff}"] {
        assert!(sim.accepts(t.as_bytes()), "{t}");
    }
    let bad: [&[u8]; 9] = [
        b"\xc3",
        b"\x80",
        b"\xc0\x80",
        b"\xed\xa0\x80",
        b"\xf4\x90\x80\x80",
        b"\xe0\x80\x80",
        b"\xff",
        b"a\xc3",
        "é".as_bytes(),
    ];
    for t in bad {
        assert!(!sim.accepts(t), "{t:?}");
    }
}

#[test]
fn stops_and_excludes() {
    let mut d = dispatch(&[("<", Expr::lit("t>"))]);
    d.stops = vec![b"END".to_vec()];
    d.excludes = vec![b"no".to_vec()];
    d.open_end = false;
    check(d.clone(), &["END", "a<t>bEND", "ENEND", "nEND"], &["", "a", "noEND", "ENDx", "<tEND"]);
    d.min_tags = 1;
    check(d.clone(), &["<t>END"], &["END", "xEND"]);
    d.max_tags = Some(2);
    d.stop_after_last = true;
    check(d, &["<t>END", "<t>a<t>"], &["<t>", "END", "<t><t>END", "<t><t>a"]);
}

#[test]
fn one_tag_needs_no_counter() {
    let mut d = dispatch(&[("<", Expr::lit("t>"))]);
    (d.max_tags, d.stop_after_last) = (Some(1), true);
    check(d.clone(), &["", "a", "a<t>"], &["<", "<t>a"]);
    assert_eq!(lower_dispatch(&d, &[], &[], &Budget::new(Limits::default())).unwrap().fsm.counters, 0);
    d.min_tags = 1;
    check(d.clone(), &["a<t>"], &["", "a", "<t>a"]);
    (d.stop_after_last, d.min_tags) = (false, 0);
    check(d, &["", "a<t>a"], &["<t><t>", "<"]);
}

#[test]
fn states_stay_small() {
    let d = dispatch(&[("<function=", Expr::lit("x")), ("<tool_call>", Expr::lit("y"))]);
    let lowered = lower_dispatch(&d, &[], &[], &Budget::new(Limits::default())).unwrap();
    let most = lowered.fsm.states.iter().map(|s| s.edges.len()).max();
    let with_one = lowered.fsm.states.iter().filter(|s| s.edges.len() <= 2).count();
    assert!(most < Some(16) && with_one + 2 >= lowered.fsm.states.len(), "{:?}", lowered.fsm.states);
}

#[test]
fn impossible_patterns_are_named() {
    let mut d = dispatch(&[("abc", Expr::lit("x"))]);
    d.excludes = vec![b"b".to_vec()];
    let error = lower_dispatch(&d, &[], &[], &Budget::new(Limits::default())).unwrap_err();
    assert!(error.to_string().contains("\"abc\" can never be written"), "{error}");
}

#[test]
fn free_text_holds_no_trigger() {
    let d = dispatch(&[("bc", Expr::lit("Z")), ("abcde", Expr::lit("!"))]);
    check(d, &["abcde!", "abcZ", "xbcZ", "abcde!abcZ"], &["abcdx", "abcd", "abcdeZ", "abcdbcZ"]);
}

#[test]
fn excluded_strings_may_reach_into_a_stop() {
    let mut d = dispatch(&[]);
    (d.stops, d.excludes, d.open_end) = (vec![b"</a>".to_vec()], vec![b"<".to_vec(), b"x</".to_vec()], false);
    check(d, &["</a>", "x</a>", "a/a></a>"], &["<</a>", "<b></a>", "x</", "x</b</a>"]);
}

#[test]
fn a_tag_may_be_empty() {
    let mut d = dispatch(&[("a", Expr::lit("x").opt()), ("ab", Expr::lit("!"))]);
    check(d.clone(), &["a", "ax", "aa", "ac", "axb", "ab!", "zaz"], &["ab", "abx", "axab"]);
    d.min_tags = 1;
    check(d.clone(), &["a", "ax", "za", "aza"], &["", "z", "ab"]);
    (d.max_tags, d.stop_after_last) = (Some(2), true);
    check(d, &["a", "az", "aa", "axa", "azax"], &["aaz", "aaa", "ax!a!"]);
    let mut only = dispatch(&[("a", Expr::Empty)]);
    (only.min_tags, only.max_tags) = (1, Some(1));
    check(only, &["a", "xay"], &["aa", "x"]);
}

/// The meaning of a dispatch, read off its definition, for handlers that are lists of words.
fn allows(d: &DispatchRule, words: &[Vec<&str>], text: &[u8]) -> bool {
    if d.max_tags.is_some_and(|max| max < d.min_tags) {
        return false;
    }
    // All (text since the last tag, position, tags) that are possible; after an empty tag the bytes that belong to a longer
    // pattern; and how much of the last bytes a pattern must cover, if any, and whether only a stop may.
    let mut work = vec![(0usize, 0usize, 0u32, vec![], 0usize, false)];
    let patterns = || d.triggers.iter().chain(&d.stops).chain(&d.excludes);
    let mut seen = std::collections::HashSet::new();
    while let Some(config) = work.pop() {
        if !seen.insert(config.clone()) {
            continue;
        }
        let (from, at, tags, barred, owed, only_stop) = config;
        if text.get(at).is_some_and(|b| barred.contains(b)) {
            continue;
        }
        let free = &text[from..at];
        let trigger = (0..words.len())
            .filter(|&i| free.ends_with(&d.triggers[i]) && !only_stop && d.triggers[i].len() >= owed)
            .max_by_key(|&i| d.triggers[i].len());
        let (least, only_stop) = match trigger {
            Some(t) => (d.triggers[t].len(), false),
            None => (owed, only_stop),
        };
        let mut continues = vec![];
        for p in patterns().filter(|p| !only_stop || d.stops.contains(p)) {
            for n in least.max(1)..p.len() {
                if free.ends_with(&p[..n]) {
                    continues.push(p[n]);
                }
            }
        }
        if let Some(t) = trigger {
            for w in &words[t] {
                if text[at..].starts_with(w.as_bytes()) && w.bytes().next().is_none_or(|b| !continues.contains(&b)) {
                    let to = at + w.len();
                    if d.max_tags == Some(tags + 1) && d.stop_after_last {
                        if to == text.len() {
                            return true;
                        }
                    } else {
                        let barred = if w.is_empty() { continues.clone() } else { vec![] };
                        work.push((to, to, tags + 1, barred, 0, false));
                    }
                }
            }
        } else if least == 0 && at == text.len() && d.open_end && tags >= d.min_tags {
            return true;
        }
        if at < text.len() && (least == 0 || continues.contains(&text[at])) {
            let free = &text[from..at + 1];
            let owed = if least == 0 { 0 } else { least + 1 };
            let longest = |list: &[Vec<u8>]| list.iter().filter(|p| free.ends_with(p)).map(|p| p.len()).max();
            if let Some(stop) = longest(&d.stops) {
                if stop >= owed && tags >= d.min_tags && at + 1 == text.len() {
                    return true;
                }
                continue;
            }
            if longest(&d.excludes).is_some() {
                work.push((from, at + 1, tags, vec![], owed.max(1), true));
                continue;
            }
            let opens = longest(&d.triggers).filter(|&n| n >= owed && !only_stop);
            if let (Some(length), true) = (opens, Some(tags) == d.max_tags) {
                work.push((from, at + 1, tags, vec![], length, true));
                continue;
            }
            work.push((from, at + 1, tags, vec![], owed, only_stop));
        }
    }
    false
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn accepts_what_it_should(
        triggers in proptest::collection::btree_set("[abc]{1,4}", 1..4),
        pick in proptest::collection::vec(proptest::collection::vec(0usize..7, 1..4), 3),
        stops in proptest::sample::select(vec![vec![], vec!["."], vec![".", "e."], vec!["abca"], vec!["cc"]]),
        excludes in proptest::sample::select(vec![vec![], vec!["!"], vec!["bab"], vec!["a!"]]),
        min in 0u32..3,
        max in proptest::option::of(0u32..3),
        stop_after_last in any::<bool>(),
        open_end in any::<bool>(),
        texts in proptest::collection::vec("([abcxe.!]|aX|by|bc){0,9}", 120),
    ) {
        let choice = ["x", "aX", "by", "cy", "bc", "e.", ""];
        let words: Vec<Vec<&str>> =
            triggers.iter().zip(&pick).map(|(_, p)| p.iter().map(|&i| choice[i]).collect()).collect();
        let mut d = dispatch(&[]);
        d.triggers = triggers.iter().map(|t| t.as_bytes().to_vec()).collect();
        d.handlers = words.iter().map(|w| Expr::alt(w.iter().map(Expr::lit))).collect();
        d.stops = stops.iter().map(|s| s.as_bytes().to_vec()).collect();
        d.excludes = excludes.iter().map(|s| s.as_bytes().to_vec()).collect();
        (d.min_tags, d.max_tags, d.stop_after_last, d.open_end) = (min, max, stop_after_last, open_end);
        match Simulator::new(&grammar(d.clone())) {
            Err(CompileError::Unsatisfiable { .. }) => {
                for t in &texts {
                    prop_assert!(!allows(&d, &words, t.as_bytes()), "{}", t);
                }
            }
            Err(e) => prop_assert!(e.to_string().contains("can never be written"), "{}", e),
            Ok(sim) => for t in &texts {
                prop_assert_eq!(sim.accepts(t.as_bytes()), allows(&d, &words, t.as_bytes()), "{:?}", t);
            },
        }
    }
}
