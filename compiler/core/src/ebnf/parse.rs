//! The text of a grammar to rules.
//!
//! Elements: `"literal"`, `[class]`, `.` (any character), a rule's name, a group in parentheses, a function's call. Each
//! may be followed by `*`, `+`, `?`, `{m}`, `{m,}`, `{m,n}` or `{,n}`. Elements in a row are a sequence, `|` separates
//! alternatives; one without elements is the empty text.
//!
//! Groups are kept on a stack of our own, so that nesting costs no call stack.

use rustc_hash::FxHashMap;

use crate::error::{CompileError, Result};
use crate::ir::{Body, Expr, Grammar, Rule, RuleId};
use crate::limits::Budget;
use crate::schema::Warning;

use super::lexer::Cursor;

/// Options in brackets after a rule's name are looked for this far.
const OPTIONS_REACH: usize = 4096;

pub(super) struct Parser<'a> {
    pub cursor: Cursor<'a>,
    pub rules: Vec<Rule>,
    /// Rule by name; the place of its first mention, and whether it is defined.
    names: FxHashMap<&'a str, Known>,
    pub warnings: Vec<Warning>,
}

#[derive(Clone, Copy)]
struct Known {
    rule: RuleId,
    mentioned: usize,
    defined: Option<usize>,
}

/// One group under way.
struct Group {
    open: usize,
    alternatives: Vec<Expr>,
    sequence: Vec<Expr>,
}

impl Group {
    fn new(open: usize) -> Self {
        Group { open, alternatives: vec![], sequence: vec![] }
    }

    fn close(mut self) -> Expr {
        let last = sequence(self.sequence);
        match self.alternatives.is_empty() {
            true => last,
            false => {
                self.alternatives.push(last);
                Expr::Alt(self.alternatives)
            }
        }
    }
}

fn sequence(mut items: Vec<Expr>) -> Expr {
    match items.len() {
        0 => Expr::Empty,
        1 => items.remove(0),
        _ => Expr::Seq(items),
    }
}

pub(super) fn parse(text: &str, root: &str, budget: &Budget) -> Result<(Grammar, Vec<Warning>)> {
    let cursor = Cursor::new(text, budget);
    let mut p = Parser { cursor, rules: vec![], names: FxHashMap::default(), warnings: vec![] };
    while p.cursor.peek().is_some() {
        p.rule()?;
    }
    let undefined = p.names.iter().filter(|n| n.1.defined.is_none()).min_by_key(|n| n.1.mentioned);
    if let Some((name, known)) = undefined {
        return Err(p.cursor.error(
            known.mentioned,
            format!("the rule `{name}` is not defined; add `{name} ::= ...`{}", near(name, p.names.keys())),
        ));
    }
    let Some(known) = p.names.get(root) else {
        let names: Vec<_> = p.rules.iter().take(8).map(|r| format!("`{}`", r.name)).collect();
        let has = match names.is_empty() {
            true => "the grammar has no rules".into(),
            false => format!("the grammar has {}", names.join(", ")),
        };
        return Err(CompileError::invalid(
            "",
            format!("there is no rule `{root}` to start from: {has}; name one as root"),
        ));
    };
    Ok((Grammar { root: known.rule, rules: p.rules }, p.warnings))
}

/// A hint at a name that differs in case or in `-` and `_`.
fn near<'n>(name: &str, names: impl Iterator<Item = &'n &'n str>) -> String {
    let plain = |s: &str| s.to_lowercase().replace(['-', '.'], "_");
    let wanted = plain(name);
    let mut found: Vec<&str> = names.copied().filter(|n| *n != name && plain(n) == wanted).collect();
    found.sort_unstable();
    found.first().map_or(String::new(), |n| format!(" (did you mean `{n}`?)"))
}

