//! Strings and numbers: the bridge to the parts that know patterns, formats and ranges.

use std::rc::Rc;
use std::sync::Arc;

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::decimal::Decimal;
use super::documents::LocId;
use super::flat::{Flat, Numbers, Strings, Types};
use super::keyword::Kw;
use super::{formats, numbers, Compiler};
use crate::automata::joint::disjoint;
use crate::error::{CompileError, Result};
use crate::ir::{Body, Dfa, Expr, RuleId};
use crate::limits::{Budget, Limits};
use crate::lower::{self, Language};
use crate::regex::{any_string, regex, regex_within, Alphabet, Anchoring};

/// States that deciding about one string constraint may cost.
const LOOK_STATES: usize = 50_000;
/// Tuples of states that are visited before automata are built to decide.
const LOOK_TUPLES: usize = 5_000;

/// Expressions of strings and numbers made so far, so that equal constraints are one rule.
#[derive(Default)]
pub(super) struct Leaves<'a> {
    strings: FxHashMap<Strings<'a>, Option<Expr>>,
    numbers: FxHashMap<(numbers::Kind, Numbers<'a>), Option<Expr>>,
    patterns: FxHashMap<&'a str, Rc<Language<'a>>>,
    empty: FxHashMap<Strings<'a>, bool>,
}

/// What a string must be in, and what it must not be in. There is something that it must be in.
#[derive(Default)]
struct Automata<'a> {
    all: Vec<Rc<Language<'a>>>,
    not: Vec<Rc<Language<'a>>>,
}

impl Automata<'_> {
    /// Patterns are worked out on the account of the compilation: others may ask for them again.
    fn intersection(&self, budget: &Budget, whole: &Budget) -> Result<Dfa> {
        let mut parts = self.all.iter().rev();
        let mut all = match parts.next() {
            Some(l) => Dfa::clone(&*l.dfa(whole)?),
            None => Dfa::default(),
        };
        for l in parts {
            all = all.intersect(&*l.dfa(whole)?, budget)?;
        }
        for l in &self.not {
            all = all.difference(&*l.dfa(whole)?, budget)?;
        }
        Ok(all)
    }
}

/// Standard base64 with padding, whole groups only.
pub(super) fn is_base64(s: &str) -> bool {
    let body = s.trim_end_matches('=');
    s.len() % 4 == 0
        && s.len() - body.len() <= 2
        && body.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/'))
}

fn clamp(n: u64) -> u32 {
    n.min(u32::MAX as u64) as u32
}

/// A length beyond any text is none.
fn at_most(n: Option<u64>) -> Option<u32> {
    n.filter(|n| *n < u32::MAX as u64).map(|n| n as u32)
}

impl<'a> Compiler<'a> {
    /// An error of a pattern or format, placed.
    fn placed(&self, e: CompileError, loc: LocId, kw: Kw) -> CompileError {
        match e {
            CompileError::Unsupported { keyword, reason, remedy, .. } => {
                CompileError::unsupported(self.place(loc, kw), kw.text(), format!("{keyword}: {reason}"), remedy)
            }
            CompileError::Invalid { message, .. } => CompileError::invalid(self.place(loc, kw), message),
            e => e.within(&self.place(loc, kw)),
        }
    }

    /// Turn a failure into a warning where that is wanted.
    fn or_skip<T>(&mut self, r: Result<T>, loc: LocId, kw: Kw) -> Result<Option<T>> {
        match r {
            Ok(t) => Ok(Some(t)),
            Err(CompileError::Unsupported { keyword, reason, remedy, .. }) => {
                self.unsupported(loc, kw, &format!("{keyword}: {reason}"), &remedy)?;
                Ok(None)
            }
            Err(e) => Err(self.placed(e, loc, kw)),
        }
    }

    fn keyword_of_pattern(&mut self, loc: LocId) -> Kw {
        if self.docs.get(loc, Kw::Pattern).is_some() {
            Kw::Pattern
        } else {
            Kw::PatternProperties
        }
    }

    /// Whether a pattern matches a text.
    pub(super) fn pattern_matches(&mut self, loc: LocId, kw: Kw, pattern: &'a str, text: &str) -> Result<bool> {
        let has = self.pattern_language(pattern).and_then(|l| l.has(text.as_bytes()));
        has.map_err(|e| self.placed(e, loc, kw))
    }

