//! `CompiledGrammar`, `Matcher`, `fill_bitmasks`.

use std::sync::Arc;

use gramary_compiler::schema::Warning;
use gramary_runtime::tagging::ToolError;
use gramary_runtime::{batch, Grammar, Matcher};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyInt, PyString};

use crate::bitmask::Rows;
use crate::compiler::{check_stops, is_shared};
use crate::errors::matcher_error;

/// Tokens that can be taken back unless the caller says otherwise.
const MAX_ROLLBACK: usize = 256;

#[pyclass(name = "CompiledGrammar", module = "gramary.runtime._core", frozen)]
pub struct PyGrammar {
    pub grammar: Arc<Grammar>,
    /// With the number of the tool that each belongs to.
    pub warnings: Vec<(Option<usize>, Warning)>,
    pub faults: Vec<ToolError>,
    /// Numbers in the caller's list of the tools that are offered.
    pub offered: Option<Vec<usize>>,
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

#[pymethods]
impl PyGrammar {
    #[pyo3(signature = (*, stop_token_ids = None, max_rollback_tokens = MAX_ROLLBACK))]
    fn matcher(
        slf: &Bound<'_, Self>,
        stop_token_ids: Option<Vec<u32>>,
        max_rollback_tokens: usize,
    ) -> PyResult<PyMatcher> {
        PyMatcher::new(slf, stop_token_ids, max_rollback_tokens)
    }

    fn prefetch(&self, k: usize) {
        self.grammar.prefetch(k);
    }

    #[getter]
    fn warnings<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        let one = |(tool, w): &(Option<usize>, Warning)| {
            let d = PyDict::new(py);
            if let Some(tool) = tool {
                d.set_item("tool", tool)?;
            }
            d.set_item("pointer", &w.pointer)?;
            d.set_item("keyword", &w.keyword)?;
            d.set_item("reason", &w.reason)?;
            Ok(d)
        };
        self.warnings.iter().map(one).collect()
    }

    #[getter]
    fn dropped_tools<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        let one = |f: &ToolError| {
            let d = PyDict::new(py);
            d.set_item("index", f.index)?;
            d.set_item("name", &*f.name)?;
            d.set_item("offered", self.offered.as_ref().is_some_and(|o| o.contains(&f.index)))?;
            d.set_item("error", f.cause.to_string())?;
            Ok(d)
        };
        self.faults.iter().map(one).collect()
    }

    #[getter]
    fn digest<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.grammar.digest())
    }

    fn units<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        let one = |(link, node): (gramary_compiler::unit::Link, Arc<gramary_compiler::unit::Node>)| {
            let unit = &node.unit;
            let d = PyDict::new(py);
            d.set_item("name", &unit.name)?;
            d.set_item("digest", hex(&node.digest))?;
            d.set_item("states", unit.states())?;
            d.set_item("edges", unit.edges.len())?;
            d.set_item("refs", unit.refs.len())?;
            let entries = unit.cache.entries();
            d.set_item("entries", entries.len())?;
            d.set_item("entry_bytes", entries.values().map(|e| e.size()).sum::<usize>())?;
            d.set_item("build_us", entries.values().map(|e| e.cost).sum::<u64>() as f64 / 1e3)?;
            d.set_item("shared", is_shared(link))?;
            Ok(d)
        };
        self.grammar.nodes().into_iter().map(one).collect()
    }

    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let s = self.grammar.stats();
        let d = PyDict::new(py);
        d.set_item("units", s.units)?;
        d.set_item("sets", s.sets)?;
        d.set_item("masks", s.recipes)?;
        d.set_item("entries", s.entries)?;
        d.set_item("bytes", s.table_bytes)?;
        d.set_item("flushes", s.flushes)?;
        d.set_item("matchers", s.matchers)?;
        Ok(d)
    }

    fn flush(&self, py: Python<'_>) {
        py.detach(|| self.grammar.flush());
    }
}

#[pyclass(name = "Matcher", module = "gramary.runtime._core", frozen)]
pub struct PyMatcher {
    pub matcher: Arc<Matcher>,
}

#[pymethods]
impl PyMatcher {
    #[new]
    #[pyo3(signature = (grammar, *, stop_token_ids = None, max_rollback_tokens = MAX_ROLLBACK))]
    fn new(
        grammar: &Bound<'_, PyGrammar>,
        stop_token_ids: Option<Vec<u32>>,
        max_rollback_tokens: usize,
    ) -> PyResult<Self> {
        let grammar = grammar.get().grammar.clone();
        if let Some(ids) = &stop_token_ids {
            check_stops(ids, grammar.row_words * 32)?;
        }
        Ok(PyMatcher { matcher: Arc::new(Matcher::new(grammar, stop_token_ids, max_rollback_tokens)) })
    }

    #[pyo3(signature = (bitmask, row = 0))]
    fn fill_bitmask(&self, py: Python<'_>, bitmask: &Bound<'_, PyAny>, row: usize) -> PyResult<bool> {
        let rows = Rows::of(bitmask, self.matcher.grammar().row_words)?;
        // SAFETY: `bitmask` is borrowed for the whole call, which keeps the array alive; see `Rows::row`.
        let words = unsafe { rows.row(row)? };
        // Releasing the GIL for a microsecond may cost the switch interval of another thread, 5 ms.
        if let Some(some) = self.matcher.fill_at_once(words) {
            return Ok(some);
        }
        self.run(py, |m| m.fill(words))
    }

