//! The vocabulary: what a tokenizer's tokens are as bytes, and the trie over them.
//!
//! A [`Vocabulary`] is made once per tokenizer, from one of the usual files (`huggingface`, `tiktoken`, `tekken`) or from
//! plain bytes. Its memory is one flat buffer ([`layout`]) that is written to disk as it is and mapped back: opening a
//! prepared vocabulary decodes nothing.
//!
//! Its *fingerprint* is BLAKE3 over id -> (bytes, kind) and nothing else. Stop tokens and the padded size of a model's
//! logits belong to the matcher; two models that share a tokenizer share what was computed for it.

use std::path::Path;

mod base64;
mod decoding;
mod error;
mod huggingface;
mod layout;
mod tekken;
mod tiktoken;
mod trie;

pub use error::VocabError;
pub use trie::{ByteSet, Children, Trie, MAX_TOKEN_BYTES};

use layout::{Buffer, Section};
pub(crate) use trie::TrieArrays;

/// Most token ids a vocabulary may have. The largest in use are a quarter of it; it bounds what a small file with a large
/// id can make us allocate.
pub const MAX_TOKENS: usize = 1 << 22;

/// What a token id stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum TokenKind {
    /// An ordinary token: its bytes.
    Text = 0,
    /// A token added to the tokenizer and not marked special. It is text, too.
    Added = 1,
    /// A control token. Its bytes are its name; it never matches them in the output.
    Special = 2,
    /// No token has this id.
    Unused = 3,
}

impl TokenKind {
    /// Whether the token stands for its bytes in the output.
    #[inline]
    pub fn is_text(self) -> bool {
        matches!(self, TokenKind::Text | TokenKind::Added)
    }

    pub fn name(self) -> &'static str {
        match self {
            TokenKind::Text => "text",
            TokenKind::Added => "added",
            TokenKind::Special => "special",
            TokenKind::Unused => "unused",
        }
    }

    fn from_u8(kind: u8) -> TokenKind {
        match kind {
            0 => TokenKind::Text,
            1 => TokenKind::Added,
            2 => TokenKind::Special,
            _ => TokenKind::Unused,
        }
    }
}

/// One token, as the readers hand it over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenSpec {
    pub bytes: Vec<u8>,
    pub kind: TokenKind,
}

impl TokenSpec {
    pub fn text(bytes: impl Into<Vec<u8>>) -> TokenSpec {
        TokenSpec { bytes: bytes.into(), kind: TokenKind::Text }
    }

    pub fn added(text: impl Into<Vec<u8>>) -> TokenSpec {
        TokenSpec { bytes: text.into(), kind: TokenKind::Added }
    }

    pub fn special(name: impl Into<Vec<u8>>) -> TokenSpec {
        TokenSpec { bytes: name.into(), kind: TokenKind::Special }
    }

    pub fn unused() -> TokenSpec {
        TokenSpec { bytes: Vec::new(), kind: TokenKind::Unused }
    }
}

/// A tokenizer prepared for masking: id -> bytes and kind, and the trie. Immutable.
#[derive(Debug)]
pub struct Vocabulary {
    buffer: Buffer,
}

impl Vocabulary {
    /// Build from tokens in id order. `added`: text and id of every added token, special or not.
    ///
    /// A text token without bytes can never be told from nothing, so it becomes [`TokenKind::Unused`].
    pub fn from_tokens(tokens: Vec<TokenSpec>, added: Vec<(String, u32)>) -> Result<Vocabulary, VocabError> {
        let mut draft = Draft::with_capacity(tokens.len(), tokens.iter().map(|t| t.bytes.len()).sum());
        for token in &tokens {
            draft.push(&token.bytes, token.kind);
        }
        draft.finish(added)
    }

