//! Python objects as JSON text, written straight into one buffer.

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};

/// A source: JSON text, or an object that is written as JSON.
pub fn text_of(source: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    if let Ok(s) = source.cast::<PyString>() {
        return Ok(s.to_cow()?.as_bytes().to_vec());
    }
    if let Ok(b) = source.cast::<PyBytes>() {
        return Ok(b.as_bytes().to_vec());
    }
    let mut out = Vec::with_capacity(1024);
    write(source, &mut out, 0)?;
    Ok(out)
}

/// Deeper than any limit that the compiler can be given to accept, and safe for the stack.
const MAX_DEPTH: usize = 5_000;

fn write(value: &Bound<'_, PyAny>, out: &mut Vec<u8>, depth: usize) -> PyResult<()> {
    if depth > MAX_DEPTH {
        return Err(PyValueError::new_err(format!(
            "the source is nested more than {MAX_DEPTH} deep (or holds itself)"
        )));
    }
    if value.is_none() {
        out.extend_from_slice(b"null");
    } else if let Ok(s) = value.cast::<PyString>() {
        string(&s.to_cow()?, out);
    } else if let Ok(b) = value.cast::<PyBool>() {
        out.extend_from_slice(if b.is_true() { b"true" } else { b"false" });
    } else if value.is_instance_of::<PyInt>() {
        let text = value.py().get_type::<PyInt>().call_method1("__repr__", (value,))?;
        out.extend_from_slice(text.cast::<PyString>()?.to_cow()?.as_bytes());
    } else if let Ok(f) = value.cast::<PyFloat>() {
        if !f.value().is_finite() {
            return Err(PyValueError::new_err("NaN and infinities are not JSON numbers"));
        }
        let text = value.py().get_type::<PyFloat>().call_method1("__repr__", (value,))?;
        out.extend_from_slice(text.cast::<PyString>()?.to_cow()?.as_bytes());
    } else if let Ok(d) = value.cast::<PyDict>() {
        out.push(b'{');
        for (i, (key, item)) in d.iter().enumerate() {
            if i > 0 {
                out.push(b',');
            }
            let key = key.cast::<PyString>().map_err(|_| PyTypeError::new_err("keys of a JSON object must be str"))?;
            string(&key.to_cow()?, out);
            out.push(b':');
            write(&item, out, depth + 1)?;
        }
        out.push(b'}');
    } else if let Ok(l) = value.cast::<PyList>() {
        sequence(l.iter(), out, depth)?;
    } else if let Ok(t) = value.cast::<PyTuple>() {
        sequence(t.iter(), out, depth)?;
    } else {
        let name = value.get_type().name()?;
        return Err(PyTypeError::new_err(format!(
            "{name} cannot be written as JSON; pass dict, list, str, int, float, bool or None"
        )));
    }
    Ok(())
}

fn sequence<'py>(items: impl Iterator<Item = Bound<'py, PyAny>>, out: &mut Vec<u8>, depth: usize) -> PyResult<()> {
    out.push(b'[');
    for (i, item) in items.enumerate() {
        if i > 0 {
            out.push(b',');
        }
        write(&item, out, depth + 1)?;
    }
    out.push(b']');
    Ok(())
}

fn string(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    for b in text.bytes() {
        match b {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            0..=0x1f => out.extend_from_slice(format!("\\u{b:04x}").as_bytes()),
            _ => out.push(b),
        }
    }
    out.push(b'"');
}
