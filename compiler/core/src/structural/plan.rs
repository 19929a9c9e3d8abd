//! A structural tag to parts.
//!
//! # What formats mean
//!
//! *Free text* (`any_text`, and the text between the tags of `triggered_tags` and `dispatch`) ends at the first place where
//! an end of the tag around it ends, however deep in sequences, alternatives and repeats of that tag it stands, as long as
//! nothing else comes in between. It holds the end of no tag around it, on any level. A tag whose end is empty ends where
//! what is around it ends. Free texts without bounds that stand side by side, or are repeated, are one text.
//!
//! Of the triggers of a format only those count that begin with no other: after the shorter one the tags of both may
//! follow. `at_least_one` begins with a tag at once.
//!
//! The *tail* of an expression is the end of the enclosing tag, built into what it ends: only so can free text know it.

use std::borrow::Cow;

use super::format::{self, Begin, End, Format, Node, Schema, Style, Tag, TokenRef};
use super::markers::{token_of_text, Markers};
use crate::ebnf::token_dispatch;
use crate::error::{CompileError, Result};
use crate::ir::{pattern_expr, token_in_pattern, Body, DispatchRule, Expr, Grammar, Rule, RuleId};
use crate::limits::Budget;
use crate::vocab::{TokenKind, Vocabulary};

/// What a plan depends on besides the tag.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Free text must not spell out special tokens that the tag uses as markers.
    pub forbid_spelled_markers: bool,
}

/// A source of its own.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Content {
    Schema { style: Style, any_order: bool, max_whitespace: Option<u32>, excludes: Vec<String> },
    Ebnf,
    Regex,
}

/// One part of a plan. Parts refer to parts before them.
#[derive(Clone, Debug)]
pub enum Part<'a> {
    Source {
        content: Content,
        text: Cow<'a, str>,
        pointer: String,
    },
    /// One of these tags. `outer`: it is inside no other tag.
    Choice {
        tags: Vec<TagPlan>,
        outer: bool,
    },
    /// A grammar whose `Expr::Hole(i)` is part `i`.
    Skeleton {
        grammar: Grammar,
        pointer: String,
    },
}

/// A tag of a choice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TagPlan {
    /// The begin, or what remains of it after the trigger.
    pub rest: Vec<u8>,
    /// The part inside.
    pub content: u32,
    /// Empty where the content brings it along.
    pub end: Vec<u8>,
    /// Number in the request, by order of writing.
    pub number: u32,
}

#[derive(Clone, Debug)]
pub struct Plan<'a> {
    pub parts: Vec<Part<'a>>,
    pub root: u32,
    /// Things in the tag that have no effect: pointer, keyword, reason.
    pub notes: Vec<(String, &'static str, String)>,
}

/// Plans a structural tag, given as JSON.
pub fn plan<'a>(
    text: &'a str,
    vocab: &Vocabulary,
    markers: &Markers,
    options: Options,
    budget: &Budget,
) -> Result<Plan<'a>> {
    let json = super::json::parse(text, budget)?;
    let node = format::read(&json)?;
    let mut p =
        Planner { vocab, markers, budget, parts: vec![], rules: vec![], notes: vec![], tags: 0, spelled: vec![] };
    if options.forbid_spelled_markers {
        p.note_markers(&node)?;
    }
    let root = p.part(&node, &Around::default(), None)?;
    Ok(Plan { parts: p.parts, root, notes: p.notes })
}

/// How a tag ends.
#[derive(Clone, Debug, Default, PartialEq)]
struct Ends {
    /// Patterns, as in `DispatchRule`.
    texts: Vec<Vec<u8>>,
    /// It may also end without a text.
    open: bool,
    /// What comes after the end, inside the tail.
    after: Option<Expr>,
}

/// The tags around a format.
#[derive(Clone, Debug, Default)]
struct Around {
    /// Ends of all of them, and those of these that are one token.
    texts: Vec<Vec<u8>>,
    tokens: Vec<u32>,
    depth: usize,
}

