use super::*;
use crate::error::CompileError;
use crate::limits::Limits;
use crate::lower;

fn budget() -> Budget {
    Budget::new(Limits::default())
}

fn spec(min: Option<(&str, bool)>, max: Option<(&str, bool)>, multiples: &[&str]) -> NumberSpec {
    let bound = |b: Option<(&str, bool)>| b.map(|(t, exclusive)| Bound { text: t.into(), exclusive });
    NumberSpec {
        min: bound(min),
        max: bound(max),
        multiple_of: multiples.iter().map(|s| s.to_string()).collect(),
        ..NumberSpec::default()
    }
}

fn automaton(e: &Expr) -> Dfa {
    lower::dfa(e, &budget()).unwrap()
}

fn accepts(dfa: &Dfa, text: &str) -> bool {
    let mut q = 0usize;
    for b in text.bytes() {
        match dfa.states[q].edges.iter().find(|e| e.0 <= b && b <= e.1) {
            Some(e) => q = e.2 as usize,
            None => return false,
        }
    }
    dfa.states.get(q).is_some_and(|s| s.accept)
}

/// A short decimal times 10^12, exactly.
fn scaled(text: &str) -> i128 {
    let (mantissa, e) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let e: i32 = e.trim_start_matches('+').parse().unwrap();
    let (whole, part) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits: i128 = format!("{whole}{part}").parse().unwrap();
    let digits = if whole.starts_with('-') && digits > 0 { -digits } else { digits };
    let shift = 12 + e - part.len() as i32;
    assert!(shift >= 0);
    digits * 10i128.pow(shift as u32)
}

const ONE: i128 = 1_000_000_000_000;

fn expected(s: &NumberSpec, kind: Kind, text: &str) -> bool {
    let v = scaled(text);
    let above = s.min.as_ref().is_none_or(|b| v > scaled(&b.text) || (v == scaled(&b.text) && !b.exclusive));
    let below = s.max.as_ref().is_none_or(|b| v < scaled(&b.text) || (v == scaled(&b.text) && !b.exclusive));
    let whole = v % ONE == 0;
    let right_kind = match kind {
        Kind::Integer => whole,
        Kind::Fraction => !whole,
        Kind::Number => true,
    };
    above && below && right_kind && s.multiple_of.iter().all(|m| v % scaled(m) == 0)
}

/// Plain texts with up to three digits before and after the point, and longer ones near bounds.
fn texts() -> Vec<String> {
    let mut all = vec![];
    for n in (0..130).chain([199, 200, 201, 255, 256, 499, 500, 990, 999, 1000, 1001, 1024, 9999, 10000]) {
        for part in
            ["", ".0", ".00", ".5", ".50", ".05", ".01", ".25", ".125", ".99", ".999", ".995", ".000001", ".4", ".07"]
        {
            all.push(format!("{n}{part}"));
            all.push(format!("-{n}{part}"));
        }
    }
    all
}

fn scientific_texts() -> Vec<String> {
    let mut all = vec![];
    for m in ["1", "2", "5", "9", "1.0", "1.5", "1.05", "2.55", "2.56", "9.99", "9.990", "5.0", "5.01", "1.2345"] {
        for e in ["0", "1", "2", "3", "+2", "+05", "-1", "-2", "-05", "-0"] {
            all.push(format!("{m}e{e}"));
            all.push(format!("-{m}E{e}"));
        }
    }
    all
}

#[test]
fn bounds_are_exact() {
    let bounds = [
        None,
        Some(("0", false)),
        Some(("0", true)),
        Some(("100", true)),
        Some(("255.5", false)),
        Some(("0.05", true)),
        Some(("0.07", false)),
        Some(("-1", false)),
        Some(("-0.5", true)),
        Some(("-99.25", false)),
        Some(("1e3", true)),
        Some(("-12e-1", false)),
    ];
    let (plain, scientific) = (texts(), scientific_texts());
    for min in bounds {
        for max in bounds {
            let s = spec(min, max, &[]);
            for kind in [Kind::Integer, Kind::Number, Kind::Fraction] {
                let dfa = automaton(&of_kind(kind, &s, &budget()).unwrap());
                for t in &plain {
                    assert_eq!(accepts(&dfa, t), expected(&s, kind, t), "{t} {kind:?} {s:?}");
                }
                for t in &scientific {
                    let e: i32 = t.split_once(['e', 'E']).unwrap().1.parse().unwrap();
                    let (m, want) = (t.split_once(['e', 'E']).unwrap().0, expected(&s, kind, t));
                    let zeros = m.split_once('.').is_none_or(|(_, p)| p.bytes().all(|b| b == b'0'));
                    let in_subset = match kind {
                        Kind::Number => true,
                        Kind::Integer => zeros && !t.contains("e-") && !t.contains("E-"),
                        Kind::Fraction => e < 0,
                    };
                    assert_eq!(accepts(&dfa, t), want && in_subset, "{t} {kind:?} {s:?}");
                }
            }
        }
    }
}

