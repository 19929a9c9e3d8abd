//! Structural tags, tools and tags of tools: what the methods of `Compiler` for them do, once their arguments are read.

use std::borrow::Cow;

use gramary_compiler::Limits;
use gramary_runtime::structural::{CompiledStructure, IfKnown, StructuralOptions};
use gramary_runtime::tagging::{Frame, TagSpec, ToolError, ToolOptions};
use gramary_runtime::{Engine, Source};
use pyo3::prelude::*;

use crate::artifacts::PySource;
use crate::compiler::Text;
use crate::errors::{compile_error, tool_error, Origin};
use crate::grammar::PyGrammar;
use crate::json::text_of;
use crate::options::Reading;

/// Bytes of a text that are looked through with the GIL held: less than a millisecond, while to take it back from an engine's
/// thread may take its whole switch interval, 5 ms.
const MOST_HELD: usize = 64 << 10;

/// The options that every reading of a structural tag has.
pub fn options(
    forbid_spelled_markers: bool,
    property_order: &str,
    whitespace: &str,
    lenient: bool,
) -> PyResult<StructuralOptions> {
    let read = Reading::of(property_order, whitespace, lenient, None)?;
    let allow_spelled_markers = !forbid_spelled_markers;
    Ok(StructuralOptions { schema: read.schema, allow_spelled_markers, bounds: read.bounds })
}

pub fn compile_structure(
    py: Python<'_>,
    engine: &Engine,
    tag: &Bound<'_, PyAny>,
    options: &StructuralOptions,
    limits: Limits,
) -> PyResult<PyGrammar> {
    let text = Text::of(tag)?;
    let compiled = py
        .detach(|| engine.structural_tag(&text.0, options, limits))
        .map_err(|e| compile_error(py, e, Origin::Grammar))?;
    Ok(structure(compiled))
}

/// The grammar if all of its sources are in memory, how many there are, and those that are not.
pub fn structure_if_known(
    py: Python<'_>,
    engine: &Engine,
    tag: &Bound<'_, PyAny>,
    options: &StructuralOptions,
    limits: Limits,
) -> PyResult<(Option<PyGrammar>, usize, Vec<PySource>)> {
    let text = Text::of(tag)?;
    let look = || engine.structural_tag_if_known(&text.0, options, limits);
    let found = if text.0.len() <= MOST_HELD { look() } else { py.detach(look) };
    let (number, found) = found.map_err(|e| compile_error(py, e, Origin::Grammar))?;
    Ok(match found {
        IfKnown::Grammar(compiled) => (Some(structure(compiled)), number, vec![]),
        IfKnown::Missing(missing) => {
            let missing = missing.iter().map(|(source, text)| PySource::of(source.clone(), text));
            (None, number, missing.collect())
        }
    })
}

fn structure(compiled: CompiledStructure) -> PyGrammar {
    let warnings = compiled.warnings.into_iter().map(|w| (None, w)).collect();
    PyGrammar { grammar: compiled.grammar, warnings, faults: vec![], offered: None }
}

pub fn compile_tools(
    py: Python<'_>,
    engine: &Engine,
    tools: &Bound<'_, PyAny>,
    options: &ToolOptions<'_>,
) -> PyResult<PyGrammar> {
    let text = Text::of(tools)?;
    let compiled = py.detach(|| engine.tools(&text.0, options)).map_err(|e| tool_error(py, e))?;
    let warnings = compiled
        .contents
        .iter()
        .zip(&compiled.offered)
        .flat_map(|(c, index)| c.warnings.iter().map(move |w| (Some(*index), w.clone())))
        .collect();
    Ok(PyGrammar { grammar: compiled.grammar, warnings, faults: compiled.faults, offered: Some(compiled.offered) })
}

/// Tags given as begin, schema and end.
pub fn compile_tags(
    py: Python<'_>,
    engine: &Engine,
    tags: &[(String, Bound<'_, PyAny>, String)],
    frame: &Frame,
    read: Reading,
    limits: Limits,
) -> PyResult<PyGrammar> {
    let schema = Source::Schema(read.schema);
    let mut specs = Vec::with_capacity(tags.len());
    let mut warnings = vec![];
    for (index, (begin, content, end)) in tags.iter().enumerate() {
        let text = text_of(content)?;
        let content = py.detach(|| engine.artifact(&schema, &text, &limits)).map_err(|cause| {
            let cause = cause.within(&format!("/{index}/content"));
            tool_error(py, ToolError { index, name: begin.as_str().into(), cause })
        })?;
        warnings.extend(content.warnings.iter().map(|w| (Some(index), w.clone())));
        specs.push(TagSpec { begin: Cow::Borrowed(begin.as_bytes()), content, end: end.as_bytes() });
    }
    let grammar = py
        .detach(|| engine.tags(&specs, frame, read.bounds, limits))
        .map_err(|e| compile_error(py, e, Origin::Schema))?;
    Ok(PyGrammar { grammar, warnings, faults: vec![], offered: None })
}
