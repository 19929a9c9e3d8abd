//! Kernel errors as the exceptions of `gramary.compiler.errors`.

use gramary_compiler::vocab::VocabError;
use gramary_compiler::CompileError;
use gramary_runtime::tagging::ToolError;
use gramary_runtime::MatcherError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// Which class malformed sources raise.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    Schema,
    Pattern,
    Grammar,
}

fn raise(py: Python<'_>, class: &str, message: String, attributes: Bound<'_, PyDict>) -> PyErr {
    match instance(py, class, message, attributes) {
        Ok(value) => PyErr::from_value(value),
        Err(e) => e,
    }
}

fn instance<'py>(
    py: Python<'py>,
    class: &str,
    message: String,
    attributes: Bound<'py, PyDict>,
) -> PyResult<Bound<'py, PyAny>> {
    py.import("gramary.compiler.errors")?.getattr(class)?.call((message,), Some(&attributes))
}

fn compile_instance<'py>(py: Python<'py>, error: &CompileError, origin: Origin) -> PyResult<Bound<'py, PyAny>> {
    let d = PyDict::new(py);
    let class = match error {
        CompileError::Invalid { pointer, .. } => {
            d.set_item("pointer", pointer)?;
            match origin {
                Origin::Schema => "InvalidSchema",
                Origin::Pattern => "InvalidPattern",
                Origin::Grammar => "InvalidGrammar",
            }
        }
        CompileError::Unsupported { pointer, keyword, reason, remedy } => {
            d.set_item("pointer", pointer)?;
            d.set_item("keyword", keyword)?;
            d.set_item("reason", reason)?;
            d.set_item("remedy", remedy)?;
            "UnsupportedSchema"
        }
        CompileError::Unsatisfiable { pointer, reason } => {
            d.set_item("pointer", pointer)?;
            d.set_item("reason", reason)?;
            "UnsatisfiableSchema"
        }
        CompileError::Limit { pointer, name, limit, .. } => {
            d.set_item("pointer", pointer)?;
            d.set_item("limit", name)?;
            d.set_item("value", *limit as f64)?;
            "LimitExceeded"
        }
        CompileError::Cancelled => "Cancelled",
    };
    instance(py, class, error.to_string(), d)
}

pub fn compile_error(py: Python<'_>, error: CompileError, origin: Origin) -> PyErr {
    match compile_instance(py, &error, origin) {
        Ok(value) => PyErr::from_value(value),
        Err(e) => e,
    }
}

/// A `ToolError` with the schema's own error as its cause.
pub fn tool_error(py: Python<'_>, error: ToolError) -> PyErr {
    let made = || -> PyResult<PyErr> {
        let cause = compile_instance(py, &error.cause, Origin::Schema)?;
        let d = PyDict::new(py);
        d.set_item("index", error.index)?;
        d.set_item("name", &*error.name)?;
        d.set_item("pointer", cause.getattr("pointer").ok())?;
        d.set_item("cause", &cause)?;
        let what = if error.name.is_empty() { String::new() } else { format!(" ({:?})", error.name) };
        let value = instance(py, "ToolError", format!("tool {}{what}: {}", error.index, error.cause), d)?;
        let raised = PyErr::from_value(value);
        raised.set_cause(py, Some(PyErr::from_value(cause)));
        Ok(raised)
    };
    made().unwrap_or_else(|e| e)
}

pub fn vocab_error(py: Python<'_>, error: VocabError) -> PyErr {
    raise(py, "TokenizerError", error.to_string(), PyDict::new(py))
}

pub fn matcher_error(py: Python<'_>, error: MatcherError) -> PyErr {
    let d = PyDict::new(py);
    let class = match &error {
        MatcherError::Rollback { asked, kept } => {
            let set = d.set_item("asked", asked).and_then(|()| d.set_item("held", kept));
            if let Err(e) = set {
                return e;
            }
            "RollbackError"
        }
        MatcherError::Row { .. } => "MatcherError",
        MatcherError::Ambiguous { limit, .. } => {
            let set = d.set_item("limit", "items_per_set").and_then(|()| d.set_item("value", *limit as f64));
            if let Err(e) = set {
                return e;
            }
            "LimitExceeded"
        }
    };
    raise(py, class, error.to_string(), d)
}
