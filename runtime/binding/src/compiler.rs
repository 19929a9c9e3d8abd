//! `Limits` and `Compiler`.

use std::borrow::Cow;
use std::sync::Arc;

use gramary_compiler::exchange::hex;
use gramary_compiler::flat::verify;
use gramary_compiler::unit::{Digest, Link};
use gramary_compiler::Limits;
use gramary_runtime::tagging::{tool_sources, Frame, NameTemplate, OnError, ToolOptions};
use gramary_runtime::{Bounds, Engine, Source};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyString};

use crate::artifacts::{digest_of, named, parse_manifest, shared, Named, PySource, SharedTuple};
use crate::errors::{compile_error, Origin};
use crate::grammar::PyGrammar;
use crate::json::text_of;
use crate::options::{choice, Reading};
use crate::tags;
use crate::vocabulary::PyVocabulary;

#[pyclass(name = "Limits", module = "gramary.runtime._core", frozen, from_py_object)]
#[derive(Clone)]
pub struct PyLimits {
    pub limits: Limits,
}

#[pymethods]
impl PyLimits {
    #[new]
    #[pyo3(signature = (*, source_bytes = None, depth = None, fsm_states = None, items_per_set = None, memory = None, seconds = None))]
    fn new(
        source_bytes: Option<usize>,
        depth: Option<usize>,
        fsm_states: Option<usize>,
        items_per_set: Option<usize>,
        memory: Option<usize>,
        seconds: Option<f64>,
    ) -> PyResult<Self> {
        let d = Limits::default();
        if seconds.is_some_and(|s| s.is_nan() || s < 0.0) {
            return Err(PyValueError::new_err("seconds must not be negative"));
        }
        if depth.is_some_and(|x| x > MAX_DEPTH) {
            return Err(PyValueError::new_err(format!("depth can be raised to {MAX_DEPTH} at most")));
        }
        let limits = Limits {
            source_bytes: source_bytes.unwrap_or(d.source_bytes),
            depth: depth.unwrap_or(d.depth),
            fsm_states: fsm_states.unwrap_or(d.fsm_states),
            items_per_set: items_per_set.unwrap_or(d.items_per_set),
            memory: memory.unwrap_or(d.memory),
            seconds: seconds.unwrap_or(d.seconds),
        };
        Ok(PyLimits { limits })
    }

    fn __repr__(&self) -> String {
        let l = &self.limits;
        format!(
            "Limits(source_bytes={}, depth={}, fsm_states={}, items_per_set={}, memory={}, seconds={})",
            l.source_bytes, l.depth, l.fsm_states, l.items_per_set, l.memory, l.seconds
        )
    }
}

/// Sources nested deeper than this could overflow the stack of a small thread.
const MAX_DEPTH: usize = 2_000;

pub fn limits_of(limits: Option<PyLimits>) -> Limits {
    limits.map_or_else(Limits::default, |l| l.limits)
}

fn bytes(strings: Vec<String>) -> Vec<Vec<u8>> {
    strings.into_iter().map(String::into_bytes).collect()
}

/// One vocabulary, and the units and mask entries known for it.
#[pyclass(name = "Compiler", module = "gramary.runtime._core", frozen)]
pub struct PyCompiler {
    engine: Arc<Engine>,
}

#[pymethods]
impl PyCompiler {
    #[new]
    #[pyo3(signature = (vocabulary, *, vocab_size = None, stop_token_ids = Vec::new(), cache_bytes = 1 << 30))]
    fn new(
        vocabulary: &PyVocabulary,
        vocab_size: Option<usize>,
        stop_token_ids: Vec<u32>,
        cache_bytes: usize,
    ) -> PyResult<Self> {
        let known = vocabulary.tokens.vocab.len();
        let size = vocab_size.unwrap_or(known);
        if size < known {
            return Err(PyValueError::new_err(format!("vocab_size {size} is less than the tokenizer's {known} ids")));
        }
        check_stops(&stop_token_ids, size)?;
        let engine = Engine::new(vocabulary.tokens.clone(), size, stop_token_ids.into(), cache_bytes);
        Ok(PyCompiler { engine: Arc::new(engine) })
    }

