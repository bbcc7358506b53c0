//! From waiting to running.
//!
//! Owns: who gets a seat and blocks when, in the order of service. Those behind a head that can't get blocks may pass
//! it, but only so often: then all wait for it, so that it is not starved by those who need less.
//! Invariant: a sequence is admitted only if the blocks for all its known tokens are there and not promised to another
//! prefill or to an answer's next token, so that nobody is preempted for its sake; who was preempted before needs some
//! more, so that it is not preempted again at once.

use std::sync::Arc;

use super::forecast::peak_blocks;
use super::policy::{PreemptionVictim, SchedulingPolicy};
use super::{Scheduler, SequenceKey};
use crate::progress::RequestState;
use crate::sequence::{Phase, Sequence};

/// While the head of the queue can't get blocks, so many others may pass it before all wait for it.
const MAX_PASSES: u32 = 16;

/// Nor are more than so many others looked at in one step.
const MAX_LOOKS: usize = 16;

/// Room that an answer is given at once, at most.
const MOST_RESERVED_TOKENS: usize = 4096;

/// Blocks to grow into that a resumed sequence needs beyond its known tokens, for each time it was preempted.
const RESUME_HEADROOM_BLOCKS: usize = 2;

impl Scheduler {
    /// Admits who may be, as many as this step can serve.
    pub(super) fn admit_waiting(&mut self) {
        let may_make_room = self.config.scheduling_policy != SchedulingPolicy::Fcfs;
        let seats = self.config.max_num_seqs - self.running.len();
        if self.waiting.is_empty() || (seats == 0 && !may_make_room) {
            return;
        }
        let (mut budget, mut promised) = self.unspoken_budget();
        let mut order = std::mem::take(&mut self.service_order);
        order.clear();
        self.waiting.in_service_order(&self.tenants, seats.max(1) + MAX_LOOKS, &mut order);
        let (mut head, mut looks) = (None, 0);
        for &key in &order {
            if budget == 0 || looks == MAX_LOOKS {
                break;
            }
            if self.running.len() == self.config.max_num_seqs && !self.make_seat(key) {
                break;
            }
            if self.admit(key, &mut promised) || self.admit_by_preemption(key, &mut promised) {
                budget = budget.saturating_sub(self.claim(key));
                if let Some(head) = head {
                    self.sequences[head].passed_by += 1;
                }
            } else {
                looks += 1;
                head.get_or_insert(key);
            }
            if head.is_some_and(|head: SequenceKey| self.sequences[head].passed_by >= MAX_PASSES) {
                break;
            }
        }
        self.service_order = order;
    }

    /// Tokens that a prefilling sequence can count on in this step.
    fn claim(&self, key: SequenceKey) -> usize {
        let remaining = self.sequences[key].remaining_tokens();
        match self.config.scheduling_policy {
            SchedulingPolicy::Priority => remaining,
            SchedulingPolicy::Fcfs | SchedulingPolicy::Fair => remaining.min(self.min_chunk_tokens()),
        }
    }

    /// What the running sequences leave of the step's tokens, and the blocks that they still lack.
    fn unspoken_budget(&self) -> (usize, usize) {
        let (mut decodes, mut chunks, mut promised) = (0, 0, self.blocks_for_next_tokens());
        for &(_, key) in &self.running {
            let sequence = &self.sequences[key];
            if sequence.lacks_one_token() {
                decodes += 1;
            } else if sequence.is_prefilling() {
                chunks += self.claim(key);
                promised += sequence.missing_blocks(sequence.known_tokens(), self.config.block_size);
            }
        }
        let budget = self.within_target(self.config.max_num_batched_tokens - decodes);
        (budget.saturating_sub(chunks), promised)
    }

