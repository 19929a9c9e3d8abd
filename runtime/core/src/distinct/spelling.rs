//! How the characters of a JSON string are spelled, byte by byte.

use smallvec::SmallVec;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Within {
    /// At a character, or inside one that is spelled by its own bytes.
    Plain,
    /// After a backslash.
    Escape,
    /// After `\u` and this many digits.
    Hex(u8),
}

/// The state inside a string.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Spelling {
    within: Within,
    /// Of the hexadecimal digits so far.
    value: u16,
    /// A high surrogate that waits for its low one, or 0.
    high: u16,
}

/// What a byte spells: nothing yet, or some bytes of the decoded string. A surrogate without its other half is written as
/// if it were a character, so different strings stay different.
pub(super) type Spelled = SmallVec<[u8; 8]>;

impl Spelling {
    /// At the opening quote.
    pub const START: Spelling = Spelling { within: Within::Plain, value: 0, high: 0 };

    /// Whether bytes stand for themselves here, but for quote and backslash.
    #[inline]
    pub fn is_plain(&self) -> bool {
        *self == Spelling::START
    }

    /// Whether the next byte is behind a backslash.
    pub fn is_escape(&self) -> bool {
        self.within == Within::Escape
    }

    /// Whether this byte ends the string.
    #[inline]
    pub fn closes(&self, b: u8) -> bool {
        b == b'"' && self.within == Within::Plain
    }

    /// What is left to be spelled when the string ends.
    pub fn close(&mut self) -> Spelled {
        let mut out = Spelled::new();
        self.release(&mut out);
        out
    }

    /// Take a byte that does not end the string.
    pub fn take(&mut self, b: u8) -> Spelled {
        let mut out = Spelled::new();
        match self.within {
            Within::Plain if b == b'\\' => self.within = Within::Escape,
            Within::Plain => {
                self.release(&mut out);
                out.push(b);
            }
            Within::Escape if b == b'u' => (self.within, self.value) = (Within::Hex(0), 0),
            Within::Escape => {
                self.release(&mut out);
                self.within = Within::Plain;
                out.push(match b {
                    b'b' => 8,
                    b'f' => 12,
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    same => same,
                });
            }
            Within::Hex(n) => {
                // Grammars of JSON have nothing but digits here; whatever else comes is worth none.
                let digit = (b as char).to_digit(16).unwrap_or(0) as u16;
                self.value = self.value << 4 | digit;
                self.within = if n < 3 { Within::Hex(n + 1) } else { Within::Plain };
                if n == 3 {
                    self.unit(&mut out);
                }
            }
        }
        out
    }

    /// A code unit is complete.
    fn unit(&mut self, out: &mut Spelled) {
        let unit = std::mem::take(&mut self.value);
        match (self.high, unit) {
            (0xD800..=0xDBFF, 0xDC00..=0xDFFF) => {
                let c = 0x10000 + ((self.high as u32 - 0xD800) << 10) + (unit as u32 - 0xDC00);
                self.high = 0;
                encode(c, out);
            }
            (_, 0xD800..=0xDBFF) => {
                self.release(out);
                self.high = unit;
            }
            _ => {
                self.release(out);
                encode(unit as u32, out);
            }
        }
    }

    /// A high surrogate that stays alone.
    fn release(&mut self, out: &mut Spelled) {
        if self.high != 0 {
            encode(std::mem::take(&mut self.high) as u32, out);
        }
    }
}

/// UTF-8, of surrogates too.
fn encode(c: u32, out: &mut Spelled) {
    let tail = |shift: u32| 0x80 | (c >> shift & 0x3F) as u8;
    match c {
        0..=0x7F => out.push(c as u8),
        0x80..=0x7FF => out.extend([0xC0 | (c >> 6) as u8, tail(0)]),
        0x800..=0xFFFF => out.extend([0xE0 | (c >> 12) as u8, tail(6), tail(0)]),
        _ => out.extend([0xF0 | (c >> 18) as u8, tail(12), tail(6), tail(0)]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(text: &str) -> Vec<u8> {
        let mut s = Spelling::START;
        let mut out: Vec<u8> = text.bytes().flat_map(|b| s.take(b)).collect();
        out.extend(s.close());
        out
    }

    #[test]
    fn one_character_in_all_its_spellings() {
        for (spelled, plain) in [
            ("a", "a"),
            ("\\u0061", "a"),
            ("\\\"\\\\\\/\\b\\f\\n\\r\\t", "\"\\/\u{8}\u{c}\n\r\t"),
            ("\\u00e9\\u00E9é", "ééé"),
            ("\\u20ac", "€"),
            ("\\ud83d\\ude00", "😀"),
            ("\\uD83D\\uDE00x", "😀x"),
        ] {
            assert_eq!(decoded(spelled), plain.as_bytes(), "{spelled}");
        }
        // Halves are no characters, but they differ.
        let halves = ["\\ud83d", "\\ude00", "\\ud83dx", "\\ud83d\\ud83d\\ude00", "\\ud83d\\n", "😀", "\\ude00\\ud83d"];
        for (i, a) in halves.iter().enumerate() {
            halves[..i].iter().for_each(|b| assert_ne!(decoded(a), decoded(b), "{a} {b}"));
        }
    }
}