impl<'a> Parser<'a> {
    /// One rule.
    fn rule(&mut self) -> Result<()> {
        self.cursor.skip();
        let at = self.cursor.at;
        let Some(name) = self.cursor.name() else {
            let found = self.cursor.found();
            return Err(self.cursor.error(at, format!("expected a rule, `name ::= ...`, but found {found}")));
        };
        self.options(name)?;
        if !self.cursor.eat("::=") {
            return Err(self.not_a_rule(at, name));
        }
        let rule = self.reference(name, at)?;
        if let Some(known) = self.names.get_mut(name) {
            if let Some(first) = known.defined {
                let first = self.cursor.place(first);
                return Err(self.cursor.error(
                    at,
                    format!("the rule `{name}` is already defined at {first}; join the two with `|`, or rename one"),
                ));
            }
            known.defined = Some(at);
        }
        let body = self.alternatives()?;
        self.rules[rule as usize].body = Body::Expr(body);
        Ok(())
    }

    /// What stands where a rule should: the remedies for the languages that are mistaken for this one.
    fn not_a_rule(&mut self, at: usize, name: &str) -> CompileError {
        let lark = self.cursor.peek() == Some(':') || name.starts_with('%') || name == "start";
        if lark {
            return self.cursor.unsupported(
                at,
                "Lark",
                "the text looks like a Lark grammar (`name: ...`)",
                "Write its rules as `name ::= ...`, terminals as \"text\", [class] or Regex(\"...\")",
            );
        }
        let found = self.cursor.found();
        self.cursor.error(at, format!("expected `::=` after the rule's name `{name}`, but found {found}"))
    }

    /// `[...]` between a rule's name and `::=`.
    fn options(&mut self, name: &str) -> Result<()> {
        if self.cursor.peek() != Some('[') {
            return Ok(());
        }
        let at = self.cursor.at;
        self.cursor.at += 1;
        while !self.cursor.eat("]") {
            self.cursor.skip();
            let place = self.cursor.at;
            let Some(option) = self.cursor.name() else {
                return Err(self.cursor.error(place, format!("expected an option of the rule `{name}`, or `]`")));
            };
            if self.cursor.eat("=") {
                if self.cursor.peek() == Some('"') {
                    self.cursor.string()?;
                } else if self.cursor.name().is_none() {
                    return Err(self.cursor.error(self.cursor.at, format!("expected the value of `{option}`")));
                }
            }
            match option {
                // It says what the caller wants to be told of, not what matches.
                "capture" => self.warn(place, "capture", "captures are not reported; the option changes nothing"),
                _ => {
                    return Err(self.cursor.unsupported(
                        place,
                        &format!("the rule option `{option}`"),
                        "it is about how a text is sampled, not about which texts match",
                        "Leave it out; bound a rule's length with {m,n}",
                    ))
                }
            }
            if !self.cursor.eat(",") && self.cursor.peek() != Some(']') {
                return Err(self.cursor.error(at, format!("the options of the rule `{name}` are not closed by `]`")));
            }
        }
        Ok(())
    }

    pub fn warn(&mut self, at: usize, keyword: &str, reason: &str) {
        if self.warnings.len() < 100 {
            let pointer = self.cursor.place(at);
            self.warnings.push(Warning { pointer, keyword: keyword.into(), reason: reason.into() });
        }
    }

    /// The number of the rule `name`, mentioned at `at`.
    pub fn reference(&mut self, name: &'a str, at: usize) -> Result<RuleId> {
        if let Some(known) = self.names.get(name) {
            return Ok(known.rule);
        }
        let rule = self.add(name, Body::Expr(Expr::Never))?;
        self.names.insert(name, Known { rule, mentioned: at, defined: None });
        Ok(rule)
    }

    /// A new rule.
    pub fn add(&mut self, name: &str, body: Body) -> Result<RuleId> {
        self.cursor.budget.states(1)?;
        self.rules.push(Rule { name: name.into(), body });
        Ok(self.rules.len() as RuleId - 1)
    }

