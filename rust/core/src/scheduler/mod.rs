//! The engine thread's half of the core: who computes, in which blocks, at every step.
//!
//! Owns: all sequences, the block pool, the running and waiting orders, the step under way. One thread owns it, so
//! nothing here is atomic; other threads reach it through `Intake` only.
//! Invariants (`check_invariants`): every live sequence is running, waiting or held back behind its request's first;
//! running and waiting are in arrival order; the blocks of running sequences are all the references of the pool; a
//! waiting sequence holds none; between `plan` and `commit` or `abort_step` exactly one step is open.
//! Must not know: Python, torch, transports.

mod admission;
pub mod config;
mod ending;
mod invariants;
mod planning;
mod results;

use std::collections::BTreeSet;
use std::sync::Arc;

use slab::Slab;

use crate::block_pool::BlockPool;
use crate::clock::Nanos;
use crate::error::{Error, Result};
use crate::intake::Intake;
use crate::metrics::RequestRecord;
use crate::prefix_cache::{BlockHash, BlockHasher, PrefixCache};
use crate::request_table::RequestId;
use crate::sampling::Sampled;
use crate::sampling_params::SamplingParams;
use crate::sequence::Sequence;
use crate::stats::Counters;
use crate::step_plan::StepPlan;
use crate::vocabulary::Vocabulary;
use config::SchedulerConfig;

/// Key of a sequence in the scheduler's slab.
type SequenceKey = usize;

/// One request while any of its sequences lives.
struct ActiveRequest {
    id: RequestId,
    arrival_number: u64,
    params: Arc<SamplingParams>,
    prompt: Arc<[u32]>,
    prompt_hashes: Vec<BlockHash>,
    seed: u64,
    max_tokens: usize,
    record: RequestRecord,
    /// Live sequences; indices from `num_started` on wait until the first one's prompt is computed.
    sequences: Vec<SequenceKey>,
    num_started: u32,
}

/// One sequence's part in the open step.
#[derive(Clone, Copy)]
struct Planned {
    key: SequenceKey,
    num_tokens: usize,
    needs_logits: bool,
}

/// The step between `plan` and `commit`.
#[derive(Default)]
struct OpenStep {
    is_open: bool,
    started: Nanos,
    planned: Vec<Planned>,
    /// The sequences of the logits rows.
    rows: Vec<SequenceKey>,
    /// What `sample` chose, one per logits row.
    sampled: Vec<Sampled>,
    is_sampled: bool,
}

/// A sequence that could compute a part of its known tokens in this step.
#[derive(Clone, Copy)]
struct Candidate {
    key: SequenceKey,
    order: u64,
    remaining: usize,
    is_waiting: bool,
    chunk: usize,
}

/// See the module.
pub struct Scheduler {
    intake: Arc<Intake>,
    config: SchedulerConfig,
    vocabulary: Option<Arc<Vocabulary>>,
    eos_token_ids: Arc<[u32]>,
    hasher: Option<BlockHasher>,
    pool: BlockPool,
    plan: StepPlan,
    sequences: Slab<Sequence>,
    /// By slot of the request table.
    requests: Vec<Option<Box<ActiveRequest>>>,
    /// Sequences with blocks, (order, key), oldest first.
    running: Vec<(u64, SequenceKey)>,
    /// Sequences without, (order, key).
    waiting: BTreeSet<(u64, SequenceKey)>,
    waiting_changed: bool,
    /// Sequences of active requests that are not started yet.
    num_held_back: usize,
    step: OpenStep,
    step_number: u64,
    next_arrival: u64,
    next_table_version: u64,
    counters: Counters,
    /// Sequences that end in this call.
    ending: Vec<SequenceKey>,
    candidates: Vec<Candidate>,
    token_scratch: Vec<u32>,
}

impl Scheduler {
    /// A scheduler and its door.
    pub fn new(config: SchedulerConfig, vocabulary: Option<Arc<Vocabulary>>) -> Result<(Self, Arc<Intake>)> {
        let config = config.validate()?;
        let hasher = if config.enable_prefix_caching {
            Some(BlockHasher::new(config.block_size, config.prefix_hash_bits)?)
        } else {
            None
        };
        let cache = hasher.is_some().then(|| PrefixCache::new(config.num_blocks, config.block_size));
        let pool = BlockPool::new(config.num_blocks, config.block_size, cache)?;
        let intake = Arc::new(Intake::new(config.clone(), vocabulary.is_some(), hasher.clone()));
        let mut scheduler = Self {
            intake: intake.clone(),
            plan: StepPlan::new(&config),
            eos_token_ids: config.eos_token_ids.as_slice().into(),
            config,
            vocabulary,
            hasher,
            pool,
            sequences: Slab::new(),
            requests: Vec::new(),
            running: Vec::new(),
            waiting: BTreeSet::new(),
            waiting_changed: false,
            num_held_back: 0,
            step: OpenStep::default(),
            step_number: 0,
            next_arrival: 0,
            next_table_version: 1,
            counters: Counters::default(),
            ending: Vec::new(),
            candidates: Vec::new(),
            token_scratch: Vec::new(),
        };
        scheduler.publish_counters();
        Ok((scheduler, intake))
    }

    /// The flat buffers of the step plan.
    pub fn step_plan(&self) -> &StepPlan {
        &self.plan
    }

    /// Whether `plan` would find something to do.
    pub fn has_work(&self) -> bool {
        self.intake.has_news() || !self.running.is_empty() || !self.waiting.is_empty()
    }

    fn request_mut(&mut self, id: RequestId) -> &mut ActiveRequest {
        let slot = crate::request_table::slot_index(id);
        self.requests[slot].as_mut().expect("a live sequence's request is active")
    }

    fn request(&self, id: RequestId) -> &ActiveRequest {
        let slot = crate::request_table::slot_index(id);
        self.requests[slot].as_ref().expect("a live sequence's request is active")
    }

    /// The request, if it is known and not ended.
    fn active(&self, id: RequestId) -> Option<&ActiveRequest> {
        let slot = crate::request_table::slot_index(id);
        self.requests.get(slot)?.as_deref().filter(|request| request.id == id)
    }

    fn new_table_version(&mut self) -> u64 {
        self.next_table_version += 1;
        self.next_table_version
    }

    fn require_open_step(&self, call: &str) -> Result<()> {
        if self.step.is_open {
            Ok(())
        } else {
            Err(Error::internal(format!("{call} needs a plan that returned True")))
        }
    }

    fn publish_counters(&mut self) {
        self.counters.num_running = self.running.len() as u64;
        self.counters.num_waiting = (self.waiting.len() + self.num_held_back) as u64;
        self.counters.free_blocks = self.pool.num_free_blocks() as u64;
        self.counters.cached_blocks = self.pool.num_cached_blocks() as u64;
        self.counters.used_blocks = self.pool.num_used_blocks() as u64;
        self.intake.counters.publish(&self.counters);
    }
}