    fn accept_token(&self, py: Python<'_>, token: &Bound<'_, PyAny>) -> PyResult<bool> {
        let token = match token.extract::<u32>() {
            Ok(token) => token,
            // An integer that no vocabulary can have, negative or huge, is just not allowed.
            Err(_) if token.is_instance_of::<PyInt>() => return Ok(false),
            Err(e) => return Err(e),
        };
        self.take(py, &[token]).map(|taken| taken == 1)
    }

    fn accept_tokens(&self, py: Python<'_>, tokens: Vec<i64>) -> PyResult<usize> {
        self.take(py, &ids(&tokens))
    }

    fn accept_bytes(&self, py: Python<'_>, data: &Bound<'_, PyAny>) -> PyResult<bool> {
        if let Ok(s) = data.cast::<PyString>() {
            let text = s.to_cow()?;
            return self.run(py, |m| m.accept_bytes(text.as_bytes()));
        }
        let bytes = data.cast::<PyBytes>().map_err(|_| PyTypeError::new_err("accept_bytes takes bytes or str"))?;
        let bytes = bytes.as_bytes();
        self.run(py, |m| m.accept_bytes(bytes))
    }

    fn validate_tokens(&self, py: Python<'_>, tokens: Vec<i64>) -> PyResult<usize> {
        let tokens = ids(&tokens);
        self.run(py, |m| m.validate(&tokens))
    }

    #[pyo3(signature = (n = 1))]
    fn rollback(&self, py: Python<'_>, n: usize) -> PyResult<()> {
        self.run(py, |m| m.rollback(n))
    }

    fn fork(&self) -> PyMatcher {
        PyMatcher { matcher: Arc::new(self.matcher.fork()) }
    }

    fn reset(&self, py: Python<'_>) {
        py.detach(|| self.matcher.reset());
    }

    fn is_complete(&self) -> bool {
        self.matcher.is_complete()
    }

    fn is_terminated(&self) -> bool {
        self.matcher.is_terminated()
    }

    fn jump_forward<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        self.run(py, |m| m.jump_forward()).map(|b| PyBytes::new(py, &b))
    }

    fn jump_forward_tokens(&self, py: Python<'_>) -> PyResult<Vec<u32>> {
        self.run(py, |m| m.jump_forward_tokens())
    }

    fn tag_events(&self) -> Vec<(&'static str, u32, u64)> {
        let events = self.matcher.tag_events();
        events.into_iter().map(|e| (if e.opened { "open" } else { "close" }, e.tag, e.at)).collect()
    }

    fn num_tokens(&self) -> u64 {
        self.matcher.token_count()
    }
}

impl PyMatcher {
    /// Take tokens; holding the GIL if it is a matter of microseconds (see `fill_bitmask`).
    fn take(&self, py: Python<'_>, tokens: &[u32]) -> PyResult<usize> {
        let taken = match self.matcher.accept_at_once(tokens) {
            Some(taken) => taken,
            None => self.run(py, |m| m.accept_all(tokens))?,
        };
        Ok(taken.tokens)
    }

    /// Run without the GIL, errors as Python's.
    #[inline]
    fn run<T: Send>(
        &self,
        py: Python<'_>,
        work: impl Send + FnOnce(&Matcher) -> Result<T, gramary_runtime::MatcherError>,
    ) -> PyResult<T> {
        py.detach(|| work(&self.matcher)).map_err(|e| matcher_error(py, e))
    }
}

/// Ids as the kernel has them; negative and oversized ones become one that no vocabulary has.
fn ids(tokens: &[i64]) -> Vec<u32> {
    tokens.iter().map(|&t| u32::try_from(t).unwrap_or(u32::MAX)).collect()
}

#[pyfunction]
#[pyo3(signature = (matchers, bitmask, rows = None))]
pub fn fill_bitmasks(
    py: Python<'_>,
    matchers: Vec<Py<PyMatcher>>,
    bitmask: &Bound<'_, PyAny>,
    rows: Option<Vec<usize>>,
) -> PyResult<()> {
    let Some(first) = matchers.first() else { return Ok(()) };
    let rows = rows.unwrap_or_else(|| (0..matchers.len()).collect());
    if rows.len() != matchers.len() {
        return Err(PyValueError::new_err(format!("{} rows for {} matchers", rows.len(), matchers.len())));
    }
    let mut sorted = rows.clone();
    sorted.sort_unstable();
    if sorted.windows(2).any(|w| w[0] == w[1]) {
        return Err(PyValueError::new_err("rows must be distinct: each is written by one matcher"));
    }
    let target = Rows::of(bitmask, first.get().matcher.grammar().row_words)?;
    // SAFETY: rows are distinct, so the slices do not overlap; `bitmask` is borrowed for the whole call.
    let slices = rows.iter().map(|&r| unsafe { target.row(r) }).collect::<PyResult<Vec<_>>>()?;
    let matchers: Vec<&Matcher> = matchers.iter().map(|m| &*m.get().matcher).collect();
    py.detach(|| batch::fill_all(&matchers, slices)).map_err(|e| matcher_error(py, e))
}