impl Around {
    fn inside(&self, ends: &Ends) -> Around {
        let mut inner = self.clone();
        inner.texts.extend(ends.texts.iter().cloned());
        inner.texts.sort_unstable();
        inner.texts.dedup();
        inner.tokens.extend(ends.texts.iter().filter_map(|t| match pattern_expr(t) {
            Expr::Token(id) => Some(id),
            _ => None,
        }));
        inner.depth += 1;
        inner
    }
}

struct Planner<'v, 'a> {
    vocab: &'v Vocabulary,
    markers: &'v Markers,
    budget: &'v Budget,
    parts: Vec<Part<'a>>,
    /// Of the skeleton under way; rule 0 is its root.
    rules: Vec<Rule>,
    notes: Vec<(String, &'static str, String)>,
    tags: u32,
    /// Texts of the tokens that the tag uses as markers.
    spelled: Vec<Vec<u8>>,
}

fn seq(items: impl IntoIterator<Item = Expr>) -> Expr {
    let mut items: Vec<Expr> = items.into_iter().filter(|e| *e != Expr::Empty).collect();
    match items.len() {
        0 => Expr::Empty,
        1 => items.remove(0),
        _ => Expr::Seq(items),
    }
}

fn alt(mut items: Vec<Expr>) -> Expr {
    match items.len() {
        1 => items.remove(0),
        _ => Expr::Alt(items),
    }
}

impl<'a> Planner<'_, 'a> {
    /// A format as a part of its own.
    fn part(&mut self, node: &Node<'a>, around: &Around, tail: Option<&Ends>) -> Result<u32> {
        let before = std::mem::take(&mut self.rules);
        self.rules.push(Rule { name: "structure".into(), body: Body::Expr(Expr::Never) });
        let e = self.expr(node, around, tail);
        let mut rules = std::mem::replace(&mut self.rules, before);
        Ok(match e? {
            // Nothing but one part.
            Expr::Hole(part) if rules.len() == 1 => part,
            Expr::Rule(r) if rules.len() == 2 => {
                rules.swap(0, r as usize);
                rules.truncate(1);
                self.push(Part::Skeleton { grammar: Grammar { rules, root: 0 }, pointer: node.pointer.clone() })
            }
            e => {
                rules[0].body = Body::Expr(e);
                self.push(Part::Skeleton { grammar: Grammar { rules, root: 0 }, pointer: node.pointer.clone() })
            }
        })
    }

    fn push(&mut self, part: Part<'a>) -> u32 {
        self.parts.push(part);
        self.parts.len() as u32 - 1
    }

    fn hole(&mut self, part: Part<'a>) -> Expr {
        Expr::Hole(self.push(part))
    }

    fn rule(&mut self, name: &str, body: Body) -> Expr {
        self.rules.push(Rule { name: name.into(), body });
        Expr::Rule(self.rules.len() as u32 - 1)
    }

    fn token(&self, token: &TokenRef<'_>, pointer: &str) -> Result<u32> {
        match token {
            TokenRef::Id(id) if self.vocab.kind(*id) != TokenKind::Unused => Ok(*id),
            TokenRef::Id(id) => Err(CompileError::invalid(
                pointer,
                format!(
                    "the tokenizer has no token {id} (it has ids below {}); take ids from the tokenizer in use",
                    self.vocab.len()
                ),
            )),
            TokenRef::Text(text) => token_of_text(self.vocab, text).ok_or_else(|| {
                CompileError::invalid(
                    pointer,
                    format!("no token of the tokenizer is {text:?}; give an id, or a text that is one token"),
                )
            }),
        }
    }