    /// The strings that a pattern matches, in UTF-8.
    fn pattern_language(&mut self, pattern: &'a str) -> Result<Rc<Language<'a>>> {
        if let Some(d) = self.leaves.patterns.get(pattern) {
            return Ok(d.clone());
        }
        let e = regex(pattern, Alphabet::Utf8, Anchoring::Search, self.budget)?;
        let made = Rc::new(Language::new(e, self.budget)?);
        self.leaves.patterns.insert(pattern, made.clone());
        Ok(made)
    }

    fn format_dfa(&mut self, name: &'a str) -> Result<Arc<Dfa>> {
        static MADE: Mutex<Vec<(String, Arc<Dfa>)>> = Mutex::new(vec![]);
        if let Some((_, d)) = MADE.lock().iter().find(|(n, _)| n == name) {
            return Ok(d.clone());
        }
        let e = match self.format_expr(name, Alphabet::Utf8)? {
            Some(e) => e,
            None => any_string(Alphabet::Utf8, 0, None),
        };
        // Known formats are few and fixed: this list is bounded.
        let made = Arc::new(lower::dfa(&e, &Budget::new(Limits::default()))?);
        MADE.lock().push((name.to_owned(), made.clone()));
        Ok(made)
    }

    /// The texts (in an alphabet, without quotes) of a string constraint, everything but plain lengths in play.
    pub(super) fn text_expr(&mut self, s: &Strings<'a>, alphabet: Alphabet) -> Result<Expr> {
        let mut all = vec![];
        let mut not = vec![];
        for (pattern, positive) in &s.patterns {
            let kw = self.keyword_of_pattern(s.at);
            let made = match s.max {
                Some(most) => regex_within(pattern, alphabet, Anchoring::Search, most, self.budget),
                None => regex(pattern, alphabet, Anchoring::Search, self.budget),
            };
            if let Some(e) = self.or_skip(made, s.at, kw)? {
                if *positive { &mut all } else { &mut not }.push(e);
            }
        }
        for (format, positive) in &s.formats {
            let made = self.format_expr(format, alphabet);
            if let Some(Some(e)) = self.or_skip(made, s.at, Kw::Format)? {
                if *positive { &mut all } else { &mut not }.push(e);
            }
        }
        if s.base64 {
            let made = regex(
                "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$",
                alphabet,
                Anchoring::Search,
                self.budget,
            )?;
            all.push(made);
        }
        if s.min > 0 || s.max.is_some() || all.is_empty() {
            all.push(any_string(alphabet, clamp(s.min), at_most(s.max)));
        }
        for text in &s.except {
            not.push(match alphabet {
                Alphabet::Utf8 => Expr::lit(text),
                Alphabet::Json => lower::json_spelling(text),
            });
        }
        let mut e = if all.len() == 1 { all.remove(0) } else { Expr::And(all) };
        if !not.is_empty() {
            let not = if not.len() == 1 { not.remove(0) } else { Expr::Alt(not) };
            e = Expr::Sub(Box::new(e), Box::new(not));
        }
        Ok(e)
    }

    /// Strings in quotes; `None` if there are none.
    pub(super) fn string_expr(&mut self, s: &Strings<'a>) -> Result<Option<Expr>> {
        if s.patterns.is_empty() && s.formats.is_empty() && s.except.is_empty() && !s.base64 {
            if s.min > u32::MAX as u64 {
                return Ok(None);
            }
            let rule = self.string_rule()?;
            return Ok(Some(Expr::json_string(rule, s.min as u32, at_most(s.max))));
        }
        let key = Strings { at: 0, ..s.clone() };
        if let Some(e) = self.leaves.strings.get(&key) {
            return Ok(e.clone());
        }
        // Lowering finds out whether an intersection is empty; here it would be done twice.
        let text = match self.pattern_rules(&key)? {
            Some(rule) => Expr::Rule(rule),
            None => self.text_expr(s, Alphabet::Json)?,
        };
        let result = if s.max.is_some_and(|m| m < s.min) || text == Expr::Never {
            None
        } else {
            let body = Expr::seq([Expr::lit("\""), text, Expr::lit("\"")]);
            Some(Expr::Rule(self.add_rule("text".into(), Body::Expr(body))?))
        };
        self.leaves.strings.insert(key, result.clone());
        Ok(result)
    }

    /// The rule of patterns, if a constraint asks for nothing else. What is excluded from strings can only be taken out of an
    /// automaton.
    fn pattern_rules(&mut self, s: &Strings<'a>) -> Result<Option<RuleId>> {
        let nothing_else = Strings { formats: SmallVec::from_slice(&[("regex", true)]), ..Strings::default() };
        if *s != nothing_else || !self.options.notation.excludes.is_empty() {
            return Ok(None);
        }
        let first = self.rules.len() as RuleId;
        for rule in formats::patterns::rules(first)? {
            self.add_rule(rule.name, rule.body)?;
        }
        Ok(Some(first))
    }

    /// Keys of an object: the text between the quotes. `None` if there are none.
    pub(super) fn key_expr(&mut self, s: &Strings<'a>) -> Result<Option<Expr>> {
        if s.max.is_some_and(|m| m < s.min) {
            return Ok(None);
        }
        let alphabet = if self.in_json() { Alphabet::Json } else { Alphabet::Utf8 };
        let text = self.text_expr(s, alphabet)?;
        Ok((text != Expr::Never).then_some(text))
    }

    /// Whether no string at all satisfies a constraint, as far as that can be told within bounds.
    pub(super) fn string_empty(&mut self, s: &Strings<'a>) -> Result<bool> {
        if s.max.is_some_and(|m| m < s.min) || s.min > u32::MAX as u64 {
            return Ok(true);
        }
        // What is taken of a format in part says nothing of the rest.
        let whole;
        let s = if s.formats.iter().any(|(f, _)| formats::is_partial(f)) {
            let kept = s.formats.iter().filter(|(f, _)| !formats::is_partial(f));
            whole = Strings { formats: kept.copied().collect(), ..s.clone() };
            &whole
        } else {
            s
        };
        let positive = s.patterns.iter().chain(&s.formats).filter(|(_, p)| *p).count() + s.base64 as usize;
        let negative = s.patterns.len() + s.formats.len() + s.base64 as usize - positive;
        let lengths = s.min > 0 || s.max.is_some();
        // One pattern, or lengths alone, are not empty in practice; lengths that would take large automata are not tried.
        let formats_alone = positive == 1 && !s.formats.is_empty() && negative == 0;
        if formats_alone
            || positive + negative == 0
            || (positive == 1 && negative == 0 && !lengths)
            || (positive == 0 && lengths)
        {
            return Ok(false);
        }
        let mut key = Strings { at: 0, ..s.clone() };
        key.except.clear();
        if lengths && (s.min > 64 || s.max.is_some_and(|m| m > 64)) {
            key.min = 0;
            key.max = None;
            if positive + negative == 1 {
                return Ok(false);
            }
        }
        if let Some(e) = self.leaves.empty.get(&key) {
            return Ok(*e);
        }
        self.budget.check()?;
        let empty = match self.try_empty(&key) {
            Ok(e) => e,
            Err(CompileError::Cancelled) => return Err(CompileError::Cancelled),
            Err(_) => false,
        };
        self.leaves.empty.insert(key, empty);
        Ok(empty)
    }

    /// Whether infinitely many strings satisfy a constraint, as far as that can be told within bounds.
    pub(super) fn string_endless(&mut self, s: &Strings<'a>) -> Result<bool> {
        if s.patterns.is_empty() && s.formats.is_empty() && !s.base64 {
            return Ok(s.max.is_none());
        }
        // Values that are excluded are finitely many.
        let mut key = Strings { at: 0, ..s.clone() };
        key.except.clear();
        match self.automaton(&key) {
            Ok(all) => Ok(all.has_loop()),
            Err(CompileError::Cancelled) => Err(CompileError::Cancelled),
            Err(_) => Ok(false),
        }
    }

    /// How many strings satisfy a constraint, counted up to `most`; `None` if that cannot be told within bounds. Values that
    /// are excluded are counted, too.
    pub(super) fn string_count(&mut self, s: &Strings<'a>, most: u64) -> Result<Option<u64>> {
        if s.patterns.is_empty() && s.formats.is_empty() && !s.base64 && s.max.is_none_or(|m| m >= 2) {
            return Ok(Some(most));
        }
        // Lengths are counted, not built.
        let key = Strings { at: 0, min: 0, max: None, except: vec![], ..s.clone() };
        match self.automaton(&key) {
            Ok(all) => Ok(Some(all.count(s.min, s.max, most))),
            Err(CompileError::Cancelled) => Err(CompileError::Cancelled),
            Err(_) => Ok(None),
        }
    }

    /// The strings that satisfy a constraint, if they are at most `most` and that can be told within bounds.
    pub(super) fn string_list(&mut self, s: &Strings<'a>, most: usize) -> Result<Option<Vec<&'a str>>> {
        let texts = match self.automaton(s) {
            Ok(all) => all.strings(most),
            Err(CompileError::Cancelled) => return Err(CompileError::Cancelled),
            Err(_) => None,
        };
        let texts: Option<Vec<String>> =
            texts.map(|texts| texts.into_iter().filter_map(|t| String::from_utf8(t).ok()).collect());
        Ok(texts.map(|texts| texts.into_iter().map(|t| self.names.keep(t)).collect()))
    }

    /// How many strings satisfy one of some constraints or are one of some values.
    pub(super) fn count_union(&mut self, specs: &[Strings<'a>], values: &[&'a str], most: u64) -> Result<Option<u64>> {
        let mut all: Vec<Expr> = values.iter().map(Expr::lit).collect();
        for s in specs {
            all.push(self.text_expr(s, Alphabet::Utf8)?);
        }
        let budget = Budget::new(Limits { fsm_states: LOOK_STATES, ..self.budget.limits.clone() });
        match lower::dfa(&Expr::Alt(all), &budget) {
            Ok(d) => Ok(Some(d.count(0, None, most))),
            Err(CompileError::Cancelled) => Err(CompileError::Cancelled),
            Err(_) => Ok(None),
        }
    }

    fn try_empty(&mut self, s: &Strings<'a>) -> Result<bool> {
        let budget = self.look();
        let parts = self.automata(s, &budget)?;
        let all: Vec<&Language> = parts.all.iter().map(|l| &**l).collect();
        let not: Vec<&Language> = parts.not.iter().map(|l| &**l).collect();
        let told = match disjoint(&all, &not, LOOK_TUPLES, self.budget)? {
            Some(empty) => Ok(empty),
            None => parts.intersection(&budget, self.budget).map(|d| d.is_empty()),
        };
        self.looked(&budget)?;
        told
    }

    /// The strings that satisfy a constraint, within a budget of its own.
    fn automaton(&mut self, s: &Strings<'a>) -> Result<Dfa> {
        let budget = self.look();
        let made = self.automata(s, &budget).and_then(|parts| parts.intersection(&budget, self.budget));
        self.looked(&budget)?;
        made
    }

    /// A look is given up before it costs much, but many looks cost much.
    fn looked(&self, budget: &Budget) -> Result<()> {
        self.budget.states(budget.spent())
    }

    fn look(&self) -> Budget {
        Budget::new(Limits { fsm_states: LOOK_STATES, ..self.budget.limits.clone() })
    }

    /// An automaton for each part of a constraint.
    fn automata(&mut self, s: &Strings<'a>, budget: &Budget) -> Result<Automata<'a>> {
        let mut parts = Automata::default();
        for (p, yes) in &s.patterns {
            let l = self.pattern_language(p)?;
            if *yes { &mut parts.all } else { &mut parts.not }.push(l);
        }
        for (f, yes) in &s.formats {
            let l = Rc::new(Language::Whole(self.format_dfa(f)?));
            if *yes { &mut parts.all } else { &mut parts.not }.push(l);
        }
        if s.min > 0 || s.max.is_some() || parts.all.is_empty() {
            let lengths = any_string(Alphabet::Utf8, clamp(s.min), at_most(s.max));
            parts.all.push(Rc::new(Language::Whole(Arc::new(lower::dfa(&lengths, budget)?))));
        }
        Ok(parts)
    }

    pub(super) fn string_constant(&mut self, s: &str) -> Expr {
        match lower::json_spelling(s) {
            Expr::Bytes(b) => Expr::Bytes([b"\"".as_slice(), &b, b"\""].concat()),
            e => Expr::seq([Expr::lit("\""), e, Expr::lit("\"")]),
        }
    }

    pub(super) fn known_format(&self, name: &str) -> bool {
        formats::is_known(name)
    }

    /// A format as an expression; `None` if it restricts no string.
    fn format_expr(&self, name: &str, alphabet: Alphabet) -> Result<Option<Expr>> {
        formats::format(name, alphabet).transpose()
    }

    /// Whether a text has a format.
    pub(super) fn format_matches(&mut self, loc: LocId, name: &'a str, text: &str) -> Result<bool> {
        let d = self.format_dfa(name).map_err(|e| self.placed(e, loc, Kw::Format))?;
        if d.accepts(text.as_bytes()) {
            return Ok(true);
        }
        let known = match name {
            "regex" => match regex(text, Alphabet::Utf8, Anchoring::Search, self.budget) {
                Ok(_) => Some(true),
                Err(CompileError::Invalid { .. }) => Some(false),
                Err(_) => None,
            },
            _ if formats::is_partial(name) => None,
            _ => Some(false),
        };
        if known.is_none() {
            let reason =
                format!("whether {text:?} has this format cannot be told: it is taken more narrowly than it is");
            self.unsupported(loc, Kw::Format, &reason, "Leave out the format, or the value")?;
        }
        Ok(known.unwrap_or(true))
    }

    /// Numbers within bounds; `None` if there are none.
    pub(super) fn number_expr(&mut self, f: &Flat<'a>) -> Result<Option<Expr>> {
        let kind = match f.types.and(Types::NUMBER) {
            Types::INTEGER => numbers::Kind::Integer,
            Types::FRACTION => numbers::Kind::Fraction,
            _ => numbers::Kind::Number,
        };
        let key = (kind, f.number.own());
        if let Some(e) = self.leaves.numbers.get(&key) {
            return Ok(e.clone());
        }
        let n = &f.number;
        let bound = |b: &super::flat::Bound| {
            b.value.as_ref().map(|v| numbers::Bound { text: v.to_string(), exclusive: b.exclusive })
        };
        // Every integer is a multiple of what divides 1.
        let one = Decimal::parse("1");
        let implied = |m: &str| {
            let step = Decimal::parse(m);
            kind == numbers::Kind::Integer
                && one.as_ref().zip(step).and_then(|(one, step)| one.is_multiple_of(&step)) == Some(true)
        };
        let spec = numbers::NumberSpec {
            min: bound(&n.min),
            max: bound(&n.max),
            multiple_of: n.multiples.iter().filter(|m| !implied(m)).map(|m| m.to_string()).collect(),
            except: n.except.iter().map(|d| d.to_string()).collect(),
            plain: n.plain,
        };
        let made = numbers::of_kind(kind, &spec, self.budget).and_then(|e| {
            if n.not_multiples.is_empty() {
                Ok(e)
            } else {
                self.without_multiples(e, &n.not_multiples)
            }
        });
        let (loc, kw) = self.number_keyword(f);
        let result = match self.or_skip(made, loc, kw)? {
            Some(Expr::Never) => None,
            Some(body) => {
                let name = if kind == numbers::Kind::Integer { "integer" } else { "number" };
                Some(Expr::Rule(self.add_rule(name.into(), Body::Expr(body))?))
            }
            None => {
                let mut free = f.clone();
                *free.number = Numbers::default();
                self.number_expr(&free)?
            }
        };
        self.leaves.numbers.insert(key, result.clone());
        Ok(result)
    }

    /// Numbers that are no multiples of any step. Multiples have no spelling with an exponent, so neither have these.
    fn without_multiples(&self, all: Expr, steps: &[&'a str]) -> Result<Expr> {
        let mut multiples = vec![];
        for step in steps {
            let spec = numbers::NumberSpec { multiple_of: vec![(*step).to_owned()], ..Default::default() };
            multiples.push(numbers::number(&spec, self.budget)?);
        }
        if all == Expr::Never {
            return Ok(all);
        }
        let plain = Expr::Class(vec![(b'-', b'.'), (b'0', b'9')]).star();
        Ok(Expr::Sub(Box::new(Expr::And(vec![all, plain])), Box::new(Expr::Alt(multiples))))
    }

    /// The keyword to name when a constraint on numbers cannot be had.
    fn number_keyword(&mut self, f: &Flat<'a>) -> (LocId, Kw) {
        let kws = [Kw::MultipleOf, Kw::Minimum, Kw::Maximum, Kw::ExclusiveMinimum, Kw::ExclusiveMaximum];
        for kw in kws {
            for n in &f.nodes {
                if self.docs.get(n.loc, kw).is_some() {
                    return (n.loc, kw);
                }
            }
        }
        (f.nodes.first().map_or(0, |n| n.loc), Kw::Type)
    }

    /// All spellings of a number.
    pub(super) fn number_constant(&mut self, text: &str) -> Result<Expr> {
        numbers::constant(text, false, self.budget)
    }
}
