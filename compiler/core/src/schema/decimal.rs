//! Exact decimals: what comparing bounds, constants and `multipleOf` needs, for numbers of any length.

use std::cmp::Ordering;

/// A decimal number in normal form: `digits * 10^exp`, no leading or trailing zeros; zero has no digits.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Decimal {
    pub negative: bool,
    digits: Vec<u8>,
    exp: i64,
}

impl Decimal {
    /// From JSON's spelling of a number. `None` if the exponent is beyond all use.
    pub(super) fn parse(text: &str) -> Option<Decimal> {
        let (negative, text) = match text.strip_prefix('-') {
            Some(t) => (true, t),
            None => (false, text),
        };
        let (mantissa, exp) = match text.find(['e', 'E']) {
            Some(i) => (&text[..i], text[i + 1..].trim_start_matches('+').parse::<i32>().ok()? as i64),
            None => (text, 0),
        };
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let mut digits: Vec<u8> = whole.bytes().chain(fraction.bytes()).collect();
        if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
            return None;
        }
        let mut exp = exp - fraction.len() as i64;
        while digits.last() == Some(&b'0') {
            digits.pop();
            exp += 1;
        }
        let zeros = digits.iter().take_while(|d| **d == b'0').count();
        digits.drain(..zeros);
        if digits.is_empty() {
            return Some(Decimal { negative: false, digits, exp: 0 });
        }
        Some(Decimal { negative, digits, exp })
    }

    pub(super) fn is_zero(&self) -> bool {
        self.digits.is_empty()
    }

    pub(super) fn is_integer(&self) -> bool {
        self.exp >= 0
    }

    /// The value of a whole number from 0 on, if it fits.
    pub(super) fn to_u64(&self) -> Option<u64> {
        if self.negative || self.exp < 0 || self.exp > 20 {
            return None;
        }
        let mut n = 0u64;
        for d in self.digits.iter().copied().chain(std::iter::repeat_n(b'0', self.exp as usize)) {
            n = n.checked_mul(10)?.checked_add((d - b'0') as u64)?;
        }
        Some(n)
    }

    /// The largest whole number that is not above this one, if it fits.
    pub(super) fn floor(&self) -> Option<i128> {
        if self.digits.len() as i64 + self.exp > 36 {
            return None;
        }
        let whole = (self.digits.len() as i64 + self.exp.min(0)).max(0) as usize;
        let zeros = std::iter::repeat_n(b'0', self.exp.max(0) as usize);
        let size = self.digits[..whole].iter().copied().chain(zeros).fold(0, |n, d| n * 10 + i128::from(d - b'0'));
        Some(if self.negative { -size - i128::from(!self.is_integer()) } else { size })
    }

    fn compare_size(&self, other: &Decimal) -> Ordering {
        if self.is_zero() || other.is_zero() {
            return (!self.is_zero()).cmp(&!other.is_zero());
        }
        let top = |d: &Decimal| d.digits.len() as i64 + d.exp;
        // Same leading power: digits compare as text, a longer one being larger after an equal start.
        top(self).cmp(&top(other)).then_with(|| self.digits.cmp(&other.digits))
    }

    /// Whether this is a whole multiple of `step`; `None` where the numbers are too long to tell.
    pub(super) fn is_multiple_of(&self, step: &Decimal) -> Option<bool> {
        if self.is_zero() {
            return Some(true);
        }
        if step.is_zero() {
            return Some(false);
        }
        // self / step = (digits * 10^shift) / step.digits
        let shift = self.exp - step.exp;
        if step.digits.len() > 30 {
            return None;
        }
        let mut modulus: u128 = 0;
        for d in &step.digits {
            modulus = modulus * 10 + (d - b'0') as u128;
        }
        let mut rest: u128 = 0;
        for d in &self.digits {
            rest = (rest * 10 + (d - b'0') as u128) % modulus;
        }
        if shift >= 0 {
            let mut n = shift;
            while n > 0 && rest != 0 {
                rest = rest * 10 % modulus;
                n -= 1;
                if shift - n > 4_000 {
                    return None;
                }
            }
            return Some(rest == 0);
        }
        // digits must be a multiple of step.digits * 10^-shift, but digits does not end in zero.
        Some(false)
    }
}

impl std::fmt::Display for Decimal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.is_zero() {
            return f.write_str("0");
        }
        let digits: String = self.digits.iter().map(|d| *d as char).collect();
        write!(f, "{}{digits}", if self.negative { "-" } else { "" })?;
        if self.exp == 0 {
            return Ok(());
        }
        write!(f, "e{}", self.exp)
    }
}

impl PartialOrd for Decimal {
    fn partial_cmp(&self, other: &Decimal) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Decimal {
    fn cmp(&self, other: &Decimal) -> Ordering {
        match (self.negative, other.negative) {
            (false, true) => Ordering::Greater,
            (true, false) => Ordering::Less,
            (false, false) => self.compare_size(other),
            (true, true) => other.compare_size(self),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn d(s: &str) -> Decimal {
        Decimal::parse(s).unwrap()
    }

    #[test]
    fn order_and_equality_are_by_value() {
        assert_eq!(d("1.0"), d("1"));
        assert_eq!(d("100e-2"), d("1"));
        assert_eq!(d("-0.0"), d("0"));
        assert!(d("-2") < d("-1.5") && d("-1") < d("0") && d("0") < d("0.001"));
        assert!(d("9.99") < d("10") && d("1e400") > d("99999999999999999999"));
        assert!(d("1.5e3").is_integer() && !d("1.55e1").is_integer());
    }

    #[test]
    fn multiples_are_exact() {
        assert_eq!(d("0.07").is_multiple_of(&d("0.01")), Some(true));
        assert_eq!(d("0.075").is_multiple_of(&d("0.01")), Some(false));
        assert_eq!(d("1e308").is_multiple_of(&d("0.5")), Some(true));
        assert_eq!(d("35").is_multiple_of(&d("1.5")), Some(false));
        assert_eq!(d("4.5").is_multiple_of(&d("1.5")), Some(true));
        assert_eq!(d("0.00751").is_multiple_of(&d("0.0001")), Some(false));
    }
}
