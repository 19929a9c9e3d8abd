//! Free text: by bytes, with tags in it or bounded in length, and by tokens.

use std::borrow::Cow;
use std::sync::Arc;

use super::{alt, Around, Ends, Part, Planner};
use crate::error::{CompileError, Result};
use crate::ir::{pattern_expr, Body, DispatchRule, Expr, Grammar, Rule, RuleId, TokenRuns};
use crate::structural::format::{End, Format, Node};

/// How much free text there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Much {
    All,
    /// It ends with the first tag in it.
    OneTag,
    /// So many tokens may begin in it.
    Tokens(u32),
}

impl<'a> Planner<'_, 'a> {
    /// Free text with tags in it, and the tail after it.
    pub(super) fn free(
        &mut self,
        handlers: Vec<(Vec<u8>, Expr)>,
        excludes: &[Cow<'a, str>],
        much: Much,
        around: &Around,
        tail: Option<&Ends>,
        pointer: &str,
    ) -> Result<Expr> {
        // A string with a special token in it is excluded with the token, and spelled out.
        let written = excludes.iter().map(|e| e.as_bytes().to_vec());
        let mut excludes: Vec<Vec<u8>> = written.chain(excludes.iter().map(|e| self.markers.pattern(e))).collect();
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
        let Some(tail) = tail else {
            return Ok(self.dispatch(&triggers, None, vec![], excludes, (much, true), pointer));
        };
        // After the only tag an end must follow, which the automaton finds otherwise.
        let mut ends: Vec<Expr> = stops.iter().map(|t| pattern_expr(t)).collect();
        if tail.open {
            ends.push(Expr::Empty);
        }
        let ending = (much == Much::OneTag).then(|| alt(ends));
        let text = self.dispatch(&triggers, ending, stops, excludes, (much, tail.open), pointer);
        Ok(Expr::joined([text, tail.after.clone().unwrap_or(Expr::Empty)]))
    }

    fn dispatch(
        &mut self,
        triggers: &[(Vec<u8>, Expr)],
        ending: Option<Expr>,
        stops: Vec<Vec<u8>>,
        excludes: Vec<Vec<u8>>,
        (much, open_end): (Much, bool),
        pointer: &str,
    ) -> Expr {
        let once = much == Much::OneTag;
        let after = |e: &Expr| match (&ending, e) {
            (Some(ending), e) if *e != Expr::Never => Expr::joined([e.clone(), ending.clone()]),
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
        let body = Body::Dispatch(rule);
        match much {
            Much::Tokens(most) => {
                let rules = vec![Rule { name: "free text".into(), body }];
                self.hole(Part::Text { grammar: Grammar { rules, root: 0 }, most, pointer: pointer.into() })
            }
            _ => self.rule("free text", body),
        }
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
    pub(super) fn text(
        &mut self,
        node: &Node<'a>,
        excludes: &[Cow<'a, str>],
        (max_tokens, max_chars): (Option<u32>, Option<u32>),
        around: &Around,
        tail: Option<&Ends>,
    ) -> Result<Expr> {
        let much = match (max_tokens, max_chars) {
            // No token may begin in it.
            (Some(0), _) => return Ok(self.ending(tail)),
            (Some(_), Some(_)) => {
                return Err(CompileError::unsupported(
                    format!("{}/max_tokens", node.pointer),
                    "max_tokens beside max_chars",
                    "a text is counted in one way",
                    "Give one of them",
                ))
            }
            (Some(most), None) => Much::Tokens(most),
            (None, _) => Much::All,
        };
        let Some(most) = max_chars else {
            return self.free(vec![], excludes, much, around, tail, &node.pointer);
        };
        let mut barred: Vec<Vec<u8>> = excludes.iter().map(|e| e.as_bytes().to_vec()).collect();
        barred.extend(around.texts.iter().chain(&self.spelled).cloned());
        barred.retain(|b| !b.contains(&0xff));
        let Some(tail) = tail else { return Ok(bounded(most, &barred, None)) };
        let mut ways = vec![];
        for end in &tail.texts {
            ways.push(Expr::joined([bounded(most, &barred, Some((end, &tail.texts))), pattern_expr(end)]));
        }
        if tail.open {
            ways.push(bounded(most, &barred, None));
        }
        Ok(Expr::joined([alt(ways), tail.after.clone().unwrap_or(Expr::Empty)]))
    }

    /// Free text that is read by tokens, without `except`.
    pub(super) fn free_tokens(&self, mut except: Vec<u32>) -> Expr {
        except.sort_unstable();
        except.dedup();
        match self.unspelled() {
            None => Expr::TokenExcept(except).star(),
            Some(runs) => Expr::Tokens(Arc::new(runs.excluding(&except))),
        }
    }

    /// One token of such a text.
    pub(super) fn free_token(&self, mut except: Vec<u32>) -> Expr {
        except.extend(self.unspelled().iter().flat_map(|runs| runs.never_first()));
        except.sort_unstable();
        except.dedup();
        Expr::TokenExcept(except)
    }

    /// Free tokens with tags among them, each of which begins with a token of `except`.
    pub(super) fn token_dispatch(&self, except: Vec<u32>, tags: Vec<Expr>, looped: bool) -> Expr {
        let free = self.free_tokens(except);
        match (&free, looped) {
            // One token at a time or a tag: the same, and smaller.
            (Expr::Repeat { body, .. }, true) => Expr::alt([(**body).clone()].into_iter().chain(tags)).star(),
            (_, true) => Expr::joined([free.clone(), Expr::joined([Expr::Alt(tags), free]).star()]),
            (_, false) => Expr::joined([free, Expr::Alt(tags).opt()]),
        }
    }

    /// Runs of tokens that spell out no marker; `None` if there is none to spell.
    fn unspelled(&self) -> Option<Arc<TokenRuns>> {
        (!self.spelled.is_empty()).then(|| self.markers.unspelled(&self.spelled, self.vocab))
    }
}

/// At most `most` characters without the strings of `barred`; if an end follows, none of the ends may end before it does.
fn bounded(most: u32, barred: &[Vec<u8>], end: Option<(&Vec<u8>, &[Vec<u8>])>) -> Expr {
    let text = Expr::Chars(vec![(0, 0xd7ff), (0xe000, 0x10ffff)]).repeat(0, Some(most));
    let any = || Expr::Class(vec![(0, 255)]).star();
    let mut not: Vec<Expr> = barred.iter().map(|b| Expr::joined([any(), Expr::Bytes(b.clone()), any()])).collect();
    if let Some((end, ends)) = end {
        for other in ends {
            // The text ends with the beginning of an end that what follows would complete too early.
            let early = (1..other.len()).filter(|&k| {
                let rest = &other[k..];
                rest.len() < end.len() && end.starts_with(rest)
                    || rest.len() == end.len() && rest == end.as_slice() && other != end
            });
            not.extend(early.map(|k| Expr::joined([any(), Expr::Bytes(other[..k].to_vec())])));
        }
    }
    match not.is_empty() {
        true => text,
        false => Expr::Sub(Box::new(text), Box::new(alt(not))),
    }
}

/// Patterns that begin with no other; the handlers of those that do are theirs no more.
pub(super) fn shortest<T>(mut patterns: Vec<(Vec<u8>, T)>) -> Vec<(Vec<u8>, T)> {
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
pub(super) fn one_text<'n>(node: &'n Node<'_>) -> Option<Vec<&'n str>> {
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
pub(super) fn ends_free(node: &Node<'_>) -> bool {
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
