//! ECMA-262 patterns, as in Unicode mode, with what schemas in the wild take from Annex B: needless escapes of
//! punctuation, `{` and `]` as themselves, `[\w-.]`, octal escapes, quantified look-aheads.
//!
//! Recursion is by groups only, which are limited to [`GROUPS`] levels.

use super::ast::Node;
use super::class::{self, CharSet, Ranges};
use crate::error::{CompileError, Result};
use crate::limits::Budget;

/// Deepest nesting of groups.
pub const GROUPS: usize = 250;

/// What inline flags turn on.
#[derive(Clone, Copy, Default)]
struct Flags {
    ignore_case: bool,
    dot_all: bool,
    multiline: bool,
}

struct Parser<'a> {
    text: Vec<char>,
    at: usize,
    flags: Flags,
    budget: &'a Budget,
}

/// A class atom: one character, or a set, which cannot end a range.
enum Atom {
    Char(u32),
    Set(CharSet),
}

pub fn parse(pattern: &str, budget: &Budget) -> Result<Node> {
    budget.source(pattern.len())?;
    let mut p = Parser { text: pattern.chars().collect(), at: 0, flags: Flags::default(), budget };
    p.leading_flags()?;
    let node = p.alternatives(0)?;
    match p.peek() {
        None => Ok(node),
        Some(_) => Err(p.error(p.at, "unmatched `)`")),
    }
}

