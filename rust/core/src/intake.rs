//! The half of the core that every thread may call: the door, the cancel flags, the figures.
//!
//! Owns: the submission queue, the request table, the wake-up, the shared counters, the way of the outputs.
//! Invariants: a request that was accepted ends exactly once; nothing is accepted that could never run.
//! Lock-free: submit, cancel, progress and release never wait for the engine thread, nor it for them.
//! Must not know: how the scheduler orders and places work.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use pagurid_lockfree::{BatchChannel, SubmissionQueue, WakeUp};

use crate::block_hash::BlockHasher;
use crate::clock::{Clock, Nanos, as_ms};
use crate::error::{Error, ErrorCode, Result};
use crate::output_batch::OutputBatch;
use crate::progress::RequestProgress;
use crate::request::{self, Request, RequestOptions};
use crate::request_table::{RequestId, RequestTable};
use crate::sampling_params::SamplingParams;
use crate::scheduler::config::SchedulerConfig;
use crate::scheduler::wait_estimate::SharedWaits;
use crate::seeds::SeedSource;
use crate::stats::{SchedulerStats, SharedCounters};

/// What a refused client may wait before it tries again, while nothing better is known.
const RETRY_AFTER_MS: f64 = 1000.0;

/// Nobody is told to come back sooner or later than this.
const RETRY_AFTER_RANGE_MS: (f64, f64) = (100.0, 120_000.0);

/// Shared by all threads, through an `Arc`.
pub struct Intake {
    config: SchedulerConfig,
    has_vocabulary: bool,
    hasher: Option<BlockHasher>,
    seeds: SeedSource,
    clock: Clock,
    pub(crate) table: RequestTable,
    pub(crate) submissions: SubmissionQueue<Request>,
    pub(crate) outputs: BatchChannel<OutputBatch>,
    pub(crate) counters: SharedCounters,
    /// How long those who come now will wait; unknown while nobody waits.
    pub(crate) waits: SharedWaits,
    /// Accepted and not ended.
    unfinished: AtomicUsize,
    closed: AtomicBool,
    wake: WakeUp,
}

impl Intake {
    pub(crate) fn new(
        config: SchedulerConfig,
        has_vocabulary: bool,
        hasher: Option<BlockHasher>,
        seeds: SeedSource,
        clock: Clock,
    ) -> Self {
        Self {
            submissions: SubmissionQueue::new(config.max_queued_requests),
            table: RequestTable::new(config.max_queued_requests + config.max_num_seqs),
            config,
            has_vocabulary,
            hasher,
            seeds,
            clock,
            outputs: BatchChannel::default(),
            counters: SharedCounters::default(),
            waits: SharedWaits::default(),
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

    /// Validates every limit and queues the request.
    pub fn submit(
        &self,
        prompt_token_ids: Arc<[u32]>,
        params: Arc<SamplingParams>,
        options: RequestOptions,
    ) -> Result<RequestId> {
        let config = &self.config;
        let max_tokens = request::check(config, self.has_vocabulary, &prompt_token_ids, &params, &options)?;
        let seed = match params.seed {
            Some(seed) => seed,
            None => self.seeds.next(),
        };
        let scope = options.scope(config);
        let prompt_hashes =
            self.hasher.as_ref().map_or_else(Vec::new, |hasher| hasher.chain(&scope, &prompt_token_ids));
        if self.closed.load(Ordering::Acquire) {
            let message = "the engine takes no new requests: it is shutting down";
            return Err(Error::new(ErrorCode::Overloaded, message).with_retry_after_ms(RETRY_AFTER_MS as u64));
        }
        let position = self.reserve()?;
        let id = self.table.acquire(prompt_token_ids.len(), position, self.wait_ms_estimate(position));
        let arrival = self.now().saturating_sub(options.age.as_nanos() as Nanos);
        self.unfinished.fetch_add(1, Ordering::AcqRel);
        self.submissions.push(Request {
            id,
            prompt_token_ids,
            prompt_hashes,
            params,
            options,
            scope,
            seed,
            max_tokens,
            arrival,
        });
        self.wake.notify();
        Ok(id)
    }

    /// A place in the queue: its number, or when to come back.
    fn reserve(&self) -> Result<usize> {
        let refuse = |message: String, wait_ms: f64| {
            let (least, most) = RETRY_AFTER_RANGE_MS;
            let wait_ms = wait_ms.clamp(least, most).ceil() as u64;
            Err(Error::new(ErrorCode::QueueFull, message).with_retry_after_ms(wait_ms))
        };
        let waiting = self.submissions.num_waiting();
        // Who would be the first is never refused: without a step, nothing would ever correct the estimate.
        if waiting > 0
            && let (Some(estimate), Some(limit)) =
                (self.wait_ms_estimate(waiting), self.config.max_queue_wait_ms)
            && estimate > limit
        {
            let message = format!(
                "the request would wait for about {estimate:.0} ms behind {waiting} others, longer than the \
                 {limit:.0} ms that one may (max_queue_wait_ms)"
            );
            return refuse(message, estimate - limit);
        }
        self.submissions.reserve().map_or_else(
            || {
                let bound = self.submissions.bound();
                let message = format!("{bound} requests wait already, as many as may (max_queued_requests)");
                // By then a quarter of them will have gone: others were refused, too.
                refuse(message, self.wait_ms_estimate(bound / 4).unwrap_or(RETRY_AFTER_MS))
            },
            Ok,
        )
    }

    /// How long a request behind `position` others will probably wait; None while nothing is known.
    fn wait_ms_estimate(&self, position: usize) -> Option<f64> {
        self.waits.wait(self.now(), position).map(as_ms)
    }

    /// The most completion tokens a sequence of such a request can get.
    pub fn max_tokens_for(&self, prompt_tokens: usize, params: &SamplingParams) -> Result<usize> {
        let max_tokens = request::max_completion_tokens(&self.config, prompt_tokens, params)?;
        Ok(max_tokens.min(self.config.completion_room(prompt_tokens)))
    }

    /// Ends the request within one step. Idempotent; unknown ids are ignored.
    pub fn cancel(&self, id: RequestId) {
        if self.table.cancel(id) {
            self.wake.notify();
        }
    }

    /// Cancels the request if it is unfinished and drops all that it has given or will give.
    pub fn release(&self, id: RequestId) {
        // Released first: who sees the end that the cancel brings finds that nobody wants it.
        self.table.release(id);
        self.cancel(id);
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
        !self.submissions.is_empty() || self.table.has_cancelled()
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

    /// Whether the consumer would find anything new.
    pub fn has_ready(&self) -> bool {
        self.outputs.has_news()
    }
}
