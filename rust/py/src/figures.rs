//! The figures that people see: `_core.RequestMetrics`, `_core.RequestProgress`, `_core.SchedulerStats`.
//!
//! Owns: the Python face of `pagurid_core::{metrics, progress, stats}` and their units. Must not know: how they arise.

use std::collections::HashMap;

use pagurid_core::clock::as_ms;
use pagurid_core::output::FinishReason;
use pagurid_core::{metrics, progress, stats};
use pyo3::prelude::*;

/// The figures of one finished request (all its sequences). Times in ms, None where there is no such event.
#[pyclass(frozen, module = "pagurid._core")]
pub struct RequestMetrics(pub metrics::RequestMetrics);

#[pymethods]
impl RequestMetrics {
    #[getter]
    fn prompt_tokens(&self) -> u32 {
        self.0.prompt_tokens
    }
    #[getter]
    fn cached_tokens(&self) -> u32 {
        self.0.cached_tokens
    }
    #[getter]
    fn completion_tokens(&self) -> u32 {
        self.0.completion_tokens
    }
    /// arrival → first scheduled
    #[getter]
    fn queue_ms(&self) -> f64 {
        self.0.queue_ms
    }
    /// first scheduled → first token
    #[getter]
    fn prefill_ms(&self) -> Option<f64> {
        self.0.prefill_ms
    }
    /// arrival → first token
    #[getter]
    fn ttft_ms(&self) -> Option<f64> {
        self.0.ttft_ms
    }
    /// first token → last token
    #[getter]
    fn decode_ms(&self) -> Option<f64> {
        self.0.decode_ms
    }
    /// arrival → end
    #[getter]
    fn total_ms(&self) -> f64 {
        self.0.total_ms
    }
    #[getter]
    fn inter_token_p50_ms(&self) -> Option<f64> {
        self.0.inter_token_p50_ms
    }
    #[getter]
    fn inter_token_p99_ms(&self) -> Option<f64> {
        self.0.inter_token_p99_ms
    }
    /// completion tokens over the time from first scheduled to the end
    #[getter]
    fn tokens_per_second(&self) -> Option<f64> {
        self.0.tokens_per_second
    }
    #[getter]
    fn preemptions(&self) -> u32 {
        self.0.preemptions
    }
    /// tokens that had to be computed again after a preemption
    #[getter]
    fn recomputed_tokens(&self) -> u32 {
        self.0.recomputed_tokens
    }
    #[getter]
    fn kv_cache_peak_bytes(&self) -> u64 {
        self.0.kv_cache_peak_bytes
    }
    /// this request's share of the steps' time, by the tokens it had in each
    #[getter]
    fn busy_ms(&self) -> f64 {
        self.0.busy_ms
    }
    /// busy time × `cost_per_hour`; None without it
    #[getter]
    fn cost(&self) -> Option<f64> {
        self.0.cost
    }
    /// cost over prompt + completion tokens, × 1000
    #[getter]
    fn cost_per_1k_tokens(&self) -> Option<f64> {
        self.0.cost_per_1k_tokens
    }
    fn __repr__(&self) -> String {
        format!("{:?}", self.0)
    }
}

/// A glance at a request.
#[pyclass(frozen, module = "pagurid._core")]
pub struct RequestProgress(pub progress::RequestProgress);

#[pymethods]
impl RequestProgress {
    #[getter]
    fn state(&self) -> &'static str {
        self.0.state.wire()
    }
    /// in the queue, from 0; None unless queued
    #[getter]
    fn position(&self) -> Option<u32> {
        self.0.position
    }
    /// how long it will probably wait until it runs; None unless it waits, or while there is no experience yet
    #[getter]
    fn wait_ms_estimate(&self) -> Option<u32> {
        self.0.wait_ms_estimate
    }
    #[getter]
    fn prefill_done_tokens(&self) -> u32 {
        self.0.prefill_done_tokens
    }
    #[getter]
    fn prefill_total_tokens(&self) -> u32 {
        self.0.prefill_total_tokens
    }
    /// None until admitted
    #[getter]
    fn cached_tokens(&self) -> Option<u32> {
        self.0.cached_tokens
    }
    fn __repr__(&self) -> String {
        format!("{:?}", self.0)
    }
}

