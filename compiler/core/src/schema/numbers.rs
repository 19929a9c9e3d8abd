//! JSON numbers within bounds, as deterministic automata over their digits.
//!
//! Everything is by value and exact, for bounds of any length: `-0` is zero, `1.0` is an integer. Plain spellings
//! (`-12.50`) are complete. Spellings with an exponent are complete where no bound or `multipleOf` applies to that sign. Under
//! bounds they are those of normal scientific notation, one digit from 1 to 9 before the point and any number after it
//! (`1.5e+300`, what serialisers write), exact for bounds up to [`EXPONENT`] in decimal exponent. With `multipleOf` there are
//! none. Integers have exponents from 0 on, and only zeros after the point.
//!
//! The automaton is found by walking the text and comparing it with each bound digit by digit: for the part before the
//! point, how many digits there were and how they compare; then, while equal, how far. `multipleOf` adds the remainder
//! ([`multiple`]).

mod multiple;
#[cfg(test)]
mod tests;

use std::cmp::Ordering;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::error::{CompileError, Result};
use crate::ir::{Dfa, DfaState, Expr};
use crate::limits::Budget;
use multiple::Multiple;

/// Largest decimal exponent of a bound under which numbers may be written with an exponent.
pub const EXPONENT: i64 = 330;
/// Most digits of a bound, zeros that its exponent stands for included.
const DIGITS: i64 = 10_000;

/// A bound, as JSON writes numbers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Bound {
    pub text: String,
    pub exclusive: bool,
}

/// What a number has to be.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct NumberSpec {
    pub min: Option<Bound>,
    pub max: Option<Bound>,
    /// Positive decimals, all of which divide the number.
    pub multiple_of: Vec<String>,
    /// Values that it must not have.
    pub except: Vec<String>,
    /// Integers only as `-?(0|[1-9][0-9]*)`: no `1.0`, no `1e3`.
    pub plain: bool,
}

/// Which values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    Integer,
    /// Not an integer.
    Fraction,
    Number,
}

/// Integers; [`Expr::Never`] if there are none.
pub fn integer(spec: &NumberSpec, budget: &Budget) -> Result<Expr> {
    of_kind(Kind::Integer, spec, budget)
}

/// Any numbers; [`Expr::Never`] if there are none.
pub fn number(spec: &NumberSpec, budget: &Budget) -> Result<Expr> {
    of_kind(Kind::Number, spec, budget)
}

/// The number of this value, in every spelling.
pub fn constant(text: &str, plain: bool, budget: &Budget) -> Result<Expr> {
    let bound = Bound { text: text.into(), exclusive: false };
    let spec = NumberSpec { min: Some(bound.clone()), max: Some(bound), plain, ..NumberSpec::default() };
    number(&spec, budget)
}

pub fn of_kind(kind: Kind, spec: &NumberSpec, budget: &Budget) -> Result<Expr> {
    let free = spec.min.is_none() && spec.max.is_none() && spec.multiple_of.is_empty();
    let all = if free && kind != Kind::Fraction { unbounded(kind, spec.plain) } else { bounded(kind, spec, budget)? };
    if spec.except.is_empty() || all == Expr::Never {
        return Ok(all);
    }
    let mut except = vec![];
    for text in &spec.except {
        except.push(constant(text, false, budget)?);
    }
    Ok(Expr::Sub(Box::new(all), Box::new(Expr::Alt(except))))
}

/// The values an OpenAPI format allows: (minimum, maximum), and whether they are integers.
pub fn format_bounds(format: &str) -> Option<(&'static str, &'static str, bool)> {
    Some(match format {
        "int32" => ("-2147483648", "2147483647", true),
        "int64" => ("-9223372036854775808", "9223372036854775807", true),
        "float" => ("-3.4028234663852886e38", "3.4028234663852886e38", false),
        "double" => ("-1.7976931348623157e308", "1.7976931348623157e308", false),
        _ => return None,
    })
}

