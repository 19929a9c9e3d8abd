//! Which tokens a structural tag uses as markers.

use super::Planner;
use crate::error::Result;
use crate::structural::format::{Begin, End, Format, Node, Tag, TokenRef};
use crate::structural::markers::Piece;
use crate::vocab::TokenKind;

impl<'a> Planner<'_, 'a> {
    /// Collects the texts of the added tokens that the tag uses as markers.
    pub(super) fn note_markers(&mut self, root: &Node<'a>) -> Result<()> {
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
                Format::Schema(schema) => strings.extend(schema.style.texts()),
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
                    if let Piece::Token(id) = piece {
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
