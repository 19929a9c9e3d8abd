//! tiktoken rank files: a line per token, its bytes in base64 and its rank, which is its id. Special tokens are not in the
//! file; whoever ships it lists them elsewhere.

use super::error::VocabError;
use super::{base64, Draft, TokenKind, Vocabulary, MAX_TOKENS};

const FORMAT: &str = "tiktoken rank file";

impl Vocabulary {
    /// From the content of a rank file, and the special tokens with their ids.
    pub fn from_tiktoken(
        ranks: &[u8],
        special_tokens: impl IntoIterator<Item = (String, u32)>,
    ) -> Result<Vocabulary, VocabError> {
        let mut tokens = ById::default();
        for (i, line) in ranks.split(|&b| b == b'\n').enumerate() {
            let line = line.trim_ascii();
            if line.is_empty() {
                continue;
            }
            let invalid = |message| VocabError::invalid(FORMAT, format!("line {}", i + 1), message);
            let space = memchr::memchr(b' ', line).ok_or_else(|| invalid("no space between token and rank"))?;
            let rank = parse_rank(&line[space + 1..]).ok_or_else(|| invalid("the rank is not a number"))?;
            let start = tokens.blob.len();
            base64::decode(&line[..space], &mut tokens.blob).ok_or_else(|| invalid("the token is not base64"))?;
            tokens.place(rank, start, TokenKind::Text)?;
        }
        let special_tokens: Vec<(String, u32)> = special_tokens.into_iter().collect();
        for (name, id) in &special_tokens {
            let start = tokens.blob.len();
            tokens.blob.extend_from_slice(name.as_bytes());
            tokens.place((*id).into(), start, TokenKind::Special)?;
        }
        tokens.finish(special_tokens)
    }
}

fn parse_rank(digits: &[u8]) -> Option<u64> {
    std::str::from_utf8(digits).ok()?.trim().parse().ok()
}

/// Tokens that come in any order, to be put in order of their ids.
#[derive(Default)]
pub(super) struct ById {
    /// Bytes of all tokens, in order of arrival.
    pub blob: Vec<u8>,
    /// By id: where its bytes are, and its kind.
    slots: Vec<Option<(usize, usize, TokenKind)>>,
}

impl ById {
    /// The bytes from `start` on are token `id`.
    pub fn place(&mut self, id: u64, start: usize, kind: TokenKind) -> Result<(), VocabError> {
        if id >= MAX_TOKENS as u64 {
            let size = usize::try_from(id).unwrap_or(usize::MAX);
            return Err(VocabError::TooLarge { what: "the highest token id", size, limit: MAX_TOKENS - 1 });
        }
        let index = id as usize;
        if index >= self.slots.len() {
            self.slots.resize(index + 1, None);
        }
        if self.slots[index].is_some() {
            let text = String::from_utf8_lossy(&self.blob[start..]).into_owned();
            return Err(VocabError::TokenId { token: id, text, problem: "is used twice" });
        }
        self.slots[index] = Some((start, self.blob.len(), kind));
        Ok(())
    }

    pub fn finish(self, added: Vec<(String, u32)>) -> Result<Vocabulary, VocabError> {
        let mut draft = Draft::with_capacity(self.slots.len(), self.blob.len());
        for slot in self.slots {
            match slot {
                Some((start, end, kind)) => draft.push(&self.blob[start..end], kind),
                None => draft.push(&[], TokenKind::Unused),
            }
        }
        draft.finish(added)
    }
}