/// The grammar of JSON numbers, or of integers among them.
fn unbounded(kind: Kind, plain: bool) -> Expr {
    let class = |bytes: &[u8]| Expr::Class(bytes.iter().map(|&b| (b, b)).collect());
    let digits = || Expr::Class(vec![(b'0', b'9')]);
    let whole = Expr::alt([Expr::lit("0"), Expr::seq([Expr::Class(vec![(b'1', b'9')]), digits().star()])]);
    let mut items = vec![Expr::lit("-").opt(), whole];
    if kind == Kind::Integer && plain {
        return Expr::Seq(items);
    }
    let (after_point, signs) = match kind {
        Kind::Integer => (Expr::lit("0"), class(b"+")),
        _ => (digits(), class(b"+-")),
    };
    items.push(Expr::seq([Expr::lit("."), after_point.plus()]).opt());
    items.push(Expr::seq([class(b"Ee"), signs.opt(), digits().plus()]).opt());
    Expr::Seq(items)
}

/// The size of a bound: its digits before and after the point, without needless zeros.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Decimal {
    pub negative: bool,
    pub whole: Vec<u8>,
    pub part: Vec<u8>,
}

impl Decimal {
    pub fn parse(text: &str) -> Result<Decimal> {
        let bad =
            || CompileError::invalid("", format!("`{}` is not a number", text.chars().take(40).collect::<String>()));
        let long = || {
            CompileError::unsupported(
                "",
                "a number this long",
                format!("it has more than {DIGITS} digits"),
                "Use a bound with fewer digits",
            )
        };
        let (negative, rest) = text.strip_prefix('-').map_or((false, text), |t| (true, t));
        let (mantissa, exponent) = match rest.find(['e', 'E']) {
            Some(i) => (&rest[..i], &rest[i + 1..]),
            None => (rest, "0"),
        };
        let (whole, part) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let digits: Vec<u8> = whole.bytes().chain(part.bytes()).collect();
        let e = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
        if digits.is_empty() || e.is_empty() || !digits.iter().chain(e.as_bytes()).all(u8::is_ascii_digit) {
            return Err(bad());
        }
        let zeros = digits.iter().take_while(|&&d| d == b'0').count();
        if zeros == digits.len() {
            return Ok(Decimal { negative: false, whole: vec![b'0'], part: vec![] });
        }
        let exponent: i64 = exponent.trim_start_matches('+').parse().map_err(|_| long())?;
        if digits.len() as i64 > DIGITS || exponent.abs() > DIGITS {
            return Err(long());
        }
        // The point stands before digit `point`.
        let point = whole.len() as i64 + exponent;
        let at = |i: i64| usize::try_from(i).ok().and_then(|i| digits.get(i)).copied().unwrap_or(b'0');
        let mut whole: Vec<u8> = (0..point).map(at).skip_while(|&d| d == b'0').collect();
        if whole.is_empty() {
            whole.push(b'0');
        }
        let mut part: Vec<u8> = (point..digits.len() as i64).map(at).collect();
        while part.last() == Some(&b'0') {
            part.pop();
        }
        Ok(Decimal { negative, whole, part })
    }

    fn is_zero(&self) -> bool {
        self.part.is_empty() && self.whole == b"0"
    }
}

/// A bound on the size of numbers of one sign.
#[derive(Clone, Debug)]
struct Edge {
    size: Decimal,
    strict: bool,
    /// The digits of normal scientific notation, and its exponent.
    digits: Vec<u8>,
    exponent: i64,
}

impl Edge {
    fn new(size: &Decimal, strict: bool) -> Edge {
        let mut digits: Vec<u8> = size.whole.iter().chain(&size.part).copied().skip_while(|&d| d == b'0').collect();
        while digits.last() == Some(&b'0') {
            digits.pop();
        }
        let exponent = if size.whole != b"0" {
            size.whole.len() as i64 - 1
        } else {
            -1 - size.part.iter().take_while(|&&d| d == b'0').count() as i64
        };
        Edge { size: size.clone(), strict, digits, exponent }
    }
}

/// Numbers of one sign: bounds on their size.
#[derive(Clone, Debug, Default)]
struct Branch {
    lo: Option<Edge>,
    hi: Option<Edge>,
}

impl Branch {
    /// Sizes of the numbers from `min` to `max` that have no sign; `None`: there are none.
    fn new(min: Option<&(Decimal, bool)>, max: Option<&(Decimal, bool)>) -> Option<Branch> {
        let mut branch = Branch::default();
        if let Some((d, strict)) = min {
            if !d.negative && (*strict || !d.is_zero()) {
                branch.lo = Some(Edge::new(d, *strict));
            }
        }
        if let Some((d, strict)) = max {
            if d.negative || (d.is_zero() && *strict) {
                return None;
            }
            branch.hi = Some(Edge::new(d, *strict));
        }
        Some(branch)
    }

