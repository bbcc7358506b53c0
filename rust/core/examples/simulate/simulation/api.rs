//! Every call of the core whose form depends on its policies: making a scheduler, handing in a request.
//!
//! Owns: what the simulation's requests and settings are in the core's API. The rest of the simulation speaks these
//! words only, so a new policy is a matter of this file.

use std::sync::Arc;
use std::time::Duration;

use pagurid_core::clock::Clock;
use pagurid_core::error::Result;
use pagurid_core::intake::Intake;
use pagurid_core::outputs::Outputs;
use pagurid_core::request::RequestOptions;
use pagurid_core::request_table::RequestId;
use pagurid_core::sampling_params::SamplingParams;
use pagurid_core::scheduler::Scheduler;
use pagurid_core::scheduler::config::SchedulerConfig;
pub use pagurid_core::scheduler::policy::{PreemptionVictim, SchedulingPolicy};
use pagurid_core::vocabulary::Vocabulary;

use super::toy_model::{VOCAB_SIZE, piece};

/// One request on its way in.
#[derive(Clone, Debug)]
pub struct Submission {
    /// Its name in the simulation, for good.
    pub label: u32,
    /// At least one token, if it is a good one.
    pub prompt: Arc<[u32]>,
    /// With a seed, so that nothing is drawn at the door.
    pub params: Arc<SamplingParams>,
    /// How long ago it came to the door.
    pub age: Duration,
    /// Whose it is.
    pub tenant: u32,
    /// Smaller goes first.
    pub priority: i32,
    /// Shares prefixes only with its like.
    pub cache_salt: Option<u32>,
}

/// A configuration that differs from this one in sizes only.
pub fn config(scheduling_policy: SchedulingPolicy, preemption_victim: PreemptionVictim) -> SchedulerConfig {
    SchedulerConfig {
        num_blocks: 64,
        block_size: 16,
        max_model_len: 1024,
        max_num_seqs: 8,
        max_num_batched_tokens: 64,
        vocab_size: VOCAB_SIZE as usize,
        eos_token_ids: vec![0],
        max_queued_requests: 1 << 16,
        scheduling_policy,
        priority_ageing_ms: 1000.0,
        step_time_target_ms: None,
        max_queue_wait_ms: None,
        preemption_victim,
        overlap_steps: false,
        isolate_tenants: false,
        enable_prefix_caching: true,
        prefix_hash_bits: 128,
        kv_bytes_per_block: 100,
        cost_per_hour: Some(3.6),
    }
}

/// A scheduler on a simulated clock, with the toy model's texts; `seed` fixes the keys of its hashes.
pub fn scheduler(
    config: SchedulerConfig,
    clock: Clock,
    seed: u64,
) -> Result<(Scheduler, Arc<Intake>, Outputs)> {
    let pieces: Vec<String> = (0..VOCAB_SIZE).map(|token| piece(token).to_string()).collect();
    let vocabulary = Arc::new(Vocabulary::new(&pieces, &[], false)?);
    Scheduler::reproducible(config, Some(vocabulary), clock, [seed, !seed])
}

/// Hands the request in.
pub fn submit(intake: &Intake, submission: &Submission) -> Result<RequestId> {
    let options = RequestOptions {
        priority: submission.priority,
        tenant: Some(submission.tenant.to_string().into()),
        cache_salt: submission.cache_salt.map(|salt| salt.to_string().into()),
        age: submission.age,
    };
    intake.submit(submission.prompt.clone(), submission.params.clone(), options)
}

/// What the core thinks at this moment that the request will wait.
pub fn wait_estimate_ms(intake: &Intake, id: RequestId) -> Option<f64> {
    intake.progress(id)?.wait_ms_estimate.map(f64::from)
}
