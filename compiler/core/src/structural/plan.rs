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

mod free;
mod tags;
mod used;

use std::borrow::Cow;

use self::free::{ends_free, one_text, shortest, Much};
use super::format::{self, Begin, End, Format, Node, Schema, Style, Tag, TokenRef};
use super::markers::{token_of_text, Markers, Piece};
use crate::error::{CompileError, Result};
use crate::ir::{pattern_expr, token_in_pattern, Body, Expr, Grammar, Rule};
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
    Schema {
        style: Style,
        any_order: bool,
        max_whitespace: Option<u32>,
        /// Sorted.
        excludes: Vec<String>,
        /// Texts of the style that are special tokens.
        tokens: Vec<(String, u32)>,
    },
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
    /// Free text of a bounded number of tokens: a grammar of a single rule, without holes.
    Text {
        grammar: Grammar,
        most: u32,
        pointer: String,
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
        inner.tokens.extend(ends.texts.iter().filter_map(|t| match t.first() {
            Some(0xff) => match pattern_expr(t) {
                Expr::Token(id) => Some(id),
                _ => None,
            },
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
        Expr::joined([alt(ways), ends.after.clone().unwrap_or(Expr::Empty)])
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
            Format::Schema(schema) => Expr::Hole(self.schema(schema, pointer)),
            Format::Grammar(text) => self.source(Content::Ebnf, text.clone(), format!("{pointer}/grammar")),
            Format::Regex(text) => self.source(Content::Regex, text.clone(), format!("{pointer}/pattern")),
            Format::Token(token) => Expr::Token(self.token(token, pointer)?),
            Format::ExcludeToken(tokens) => self.free_token(self.token_list(tokens, pointer)?),
            Format::AnyTokens { excludes, max_tokens } => {
                let mut except = self.token_list(excludes, pointer)?;
                except.extend(&around.tokens);
                match max_tokens {
                    None => self.free_tokens(except),
                    Some(most) => self.free_token(except).repeat(0, Some(*most)),
                }
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
                return Ok(Expr::joined(items));
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
                        ways.push(Expr::joined([before.repeat(min.saturating_sub(1), max.map(|m| m - 1)), last]));
                    }
                    if *min == 0 {
                        ways.push(self.ending(tail));
                    }
                    return Ok(alt(ways));
                }
            },
            Format::Tag(tag) => return self.tag(tag, around, tail),
            Format::Triggered { triggers, tags, at_least_one, stop_after_first, excludes } => {
                let tags = self.planned(tags, around)?;
                if *at_least_one && *stop_after_first {
                    self.choice_of(&tags, &[], around)
                } else {
                    let handlers = self.group(triggers, &tags, around, pointer)?;
                    // The first tag is a trigger and what may follow it anywhere: the tags need not be chosen among twice.
                    let tagged = handlers.iter().filter(|h| h.1 != Expr::Never);
                    let ways = tagged.map(|(trigger, tags)| Expr::joined([pattern_expr(trigger), tags.clone()]));
                    let all = at_least_one.then(|| alt(ways.collect()));
                    let much = if *stop_after_first { Much::OneTag } else { Much::All };
                    let text = self.free(handlers, excludes, much, around, tail, pointer)?;
                    return Ok(Expr::joined(all.into_iter().chain([text])));
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
                let much = if *looped { Much::All } else { Much::OneTag };
                return self.free(shortest(handlers), excludes, much, around, tail, pointer);
            }
            Format::Separated { tags, separator, at_least_one, stop_after_first } => {
                let tags = self.planned(tags, around)?;
                let one = self.choice_of(&tags, &[], around);
                let many = match stop_after_first {
                    true => one,
                    false => {
                        let more = Expr::joined([self.string(separator), one.clone()]).star();
                        Expr::joined([one, more])
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
                }
                let tags = self.planned(tags, around)?;
                let one = match tags.is_empty() {
                    true => Expr::Never,
                    false => self.choice_of(&tags, &[], around),
                };
                let mut except = self.token_list(excludes, &format!("{pointer}/exclude_tokens"))?;
                except.extend(triggers.iter().chain(&around.tokens));
                match (*at_least_one, *stop_after_first) {
                    (true, true) => one,
                    (first, once) => {
                        let text = self.token_dispatch(except, vec![one.clone()], !once);
                        Expr::joined(first.then_some(one).into_iter().chain([text]))
                    }
                }
            }
            Format::TokenDispatch { rules, looped, excludes } => {
                let mut except = self.token_list(excludes, &format!("{pointer}/exclude_tokens"))?;
                except.extend(&around.tokens);
                let mut ways = vec![];
                for (i, (token, node)) in rules.iter().enumerate() {
                    let id = self.token(token, &format!("{pointer}/rules/{i}/0"))?;
                    except.push(id);
                    ways.push(Expr::joined([Expr::Token(id), self.expr(node, around, None)?]));
                }
                self.token_dispatch(except, ways, *looped)
            }
        };
        Ok(Expr::joined([body, self.ending(tail)]))
    }

    fn source(&mut self, content: Content, text: Cow<'a, str>, pointer: String) -> Expr {
        self.hole(Part::Source { content, text, pointer })
    }

    fn schema(&mut self, schema: &Schema<'a>, pointer: &str) -> u32 {
        let Schema { text, style, any_order, max_whitespace, excludes } = schema;
        let mut excludes: Vec<String> = excludes.iter().map(|e| e.to_string()).collect();
        excludes.extend(self.spelled.iter().map(|s| String::from_utf8_lossy(s).into_owned()));
        excludes.sort_unstable();
        excludes.dedup();
        let pieces = style.texts().into_iter().flat_map(|text| self.markers.cut(text));
        let mut tokens: Vec<(String, u32)> = pieces
            .filter_map(|piece| match piece {
                Piece::Token(id) => Some((String::from_utf8_lossy(self.vocab.bytes(id)).into_owned(), id)),
                Piece::Bytes(_) => None,
            })
            .collect();
        tokens.sort_unstable();
        tokens.dedup();
        let content =
            Content::Schema { style: *style, any_order: *any_order, max_whitespace: *max_whitespace, excludes, tokens };
        self.push(Part::Source { content, text: text.clone(), pointer: format!("{pointer}/json_schema") })
    }
}