    fn free(&self) -> bool {
        self.lo.is_none() && self.hi.is_none()
    }

    fn scientific(&self) -> bool {
        [&self.lo, &self.hi].into_iter().flatten().all(|e| e.exponent.abs() <= EXPONENT)
    }
}

/// How the text read so far compares with a bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Cmp {
    /// The bound is absent, or satisfied whatever follows.
    Off,
    /// Before the point: digits read, and how they compare with as many of the bound's.
    Whole(u32, Ordering),
    /// Equal so far; the number of digits passed that matter now (after the point, or of the mantissa).
    Equal(u32),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Place {
    /// After a leading zero.
    Zero,
    Whole,
    Point,
    Part,
    Mark,
    Sign,
    Exponent,
}

/// A plain number being read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Plain {
    place: Place,
    minus: bool,
    lo: Cmp,
    hi: Cmp,
    /// Remainder and digits after the point, for `multipleOf`.
    rest: u32,
    digits: u32,
    /// Whether a digit other than zero stands after the point (where that matters).
    fraction: bool,
}

/// A number with an exponent being read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Scientific {
    place: Place,
    minus: bool,
    lo: Cmp,
    hi: Cmp,
    /// Bounds of the exponent (of its size, once its sign is known).
    from: i64,
    to: i64,
    value: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum State {
    Start,
    Minus,
    In(Option<Plain>, Option<Scientific>),
}

const UNBOUNDED: i64 = i64::MAX;

struct Machine {
    kind: Kind,
    plain: bool,
    /// Without and with a minus.
    branches: [Option<Branch>; 2],
    scientific: [bool; 2],
    multiple: Option<Multiple>,
}

fn bounded(kind: Kind, spec: &NumberSpec, budget: &Budget) -> Result<Expr> {
    let bound = |b: &Option<Bound>| match b {
        Some(b) => Decimal::parse(&b.text).map(|d| Some((d, b.exclusive))),
        None => Ok(None),
    };
    let (min, max) = (bound(&spec.min)?, bound(&spec.max)?);
    let negated = |b: &Option<(Decimal, bool)>| {
        b.as_ref().map(|(d, strict)| (Decimal { negative: !d.negative && !d.is_zero(), ..d.clone() }, *strict))
    };
    let branches =
        [Branch::new(min.as_ref(), max.as_ref()), Branch::new(negated(&max).as_ref(), negated(&min).as_ref())];
    let multiple = if spec.multiple_of.is_empty() { None } else { Some(Multiple::new(&spec.multiple_of)?) };
    let scientific = [0, 1].map(|i| {
        multiple.is_none()
            && !(kind == Kind::Integer && spec.plain)
            && branches[i].as_ref().is_some_and(Branch::scientific)
    });
    let mut machine = Machine { kind, plain: spec.plain, branches, scientific, multiple };
    let mut ids: FxHashMap<State, u32> = FxHashMap::default();
    let mut states = vec![State::Start];
    ids.insert(State::Start, 0);
    let mut dfa = Dfa::default();
    while dfa.states.len() < states.len() {
        let state = states[dfa.states.len()];
        budget.states(1)?;
        let mut edges: Vec<(u8, u8, u32)> = vec![];
        for &byte in b"+-.0123456789Ee" {
            let Some(next) = machine.step(state, byte)? else { continue };
            let to = *ids.entry(next).or_insert_with(|| {
                states.push(next);
                states.len() as u32 - 1
            });
            match edges.last_mut() {
                Some(e) if e.2 == to && e.1 + 1 == byte => e.1 = byte,
                _ => edges.push((byte, byte, to)),
            }
        }
        dfa.states.push(DfaState { edges, accept: machine.accepts(state) });
    }
    Ok(match trim(dfa) {
        Some(dfa) => Expr::Automaton(Arc::new(dfa)),
        None => Expr::Never,
    })
}

