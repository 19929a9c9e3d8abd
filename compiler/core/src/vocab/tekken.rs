//! Mistral's tekken JSON: special tokens have the first `default_num_special_tokens` ids, ordinary tokens follow in order
//! of their rank, up to `default_vocab_size`; the file holds more ranks than a model has tokens.

use std::borrow::Cow;

use rustc_hash::FxHashMap;
use serde::Deserialize;

use super::error::VocabError;
use super::huggingface::json_error;
use super::tiktoken::ById;
use super::{base64, TokenKind, Vocabulary, MAX_TOKENS};

const FORMAT: &str = "tekken file";

/// Names of the first special tokens in files that list none (tokenizer versions up to 7).
const UNLISTED: [&str; 20] = [
    "<unk>",
    "<s>",
    "</s>",
    "[INST]",
    "[/INST]",
    "[AVAILABLE_TOOLS]",
    "[/AVAILABLE_TOOLS]",
    "[TOOL_RESULTS]",
    "[/TOOL_RESULTS]",
    "[TOOL_CALLS]",
    "[IMG]",
    "<pad>",
    "[IMG_BREAK]",
    "[IMG_END]",
    "[PREFIX]",
    "[MIDDLE]",
    "[SUFFIX]",
    "[SYSTEM_PROMPT]",
    "[/SYSTEM_PROMPT]",
    "[TOOL_CONTENT]",
];

#[derive(Deserialize)]
struct File<'a> {
    config: Config,
    #[serde(borrow)]
    vocab: Vec<Token<'a>>,
    #[serde(default)]
    special_tokens: Option<Vec<SpecialToken>>,
}

#[derive(Deserialize)]
struct Config {
    default_vocab_size: u64,
    default_num_special_tokens: u64,
}

#[derive(Deserialize)]
struct Token<'a> {
    rank: u64,
    /// Base64 has nothing to escape, but JSON may escape it all the same.
    #[serde(borrow)]
    token_bytes: Cow<'a, str>,
}

#[derive(Deserialize)]
struct SpecialToken {
    rank: u64,
    token_str: String,
}

impl Vocabulary {
    /// From the content of a tekken file.
    pub fn from_tekken(json: &[u8]) -> Result<Vocabulary, VocabError> {
        let file: File = serde_json::from_slice(json).map_err(|e| json_error(FORMAT, e))?;
        let Config { default_vocab_size: size, default_num_special_tokens: special } = file.config;
        let limit = MAX_TOKENS;
        if size > limit as u64 {
            return Err(VocabError::TooLarge { what: "default_vocab_size", size: size.min(1 << 31) as usize, limit });
        }
        let ordinary = size.checked_sub(special).ok_or_else(|| {
            VocabError::invalid(FORMAT, "/config/default_num_special_tokens", "more special tokens than tokens")
        })?;

        let mut tokens = ById::default();
        let mut added = Vec::new();
        let mut names: FxHashMap<u64, String> = FxHashMap::default();
        match file.special_tokens {
            Some(listed) => {
                for (i, token) in listed.into_iter().enumerate() {
                    let invalid = |m| VocabError::invalid(FORMAT, format!("/special_tokens/{i}/rank"), m);
                    if token.rank >= special {
                        return Err(invalid("lies beyond the special tokens"));
                    }
                    if names.insert(token.rank, token.token_str).is_some() {
                        return Err(invalid("is used twice"));
                    }
                }
            }
            None => names.extend((0..).zip(UNLISTED.map(String::from)).take(special as usize)),
        }
        for id in 0..special {
            let name = names.remove(&id).unwrap_or_else(|| format!("<SPECIAL_{id}>"));
            let start = tokens.blob.len();
            tokens.blob.extend_from_slice(name.as_bytes());
            tokens.place(id, start, TokenKind::Special)?;
            added.push((name, id as u32));
        }
        for (i, token) in file.vocab.iter().enumerate() {
            if token.rank >= ordinary {
                continue;
            }
            let start = tokens.blob.len();
            base64::decode(token.token_bytes.as_bytes(), &mut tokens.blob).ok_or_else(|| {
                VocabError::invalid(FORMAT, format!("/vocab/{i}/token_bytes"), "the token is not base64")
            })?;
            tokens.place(token.rank + special, start, TokenKind::Text)?;
        }
        tokens.finish(added)
    }
}
