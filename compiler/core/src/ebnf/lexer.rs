//! Characters of a grammar's text, with the places of errors: literals, classes, names, numbers.

use crate::error::{CompileError, Result};
use crate::limits::Budget;

/// Reads a grammar's text from left to right. Whitespace and `# comments` separate tokens.
pub(super) struct Cursor<'a> {
    pub text: &'a str,
    pub at: usize,
    pub budget: &'a Budget,
}

impl<'a> Cursor<'a> {
    pub fn new(text: &'a str, budget: &'a Budget) -> Self {
        Cursor { text, at: 0, budget }
    }

    pub fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    /// Past whitespace and comments.
    pub fn skip(&mut self) {
        loop {
            let rest = self.rest();
            let trimmed = rest.trim_start_matches([' ', '\t', '\n', '\r', '\u{feff}']);
            self.at += rest.len() - trimmed.len();
            if !trimmed.starts_with('#') {
                return;
            }
            self.at += trimmed.find('\n').unwrap_or(trimmed.len());
        }
    }

    /// The next character of a token.
    pub fn peek(&mut self) -> Option<char> {
        self.skip();
        self.rest().chars().next()
    }

    /// Takes `token` if it comes next.
    pub fn eat(&mut self, token: &str) -> bool {
        self.skip();
        let found = self.rest().starts_with(token);
        if found {
            self.at += token.len();
        }
        found
    }

    pub fn expect(&mut self, token: &str, place: &str) -> Result<()> {
        if self.eat(token) {
            return Ok(());
        }
        let found = self.found();
        Err(self.error(self.at, format!("expected `{token}` {place}, but found {found}")))
    }

    /// What stands here, for people.
    pub fn found(&mut self) -> String {
        match self.peek() {
            None => "the end of the grammar".into(),
            Some(c) => format!("{c:?}"),
        }
    }

    pub fn error(&self, at: usize, message: impl std::fmt::Display) -> CompileError {
        CompileError::invalid(self.place(at), format!("the grammar is not well-formed: {message}"))
    }

    pub fn unsupported(&self, at: usize, what: &str, reason: &str, remedy: &str) -> CompileError {
        CompileError::unsupported(self.place(at), what, reason, remedy)
    }

    /// "line 3, column 14", counted from 1 in characters.
    pub fn place(&self, at: usize) -> String {
        let before = &self.text[..at.min(self.text.len())];
        let line = memchr::memchr_iter(b'\n', before.as_bytes()).count() + 1;
        let column = before[before.rfind('\n').map_or(0, |i| i + 1)..].chars().count() + 1;
        format!("line {line}, column {column}")
    }

