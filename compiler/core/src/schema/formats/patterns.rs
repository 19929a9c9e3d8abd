//! The format `regex`: patterns of ECMA-262 in Unicode mode.
//!
//! Nothing else is taken, but not all of them: there are no numbered back-references and no `\p`, ranges in classes begin at
//! `a`, `A`, `0` or `1`, counts have at most three digits. Beyond that there are two forms:
//!
//! - [`pattern`] is a pattern itself and becomes an automaton, which can be intersected with whatever else is asked of a
//!   string. Groups are nested to a fixed depth, and none has a name.
//! - [`rules`] are a grammar, for a string of which nothing else is asked. Groups are nested to any depth, and have names.
//!
//! # Names
//!
//! No name may be declared twice, and `\k<name>` must name one that is declared. Whether two names are equal no grammar can
//! tell, so patterns with names are those that one letter shows to be right:
//!
//! - one named group, anywhere ([`NAMED_ONCE`]);
//! - any number of them outside of other groups, with first letters in the order of the alphabet, or against it
//!   ([`names_from`]): `(?<year>\d{4})-(?<month>\d\d)-(?<day>\d\d)`. In any order they would need a rule for each set of letters;
//! - one whose name is a small letter, outside of other groups, and behind it any number of `\k` with that letter, outside of
//!   groups, too ([`REFERRED`]).
//!
//! Names are ASCII. All characters of identifiers, those that begin one and the others, would take 1,650 states, where all
//! these rules have 650.

use std::fmt::Write as _;
use std::ops::RangeInclusive;
use std::sync::{Arc, OnceLock};

use crate::error::Result;
use crate::ir::{Body, Expr, Rule, RuleId};
use crate::limits::{Budget, Limits};
use crate::lower;
use crate::regex::{regex, Alphabet, Anchoring};

/// What a backslash makes of a character.
const ESCAPE: &str = r"\\(?:[dDwWsSnrtfv]|[\^$\\.*+?()\[\]{}|/\-]|x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|c[A-Za-z])";

/// What stands between characters. It has no quantifier.
const EDGE: &str = r"[\^$]|\\[bB]";

/// What matches one character.
fn atom() -> String {
    let plain = r"[^\\^$.*+?()\[\]{}|\n\r\u2028\u2029]";
    // Ends of a range in order.
    let ranges = "a-[a-z]|A-[A-Z]|0-[0-9]|1-[1-9]|";
    let member = format!(r"(?:{ranges}[^\\\]\[\-^&|~\n\r\u2028\u2029]|{ESCAPE})");
    let class = format!(r"\[\^?-?{member}*-?\]");
    format!(r"{plain}|\.|{ESCAPE}|{class}")
}

fn quantifier() -> String {
    // Bounds in order.
    let mut counts = String::new();
    for c in 0..=9 {
        // Writing to a string does not fail.
        let _ = write!(counts, "|{c},(?:[{c}-9]|[1-9][0-9]{{1,2}})");
    }
    format!(r"(?:[*+?]|\{{(?:[0-9]{{1,3}},?{counts})\}})\??")
}

/// Patterns whose groups are at most `depth` deep.
pub fn pattern(depth: usize) -> String {
    let (atom, quantifier) = (atom(), quantifier());
    let level = |group: &str, look: &str| {
        let term = format!(r"(?:(?:{atom}{group})(?:{quantifier})?|{EDGE}{look})");
        format!(r"{term}*(?:\|{term}*)*")
    };
    let mut body = level("", "");
    for i in 1..=depth {
        let look = if i == depth { format!(r"|\(\?<?[=!](?:{body})\)") } else { String::new() };
        body = level(&format!(r"|\((?:\?:)?(?:{body})\)"), &look);
    }
    body
}

/// What names begin with, in their order; a capital counts as the small letter that it is, and `_` as `$`.
const FIRST: &str = "abcdefghijklmnopqrstuvwxyz$";
/// Names that can be referred to.
const LETTERS: RangeInclusive<char> = 'a'..='z';

/// The rules by number. The first, 0, is the pattern as a whole.
const PIECE: u32 = 1;
const QUANTIFIER: u32 = 2;
/// Patterns without names.
const NAMELESS: u32 = 3;
/// Patterns with one name.
const NAMED_ONCE: u32 = 4;
/// What a named group begins with, and what a reference to one does.
const OPEN: u32 = 5;
const REFER: u32 = 6;
/// From the end of a name to the end of its group, and the same from the second character of the name on.
const GROUP_END: u32 = 7;
const NAME_END: u32 = 8;
/// From the end of a name that is referred to.
const REFERENCE_END: u32 = 9;
/// From a name that is referred to.
const REFERRED: u32 = 10;
/// From a name of a pattern with several: see [`names_from`].
const FROM: u32 = 11;

/// In which direction the first letters of names go on.
#[derive(Clone, Copy, PartialEq)]
enum Order {
    Up,
    Down,
}

/// The rule from a name on that begins with letter `first` of [`FIRST`] or a later one in that order.
fn names_from(first: usize, order: Order) -> u32 {
    FROM + first as u32 + if order == Order::Up { 0 } else { FIRST.len() as u32 }
}

