//! A naive matcher of grammar IR, by sets of end positions: slow, obvious, and independent of lowering. For tests and
//! the development checker only.

use std::collections::{BTreeSet, HashMap};

use serde_json::Value;

use crate::ir::{Body, Expr, Grammar, ObjectRule, PropertyOrder, RuleId};

type Ends = BTreeSet<usize>;
/// A rule, its arguments and where it starts.
type Called = (RuleId, Vec<(u32, Option<u32>)>, usize);

/// Whether a grammar matches a text.
pub fn matches(grammar: &Grammar, text: &[u8]) -> bool {
    let mut m = Naive { grammar, text, memo: HashMap::new() };
    m.rule(grammar.root, &[], 0).contains(&text.len())
}

struct Naive<'a> {
    grammar: &'a Grammar,
    text: &'a [u8],
    memo: HashMap<Called, Ends>,
}

impl<'a> Naive<'a> {
    fn rule(&mut self, rule: RuleId, args: &[(u32, Option<u32>)], at: usize) -> Ends {
        let key = (rule, args.to_vec(), at);
        if let Some(e) = self.memo.get(&key) {
            return e.clone();
        }
        let grammar = self.grammar;
        let ends = match &grammar.rules[rule as usize].body {
            Body::Expr(e) => self.expr(e, at),
            Body::Object(o) => self.object(o, at),
            Body::JsonString => match read_string(self.text, at) {
                Some((end, text)) => {
                    let n = text.chars().count() as u32;
                    let ok = args.first().is_none_or(|(min, max)| n >= *min && max.is_none_or(|m| n <= m));
                    ok.then_some(end).into_iter().collect()
                }
                None => Ends::new(),
            },
            Body::Dispatch(_) => Ends::new(),
        };
        self.memo.insert(key, ends.clone());
        ends
    }

    fn after(&mut self, e: &Expr, starts: &Ends) -> Ends {
        starts.iter().flat_map(|s| self.expr(e, *s)).collect()
    }

    fn expr(&mut self, e: &Expr, at: usize) -> Ends {
        let one = |ok: bool, n: usize| if ok { Ends::from([at + n]) } else { Ends::new() };
        match e {
            Expr::Empty => one(true, 0),
            Expr::Distinct => one(is_new(self.text, at), 0),
            Expr::Never | Expr::Token(_) | Expr::TokenExcept(_) | Expr::Tokens(_) | Expr::Hole(_) => Ends::new(),
            Expr::Bytes(b) => one(self.text[at..].starts_with(b), b.len()),
            Expr::Class(c) => match self.text.get(at) {
                Some(b) => one(c.iter().any(|(lo, hi)| lo <= b && b <= hi), 1),
                None => Ends::new(),
            },
            Expr::Chars(ranges) => match read_char(self.text, at) {
                Some((n, c)) => one(within(ranges, c), n),
                None => Ends::new(),
            },
            Expr::JsonChars { ranges, free } => match read_json_char(self.text, at) {
                Some((end, c)) => {
                    let needless = self.text[at..].starts_with(b"\\u") && (0x20..=0x7E).contains(&c);
                    one(within(ranges, c) && (*free || !needless), end - at)
                }
                None => Ends::new(),
            },
            Expr::Seq(v) => v.iter().fold(one(true, 0), |ends, e| self.after(e, &ends)),
            Expr::Alt(v) => v.iter().flat_map(|e| self.expr(e, at)).collect(),
            Expr::Repeat { body, min, max } => {
                let mut ends = one(true, 0);
                let mut all = if *min == 0 { ends.clone() } else { Ends::new() };
                let mut n = 0;
                while !ends.is_empty() && max.is_none_or(|m| n < m) {
                    ends = self.after(body, &ends);
                    n += 1;
                    if n >= *min {
                        if ends.is_subset(&all) {
                            break;
                        }
                        all.extend(&ends);
                    }
                }
                all
            }
            Expr::Rule(r) => self.rule(*r, &[], at),
            Expr::Call { rule, args } => self.rule(*rule, args, at),
            Expr::And(v) => {
                let mut sets = v.iter().map(|e| self.expr(e, at)).collect::<Vec<_>>().into_iter();
                let first = sets.next().unwrap_or_default();
                sets.fold(first, |a, b| a.intersection(&b).copied().collect())
            }
            Expr::Sub(a, b) => {
                let (a, b) = (self.expr(a, at), self.expr(b, at));
                a.difference(&b).copied().collect()
            }
            Expr::Automaton(d) => {
                let mut ends = Ends::new();
                let (mut state, mut i) = (0usize, at);
                while let Some(s) = d.states.get(state) {
                    if s.accept {
                        ends.insert(i);
                    }
                    let Some(b) = self.text.get(i) else { break };
                    let Some((_, _, t)) = s.edges.iter().find(|(lo, hi, _)| lo <= b && b <= hi) else { break };
                    state = *t as usize;
                    i += 1;
                }
                ends
            }
        }
    }

