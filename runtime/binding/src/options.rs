//! Options of JSON Schema, from Python's keyword arguments.

use gramary_compiler::schema::{Draft, Whitespace};
use gramary_runtime::{Bounds, SchemaOptions};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

/// What a schema is compiled with, and what its matchers bound.
pub struct Reading {
    pub schema: SchemaOptions,
    pub bounds: Bounds,
}

pub fn choice<T: Copy>(name: &str, value: &str, choices: &[(&str, T)]) -> PyResult<T> {
    choices.iter().find(|c| c.0 == value).map(|c| c.1).ok_or_else(|| {
        let names: Vec<&str> = choices.iter().map(|c| c.0).collect();
        PyValueError::new_err(format!("{name} must be one of {}, not {value:?}", names.join(", ")))
    })
}

/// Most spaces of an indent.
const MOST_INDENT: u32 = 16;

impl Reading {
    /// `more`: the options beside the common ones, each by its name.
    pub fn of(order: &str, whitespace: &str, lenient: bool, more: Option<&Bound<'_, PyDict>>) -> PyResult<Reading> {
        let space = choice("whitespace", whitespace, &[("flexible", false), ("compact", true)])?;
        let mut schema = SchemaOptions {
            any_order: choice("property_order", order, &[("declared", false), ("any", true)])?,
            space: if space { Whitespace::Compact } else { Whitespace::Flexible },
            lenient,
            ..SchemaOptions::default()
        };
        let mut bounds = Bounds::default();
        let (mut indent, mut separators): (Option<u32>, Option<(String, String)>) = (None, None);
        for (name, value) in more.into_iter().flatten() {
            let name: String = name.extract()?;
            if value.is_none() {
                match &*name {
                    "max_whitespace" => bounds.whitespace = u32::MAX,
                    "max_digits" => bounds.digits = u32::MAX,
                    "indent" | "separators" | "draft" | "registry" => {}
                    _ => return Err(PyTypeError::new_err(format!("{name} must not be None"))),
                }
                continue;
            }
            match &*name {
                "max_whitespace" => bounds.whitespace = at_least_one(&name, &value)?,
                "max_digits" => bounds.digits = at_least_one(&name, &value)?,
                "ensure_ascii" => bounds.ascii = value.extract()?,
                "indent" => indent = Some(value.extract()?),
                "separators" => separators = Some(value.extract()?),
                "draft" => {
                    let text = value.cast::<PyString>()?.to_cow()?;
                    let known = Draft::from_name(&text).ok_or_else(|| {
                        PyValueError::new_err(format!("draft must be one of 4, 6, 7, 2019-09, 2020-12, not {text:?}"))
                    })?;
                    schema.draft = Some(known);
                }
                "registry" => schema.registry = value.extract()?,
                _ => return Err(PyTypeError::new_err(format!("there is no option {name:?}"))),
            }
        }
        if space && (indent.is_some() || separators.is_some()) {
            return Err(PyValueError::new_err("whitespace=\"compact\" leaves nothing to indent or separate"));
        }
        if let Some((comma, colon)) = &separators {
            for (text, mark) in [(comma, ","), (colon, ":")] {
                let around = text.trim_matches([' ', '\t', '\n', '\r']);
                if around != mark || text.len() > 64 {
                    return Err(PyValueError::new_err(format!(
                        "separators are {mark:?} with at most 63 bytes of whitespace around it, not {text:?}"
                    )));
                }
            }
        }
        match (indent, separators) {
            (Some(n), _) if n > MOST_INDENT => {
                return Err(PyValueError::new_err(format!("indent must be at most {MOST_INDENT}, not {n}")));
            }
            (Some(n), Some((comma, colon))) => schema.space = Whitespace::Indent(n, comma, colon),
            (Some(n), None) => schema.space = Whitespace::Indent(n, ",".into(), ": ".into()),
            (None, Some((comma, colon))) => schema.space = Whitespace::Separators(comma, colon),
            (None, None) => {}
        }
        Ok(Reading { schema, bounds })
    }
}

fn at_least_one(name: &str, value: &Bound<'_, PyAny>) -> PyResult<u32> {
    match value.extract::<u32>() {
        Ok(n) if n > 0 => Ok(n),
        _ => Err(PyValueError::new_err(format!("{name} must be a whole number from 1 on, or None for no bound"))),
    }
}
