//! `gramary.runtime._core`: the kernel's Python binding, and nothing else.

use pyo3::prelude::*;

#[pymodule]
mod _core {
    use super::*;

    #[pymodule_init]
    fn init(m: &Bound<'_, PyModule>) -> PyResult<()> {
        m.add("FORMAT_VERSION", gramary_compiler::FORMAT_VERSION)
    }
}