    fn object(&mut self, o: &ObjectRule, at: usize) -> Ends {
        let mut out = Ends::new();
        if self.text.get(at) != Some(&b'{') {
            return out;
        }
        // (position, declared names seen, pairs, position in the declared order)
        let mut states: BTreeSet<(usize, BTreeSet<usize>, u32, usize)> = BTreeSet::new();
        for p in self.expr(&o.space.pad, at + 1) {
            states.insert((p, BTreeSet::new(), 0, 0));
        }
        let touching = o.space.close.is_some();
        // What undeclared keys are needed for is noted among the names, from the other end.
        let needs: Vec<usize> = (0..32).filter(|i| o.needs() >> i & 1 == 1).map(|i| usize::MAX - i).collect();
        let optional = needs.is_empty() && o.min_properties == 0 && o.properties.iter().all(|q| !q.required);
        if touching && optional && self.text.get(at + 1) == Some(&b'}') {
            out.insert(at + 2);
        }
        let mut first = true;
        while !states.is_empty() {
            let mut next = BTreeSet::new();
            for (p, seen, pairs, place) in &states {
                let complete = needs.iter().all(|n| seen.contains(n))
                    && o.properties.iter().enumerate().all(|(i, q)| !q.required || seen.contains(&i));
                if complete && *pairs >= o.min_properties && !(touching && first) {
                    for q in self.expr(o.space.before_close(), *p) {
                        if self.text.get(q) == Some(&b'}') {
                            out.insert(q + 1);
                        }
                    }
                }
                if o.max_properties.is_some_and(|m| *pairs >= m) {
                    continue;
                }
                let starts = if first { Ends::from([*p]) } else { self.expr(&o.space.comma, *p) };
                for start in starts {
                    let Some((end, name)) = read_string(self.text, start) else { continue };
                    let colons = self.expr(&o.space.colon, end);
                    let declared = o.properties.iter().position(|q| q.name == name);
                    let mut values: Vec<(&Expr, BTreeSet<usize>, usize)> = vec![];
                    match declared {
                        Some(i) => {
                            let free = match o.order {
                                PropertyOrder::Any => !seen.contains(&i),
                                PropertyOrder::Declared => i >= *place,
                            };
                            if let (true, Some(v)) = (free, &o.properties[i].value) {
                                let mut s = seen.clone();
                                s.insert(i);
                                values.push((v, s, i + 1));
                            }
                        }
                        None => {
                            for other in &o.others {
                                let ok = match &other.keys {
                                    None => true,
                                    Some(k) => self.expr(k, start + 1).contains(&(end - 1)),
                                };
                                if ok && (!o.distinct || is_new(self.text, end)) {
                                    let place = match o.order {
                                        PropertyOrder::Any => *place,
                                        PropertyOrder::Declared => o.properties.len(),
                                    };
                                    let mut s = seen.clone();
                                    s.extend(needs.iter().filter(|n| other.marks >> (usize::MAX - **n) & 1 == 1));
                                    values.push((&other.value, s, place));
                                }
                            }
                        }
                    }
                    for (v, s, place) in values {
                        for q in self.after(v, &colons) {
                            next.insert((q, s.clone(), pairs + 1, place));
                        }
                    }
                }
            }
            states = next;
            first = false;
        }
        out
    }
}