#[test]
fn multiples_are_exact() {
    for m in [
        &["1"][..],
        &["2"],
        &["5"],
        &["7"],
        &["10"],
        &["100"],
        &["0.01"],
        &["0.05"],
        &["0.5"],
        &["2.5"],
        &["0.25"],
        &["1.5"],
        &["0.07"],
        &["3", "4"],
        &["0.2", "3"],
        &["12"],
        &["128"],
        &["1e2"],
        &["5e-1"],
    ] {
        for (min, max) in [(None, None), (Some(("0", false)), Some(("100", true))), (Some(("-12.5", false)), None)] {
            let s = spec(min, max, m);
            for kind in [Kind::Integer, Kind::Number, Kind::Fraction] {
                let dfa = automaton(&of_kind(kind, &s, &budget()).unwrap());
                for t in texts() {
                    assert_eq!(accepts(&dfa, &t), expected(&s, kind, &t), "{t} {kind:?} {s:?}");
                }
            }
        }
    }
}

#[test]
fn powers_of_ten_need_few_states() {
    let Expr::Automaton(dfa) = number(&spec(None, None, &["1000000"]), &budget()).unwrap() else { panic!() };
    assert!(dfa.states.len() < 30, "{}", dfa.states.len());
    let Expr::Automaton(dfa) = number(&spec(None, None, &["1e-8"]), &budget()).unwrap() else { panic!() };
    assert!(accepts(&dfa, "0.07") && accepts(&dfa, "1.00000001000") && !accepts(&dfa, "1.000000001"));
    assert!(integer(&spec(None, None, &["4999"]), &budget()).is_ok());
    let e = integer(&spec(None, None, &["15485863"]), &budget()).unwrap_err();
    assert!(matches!(e, CompileError::Unsupported { .. }));
    assert!(integer(&spec(None, None, &["0"]), &budget()).is_err());
    assert!(integer(&spec(None, None, &["1e40"]), &budget()).is_err());
}

#[test]
fn nothing_left_is_never() {
    let never = [
        spec(Some(("5", false)), Some(("4", false)), &[]),
        spec(Some(("5", true)), Some(("5", false)), &[]),
        spec(Some(("1", false)), Some(("9", false)), &["10"]),
    ];
    for s in never {
        assert_eq!(number(&s, &budget()).unwrap(), Expr::Never);
    }
    assert_eq!(integer(&spec(Some(("0.1", false)), Some(("0.9", false)), &[]), &budget()).unwrap(), Expr::Never);
}

#[test]
fn unbounded_grammars() {
    let n = automaton(&number(&NumberSpec::default(), &budget()).unwrap());
    for t in ["0", "-0.0", "1e5", "1E-05", "10.25e+300", "123456789012345678901234567890"] {
        assert!(accepts(&n, t), "{t}");
    }
    for t in ["01", "1.", ".5", "+1", "1e", "-", "1e+", "--1"] {
        assert!(!accepts(&n, t), "{t}");
    }
    let i = automaton(&integer(&NumberSpec::default(), &budget()).unwrap());
    assert!(accepts(&i, "1.0") && accepts(&i, "1e5") && !accepts(&i, "1.5") && !accepts(&i, "1e-5"));
    let p = automaton(&integer(&NumberSpec { plain: true, ..NumberSpec::default() }, &budget()).unwrap());
    assert!(accepts(&p, "-10") && !accepts(&p, "1.0") && !accepts(&p, "1e5"));
    let f = automaton(&of_kind(Kind::Fraction, &NumberSpec::default(), &budget()).unwrap());
    assert!(accepts(&f, "1.50") && accepts(&f, "1.5e-3") && !accepts(&f, "1.0") && !accepts(&f, "15e-1"));
}

#[test]
fn long_bounds() {
    let big = format!("1{}", "0".repeat(400));
    let s = spec(Some(("-1e400", true)), Some((&big, false)), &[]);
    let dfa = automaton(&integer(&s, &budget()).unwrap());
    assert!(accepts(&dfa, &big) && accepts(&dfa, &"9".repeat(400)));
    assert!(!accepts(&dfa, &format!("1{}1", "0".repeat(399))) && !accepts(&dfa, &format!("-{big}")));
    assert!(number(&spec(Some(("1e99999999999999999999", false)), None, &[]), &budget()).is_err());
    let (min, max, _) = format_bounds("double").unwrap();
    let dfa = automaton(&number(&spec(Some((min, false)), Some((max, false)), &[]), &budget()).unwrap());
    assert!(accepts(&dfa, "1.7976931348623157e+308") && !accepts(&dfa, "1.7976931348623158e+308"));
    assert!(accepts(&dfa, "5e-324") && accepts(&dfa, "-1e+16") && accepts(&dfa, "0.0"));
}

#[test]
fn exceptions_and_constants() {
    let s = NumberSpec { except: vec!["3".into(), "1e1".into()], ..spec(Some(("0", false)), Some(("20", false)), &[]) };
    let dfa = automaton(&integer(&s, &budget()).unwrap());
    assert!(accepts(&dfa, "4") && !accepts(&dfa, "3") && !accepts(&dfa, "3.0") && !accepts(&dfa, "10"));
    let c = automaton(&constant("1.50", false, &budget()).unwrap());
    assert!(accepts(&c, "1.5") && accepts(&c, "1.500") && accepts(&c, "1.5e0") && !accepts(&c, "1.51"));
    let z = automaton(&constant("0", false, &budget()).unwrap());
    assert!(accepts(&z, "0") && accepts(&z, "-0.0") && !accepts(&z, "0.1"));
}