    fn token_list(&self, tokens: &[TokenRef<'_>], pointer: &str) -> Result<Vec<u32>> {
        let mut ids = tokens.iter().map(|t| self.token(t, pointer)).collect::<Result<Vec<_>>>()?;
        ids.sort_unstable();
        ids.dedup();
        Ok(ids)
    }

    /// What follows the content of a tag.
    fn ending(&self, tail: Option<&Ends>) -> Expr {
        let Some(ends) = tail else { return Expr::Empty };
        let mut ways: Vec<Expr> = ends.texts.iter().map(|t| pattern_expr(t)).collect();
        if ends.open {
            ways.push(Expr::Empty);
        }
        seq([alt(ways), ends.after.clone().unwrap_or(Expr::Empty)])
    }

    fn ends(&self, tag: &Tag<'_>) -> Result<Ends> {
        let mut ends = Ends::default();
        match &tag.end {
            End::Token(t) => {
                let id = self.token(t, &format!("{}/end", tag.pointer))?;
                ends.texts.push(token_in_pattern(id).to_vec());
            }
            End::Texts(texts) => {
                for text in texts {
                    match text.is_empty() {
                        true => ends.open = true,
                        false => ends.texts.push(self.markers.pattern(text)),
                    }
                }
            }
        }
        Ok(ends)
    }

    /// A string as what it matches.
    fn string(&self, text: &str) -> Expr {
        pattern_expr(&self.markers.pattern(text))
    }

    /// A format, and the tail after it.
    fn expr(&mut self, node: &Node<'a>, around: &Around, tail: Option<&Ends>) -> Result<Expr> {
        self.budget.tick()?;
        let pointer = &node.pointer;
        let body = match &node.format {
            Format::Const(text) => self.string(text),
            Format::Schema(schema) => self.schema(schema, pointer),
            Format::Grammar(text) => self.source(Content::Ebnf, text.clone(), format!("{pointer}/grammar")),
            Format::Regex(text) => self.source(Content::Regex, text.clone(), format!("{pointer}/pattern")),
            Format::Token(token) => Expr::Token(self.token(token, pointer)?),
            Format::ExcludeToken(tokens) => Expr::TokenExcept(self.token_list(tokens, pointer)?),
            Format::AnyTokens { excludes, max_tokens } => {
                let mut except = self.token_list(excludes, pointer)?;
                except.extend(&around.tokens);
                except.sort_unstable();
                except.dedup();
                Expr::TokenExcept(except).repeat(0, *max_tokens)
            }
            Format::Text { excludes, max_tokens, max_chars } => {
                return self.text(node, excludes, (*max_tokens, *max_chars), around, tail)
            }
            Format::Sequence(elements) => {
                let mut items = vec![];
                for (i, e) in elements.iter().enumerate() {
                    let last = i + 1 == elements.len();
                    // Free texts side by side are one: else two could share the writing of what neither may hold.
                    if !last && one_text(e).is_some_and(|t| one_text(&elements[i + 1]) == Some(t)) {
                        continue;
                    }
                    items.push(self.expr(e, around, tail.filter(|_| last))?);
                }
                return Ok(seq(items));
            }
            Format::Or(elements) => {
                let ways = elements.iter().map(|e| self.expr(e, around, tail)).collect::<Result<Vec<_>>>()?;
                return Ok(alt(ways));
            }
            Format::Repeat { content, max, .. } if one_text(content).is_some() && *max != Some(0) => {
                return self.expr(content, around, tail)
            }
            Format::Repeat { content, min, max } => match tail.filter(|_| ends_free(content)) {
                None => self.expr(content, around, None)?.repeat(*min, *max),
                Some(_) => {
                    // The last round ends with the tail.
                    let mut ways = vec![];
                    if *max != Some(0) {
                        let before = self.expr(content, around, None)?;
                        let last = self.expr(content, around, tail)?;
                        ways.push(seq([before.repeat(min.saturating_sub(1), max.map(|m| m - 1)), last]));
                    }
                    if *min == 0 {
                        ways.push(self.ending(tail));
                    }
                    return Ok(alt(ways));
                }
            },
            Format::Tag(tag) => return self.tag(tag, around, tail),
            Format::Triggered { triggers, tags, at_least_one, stop_after_first, excludes } => {
                let all = if *at_least_one { Some(self.choice(tags, &[], around)?) } else { None };
                if let (Some(all), true) = (&all, *stop_after_first) {
                    seq([all.clone()])
                } else {
                    let handlers = self.group(triggers, tags, around, pointer)?;
                    let text = self.free(handlers, excludes, *stop_after_first, around, tail, pointer)?;
                    return Ok(seq(all.into_iter().chain([text])));
                }
            }
            Format::Dispatch { rules, looped, excludes } => {
                let mut handlers: Vec<(Vec<u8>, Vec<Expr>)> = vec![];
                for (pattern, node) in rules {
                    let pattern = self.markers.pattern(pattern);
                    let around = Around { depth: around.depth + 1, ..around.clone() };
                    let e = self.expr(node, &around, None)?;
                    match handlers.iter_mut().find(|h| h.0 == pattern) {
                        Some(h) => h.1.push(e),
                        None => handlers.push((pattern, vec![e])),
                    }
                }
                let handlers = handlers.into_iter().map(|(t, e)| (t, alt(e))).collect();
                return self.free(shortest(handlers), excludes, !*looped, around, tail, pointer);
            }
            Format::Separated { tags, separator, at_least_one, stop_after_first } => {
                let one = self.choice(tags, &[], around)?;
                let many = match stop_after_first {
                    true => one,
                    false => {
                        let more = seq([self.string(separator), one.clone()]).star();
                        seq([one, more])
                    }
                };
                if *at_least_one {
                    many
                } else {
                    many.opt()
                }
            }
            Format::TokenTriggered { triggers, tags, at_least_one, stop_after_first, excludes } => {
                let triggers = self.token_list(triggers, &format!("{pointer}/trigger_tokens"))?;
                let mut ways = vec![];
                for tag in tags {
                    let Begin::Token(begin) = &tag.begin else {
                        let message = "the tags of token_triggered_tags begin with a token";
                        return Err(CompileError::invalid(format!("{}/begin", tag.pointer), message));
                    };
                    let begin = self.token(begin, &format!("{}/begin", tag.pointer))?;
                    if !triggers.contains(&begin) {
                        let message = "the begin of a tag must be one of the trigger tokens; add it to them";
                        return Err(CompileError::invalid(format!("{}/begin", tag.pointer), message));
                    }
                    ways.push(self.tag(tag, around, None)?);
                }
                let mut except = self.token_list(excludes, &format!("{pointer}/exclude_tokens"))?;
                except.extend(triggers.iter().chain(&around.tokens));
                let first = at_least_one.then(|| alt(ways.clone()));
                match (first, *stop_after_first) {
                    (Some(one), true) => one,
                    (first, once) => seq(first.into_iter().chain([token_dispatch(except, ways, !once)])),
                }
            }
            Format::TokenDispatch { rules, looped, excludes } => {
                let mut except = self.token_list(excludes, &format!("{pointer}/exclude_tokens"))?;
                except.extend(&around.tokens);
                let mut ways = vec![];
                for (i, (token, node)) in rules.iter().enumerate() {
                    let id = self.token(token, &format!("{pointer}/rules/{i}/0"))?;
                    except.push(id);
                    ways.push(seq([Expr::Token(id), self.expr(node, around, None)?]));
                }
                token_dispatch(except, ways, *looped)
            }
        };
        Ok(seq([body, self.ending(tail)]))
    }

    fn source(&mut self, content: Content, text: Cow<'a, str>, pointer: String) -> Expr {
        self.hole(Part::Source { content, text, pointer })
    }

    fn schema(&mut self, schema: &Schema<'a>, pointer: &str) -> Expr {
        let Schema { text, style, any_order, max_whitespace, excludes } = schema;
        let mut excludes: Vec<String> = excludes.iter().map(|e| e.to_string()).collect();
        excludes.extend(self.spelled.iter().map(|s| String::from_utf8_lossy(s).into_owned()));
        excludes.sort_unstable();
        excludes.dedup();
        let content =
            Content::Schema { style: *style, any_order: *any_order, max_whitespace: *max_whitespace, excludes };
        self.source(content, text.clone(), format!("{pointer}/json_schema"))
    }

    /// A tag with its begin, and the tail after it.
    fn tag(&mut self, tag: &Tag<'a>, around: &Around, tail: Option<&Ends>) -> Result<Expr> {
        let begin = match &tag.begin {
            Begin::Text(text) => self.string(text),
            Begin::Token(token) => Expr::Token(self.token(token, &format!("{}/begin", tag.pointer))?),
        };
        self.tags += 1;
        Ok(seq([begin, self.inside(tag, around, tail)?]))
    }

    /// The content of a tag, its end, and the tail after it.
    fn inside(&mut self, tag: &Tag<'a>, around: &Around, tail: Option<&Ends>) -> Result<Expr> {
        let own = self.ends(tag)?;
        let inner = around.inside(&own);
        let mut ways = vec![];
        if own.open {
            // It ends where what is around it ends.
            ways.push(self.expr(&tag.content, &inner, tail)?);
        }
        if !own.texts.is_empty() {
            let closed = Ends { open: false, after: Some(self.ending(tail)), ..own };
            ways.push(self.expr(&tag.content, &inner, Some(&closed))?);
        }
        Ok(alt(ways))
    }

    /// One of several tags; `trigger` is what of their begins has been written.
    fn choice(&mut self, tags: &[Tag<'a>], trigger: &[u8], around: &Around) -> Result<Expr> {
        let chosen: Vec<&Tag<'a>> = tags.iter().collect();
        let first = self.tags;
        self.tags += tags.len() as u32;
        let numbered: Vec<(u32, &Tag<'a>)> = (first..).zip(chosen).collect();
        self.choice_of(&numbered, trigger, around)
    }

    fn choice_of(&mut self, tags: &[(u32, &Tag<'a>)], trigger: &[u8], around: &Around) -> Result<Expr> {
        let (mut flat, mut other) = (vec![], vec![]);
        for &(number, tag) in tags {
            match &tag.begin {
                Begin::Text(text) => {
                    let rest = self.markers.pattern(text).split_off(trigger.len());
                    if rest.contains(&0xff) {
                        other.push(seq([pattern_expr(&rest), self.inside(tag, around, None)?]));
                        continue;
                    }
                    let (content, end) = self.tag_content(tag, around)?;
                    flat.push(TagPlan { rest, content, end, number });
                }
                Begin::Token(_) => other.push(self.tag(tag, around, None)?),
            }
        }
        let outer = around.depth == 0;
        if !flat.is_empty() {
            other.push(self.hole(Part::Choice { tags: flat, outer }));
        }
        Ok(alt(other))
    }

    /// What is inside a tag, and the end that is left to write after it.
    fn tag_content(&mut self, tag: &Tag<'a>, around: &Around) -> Result<(u32, Vec<u8>)> {
        let own = self.ends(tag)?;
        let plain = !ends_free(&tag.content);
        match (plain, own.open, own.texts.as_slice()) {
            (true, false, [end]) if !end.contains(&0xff) => {
                let inner = around.inside(&own);
                return Ok((self.part(&tag.content, &inner, None)?, end.clone()));
            }
            _ => {}
        }
        if plain && own.open && own.texts.is_empty() {
            return Ok((self.part(&tag.content, &around.inside(&own), None)?, vec![]));
        }
        let before = std::mem::take(&mut self.rules);
        self.rules.push(Rule { name: "tag".into(), body: Body::Expr(Expr::Never) });
        let e = self.inside(tag, around, None);
        let mut rules = std::mem::replace(&mut self.rules, before);
        rules[0].body = Body::Expr(e?);
        let grammar = Grammar { rules, root: 0 };
        Ok((self.push(Part::Skeleton { grammar, pointer: tag.pointer.clone() }), vec![]))
    }

    /// Tags by trigger, as handlers.
    fn group(
        &mut self,
        triggers: &[Cow<'a, str>],
        tags: &[Tag<'a>],
        around: &Around,
        pointer: &str,
    ) -> Result<Vec<(Vec<u8>, Expr)>> {
        let first = self.tags;
        self.tags += tags.len() as u32;
        if triggers.is_empty() {
            return Err(CompileError::invalid(format!("{pointer}/triggers"), "give at least one trigger"));
        }
        let names: Vec<(Vec<u8>, ())> = triggers.iter().map(|t| (self.markers.pattern(t), ())).collect();
        let names: Vec<Vec<u8>> = shortest(names).into_iter().map(|t| t.0).collect();
        let mut by_trigger: Vec<Vec<(u32, &Tag<'a>)>> = vec![vec![]; names.len()];
        for (number, tag) in (first..).zip(tags) {
            let Begin::Text(begin) = &tag.begin else {
                let message = "the tags of triggered_tags begin with a string; use token_triggered_tags for tokens";
                return Err(CompileError::invalid(format!("{}/begin", tag.pointer), message));
            };
            let begin = self.markers.pattern(begin);
            match names.iter().position(|t| begin.starts_with(t)) {
                Some(t) => by_trigger[t].push((number, tag)),
                None => {
                    let message = "the begin of a tag must start with one of the triggers; add its first part to them";
                    return Err(CompileError::invalid(format!("{}/begin", tag.pointer), message));
                }
            }
        }
        let mut handlers = vec![];
        for (trigger, tags) in names.into_iter().zip(by_trigger) {
            let handler = if tags.is_empty() { Expr::Never } else { self.choice_of(&tags, &trigger, around)? };
            handlers.push((trigger, handler));
        }
        Ok(handlers)
    }

    /// Free text with tags in it, and the tail after it.
    fn free(
        &mut self,
        handlers: Vec<(Vec<u8>, Expr)>,
        excludes: &[Cow<'a, str>],
        once: bool,
        around: &Around,
        tail: Option<&Ends>,
        pointer: &str,
    ) -> Result<Expr> {
        let mut excludes: Vec<Vec<u8>> = excludes.iter().map(|e| e.as_bytes().to_vec()).collect();
        excludes.extend(around.texts.iter().chain(&self.spelled).cloned());
        let mut stops: Vec<Vec<u8>> = tail.map_or(vec![], |t| t.texts.clone());
        stops.sort_unstable();
        stops.dedup();
        excludes.retain(|e| !stops.contains(e));
        excludes.sort_unstable();
        excludes.dedup();
        let mut triggers = vec![];
        for (trigger, handler) in handlers {
            let barred = stops.iter().chain(&excludes).find(|p| memchr::memmem::find(&trigger, p).is_some());
            if let Some(p) = barred {
                let (t, p) = (String::from_utf8_lossy(&trigger), String::from_utf8_lossy(p));
                let reason = format!(
                    "the trigger {t:?} can never be written: it contains {p:?}, which ends the text or must not be in it"
                );
                self.notes.push((pointer.into(), "triggers", reason));
                continue;
            }
            triggers.push((trigger, handler));
        }
        let Some(tail) = tail else { return Ok(self.dispatch(&triggers, None, vec![], excludes, once, true)) };
        // After the only tag an end must follow, which the automaton finds otherwise.
        let mut ends: Vec<Expr> = stops.iter().map(|t| pattern_expr(t)).collect();
        if tail.open {
            ends.push(Expr::Empty);
        }
        let ending = once.then(|| alt(ends));
        let text = self.dispatch(&triggers, ending, stops, excludes, once, tail.open);
        Ok(seq([text, tail.after.clone().unwrap_or(Expr::Empty)]))
    }

    fn dispatch(
        &mut self,
        triggers: &[(Vec<u8>, Expr)],
        ending: Option<Expr>,
        stops: Vec<Vec<u8>>,
        excludes: Vec<Vec<u8>>,
        once: bool,
        open_end: bool,
    ) -> Expr {
        let after = |e: &Expr| match (&ending, e) {
            (Some(ending), e) if *e != Expr::Never => seq([e.clone(), ending.clone()]),
            _ => e.clone(),
        };
        // Handlers are parts of their own, so that the text's automaton knows nothing of them.
        let handlers: Vec<Expr> = triggers.iter().map(|t| after(&t.1)).collect();
        let handlers = handlers.into_iter().map(|e| self.apart(e)).collect();
        let rule = DispatchRule {
            triggers: triggers.iter().map(|t| t.0.clone()).collect(),
            handlers,
            stops,
            excludes,
            min_tags: 0,
            max_tags: once.then_some(1),
            stop_after_last: once,
            open_end,
        };
        self.rule("free text", Body::Dispatch(rule))
    }

    /// An expression as a hole, with the rules of this skeleton that it needs.
    fn apart(&mut self, e: Expr) -> Expr {
        if matches!(e, Expr::Never | Expr::Empty | Expr::Hole(_)) {
            return e;
        }
        let mut rules = vec![Rule { name: "after a trigger".into(), body: Body::Expr(Expr::Never) }];
        let mut moved: Vec<(RuleId, RuleId)> = vec![];
        let body = self.moved(&e, &mut rules, &mut moved);
        rules[0].body = Body::Expr(body);
        self.hole(Part::Skeleton { grammar: Grammar { rules, root: 0 }, pointer: String::new() })
    }

    /// A copy of `e` for the grammar `rules`, which gets copies of the rules that it refers to.
    fn moved(&self, e: &Expr, rules: &mut Vec<Rule>, moved: &mut Vec<(RuleId, RuleId)>) -> Expr {
        match e {
            Expr::Rule(r) => {
                if let Some(m) = moved.iter().find(|m| m.0 == *r) {
                    return Expr::Rule(m.1);
                }
                let to = rules.len() as RuleId;
                moved.push((*r, to));
                // Rules of a skeleton are free texts, whose handlers are holes.
                rules.push(self.rules[*r as usize].clone());
                Expr::Rule(to)
            }
            Expr::Seq(v) => Expr::Seq(v.iter().map(|e| self.moved(e, rules, moved)).collect()),
            Expr::Alt(v) => Expr::Alt(v.iter().map(|e| self.moved(e, rules, moved)).collect()),
            Expr::Repeat { body, min, max } => self.moved(body, rules, moved).repeat(*min, *max),
            e => e.clone(),
        }
    }

    /// `any_text`, bounded or not.
    fn text(
        &mut self,
        node: &Node<'a>,
        excludes: &[Cow<'a, str>],
        (max_tokens, max_chars): (Option<u32>, Option<u32>),
        around: &Around,
        tail: Option<&Ends>,
    ) -> Result<Expr> {
        if max_tokens.is_some() {
            return Err(CompileError::unsupported(
                format!("{}/max_tokens", node.pointer),
                "max_tokens of any_text",
                "how many tokens a text takes is not known to a grammar of texts",
                "Bound it with max_chars, or use any_tokens",
            ));
        }
        let Some(most) = max_chars else {
            return self.free(vec![], excludes, false, around, tail, &node.pointer);
        };
        let mut barred: Vec<Vec<u8>> = excludes.iter().map(|e| e.as_bytes().to_vec()).collect();
        barred.extend(around.texts.iter().chain(&self.spelled).cloned());
        barred.retain(|b| !b.contains(&0xff));
        let Some(tail) = tail else { return Ok(bounded(most, &barred, None)) };
        let mut ways = vec![];
        for end in &tail.texts {
            ways.push(seq([bounded(most, &barred, Some((end, &tail.texts))), pattern_expr(end)]));
        }
        if tail.open {
            ways.push(bounded(most, &barred, None));
        }
        Ok(seq([alt(ways), tail.after.clone().unwrap_or(Expr::Empty)]))
    }

    /// Collects the texts of the added tokens that the tag uses as markers.
    fn note_markers(&mut self, root: &Node<'a>) -> Result<()> {
        let mut texts: Vec<Vec<u8>> = vec![];
        let mut note = |p: &Self, id: u32| {
            let text = p.vocab.bytes(id);
            let marker = matches!(p.vocab.kind(id), TokenKind::Special | TokenKind::Added);
            if marker && !text.is_empty() && std::str::from_utf8(text).is_ok() {
                texts.push(text.to_vec());
            }
        };
        let mut work = vec![root];
        while let Some(node) = work.pop() {
            let mut strings: Vec<&str> = vec![];
            let mut tokens: Vec<&TokenRef<'a>> = vec![];
            let mut tags: Vec<&Tag<'a>> = vec![];
            match &node.format {
                Format::Const(text) => strings.push(text),
                Format::Token(t) => tokens.push(t),
                Format::Sequence(v) | Format::Or(v) => work.extend(v),
                Format::Repeat { content, .. } => work.push(content),
                Format::Tag(tag) => tags.push(tag),
                Format::Triggered { triggers, tags: list, .. } => {
                    strings.extend(triggers.iter().map(|t| &**t));
                    tags.extend(list);
                }
                Format::TokenTriggered { triggers, tags: list, .. } => {
                    tokens.extend(triggers);
                    tags.extend(list);
                }
                Format::Separated { tags: list, separator, .. } => {
                    strings.push(separator);
                    tags.extend(list);
                }
                Format::Dispatch { rules, .. } => {
                    strings.extend(rules.iter().map(|r| &*r.0));
                    work.extend(rules.iter().map(|r| &r.1));
                }
                Format::TokenDispatch { rules, .. } => {
                    tokens.extend(rules.iter().map(|r| &r.0));
                    work.extend(rules.iter().map(|r| &r.1));
                }
                _ => {}
            }
            for tag in tags {
                match &tag.begin {
                    Begin::Text(t) => strings.push(t),
                    Begin::Token(t) => tokens.push(t),
                }
                match &tag.end {
                    End::Texts(t) => strings.extend(t.iter().map(|t| &**t)),
                    End::Token(t) => tokens.push(t),
                }
                work.push(&tag.content);
            }
            for text in strings {
                for piece in self.markers.cut(text) {
                    if let super::markers::Piece::Token(id) = piece {
                        note(self, id);
                    }
                }
            }
            for token in tokens {
                note(self, self.token(token, &node.pointer)?);
            }
        }
        texts.sort_unstable();
        texts.dedup();
        self.spelled = texts;
        Ok(())
    }
}

/// At most `most` characters without the strings of `barred`; if an end follows, none of the ends may end before it does.
fn bounded(most: u32, barred: &[Vec<u8>], end: Option<(&Vec<u8>, &[Vec<u8>])>) -> Expr {
    let text = Expr::Chars(vec![(0, 0xd7ff), (0xe000, 0x10ffff)]).repeat(0, Some(most));
    let any = || Expr::Class(vec![(0, 255)]).star();
    let mut not: Vec<Expr> = barred.iter().map(|b| seq([any(), Expr::Bytes(b.clone()), any()])).collect();
    if let Some((end, ends)) = end {
        for other in ends {
            // The text ends with the beginning of an end that what follows would complete too early.
            let early = (1..other.len()).filter(|&k| {
                let rest = &other[k..];
                rest.len() < end.len() && end.starts_with(rest)
                    || rest.len() == end.len() && rest == end.as_slice() && other != end
            });
            not.extend(early.map(|k| seq([any(), Expr::Bytes(other[..k].to_vec())])));
        }
    }
    match not.is_empty() {
        true => text,
        false => Expr::Sub(Box::new(text), Box::new(alt(not))),
    }
}

/// Patterns that begin with no other; the handlers of those that do are theirs no more.
fn shortest<T>(mut patterns: Vec<(Vec<u8>, T)>) -> Vec<(Vec<u8>, T)> {
    let all: Vec<Vec<u8>> = patterns.iter().map(|p| p.0.clone()).collect();
    let mut seen: Vec<Vec<u8>> = vec![];
    patterns.retain(|(p, _)| {
        let covered = all.iter().any(|q| q.len() < p.len() && p.starts_with(q)) || seen.contains(p);
        seen.push(p.clone());
        !covered
    });
    patterns
}

/// The excluded strings of a format that is nothing but unbounded free text, however often repeated.
fn one_text<'n>(node: &'n Node<'_>) -> Option<Vec<&'n str>> {
    match &node.format {
        Format::Text { excludes, max_tokens: None, max_chars: None } => {
            let mut excludes: Vec<&str> = excludes.iter().map(|e| &**e).collect();
            excludes.sort_unstable();
            excludes.dedup();
            Some(excludes)
        }
        Format::Repeat { content, max, .. } if *max != Some(0) => one_text(content),
        _ => None,
    }
}

/// Whether a format ends in free text, which must know what ends it.
fn ends_free(node: &Node<'_>) -> bool {
    match &node.format {
        Format::Text { .. } | Format::Triggered { .. } | Format::Dispatch { .. } => true,
        Format::Sequence(v) => v.last().is_some_and(ends_free),
        Format::Or(v) => v.iter().any(ends_free),
        Format::Repeat { content, .. } => ends_free(content),
        Format::Tag(tag) => match &tag.end {
            End::Texts(texts) => texts.iter().any(|t| t.is_empty()) && ends_free(&tag.content),
            End::Token(_) => false,
        },
        _ => false,
    }
}
