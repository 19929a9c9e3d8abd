//! Just enough JSON: a structural tag's own members as a tree, the schemas inside as text.
//!
//! A request's schemas are nearly all known by their text; so the value of a member named `json_schema` or `schema` is
//! not parsed but only skipped over, in one pass.

use std::borrow::Cow;

use crate::error::{CompileError, Result};
use crate::limits::Budget;

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Json<'a> {
    Null,
    Bool(bool),
    /// As written.
    Number(&'a str),
    Text(Cow<'a, str>),
    Array(Vec<Json<'a>>),
    Object(Vec<(Cow<'a, str>, Json<'a>)>),
    /// A schema's text, not looked at.
    Raw(&'a str),
}

impl<'a> Json<'a> {
    /// The last member of this name, as JSON parsers take it.
    pub fn get(&self, name: &str) -> Option<&Json<'a>> {
        match self {
            Json::Object(members) => members.iter().rev().find(|m| m.0 == name).map(|m| &m.1),
            _ => None,
        }
    }

    pub fn kind(&self) -> &'static str {
        match self {
            Json::Null => "null",
            Json::Bool(_) => "a boolean",
            Json::Number(_) => "a number",
            Json::Text(_) => "a string",
            Json::Array(_) => "a list",
            Json::Object(_) => "an object",
            Json::Raw(_) => "a schema",
        }
    }
}

/// Parses a whole text.
pub(super) fn parse<'a>(text: &'a str, budget: &Budget) -> Result<Json<'a>> {
    let mut p = Parser { text, at: 0, budget };
    let value = p.value(0)?;
    p.space();
    if p.at < text.len() {
        return Err(p.error("the end of the text"));
    }
    Ok(value)
}

/// The text of a string that has no escapes but those of one letter, as begins and ends of tags have them: allocated once.
fn unescaped(inner: &str) -> Option<String> {
    let mut text = String::with_capacity(inner.len());
    let mut rest = inner;
    while let Some(at) = memchr::memchr(b'\\', rest.as_bytes()) {
        let letter = *rest.as_bytes().get(at + 1)?;
        let meant = match letter {
            b'"' | b'\\' | b'/' => letter as char,
            b'n' => '\n',
            b't' => '\t',
            b'r' => '\r',
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            _ => return None,
        };
        text.push_str(&rest[..at]);
        text.push(meant);
        rest = &rest[at + 2..];
    }
    text.push_str(rest);
    (!inner.bytes().any(|b| b < 0x20)).then_some(text)
}

struct Parser<'a, 'b> {
    text: &'a str,
    at: usize,
    budget: &'b Budget,
}

