//! Objects against a direct reading of what they mean.

use proptest::prelude::*;

use super::*;
use crate::ir::{Body, Grammar, OtherProperties, Property, Rule, Separators};
use crate::lower::simulator::Simulator;

const NAMES: [&str; 9] = ["a", "ab", "abc", "b", "é", "a/b", "x\"y", "x", "y"];
/// Values: an expression, texts that match it, one that does not.
fn value(i: usize) -> (Expr, &'static [&'static str]) {
    match i {
        0 => (Expr::lit("1"), &["1"]),
        1 => (Expr::alt([Expr::lit("true"), Expr::lit("false")]), &["true", "false"]),
        2 => (Expr::Rule(1), &["[]"]),
        3 => (Expr::json_string(2, 1, Some(2)), &["\"q\"", "\"pq\""]),
        4 => (Expr::Class(vec![(b'0', b'9')]).repeat(20, Some(21)), &["01234567890123456789", "012345678901234567890"]),
        _ => (Expr::alt([Expr::Rule(1), Expr::lit("0"), Expr::lit("[1]")]), &["[]", "0", "[1]"]),
    }
}
const VALUES: usize = 6;
const TEXTS: [&str; 13] = [
    "1",
    "true",
    "false",
    "[]",
    "\"q\"",
    "\"pq\"",
    "01234567890123456789",
    "012345678901234567890",
    "0",
    "[1]",
    "7",
    "8",
    "",
];

fn chars(range: (u32, u32)) -> Expr {
    Expr::JsonChars { ranges: vec![range], free: true }
}

fn any_chars() -> Expr {
    Expr::JsonChars { ranges: vec![(0, 0xd7ff), (0xe000, 0x10ffff)], free: true }
}

/// A specification in a form that is easy to check: names by index.
#[derive(Clone, Debug)]
struct Spec {
    /// Name, value (`None`: forbidden), required.
    properties: Vec<(usize, Option<usize>, bool)>,
    /// 0: closed; 1: any key, value 0; 2: keys that begin with `x` hold 7, those that begin with `y` hold 8.
    others: usize,
    order: PropertyOrder,
    min: u32,
    max: Option<u32>,
    spaces: bool,
}

impl Spec {
    fn grammar(&self) -> Grammar {
        let begins = |b: char, v: &str| OtherProperties {
            marks: 0,
            keys: Some(Expr::seq([chars((b as u32, b as u32)), any_chars().star()])),
            value: Expr::lit(v),
        };
        let object = ObjectRule {
            properties: self
                .properties
                .iter()
                .map(|&(n, v, required)| Property { name: NAMES[n].into(), value: v.map(|v| value(v).0), required })
                .collect(),
            others: match self.others {
                0 => vec![],
                1 => vec![OtherProperties { keys: None, value: Expr::lit("0"), marks: 0 }],
                _ => vec![begins('x', "7"), begins('y', "8")],
            },
            order: self.order,
            min_properties: self.min,
            distinct: false,
            max_properties: self.max,
            space: if self.spaces { Separators::flexible() } else { Separators::compact() },
        };
        let rule = |body| Rule { name: String::new(), body };
        let rules = vec![rule(Body::Object(object)), rule(Body::Expr(Expr::lit("[]"))), rule(Body::JsonString)];
        Grammar { rules, root: 0 }
    }

    /// Whether an object with these pairs (name, whether spelled with needless escapes, value) is one of the language.
    fn allows(&self, pairs: &[(usize, bool, usize)]) -> bool {
        let mut at = 0;
        let mut seen = vec![];
        for &(name, escaped, text) in pairs {
            let declared = self.properties.iter().position(|p| p.0 == name);
            let text = TEXTS[text];
            match declared {
                Some(i) => {
                    let Some(v) = self.properties[i].1 else { return false };
                    // In order means: every required one so far, none twice.
                    if escaped || seen.contains(&i) || !value(v).1.contains(&text) {
                        return false;
                    }
                    if self.order == PropertyOrder::Declared && (i < at) {
                        return false;
                    }
                    at = i + 1;
                    seen.push(i);
                }
                None => {
                    if escaped && !self.properties.is_empty() {
                        return false;
                    }
                    let expected = match self.others {
                        0 => return false,
                        1 => "0",
                        _ if NAMES[name].starts_with('x') => "7",
                        _ if NAMES[name].starts_with('y') => "8",
                        _ => return false,
                    };
                    if text != expected {
                        return false;
                    }
                    at = self.properties.len();
                }
            }
        }
        let required = self.properties.iter().enumerate().all(|(i, p)| !p.2 || seen.contains(&i));
        let n = pairs.len() as u32;
        required && n >= self.min && self.max.is_none_or(|m| n <= m)
    }

