//! `_core.SchedulerConfig`: sizes and limits, checked when they are made.
//!
//! Owns: the keyword arguments and their defaults. Must not know: what the limits are (`pagurid_core`).

use pagurid_core::error::Error;
use pagurid_core::scheduler::config;
use pagurid_core::scheduler::policy::{PreemptionVictim, SchedulingPolicy};
use pyo3::prelude::*;

use crate::errors::to_python;

/// Sizes and limits of a scheduler, checked.
#[pyclass(frozen, module = "pagurid._core")]
pub struct SchedulerConfig(pub config::SchedulerConfig);

/// The one of `all` that `word` names.
fn named<T: Copy>(param: &'static str, word: &str, all: &[T], name: fn(T) -> &'static str) -> PyResult<T> {
    all.iter().copied().find(|&it| name(it) == word).ok_or_else(|| {
        let words: Vec<_> = all.iter().map(|&it| name(it)).collect();
        let message = format!("{param}: expected one of {}, got {word:?}", words.join(", "));
        to_python(&Error::invalid(param, message))
    })
}

#[pymethods]
impl SchedulerConfig {
    #[new]
    #[pyo3(signature = (*, num_blocks, block_size = 16, max_model_len, max_num_seqs, max_num_batched_tokens, vocab_size,
        eos_token_ids = Vec::new(), max_queued_requests = 1024, scheduling_policy = "fcfs",
        priority_ageing_ms = 10_000.0, step_time_target_ms = None, max_queue_wait_ms = None,
        preemption_victim = "least_waste", overlap_steps = false, isolate_tenants = false,
        enable_prefix_caching = true, prefix_hash_bits = 128, kv_bytes_per_block = 0, cost_per_hour = None))]
    #[allow(clippy::too_many_arguments)] // keyword arguments, each with a name
    fn new(
        num_blocks: usize,
        block_size: usize,
        max_model_len: usize,
        max_num_seqs: usize,
        max_num_batched_tokens: usize,
        vocab_size: usize,
        eos_token_ids: Vec<u32>,
        max_queued_requests: usize,
        scheduling_policy: &str,
        priority_ageing_ms: f64,
        step_time_target_ms: Option<f64>,
        max_queue_wait_ms: Option<f64>,
        preemption_victim: &str,
        overlap_steps: bool,
        isolate_tenants: bool,
        enable_prefix_caching: bool,
        prefix_hash_bits: u32,
        kv_bytes_per_block: u64,
        cost_per_hour: Option<f64>,
    ) -> PyResult<Self> {
        let (policies, victims) = (&SchedulingPolicy::ALL, &PreemptionVictim::ALL);
        let config = config::SchedulerConfig {
            num_blocks,
            block_size,
            max_model_len,
            max_num_seqs,
            max_num_batched_tokens,
            vocab_size,
            eos_token_ids,
            max_queued_requests,
            scheduling_policy: named(
                "scheduling_policy",
                scheduling_policy,
                policies,
                SchedulingPolicy::name,
            )?,
            priority_ageing_ms,
            step_time_target_ms,
            max_queue_wait_ms,
            preemption_victim: named(
                "preemption_victim",
                preemption_victim,
                victims,
                PreemptionVictim::name,
            )?,
            overlap_steps,
            isolate_tenants,
            enable_prefix_caching,
            prefix_hash_bits,
            kv_bytes_per_block,
            cost_per_hour,
        };
        config.validate().map(Self).map_err(|error| to_python(&error))
    }
    #[getter]
    fn num_blocks(&self) -> usize {
        self.0.num_blocks
    }
    #[getter]
    fn block_size(&self) -> usize {
        self.0.block_size
    }
    #[getter]
    fn max_model_len(&self) -> usize {
        self.0.max_model_len
    }
    #[getter]
    fn max_num_seqs(&self) -> usize {
        self.0.max_num_seqs
    }
    #[getter]
    fn max_num_batched_tokens(&self) -> usize {
        self.0.max_num_batched_tokens
    }
    #[getter]
    fn vocab_size(&self) -> usize {
        self.0.vocab_size
    }
    #[getter]
    fn eos_token_ids(&self) -> Vec<u32> {
        self.0.eos_token_ids.clone()
    }
    #[getter]
    fn max_queued_requests(&self) -> usize {
        self.0.max_queued_requests
    }
    #[getter]
    fn scheduling_policy(&self) -> &'static str {
        self.0.scheduling_policy.name()
    }
    #[getter]
    fn priority_ageing_ms(&self) -> f64 {
        self.0.priority_ageing_ms
    }
    #[getter]
    fn step_time_target_ms(&self) -> Option<f64> {
        self.0.step_time_target_ms
    }
    #[getter]
    fn max_queue_wait_ms(&self) -> Option<f64> {
        self.0.max_queue_wait_ms
    }
    #[getter]
    fn preemption_victim(&self) -> &'static str {
        self.0.preemption_victim.name()
    }
    #[getter]
    fn overlap_steps(&self) -> bool {
        self.0.overlap_steps
    }
    #[getter]
    fn isolate_tenants(&self) -> bool {
        self.0.isolate_tenants
    }
    #[getter]
    fn enable_prefix_caching(&self) -> bool {
        self.0.enable_prefix_caching
    }
    #[getter]
    fn prefix_hash_bits(&self) -> u32 {
        self.0.prefix_hash_bits
    }
    #[getter]
    fn kv_bytes_per_block(&self) -> u64 {
        self.0.kv_bytes_per_block
    }
    #[getter]
    fn cost_per_hour(&self) -> Option<f64> {
        self.0.cost_per_hour
    }
    fn __repr__(&self) -> String {
        format!("{:?}", self.0)
    }
}
