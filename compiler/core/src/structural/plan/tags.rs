//! Tags, and the choices among them.

use std::borrow::Cow;

use super::free::{ends_free, shortest};
use super::{alt, Around, Ends, Part, Planner, TagPlan};
use crate::error::{CompileError, Result};
use crate::ir::{pattern_expr, token_in_pattern, Body, Expr, Grammar, Rule};
use crate::structural::format::{Begin, Format, Tag};

/// A tag whose inside has been planned.
pub(super) struct Planned<'t, 'a> {
    tag: &'t Tag<'a>,
    number: u32,
    /// As a pattern.
    begin: Vec<u8>,
    /// The part inside.
    content: u32,
    /// Empty where the content brings it along.
    end: Vec<u8>,
}

impl<'a> Planner<'_, 'a> {
    /// A tag with its begin, and the tail after it.
    pub(super) fn tag(&mut self, tag: &Tag<'a>, around: &Around, tail: Option<&Ends>) -> Result<Expr> {
        let begin = match &tag.begin {
            Begin::Text(text) => self.string(text),
            Begin::Token(token) => Expr::Token(self.token(token, &format!("{}/begin", tag.pointer))?),
        };
        self.tags += 1;
        Ok(Expr::joined([begin, self.inside(tag, around, tail)?]))
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

    /// The tags of a format with what is inside of them, which several choices may have in common.
    pub(super) fn planned<'t>(&mut self, tags: &'t [Tag<'a>], around: &Around) -> Result<Vec<Planned<'t, 'a>>> {
        let first = self.tags;
        self.tags += tags.len() as u32;
        let mut planned = Vec::with_capacity(tags.len());
        for (number, tag) in (first..).zip(tags) {
            self.budget.tick()?;
            let begin = match &tag.begin {
                Begin::Text(text) => self.markers.pattern(text),
                Begin::Token(token) => token_in_pattern(self.token(token, &format!("{}/begin", tag.pointer))?).to_vec(),
            };
            let (content, end) = self.tag_content(tag, around)?;
            planned.push(Planned { tag, number, begin, content, end });
        }
        Ok(planned)
    }

    /// One of several tags; `trigger` is what of their begins has been written.
    ///
    /// Tags whose begins hold a token behind the trigger are chosen among after the last of these, so that a choice is of
    /// bytes alone.
    pub(super) fn choice_of<'t>(
        &mut self,
        tags: impl IntoIterator<Item = &'t Planned<'t, 'a>>,
        trigger: &[u8],
        around: &Around,
    ) -> Expr
    where
        'a: 't,
    {
        let mut choices: Vec<(&[u8], Vec<TagPlan>)> = vec![];
        for tag in tags {
            let behind = &tag.begin[trigger.len()..];
            let tokens = behind.iter().rposition(|&b| b == 0xff).map_or(0, |at| at + token_in_pattern(0).len());
            let (head, rest) = behind.split_at(tokens);
            let plan = TagPlan { rest: rest.to_vec(), content: tag.content, end: tag.end.clone(), number: tag.number };
            match choices.iter_mut().find(|c| c.0 == head) {
                Some(choice) => choice.1.push(plan),
                None => choices.push((head, vec![plan])),
            }
        }
        let outer = around.depth == 0;
        let ways = choices.into_iter().map(|(head, tags)| {
            let choice = self.hole(Part::Choice { tags, outer });
            Expr::joined([pattern_expr(head), choice])
        });
        alt(ways.collect())
    }

    /// What is inside a tag, and the end that is left to write after it.
    fn tag_content(&mut self, tag: &Tag<'a>, around: &Around) -> Result<(u32, Vec<u8>)> {
        let own = self.ends(tag)?;
        let plain = !ends_free(&tag.content);
        let end = match (own.open, own.texts.as_slice()) {
            (false, [end]) if !end.contains(&0xff) => Some(end.clone()),
            (true, []) => Some(vec![]),
            _ => None,
        };
        if let (true, Some(end)) = (plain, end) {
            let content = match &tag.content.format {
                // What is around plays no part, and nearly all tags are of this form.
                Format::Schema(schema) => self.schema(schema, &tag.content.pointer),
                _ => self.part(&tag.content, &around.inside(&own), None)?,
            };
            return Ok((content, end));
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
    pub(super) fn group(
        &mut self,
        triggers: &[Cow<'a, str>],
        tags: &[Planned<'_, 'a>],
        around: &Around,
        pointer: &str,
    ) -> Result<Vec<(Vec<u8>, Expr)>> {
        if triggers.is_empty() {
            return Err(CompileError::invalid(format!("{pointer}/triggers"), "give at least one trigger"));
        }
        let names: Vec<(Vec<u8>, ())> = triggers.iter().map(|t| (self.markers.pattern(t), ())).collect();
        let names: Vec<Vec<u8>> = shortest(names).into_iter().map(|t| t.0).collect();
        let mut by_trigger: Vec<Vec<&Planned<'_, 'a>>> = vec![vec![]; names.len()];
        for planned in tags {
            if matches!(planned.tag.begin, Begin::Token(_)) {
                let message = "the tags of triggered_tags begin with a string; use token_triggered_tags for tokens";
                return Err(CompileError::invalid(format!("{}/begin", planned.tag.pointer), message));
            }
            match names.iter().position(|t| planned.begin.starts_with(t)) {
                Some(t) => by_trigger[t].push(planned),
                None => {
                    let message = "the begin of a tag must start with one of the triggers; add its first part to them";
                    return Err(CompileError::invalid(format!("{}/begin", planned.tag.pointer), message));
                }
            }
        }
        let mut handlers = vec![];
        for (trigger, tags) in names.into_iter().zip(by_trigger) {
            let handler = if tags.is_empty() { Expr::Never } else { self.choice_of(tags, &trigger, around) };
            handlers.push((trigger, handler));
        }
        Ok(handlers)
    }
}
