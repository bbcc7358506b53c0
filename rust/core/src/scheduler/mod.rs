//! The engine thread's half of the core: who computes, in which blocks, at every step.
//!
//! Owns: all sequences, the block pool, the running and waiting orders, the open steps. One thread owns it, so nothing
//! here is atomic; other threads reach it through `Intake` only.
//! Invariants (`check_invariants`): every live sequence is running or waiting, those of a request behind its first one
//! are held back until its prompt is computed; running is in the order of service; the blocks of running sequences are
//! all the references of the pool but the prefix cache's; a waiting sequence holds none.
//! Must not know: Python, torch, transports.

mod admission;
mod choosing;
pub mod config;
mod ending;
pub mod forecast;
mod forking;
mod invariants;
mod planning;
pub mod policy;
mod preemption;
mod prefilling;
mod results;
mod starting;
pub mod step_time;
pub mod tenants;
pub mod wait_estimate;
pub mod waiting;
mod waits;

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};

use crate::block_hash::{BlockHash, BlockHasher, CacheScope, random_u64};
use crate::block_pool::BlockPool;
use crate::clock::{Clock, Nanos};
use crate::error::Result;
use crate::intake::Intake;
use crate::metrics::RequestRecord;
use crate::output_batch::OutputBatch;
use crate::outputs::Outputs;
use crate::prefix_cache::PrefixCache;
use crate::request::RequestOptions;
use crate::request_table::{RequestId, slot_index};
use crate::sampling::Sampled;
use crate::sampling_params::SamplingParams;
use crate::seeds::SeedSource;
use crate::sequence_arena::SequenceArena;
pub use crate::sequence_arena::SequenceKey;
use crate::stats::Counters;
use crate::step_plan::StepPlan;
use crate::token_times::CommitTimes;
use crate::vocabulary::Vocabulary;
pub use choosing::ForEachPiece;
use config::SchedulerConfig;
use forecast::LengthForecast;
use policy::ServiceOrder;
use step_time::StepTimeModel;
use tenants::{TenantKey, Tenants};
use wait_estimate::{AdmissionPace, Waits};
use waiting::WaitingQueue;

/// One request while any of its sequences lives.
struct ActiveRequest {
    id: RequestId,
    arrival_number: u64,
    params: Arc<SamplingParams>,
    options: RequestOptions,
    scope: CacheScope,
    tenant: TenantKey,
    prompt: Arc<[u32]>,
    prompt_hashes: Vec<BlockHash>,
    seed: u64,
    max_tokens: usize,
    record: RequestRecord,
    /// Live sequences; indices from `num_started` on wait until the first one's prompt is computed.
    sequences: Vec<SequenceKey>,
    num_started: u32,
}

/// One sequence's part in an open step. It means this incarnation of the sequence: what comes for another is late.
#[derive(Clone, Copy)]
struct Planned {
    incarnation: u64,
    key: SequenceKey,
    /// Tokens whose KV the step computes.
    num_tokens: u32,
    /// Rows of the step that are its own; a fork has none, it shares those of its request's first sequence.
    num_rows: u32,
    needs_logits: bool,
}

/// A step between `plan` and `commit`.
#[derive(Default)]
struct OpenStep {
    started: Nanos,
    planned: Vec<Planned>,
    num_tokens: usize,
    num_logits_rows: usize,
    /// Those of `planned` that have a logits row.
    sampling: Vec<Planned>,
    /// What `sample` chose, one per logits row; threads fill it.
    sampled: Vec<OnceLock<Sampled>>,
    is_sampled: bool,
}

/// See the module.
pub struct Scheduler {
    intake: Arc<Intake>,
    config: SchedulerConfig,
    vocabulary: Option<Arc<Vocabulary>>,
    eos_token_ids: Arc<[u32]>,
    hasher: Option<BlockHasher>,
    pool: BlockPool,
    /// The newest step's comes last.
    plans: VecDeque<StepPlan>,
    sequences: SequenceArena,
    /// By slot of the request table.
    requests: Vec<Option<Box<ActiveRequest>>>,
    /// Sequences with blocks, first served first.
    running: Vec<(ServiceOrder, SequenceKey)>,
    waiting: WaitingQueue,
    waiting_changed: bool,
    tenants: Tenants,
    /// Sequences of active requests that are not started yet.
    num_held_back: usize,
    /// Oldest first; two at most, one unless steps overlap.
    steps: VecDeque<OpenStep>,
    /// A closed step, whose memory the next one uses.
    spare_step: OpenStep,
    step_number: u64,
    last_commit: Nanos,
    commits: CommitTimes,
    next_arrival: u64,
    /// Of table versions and incarnations.
    next_version: u64,
    counters: Counters,
    step_time: StepTimeModel,
    pace: AdmissionPace,
    waits: Waits,
    forecast: LengthForecast,
    /// First admissions in this plan.
    num_admitted: usize,
    /// Sequences that end in this call.
    ending: Vec<SequenceKey>,
    candidates: Vec<prefilling::Candidate>,
    service_order: Vec<SequenceKey>,
    token_scratch: Vec<u32>,
    /// Of `forecast::peak_blocks`.
    growth: Vec<(usize, usize, usize)>,
    batch: Box<OutputBatch>,
}

