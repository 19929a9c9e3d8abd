//! Sources, manifests and units as bytes: what leaves the process and comes into it.

use std::sync::Arc;

use gramary_compiler::exchange::{hex, Exported};
use gramary_compiler::flat::{self, FlatUnit};
use gramary_compiler::unit::Digest;
use gramary_compiler::vocab::Vocabulary;
use gramary_runtime::exchange::Shared;
use gramary_runtime::{Engine, Source, Tokens};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};

use crate::compiler::{limits_of, PyLimits};
use crate::errors::{compile_error, vocab_error, Origin};
use crate::json::text_of;
use crate::options::Reading;

/// A digest and bytes, as Python gets them.
pub type Named<'py> = (Bound<'py, PyBytes>, Bound<'py, PyBytes>);
/// A shared entry, as Python gets it.
pub type SharedTuple<'py> = (Bound<'py, PyBytes>, Bound<'py, PyBytes>, Bound<'py, PyBytes>, u64);

pub fn digest_of(bytes: &[u8]) -> PyResult<Digest> {
    bytes.try_into().map_err(|_| PyValueError::new_err(format!("a digest has 32 bytes, not {}", bytes.len())))
}

pub fn named<'py>(py: Python<'py>, units: &[Exported]) -> Vec<Named<'py>> {
    units.iter().map(|(d, bytes)| (PyBytes::new(py, d), PyBytes::new(py, bytes))).collect()
}

pub fn shared<'py>(py: Python<'py>, entries: Vec<Shared>) -> Vec<SharedTuple<'py>> {
    let tuple = |s: Shared| (PyBytes::new(py, &s.unit), PyBytes::new(py, &s.slot), PyBytes::new(py, &s.data), s.cost);
    entries.into_iter().map(tuple).collect()
}

pub fn parse_manifest(bytes: &[u8]) -> PyResult<flat::Manifest> {
    flat::Manifest::parse(bytes).map_err(|e| PyValueError::new_err(format!("not a manifest: {e}")))
}

/// One text to compile and what it is compiled with.
#[pyclass(name = "Source", module = "gramary.runtime._core", frozen)]
pub struct PySource {
    pub source: Source,
    pub text: Arc<[u8]>,
    key: Digest,
}

impl PySource {
    pub fn of(source: Source, text: &[u8]) -> PySource {
        let key = source.key(text);
        PySource { source, text: text.into(), key }
    }

    /// Which class malformed texts raise.
    pub fn origin(&self) -> Origin {
        match self.source {
            Source::Regex => Origin::Pattern,
            Source::Ebnf { .. } | Source::Choice => Origin::Grammar,
            Source::Schema(_) | Source::Styled(_) | Source::Ir => Origin::Schema,
        }
    }
}

#[pymethods]
impl PySource {
    #[new]
    #[pyo3(signature = (
        kind, text, *, property_order = "declared", whitespace = "flexible", lenient = false, root = "root", **more
    ))]
    fn new(
        kind: &str,
        text: &Bound<'_, PyAny>,
        property_order: &str,
        whitespace: &str,
        lenient: bool,
        root: &str,
        more: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<PySource> {
        let source = match kind {
            "json_schema" => Source::Schema(Reading::of(property_order, whitespace, lenient, more)?.schema),
            "ebnf" => Source::Ebnf { root: root.into() },
            _ => Source::from_parts(kind, "{}").map_err(PyValueError::new_err)?,
        };
        Ok(PySource::of(source, &text_of(text)?))
    }

    #[staticmethod]
    fn from_parts(kind: &str, options: &str, text: &[u8]) -> PyResult<PySource> {
        Ok(PySource::of(Source::from_parts(kind, options).map_err(PyValueError::new_err)?, text))
    }

    #[getter]
    fn key<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.key)
    }

    #[getter]
    fn kind(&self) -> &'static str {
        self.source.kind()
    }

    #[getter]
    fn options(&self) -> String {
        self.source.options()
    }

    #[getter]
    fn text<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.text)
    }

    fn __repr__(&self) -> String {
        format!("Source({:?}, {} bytes, key {})", self.source.kind(), self.text.len(), &hex(&self.key)[..12])
    }
}

