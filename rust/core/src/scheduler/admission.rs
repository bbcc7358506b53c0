//! The ways between the door, waiting and running: drain, admit, preempt.
//!
//! Owns: both orders. Admission is first come, first served: while the head can't get blocks, nobody passes it.
//! Invariant: a sequence is admitted only if the blocks for all its known tokens are there and not promised to
//! another prefill, so that prefills don't take blocks from each other and then preempt each other.

use std::sync::Arc;

use super::{ActiveRequest, Scheduler, SequenceKey};
use crate::detokenizer::Detokenizer;
use crate::metrics::RequestRecord;
use crate::output::FinishReason;
use crate::progress::RequestState;
use crate::request::Request;
use crate::request_table::{RequestId, slot_index};
use crate::sampling::SequenceSampler;
use crate::sequence::{Phase, Sequence};

/// Sequences per request in `Sequence::order`; `SamplingParams` allows fewer.
const ORDER_STRIDE: u64 = 1 << 10;

impl Scheduler {
    pub(super) fn drain_submissions(&mut self) {
        // As many as are there now, so that fast submitters can't hold up the step.
        for _ in 0..self.intake.submissions.len() {
            let Some(request) = self.intake.submissions.pop() else { break };
            let id = request.id;
            self.activate(request);
            // The flag, not the list: a cancel may have been drained before its request was.
            if self.intake.table.is_cancelled(id) {
                self.end_request(id, &FinishReason::Cancelled.into());
            }
        }
    }

    pub(super) fn drain_cancels(&mut self) {
        while let Some(id) = self.intake.cancels.pop() {
            if self.active(id).is_some() {
                self.end_request(id, &FinishReason::Cancelled.into());
            }
        }
    }

    fn activate(&mut self, request: Request) {
        let Request { id, prompt_token_ids, prompt_hashes, params, seed, max_tokens, arrival } = request;
        let record = RequestRecord {
            arrival,
            prompt_tokens: prompt_token_ids.len() as u32,
            ..RequestRecord::default()
        };
        let arrival_number = self.next_arrival;
        self.next_arrival += 1;
        self.num_held_back += params.n as usize - 1;
        let slot = slot_index(id);
        if self.requests.len() <= slot {
            self.requests.resize_with(slot + 1, || None);
        }
        self.requests[slot] = Some(Box::new(ActiveRequest {
            id,
            arrival_number,
            params,
            prompt: prompt_token_ids,
            prompt_hashes,
            seed,
            max_tokens,
            record,
            sequences: Vec::new(),
            num_started: 0,
        }));
        self.start_sequence(id);
    }

    /// Puts the request's next sequence into the waiting order.
    fn start_sequence(&mut self, id: RequestId) {
        let (vocabulary, eos_token_ids) = (self.vocabulary.clone(), self.eos_token_ids.clone());
        let table_version = self.new_table_version();
        let request = self.request_mut(id);
        let index = request.num_started;
        request.num_started += 1;
        let order = request.arrival_number * ORDER_STRIDE + u64::from(index);
        let sequence = Sequence {
            request: id,
            index,
            order,
            prompt: request.prompt.clone(),
            output: Vec::new(),
            computed_tokens: 0,
            blocks: Vec::new(),
            table_version,
            hashes: request.prompt_hashes.clone(),
            published_blocks: 0,
            publishable: true,
            max_tokens: request.max_tokens,
            planned_in_step: 0,
            last_token: None,
            detokenizer: vocabulary.map(|vocabulary| Detokenizer::for_request(vocabulary, &request.params)),
            sampler: SequenceSampler::new(
                request.params.clone(),
                &eos_token_ids,
                request.seed,
                index,
                &request.prompt,
            ),
            finish: None,
            was_admitted: false,
            phase: Phase::Waiting,
        };
        let key = self.sequences.insert(sequence);
        self.request_mut(id).sequences.push(key);
        self.waiting.insert((order, key));
        self.waiting_changed = true;
    }

    /// The prompt of the request's first sequence is computed: the others can share its blocks now.
    pub(super) fn start_held_back(&mut self, id: RequestId) {
        let request = self.request(id);
        let held_back = request.params.n - request.num_started;
        for _ in 0..held_back {
            self.start_sequence(id);
        }
        self.num_held_back -= held_back as usize;
    }

    /// Moves a waiting sequence to running, with what the prefix cache holds for it. False if blocks are short.
    pub(super) fn admit(&mut self, key: SequenceKey, promised_blocks: &mut usize) -> bool {
        let available = self.pool.num_available_blocks();
        let sequence = &mut self.sequences[key];
        let order = sequence.order;
        let hits = sequence.find_prefix(&self.pool);
        let idle_hits = sequence.blocks.iter().filter(|&&block| self.pool.references(block) == 0).count();
        let fresh = sequence.missing_blocks(sequence.known_tokens(), self.config.block_size);
        // Running sequences will want to grow before this one ends.
        let headroom = self.running.len().min(self.pool.num_usable_blocks() / 64 + 1);
        if available - idle_hits < fresh + *promised_blocks + headroom {
            sequence.blocks.clear();
            return false;
        }
        sequence.hold_prefix(&mut self.pool);
        *promised_blocks += fresh;
        let (id, index) = (sequence.request, sequence.index);
        let is_first = !std::mem::replace(&mut sequence.was_admitted, true);
        sequence.phase = Phase::Prefill;
        let known = sequence.known_tokens();
        let cached = hits * self.config.block_size;
        self.waiting.remove(&(order, key));
        self.waiting_changed = true;
        let at = self.running.partition_point(|&(other, _)| other < order);
        self.running.insert(at, (order, key));

        let started = self.step.started;
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
            self.counters.prompt_tokens += known as u64;
            self.counters.cached_tokens += cached as u64;
            self.counters.prefix_cache_queries_tokens += known as u64;
        }
        true
    }

    /// Sends the youngest running sequence back to waiting; its full blocks stay in the prefix cache.
    pub(super) fn preempt_last(&mut self) -> SequenceKey {
        let (order, key) = self.running.pop().expect("the caller has seen a running sequence");
        let table_version = self.new_table_version();
        let sequence = &mut self.sequences[key];
        debug_assert!(sequence.planned_in_step != self.step_number && sequence.finish.is_none());
        let count = sequence.give_back_blocks(&mut self.pool);
        sequence.phase = Phase::Waiting;
        sequence.table_version = table_version;
        let (id, known) = (sequence.request, sequence.known_tokens());
        if known > self.config.pool_tokens() {
            // It held the whole pool, with others: it could never be resumed.
            self.end_sequence(key, FinishReason::Length.into());
        } else {
            self.waiting.insert((order, key));
            self.waiting_changed = true;
        }
        self.counters.preemptions += 1;
        let request = self.request_mut(id);
        request.record.lose_blocks(count);
        request.record.preemptions += 1;
        self.intake.table.slot(id).set_state(RequestState::Preempted);
        key
    }
}