/// Without the states that lead nowhere; `None` if nothing is accepted.
fn trim(dfa: Dfa) -> Option<Dfa> {
    let n = dfa.states.len();
    let mut sources = vec![vec![]; n];
    for (i, s) in dfa.states.iter().enumerate() {
        for e in &s.edges {
            sources[e.2 as usize].push(i);
        }
    }
    let mut todo: Vec<usize> = (0..n).filter(|&i| dfa.states[i].accept).collect();
    let mut live = vec![false; n];
    todo.iter().for_each(|&i| live[i] = true);
    while let Some(i) = todo.pop() {
        for &from in &sources[i] {
            if !std::mem::replace(&mut live[from], true) {
                todo.push(from);
            }
        }
    }
    if n == 0 || !live[0] {
        return None;
    }
    let mut number = vec![0u32; n];
    let mut next = 0;
    for i in 0..n {
        number[i] = next;
        next += u32::from(live[i]);
    }
    let kept = dfa.states.into_iter().zip(&live).filter(|(_, &l)| l).map(|(mut s, _)| {
        s.edges.retain(|e| live[e.2 as usize]);
        s.edges.iter_mut().for_each(|e| e.2 = number[e.2 as usize]);
        s
    });
    Some(Dfa { states: kept.collect() })
}

impl Machine {
    fn step(&mut self, state: State, byte: u8) -> Result<Option<State>> {
        let (plain, scientific) = match state {
            State::Start if byte == b'-' => return Ok(self.branches[1].is_some().then_some(State::Minus)),
            State::Start | State::Minus if !byte.is_ascii_digit() => return Ok(None),
            State::Start => (self.first(false, byte)?, self.first_scientific(false, byte)),
            State::Minus => (self.first(true, byte)?, self.first_scientific(true, byte)),
            State::In(p, s) => (
                match p {
                    Some(p) => self.next(p, byte)?,
                    None => None,
                },
                s.and_then(|s| self.next_scientific(s, byte)),
            ),
        };
        Ok((plain.is_some() || scientific.is_some()).then_some(State::In(plain, scientific)))
    }

    fn accepts(&self, state: State) -> bool {
        let State::In(plain, scientific) = state else { return false };
        let plain = plain.is_some_and(|p| self.accepts_plain(p));
        plain || scientific.is_some_and(|s| s.place == Place::Exponent && s.value >= s.from)
    }

    fn branch(&self, minus: bool) -> Option<&Branch> {
        self.branches[usize::from(minus)].as_ref()
    }

    fn first(&mut self, minus: bool, byte: u8) -> Result<Option<Plain>> {
        let Some(branch) = self.branch(minus) else { return Ok(None) };
        let begin = |e: &Option<Edge>| if e.is_some() { Cmp::Whole(0, Ordering::Equal) } else { Cmp::Off };
        let place = if byte == b'0' { Place::Zero } else { Place::Whole };
        let (lo, hi) = (begin(&branch.lo), begin(&branch.hi));
        let rest = match &mut self.multiple {
            Some(m) => m.zero()?,
            None => 0,
        };
        self.whole(Plain { place, minus, lo, hi, rest, digits: 0, fraction: false }, byte)
    }

    /// A digit before the point.
    fn whole(&mut self, mut p: Plain, byte: u8) -> Result<Option<Plain>> {
        let Some(branch) = self.branch(p.minus) else { return Ok(None) };
        let compare = |c: Cmp, edge: &Option<Edge>| match (c, edge) {
            (Cmp::Whole(k, order), Some(e)) => {
                e.size.whole.get(k as usize).map(|d| Cmp::Whole(k + 1, order.then(byte.cmp(d))))
            }
            (c, _) => Some(c),
        };
        // More digits than the bound has: larger.
        p.lo = compare(p.lo, &branch.lo).unwrap_or(Cmp::Off);
        let Some(hi) = compare(p.hi, &branch.hi) else { return Ok(None) };
        if let (Cmp::Whole(k, Ordering::Greater), Some(e)) = (hi, &branch.hi) {
            if k as usize == e.size.whole.len() {
                return Ok(None);
            }
        }
        p.hi = hi;
        if let Some(m) = &mut self.multiple {
            p.rest = m.append(p.rest, byte)?;
        }
        Ok(Some(p))
    }

