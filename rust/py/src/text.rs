//! `_core.Vocabulary` and `_core.Detokenizer`.

use std::sync::Arc;

use pagurid_core::detokenizer::{self, DetokenizerOptions};
use pagurid_core::error::Error;
use pagurid_core::vocabulary;
use pyo3::prelude::*;

use crate::errors::to_python;

/// Token id → bytes, the whole knowledge the detokeniser needs.
#[pyclass(frozen, module = "pagurid._core")]
pub struct Vocabulary(Arc<vocabulary::Vocabulary>);

impl Vocabulary {
    pub fn inner(&self) -> Arc<vocabulary::Vocabulary> {
        self.0.clone()
    }
}

#[pymethods]
impl Vocabulary {
    #[new]
    #[pyo3(signature = (token_bytes, *, special_token_ids = Vec::new(), strip_leading_space = false))]
    fn new(
        token_bytes: Vec<Vec<u8>>,
        special_token_ids: Vec<u32>,
        strip_leading_space: bool,
    ) -> PyResult<Self> {
        let vocabulary = vocabulary::Vocabulary::new(&token_bytes, &special_token_ids, strip_leading_space);
        Ok(Self(Arc::new(vocabulary.map_err(|error| to_python(&error))?)))
    }

    fn __len__(&self) -> usize {
        self.0.len()
    }

    #[pyo3(signature = (token_ids, *, skip_special_tokens = true))]
    fn decode(&self, token_ids: Vec<u32>, skip_special_tokens: bool) -> String {
        self.0.decode(&token_ids, skip_special_tokens)
    }
}

/// Turns one sequence's token ids into text, piece by piece.
#[pyclass(module = "pagurid._core")]
pub struct Detokenizer(detokenizer::Detokenizer);

#[pymethods]
impl Detokenizer {
    #[new]
    #[pyo3(signature = (vocabulary, *, stop = Vec::new(), include_stop_str_in_output = false,
        skip_special_tokens = true, continuation = false))]
    fn new(
        vocabulary: &Vocabulary,
        stop: Vec<String>,
        include_stop_str_in_output: bool,
        skip_special_tokens: bool,
        continuation: bool,
    ) -> PyResult<Self> {
        if stop.iter().any(String::is_empty) {
            let message = "stop: expected strings of at least 1 character, got an empty one";
            return Err(to_python(&Error::invalid("stop", message)));
        }
        let options = DetokenizerOptions {
            stop,
            include_stop_str_in_output,
            skip_special_tokens,
            continuation,
            min_tokens: 0,
        };
        Ok(Self(detokenizer::Detokenizer::new(vocabulary.inner(), &options)))
    }

    fn push(&mut self, token_id: u32) -> &str {
        self.0.push(token_id)
    }

    fn finish(&mut self) -> String {
        self.0.finish()
    }

    #[getter]
    fn stopped_by(&self) -> Option<&str> {
        self.0.stopped_by()
    }
}