/// Patterns in a JSON string, without the quotes, as the rules of a grammar that has `base` rules before them. The first is the
/// one to refer to.
pub fn rules(base: RuleId) -> Result<Vec<Rule>> {
    static MADE: OnceLock<Result<Vec<Rule>>> = OnceLock::new();
    let mut rules = MADE.get_or_init(make).clone()?;
    for rule in &mut rules {
        if let Body::Expr(e) = &mut rule.body {
            shift(e, base);
        }
    }
    Ok(rules)
}

/// Moves the references of a rule made here by `base`.
fn shift(e: &mut Expr, base: RuleId) {
    match e {
        Expr::Rule(rule) => *rule += base,
        Expr::Seq(v) | Expr::Alt(v) => v.iter_mut().for_each(|e| shift(e, base)),
        Expr::Repeat { body, .. } => shift(body, base),
        _ => {}
    }
}

fn make() -> Result<Vec<Rule>> {
    let mut rules = vec![];
    let mut add = |name: &str, body: Expr| rules.push(Rule { name: name.into(), body: Body::Expr(body) });
    // As a rule of its own the loop has mask entries that all of these rules share.
    let pieces = || Expr::Rule(NAMELESS);
    let quantified = |e: Expr| Expr::seq([e, Expr::Rule(QUANTIFIER).opt()]);
    let last = FIRST.len() - 1;

    let several = [REFERRED, names_from(0, Order::Up), names_from(last, Order::Down)].map(Expr::Rule);
    let named = Expr::seq([Expr::Rule(OPEN), Expr::alt(several)]);
    let within = Expr::seq([group(NAMED_ONCE), pieces()]);
    add("pattern", Expr::seq([pieces(), Expr::alt([named, within]).opt()]));

    let piece = format!(r"(?:{})(?:{})?|{EDGE}|\|", atom(), quantifier());
    add("piece of a pattern", Expr::alt([automaton(&piece)?, group(NAMELESS)]));
    add("quantifier", automaton(&quantifier())?);
    add("pattern without names", Expr::Rule(PIECE).star());

    let named = Expr::seq([Expr::Rule(OPEN), json("[A-Za-z$_]")?, Expr::Rule(NAME_END)]);
    add("pattern with one name", Expr::seq([pieces(), Expr::alt([named, group(NAMED_ONCE)]), pieces()]));

    add("open a named group", Expr::lit("(?<"));
    add("open a reference", json(r"\\k<")?);
    let rest = Expr::seq([Expr::lit(">"), pieces(), Expr::lit(")")]);
    add("end of a named group", quantified(rest));
    add("end of a name and its group", Expr::seq([json(r"[A-Za-z0-9$_]*")?, Expr::Rule(GROUP_END)]));
    add("end of a reference", quantified(Expr::lit(">")));

    let referred = LETTERS.map(|letter| {
        let letter = || Expr::lit(letter.to_string());
        let reference = Expr::seq([Expr::Rule(REFER), letter(), Expr::Rule(REFERENCE_END), pieces()]);
        Expr::seq([letter(), Expr::Rule(GROUP_END), pieces(), reference.star()])
    });
    add("pattern from a name that is referred to", Expr::Alt(referred.collect()));

    for order in [Order::Up, Order::Down] {
        for (i, letter) in FIRST.chars().enumerate() {
            let other = if letter == '$' { '_' } else { letter.to_ascii_uppercase() };
            let first = Expr::Alt([letter, other].map(|c| Expr::lit(c.to_string())).to_vec());
            let mut this = vec![first, Expr::Rule(NAME_END), pieces()];
            let later = match order {
                Order::Up => (i < last).then(|| names_from(i + 1, order)),
                Order::Down => (i > 0).then(|| names_from(i - 1, order)),
            };
            this.extend(later.map(|rule| Expr::seq([Expr::Rule(OPEN), Expr::Rule(rule)]).opt()));
            let ways = [Expr::Seq(this)].into_iter().chain(later.map(Expr::Rule)).collect();
            add(&format!("pattern from a name with {letter}"), Expr::Alt(ways));
        }
    }
    Ok(rules)
}

/// Groups without names, and assertions, around a rule.
fn group(inside: u32) -> Expr {
    let inside = || Expr::seq([Expr::Rule(inside), Expr::lit(")")]);
    let capture = Expr::seq([Expr::lit("("), Expr::lit("?:").opt(), inside(), Expr::Rule(QUANTIFIER).opt()]);
    let look = Expr::seq([Expr::lit("(?"), Expr::lit("<").opt(), Expr::Class(vec![(b'!', b'!'), (b'=', b'=')])]);
    Expr::alt([capture, Expr::seq([look, inside()])])
}

/// What a pattern matches, in a JSON string.
fn json(pattern: &str) -> Result<Expr> {
    regex(pattern, Alphabet::Json, Anchoring::Full, &Budget::new(Limits::default()))
}

/// The same as an automaton.
fn automaton(pattern: &str) -> Result<Expr> {
    Ok(Expr::Automaton(Arc::new(lower::dfa(&json(pattern)?, &Budget::new(Limits::default()))?)))
}