    /// Build from bytes in id order (`None`: a hole), and the ids that are special or added. Added and special tokens go by
    /// their bytes where those are UTF-8.
    pub fn from_pieces<'a>(
        pieces: impl IntoIterator<Item = Option<&'a [u8]>>,
        special: &[u32],
        added: &[u32],
    ) -> Result<Vocabulary, VocabError> {
        let mut tokens: Vec<TokenSpec> =
            pieces.into_iter().map(|piece| piece.map_or_else(TokenSpec::unused, TokenSpec::text)).collect();
        let mut names = Vec::new();
        for (ids, kind) in [(added, TokenKind::Added), (special, TokenKind::Special)] {
            for &id in ids {
                let Some(token) = tokens.get_mut(id as usize) else {
                    let problem = "lies beyond the vocabulary";
                    return Err(VocabError::TokenId { token: id.into(), text: String::new(), problem });
                };
                token.kind = kind;
                names.extend(std::str::from_utf8(&token.bytes).map(|name| (name.to_owned(), id)));
            }
        }
        Vocabulary::from_tokens(tokens, names)
    }

    /// Map a vocabulary written by [`Vocabulary::save`]. Everything in the file is checked, once, here.
    pub fn open(path: impl AsRef<Path>) -> Result<Vocabulary, VocabError> {
        Ok(Vocabulary { buffer: Buffer::open(path.as_ref())? })
    }

    /// The same from bytes in memory, which are copied.
    pub fn from_bytes(bytes: &[u8]) -> Result<Vocabulary, VocabError> {
        Ok(Vocabulary { buffer: Buffer::from_bytes(bytes)? })
    }

    /// The same from bytes that a stranger sent: it is prepared again from its tokens, and must come out as it was. So the
    /// fingerprint is that of the content, and the trie is the one that belongs to it.
    pub fn from_stranger(bytes: &[u8]) -> Result<Vocabulary, VocabError> {
        let given = Vocabulary::from_bytes(bytes)?;
        let ids = 0..given.len() as u32;
        let mut draft = Draft::with_capacity(given.len(), ids.clone().map(|t| given.bytes(t).len()).sum());
        ids.for_each(|t| draft.push(given.bytes(t), given.kind(t)));
        let again = draft.finish(given.special_tokens().map(|(text, id)| (text.to_owned(), id)).collect())?;
        if again.as_bytes() == given.as_bytes() {
            Ok(again)
        } else {
            Err(VocabError::Damaged { what: "it is not what its tokens make" })
        }
    }

    /// Write to `path`; at any moment there is the old file or the whole new one.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<(), VocabError> {
        self.buffer.save(path.as_ref())
    }

    /// The stored form: what [`Vocabulary::save`] writes.
    pub fn as_bytes(&self) -> &[u8] {
        self.buffer.bytes()
    }

    /// Number of token ids, holes included.
    #[inline]
    pub fn len(&self) -> usize {
        self.buffer.section(Section::TokenKinds).len()
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The token's bytes: text, or the name of a special token. Empty for holes and ids beyond the vocabulary.
    #[inline]
    pub fn bytes(&self, token: u32) -> &[u8] {
        let offsets: &[u32] = self.buffer.slice(Section::TokenOffsets);
        let token = token as usize;
        match (offsets.get(token), offsets.get(token + 1)) {
            (Some(&start), Some(&end)) => &self.buffer.section(Section::TokenBytes)[start as usize..end as usize],
            _ => &[],
        }
    }

    /// The token's kind; ids beyond the vocabulary (padding of the model's logits) are unused.
    #[inline]
    pub fn kind(&self, token: u32) -> TokenKind {
        self.buffer
            .section(Section::TokenKinds)
            .get(token as usize)
            .map_or(TokenKind::Unused, |&k| TokenKind::from_u8(k))
    }

    /// The bytes the token puts into the output: `None` for special tokens, holes and ids beyond the vocabulary.
    #[inline]
    pub fn text(&self, token: u32) -> Option<&[u8]> {
        self.kind(token).is_text().then(|| self.bytes(token))
    }

    /// Bytes of the longest token, names of special tokens included; the trie is at most this deep.
    #[inline]
    pub fn max_token_len(&self) -> usize {
        self.buffer.max_token_len as usize
    }

    /// BLAKE3 over id -> (bytes, kind).
    #[inline]
    pub fn fingerprint(&self) -> [u8; 32] {
        self.buffer.fingerprint
    }

    /// The trie over all text tokens. Cheap to ask for.
    #[inline]
    pub fn trie(&self) -> Trie<'_> {
        self.buffer.trie()
    }

    /// Text and id of every added token, special or not, sorted by text.
    pub fn special_tokens(&self) -> impl ExactSizeIterator<Item = (&str, u32)> {
        let ids: &[u32] = self.buffer.slice(Section::AddedIds);
        ids.iter().enumerate().map(|(i, &id)| (self.added_text(i), id))
    }

    /// The id of the added token with this text, special or not.
    pub fn special_token(&self, text: &str) -> Option<u32> {
        let ids: &[u32] = self.buffer.slice(Section::AddedIds);
        let (mut low, mut high) = (0, ids.len());
        while low < high {
            let middle = low + (high - low) / 2;
            match self.added_text(middle).cmp(text) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
                std::cmp::Ordering::Equal => return Some(ids[middle]),
            }
        }
        None
    }

    fn added_text(&self, i: usize) -> &str {
        let offsets: &[u32] = self.buffer.slice(Section::AddedOffsets);
        let text = &self.buffer.section(Section::AddedText)[offsets[i] as usize..offsets[i + 1] as usize];
        std::str::from_utf8(text).unwrap_or_default()
    }
}