    /// Whether the pool will hold the running sequences and this one until they end, as far as can be foretold. Its
    /// prefix is found, but not held yet.
    fn will_fit(&mut self, key: SequenceKey) -> bool {
        if self.config.preemption_victim == PreemptionVictim::Youngest || self.running.is_empty() {
            return true;
        }
        let block_size = self.config.block_size;
        let mut growth = std::mem::take(&mut self.growth);
        growth.clear();
        // Blocks that several of them hold count once: those with owners, beside what is still to be computed.
        let mut shared = self.pool.num_used_blocks();
        for key in self.running.iter().map(|&(_, key)| key).chain([key]) {
            let sequence = &self.sequences[key];
            let known = sequence.known_tokens();
            let blocks = known.div_ceil(block_size);
            let remaining = self.forecast_remaining(sequence);
            if sequence.phase == Phase::Waiting {
                let held = sequence.blocks.iter().filter(|&&block| !self.pool.is_cached(block)).count();
                growth.push((blocks - held, blocks * block_size - known, remaining));
            } else {
                // What it holds is among the shared; it leaves with it, or stays: the sum is an upper bound.
                let own = sequence.blocks.len().min(shared);
                shared -= own;
                growth.push((
                    own + blocks.saturating_sub(sequence.blocks.len()),
                    blocks * block_size - known,
                    remaining,
                ));
            }
        }
        let usable = self.pool.num_usable_blocks();
        // If there is room for all of them at their ends, who ends when need not be looked at.
        let at_the_ends =
            |&(blocks, _, remaining): &(usize, usize, usize)| blocks + remaining.div_ceil(block_size);
        let fits = shared + growth.iter().map(at_the_ends).sum::<usize>() <= usable
            || shared + peak_blocks(&mut growth, block_size) <= usable;
        self.growth = growth;
        fits
    }

    /// Tokens that its answer will probably still get.
    pub(super) fn forecast_remaining(&self, sequence: &Sequence) -> usize {
        let ends = &sequence.ends;
        let most = ends.max_tokens as usize;
        self.forecast.remaining_tokens(sequence.output.len(), most, ends.has_limit.then_some(most))
    }

    /// Moves a waiting sequence to running, with what the prefix cache holds for it. False if blocks are short.
    pub(super) fn admit(&mut self, key: SequenceKey, promised_blocks: &mut usize) -> bool {
        let available = self.pool.num_available_blocks();
        let sequence = &mut self.sequences[key];
        let (order, tenant) = (sequence.order, sequence.tenant);
        let hits = sequence.find_prefix(&self.pool);
        let idle_hits = sequence.blocks.iter().filter(|&&block| self.pool.is_cached(block)).count();
        let fresh = sequence.missing_blocks(sequence.known_tokens(), self.config.block_size);
        // Running sequences will want to grow before this one ends, and it will, too.
        let mut headroom = self.running.len().min(self.pool.num_usable_blocks() / 64 + 1);
        if !self.running.is_empty() {
            headroom += sequence.preemptions as usize * RESUME_HEADROOM_BLOCKS;
        }
        let fits_now = available - idle_hits >= fresh + *promised_blocks + headroom;
        if !fits_now || !self.will_fit(key) {
            self.sequences[key].blocks.clear();
            return false;
        }
        let sequence = &mut self.sequences[key];
        sequence.hold_prefix(&mut self.pool);
        *promised_blocks += fresh;
        let (id, index) = (sequence.request, sequence.index);
        let is_first = !std::mem::replace(&mut sequence.was_admitted, true);
        sequence.phase = Phase::Prefill;
        // Sequences that began together would all move their answers in the same step.
        sequence.output.reserve((sequence.ends.max_tokens as usize).min(MOST_RESERVED_TOKENS));
        let (known, preemptions) = (sequence.known_tokens(), sequence.preemptions);
        let cached = hits * self.config.block_size;
        let lane = self.lane(tenant);
        self.waiting.remove(lane, order, key);
        self.waiting_changed = true;
        let at = self.running.partition_point(|&(other, _)| other < order);
        self.running.insert(at, (order, key));
        self.tenants.start_running(tenant);

        let started = self.steps.back().expect("a step is being planned").started;
        let intake = Arc::clone(&self.intake);
        let slot = intake.table.slot(id);
        slot.set_state(RequestState::Prefill);
        slot.set_prefill(cached, known);
        let record = &mut self.request_mut(id).record;
        record.gain_blocks(hits);
        if is_first && index == 0 {
            record.first_scheduled = Some(started);
            record.cached_tokens = cached as u32;
            slot.set_cached_tokens(cached);
            intake.submissions.leave();
            self.num_admitted += 1;
            self.counters.prompt_tokens += known as u64;
            self.counters.cached_tokens += cached as u64;
            self.counters.prefix_cache_queries_tokens += known as u64;
        } else if preemptions > 0 {
            // All but the newest token had been computed before.
            let again = (known - 1).saturating_sub(cached);
            record.recomputed_tokens += again as u32;
            self.counters.recomputed_tokens += again as u64;
        }
        true
    }
}
