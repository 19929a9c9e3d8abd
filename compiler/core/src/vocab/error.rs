//! What can be wrong with a tokenizer or a stored vocabulary.

use thiserror::Error;

/// Why a vocabulary could not be built or opened. Each names the place and, where there is one, the remedy.
#[derive(Debug, Error)]
pub enum VocabError {
    /// The source is not what its format says it is.
    #[error("not a valid {format}: {message} (at {place})")]
    Invalid { format: &'static str, place: String, message: String },
    /// The source is well-formed, but its tokens cannot be told as bytes.
    #[error("{what} at {place} is not supported. {remedy}")]
    Unsupported { place: String, what: String, remedy: &'static str },
    /// A token is longer than the trie can hold.
    #[error("token {token} has {bytes} bytes, more than the {limit} that are supported; pass it as a hole (None)")]
    TokenTooLong { token: u32, bytes: usize, limit: usize },
    /// The vocabulary is larger than ids or offsets can express.
    #[error("the vocabulary is too large: {what} is {size}, the most is {limit}")]
    TooLarge { what: &'static str, size: usize, limit: usize },
    /// A token id is used twice, or lies beyond the vocabulary.
    #[error("token id {token} ({text:?}) {problem}")]
    TokenId { token: u64, text: String, problem: &'static str },
    /// A prepared vocabulary on disk is damaged, truncated or of another kind.
    #[error("the prepared vocabulary is damaged ({what}); delete it and prepare it again from the tokenizer")]
    Damaged { what: &'static str },
    /// A prepared vocabulary was written by another version.
    #[error(
        "the prepared vocabulary has format version {found}, this program reads {expected}; prepare it again from the \
         tokenizer"
    )]
    Version { found: u32, expected: u32 },
    /// The operating system refused.
    #[error("cannot {action} {path}: {source}")]
    Io { action: &'static str, path: String, source: std::io::Error },
}

impl VocabError {
    pub(super) fn invalid(format: &'static str, place: impl Into<String>, message: impl Into<String>) -> Self {
        VocabError::Invalid { format, place: place.into(), message: message.into() }
    }

    pub(super) fn io(action: &'static str, path: &std::path::Path, source: std::io::Error) -> Self {
        VocabError::Io { action, path: path.display().to_string(), source }
    }
}