    #[pyo3(signature = (
        schema, *, property_order = "declared", whitespace = "flexible", lenient = false, limits = None, **more
    ))]
    #[allow(clippy::too_many_arguments)] // keyword arguments of a Python function
    fn compile_json_schema(
        &self,
        py: Python<'_>,
        schema: &Bound<'_, PyAny>,
        property_order: &str,
        whitespace: &str,
        lenient: bool,
        limits: Option<PyLimits>,
        more: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<PyGrammar> {
        let read = Reading::of(property_order, whitespace, lenient, more)?;
        self.compile(py, Source::Schema(read.schema), Text::of(schema)?, limits, read.bounds)
    }

    #[pyo3(signature = (pattern, *, limits = None))]
    fn compile_regex(&self, py: Python<'_>, pattern: &str, limits: Option<PyLimits>) -> PyResult<PyGrammar> {
        self.compile(py, Source::Regex, Text(Cow::Borrowed(pattern.as_bytes())), limits, Bounds::NONE)
    }

    #[pyo3(signature = (grammar, *, root = "root", limits = None))]
    fn compile_ebnf(&self, py: Python<'_>, grammar: &str, root: &str, limits: Option<PyLimits>) -> PyResult<PyGrammar> {
        self.compile(
            py,
            Source::Ebnf { root: root.into() },
            Text(Cow::Borrowed(grammar.as_bytes())),
            limits,
            Bounds::NONE,
        )
    }

    #[pyo3(signature = (choices, *, limits = None))]
    fn compile_choice(&self, py: Python<'_>, choices: &str, limits: Option<PyLimits>) -> PyResult<PyGrammar> {
        self.compile(py, Source::Choice, Text(Cow::Borrowed(choices.as_bytes())), limits, Bounds::NONE)
    }

    #[pyo3(signature = (
        tag, *, forbid_spelled_markers = true, property_order = "declared", whitespace = "flexible", lenient = false,
        limits = None
    ))]
    #[allow(clippy::too_many_arguments)] // keyword arguments of a Python function
    fn compile_structural_tag(
        &self,
        py: Python<'_>,
        tag: &Bound<'_, PyAny>,
        forbid_spelled_markers: bool,
        property_order: &str,
        whitespace: &str,
        lenient: bool,
        limits: Option<PyLimits>,
    ) -> PyResult<PyGrammar> {
        let options = tags::options(forbid_spelled_markers, property_order, whitespace, lenient)?;
        tags::compile_structure(py, &self.engine, tag, &options, limits_of(limits))
    }

    #[pyo3(signature = (
        tag, *, forbid_spelled_markers = true, property_order = "declared", whitespace = "flexible", lenient = false,
        limits = None
    ))]
    #[allow(clippy::too_many_arguments)] // keyword arguments of a Python function
    fn structural_tag_if_known(
        &self,
        py: Python<'_>,
        tag: &Bound<'_, PyAny>,
        forbid_spelled_markers: bool,
        property_order: &str,
        whitespace: &str,
        lenient: bool,
        limits: Option<PyLimits>,
    ) -> PyResult<(Option<PyGrammar>, usize, Vec<PySource>)> {
        let options = tags::options(forbid_spelled_markers, property_order, whitespace, lenient)?;
        tags::structure_if_known(py, &self.engine, tag, &options, limits_of(limits))
    }

    #[pyo3(signature = (ir, *, limits = None))]
    fn compile_ir(&self, py: Python<'_>, ir: &str, limits: Option<PyLimits>) -> PyResult<PyGrammar> {
        self.compile(py, Source::Ir, Text(Cow::Borrowed(ir.as_bytes())), limits, Bounds::NONE)
    }

    #[pyo3(signature = (
        tools, *, begin = "<function={name}>", end = "</function>", trigger = None, stops = Vec::new(),
        excludes = Vec::new(), min_calls = 0, max_calls = None, stop_after_last = false, on_error = "raise",
        property_order = "declared", whitespace = "flexible", lenient = false, limits = None, **more
    ))]
    #[allow(clippy::too_many_arguments)] // keyword arguments of a Python function
    fn compile_tools(
        &self,
        py: Python<'_>,
        tools: &Bound<'_, PyAny>,
        begin: &str,
        end: &str,
        trigger: Option<String>,
        stops: Vec<String>,
        excludes: Vec<String>,
        min_calls: u32,
        max_calls: Option<u32>,
        stop_after_last: bool,
        on_error: &str,
        property_order: &str,
        whitespace: &str,
        lenient: bool,
        limits: Option<PyLimits>,
        more: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<PyGrammar> {
        let read = Reading::of(property_order, whitespace, lenient, more)?;
        let template = NameTemplate::parse(begin).map_err(|e| compile_error(py, e, Origin::Schema))?;
        let trigger = trigger.map_or_else(|| template.before.as_bytes().to_vec(), String::into_bytes);
        let on_error = choice(
            "on_error",
            on_error,
            &[("raise", OnError::Raise), ("drop", OnError::Drop), ("any_json", OnError::AnyJson)],
        )?;
        let options = ToolOptions {
            begin: template,
            end,
            frame: Frame {
                triggers: vec![trigger],
                stops: bytes(stops),
                excludes: bytes(excludes),
                min_tags: min_calls,
                max_tags: max_calls,
                stop_after_last,
            },
            on_error,
            schema: read.schema,
            bounds: read.bounds,
            limits: limits_of(limits),
        };
        tags::compile_tools(py, &self.engine, tools, &options)
    }

    #[pyo3(signature = (
        tags, triggers, *, stops = Vec::new(), excludes = Vec::new(), min_calls = 0, max_calls = None,
        stop_after_last = false, property_order = "declared", whitespace = "flexible", lenient = false, limits = None, **more
    ))]
    #[allow(clippy::too_many_arguments)] // keyword arguments of a Python function
    fn compile_tags(
        &self,
        py: Python<'_>,
        tags: Vec<(String, Bound<'_, PyAny>, String)>,
        triggers: Vec<String>,
        stops: Vec<String>,
        excludes: Vec<String>,
        min_calls: u32,
        max_calls: Option<u32>,
        stop_after_last: bool,
        property_order: &str,
        whitespace: &str,
        lenient: bool,
        limits: Option<PyLimits>,
        more: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<PyGrammar> {
        let read = Reading::of(property_order, whitespace, lenient, more)?;
        let frame = Frame {
            triggers: bytes(triggers),
            stops: bytes(stops),
            excludes: bytes(excludes),
            min_tags: min_calls,
            max_tags: max_calls,
            stop_after_last,
        };
        tags::compile_tags(py, &self.engine, &tags, &frame, read, limits_of(limits))
    }

    #[pyo3(signature = (tools, *, property_order = "declared", whitespace = "flexible", lenient = false, **more))]
    fn sources_of_tools(
        &self,
        py: Python<'_>,
        tools: &Bound<'_, PyAny>,
        property_order: &str,
        whitespace: &str,
        lenient: bool,
        more: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Vec<PySource>> {
        let source = Source::Schema(Reading::of(property_order, whitespace, lenient, more)?.schema);
        let text = Text::of(tools)?;
        let texts = py.detach(|| tool_sources(&text.0)).map_err(|e| compile_error(py, e, Origin::Schema))?;
        Ok(texts.into_iter().map(|text| PySource::of(source.clone(), text)).collect())
    }

    /// A list of tools as JSON text, for those who pass it on more than once.
    fn tools_text<'py>(&self, py: Python<'py>, tools: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, &Text::of(tools)?.0))
    }

    #[pyo3(signature = (tools, *, property_order = "declared", whitespace = "flexible", lenient = false, **more))]
    fn missing_of_tools(
        &self,
        py: Python<'_>,
        tools: &Bound<'_, PyAny>,
        property_order: &str,
        whitespace: &str,
        lenient: bool,
        more: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<(usize, Vec<PySource>)> {
        let source = Source::Schema(Reading::of(property_order, whitespace, lenient, more)?.schema);
        let text = Text::of(tools)?;
        let found = py.detach(|| {
            let texts = tool_sources(&text.0)?;
            let missing = texts.iter().filter(|t| self.engine.known(&source, t).is_none());
            Ok((texts.len(), missing.map(|t| PySource::of(source.clone(), t)).collect()))
        });
        found.map_err(|e| compile_error(py, e, Origin::Schema))
    }

    fn missing_sources<'py>(&self, sources: Vec<Bound<'py, PySource>>) -> Vec<Bound<'py, PySource>> {
        let known = |s: &Bound<'py, PySource>| self.engine.known(&s.get().source, &s.get().text).is_some();
        sources.into_iter().filter(|s| !known(s)).collect()
    }

    fn missing_units<'py>(
        &self,
        py: Python<'py>,
        manifests: Vec<Bound<'py, PyBytes>>,
    ) -> PyResult<Vec<Bound<'py, PyBytes>>> {
        let parsed = manifests.iter().map(|m| parse_manifest(m.as_bytes())).collect::<PyResult<Vec<_>>>()?;
        let missing = py.detach(|| self.engine.missing_units(&parsed));
        Ok(missing.iter().map(|d| PyBytes::new(py, d)).collect())
    }

    #[pyo3(signature = (sources, units, *, trusted = false))]
    fn install<'py>(
        &self,
        py: Python<'py>,
        sources: Vec<(Bound<'py, PySource>, Bound<'py, PyBytes>)>,
        units: Vec<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)>,
        trusted: bool,
    ) -> PyResult<()> {
        let units = named_bytes(&units)?;
        let sources =
            sources.iter().map(|(s, m)| Ok((s.get(), parse_manifest(m.as_bytes())?))).collect::<PyResult<Vec<_>>>()?;
        let installed: Result<(), String> = py.detach(|| {
            check_units(&units, trusted)?;
            let by_digest = units.iter().copied().collect();
            for (source, manifest) in &sources {
                let done = self.engine.install(&source.source, &source.text, manifest, &by_digest);
                done.map_err(|e| e.to_string())?;
            }
            Ok(())
        });
        installed.map_err(PyValueError::new_err)
    }

    #[pyo3(signature = (manifests, units, *, trusted = false))]
    fn install_ahead<'py>(
        &self,
        py: Python<'py>,
        manifests: Vec<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)>,
        units: Vec<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)>,
        trusted: bool,
    ) -> PyResult<()> {
        let units = named_bytes(&units)?;
        let manifests = manifests
            .iter()
            .map(|(key, m)| Ok((digest_of(key.as_bytes())?, parse_manifest(m.as_bytes())?)))
            .collect::<PyResult<Vec<_>>>()?;
        let installed: Result<(), String> = py.detach(|| {
            check_units(&units, trusted)?;
            let by_digest = units.iter().copied().collect();
            for (key, manifest) in &manifests {
                self.engine.install_ahead(*key, manifest, &by_digest).map_err(|e| e.to_string())?;
            }
            Ok(())
        });
        installed.map_err(PyValueError::new_err)
    }

    fn export<'py>(&self, py: Python<'py>, source: &PySource) -> Option<(Bound<'py, PyBytes>, Vec<Named<'py>>)> {
        let compiled = self.engine.known(&source.source, &source.text)?;
        let (manifest, units) = py.detach(|| self.engine.export(&compiled));
        Some((PyBytes::new(py, &manifest.to_bytes()), named(py, &units)))
    }

    #[pyo3(signature = (closure, wanted, *, min_cost_us = 0.0, limits = None))]
    fn build_entries<'py>(
        &self,
        py: Python<'py>,
        closure: Vec<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)>,
        wanted: Vec<Bound<'py, PyBytes>>,
        min_cost_us: f64,
        limits: Option<PyLimits>,
    ) -> PyResult<Vec<SharedTuple<'py>>> {
        let closure = named_bytes(&closure)?.into_iter().collect();
        let wanted = digests(&wanted)?;
        let limits = limits_of(limits);
        let least = (min_cost_us.max(0.0) * 1e3) as u64;
        let built = py.detach(|| self.engine.build_entries(&closure, &wanted, least, &limits));
        Ok(shared(py, built.map_err(|e| PyValueError::new_err(e.to_string()))?))
    }

    fn record_entries(&self, most: usize) {
        self.engine.tokens.recorded.keep(most);
    }

    fn take_entries<'py>(&self, py: Python<'py>) -> Vec<SharedTuple<'py>> {
        let taken = py.detach(|| self.engine.tokens.take_recorded());
        shared(py, taken)
    }

    fn export_entries<'py>(&self, py: Python<'py>, units: Vec<Bound<'py, PyBytes>>) -> PyResult<Vec<SharedTuple<'py>>> {
        let units = digests(&units)?;
        let entries = py.detach(|| self.engine.export_entries(&units));
        Ok(shared(py, entries))
    }

    fn offer_entries(
        &self,
        py: Python<'_>,
        entries: Vec<(Bound<'_, PyBytes>, Bound<'_, PyBytes>, Bound<'_, PyBytes>)>,
    ) -> PyResult<usize> {
        let entries = entries
            .iter()
            .map(|(d, slot, data)| Ok((digest_of(d.as_bytes())?, slot.as_bytes(), data.as_bytes())))
            .collect::<PyResult<Vec<_>>>()?;
        let offered = &self.engine.tokens.offered;
        Ok(py.detach(|| entries.iter().filter(|(d, slot, data)| offered.put(*d, slot, data)).count()))
    }

    #[pyo3(signature = (unit, slot, data, *, closure = Vec::new()))]
    fn verify_entry(
        &self,
        py: Python<'_>,
        unit: &[u8],
        slot: &[u8],
        data: &[u8],
        closure: Vec<(Bound<'_, PyBytes>, Bound<'_, PyBytes>)>,
    ) -> PyResult<Option<bool>> {
        let unit = digest_of(unit)?;
        let closure = named_bytes(&closure)?.into_iter().collect();
        Ok(py.detach(|| self.engine.verify_entry_of(&closure, &unit, slot, data)))
    }

    fn prewarm(&self, py: Python<'_>) -> PyResult<usize> {
        py.detach(|| self.engine.prewarm()).map_err(|e| compile_error(py, e, Origin::Schema))
    }

    fn save_entries(&self, py: Python<'_>, path: std::path::PathBuf) -> PyResult<usize> {
        Ok(py.detach(|| self.engine.save_entries(&path))?)
    }

    fn load_entries(&self, py: Python<'_>, path: std::path::PathBuf) -> PyResult<usize> {
        Ok(py.detach(|| self.engine.load_entries(&path))?)
    }

    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let s = py.detach(|| self.engine.stats());
        let d = PyDict::new(py);
        d.set_item("sources", s.sources)?;
        d.set_item("source_hits", s.source_hits)?;
        d.set_item("source_misses", s.source_misses)?;
        d.set_item("units", s.units)?;
        d.set_item("units_built", s.units_built)?;
        d.set_item("entries", s.entries)?;
        d.set_item("entries_built", s.entries_built)?;
        d.set_item("entries_built_ahead", s.entries_built_ahead)?;
        d.set_item("entry_hits", s.entry_hits)?;
        d.set_item("bytes", s.bytes)?;
        d.set_item("evictions", s.evictions)?;
        d.set_item("entries_offered", s.entries_offered)?;
        d.set_item("entries_refused", s.entries_refused)?;
        Ok(d)
    }

    fn clear(&self, py: Python<'_>) {
        py.detach(|| self.engine.clear());
    }
}