/// Whether no value equal to the one that ends at `at` ended before in its container: no item of the array, no name of the
/// object. True where none ends.
fn is_new(text: &[u8], at: usize) -> bool {
    struct Open {
        from: usize,
        /// Items, or names.
        earlier: Vec<Value>,
        /// What comes next is the value of a property.
        value: bool,
    }
    let mut open: Vec<Open> = vec![];
    let mut i = 0;
    while i < at {
        let from = match text[i] {
            b'"' => {
                let Some((end, _)) = read_string(text, i) else { return true };
                std::mem::replace(&mut i, end)
            }
            b'[' | b'{' => {
                open.push(Open { from: i, earlier: vec![], value: false });
                i += 1;
                continue;
            }
            b']' | b'}' => {
                i += 1;
                match open.pop() {
                    Some(closed) => closed.from,
                    None => return true,
                }
            }
            b if b.is_ascii_alphanumeric() || b == b'-' => {
                let run = text[i..at].iter().take_while(|b| b.is_ascii_alphanumeric() || b"+-.".contains(b)).count();
                let end = i + run;
                std::mem::replace(&mut i, end)
            }
            b => {
                if let (b':', Some(here)) = (b, open.last_mut()) {
                    here.value = true;
                }
                i += 1;
                continue;
            }
        };
        let Some(here) = open.last_mut() else { continue };
        let Ok(value) = serde_json::from_slice(&text[from..i]) else { return true };
        if std::mem::take(&mut here.value) {
            continue;
        }
        if i == at {
            return !here.earlier.iter().any(|v| super::validate::equal(v, &value));
        }
        here.earlier.push(value);
    }
    true
}

fn within(ranges: &[(u32, u32)], c: u32) -> bool {
    ranges.iter().any(|(lo, hi)| *lo <= c && c <= *hi)
}

fn read_char(text: &[u8], at: usize) -> Option<(usize, u32)> {
    let n = match text.get(at)? {
        0..=0x7F => 1,
        0xC0..=0xDF => 2,
        0xE0..=0xEF => 3,
        _ => 4,
    };
    let s = std::str::from_utf8(text.get(at..at + n)?).ok()?;
    Some((n, s.chars().next()? as u32))
}

/// One character of a JSON string; surrogate halves must come in pairs.
fn read_json_char(text: &[u8], at: usize) -> Option<(usize, u32)> {
    let unit = |at: usize| {
        let digits = std::str::from_utf8(text.get(at + 2..at + 6)?).ok()?;
        (text.get(at..at + 2)? == b"\\u").then_some(())?;
        u32::from_str_radix(digits, 16).ok()
    };
    match text.get(at)? {
        b'"' | 0..=0x1F => None,
        b'\\' => {
            let simple = match text.get(at + 1)? {
                b'b' => 8,
                b'f' => 12,
                b'n' => 10,
                b'r' => 13,
                b't' => 9,
                c @ (b'"' | b'\\' | b'/') => *c as u32,
                _ => {
                    let high = unit(at)?;
                    if (0xD800..0xDC00).contains(&high) {
                        let low = unit(at + 6).filter(|l| (0xDC00..0xE000).contains(l))?;
                        return Some((at + 12, 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00)));
                    }
                    return (!(0xDC00..0xE000).contains(&high)).then_some((at + 6, high));
                }
            };
            Some((at + 2, simple))
        }
        _ => read_char(text, at).map(|(n, c)| (at + n, c)),
    }
}

fn read_string(text: &[u8], at: usize) -> Option<(usize, String)> {
    if text.get(at) != Some(&b'"') {
        return None;
    }
    let mut i = at + 1;
    let mut out = String::new();
    while text.get(i) != Some(&b'"') {
        let (end, c) = read_json_char(text, i)?;
        out.push(char::from_u32(c)?);
        i = end;
    }
    Some((i + 1, out))
}
