//! The identity of a source outside of the process: kind, options, text.

use gramary_compiler::unit::Digest;
use gramary_compiler::{FORMAT_VERSION, LOWERING_VERSION};

use crate::engine::{SchemaOptions, Source};

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct EbnfOptions {
    root: String,
}

impl Source {
    pub fn kind(&self) -> &'static str {
        match self {
            Source::Schema(_) => "json_schema",
            Source::Regex => "regex",
            Source::Styled(_) => "styled_schema",
            Source::Ebnf { .. } => "ebnf",
            Source::Choice => "choice",
            Source::Ir => "ir",
        }
    }

    /// The options as canonical JSON.
    pub fn options(&self) -> String {
        match self {
            // Booleans and numbers under fixed names: writing them cannot fail.
            Source::Schema(options) => serde_json::to_string(options).unwrap_or_default(),
            Source::Styled(options) => serde_json::to_string(options).unwrap_or_default(),
            Source::Ebnf { root } => serde_json::json!({ "root": &**root }).to_string(),
            Source::Regex | Source::Choice | Source::Ir => "{}".to_owned(),
        }
    }

    /// The inverse of [`Source::kind`] and [`Source::options`].
    pub fn from_parts(kind: &str, options: &str) -> Result<Source, String> {
        let none = |source: Source| match options {
            "{}" => Ok(source),
            _ => Err(format!("sources of kind {kind} have no options")),
        };
        match kind {
            "json_schema" => serde_json::from_str::<SchemaOptions>(options)
                .map(Source::Schema)
                .map_err(|e| format!("the options of the source: {e}")),
            "regex" => none(Source::Regex),
            "styled_schema" => {
                serde_json::from_str(options).map(Source::Styled).map_err(|e| format!("the options of the source: {e}"))
            }
            "ebnf" => match serde_json::from_str::<EbnfOptions>(options) {
                Ok(o) => Ok(Source::Ebnf { root: o.root.into() }),
                Err(e) => Err(format!("the options of the source: {e}")),
            },
            "choice" => none(Source::Choice),
            "ir" => none(Source::Ir),
            _ => Err(format!("there is no kind of source called {kind:?}")),
        }
    }

    /// What a manifest of this source is stored under. Tokenizers play no part: units do not depend on them.
    pub fn key(&self, text: &[u8]) -> Digest {
        self.keys().of(text)
    }

    /// The keys of many texts of this source's kind and options.
    pub fn keys(&self) -> Keys {
        let mut hasher = blake3::Hasher::new();
        hasher.update(b"source");
        hasher.update(&FORMAT_VERSION.to_le_bytes());
        hasher.update(&LOWERING_VERSION.to_le_bytes());
        let mut keys = Keys(hasher);
        keys.part(self.kind().as_bytes());
        keys.part(self.options().as_bytes());
        keys
    }
}

/// Hashes what texts have in common once; see [`Source::keys`].
#[derive(Clone)]
pub struct Keys(blake3::Hasher);

impl Keys {
    fn part(&mut self, part: &[u8]) {
        self.0.update(&(part.len() as u64).to_le_bytes());
        self.0.update(part);
    }

    /// [`Source::key`].
    pub fn of(&self, text: &[u8]) -> Digest {
        let mut keys = self.clone();
        keys.part(text);
        *keys.0.finalize().as_bytes()
    }
}