    /// Whether a rule's definition begins here, at its name.
    fn at_rule(&mut self) -> bool {
        let from = self.cursor.at;
        let mut found = false;
        if self.cursor.name().is_some() {
            if self.cursor.peek() == Some('[') {
                // A class may follow a name, too: options are followed by `::=`.
                let rest = &self.cursor.rest().as_bytes()[1..];
                let rest = &rest[..rest.len().min(OPTIONS_REACH)];
                let mut quoted = false;
                let end = rest.iter().position(|&b| {
                    quoted ^= b == b'"';
                    b == b'\n' || b == b']' && !quoted
                });
                match end {
                    Some(end) if rest[end] == b']' => {
                        self.cursor.at += end + 2;
                        found = self.cursor.eat("::=");
                    }
                    _ => {}
                }
            } else {
                found = self.cursor.eat("::=");
            }
        }
        self.cursor.at = from;
        found
    }

    /// Alternatives up to the next rule.
    fn alternatives(&mut self) -> Result<Expr> {
        let mut groups = vec![Group::new(self.cursor.at)];
        loop {
            self.cursor.budget.tick()?;
            let next = self.cursor.peek();
            let at = self.cursor.at;
            let Some(group) = groups.last_mut() else { return Ok(Expr::Never) };
            let element = match next {
                None => break,
                Some('|') => {
                    self.cursor.at += 1;
                    let before = std::mem::take(&mut group.sequence);
                    group.alternatives.push(sequence(before));
                    continue;
                }
                Some('(') if self.cursor.rest().starts_with("(=") => {
                    self.lookahead(groups.len())?;
                    continue;
                }
                Some('(') => {
                    self.cursor.at += 1;
                    self.cursor.budget.depth(groups.len())?;
                    groups.push(Group::new(at));
                    continue;
                }
                Some(')') if groups.len() > 1 => {
                    self.cursor.at += 1;
                    let Some(group) = groups.pop() else { return Ok(Expr::Never) };
                    group.close()
                }
                Some(')') => return Err(self.cursor.error(at, "this `)` closes nothing")),
                Some('"') => Expr::Bytes(self.cursor.string()?.into_bytes()),
                Some('[') => {
                    self.cursor.at += 1;
                    match self.cursor.class()? {
                        none if none.is_empty() => Expr::Never,
                        ranges => Expr::Chars(ranges),
                    }
                }
                Some(_) if groups.len() == 1 && self.at_rule() => break,
                Some(_) => self.named(at)?,
            };
            let element = self.repeated(element)?;
            if let Some(group) = groups.last_mut() {
                group.sequence.push(element);
            }
        }
        let Some(last) = groups.pop() else { return Ok(Expr::Never) };
        if !groups.is_empty() {
            return Err(self.cursor.error(last.open, "this `(` is not closed"));
        }
        if last.alternatives.is_empty() && last.sequence.is_empty() {
            let found = self.cursor.found();
            return Err(self.cursor.error(
                self.cursor.at,
                format!("expected the rule's body, but found {found}; write \"\" for nothing"),
            ));
        }
        Ok(last.close())
    }