/// What a source was compiled to.
#[pyclass(name = "Manifest", module = "gramary.runtime._core", frozen)]
pub struct PyManifest {
    manifest: flat::Manifest,
}

#[pymethods]
impl PyManifest {
    #[staticmethod]
    fn parse(data: &[u8]) -> PyResult<PyManifest> {
        Ok(PyManifest { manifest: parse_manifest(data)? })
    }

    fn to_bytes<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.manifest.to_bytes())
    }

    #[getter]
    fn root<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.manifest.root)
    }

    #[getter]
    fn nullable(&self) -> bool {
        self.manifest.nullable
    }

    #[getter]
    fn units<'py>(&self, py: Python<'py>) -> Vec<Bound<'py, PyBytes>> {
        self.manifest.units.iter().map(|d| PyBytes::new(py, d)).collect()
    }

    #[getter]
    fn names(&self) -> Vec<String> {
        self.manifest.names.clone()
    }

    #[getter]
    fn warnings<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let list = PyList::empty(py);
        for w in &self.manifest.warnings {
            let d = PyDict::new(py);
            d.set_item("pointer", &w.pointer)?;
            d.set_item("keyword", &w.keyword)?;
            d.set_item("reason", &w.reason)?;
            list.append(d)?;
        }
        Ok(list)
    }
}

/// Compiles sources to units without a tokenizer.
#[pyclass(name = "Lowering", module = "gramary.runtime._core", frozen)]
pub struct PyLowering {
    /// Units do not depend on tokens: an engine without any makes them.
    engine: Engine,
}

#[pymethods]
impl PyLowering {
    #[new]
    #[pyo3(signature = (*, cache_bytes = 256 << 20))]
    fn new(py: Python<'_>, cache_bytes: usize) -> PyResult<PyLowering> {
        let none = Vocabulary::from_tokens(vec![], vec![]).map_err(|e| vocab_error(py, e))?;
        Ok(PyLowering { engine: Engine::new(Arc::new(Tokens::new(none)), 0, Box::default(), cache_bytes) })
    }

    #[pyo3(signature = (source, *, limits = None))]
    fn lower<'py>(
        &self,
        py: Python<'py>,
        source: &PySource,
        limits: Option<PyLimits>,
    ) -> PyResult<(Bound<'py, PyBytes>, Vec<Named<'py>>)> {
        let limits = limits_of(limits);
        let lowered = py.detach(|| {
            let compiled = self.engine.artifact(&source.source, &source.text, &limits)?;
            Ok(self.engine.export(&compiled))
        });
        let (manifest, units) = lowered.map_err(|e| compile_error(py, e, source.origin()))?;
        Ok((PyBytes::new(py, &manifest.to_bytes()), named(py, &units)))
    }
}

/// Derive every unit's digest again from its content.
#[pyfunction]
pub fn verify_units<'py>(
    py: Python<'py>,
    units: Vec<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)>,
) -> PyResult<Vec<(Bound<'py, PyBytes>, String)>> {
    let given = units
        .iter()
        .map(|(d, bytes)| Ok((digest_of(d.as_bytes())?, bytes.as_bytes())))
        .collect::<PyResult<Vec<(Digest, &[u8])>>>()?;
    let faults = py.detach(|| flat::verify(&given));
    Ok(faults.into_iter().map(|(i, why)| (units[i].0.clone(), why)).collect())
}

/// What a unit's bytes hold.
#[pyfunction]
pub fn inspect_unit<'py>(py: Python<'py>, data: &[u8]) -> PyResult<Bound<'py, PyDict>> {
    let flat = FlatUnit::parse(data).map_err(|e| PyValueError::new_err(format!("not a unit: {e}")))?;
    let digests = |all: &[Digest]| -> Vec<Bound<'py, PyBytes>> { all.iter().map(|d| PyBytes::new(py, d)).collect() };
    let d = PyDict::new(py);
    d.set_item("states", flat.fsm.states.len())?;
    d.set_item("edges", flat.fsm.states.iter().map(|s| s.edges.len() + s.refs.len() + s.tokens.len()).sum::<usize>())?;
    d.set_item("callees", digests(&flat.callees))?;
    d.set_item("holes", digests(&flat.holes))?;
    Ok(d)
}
