//! Where a mask is written: the rows of somebody else's int32 array.

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyInt;

/// An int32 array in memory that Python keeps alive for the duration of the call.
pub struct Rows {
    at: usize,
    rows: usize,
    /// Bytes between rows.
    stride: usize,
    words: usize,
}

impl Rows {
    /// `target`: a numpy array, anything with `__array_interface__`, a CPU torch tensor, or an address (then rows are
    /// `row_words` apart and the caller vouches for them).
    pub fn of(target: &Bound<'_, PyAny>, row_words: usize) -> PyResult<Rows> {
        if target.is_instance_of::<PyInt>() {
            let at: usize = target.extract()?;
            if at == 0 || at % 4 != 0 {
                return Err(PyValueError::new_err("the address of a bitmask must be that of an aligned int32 array"));
            }
            return Ok(Rows { at, rows: usize::MAX, stride: row_words * 4, words: row_words });
        }
        if let Ok(interface) = target.getattr("__array_interface__") {
            let kind: String = interface.get_item("typestr")?.extract()?;
            let (at, read_only): (usize, bool) = interface.get_item("data")?.extract()?;
            let shape: Vec<usize> = interface.get_item("shape")?.extract()?;
            let strides: Option<Vec<isize>> = interface.get_item("strides")?.extract()?;
            if kind != "<i4" {
                return Err(PyTypeError::new_err(format!("a bitmask is an int32 array, not {kind}")));
            }
            if read_only {
                return Err(PyValueError::new_err("the bitmask is read-only"));
            }
            return Rows::checked(at, &shape, strides.map(|s| (s, 1)));
        }
        if let Ok(pointer) = target.getattr("data_ptr") {
            let device: String = target.getattr("device")?.getattr("type")?.extract()?;
            if device != "cpu" {
                return Err(PyValueError::new_err(format!(
                    "the bitmask is on device {device}; fill one on the CPU and copy it"
                )));
            }
            let kind = target.getattr("dtype")?.str()?.to_string();
            if kind != "torch.int32" {
                return Err(PyTypeError::new_err(format!("a bitmask is an int32 tensor, not {kind}")));
            }
            let shape: Vec<usize> = target.getattr("shape")?.extract()?;
            let strides: Vec<isize> = target.call_method0("stride")?.extract()?;
            return Rows::checked(pointer.call0()?.extract()?, &shape, Some((strides, 4)));
        }
        Err(PyTypeError::new_err("a bitmask is a numpy array, a CPU torch tensor, or the address of an int32 array"))
    }

    fn checked(at: usize, shape: &[usize], strides: Option<(Vec<isize>, isize)>) -> PyResult<Rows> {
        let (rows, words) = match *shape {
            [words] => (1, words),
            [rows, words] => (rows, words),
            _ => return Err(PyValueError::new_err("a bitmask has one or two dimensions: (rows, words)")),
        };
        let mut stride = words * 4;
        if let Some((strides, unit)) = strides {
            let last = strides.last().copied().unwrap_or(4 / unit) * unit;
            let first = strides.first().copied().unwrap_or(0) * unit;
            if last != 4 || (shape.len() == 2 && first < stride as isize) {
                return Err(PyValueError::new_err(
                    "the words of a bitmask row must lie side by side; pass a contiguous array",
                ));
            }
            if shape.len() == 2 {
                stride = first as usize;
            }
        }
        Ok(Rows { at, rows, stride, words })
    }

    /// Row `row`.
    ///
    /// # Safety
    /// The array must stay alive and nobody else may touch the row while the slice is in use. Arrays are kept alive by
    /// the caller's reference to the Python object; that nobody writes a row while it is filled is the same contract that
    /// every engine has with its bitmask. For a bare address the caller vouches for its size, as documented.
    pub unsafe fn row<'a>(&self, row: usize) -> PyResult<&'a mut [u32]> {
        if row >= self.rows {
            return Err(PyValueError::new_err(format!("row {row} of a bitmask with {} rows", self.rows)));
        }
        let at = (self.at + row * self.stride) as *mut u32;
        // SAFETY: `at` is aligned (arrays of int32 are; addresses were checked) and valid for `words` words: for arrays
        // by their shape and strides, checked above; for addresses by the contract in the docs. Exclusivity: see above.
        Ok(unsafe { std::slice::from_raw_parts_mut(at, self.words) })
    }
}