impl Parser<'_> {
    fn peek(&self) -> Option<char> {
        self.text.get(self.at).copied()
    }

    fn peek_at(&self, ahead: usize) -> Option<char> {
        self.text.get(self.at + ahead).copied()
    }

    fn eat(&mut self, c: char) -> bool {
        let hit = self.peek() == Some(c);
        self.at += usize::from(hit);
        hit
    }

    fn eat_str(&mut self, s: &str) -> bool {
        let n = s.chars().count();
        let hit = s.chars().enumerate().all(|(i, c)| self.peek_at(i) == Some(c));
        self.at += if hit { n } else { 0 };
        hit
    }

    fn error(&self, at: usize, what: impl std::fmt::Display) -> CompileError {
        CompileError::invalid("", format!("not a pattern of ECMA-262: {what} at character {at}"))
    }

    fn unsupported(&self, at: usize, what: &str, reason: &str, remedy: &str) -> CompileError {
        CompileError::unsupported("", format!("{what} at character {at} of a pattern"), reason, remedy)
    }

    /// `(?i)`, `(?s)`, `(?m)`, `(?u)` and their combinations before everything else.
    fn leading_flags(&mut self) -> Result<()> {
        while self.peek() == Some('(') && self.peek_at(1) == Some('?') {
            let mut end = self.at + 2;
            while self.text.get(end).is_some_and(char::is_ascii_alphabetic) {
                end += 1;
            }
            if end == self.at + 2 || self.text.get(end) != Some(&')') {
                break;
            }
            self.at += 2;
            self.flags = self.flag_letters(self.flags)?;
            self.at += 1;
        }
        Ok(())
    }

    /// Letters (and `-` letters) of a group of flags, up to the `)` or `:` after them.
    fn flag_letters(&mut self, mut flags: Flags) -> Result<Flags> {
        let mut on = true;
        loop {
            let at = self.at;
            match self.peek() {
                Some('i') => flags.ignore_case = on,
                Some('s') => flags.dot_all = on,
                Some('m') => flags.multiline = on,
                Some('u') if on => {}
                Some('-') if on => on = false,
                Some(')') | Some(':') => return Ok(flags),
                Some(c) if c.is_ascii_alphabetic() => {
                    return Err(self.unsupported(
                        at,
                        &format!("flag `{c}`"),
                        "only the flags i, m, s and u have a meaning here",
                        "Remove the flag",
                    ))
                }
                _ => return Err(self.error(at, "unknown kind of group")),
            }
            self.at += 1;
        }
    }

    fn alternatives(&mut self, depth: usize) -> Result<Node> {
        self.budget.depth(depth)?;
        if depth > GROUPS {
            return Err(CompileError::limit("depth", "the nesting of groups in a pattern", GROUPS as u64));
        }
        let (mut alts, mut seq) = (vec![], vec![]);
        loop {
            match self.peek() {
                None | Some(')') => break,
                Some('|') => {
                    self.at += 1;
                    alts.push(Node::seq(std::mem::take(&mut seq)));
                }
                Some(_) => {
                    self.budget.tick()?;
                    match self.term(depth)? {
                        Node::Empty => {}
                        node => seq.push(node),
                    }
                }
            }
        }
        alts.push(Node::seq(seq));
        Ok(Node::alt(alts))
    }

    fn term(&mut self, depth: usize) -> Result<Node> {
        let at = self.at;
        let (node, repeatable) = self.atom(depth)?;
        let Some((min, max)) = self.quantifier()? else { return Ok(node) };
        if !repeatable {
            return Err(self.error(at, "an assertion cannot be repeated"));
        }
        self.eat('?');
        let next = self.at;
        if self.quantifier()?.is_some() {
            return Err(self.error(next, "nothing to repeat"));
        }
        Ok(match (node, min, max) {
            (_, _, Some(0)) | (Node::Empty, _, _) => Node::Empty,
            (node, 1, Some(1)) => node,
            // Once or often, an assertion says the same; where it need not hold it says nothing.
            (Node::Look { .. }, 0, _) => Node::Empty,
            (node @ Node::Look { .. }, _, _) => node,
            (node, min, max) => Node::Repeat { body: Box::new(node), min, max },
        })
    }

    /// `None` where no quantifier stands (a `{` that does not start one is a character).
    fn quantifier(&mut self) -> Result<Option<(u32, Option<u32>)>> {
        let bounds = match self.peek() {
            Some('*') => (0, None),
            Some('+') => (1, None),
            Some('?') => (0, Some(1)),
            Some('{') => return self.counted(),
            _ => return Ok(None),
        };
        self.at += 1;
        Ok(Some(bounds))
    }

    fn counted(&mut self) -> Result<Option<(u32, Option<u32>)>> {
        let at = self.at;
        self.at += 1;
        let min = self.number();
        let mut max = min;
        if min.is_some() && self.eat(',') {
            max = self.number();
        }
        match min {
            Some(min) if self.eat('}') => {
                if max.is_some_and(|max| max < min) {
                    return Err(self.error(at, "the bounds of a quantifier are out of order"));
                }
                Ok(Some((min, max)))
            }
            _ => {
                self.at = at;
                Ok(None)
            }
        }
    }

    /// A decimal number, saturating.
    fn number(&mut self) -> Option<u32> {
        let mut n: Option<u32> = None;
        while let Some(d) = self.peek().and_then(|c| c.to_digit(10)) {
            n = Some(n.unwrap_or(0).saturating_mul(10).saturating_add(d).min(u32::MAX - 1));
            self.at += 1;
        }
        n
    }

    fn set(&self, set: CharSet) -> Node {
        Node::Set(if self.flags.ignore_case { set.fold() } else { set })
    }

    fn word(&self) -> CharSet {
        if self.flags.ignore_case {
            class::word().fold()
        } else {
            class::word().clone()
        }
    }

    /// An atom and whether it may be repeated.
    fn atom(&mut self, depth: usize) -> Result<(Node, bool)> {
        let at = self.at;
        let Some(c) = self.peek() else { return Ok((Node::Empty, false)) };
        self.at += 1;
        let node = match c {
            '(' => return self.group(at, depth),
            '[' => self.class(at)?,
            '.' if self.flags.dot_all => Node::Set(CharSet::any()),
            '.' => Node::Set(CharSet::new(class::LINE_END.to_vec()).negate()),
            '^' => return Ok((self.line_edge(Node::Start, true, at), false)),
            '$' => return Ok((self.line_edge(Node::End, false, at), false)),
            '*' | '+' | '?' => return Err(self.error(at, "nothing to repeat")),
            '{' => {
                self.at = at;
                if self.counted()?.is_some() {
                    return Err(self.error(at, "nothing to repeat"));
                }
                self.at += 1;
                self.set(CharSet::single('{' as u32))
            }
            '\\' => match self.peek() {
                Some(b @ ('b' | 'B')) => {
                    self.at += 1;
                    return Ok((Node::Edge { not: b == 'B', word: self.word() }, false));
                }
                _ => match self.escape(at, false)? {
                    Atom::Char(c) => self.set(CharSet::single(c)),
                    Atom::Set(set) => self.set(set),
                },
            },
            c => self.set(CharSet::single(c as u32)),
        };
        Ok((node, true))
    }

    fn line_edge(&self, edge: Node, behind: bool, at: usize) -> Node {
        if !self.flags.multiline {
            return edge;
        }
        let body = Box::new(Node::Set(CharSet::new(class::LINE_END.to_vec())));
        Node::Alt(vec![edge, Node::Look { behind, not: false, body, at }])
    }

    fn group(&mut self, at: usize, depth: usize) -> Result<(Node, bool)> {
        let outer = self.flags;
        let mut look = None;
        if self.eat('?') {
            if self.eat('=') || self.eat('!') {
                look = Some((false, self.text[self.at - 1] == '!'));
            } else if self.eat_str("<=") || self.eat_str("<!") {
                look = Some((true, self.text[self.at - 1] == '!'));
            } else if self.eat('<') || self.eat_str("P<") {
                self.group_name()?;
            } else if self.eat_str("P=") {
                return Err(self.back_reference(at));
            } else if self.eat('>') {
                return Err(self.error(at, "atomic groups do not exist"));
            } else if self.peek() == Some('#') {
                return Err(self.error(at, "comments do not exist"));
            } else {
                self.flags = self.flag_letters(outer)?;
                if !self.eat(':') {
                    return Err(self.error(at, "flags in the middle of a pattern need a group, as in `(?i:...)`,"));
                }
            }
        }
        let body = self.alternatives(depth + 1)?;
        self.flags = outer;
        if !self.eat(')') {
            return Err(self.error(at, "`(` is not closed"));
        }
        Ok(match look {
            None => (body, true),
            Some((behind, not)) => (Node::Look { behind, not, body: Box::new(body), at }, !behind),
        })
    }

    fn group_name(&mut self) -> Result<()> {
        let at = self.at;
        while self.peek().is_some_and(|c| c.is_alphanumeric() || c == '_' || c == '$') {
            self.at += 1;
        }
        if self.at == at || self.text[at].is_numeric() || !self.eat('>') {
            return Err(self.error(at, "not a group name"));
        }
        Ok(())
    }

    fn back_reference(&self, at: usize) -> CompileError {
        self.unsupported(
            at,
            "back-reference",
            "what it matches depends on what a group matched, which no finite automaton can remember",
            "Write the alternatives out",
        )
    }

    /// How many capturing groups the pattern has.
    fn captures(&self) -> usize {
        let (mut n, mut i, mut class) = (0, 0, false);
        while i < self.text.len() {
            match self.text[i] {
                '\\' => i += 1,
                '[' => class = true,
                ']' => class = false,
                '(' if !class => {
                    let after = |k: usize| self.text.get(i + k).copied();
                    let named = (after(2) == Some('<') && !matches!(after(3), Some('=' | '!')))
                        || (after(2) == Some('P') && after(3) == Some('<'));
                    n += usize::from(after(1) != Some('?') || named);
                }
                _ => {}
            }
            i += 1;
        }
        n
    }

    fn class(&mut self, at: usize) -> Result<Node> {
        let negated = self.eat('^');
        let mut ranges: Ranges = vec![];
        loop {
            let from = self.at;
            let first = match self.peek() {
                None => return Err(self.error(at, "`[` is not closed")),
                Some(']') => break,
                Some(_) => self.class_atom()?,
            };
            if self.peek() != Some('-') || matches!(self.peek_at(1), Some(']') | None) {
                add(&mut ranges, first);
                continue;
            }
            self.at += 1;
            match (first, self.class_atom()?) {
                (Atom::Char(lo), Atom::Char(hi)) if lo <= hi => ranges.push((lo, hi)),
                (Atom::Char(_), Atom::Char(_)) => return Err(self.error(from, "a range is out of order")),
                (a, b) => {
                    add(&mut ranges, a);
                    ranges.push(('-' as u32, '-' as u32));
                    add(&mut ranges, b);
                }
            }
        }
        self.at += 1;
        let mut set = CharSet::new(ranges);
        if self.flags.ignore_case {
            set = set.fold();
        }
        Ok(Node::Set(if negated { set.negate() } else { set }))
    }

    fn class_atom(&mut self) -> Result<Atom> {
        let at = self.at;
        self.at += 1;
        match self.text.get(at) {
            Some('\\') => self.escape(at, true),
            Some(&c) => Ok(Atom::Char(c as u32)),
            None => Err(self.error(at, "a class is not closed")),
        }
    }

    /// The rest of an escape whose `\` at `at` is consumed.
    fn escape(&mut self, at: usize, in_class: bool) -> Result<Atom> {
        let Some(c) = self.peek() else { return Err(self.error(at, "`\\` at the end")) };
        self.at += 1;
        let set = |ranges: &[(u32, u32)]| CharSet::new(ranges.to_vec());
        Ok(match c {
            'd' => Atom::Set(set(class::DIGIT)),
            'D' => Atom::Set(set(class::DIGIT).negate()),
            's' => Atom::Set(set(class::SPACE)),
            'S' => Atom::Set(set(class::SPACE).negate()),
            'w' => Atom::Set(self.word()),
            'W' => Atom::Set(self.word().negate()),
            'p' | 'P' => Atom::Set(self.property(at, c == 'P')?),
            'n' => Atom::Char(0x0A),
            'r' => Atom::Char(0x0D),
            't' => Atom::Char(0x09),
            'v' => Atom::Char(0x0B),
            'f' => Atom::Char(0x0C),
            'b' if in_class => Atom::Char(0x08),
            'c' => match self.peek() {
                Some(l) if l.is_ascii_alphabetic() => {
                    self.at += 1;
                    Atom::Char(l as u32 % 32)
                }
                _ => return Err(self.error(at, "`\\c` needs a letter")),
            },
            'x' => match self.hex(2) {
                Some(v) => Atom::Char(v),
                None => return Err(self.error(at, "`\\x` needs two hexadecimal digits")),
            },
            'u' => Atom::Char(self.unicode(at)?),
            '0'..='7' if c == '0' || in_class => Atom::Char(self.octal(c)),
            'k' => return Err(self.back_reference(at)),
            '1'..='9' => {
                self.at -= 1;
                let n = self.number().unwrap_or(0) as usize;
                if n <= self.captures() {
                    return Err(self.back_reference(at));
                }
                return Err(self.error(at, format_args!("there is no group {n}")));
            }
            c if c.is_ascii_alphanumeric() => {
                let hint = match c {
                    'A' => " (its `^` is the start)",
                    'z' | 'Z' => " (its `$` is the end)",
                    _ => "",
                };
                return Err(self.error(at, format_args!("unknown escape `\\{c}`{hint}")));
            }
            c => Atom::Char(c as u32),
        })
    }

    fn hex(&mut self, digits: usize) -> Option<u32> {
        let mut v = 0;
        for i in 0..digits {
            v = v * 16 + self.peek_at(i)?.to_digit(16)?;
        }
        self.at += digits;
        Some(v)
    }

    fn octal(&mut self, first: char) -> u32 {
        let mut v = first as u32 - '0' as u32;
        for _ in 0..2 {
            match self.peek().and_then(|c| c.to_digit(8)) {
                Some(d) if v * 8 + d <= 0xFF => v = v * 8 + d,
                _ => break,
            }
            self.at += 1;
        }
        v
    }

    fn unicode(&mut self, at: usize) -> Result<u32> {
        let bad = |p: &Self| p.error(at, "`\\u` needs four hexadecimal digits, or up to six in braces");
        if self.eat('{') {
            let mut v: u32 = 0;
            let from = self.at;
            while let Some(d) = self.peek().and_then(|c| c.to_digit(16)) {
                v = v.saturating_mul(16).saturating_add(d);
                self.at += 1;
            }
            if self.at == from || v > 0x10_FFFF || !self.eat('}') {
                return Err(bad(self));
            }
            return Ok(v);
        }
        let Some(high) = self.hex(4) else { return Err(bad(self)) };
        if (0xD800..0xDC00).contains(&high) && self.peek() == Some('\\') && self.peek_at(1) == Some('u') {
            let back = self.at;
            self.at += 2;
            match self.hex(4) {
                Some(low) if (0xDC00..0xE000).contains(&low) => {
                    return Ok(0x1_0000 + ((high - 0xD800) << 10) + (low - 0xDC00));
                }
                _ => self.at = back,
            }
        }
        Ok(high)
    }

    fn property(&mut self, at: usize, negated: bool) -> Result<CharSet> {
        let mut name = String::new();
        if self.eat('{') {
            while let Some(c) = self.peek().filter(|&c| c != '}' && name.len() < 100) {
                name.push(c);
                self.at += 1;
            }
            if !self.eat('}') {
                return Err(self.error(at, "`\\p` needs a name in braces"));
            }
        } else if let Some(c) = self.peek() {
            name.push(c);
            self.at += 1;
        }
        match class::property(&name) {
            Some(set) if negated => Ok(set.negate()),
            Some(set) => Ok(set),
            None => Err(self.error(at, format_args!("unknown Unicode property `{name}`"))),
        }
    }
}

fn add(ranges: &mut Ranges, atom: Atom) {
    match atom {
        Atom::Char(c) => ranges.push((c, c)),
        Atom::Set(set) => ranges.extend(set.into_ranges()),
    }
}
