//! Functions in grammars.
//!
//! | call | matches |
//! |---|---|
//! | `Regex("pattern", flags="i", json_string=false)` | what the pattern matches as a whole; `json_string`: as it stands inside a JSON string |
//! | `Substring("chunk", ...)` | any run of neighbouring chunks, or nothing |
//! | `Token(id, ...)` | one of these tokens |
//! | `ExcludeToken(id, ...)` | any one token but these |
//! | `TagDispatch(("trigger", rule), ..., loop_after_dispatch=true, excludes=("text", ...))` | free text; after a trigger its rule |
//! | `TokenTagDispatch((id, rule), ..., loop_after_dispatch=true, excludes=(id, ...))` | the same with tokens for triggers |

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::error::Result;
use crate::ir::{Body, Dfa, DfaState, DispatchRule, Expr};
use crate::limits::Budget;
use crate::regex::{regex, Alphabet, Anchoring};

use super::parse::Parser;

/// One argument of a call.
enum Argument<'a> {
    Text(String),
    Number(u32),
    Name(&'a str),
    Many(Vec<Argument<'a>>),
}

struct Call<'a> {
    at: usize,
    name: &'a str,
    arguments: Vec<(usize, Argument<'a>)>,
    named: Vec<(&'a str, usize, Argument<'a>)>,
}

impl<'a> Parser<'a> {
    /// The call of the function `name`, whose parenthesis comes next; `None` if there is no such function.
    pub(super) fn call(&mut self, name: &'a str, at: usize) -> Result<Option<Expr>> {
        if !matches!(name, "Regex" | "Substring" | "Token" | "ExcludeToken" | "TagDispatch" | "TokenTagDispatch") {
            return Ok(None);
        }
        let mut call = self.arguments(name, at)?;
        let e = match name {
            "Regex" => self.regex(&mut call)?,
            "Substring" => {
                let mut chunks = vec![];
                for (at, a) in std::mem::take(&mut call.arguments) {
                    match a {
                        Argument::Text(t) => chunks.push(t.into_bytes()),
                        _ => return Err(self.cursor.error(at, "a chunk of Substring is a literal")),
                    }
                }
                substring(&chunks, self.cursor.budget)?
            }
            "Token" => {
                let ids = self.ids(std::mem::take(&mut call.arguments))?;
                if ids.is_empty() {
                    return Err(self.cursor.error(at, "Token needs at least one token id"));
                }
                Expr::alt(ids.into_iter().map(Expr::Token))
            }
            "ExcludeToken" => Expr::TokenExcept(self.ids(std::mem::take(&mut call.arguments))?),
            "TagDispatch" => self.tag_dispatch(&mut call)?,
            _ => self.token_dispatch(&mut call)?,
        };
        if let Some((option, at, _)) = call.named.first() {
            return Err(self.cursor.error(*at, format!("{name} has no argument `{option}`")));
        }
        if let Some((at, _)) = call.arguments.first() {
            return Err(self.cursor.error(*at, format!("{name} does not take this argument")));
        }
        Ok(Some(e))
    }

    fn arguments(&mut self, name: &'a str, at: usize) -> Result<Call<'a>> {
        let mut call = Call { at, name, arguments: vec![], named: vec![] };
        self.cursor.expect("(", "after a function's name")?;
        while !self.cursor.eat(")") {
            self.cursor.budget.tick()?;
            self.cursor.skip();
            let place = self.cursor.at;
            let argument = self.argument(0)?;
            match argument {
                Argument::Name(option) if self.cursor.eat("=") => {
                    let value = self.argument(0)?;
                    call.named.push((option, place, value));
                }
                argument => call.arguments.push((place, argument)),
            }
            if !self.cursor.eat(",") && self.cursor.peek() != Some(')') {
                let found = self.cursor.found();
                return Err(self
                    .cursor
                    .error(self.cursor.at, format!("expected `,` or `)` in {name}, but found {found}")));
            }
        }
        Ok(call)
    }

    fn argument(&mut self, depth: usize) -> Result<Argument<'a>> {
        let place = |p: &mut Self| {
            p.cursor.skip();
            p.cursor.at
        };
        Ok(match self.cursor.peek() {
            Some('"') => Argument::Text(self.cursor.string()?),
            Some('(') if depth < 2 => {
                self.cursor.at += 1;
                let mut many = vec![];
                while !self.cursor.eat(")") {
                    self.cursor.budget.tick()?;
                    many.push(self.argument(depth + 1)?);
                    if !self.cursor.eat(",") && self.cursor.peek() != Some(')') {
                        let at = place(self);
                        return Err(self.cursor.error(at, "expected `,` or `)`"));
                    }
                }
                Argument::Many(many)
            }
            Some(c) if c.is_ascii_digit() => Argument::Number(self.cursor.number()?.unwrap_or(0)),
            _ => match self.cursor.name() {
                Some(name) => Argument::Name(name),
                None => {
                    let (at, found) = (place(self), self.cursor.found());
                    return Err(self.cursor.error(at, format!("expected an argument, but found {found}")));
                }
            },
        })
    }

    /// Takes the named argument `option`.
    fn option(call: &mut Call<'a>, option: &str) -> Option<(usize, Argument<'a>)> {
        let i = call.named.iter().position(|n| n.0 == option)?;
        let (_, at, value) = call.named.remove(i);
        Some((at, value))
    }

    fn flag(&self, call: &mut Call<'a>, option: &str, default: bool) -> Result<bool> {
        match Self::option(call, option) {
            None => Ok(default),
            Some((_, Argument::Name("true"))) => Ok(true),
            Some((_, Argument::Name("false"))) => Ok(false),
            Some((at, _)) => Err(self.cursor.error(at, format!("`{option}` is true or false"))),
        }
    }

    fn regex(&mut self, call: &mut Call<'a>) -> Result<Expr> {
        let json = self.flag(call, "json_string", false)?;
        let flags = match Self::option(call, "flags") {
            None => String::new(),
            Some((_, Argument::Text(t))) => t,
            Some((at, _)) => return Err(self.cursor.error(at, "`flags` is a literal, as in flags=\"i\"")),
        };
        let pattern = match call.arguments.pop() {
            Some((_, Argument::Text(t))) if call.arguments.is_empty() => t,
            _ => return Err(self.cursor.error(call.at, "Regex takes one literal, its pattern")),
        };
        // Unicode is how patterns are read anyway.
        let flags: String = flags.chars().filter(|&c| c != 'u').collect();
        if let Some(c) = flags.chars().find(|c| !matches!(c, 'i' | 's' | 'm')) {
            return Err(self
                .cursor
                .error(call.at, format!("the flag {c:?} is not known to Regex; there are i, s and m")));
        }
        let pattern = if flags.is_empty() { pattern } else { format!("(?{flags}){pattern}") };
        let alphabet = if json { Alphabet::Json } else { Alphabet::Utf8 };
        let place = self.cursor.place(call.at);
        regex(&pattern, alphabet, Anchoring::Full, self.cursor.budget).map_err(|e| e.within(&format!("{place}: ")))
    }

    fn ids(&self, arguments: Vec<(usize, Argument<'a>)>) -> Result<Vec<u32>> {
        let mut ids = vec![];
        for (at, a) in arguments {
            match a {
                Argument::Number(n) => ids.push(n),
                Argument::Text(_) => {
                    return Err(self.cursor.unsupported(
                        at,
                        "a token by text",
                        "a grammar's text must mean the same whatever the tokenizer",
                        "Write its id, or use a structural tag, where tokens may be named",
                    ))
                }
                _ => return Err(self.cursor.error(at, "a token is given by its id")),
            }
        }
        ids.sort_unstable();
        ids.dedup();
        Ok(ids)
    }

    /// Pairs of a trigger and a rule.
    fn pairs(&mut self, call: &mut Call<'a>) -> Result<Vec<(usize, Argument<'a>, Expr)>> {
        let mut pairs = vec![];
        for (at, a) in std::mem::take(&mut call.arguments) {
            let Argument::Many(pair) = a else {
                return Err(self.cursor.error(at, format!("{} takes pairs of a trigger and a rule", call.name)));
            };
            let mut pair = pair.into_iter();
            match (pair.next(), pair.next(), pair.next()) {
                (Some(trigger), Some(Argument::Name(rule)), None) => {
                    let handler = Expr::Rule(self.reference(rule, at)?);
                    pairs.push((at, trigger, handler));
                }
                _ => {
                    return Err(self
                        .cursor
                        .error(at, "a pair is a trigger and the name of a rule, as in (\"<a>\", rule)"))
                }
            }
        }
        Ok(pairs)
    }

    fn tag_dispatch(&mut self, call: &mut Call<'a>) -> Result<Expr> {
        let looped = self.flag(call, "loop_after_dispatch", true)?;
        let excludes = match Self::option(call, "excludes") {
            None => vec![],
            Some((at, Argument::Many(many))) => {
                let text = many.into_iter().map(|a| match a {
                    Argument::Text(t) if !t.is_empty() => Ok(t.into_bytes()),
                    _ => Err(self.cursor.error(at, "`excludes` is a list of literals that are not empty")),
                });
                text.collect::<Result<Vec<_>>>()?
            }
            Some((_, Argument::Text(t))) if !t.is_empty() => vec![t.into_bytes()],
            Some((at, _)) => {
                return Err(self.cursor.error(at, "`excludes` is a list of literals, as in (\"a\", \"b\")"))
            }
        };
        let (mut triggers, mut handlers) = (vec![], vec![]);
        for (at, trigger, handler) in self.pairs(call)? {
            match trigger {
                Argument::Text(t) if !t.is_empty() => triggers.push(t.into_bytes()),
                _ => return Err(self.cursor.error(at, "a trigger of TagDispatch is a literal that is not empty")),
            }
            handlers.push(handler);
        }
        let rule = DispatchRule {
            triggers,
            handlers,
            stops: vec![],
            excludes,
            min_tags: 0,
            max_tags: if looped { None } else { Some(1) },
            stop_after_last: !looped,
            open_end: true,
        };
        let name = format!("dispatch at {}", self.cursor.place(call.at));
        Ok(Expr::Rule(self.add(&name, Body::Dispatch(rule))?))
    }

    fn token_dispatch(&mut self, call: &mut Call<'a>) -> Result<Expr> {
        let looped = self.flag(call, "loop_after_dispatch", true)?;
        let mut except = match Self::option(call, "excludes") {
            None => vec![],
            Some((at, Argument::Many(many))) => self.ids(many.into_iter().map(|a| (at, a)).collect())?,
            Some((at, one)) => self.ids(vec![(at, one)])?,
        };
        let mut tags = vec![];
        for (at, trigger, handler) in self.pairs(call)? {
            let id = self.ids(vec![(at, trigger)])?;
            except.extend(&id);
            tags.push(Expr::seq(id.into_iter().map(Expr::Token).chain([handler])));
        }
        Ok(token_dispatch(except, tags, looped))
    }
}

/// Free tokens but for `except`, and `tags` among them, each of which begins with a token of `except`.
pub fn token_dispatch(mut except: Vec<u32>, tags: Vec<Expr>, looped: bool) -> Expr {
    except.sort_unstable();
    except.dedup();
    let free = Expr::TokenExcept(except);
    if looped {
        return Expr::alt([free].into_iter().chain(tags)).star();
    }
    Expr::seq([free.star(), Expr::Alt(tags).opt()])
}

/// Runs of neighbouring chunks, the empty one included.
fn substring(chunks: &[Vec<u8>], budget: &Budget) -> Result<Expr> {
    let text: Vec<u8> = chunks.concat();
    // Where a chunk ends and the next begins.
    let mut edge = vec![false; text.len() + 1];
    let mut at = 0;
    edge[0] = true;
    for chunk in chunks {
        at += chunk.len();
        edge[at] = true;
    }
    let start: Vec<u32> = (0..=text.len() as u32).filter(|&p| edge[p as usize]).collect();
    let mut number: FxHashMap<Vec<u32>, u32> = FxHashMap::default();
    let mut dfa = Dfa::default();
    let mut work = vec![start.clone()];
    number.insert(start, 0);
    dfa.states.push(DfaState::default());
    while let Some(set) = work.pop() {
        let state = number[&set] as usize;
        dfa.states[state].accept = set.iter().any(|&p| edge[p as usize]);
        let mut by_byte: Vec<(u8, Vec<u32>)> = vec![];
        let mut slot = [usize::MAX; 256];
        for &p in &set {
            budget.tick()?;
            let Some(&b) = text.get(p as usize) else { continue };
            if slot[b as usize] == usize::MAX {
                slot[b as usize] = by_byte.len();
                by_byte.push((b, vec![]));
            }
            by_byte[slot[b as usize]].1.push(p + 1);
        }
        by_byte.sort_unstable_by_key(|x| x.0);
        for (b, next) in by_byte {
            let target = match number.get(&next) {
                Some(&t) => t,
                None => {
                    budget.states(1)?;
                    let t = dfa.states.len() as u32;
                    dfa.states.push(DfaState::default());
                    number.insert(next.clone(), t);
                    work.push(next);
                    t
                }
            };
            dfa.states[state].edges.push((b, b, target));
        }
    }
    Ok(Expr::Automaton(Arc::new(dfa)))
}
