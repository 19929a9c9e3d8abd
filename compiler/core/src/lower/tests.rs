//! Membership by a naive matcher against running the lowered FSM, for random expressions.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::automata::run::{accepts, accepts_with};
use crate::fsm::{Callee, Fsm, Op, DEAD, NONE, PLAIN, REJECT, UNBOUNDED};
use crate::ir::{Dfa, Expr};
use crate::limits::{Budget, Limits};
use crate::CompileError;

fn budget() -> Budget {
    Budget::new(Limits::default())
}

/// Where a match of `e` that starts at `at` may end.
fn ends(e: &Expr, text: &[u8], at: usize) -> BTreeSet<usize> {
    let all = |positions: &BTreeSet<usize>, e: &Expr| -> BTreeSet<usize> {
        positions.iter().flat_map(|&p| ends(e, text, p)).collect()
    };
    let rest = &text[at..];
    match e {
        Expr::Empty => BTreeSet::from([at]),
        Expr::Never => BTreeSet::new(),
        Expr::Bytes(b) => rest.starts_with(b).then_some(at + b.len()).into_iter().collect(),
        Expr::Class(r) => {
            let hit = rest.first().is_some_and(|b| r.iter().any(|&(lo, hi)| lo <= *b && *b <= hi));
            hit.then_some(at + 1).into_iter().collect()
        }
        Expr::Chars(r) => (1..=rest.len().min(4))
            .filter(|&n| {
                let c = std::str::from_utf8(&rest[..n]).ok().and_then(|s| {
                    let mut cs = s.chars();
                    cs.next().filter(|_| cs.next().is_none())
                });
                c.is_some_and(|c| within(r, c))
            })
            .map(|n| at + n)
            .collect(),
        Expr::JsonChars { ranges, free } => (1..=rest.len().min(12))
            .filter(|&n| {
                json_char(&rest[..n]).is_some_and(|(c, hex)| {
                    within(ranges, c) && (!hex || *free || (c as u32) < 0x20 || c as u32 >= 0x7f)
                })
            })
            .map(|n| at + n)
            .collect(),
        Expr::Seq(v) => v.iter().fold(BTreeSet::from([at]), |p, e| all(&p, e)),
        Expr::Alt(v) => v.iter().flat_map(|e| ends(e, text, at)).collect(),
        Expr::Repeat { body, min, max } => {
            let mut out = BTreeSet::new();
            let mut now = BTreeSet::from([at]);
            for i in 0..=max.unwrap_or(u32::MAX).min(min + text.len() as u32 + 1) {
                if i >= *min {
                    out.extend(now.iter().copied());
                }
                now = all(&now, body);
            }
            out
        }
        Expr::And(v) => {
            let mut sets = v.iter().map(|e| ends(e, text, at));
            let first = sets.next().unwrap();
            sets.fold(first, |a, b| a.intersection(&b).copied().collect())
        }
        Expr::Sub(a, b) => ends(a, text, at).difference(&ends(b, text, at)).copied().collect(),
        Expr::Automaton(d) => (at..=text.len()).filter(|&to| d.accepts(&text[at..to])).collect(),
        other => panic!("{other:?}"),
    }
}

fn within(ranges: &[(u32, u32)], c: char) -> bool {
    ranges.iter().any(|r| r.0 <= c as u32 && c as u32 <= r.1)
}

/// The character that the whole of `bytes` spells inside a JSON string, and whether by `\u`.
fn json_char(bytes: &[u8]) -> Option<(char, bool)> {
    let quoted = [b"\"", bytes, b"\""].concat();
    let text: String = serde_json::from_slice(&quoted).ok()?;
    let mut chars = text.chars();
    let c = chars.next()?;
    chars.next().is_none().then_some((c, bytes.starts_with(b"\\u")))
}

fn matches(e: &Expr, text: &[u8]) -> bool {
    ends(e, text, 0).contains(&text.len())
}

