//! The half of the core that every thread may call: the door, the cancel flags, the outputs.
//!
//! Owns: the submission queue, the request table, the list of fresh cancels, the wake-up, the shared counters.
//! Invariants: a request that was accepted ends exactly once; nothing is accepted that could never run.
//! Lock-free: submit, cancel, progress and take never wait for the engine thread, nor it for them.
//! Must not know: how the scheduler orders and places work.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use crossbeam_queue::SegQueue;

use crate::clock::{Clock, Nanos};
use crate::error::{Error, ErrorCode, Result};
use crate::output::PendingOutput;
use crate::prefix_cache::{BlockHasher, random_u64};
use crate::progress::RequestProgress;
use crate::queue::SubmissionQueue;
use crate::request::{self, Request};
use crate::request_table::{RequestId, RequestTable};
use crate::sampling_params::SamplingParams;
use crate::scheduler::config::SchedulerConfig;
use crate::stats::{SchedulerStats, SharedCounters};
use crate::wake::WakeUp;

/// What a refused client may wait before it tries again, while nothing better is known.
const RETRY_AFTER_MS: u64 = 1000;

/// Shared by all threads, through an `Arc`.
pub struct Intake {
    config: SchedulerConfig,
    has_vocabulary: bool,
    hasher: Option<BlockHasher>,
    clock: Clock,
    pub(crate) table: RequestTable,
    pub(crate) submissions: SubmissionQueue<Request>,
    /// Ids whose cancel flag was raised since the last drain. The flag is the truth, the list saves a search.
    pub(crate) cancels: SegQueue<RequestId>,
    pub(crate) counters: SharedCounters,
    /// Accepted and not ended.
    unfinished: AtomicUsize,
    closed: AtomicBool,
    wake: WakeUp,
}

impl Intake {
    pub(crate) fn new(config: SchedulerConfig, has_vocabulary: bool, hasher: Option<BlockHasher>) -> Self {
        Self {
            submissions: SubmissionQueue::new(config.max_queued_requests),
            config,
            has_vocabulary,
            hasher,
            clock: Clock::default(),
            table: RequestTable::default(),
            cancels: SegQueue::new(),
            counters: SharedCounters::default(),
            unfinished: AtomicUsize::new(0),
            closed: AtomicBool::new(false),
            wake: WakeUp::default(),
        }
    }

    /// Sizes and limits.
    pub fn config(&self) -> &SchedulerConfig {
        &self.config
    }

    /// Now, on the core's clock.
    pub fn now(&self) -> Nanos {
        self.clock.now()
    }

    /// Validates every limit and queues the request. `age`: how long ago it came to the door.
    pub fn submit(
        &self,
        prompt_token_ids: Arc<[u32]>,
        params: Arc<SamplingParams>,
        age: Duration,
    ) -> Result<RequestId> {
        let max_tokens = request::check(&self.config, self.has_vocabulary, &prompt_token_ids, &params)?;
        let seed = match params.seed {
            Some(seed) => seed,
            None => random_u64()?,
        };
        let prompt_hashes =
            self.hasher.as_ref().map_or_else(Vec::new, |hasher| hasher.chain(&prompt_token_ids));
        if self.closed.load(Ordering::Acquire) {
            let message = "the engine takes no new requests: it is shutting down";
            return Err(Error::new(ErrorCode::Overloaded, message).with_retry_after_ms(RETRY_AFTER_MS));
        }
        let Some(position) = self.submissions.reserve() else {
            let bound = self.submissions.bound();
            let message = format!("{bound} requests wait already, as many as may (max_queued_requests)");
            return Err(Error::new(ErrorCode::QueueFull, message).with_retry_after_ms(RETRY_AFTER_MS));
        };
        let id = self.table.acquire(prompt_token_ids.len(), position);
        let arrival = self.now().saturating_sub(age.as_nanos() as Nanos);
        self.unfinished.fetch_add(1, Ordering::AcqRel);
        self.submissions.push(Request {
            id,
            prompt_token_ids,
            prompt_hashes,
            params,
            seed,
            max_tokens,
            arrival,
        });
        self.wake.notify();
        Ok(id)
    }

    /// The most completion tokens a sequence of such a request can get.
    pub fn max_tokens_for(&self, prompt_tokens: usize, params: &SamplingParams) -> Result<usize> {
        let max_tokens = request::max_completion_tokens(&self.config, prompt_tokens, params)?;
        Ok(max_tokens.min(self.config.completion_room(prompt_tokens)))
    }

    /// Ends the request within one step. Idempotent; unknown ids are ignored.
    pub fn cancel(&self, id: RequestId) {
        if self.table.cancel(id) {
            self.cancels.push(id);
            self.wake.notify();
        }
    }

    /// Cancels the request if it is unfinished and drops all that it has given or will give.
    pub fn release(&self, id: RequestId) {
        if self.table.release(id) {
            self.cancels.push(id);
            self.wake.notify();
        }
    }

    /// A glance at the request.
    pub fn progress(&self, id: RequestId) -> Option<RequestProgress> {
        self.table.progress(id)
    }

    /// The scheduler's figures as of its last step, and the queue's as of now.
    pub fn stats(&self) -> SchedulerStats {
        let mut counters = self.counters.read();
        counters.num_waiting += self.submissions.len() as u64;
        SchedulerStats {
            counters,
            total_blocks: self.config.num_usable_blocks(),
            kv_bytes_per_block: self.config.kv_bytes_per_block,
            uptime: self.now(),
        }
    }

    /// Requests that are unfinished or whose last output nobody has taken or released.
    pub fn num_live_requests(&self) -> usize {
        self.table.num_live()
    }

    /// Whether any accepted request has not ended.
    pub fn has_unfinished_requests(&self) -> bool {
        self.unfinished.load(Ordering::Acquire) > 0
    }

    /// A cheap upper bound of the sequences that the next `plan` looks at.
    pub fn num_sequences_at_most(&self) -> usize {
        self.submissions.num_waiting() + self.config.max_num_seqs.min(self.table.num_live())
    }

    pub(crate) fn request_ended(&self) {
        self.unfinished.fetch_sub(1, Ordering::AcqRel);
    }

    /// Whether something came that no `plan` has seen.
    pub fn has_news(&self) -> bool {
        !self.submissions.is_empty() || !self.cancels.is_empty()
    }

    /// Engine thread: parks until something comes that no `plan` has seen; False on timeout or `wake`.
    pub fn wait_for_news(&self, timeout: Duration) -> bool {
        self.wake.sleep(timeout, || self.has_news())
    }

    /// Ends a `wait_for_news` early.
    pub fn wake(&self) {
        self.wake.wake();
    }

    /// Refuses further submits; what was accepted goes on.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.wake();
    }

    /// Consumer: whether `take_ready` would give anything.
    pub fn has_ready(&self) -> bool {
        self.table.has_ready()
    }

    /// Consumer: requests with something to take, each once.
    pub fn take_ready(&self) -> Vec<RequestId> {
        let mut ids = Vec::new();
        self.table.take_ready(&mut ids);
        ids
    }

    /// Consumer: all that is new of one request.
    pub fn take_output(&self, id: RequestId) -> Option<Box<PendingOutput>> {
        self.table.take(id)
    }
}