/// A vocabulary being put together, token by token in id order, already in its flat form.
#[derive(Debug, Default)]
struct Draft {
    offsets: Vec<u32>,
    blob: Vec<u8>,
    kinds: Vec<u8>,
}

impl Draft {
    fn with_capacity(tokens: usize, bytes: usize) -> Draft {
        let mut offsets = Vec::with_capacity(tokens + 1);
        offsets.push(0);
        Draft { offsets, blob: Vec::with_capacity(bytes), kinds: Vec::with_capacity(tokens) }
    }

    fn push(&mut self, bytes: &[u8], kind: TokenKind) {
        let kind = if kind.is_text() && bytes.is_empty() { TokenKind::Unused } else { kind };
        if kind != TokenKind::Unused {
            self.blob.extend_from_slice(bytes);
        }
        // Offsets beyond u32 wrap here and are refused by `finish`, which looks at the length of the blob.
        self.offsets.push(self.blob.len() as u32);
        self.kinds.push(kind as u8);
    }

    fn finish(self, mut added: Vec<(String, u32)>) -> Result<Vocabulary, VocabError> {
        let limit = u32::MAX as usize / 2;
        let (bytes, tokens) = (self.blob.len(), self.kinds.len());
        for (what, size, limit) in [("the number of bytes", bytes, limit), ("the number of tokens", tokens, MAX_TOKENS)]
        {
            if size > limit {
                return Err(VocabError::TooLarge { what, size, limit });
            }
        }
        let token = |i: usize| &self.blob[self.offsets[i] as usize..self.offsets[i + 1] as usize];
        let mut text: Vec<(&[u8], u32)> = Vec::with_capacity(self.kinds.len());
        let mut max_token_len = 0;
        for (i, &kind) in self.kinds.iter().enumerate() {
            max_token_len = max_token_len.max(token(i).len());
            if TokenKind::from_u8(kind).is_text() {
                text.push((token(i), i as u32));
            }
        }
        let trie = TrieArrays::build(&text)?;

        added.sort_unstable();
        added.dedup();
        let mut added_offsets = vec![0u32];
        let mut added_text = String::new();
        let mut added_ids: Vec<u32> = Vec::with_capacity(added.len());
        for (text, id) in added {
            let problem = |problem| VocabError::TokenId { token: id.into(), text: text.clone(), problem };
            if id as usize >= self.kinds.len() {
                return Err(problem("lies beyond the vocabulary"));
            }
            let twice = !added_ids.is_empty() && added_text[added_offsets[added_ids.len() - 1] as usize..] == text;
            if twice {
                return Err(problem("has the text of another added token"));
            }
            added_text.push_str(&text);
            added_offsets.push(added_text.len() as u32);
            added_ids.push(id);
        }
        if added_text.len() > limit {
            return Err(VocabError::TooLarge { what: "the text of added tokens", size: added_text.len(), limit });
        }

        let fingerprint = self.fingerprint();
        let sections = [
            bytemuck::cast_slice(&self.offsets),
            &self.blob,
            &self.kinds,
            bytemuck::cast_slice(&added_ids),
            bytemuck::cast_slice(&added_offsets),
            added_text.as_bytes(),
            &trie.byte,
            bytemuck::cast_slice(&trie.depth),
            bytemuck::cast_slice(&trie.end),
            bytemuck::cast_slice(&trie.lo),
            bytemuck::cast_slice(&trie.order),
            bytemuck::cast_slice(&trie.height),
            bytemuck::cast_slice(&trie.sub),
            &trie.utf8,
            bytemuck::cast_slice(&trie.sets),
        ];
        Ok(Vocabulary { buffer: Buffer::from_sections(sections, fingerprint, max_token_len as u32) })
    }

    /// Hashed flat, which is fast and says the same as a list of records would: the number of tokens and their offsets
    /// tell where each one's bytes are.
    fn fingerprint(&self) -> [u8; 32] {
        let mut hash = blake3::Hasher::new_derive_key("gramary tokenizer fingerprint v1");
        hash.update(&(self.kinds.len() as u64).to_le_bytes());
        hash.update(&self.kinds);
        hash.update(bytemuck::cast_slice(&self.offsets));
        hash.update(&self.blob);
        *hash.finalize().as_bytes()
    }
}

#[cfg(test)]
mod tests;
