//! `Vocabulary`.

use std::collections::BTreeMap;
use std::sync::Arc;

use gramary_compiler::vocab::Vocabulary;
use gramary_runtime::Tokens;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::errors::vocab_error;

/// A tokenizer prepared for masking. Immutable, shared between threads.
#[pyclass(name = "Vocabulary", module = "gramary.runtime._core", frozen)]
pub struct PyVocabulary {
    pub tokens: Arc<Tokens>,
}

impl PyVocabulary {
    fn make(
        py: Python<'_>,
        read: impl Send + FnOnce() -> Result<Vocabulary, gramary_compiler::vocab::VocabError>,
    ) -> PyResult<Self> {
        let tokens = py.detach(|| read().map(Tokens::new)).map_err(|e| vocab_error(py, e))?;
        Ok(PyVocabulary { tokens: Arc::new(tokens) })
    }
}

#[pymethods]
impl PyVocabulary {
    #[staticmethod]
    #[pyo3(signature = (tokens, special = Vec::new(), added = Vec::new()))]
    fn from_tokens(
        py: Python<'_>,
        tokens: Vec<Option<Bound<'_, PyBytes>>>,
        special: Vec<u32>,
        added: Vec<u32>,
    ) -> PyResult<Self> {
        let pieces = tokens.iter().map(|token| token.as_ref().map(|bytes| bytes.as_bytes()));
        let made = Vocabulary::from_pieces(pieces, &special, &added).map(Tokens::new);
        Ok(PyVocabulary { tokens: Arc::new(made.map_err(|e| vocab_error(py, e))?) })
    }

    #[staticmethod]
    fn from_huggingface(py: Python<'_>, tokenizer_json: &[u8]) -> PyResult<Self> {
        Self::make(py, || Vocabulary::from_huggingface(tokenizer_json))
    }

    #[staticmethod]
    fn from_tiktoken(py: Python<'_>, ranks: &[u8], special_tokens: BTreeMap<String, u32>) -> PyResult<Self> {
        let special: Vec<(String, u32)> = special_tokens.into_iter().collect();
        Self::make(py, || Vocabulary::from_tiktoken(ranks, special))
    }

    #[staticmethod]
    fn from_tekken(py: Python<'_>, tekken_json: &[u8]) -> PyResult<Self> {
        Self::make(py, || Vocabulary::from_tekken(tekken_json))
    }

    #[staticmethod]
    fn open(py: Python<'_>, path: std::path::PathBuf) -> PyResult<Self> {
        Self::make(py, || Vocabulary::open(&path))
    }

    #[staticmethod]
    fn from_bytes(py: Python<'_>, data: &[u8]) -> PyResult<Self> {
        Self::make(py, || Vocabulary::from_stranger(data))
    }

    fn to_bytes<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, self.tokens.vocab.as_bytes())
    }

    fn save(&self, py: Python<'_>, path: std::path::PathBuf) -> PyResult<()> {
        py.detach(|| self.tokens.vocab.save(&path)).map_err(|e| vocab_error(py, e))
    }

    fn __len__(&self) -> usize {
        self.tokens.vocab.len()
    }

    #[getter]
    fn fingerprint<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.tokens.vocab.fingerprint())
    }

    fn token_bytes<'py>(&self, py: Python<'py>, token: u32) -> Bound<'py, PyBytes> {
        PyBytes::new(py, self.tokens.vocab.bytes(token))
    }

    fn token_kind(&self, token: u32) -> &'static str {
        self.tokens.vocab.kind(token).name()
    }

    fn special_tokens(&self) -> BTreeMap<String, u32> {
        self.tokens.vocab.special_tokens().map(|(text, id)| (text.to_owned(), id)).collect()
    }
}
