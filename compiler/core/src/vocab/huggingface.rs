//! Hugging Face `tokenizer.json`.
//!
//! Of the whole file only the vocabulary, the added tokens and what tells how pieces are spelt are kept; merges, which are
//! most of it, are skipped by the parser. Strings without escapes are borrowed from the file.

use std::borrow::Cow;
use std::fmt;

use serde::de::{IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::decoding::Decoding;
use super::error::VocabError;
use super::{Draft, TokenKind, Vocabulary, MAX_TOKENS};

const FORMAT: &str = "tokenizer.json";

#[derive(Deserialize)]
struct File<'a> {
    #[serde(borrow)]
    model: Model<'a>,
    #[serde(borrow, default)]
    added_tokens: Option<Vec<AddedToken<'a>>>,
    #[serde(default)]
    decoder: Option<Value>,
    #[serde(default)]
    pre_tokenizer: Option<Value>,
    #[serde(default)]
    normalizer: Option<Value>,
}

#[derive(Deserialize)]
struct Model<'a> {
    #[serde(borrow)]
    vocab: Pieces<'a>,
}

#[derive(Deserialize)]
struct AddedToken<'a> {
    id: u32,
    #[serde(borrow)]
    content: Text<'a>,
    #[serde(default)]
    special: bool,
}

/// A string, borrowed where it has no escapes.
struct Text<'a>(Cow<'a, str>);

/// The pieces with their ids: an object of ids (BPE, WordPiece, WordLevel) or a list of pairs of piece and score (Unigram).
struct Pieces<'a>(Vec<(Text<'a>, u32)>);

impl Vocabulary {
    /// From the content of a `tokenizer.json`.
    ///
    /// A token's bytes are what the tokenizer's decoder makes of it inside a text; that goes for added tokens as well,
    /// as it does in the library. Special tokens keep their name. Ids that nothing has are holes.
    pub fn from_huggingface(json: &[u8]) -> Result<Vocabulary, VocabError> {
        let file: File = serde_json::from_slice(json).map_err(|e| json_error(FORMAT, e))?;
        let pieces = file.model.vocab.0;
        let added = file.added_tokens.unwrap_or_default();
        let decoding = Decoding::detect(
            file.decoder.as_ref(),
            file.pre_tokenizer.as_ref(),
            file.normalizer.as_ref(),
            pieces.iter().map(|(piece, _)| piece.0.as_ref()),
        )?;

        let last = pieces.iter().map(|p| p.1).chain(added.iter().map(|a| a.id)).max();
        let size = last.map_or(0, |id| id as usize + 1);
        if size > MAX_TOKENS {
            return Err(VocabError::TooLarge { what: "the highest token id", size: size - 1, limit: MAX_TOKENS - 1 });
        }
        // By id: a piece, an added token (which takes precedence: it is how the id is decoded), or nothing.
        let mut slots = vec![Slot::Hole; size];
        for (i, (piece, id)) in pieces.iter().enumerate() {
            let slot = &mut slots[*id as usize];
            if *slot != Slot::Hole {
                return Err(used_twice(*id, &piece.0));
            }
            *slot = Slot::Piece(i as u32);
        }
        for (i, token) in added.iter().enumerate() {
            let slot = &mut slots[token.id as usize];
            match *slot {
                Slot::Added(other) if added[other as usize].content.0 != token.content.0 => {
                    return Err(used_twice(token.id, &token.content.0));
                }
                _ => *slot = Slot::Added(i as u32),
            }
        }

        let mut draft = Draft::with_capacity(size, pieces.iter().map(|(piece, _)| piece.0.len()).sum());
        let mut bytes = Vec::new();
        for (id, slot) in slots.into_iter().enumerate() {
            bytes.clear();
            let mut decode = |piece: &str| {
                let problem = "becomes much longer by decoding";
                let error = || VocabError::TokenId { token: id as u64, text: piece.into(), problem };
                decoding.decode(piece, &mut bytes).then_some(()).ok_or_else(error)
            };
            let kind = match slot {
                Slot::Hole => TokenKind::Unused,
                Slot::Piece(i) => {
                    decode(&pieces[i as usize].0 .0)?;
                    TokenKind::Text
                }
                Slot::Added(i) => {
                    let token = &added[i as usize];
                    if token.special {
                        bytes.extend_from_slice(token.content.0.as_bytes());
                        TokenKind::Special
                    } else {
                        decode(&token.content.0)?;
                        TokenKind::Added
                    }
                }
            };
            draft.push(&bytes, kind);
        }
        draft.finish(added.into_iter().map(|token| (token.content.0.into_owned(), token.id)).collect())
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Slot {
    Hole,
    Piece(u32),
    Added(u32),
}

fn used_twice(id: u32, text: &str) -> VocabError {
    VocabError::TokenId { token: id.into(), text: text.into(), problem: "is used twice" }
}

/// A parser's error with its place apart from its message.
pub(super) fn json_error(format: &'static str, error: serde_json::Error) -> VocabError {
    let place = format!("line {} column {}", error.line(), error.column());
    let message = error.to_string();
    let message = message.strip_suffix(&format!(" at {place}")).unwrap_or(&message);
    VocabError::invalid(format, place, message)
}

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Borrowing;
        impl<'de> Visitor<'de> for Borrowing {
            type Value = Text<'de>;

            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Text(Cow::Borrowed(text)))
            }

            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Text(Cow::Owned(text.to_owned())))
            }
        }
        deserializer.deserialize_str(Borrowing)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Pieces<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = Pieces<'de>;

            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("an object of token ids or a list of pairs of token and score")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut pieces = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    pieces.push(entry);
                }
                Ok(Pieces(pieces))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
                let mut pieces = Vec::new();
                while let Some((piece, _)) = list.next_element::<(Text, IgnoredAny)>()? {
                    pieces.push((piece, pieces.len() as u32));
                }
                Ok(Pieces(pieces))
            }
        }
        deserializer.deserialize_any(Either)
    }
}
