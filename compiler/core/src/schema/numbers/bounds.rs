//! Bounds as digits: a decimal of any length, and the sizes that numbers with one sign may have.
//!
//! Digits are what an automaton over text compares, so a bound is kept as those that it is written with, and never becomes
//! a machine number. Without the sign there are two cases, numbers with a minus and numbers without, each between sizes.

use crate::error::{CompileError, Result};

/// Largest decimal exponent of a bound under which numbers may be written with an exponent.
pub const EXPONENT: i64 = 330;

/// Most digits of a bound, zeros that its exponent stands for included.
const DIGITS: i64 = 10_000;

/// The size of a bound: its digits before and after the point, without needless zeros.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Decimal {
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

    pub fn is_zero(&self) -> bool {
        self.part.is_empty() && self.whole == b"0"
    }
}

/// A bound on the size of numbers of one sign.
#[derive(Clone, Debug)]
pub(super) struct Edge {
    pub size: Decimal,
    pub strict: bool,
    /// The digits of normal scientific notation, and its exponent.
    pub digits: Vec<u8>,
    pub exponent: i64,
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
pub(super) struct Branch {
    pub lo: Option<Edge>,
    pub hi: Option<Edge>,
}

impl Branch {
    /// Sizes of the numbers from `min` to `max` that have no sign; `None`: there are none.
    pub fn new(min: Option<&(Decimal, bool)>, max: Option<&(Decimal, bool)>) -> Option<Branch> {
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

    pub fn free(&self) -> bool {
        self.lo.is_none() && self.hi.is_none()
    }

    pub fn scientific(&self) -> bool {
        [&self.lo, &self.hi].into_iter().flatten().all(|e| e.exponent.abs() <= EXPONENT)
    }
}