    /// The part before the point is complete. `None`: out of bounds whatever follows.
    fn point(&self, mut p: Plain) -> Option<Plain> {
        let branch = self.branch(p.minus)?;
        if let (Cmp::Whole(k, order), Some(e)) = (p.lo, &branch.lo) {
            p.lo = match (k as usize).cmp(&e.size.whole.len()).then(order) {
                Ordering::Less => return None,
                Ordering::Equal => Cmp::Equal(0),
                Ordering::Greater => Cmp::Off,
            };
        }
        if let (Cmp::Whole(k, order), Some(e)) = (p.hi, &branch.hi) {
            p.hi = match (k as usize).cmp(&e.size.whole.len()).then(order) {
                Ordering::Less => Cmp::Off,
                Ordering::Equal => Cmp::Equal(0),
                Ordering::Greater => return None,
            };
        }
        Some(p)
    }

    fn next(&mut self, p: Plain, byte: u8) -> Result<Option<Plain>> {
        match (p.place, byte) {
            (Place::Whole, b'0'..=b'9') => self.whole(p, byte),
            (Place::Zero | Place::Whole, b'.') if !(self.kind == Kind::Integer && self.plain) => {
                Ok(self.point(Plain { place: Place::Point, ..p }))
            }
            (Place::Point | Place::Part, b'0'..=b'9') => self.part(Plain { place: Place::Part, ..p }, byte),
            _ => Ok(None),
        }
    }

    /// A digit after the point.
    fn part(&mut self, mut p: Plain, byte: u8) -> Result<Option<Plain>> {
        if self.kind == Kind::Integer && byte != b'0' {
            return Ok(None);
        }
        let Some(branch) = self.branch(p.minus) else { return Ok(None) };
        let lo = branch.lo.as_ref().map_or(&[][..], |e| &e.size.part);
        let hi = branch.hi.as_ref().map_or(&[][..], |e| &e.size.part);
        let (Some(lo), Some(hi)) = (digit(p.lo, lo, byte, true), digit(p.hi, hi, byte, false)) else { return Ok(None) };
        (p.lo, p.hi) = (lo, hi);
        p.fraction |= self.kind == Kind::Fraction && byte != b'0';
        if let Some(m) = &mut self.multiple {
            if p.digits < m.scale() {
                p.digits += 1;
                p.rest = m.append(p.rest, byte)?;
            } else if byte != b'0' {
                return Ok(None);
            }
        }
        Ok(Some(p))
    }

    fn accepts_plain(&self, p: Plain) -> bool {
        let p = match p.place {
            Place::Zero | Place::Whole => self.point(p),
            Place::Part => Some(p),
            _ => None,
        };
        let (Some(p), Some(branch)) = (p, p.and_then(|p| self.branch(p.minus))) else { return false };
        // Equal so far means smaller if the bound has digits left.
        let equal = |c: Cmp, e: &Edge| c == Cmp::Equal(e.size.part.len() as u32);
        let above = branch.lo.as_ref().is_none_or(|e| p.lo == Cmp::Off || (equal(p.lo, e) && !e.strict));
        let below = branch.hi.as_ref().is_none_or(|e| p.hi == Cmp::Off || !equal(p.hi, e) || !e.strict);
        let divided = self.multiple.as_ref().is_none_or(|m| m.divides(p.rest, p.digits));
        above && below && divided && (self.kind != Kind::Fraction || p.fraction)
    }

    fn first_scientific(&self, minus: bool, byte: u8) -> Option<Scientific> {
        let branch = self.branch(minus).filter(|_| self.scientific[usize::from(minus)])?;
        let free = branch.free() && self.kind != Kind::Fraction;
        // No size is below zero or zero.
        if (byte == b'0' && !free) || branch.hi.as_ref().is_some_and(|e| e.size.is_zero()) {
            return None;
        }
        let begin = |e: &Option<Edge>| match e {
            Some(e) if !e.size.is_zero() => Cmp::Equal(0),
            _ => Cmp::Off,
        };
        let place = if free && byte != b'0' { Place::Whole } else { Place::Zero };
        let s = Scientific { place, minus, lo: begin(&branch.lo), hi: begin(&branch.hi), from: 0, to: 0, value: 0 };
        Some(self.mantissa(s, byte))
    }