    /// A name: letters, digits, `_`, `-` and `.`.
    pub fn name(&mut self) -> Option<&'a str> {
        self.skip();
        let rest = self.rest();
        let inside = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.');
        let len = rest.find(|c| !inside(c)).unwrap_or(rest.len());
        let name = &rest[..len];
        // A dot alone is any character; a minus begins no name.
        if name.is_empty() || name == "." || name.starts_with('-') {
            return None;
        }
        self.at += len;
        Some(name)
    }

    /// A decimal number of at most 32 bits.
    pub fn number(&mut self) -> Result<Option<u32>> {
        self.skip();
        let rest = self.rest();
        let len = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        if len == 0 {
            return Ok(None);
        }
        let from = self.at;
        self.at += len;
        match rest[..len].parse::<u32>() {
            Ok(n) if n < u32::MAX => Ok(Some(n)),
            _ => Err(self.error(from, format!("the number {} is too large", &rest[..len.min(40)]))),
        }
    }

    /// A literal between double quotes, as the text that it stands for.
    pub fn string(&mut self) -> Result<String> {
        self.expect("\"", "to open a literal")?;
        let from = self.at - 1;
        let mut out = String::new();
        loop {
            let at = self.at;
            match self.rest().chars().next() {
                Some('"') => {
                    self.at += 1;
                    return Ok(out);
                }
                Some('\\') => out.push(self.escape(at)?),
                Some(c) if c != '\n' && c != '\r' => {
                    self.at += c.len_utf8();
                    out.push(c);
                }
                _ => return Err(self.error(from, "the literal is not closed in its line; write a line end as \\n")),
            }
        }
    }

    /// A character class after its `[`: sorted disjoint ranges of scalar values.
    pub fn class(&mut self) -> Result<Vec<(u32, u32)>> {
        let from = self.at - 1;
        let negated = self.rest().starts_with('^');
        self.at += usize::from(negated);
        let mut ranges: Vec<(u32, u32)> = vec![];
        loop {
            self.budget.tick()?;
            let at = self.at;
            let Some(low) = self.member(from)? else { break };
            let high = if self.rest().starts_with('-') && !self.rest().starts_with("-]") {
                self.at += 1;
                let Some(high) = self.member(from)? else { break };
                high
            } else {
                low
            };
            if high < low {
                let (low, high) = (low.escape_default(), high.escape_default());
                return Err(self.error(at, format!("the range {low}-{high} is empty; put its smaller end first")));
            }
            ranges.push((low as u32, high as u32));
        }
        ranges.sort_unstable();
        Ok(if negated { complement(&ranges) } else { merged(&ranges) })
    }

    /// One member of a class, or `None` for its `]`.
    fn member(&mut self, from: usize) -> Result<Option<char>> {
        let at = self.at;
        let c = match self.rest().chars().next() {
            Some(']') => {
                self.at += 1;
                return Ok(None);
            }
            Some('\\') => self.escape(at)?,
            Some(c) if c != '\n' && c != '\r' => {
                self.at += c.len_utf8();
                c
            }
            _ => return Err(self.error(from, "the character class is not closed in its line; write a line end as \\n")),
        };
        Ok(Some(c))
    }

    /// The character of an escape that begins at `at`.
    fn escape(&mut self, at: usize) -> Result<char> {
        let after = &self.text[at + 1..];
        let Some(letter) = after.chars().next() else {
            return Err(self.error(at, "an escape is cut off"));
        };
        self.at = at + 1 + letter.len_utf8();
        let plain = match letter {
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'a' => '\u{7}',
            'b' => '\u{8}',
            'f' => '\u{c}',
            'v' => '\u{b}',
            'e' => '\u{1b}',
            '0' => '\0',
            '\\' | '"' | '\'' | '/' | '?' | '-' | ']' | '[' | '^' => letter,
            // As in C: as many digits as there are.
            'x' => return self.hexadecimal(at, 1, 6),
            'u' => {
                let unit = self.digits(at, 4, 4)?;
                if (0xd800..0xdc00).contains(&unit) && self.rest().starts_with("\\u") {
                    self.at += 2;
                    let low = self.digits(at, 4, 4)?;
                    if (0xdc00..0xe000).contains(&low) {
                        return self.scalar(at, 0x10000 + ((unit - 0xd800) << 10) + (low - 0xdc00));
                    }
                }
                return self.scalar(at, unit);
            }
            'U' => return self.hexadecimal(at, 8, 8),
            'd' | 'D' | 'w' | 'W' | 's' | 'S' => {
                return Err(self.unsupported(
                    at,
                    &format!("\\{letter}"),
                    "grammars have no classes by letter",
                    "Write the class out, as in [0-9], or use Regex(\"...\")",
                ));
            }
            _ => {
                let known = "\\n \\r \\t \\\\ \\\" \\xHH \\uHHHH \\UHHHHHHHH";
                return Err(self.error(at, format!("\\{letter} is no escape; there are {known}")));
            }
        };
        Ok(plain)
    }

    fn hexadecimal(&mut self, at: usize, least: usize, most: usize) -> Result<char> {
        let value = self.digits(at, least, most)?;
        self.scalar(at, value)
    }

    fn digits(&mut self, at: usize, least: usize, most: usize) -> Result<u32> {
        let rest = self.rest();
        let len = rest.bytes().take(most).take_while(u8::is_ascii_hexdigit).count();
        if len < least {
            return Err(self.error(at, format!("the escape needs {least} hexadecimal digits")));
        }
        self.at += len;
        u32::from_str_radix(&rest[..len], 16).map_err(|_| self.error(at, "the escape is too large"))
    }

    fn scalar(&self, at: usize, value: u32) -> Result<char> {
        char::from_u32(value).ok_or_else(|| self.error(at, format!("U+{value:04X} is no character of text")))
    }
}

/// Scalar values come in two stretches.
const STRETCHES: [(u32, u32); 2] = [(0, 0xd7ff), (0xe000, 0x10ffff)];

/// Sorted ranges made disjoint, without surrogates.
fn merged(sorted: &[(u32, u32)]) -> Vec<(u32, u32)> {
    let mut out: Vec<(u32, u32)> = vec![];
    for &(low, high) in sorted {
        for (from, to) in STRETCHES {
            let (low, high) = (low.max(from), high.min(to));
            if low > high {
                continue;
            }
            match out.last_mut() {
                Some(last) if low <= last.1.saturating_add(1) && low >= last.0 => last.1 = last.1.max(high),
                _ => out.push((low, high)),
            }
        }
    }
    out.sort_unstable();
    let mut joined: Vec<(u32, u32)> = vec![];
    for (low, high) in out {
        match joined.last_mut() {
            Some(last) if low <= last.1.saturating_add(1) => last.1 = last.1.max(high),
            _ => joined.push((low, high)),
        }
    }
    joined
}

/// Every scalar value outside of sorted ranges.
fn complement(sorted: &[(u32, u32)]) -> Vec<(u32, u32)> {
    let mut out = vec![];
    for (from, to) in STRETCHES {
        let mut next = from;
        for &(low, high) in &merged(sorted) {
            if low > next && next <= to {
                out.push((next, (low - 1).min(to)));
            }
            next = next.max(high.saturating_add(1));
        }
        if next <= to {
            out.push((next, to));
        }
    }
    out.retain(|r| r.0 <= r.1);
    out
}