    /// A rule's name, a function's call, or any character.
    fn named(&mut self, at: usize) -> Result<Expr> {
        if let Some(name) = self.cursor.name() {
            if self.cursor.rest().trim_start_matches([' ', '\t']).starts_with('(') {
                if let Some(call) = self.call(name, at)? {
                    return Ok(call);
                }
            }
            return Ok(Expr::Rule(self.reference(name, at)?));
        }
        if self.cursor.eat(".") {
            return Ok(Expr::Chars(vec![(0, 0xd7ff), (0xe000, 0x10ffff)]));
        }
        let (what, reason, remedy) = match self.cursor.peek() {
            Some('\'') => ("single quotes", "literals stand in double quotes", "Write \"text\""),
            Some('/') => ("/pattern/", "patterns are written by a function", "Write Regex(\"pattern\")"),
            Some('<') => ("<token>", "tokens are written by a function, by id", "Write Token(id)"),
            Some('!') => ("!", "a complement is not a grammar", "Write a negated class, [^...], or ExcludeToken(id)"),
            Some('&' | '~') => ("an intersection or complement", "rules can only be joined", "Use Regex(\"...\")"),
            Some('*' | '+' | '?' | '{') => {
                return Err(self.cursor.error(
                    at,
                    "there is nothing to repeat here; a repeat of a repeat needs parentheses, as in (\"a\"?)*",
                ))
            }
            Some(';' | ',') => {
                return Err(self.cursor.error(at, "rules are not ended, and elements not separated, by a character"))
            }
            Some('=' | ':') => return Err(self.cursor.error(at, "a rule is defined by `::=`")),
            _ => {
                let found = self.cursor.found();
                return Err(self
                    .cursor
                    .error(at, format!("expected a literal, a class, a name or a group, but found {found}")));
            }
        };
        Err(self.cursor.unsupported(at, what, reason, remedy))
    }

    /// What may follow an element.
    fn repeated(&mut self, element: Expr) -> Result<Expr> {
        let rest = self.cursor.rest();
        let skipped = rest.trim_start_matches([' ', '\t', '\n', '\r']);
        let Some(mark) = skipped.chars().next().filter(|c| matches!(c, '*' | '+' | '?' | '{')) else {
            return Ok(element);
        };
        let at = self.cursor.at + (rest.len() - skipped.len());
        self.cursor.at = at + 1;
        let (min, max) = match mark {
            '*' => (0, None),
            '+' => (1, None),
            '?' => (0, Some(1)),
            _ => self.bounds(at)?,
        };
        Ok(element.repeat(min, max))
    }

    /// `m}`, `m,}`, `m,n}` or `,n}`.
    fn bounds(&mut self, at: usize) -> Result<(u32, Option<u32>)> {
        let min = self.cursor.number()?;
        let comma = self.cursor.eat(",");
        let max = if comma { self.cursor.number()? } else { min };
        if min.is_none() && max.is_none() {
            return Err(self.cursor.error(at, "a repeat is {m}, {m,}, {m,n} or {,n}"));
        }
        self.cursor.expect("}", "to close a repeat")?;
        match (min.unwrap_or(0), max) {
            (min, Some(max)) if max < min => {
                Err(self.cursor.error(at, format!("at least {min} and at most {max} times is never; swap the two")))
            }
            bounds => Ok(bounds),
        }
    }

    /// `(= ...)`: to XGrammar a hint at what follows the rule anyway, which its masks are sped up with.
    fn lookahead(&mut self, depth: usize) -> Result<()> {
        let at = self.cursor.at;
        if depth > 1 {
            return Err(self.cursor.error(at, "a look-ahead `(= ...)` stands at the end of a rule's alternative"));
        }
        self.warn(at, "(=", "a look-ahead assertion is a hint and not enforced; it can be left out");
        self.cursor.at += 2;
        let mut open = 1usize;
        while open > 0 {
            self.cursor.budget.tick()?;
            match self.cursor.peek() {
                Some('"') => {
                    self.cursor.string()?;
                }
                Some('[') => {
                    self.cursor.at += 1;
                    self.cursor.class()?;
                }
                Some(c) => {
                    match c {
                        '(' => open += 1,
                        ')' => open -= 1,
                        _ => {}
                    }
                    self.cursor.at += c.len_utf8();
                }
                None => return Err(self.cursor.error(at, "this `(=` is not closed")),
            }
        }
        match self.cursor.peek() {
            None | Some('|') => Ok(()),
            Some(_) if self.at_rule() => Ok(()),
            Some(_) => Err(self.cursor.error(at, "a look-ahead `(= ...)` must come last in its alternative")),
        }
    }
}
