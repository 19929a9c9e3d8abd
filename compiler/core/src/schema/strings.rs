//! Strings under several constraints at once: the text between the quotes.

use super::formats;
use crate::error::Result;
use crate::ir::Expr;
use crate::limits::Budget;
use crate::lower;
use crate::regex::{any_string, regex, Alphabet, Anchoring};

/// What a string has to be.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct StringSpec {
    /// In code points.
    pub min_length: u32,
    pub max_length: Option<u32>,
    /// Patterns it must match somewhere, and must not.
    pub patterns: Vec<String>,
    pub not_patterns: Vec<String>,
    /// Formats it must have, and must not. Those that restrict no string are passed over.
    pub formats: Vec<String>,
    pub not_formats: Vec<String>,
    /// Values it must not be.
    pub except: Vec<String>,
}

impl StringSpec {
    /// Whether nothing but lengths is asked: the shared string rule is for these.
    pub fn only_length(&self) -> bool {
        *self == StringSpec { min_length: self.min_length, max_length: self.max_length, ..StringSpec::default() }
    }
}

/// The strings of a spec, in JSON spelling, without quotes. All parts apply together: lowering intersects them.
pub fn string(spec: &StringSpec, budget: &Budget) -> Result<Expr> {
    in_alphabet(spec, Alphabet::Json, budget)
}

pub fn in_alphabet(spec: &StringSpec, alphabet: Alphabet, budget: &Budget) -> Result<Expr> {
    if spec.max_length.is_some_and(|max| max < spec.min_length) {
        return Ok(Expr::Never);
    }
    let collect = |patterns: &[String], formats: &[String]| -> Result<Vec<Expr>> {
        let mut all = vec![];
        for p in patterns {
            all.push(regex(p, alphabet, Anchoring::Search, budget)?);
        }
        for f in formats {
            if let Some(e) = formats::format(f, alphabet) {
                all.push(e?);
            }
        }
        Ok(all)
    };
    let mut all = collect(&spec.patterns, &spec.formats)?;
    let mut not = collect(&spec.not_patterns, &spec.not_formats)?;
    if spec.min_length > 0 || spec.max_length.is_some() || all.is_empty() {
        all.push(any_string(alphabet, spec.min_length, spec.max_length));
    }
    not.extend(spec.except.iter().map(|text| constant(text, alphabet)));
    let all = if all.len() == 1 { all.swap_remove(0) } else { Expr::And(all) };
    Ok(match not.len() {
        0 => all,
        1 => Expr::Sub(Box::new(all), Box::new(not.swap_remove(0))),
        _ => Expr::Sub(Box::new(all), Box::new(Expr::Alt(not))),
    })
}

/// One string in JSON spelling, without quotes.
pub fn const_string(text: &str) -> Expr {
    constant(text, Alphabet::Json)
}

fn constant(text: &str, alphabet: Alphabet) -> Expr {
    match alphabet {
        Alphabet::Utf8 => Expr::lit(text),
        Alphabet::Json => lower::json_spelling(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::Dfa;
    use crate::limits::Limits;

    fn automaton(spec: &StringSpec) -> Dfa {
        let budget = Budget::new(Limits::default());
        lower::dfa(&string(spec, &budget).unwrap(), &budget).unwrap()
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

    fn strings(v: &[&str]) -> Vec<String> {
        v.iter().map(|s| s.to_string()).collect()
    }

    #[test]
    fn everything_applies_together() {
        let spec = StringSpec {
            min_length: 2,
            max_length: Some(4),
            patterns: strings(&["^[a-z\"]+$", "a"]),
            not_patterns: strings(&["zz"]),
            except: strings(&["bad"]),
            ..StringSpec::default()
        };
        let dfa = automaton(&spec);
        for yes in ["ab", "ba", "aaaa", "a\\\"", "bada"] {
            assert!(accepts(&dfa, yes), "{yes}");
        }
        for no in ["a", "aaaaa", "bb", "azz", "bad", "a\"", "AB", ""] {
            assert!(!accepts(&dfa, no), "{no}");
        }
        let spec = StringSpec {
            formats: strings(&["date", "nonsense"]),
            patterns: strings(&["^2020"]),
            ..StringSpec::default()
        };
        let dfa = automaton(&spec);
        assert!(accepts(&dfa, "2020-02-29") && !accepts(&dfa, "2021-02-01") && !accepts(&dfa, "2020"));
    }

    #[test]
    fn lengths_count_code_points_and_excluded_values_every_spelling() {
        let spec =
            StringSpec { min_length: 1, max_length: Some(2), except: strings(&["é", "/"]), ..StringSpec::default() };
        let dfa = automaton(&spec);
        for yes in ["😀😀", "\\ud83d\\ude00a", "\\n\\\"", "é!"] {
            assert!(accepts(&dfa, yes), "{yes}");
        }
        for no in ["", "abc", "é", "\\u00e9", "\\u00E9", "/", "\\/", "\n", "\\ud83d"] {
            assert!(!accepts(&dfa, no), "{no}");
        }
        assert!(StringSpec { min_length: 3, ..StringSpec::default() }.only_length() && !spec.only_length());
        let none = StringSpec { min_length: 3, max_length: Some(2), ..StringSpec::default() };
        assert_eq!(string(&none, &Budget::new(Limits::default())).unwrap(), Expr::Never);
    }
}
