//! `Durations`: the kernel's histogram, for what is measured in Rust and what is measured in Python.

use std::sync::Arc;

use gramary_runtime::Durations;
use pyo3::prelude::*;
use pyo3::types::PyDict;

#[pyclass(name = "Durations", module = "gramary.runtime._core", frozen)]
#[derive(Default)]
pub struct PyDurations {
    pub durations: Arc<Durations>,
}

#[pymethods]
impl PyDurations {
    #[new]
    fn new() -> Self {
        Self::default()
    }

    fn add(&self, nanoseconds: u64) {
        self.durations.add(nanoseconds);
    }

    fn snapshot<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let (total_ns, buckets) = self.durations.read();
        let d = PyDict::new(py);
        d.set_item("count", buckets.iter().sum::<u64>())?;
        d.set_item("sum", total_ns as f64 / 1e9)?;
        d.set_item("buckets", buckets.to_vec())?;
        Ok(d)
    }
}
