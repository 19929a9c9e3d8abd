//! Divisibility by a decimal, digit by digit.
//!
//! A multiple of `m / 10^s` has at most `s` digits after the point that are not zero, and its digits up to there, read as
//! one whole number, are a multiple of `m`. Reading keeps the remainder by `m`. Remainders that no further digits tell
//! apart are one: `m` is split into its factors 2 and 5 (`m1`) and the rest (`m2`); with `k` more digits, the first part
//! divides if they are one particular number modulo `m1`, so what matters of the remainder by `m1` is that number, for each
//! `k` where `10^k` is not yet a multiple of `m1`, and whether it has `k` digits at all. Multiples of a million need
//! seven such classes, not a million.

use rustc_hash::FxHashMap;

use super::bounds::Decimal;
use crate::error::{CompileError, Result};

/// Remainders times ten stay within `u128`.
const LARGEST: u128 = u128::MAX / 20;
/// Most classes of remainders.
const CLASSES: usize = 20_000;

pub struct Multiple {
    m1: u128,
    m2: u128,
    scale: u32,
    /// The remainders by `m1` and `m2` that stand for each class.
    remainders: Vec<(u128, u128)>,
    next: Vec<[u32; 10]>,
    ids: FxHashMap<(Vec<u128>, u128), u32>,
    /// Digits after which ten's power is a multiple of `m1`.
    horizon: u32,
}

const UNKNOWN: u32 = u32::MAX;
/// No number of `k` digits does it.
const NO_NUMBER: u128 = u128::MAX;

impl Multiple {
    pub fn new(divisors: &[String]) -> Result<Multiple> {
        let too_large = || {
            CompileError::unsupported(
                "",
                "multipleOf of this size",
                "its least common multiple, without decimal point, has more than 37 digits",
                "Use a divisor with fewer digits",
            )
        };
        let mut parsed = vec![];
        for text in divisors {
            let d = Decimal::parse(text)?;
            if d.negative || d.is_zero() {
                return Err(CompileError::invalid("", "multipleOf must be greater than zero"));
            }
            parsed.push(d);
        }
        let scale = parsed.iter().map(|d| d.part.len()).max().unwrap_or(0);
        let mut m: u128 = 1;
        for d in &parsed {
            let zeros = std::iter::repeat_n(&b'0', scale - d.part.len());
            let mut n: u128 = 0;
            for digit in d.whole.iter().chain(&d.part).chain(zeros) {
                n = n * 10 + u128::from(digit - b'0');
                if n > LARGEST {
                    return Err(too_large());
                }
            }
            m = (m / gcd(m, n)).checked_mul(n).filter(|&m| m <= LARGEST).ok_or_else(too_large)?;
        }
        let (mut m1, mut m2, mut twos, mut fives) = (1, m, 0, 0);
        while m2 % 2 == 0 {
            (m1, m2, twos) = (m1 * 2, m2 / 2, twos + 1);
        }
        while m2 % 5 == 0 {
            (m1, m2, fives) = (m1 * 5, m2 / 5, fives + 1);
        }
        Ok(Multiple {
            m1,
            m2,
            scale: scale as u32,
            remainders: vec![],
            next: vec![],
            ids: FxHashMap::default(),
            horizon: std::cmp::max(twos, fives),
        })
    }

    /// Digits after the point that may be other than zero.
    pub fn scale(&self) -> u32 {
        self.scale
    }

    /// The class of zero.
    pub fn zero(&mut self) -> Result<u32> {
        self.class(0, 0)
    }

    fn class(&mut self, r1: u128, r2: u128) -> Result<u32> {
        let (mut needed, mut power, mut shifted) = (Vec::with_capacity(self.horizon as usize), 1u128, r1);
        for _ in 0..self.horizon {
            let number = (self.m1 - shifted) % self.m1;
            needed.push(if number < power { number } else { NO_NUMBER });
            power = power.saturating_mul(10);
            shifted = shifted * 10 % self.m1;
        }
        let new = self.remainders.len() as u32;
        let id = *self.ids.entry((needed, r2)).or_insert(new);
        if id == new {
            if self.remainders.len() >= CLASSES {
                return Err(CompileError::unsupported(
                    "",
                    "multipleOf of this size",
                    format!("it leaves more than {CLASSES} remainders to tell apart"),
                    "Use a divisor with fewer digits, or one that ends in zeros",
                ));
            }
            self.remainders.push((r1, r2));
            self.next.push([UNKNOWN; 10]);
        }
        Ok(id)
    }

    /// The class after one more digit.
    pub fn append(&mut self, class: u32, byte: u8) -> Result<u32> {
        let d = usize::from(byte - b'0');
        let known = self.next[class as usize][d];
        if known != UNKNOWN {
            return Ok(known);
        }
        let (r1, r2) = self.remainders[class as usize];
        let id = self.class((r1 * 10 + d as u128) % self.m1, (r2 * 10 + d as u128) % self.m2)?;
        self.next[class as usize][d] = id;
        Ok(id)
    }

    /// Whether the number is a multiple if it ends here, `digits` after the point read.
    pub fn divides(&self, class: u32, digits: u32) -> bool {
        let (mut r1, r2) = self.remainders[class as usize];
        for _ in digits..self.scale {
            r1 = r1 * 10 % self.m1;
        }
        r1 == 0 && r2 == 0
    }
}

fn gcd(mut a: u128, mut b: u128) -> u128 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}