    /// A digit of the mantissa. `Whole(1, order)` is a comparison that is decided.
    fn mantissa(&self, mut s: Scientific, byte: u8) -> Scientific {
        let compare = |c: Cmp, edge: Option<&Edge>| match (c, edge) {
            (Cmp::Equal(k), Some(e)) => match byte.cmp(e.digits.get(k as usize).unwrap_or(&b'0')) {
                Ordering::Equal => Cmp::Equal((k + 1).min(e.digits.len() as u32)),
                order => Cmp::Whole(1, order),
            },
            (c, _) => c,
        };
        if let Some(branch) = self.branch(s.minus) {
            (s.lo, s.hi) = (compare(s.lo, branch.lo.as_ref()), compare(s.hi, branch.hi.as_ref()));
        }
        s
    }

    fn next_scientific(&self, s: Scientific, byte: u8) -> Option<Scientific> {
        match (s.place, byte) {
            (Place::Whole, b'0'..=b'9') => Some(s),
            (Place::Zero | Place::Whole, b'.') => Some(Scientific { place: Place::Point, ..s }),
            (Place::Point | Place::Part, b'1'..=b'9') if self.kind == Kind::Integer => None,
            (Place::Point | Place::Part, b'0'..=b'9') => {
                Some(self.mantissa(Scientific { place: Place::Part, ..s }, byte))
            }
            (Place::Zero | Place::Whole | Place::Part, b'e' | b'E') => self.mark(s),
            (Place::Mark, b'+') => sign(s, false),
            (Place::Mark, b'-') if self.kind != Kind::Integer => sign(s, true),
            (Place::Mark, b'0'..=b'9') => exponent(sign(s, false)?, byte),
            (Place::Sign | Place::Exponent, b'0'..=b'9') => exponent(s, byte),
            _ => None,
        }
    }

    /// The mantissa is complete: what the exponent may be.
    fn mark(&self, s: Scientific) -> Option<Scientific> {
        let branch = self.branch(s.minus)?;
        let order = |c: Cmp, e: &Edge| match c {
            Cmp::Whole(_, order) => order,
            Cmp::Equal(k) if (k as usize) < e.digits.len() => Ordering::Less,
            _ => Ordering::Equal,
        };
        let (mut from, mut to) = (-UNBOUNDED, UNBOUNDED);
        if let Some(e) = branch.lo.as_ref().filter(|_| s.lo != Cmp::Off) {
            let order = order(s.lo, e);
            let enough = order == Ordering::Greater || (order == Ordering::Equal && !e.strict);
            from = e.exponent + i64::from(!enough);
        }
        if let Some(e) = branch.hi.as_ref().filter(|_| s.hi != Cmp::Off) {
            let order = order(s.hi, e);
            let fits = order == Ordering::Less || (order == Ordering::Equal && !e.strict);
            to = e.exponent - i64::from(!fits);
        }
        match self.kind {
            Kind::Integer => from = from.max(0),
            // One digit before the point and a negative exponent: below one. Others may or may not be whole.
            Kind::Fraction => to = to.min(-1),
            Kind::Number => {}
        }
        (from <= to).then_some(Scientific { place: Place::Mark, lo: Cmp::Off, hi: Cmp::Off, from, to, ..s })
    }
}

/// A digit after the point against a bound; `None`: out of bounds.
fn digit(c: Cmp, bound: &[u8], byte: u8, lower: bool) -> Option<Cmp> {
    let Cmp::Equal(k) = c else { return Some(c) };
    match byte.cmp(bound.get(k as usize).unwrap_or(&b'0')) {
        Ordering::Equal => Some(Cmp::Equal((k + 1).min(bound.len() as u32))),
        order => ((order == Ordering::Greater) == lower).then_some(Cmp::Off),
    }
}

fn sign(s: Scientific, minus: bool) -> Option<Scientific> {
    let (from, to) = if minus { (-s.to, -s.from) } else { (s.from, s.to) };
    let from = from.max(0);
    (from <= to).then_some(Scientific { place: Place::Sign, from, to, ..s })
}

fn exponent(s: Scientific, byte: u8) -> Option<Scientific> {
    let mut value = s.value * 10 + i64::from(byte - b'0');
    if s.to == UNBOUNDED {
        value = value.min(s.from);
    } else if value > s.to {
        return None;
    } else if value * 10 > s.to {
        // No further digit fits: one state for all of these.
        if value < s.from {
            return None;
        }
        value = s.to;
    }
    Some(Scientific { place: Place::Exponent, value, ..s })
}
