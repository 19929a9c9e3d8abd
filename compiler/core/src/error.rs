//! Errors of compiling. Each names a place and, in its text, a remedy.

use thiserror::Error;

/// Where compiling failed, and why.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum CompileError {
    /// The source is not well-formed: not JSON, not a schema, not a pattern.
    #[error("{message} (at {})", show(pointer))]
    Invalid { pointer: String, message: String },
    /// The source is well-formed and asks for something that cannot be enforced.
    #[error("{keyword} at {} is not supported: {reason}. {remedy}", show(pointer))]
    Unsupported { pointer: String, keyword: String, reason: String, remedy: String },
    /// Nothing can match.
    #[error("nothing can match {}: {reason}", show(pointer))]
    Unsatisfiable { pointer: String, reason: String },
    /// A limit was hit.
    #[error(
        "{what} exceeds its limit of {limit} (at {}); raise it with Limits({name}=...) if the source is trusted",
        show(pointer)
    )]
    Limit { pointer: String, name: &'static str, what: String, limit: u64 },
    /// The caller withdrew the request.
    #[error("compiling was cancelled")]
    Cancelled,
}

fn show(pointer: &str) -> &str {
    if pointer.is_empty() {
        "the top level"
    } else {
        pointer
    }
}

pub type Result<T> = std::result::Result<T, CompileError>;

impl CompileError {
    pub fn invalid(pointer: impl Into<String>, message: impl Into<String>) -> Self {
        CompileError::Invalid { pointer: pointer.into(), message: message.into() }
    }

    pub fn unsupported(
        pointer: impl Into<String>,
        keyword: impl Into<String>,
        reason: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        CompileError::Unsupported {
            pointer: pointer.into(),
            keyword: keyword.into(),
            reason: reason.into(),
            remedy: remedy.into(),
        }
    }

    pub fn unsatisfiable(pointer: impl Into<String>, reason: impl Into<String>) -> Self {
        CompileError::Unsatisfiable { pointer: pointer.into(), reason: reason.into() }
    }

    pub fn limit(name: &'static str, what: impl Into<String>, limit: u64) -> Self {
        CompileError::Limit { pointer: String::new(), name, what: what.into(), limit }
    }

    /// The same error, its pointer changed.
    pub fn replaced(mut self, change: impl FnOnce(&str) -> String) -> Self {
        match &mut self {
            CompileError::Invalid { pointer, .. }
            | CompileError::Unsupported { pointer, .. }
            | CompileError::Unsatisfiable { pointer, .. }
            | CompileError::Limit { pointer, .. } => *pointer = change(pointer),
            CompileError::Cancelled => {}
        }
        self
    }

    /// The same error, placed: `prefix` goes before its pointer.
    pub fn within(mut self, prefix: &str) -> Self {
        match &mut self {
            CompileError::Invalid { pointer, .. }
            | CompileError::Unsupported { pointer, .. }
            | CompileError::Unsatisfiable { pointer, .. }
            | CompileError::Limit { pointer, .. } => pointer.insert_str(0, prefix),
            CompileError::Cancelled => {}
        }
        self
    }
}