/// What every lowered FSM promises.
fn check_form(fsm: &Fsm) {
    assert!(fsm.acts[0].is_empty());
    assert_eq!(fsm.states[0].accept, REJECT, "nullable at run time");
    for s in &fsm.states {
        assert!(s.edges.windows(2).all(|w| w[0] < w[1]));
        for w in s.edges.windows(2) {
            assert!(w[0].hi < w[1].lo || w[0].act != w[1].act || w[0].target != w[1].target, "{w:?}");
        }
    }
    assert_eq!(&minimize(fsm.clone()), fsm, "minimizing twice changes nothing");
}

fn leaf() -> impl Strategy<Value = Expr> {
    prop_oneof![
        1 => Just(Expr::Empty),
        1 => Just(Expr::Never),
        6 => "[abc]{1,3}".prop_map(Expr::lit),
        3 => Just(Expr::Class(vec![(b'a', b'b')])),
        2 => Just(Expr::Class(vec![(b'a', b'a'), (b'c', b'd')])),
        2 => Just(Expr::Chars(vec![(0x61, 0x62), (0xe9, 0xeb), (0x20ac, 0x20ad)])),
        1 => Just(Expr::JsonChars { ranges: vec![(0x61, 0x62), (0xe9, 0xe9), (0x1f600, 0x1f600)], free: false }),
    ]
}

fn expr(counts: u32, operators: bool) -> impl Strategy<Value = Expr> {
    leaf().prop_recursive(4, 20, 3, move |inner| {
        let list = || prop::collection::vec(inner.clone(), 1..4);
        let bounds = (0..=counts, 0..=counts, 0..4u8).prop_map(|(a, b, kind)| match kind {
            0 => (a, None),
            1 => (a, Some(a)),
            _ => (a.min(b), Some(a.max(b))),
        });
        let n = u32::from(operators);
        prop_oneof![
            4 => list().prop_map(Expr::Seq),
            3 => list().prop_map(Expr::Alt),
            1 => inner.clone().prop_map(Expr::star),
            3 => (inner.clone(), bounds).prop_map(|(e, (min, max))| e.repeat(min, max)),
            n => prop::collection::vec(inner.clone(), 2..3).prop_map(Expr::And),
            n => (inner.clone(), inner.clone()).prop_map(|(a, b)| Expr::Sub(Box::new(a), Box::new(b))),
        ]
    })
}

/// A string that is likely to be in the language, steered by `dice`.
fn sample(e: &Expr, dice: &mut impl Iterator<Item = u32>, out: &mut Vec<u8>) {
    let mut roll = |n: u32| dice.next().unwrap_or(0) % n.max(1);
    match e {
        Expr::Bytes(b) => out.extend(b),
        Expr::Class(r) => {
            let (lo, hi) = r[roll(r.len() as u32) as usize];
            out.push(lo + roll(u32::from(hi - lo) + 1) as u8);
        }
        Expr::Chars(r) | Expr::JsonChars { ranges: r, .. } => {
            let (lo, hi) = r[roll(r.len() as u32) as usize];
            let c = char::from_u32(lo + roll(hi - lo + 1)).unwrap();
            if matches!(e, Expr::JsonChars { .. }) && !c.is_ascii() && roll(2) == 0 {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    out.extend(format!("\\u{unit:04x}").bytes());
                }
            } else {
                out.extend(c.to_string().bytes());
            }
        }
        Expr::Seq(v) => v.iter().for_each(|e| sample(e, dice, out)),
        Expr::Alt(v) => {
            let pick = roll(v.len() as u32) as usize;
            sample(&v[pick], dice, out);
        }
        Expr::Repeat { body, min, max } => {
            let n = match roll(3) {
                0 => *min,
                1 => max.unwrap_or(min + 2),
                _ => min + roll(max.unwrap_or(min + 3) - min + 1),
            };
            for _ in 0..n {
                if out.len() > 60 {
                    break;
                }
                sample(body, dice, out);
            }
        }
        Expr::And(v) => sample(&v[0], dice, out),
        Expr::Sub(a, _) => sample(a, dice, out),
        _ => {}
    }
}

