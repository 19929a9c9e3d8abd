//! Texts that are tokens: special tokens inside the strings of a structural tag.

use std::sync::Arc;

use parking_lot::Mutex;
use rustc_hash::FxHashMap;

use super::spelled::tokens_without;
use crate::ir::{token_in_pattern, TokenRuns};
use crate::unit::{has_byte, ByteSet};
use crate::vocab::{TokenKind, Vocabulary};

/// The special tokens of a vocabulary by their text.
///
/// A special token never matches bytes, and a tokenizer cuts a text at such tokens before anything else. So where a string
/// of a tag holds the text of one, the token is meant.
#[derive(Debug)]
pub struct Markers {
    by_text: FxHashMap<Box<[u8]>, u32>,
    /// Bytes with which some of them begin.
    first: ByteSet,
    /// Lengths that occur, by first byte, longest first.
    lengths: Box<[Vec<usize>]>,
    /// Tokens that spell out none of some texts, by the texts: they take a walk over the vocabulary to find.
    unspelled: Mutex<FxHashMap<Vec<Vec<u8>>, Arc<TokenRuns>>>,
}

/// Sets of markers remembered; a server sees one or two.
const MOST_UNSPELLED: usize = 32;

/// A stretch of a string.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece<'t> {
    Bytes(&'t [u8]),
    Token(u32),
}

impl Markers {
    pub fn of(vocab: &Vocabulary) -> Markers {
        let lengths = vec![vec![]; 256].into();
        let mut m =
            Markers { by_text: FxHashMap::default(), first: ByteSet::default(), lengths, unspelled: Mutex::default() };
        for (text, id) in vocab.special_tokens() {
            if vocab.kind(id) != TokenKind::Special || text.is_empty() {
                continue;
            }
            m.by_text.insert(text.as_bytes().into(), id);
            let first = text.as_bytes()[0] as usize;
            m.first[first / 64] |= 1 << (first % 64);
            m.lengths[first].push(text.len());
        }
        for lengths in m.lengths.iter_mut() {
            lengths.sort_unstable_by(|a, b| b.cmp(a));
            lengths.dedup();
        }
        m
    }

    /// A string cut at special tokens, the longest first.
    pub fn cut<'t>(&self, text: &'t str) -> impl Iterator<Item = Piece<'t>> + use<'_, 't> {
        let bytes = text.as_bytes();
        let mut from = 0;
        // A token that was found behind the piece before.
        let mut found = None;
        std::iter::from_fn(move || {
            if let Some((n, id)) = found.take() {
                from += n;
                return Some(Piece::Token(id));
            }
            let (at, next) = (from..bytes.len())
                .find_map(|at| Some((at, Some(self.at(&bytes[at..])?))))
                .unwrap_or((bytes.len(), None));
            let piece = &bytes[from..at];
            from = at;
            match (piece, next) {
                ([], Some((n, id))) => {
                    from += n;
                    Some(Piece::Token(id))
                }
                ([], None) => None,
                _ => {
                    found = next;
                    Some(Piece::Bytes(piece))
                }
            }
        })
    }

    /// The longest special token with which `bytes` begin, and its length.
    fn at(&self, bytes: &[u8]) -> Option<(usize, u32)> {
        let first = *bytes.first().filter(|&&b| has_byte(&self.first, b))?;
        self.lengths[first as usize].iter().find_map(|&n| Some((n, *self.by_text.get(bytes.get(..n)?)?)))
    }

    /// Any number of tokens that do not spell out one of `texts`.
    pub fn unspelled(&self, texts: &[Vec<u8>], vocab: &Vocabulary) -> Arc<TokenRuns> {
        if let Some(known) = self.unspelled.lock().get(texts) {
            return known.clone();
        }
        let found = Arc::new(tokens_without(texts, vocab));
        let mut known = self.unspelled.lock();
        if known.len() >= MOST_UNSPELLED {
            known.clear();
        }
        known.insert(texts.to_vec(), found.clone());
        found
    }

    /// A string as a pattern of free text; see [`DispatchRule`](crate::ir::DispatchRule).
    pub fn pattern(&self, text: &str) -> Vec<u8> {
        let mut pattern = Vec::with_capacity(text.len());
        for piece in self.cut(text) {
            match piece {
                Piece::Bytes(b) => pattern.extend(b),
                Piece::Token(id) => pattern.extend(token_in_pattern(id)),
            }
        }
        pattern
    }
}

/// The token with this text: an added token, or an ordinary one (the one with the lowest id).
pub fn token_of_text(vocab: &Vocabulary, text: &str) -> Option<u32> {
    if let Some(id) = vocab.special_token(text) {
        return Some(id);
    }
    let node = vocab.trie().find(text.as_bytes())?;
    vocab.trie().tokens_at(node).iter().min().copied()
}
