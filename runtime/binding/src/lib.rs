//! `gramary.runtime._core`: the kernel's Python binding, and nothing else. `_core.pyi` documents it.

mod allocator;
mod artifacts;
mod bitmask;
mod compiler;
mod durations;
mod errors;
mod grammar;
mod json;
mod options;
mod request;
mod tags;
mod vocabulary;

use pyo3::prelude::*;
use pyo3::types::PyTuple;

#[pymodule]
mod _core {
    use super::*;

    #[pymodule_export]
    use super::artifacts::{inspect_unit, verify_units, PyLowering, PyManifest, PySource};
    #[pymodule_export]
    use super::compiler::{PyCompiler, PyLimits};
    #[pymodule_export]
    use super::durations::PyDurations;
    #[pymodule_export]
    use super::grammar::{fill_bitmasks, PyGrammar, PyMatcher};
    #[pymodule_export]
    use super::request::{specification_digest, PyRequestState};
    #[pymodule_export]
    use super::vocabulary::PyVocabulary;

    #[pymodule_init]
    fn init(m: &Bound<'_, PyModule>) -> PyResult<()> {
        super::allocator::keep_memory();
        m.add("DURATION_BOUNDS_NS", PyTuple::new(m.py(), gramary_runtime::durations::BOUNDS_NS)?)?;
        m.add("FORMAT_VERSION", gramary_compiler::FORMAT_VERSION)
    }
}