impl Scheduler {
    /// A scheduler, its door, and its outputs.
    pub fn new(
        config: SchedulerConfig,
        vocabulary: Option<Arc<Vocabulary>>,
    ) -> Result<(Self, Arc<Intake>, Outputs)> {
        Self::reproducible(config, vocabulary, Clock::default(), [random_u64()?, random_u64()?])
    }

    /// The same by another clock and with a hash key that is known: for simulations.
    pub fn reproducible(
        config: SchedulerConfig,
        vocabulary: Option<Arc<Vocabulary>>,
        clock: Clock,
        hash_key: [u64; 2],
    ) -> Result<(Self, Arc<Intake>, Outputs)> {
        let config = config.validate()?;
        let hasher = if config.enable_prefix_caching {
            Some(BlockHasher::with_key(config.block_size, config.prefix_hash_bits, hash_key)?)
        } else {
            None
        };
        let cache = hasher.is_some().then(|| PrefixCache::new(config.num_blocks, config.block_size));
        let pool = BlockPool::new(config.num_blocks, config.block_size, cache)?;
        let intake = Arc::new(Intake::new(
            config.clone(),
            vocabulary.is_some(),
            hasher.clone(),
            SeedSource::new(hash_key),
            clock,
        ));
        let mut commits = CommitTimes::default();
        // Number 0, which means none.
        commits.push(0);
        let num_plans = if config.overlap_steps { 2 } else { 1 };
        let mut scheduler = Self {
            intake: intake.clone(),
            plans: (0..num_plans).map(|_| StepPlan::new(&config)).collect(),
            eos_token_ids: config.eos_token_ids.as_slice().into(),
            config,
            vocabulary,
            hasher,
            pool,
            sequences: SequenceArena::default(),
            requests: Vec::new(),
            running: Vec::new(),
            waiting: WaitingQueue::default(),
            waiting_changed: false,
            tenants: Tenants::default(),
            num_held_back: 0,
            steps: VecDeque::new(),
            spare_step: OpenStep::default(),
            step_number: 0,
            last_commit: 0,
            commits,
            next_arrival: 0,
            next_version: 0,
            counters: Counters::default(),
            step_time: StepTimeModel::default(),
            pace: AdmissionPace::default(),
            waits: Waits::default(),
            forecast: LengthForecast::default(),
            growth: Vec::new(),
            num_admitted: 0,
            ending: Vec::new(),
            candidates: Vec::new(),
            service_order: Vec::new(),
            token_scratch: Vec::new(),
            batch: Box::default(),
        };
        scheduler.publish_counters();
        let outputs = Outputs::new(intake.clone());
        Ok((scheduler, intake, outputs))
    }

    /// The flat buffers of the newest step plan.
    pub fn step_plan(&self) -> &StepPlan {
        self.plans.back().expect("there is one at least")
    }

    /// The plans in the order in which `plan` will fill them next.
    pub fn step_plans(&self) -> impl Iterator<Item = &StepPlan> {
        self.plans.iter()
    }

    /// The KV blocks.
    pub fn block_pool(&self) -> &BlockPool {
        &self.pool
    }

    /// Steps between `plan` and `commit`.
    pub fn num_open_steps(&self) -> usize {
        self.steps.len()
    }

    /// Whether `plan` would find something to do.
    pub fn has_work(&self) -> bool {
        self.intake.has_news() || !self.running.is_empty() || !self.waiting.is_empty()
    }

    fn request_mut(&mut self, id: RequestId) -> &mut ActiveRequest {
        self.requests[slot_index(id)].as_mut().expect("a live sequence's request is active")
    }

    fn request(&self, id: RequestId) -> &ActiveRequest {
        self.requests[slot_index(id)].as_ref().expect("a live sequence's request is active")
    }

    /// The request, if it is known and not ended.
    fn active(&self, id: RequestId) -> Option<&ActiveRequest> {
        self.requests.get(slot_index(id))?.as_deref().filter(|request| request.id == id)
    }

    fn new_version(&mut self) -> u64 {
        self.next_version += 1;
        self.next_version
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