impl<'a> Parser<'a, '_> {
    fn space(&mut self) {
        let rest = &self.text.as_bytes()[self.at..];
        self.at += rest.iter().take_while(|b| matches!(b, b' ' | b'\t' | b'\n' | b'\r')).count();
    }

    fn peek(&mut self) -> Option<u8> {
        self.space();
        self.text.as_bytes().get(self.at).copied()
    }

    fn error(&self, wanted: &str) -> CompileError {
        let before = &self.text.as_bytes()[..self.at.min(self.text.len())];
        let line = memchr::memchr_iter(b'\n', before).count() + 1;
        let column = before.len() - memchr::memrchr(b'\n', before).map_or(0, |i| i + 1) + 1;
        let message = format!("the structural tag is not JSON at line {line}, column {column}: expected {wanted}");
        CompileError::invalid("", message)
    }

    fn value(&mut self, depth: usize) -> Result<Json<'a>> {
        self.budget.depth(depth)?;
        self.budget.tick()?;
        match self.peek() {
            Some(b'"') => Ok(Json::Text(self.string()?)),
            Some(b'[') => {
                self.at += 1;
                let mut items = vec![];
                if self.peek() == Some(b']') {
                    self.at += 1;
                    return Ok(Json::Array(items));
                }
                loop {
                    items.push(self.value(depth + 1)?);
                    match self.peek() {
                        Some(b',') => self.at += 1,
                        Some(b']') => {
                            self.at += 1;
                            return Ok(Json::Array(items));
                        }
                        _ => return Err(self.error("`,` or `]`")),
                    }
                }
            }
            Some(b'{') => {
                self.at += 1;
                let mut members = vec![];
                if self.peek() == Some(b'}') {
                    self.at += 1;
                    return Ok(Json::Object(members));
                }
                loop {
                    if self.peek() != Some(b'"') {
                        return Err(self.error("a member's name"));
                    }
                    let name = self.string()?;
                    if self.peek() != Some(b':') {
                        return Err(self.error("`:`"));
                    }
                    self.at += 1;
                    let value = match &*name {
                        "json_schema" | "schema" => Json::Raw(self.skip()?),
                        _ => self.value(depth + 1)?,
                    };
                    members.push((name, value));
                    match self.peek() {
                        Some(b',') => self.at += 1,
                        Some(b'}') => {
                            self.at += 1;
                            return Ok(Json::Object(members));
                        }
                        _ => return Err(self.error("`,` or `}`")),
                    }
                }
            }
            Some(b'-' | b'0'..=b'9' | b'a'..=b'z') => {
                let word = self.word();
                match word {
                    "null" => Ok(Json::Null),
                    "true" => Ok(Json::Bool(true)),
                    "false" => Ok(Json::Bool(false)),
                    _ if serde_json::from_str::<serde_json::Number>(word).is_ok() => Ok(Json::Number(word)),
                    _ => {
                        self.at -= word.len();
                        Err(self.error("a value"))
                    }
                }
            }
            _ => Err(self.error("a value")),
        }
    }

    fn word(&mut self) -> &'a str {
        let rest = &self.text[self.at..];
        let inside = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'+' | b'.');
        let len = rest.as_bytes().iter().take_while(|b| inside(b)).count();
        self.at += len;
        &rest[..len]
    }

    /// Past a string; its text with quotes and escapes.
    fn quoted(&mut self) -> Result<&'a str> {
        let from = self.at;
        self.at += 1;
        loop {
            match memchr::memchr2(b'"', b'\\', &self.text.as_bytes()[self.at..]) {
                Some(i) if self.text.as_bytes()[self.at + i] == b'"' => {
                    self.at += i + 1;
                    return Ok(&self.text[from..self.at]);
                }
                // What follows the backslash is one byte at least; a longer character is passed byte by byte.
                Some(i) if self.at + i + 1 < self.text.len() => self.at += i + 2,
                _ => {
                    self.at = self.text.len();
                    return Err(self.error("the closing quote of a string"));
                }
            }
        }
    }

    fn string(&mut self) -> Result<Cow<'a, str>> {
        let quoted = self.quoted()?;
        let inner = &quoted[1..quoted.len() - 1];
        if !inner.bytes().any(|b| b == b'\\' || b < 0x20) {
            return Ok(Cow::Borrowed(inner));
        }
        if let Some(text) = unescaped(inner) {
            return Ok(Cow::Owned(text));
        }
        match serde_json::from_str::<String>(quoted) {
            Ok(text) => Ok(Cow::Owned(text)),
            Err(_) => {
                self.at -= quoted.len();
                Err(self.error("a string of valid escapes and no control characters"))
            }
        }
    }

    /// Past one value, which is only held to balanced brackets and closed strings: its own front end reads it. Nearly all
    /// of a request is passed here, so it is one plain loop over bytes.
    fn skip(&mut self) -> Result<&'a str> {
        self.budget.tick()?;
        self.space();
        let (from, bytes) = (self.at, self.text.as_bytes());
        let mut depth = 0usize;
        loop {
            match bytes.get(self.at) {
                Some(b' ' | b'\t' | b'\n' | b'\r') => {
                    self.at += 1;
                    continue;
                }
                Some(b',' | b':') if depth > 0 => {
                    self.at += 1;
                    continue;
                }
                Some(b'"') => {
                    self.quoted()?;
                }
                Some(b'{' | b'[') => {
                    self.at += 1;
                    depth += 1;
                    continue;
                }
                Some(b'}' | b']') if depth > 0 => {
                    self.at += 1;
                    depth -= 1;
                }
                Some(b'-' | b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z') => {
                    self.word();
                }
                _ => return Err(self.error("a value")),
            }
            if depth == 0 {
                return Ok(&self.text[from..self.at]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::limits::Limits;

    proptest! {
        #[test]
        fn strings_are_what_json_takes_them_for(
            pieces in proptest::collection::vec(
                prop::sample::select(vec![
                    "a", "é", " ", "/", "\\n", "\\\"", "\\\\", "\\/", "\\b", "\\f", "\\r", "\\t", "\\u00e9", "\\x", "\\", "\n", "\u{7f}",
                ]),
                0..12,
            )
        ) {
            let inner = pieces.concat();
            let quoted = format!("\"{inner}\"");
            let budget = Budget::new(Limits::default());
            prop_assume!(Parser { text: &quoted, at: 0, budget: &budget }.quoted().is_ok_and(|q| q == quoted));
            let Ok(known) = serde_json::from_str::<String>(&quoted) else {
                prop_assert_eq!(unescaped(&inner), None);
                return Ok(());
            };
            match unescaped(&inner) {
                Some(text) => prop_assert_eq!(text, known),
                None => prop_assert!(inner.contains("\\u")),
            }
        }
    }
}