/// Samples and their neighbours.
fn texts(e: &Expr, dice: &[u32]) -> Vec<Vec<u8>> {
    let mut texts = vec![vec![]];
    for chunk in dice.chunks(8) {
        let mut text = vec![];
        sample(e, &mut chunk.iter().copied(), &mut text);
        text.truncate(70);
        let at = chunk[0] as usize % (text.len() + 1);
        let mut more = text.clone();
        more.insert(at, b"abc"[chunk[0] as usize % 3]);
        let mut less = text.clone();
        less.truncate(at);
        texts.extend([text, more, less]);
    }
    texts
}

fn check(e: &Expr, dice: &[u32]) {
    check_lowered(e, &lower_expr(e, &[], &budget()).unwrap(), dice);
}

fn check_lowered(e: &Expr, lowered: &Lowered, dice: &[u32]) {
    check_form(&lowered.fsm);
    assert_eq!(lowered.nullable, nullable(e, &[]));
    for text in texts(e, dice) {
        let got = if text.is_empty() { lowered.nullable } else { accepts(&lowered.fsm, &text) };
        assert_eq!(got, matches(e, &text), "{:?}", String::from_utf8_lossy(&text));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn small_repeats_and_operators(e in expr(3, true), dice in prop::collection::vec(any::<u32>(), 64)) {
        check(&e, &dice);
    }

    #[test]
    fn counted_repeats(e in expr(30, false), dice in prop::collection::vec(any::<u32>(), 64)) {
        check(&e, &dice);
    }

    #[test]
    fn counted_operands(a in expr(24, false), b in expr(24, false), c in expr(3, false), dice in prop::collection::vec(any::<u32>(), 64)) {
        for e in [
            Expr::And(vec![a.clone(), b.clone()]),
            Expr::And(vec![b, a.clone()]),
            Expr::Sub(Box::new(a), Box::new(c)),
        ] {
            // Counters that cannot be met together are unrolled, and nested ones can be too many for that.
            let few = Budget::new(Limits { fsm_states: 5_000, ..Limits::default() });
            match lower_expr(&e, &[], &few) {
                Err(CompileError::Limit { name: "fsm_states", .. }) => {}
                lowered => check_lowered(&e, &lowered.unwrap(), &dice),
            }
        }
    }

    #[test]
    fn automata_agree_and_are_canonical(a in expr(3, true), b in expr(3, false), dice in prop::collection::vec(any::<u32>(), 64)) {
        let budget = budget();
        let (x, y) = (dfa(&a, &budget).unwrap(), dfa(&b, &budget).unwrap());
        for d in [&x, &y] {
            for s in &d.states {
                prop_assert!(s.edges.windows(2).all(|w| w[0].1 < w[1].0));
            }
        }
        let both = x.intersect(&y, &budget).unwrap();
        let either = x.union(&y, &budget).unwrap();
        let less = x.difference(&y, &budget).unwrap();
        for text in texts(&a, &dice).into_iter().chain(texts(&b, &dice)) {
            let (p, q) = (matches(&a, &text), matches(&b, &text));
            prop_assert_eq!(x.accepts(&text), p);
            prop_assert_eq!(y.accepts(&text), q);
            prop_assert_eq!(both.accepts(&text), p && q);
            prop_assert_eq!(either.accepts(&text), p || q);
            prop_assert_eq!(less.accepts(&text), p && !q);
        }
        // Equal languages have equal automata, however they came about.
        prop_assert_eq!(&either, &dfa(&Expr::alt([b.clone(), a.clone()]), &budget).unwrap());
        prop_assert_eq!(&less, &either.difference(&y, &budget).unwrap());
        prop_assert_eq!(&x, &less.union(&both, &budget).unwrap());
        prop_assert_eq!(x == y, x.is_subset(&y, &budget).unwrap() && y.is_subset(&x, &budget).unwrap());
        prop_assert_eq!(less.is_empty(), less == Dfa::default().minimized());
        if let Some(example) = less.example() {
            prop_assert!(less.accepts(&example));
        }
        let spliced = lower_expr(&Expr::seq([Expr::Automaton(x.into()), b.clone()]), &[], &budget).unwrap();
        let direct = lower_expr(&Expr::seq([a, b]), &[], &budget).unwrap();
        if direct.fsm.counters == 0 {
            prop_assert_eq!(spliced.fsm, direct.fsm);
        }
    }
}

fn class() -> Expr {
    Expr::Class(vec![(b'a', b'z')])
}

#[test]
fn states_do_not_depend_on_bounds() {
    let at = |min, max| lower_expr(&class().repeat(min, max), &[], &budget()).unwrap().fsm;
    let (small, large) = (at(2, Some(100)), at(5, Some(1_000_000_000)));
    assert_eq!(small.states, large.states);
    assert_eq!(small.states.len(), 2);
    assert_eq!(small.counters, 1);
    assert_eq!(small.acts[small.states[0].edges[0].act as usize], [Op::Load { r: 0, min: 1, max: 99 }]);
    let open = at(1_000_000, None);
    assert_eq!(open.acts[open.states[0].edges[0].act as usize], [Op::Load { r: 0, min: 999_999, max: UNBOUNDED }]);
    // Small ones are unrolled.
    assert_eq!(at(4, Some(4)).counters, 0);
}

#[test]
fn counters_are_numbered_by_nesting() {
    let inner = || class().repeat(20, Some(30));
    let e = Expr::seq([inner(), Expr::lit("-"), Expr::seq([inner(), Expr::lit("/")]).repeat(2, Some(50)), inner()]);
    assert_eq!(lower_expr(&e, &[], &budget()).unwrap().fsm.counters, 2);
}

#[test]
fn references() {
    // A reference to a nullable rule is optional; a counted repeat of references ticks on their prediction.
    let e = Expr::seq([Expr::Rule(0), Expr::lit(","), Expr::Rule(1).repeat(3, Some(500)), Expr::Token(7)]);
    let l = lower_expr(&e, &[true, false], &budget()).unwrap();
    assert!(!l.nullable);
    assert_eq!(l.fsm.callees, [Callee::Rule(0), Callee::Rule(1)]);
    let start = &l.fsm.states[0];
    assert_eq!((start.edges.len(), start.refs.len()), (1, 1));
    let comma = &l.fsm.states[start.edges[0].target as usize];
    assert_eq!(l.fsm.acts[comma.refs[0].act as usize], [Op::Load { r: 0, min: 2, max: 499 }]);
    let again = &l.fsm.states[comma.refs[0].target as usize];
    assert_eq!(l.fsm.acts[again.refs[0].act as usize], [Op::Tick { r: 0 }]);
    assert_eq!(l.fsm.acts[again.tokens[0].act as usize], [Op::Exit { r: 0 }]);
    assert!(nullable(&Expr::Rule(0), &[true]));
    let e = Expr::And(vec![Expr::Rule(0), Expr::lit("a")]);
    assert!(matches!(lower_expr(&e, &[], &budget()), Err(CompileError::Invalid { .. })));
    // Equal calls followed by different text share one edge.
    let call = || Expr::json_string(3, 1, None);
    let e = Expr::alt([Expr::seq([call(), Expr::lit("a")]), Expr::seq([call(), Expr::lit("b")])]);
    let l = lower_expr(&e, &[], &budget()).unwrap();
    assert_eq!((l.fsm.states[0].refs.len(), l.fsm.args.clone()), (1, vec![vec![(1, UNBOUNDED)]]));
}

#[test]
fn empty_string_and_nothing() {
    let l = lower_expr(&Expr::lit("ab").star(), &[], &budget()).unwrap();
    assert!(l.nullable && accepts(&l.fsm, b"abab") && !accepts(&l.fsm, b"") && !accepts(&l.fsm, b"aba"));
    let l = lower_expr(&Expr::Empty, &[], &budget()).unwrap();
    assert!(l.nullable && fsm_is_empty(&l.fsm) && l.fsm.states.len() == 1);
    let l = lower_expr(&Expr::And(vec![Expr::lit("a"), Expr::lit("b")]), &[], &budget()).unwrap();
    assert!(!l.nullable && fsm_is_empty(&l.fsm));
}

#[test]
fn json_strings() {
    let fsm = json_string_fsm();
    check_form(&fsm);
    let ok = |min, max, text: &str| accepts_with(&fsm, &[(min, max)], text.as_bytes());
    assert!(ok(0, UNBOUNDED, r#""""#) && !ok(1, UNBOUNDED, r#""""#));
    for (text, n) in [(r#""a\n\u0041""#, 3), (r#""é\ud83d\uDE00😀""#, 3), (r#""\"\\\/\b\f\r\t""#, 7)] {
        assert!(ok(n, n, text) && !ok(n + 1, n + 1, text) && !ok(0, n - 1, text), "{text}");
    }
    for bad in [r#""\ud83d""#, r#""\ud83dx""#, r#""\ude00""#, r#""\x""#, "\"\n\"", "\"\u{1}\"", r#""a"#, r#""a"b"#] {
        assert!(!ok(0, UNBOUNDED, bad), "{bad}");
    }
    assert!(!accepts_with(&fsm, &[(0, UNBOUNDED)], b"\"\xff\""));
}

#[test]
fn spellings_of_names() {
    assert_eq!(json_spelling("user_name"), Expr::lit("user_name"));
    let e = json_spelling("a\"/é\u{7f}😀");
    let l = lower_expr(&e, &[], &budget()).unwrap();
    for good in ["a\\\"/é\u{7f}😀", "a\\\"\\/\\u00E9\\u007f\\ud83d\\ude00"] {
        assert!(accepts(&l.fsm, good.as_bytes()), "{good}");
    }
    for bad in ["a\"/é\u{7f}😀", "\\u0061\\\"/é\u{7f}😀", "a\\u0022/é\u{7f}😀"] {
        assert!(!accepts(&l.fsm, bad.as_bytes()), "{bad}");
    }
}

#[test]
fn bombs_end_in_limits() {
    let budget = || Budget::new(Limits { fsm_states: 100_000, ..Limits::default() });
    let limited = |e: &Expr| lower_expr(e, &[], &budget()).map(|l| l.fsm.states.len());
    let mut deep = Expr::lit("a");
    for _ in 0..1_999 {
        deep = Expr::Repeat { body: Box::new(Expr::seq([Expr::Empty, deep]).opt()), min: 0, max: Some(40) };
    }
    assert!(matches!(limited(&deep), Err(CompileError::Limit { .. })));
    let unroll = dfa(&class().repeat(0, Some(u32::MAX)), &budget());
    assert!(matches!(unroll, Err(CompileError::Limit { .. })));
    let wide = Expr::seq([class().star(), Expr::lit("a"), class().repeat(16, Some(16)), class().repeat(16, Some(16))]);
    assert!(matches!(limited(&wide), Err(CompileError::Limit { .. })));
    let mut nested = Expr::lit("a");
    for _ in 0..100 {
        nested = Expr::And(vec![nested.clone()]);
    }
    assert!(matches!(limited(&nested), Err(CompileError::Limit { .. })));
    let optional = Expr::Seq((0..20_000).map(|_| Expr::lit("a").opt()).collect());
    assert!(matches!(limited(&optional), Err(CompileError::Limit { .. })));
}

#[test]
fn hand_made_states_keep_their_fallback() {
    let budget = budget();
    let mut b = Builder::new(&[], &budget);
    // Any letters to the closing quote, but not "ab" (blocked) and with "ac" leading elsewhere.
    let (other, quote) = (b.state().unwrap(), b.state().unwrap());
    b.byte(other, b'a', b'z', PLAIN, other);
    b.byte(other, b'"', b'"', PLAIN, quote);
    let (s0, s1, s2, s3) = (b.state().unwrap(), b.state().unwrap(), b.state().unwrap(), b.state().unwrap());
    for s in [s0, s1, s2, s3] {
        b.fallback(s, other);
    }
    b.byte(s0, b'a', b'a', PLAIN, s1);
    b.byte(s1, b'b', b'b', PLAIN, s2);
    b.block(s2, b'"', b'"');
    b.byte(s1, b'c', b'c', PLAIN, s3);
    let known = b.state().unwrap();
    b.byte(s3, b'"', b'"', PLAIN, known);
    let end = b.state().unwrap();
    b.expr(&Expr::lit("1"), known, end).unwrap();
    b.expr(&class().plus(), quote, end).unwrap();
    b.accept(end, PLAIN);
    let start = b.state().unwrap();
    b.byte(start, b'"', b'"', PLAIN, s0);
    let fsm = b.finish(start).unwrap().fsm;
    check_form(&fsm);
    assert_eq!(fsm.states.iter().filter(|s| s.fallback != NONE).count(), 4);
    assert!(fsm.states.iter().any(|s| s.edges.iter().any(|e| e.target == DEAD)));
    for (text, want) in [
        ("\"ac\"1", true),
        ("\"ac\"x", false),
        ("\"ab\"x", false),
        ("\"abc\"x", true),
        ("\"\"x", true),
        ("\"a\"x", true),
        ("\"zab\"xyz", true),
        ("\"a\"1", false),
    ] {
        assert_eq!(accepts(&fsm, text.as_bytes()), want, "{text}");
    }
    // Where such a state shares its subset its fallback is expanded, with the same language.
    let mut b = Builder::new(&[], &budget);
    let (other, end, s0, start) = (b.state().unwrap(), b.state().unwrap(), b.state().unwrap(), b.state().unwrap());
    b.byte(other, b'a', b'z', PLAIN, other);
    b.byte(other, b'!', b'!', PLAIN, end);
    b.fallback(s0, other);
    b.byte(s0, b'm', b'p', PLAIN, end);
    b.block(s0, b'x', b'x');
    b.epsilon(start, PLAIN, s0);
    b.expr(&Expr::lit("0").plus(), start, end).unwrap();
    b.accept(end, PLAIN);
    let fsm = b.finish(start).unwrap().fsm;
    for (text, want) in [
        ("m", true),
        ("mm", false),
        ("x!", false),
        ("ax!", true),
        ("!", true),
        ("000", true),
        ("q!", true),
        ("l!", true),
    ] {
        assert_eq!(accepts(&fsm, text.as_bytes()), want, "{text}");
    }
}

#[test]
fn several_accept_acts_in_one_subset() {
    let budget = budget();
    let mut b = Builder::new(&[], &budget);
    b.reserve_counters(2).unwrap();
    let (start, mid, end) = (b.state().unwrap(), b.state().unwrap(), b.state().unwrap());
    let load = b.act(&[Op::Load { r: 0, min: 1, max: 1 }, Op::Load { r: 1, min: 0, max: 5 }]).unwrap();
    let (a0, a1) = (b.act(&[Op::Exit { r: 0 }]).unwrap(), b.act(&[Op::Exit { r: 1 }]).unwrap());
    b.byte(start, b'a', b'a', load, mid);
    b.epsilon(mid, a0, end);
    b.epsilon(mid, a1, end);
    b.accept(end, PLAIN);
    // Exit of counter 0 would fail; that of counter 1 succeeds.
    assert!(accepts(&b.finish(start).unwrap().fsm, b"a"));
}
