//! What a request gives: `_core.OutputDelta` and `_core.TokenLogprobs`, read-only views of the core's records.
//!
//! Owns: the Python face of `pagurid_core::output`. Must not know: how outputs arise.

use pagurid_core::output::{self, PendingOutput, SequenceDelta, StopReason};
use pyo3::prelude::*;

use crate::figures::RequestMetrics;

/// Of one chosen token: raw model log-probabilities (before temperature and filters), finite.
#[pyclass(frozen, module = "pagurid._core")]
pub struct TokenLogprobs(output::TokenLogprobs);

#[pymethods]
impl TokenLogprobs {
    #[getter]
    fn token_id(&self) -> u32 {
        self.0.token_id
    }
    #[getter]
    fn logprob(&self) -> f32 {
        self.0.logprob
    }
    /// the `logprobs` most likely tokens, best first
    #[getter]
    fn top(&self) -> Vec<(u32, f32)> {
        self.0.top.clone()
    }
    fn __repr__(&self) -> String {
        format!(
            "TokenLogprobs(token_id={}, logprob={}, top={:?})",
            self.0.token_id, self.0.logprob, self.0.top
        )
    }
}

/// What one sequence of a request has gained since the last take: text, tokens, perhaps its end.
#[pyclass(frozen, module = "pagurid._core")]
pub struct OutputDelta {
    request_id: u64,
    delta: SequenceDelta,
    logprobs: Option<Vec<Py<TokenLogprobs>>>,
    metrics: Option<Py<RequestMetrics>>,
}

/// Splits what a request has gained into one delta per sequence; the figures go with the very last.
pub fn into_deltas(py: Python<'_>, request_id: u64, pending: PendingOutput) -> PyResult<Vec<OutputDelta>> {
    let mut deltas = pending
        .deltas
        .into_iter()
        .map(|mut delta| {
            let wrap = |logprobs| Py::new(py, TokenLogprobs(logprobs));
            let logprobs = delta.logprobs.take();
            let logprobs = logprobs.map(|list| list.into_iter().map(wrap).collect()).transpose()?;
            Ok(OutputDelta { request_id, delta, logprobs, metrics: None })
        })
        .collect::<PyResult<Vec<_>>>()?;
    if let (Some(metrics), Some(last)) = (pending.metrics, deltas.last_mut()) {
        last.metrics = Some(Py::new(py, RequestMetrics(*metrics))?);
    }
    Ok(deltas)
}

#[pymethods]
impl OutputDelta {
    #[getter]
    fn request_id(&self) -> u64 {
        self.request_id
    }
    /// which of the request's n sequences
    #[getter]
    fn index(&self) -> u32 {
        self.delta.index
    }
    #[getter]
    fn text(&self) -> &str {
        &self.delta.text
    }
    #[getter]
    fn token_ids(&self) -> Vec<u32> {
        self.delta.token_ids.clone()
    }
    #[getter]
    fn logprobs(&self, py: Python<'_>) -> Option<Vec<Py<TokenLogprobs>>> {
        self.logprobs.as_ref().map(|list| list.iter().map(|logprobs| logprobs.clone_ref(py)).collect())
    }
    /// of this sequence, so far
    #[getter]
    fn completion_tokens(&self) -> u32 {
        self.delta.completion_tokens
    }
    /// set on the sequence's last delta
    #[getter]
    fn finish_reason(&self) -> Option<&'static str> {
        self.delta.finish.as_ref().map(|finish| finish.reason.wire())
    }
    /// the stop token id or stop string of the request that ended it; None for an end-of-sequence token
    #[getter]
    fn stop_reason<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let reason = self.delta.finish.as_ref().and_then(|finish| finish.stop_reason.as_ref());
        reason
            .map(|reason| match reason {
                StopReason::Token(id) => Ok(id.into_pyobject(py)?.into_any()),
                StopReason::Text(text) => Ok(text.into_pyobject(py)?.into_any()),
            })
            .transpose()
    }
    /// with `finish_reason` "error": what happened
    #[getter]
    fn error(&self) -> Option<&str> {
        self.delta.finish.as_ref().and_then(|finish| finish.error.as_deref())
    }
    /// set on the request's very last delta
    #[getter]
    fn metrics(&self, py: Python<'_>) -> Option<Py<RequestMetrics>> {
        self.metrics.as_ref().map(|metrics| metrics.clone_ref(py))
    }
    fn __repr__(&self) -> String {
        let SequenceDelta { index, text, token_ids, .. } = &self.delta;
        let finish = self.finish_reason().map_or_else(|| "None".to_owned(), |reason| format!("'{reason}'"));
        let id = self.request_id;
        format!(
            "OutputDelta(request_id={id}, index={index}, text={text:?}, token_ids={token_ids:?}, finish_reason={finish})"
        )
    }
}