fn named_bytes<'a>(all: &'a [(Bound<'_, PyBytes>, Bound<'_, PyBytes>)]) -> PyResult<Vec<(Digest, &'a [u8])>> {
    all.iter().map(|(d, bytes)| Ok((digest_of(d.as_bytes())?, bytes.as_bytes()))).collect()
}

fn check_units(units: &[(Digest, &[u8])], trusted: bool) -> Result<(), String> {
    if trusted {
        return Ok(());
    }
    match verify(units).into_iter().next() {
        None => Ok(()),
        Some((i, why)) => Err(format!("unit {}: {why}", hex(&units[i].0))),
    }
}

fn digests(all: &[Bound<'_, PyBytes>]) -> PyResult<Vec<Digest>> {
    all.iter().map(|d| digest_of(d.as_bytes())).collect()
}

impl PyCompiler {
    fn compile(
        &self,
        py: Python<'_>,
        source: Source,
        text: Text<'_>,
        limits: Option<PyLimits>,
        bounds: Bounds,
    ) -> PyResult<PyGrammar> {
        let origin = match source {
            Source::Regex => Origin::Pattern,
            Source::Ebnf { .. } | Source::Choice => Origin::Grammar,
            Source::Schema(_) | Source::Styled(_) | Source::Ir => Origin::Schema,
        };
        let limits = limits_of(limits);
        let (grammar, compiled) = py
            .detach(|| self.engine.grammar_within(&source, &text.0, limits, bounds))
            .map_err(|e| compile_error(py, e, origin))?;
        let warnings = compiled.warnings.iter().map(|w| (None, w.clone())).collect();
        Ok(PyGrammar { grammar, warnings, faults: vec![], offered: None })
    }
}

/// A source's text: borrowed from a `str` or `bytes` where there is one.
pub struct Text<'a>(pub Cow<'a, [u8]>);

impl<'a> Text<'a> {
    pub fn of(source: &'a Bound<'_, PyAny>) -> PyResult<Self> {
        if let Ok(s) = source.cast::<PyString>() {
            return Ok(Text(match s.to_cow()? {
                Cow::Borrowed(t) => Cow::Borrowed(t.as_bytes()),
                Cow::Owned(t) => Cow::Owned(t.into_bytes()),
            }));
        }
        Ok(Text(Cow::Owned(text_of(source)?)))
    }
}

pub fn check_stops(ids: &[u32], vocab_size: usize) -> PyResult<()> {
    match ids.iter().find(|&&id| id as usize >= vocab_size) {
        None => Ok(()),
        Some(id) => Err(PyValueError::new_err(format!(
            "stop token id {id} lies beyond the vocabulary of {vocab_size}; pass vocab_size if the model's is larger"
        ))),
    }
}

/// Whether a link belongs to the shared store.
pub fn is_shared(link: Link) -> bool {
    matches!(link, Link::Store(_))
}