/// The scheduler's figures of one moment.
#[pyclass(frozen, module = "pagurid._core")]
pub struct SchedulerStats(pub stats::SchedulerStats);

#[pymethods]
impl SchedulerStats {
    /// Sequences that hold blocks.
    #[getter]
    fn num_running(&self) -> u64 {
        self.0.counters.num_running
    }
    /// Sequences that wait for their first or next step.
    #[getter]
    fn num_waiting(&self) -> u64 {
        self.0.counters.num_waiting
    }
    /// Blocks that can be handed out.
    #[getter]
    fn total_blocks(&self) -> usize {
        self.0.total_blocks
    }
    #[getter]
    fn free_blocks(&self) -> u64 {
        self.0.counters.free_blocks
    }
    #[getter]
    fn cached_blocks(&self) -> u64 {
        self.0.counters.cached_blocks
    }
    #[getter]
    fn used_blocks(&self) -> u64 {
        self.0.counters.used_blocks
    }
    #[getter]
    fn kv_cache_used_bytes(&self) -> u64 {
        self.0.counters.used_blocks * self.0.kv_bytes_per_block
    }
    /// 0..1
    #[getter]
    fn kv_cache_usage(&self) -> f64 {
        self.0.counters.used_blocks as f64 / self.0.total_blocks as f64
    }
    /// Steps that ended well.
    #[getter]
    fn steps(&self) -> u64 {
        self.0.counters.steps
    }
    #[getter]
    fn prompt_tokens(&self) -> u64 {
        self.0.counters.prompt_tokens
    }
    #[getter]
    fn completion_tokens(&self) -> u64 {
        self.0.counters.completion_tokens
    }
    /// Prompt tokens found in the prefix cache.
    #[getter]
    fn cached_tokens(&self) -> u64 {
        self.0.counters.cached_tokens
    }
    /// Prompt tokens looked up in the prefix cache.
    #[getter]
    fn prefix_cache_queries_tokens(&self) -> u64 {
        self.0.counters.prefix_cache_queries_tokens
    }
    #[getter]
    fn preemptions(&self) -> u64 {
        self.0.counters.preemptions
    }
    /// tokens that had to be computed again after that
    #[getter]
    fn recomputed_tokens(&self) -> u64 {
        self.0.counters.recomputed_tokens
    }
    #[getter]
    fn requests_finished(&self) -> HashMap<&'static str, u64> {
        FinishReason::ALL
            .iter()
            .map(|&reason| (reason.wire(), self.0.counters.requests_finished[reason as usize]))
            .collect()
    }
    #[getter]
    fn failed_steps(&self) -> u64 {
        self.0.counters.failed_steps
    }
    #[getter]
    fn consecutive_failed_steps(&self) -> u64 {
        self.0.counters.consecutive_failed_steps
    }
    /// Time in steps.
    #[getter]
    fn busy_s(&self) -> f64 {
        as_ms(self.0.counters.busy_ns) / 1e3
    }
    /// Of this, attributed to requests.
    #[getter]
    fn attributed_busy_s(&self) -> f64 {
        as_ms(self.0.counters.attributed_busy_ns) / 1e3
    }
    #[getter]
    fn last_step_tokens(&self) -> u64 {
        self.0.counters.last_step_tokens
    }
    #[getter]
    fn last_step_ms(&self) -> f64 {
        as_ms(self.0.counters.last_step_ns)
    }
    #[getter]
    fn uptime_s(&self) -> f64 {
        as_ms(self.0.uptime) / 1e3
    }
    fn __repr__(&self) -> String {
        format!("{:?}", self.0)
    }
}
