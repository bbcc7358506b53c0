//! `_core.Vocabulary`. First cut.

use std::sync::Arc;

use pagurid_core::vocabulary;
use pyo3::prelude::*;

/// Token id → bytes.
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
    fn new(token_bytes: Vec<Vec<u8>>, special_token_ids: Vec<u32>, strip_leading_space: bool) -> Self {
        let _ = strip_leading_space;
        Self(Arc::new(vocabulary::Vocabulary { token_bytes, special_token_ids }))
    }
    fn __len__(&self) -> usize {
        self.0.token_bytes.len()
    }
}