    fn text(&self, pairs: &[(usize, bool, usize)]) -> String {
        let space = if self.spaces { " " } else { "" };
        let pair = |&(name, escaped, text): &(usize, bool, usize)| {
            let key = if escaped {
                NAMES[name].chars().map(|c| format!("\\u{:04x}", c as u32)).collect()
            } else {
                NAMES[name].replace('"', "\\\"")
            };
            format!("\"{key}\"{space}:{}", TEXTS[text])
        };
        let pairs: Vec<String> = pairs.iter().map(pair).collect();
        format!("{{{space}{}{space}}}", pairs.join(","))
    }
}

fn spec() -> impl Strategy<Value = Spec> {
    let property = (0..NAMES.len(), proptest::option::weighted(0.9, 0..VALUES), any::<bool>());
    (
        proptest::collection::vec(property, 0..5),
        0usize..3,
        any::<bool>(),
        prop_oneof![3 => Just(0u32), 1 => 0u32..5],
        proptest::option::weighted(0.4, 0u32..5),
        any::<bool>(),
    )
        .prop_map(|(mut properties, others, any, min, max, spaces)| {
            let mut seen = vec![];
            properties.retain(|p| {
                !seen.contains(&p.0) && {
                    seen.push(p.0);
                    true
                }
            });
            let order = if any { PropertyOrder::Any } else { PropertyOrder::Declared };
            Spec { properties, others, order, min, max, spaces }
        })
}

/// Pairs that often fit: a draw of names, each with a value that its property allows, sometimes another.
fn pairs(spec: &Spec, draws: &[(usize, u8, usize)]) -> Vec<(usize, bool, usize)> {
    let position = |t: &str| TEXTS.iter().position(|&x| x == t).unwrap();
    draws
        .iter()
        .map(|&(pick, odd, text)| {
            let name = match pick {
                p if p < NAMES.len() => p,
                p if spec.properties.is_empty() => p % NAMES.len(),
                p => spec.properties[p % spec.properties.len()].0,
            };
            let fitting = match spec.properties.iter().find(|p| p.0 == name).map(|p| p.1) {
                Some(Some(v)) => position(value(v).1[text % value(v).1.len()]),
                _ if spec.others == 1 => position("0"),
                _ if NAMES[name].starts_with('x') => position("7"),
                _ => position("8"),
            };
            // Names that need no escape can be escaped needlessly; the others are always spelled one way.
            let escapable = NAMES[name].chars().all(|c| c.is_ascii_alphabetic());
            (name, odd == 0 && escapable, if odd == 1 { text % TEXTS.len() } else { fitting })
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn accepts_what_it_should(
        spec in spec(),
        draws in proptest::collection::vec(proptest::collection::vec((0usize..20, 0u8..12, 0usize..13), 0..6), 60),
    ) {
        let lists: Vec<_> = draws.iter().map(|d| {
            let mut p = pairs(&spec, d);
            // Half of the lists in declared order, each declared name once.
            if d.len() % 2 == 0 {
                let place = |n: usize| spec.properties.iter().position(|p| p.0 == n).unwrap_or(99);
                p.sort_by_key(|x| place(x.0));
                p.dedup_by_key(|x| if place(x.0) == 99 { 1000 + x.2 * 10 + x.0 } else { x.0 });
            }
            p
        }).collect();
        match Simulator::new(&spec.grammar()) {
            Err(CompileError::Unsatisfiable { .. }) => {
                for p in &lists {
                    prop_assert!(!spec.allows(p), "{}", spec.text(p));
                }
            }
            Err(e) => prop_assert!(false, "{e}"),
            Ok(sim) => for p in &lists {
                let text = spec.text(p);
                prop_assert_eq!(sim.accepts(text.as_bytes()), spec.allows(p), "{}", text);
            },
        }
    }

    #[test]
    fn has_no_dead_ends(spec in spec(), picks in proptest::collection::vec(0usize..1000, 40)) {
        if let Ok(sim) = Simulator::new(&spec.grammar()) {
            let mut at = 0;
            let dead = sim.dead_end(30, |_| { at += 1; picks[at % picks.len()] });
            prop_assert_eq!(dead.map(|d| String::from_utf8_lossy(&d).into_owned()), None);
        }
    }
}
