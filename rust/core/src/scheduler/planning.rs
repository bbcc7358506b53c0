//! `plan`: who computes how many tokens in this step.
//!
//! Owns: the order of service. Decodes first, one token each; what is left of the budget is shared among prefilling
//! and waiting sequences by water-filling: equal shares, unused parts flow on, so a long prompt can't starve short
//! ones nor they it. A share is never cut below a useful chunk; the oldest is always served, then short before long.
//! Invariants: the step's tokens never exceed the budget; a sequence already in the plan is never preempted; blocks
//! are never taken from an older sequence for a younger one, and the oldest takes its next one first, so somebody
//! always advances.

use super::{Candidate, Planned, Scheduler, SequenceKey};
use crate::error::{Error, Result};
use crate::output::FinishReason;
use crate::sequence::Phase;
use crate::step_plan::PlannedRows;

/// Below this, cutting chunks smaller to serve more prompts at once only delays them all.
const MIN_CHUNK_TOKENS: usize = 64;

impl Scheduler {
    /// Drains what came in, then fills the step plan. True if there is a step to run.
    pub fn plan(&mut self) -> Result<bool> {
        if self.step.is_open {
            return Err(Error::internal("plan() was called while a step was open: commit or abort it first"));
        }
        let now = self.intake.now();
        self.step_number += 1;
        self.step.started = now;
        self.step.is_sampled = false;
        self.step.planned.clear();
        self.plan.clear();
        self.drain_submissions();
        self.drain_cancels();
        self.finish_ending(now);

        self.secure_oldest();
        let budget = self.plan_decodes(self.config.max_num_batched_tokens);
        self.finish_ending(now);
        self.plan_prefills(budget);

        self.publish_positions();
        self.plan.publish();
        self.step.is_open = !self.step.planned.is_empty();
        self.publish_counters();
        Ok(self.step.is_open)
    }

    /// The oldest running sequence takes its next block before anyone else can, so that somebody always advances.
    fn secure_oldest(&mut self) {
        let Some(&(_, oldest)) = self.running.first() else { return };
        let sequence = &self.sequences[oldest];
        let holds_all = sequence.blocks.len() == self.pool.num_usable_blocks();
        if holds_all || sequence.missing_blocks(sequence.computed_tokens + 1, self.config.block_size) == 0 {
            return;
        }
        while !self.take_blocks(oldest, 1) && self.running.len() > 1 {
            self.preempt_last();
        }
    }

    /// One token for every sequence that lacks only one; returns the budget left.
    fn plan_decodes(&mut self, mut budget: usize) -> usize {
        let mut at = 0;
        while at < self.running.len() {
            let key = self.running[at].1;
            let sequence = &self.sequences[key];
            if sequence.remaining_tokens() == 1 {
                let missing = sequence.missing_blocks(sequence.known_tokens(), self.config.block_size);
                if missing == 0 || self.grow(key) {
                    self.sequences[key].planned_in_step = self.step_number;
                    self.push_planned(key, 1);
                    budget -= 1;
                }
            }
            at += 1;
        }
        budget
    }

    /// One more block for a decoding sequence, from a younger one if need be. False: it can't be in this step.
    fn grow(&mut self, key: SequenceKey) -> bool {
        if self.sequences[key].blocks.len() == self.pool.num_usable_blocks() {
            // It holds the whole pool: nobody's end or preemption could ever help.
            self.end_sequence(key, FinishReason::Length.into());
            return false;
        }
        while !self.take_blocks(key, 1) {
            // Older sequences are planned already, so the youngest is the only fair victim: perhaps this one itself.
            let victim = self.preempt_last();
            if victim == key {
                return false;
            }
        }
        true
    }

    pub(super) fn take_blocks(&mut self, key: SequenceKey, count: usize) -> bool {
        let sequence = &mut self.sequences[key];
        let taken = self.pool.allocate(count, &mut sequence.blocks);
        if taken {
            let id = sequence.request;
            self.request_mut(id).record.gain_blocks(count);
        }
        taken
    }

    fn plan_prefills(&mut self, mut budget: usize) {
        let mut candidates = std::mem::take(&mut self.candidates);
        let mut promised_blocks = self.gather_candidates(&mut candidates, budget);
        if let Some(oldest) = candidates.iter().map(|candidate| candidate.order).min() {
            candidates.sort_unstable_by_key(|c| (c.order != oldest, c.remaining, c.order));
        }
        let min_chunk = (self.config.max_num_batched_tokens / 4).clamp(1, MIN_CHUNK_TOKENS);
        let mut is_admitting = true;
        let count = candidates.len();
        for (at, candidate) in candidates.iter_mut().enumerate() {
            if budget == 0 {
                break;
            }
            let share = (budget / (count - at)).max(min_chunk).min(budget);
            if candidate.is_waiting {
                is_admitting = is_admitting && self.admit(candidate.key, &mut promised_blocks);
                if !is_admitting {
                    continue;
                }
                candidate.is_waiting = false;
                candidate.remaining = self.sequences[candidate.key].remaining_tokens();
            }
            budget -= self.extend_chunk(candidate, share, &mut promised_blocks);
        }
        candidates.sort_unstable_by_key(|candidate| candidate.order);
        for candidate in &mut candidates {
            // What the others left unused flows back, oldest first.
            if budget > 0 && !candidate.is_waiting {
                budget -= self.extend_chunk(candidate, budget, &mut promised_blocks);
            }
            if candidate.chunk > 0 {
                self.push_planned(candidate.key, candidate.chunk);
            }
        }
        candidates.clear();
        self.candidates = candidates;
    }

    /// Collects the sequences with something to prefill; returns the blocks that running ones still lack.
    fn gather_candidates(&self, candidates: &mut Vec<Candidate>, budget: usize) -> usize {
        let mut promised_blocks = 0;
        if budget == 0 {
            return 0;
        }
        for &(order, key) in &self.running {
            let sequence = &self.sequences[key];
            if sequence.planned_in_step != self.step_number && sequence.finish.is_none() {
                promised_blocks += sequence.missing_blocks(sequence.known_tokens(), self.config.block_size);
                let remaining = sequence.remaining_tokens();
                candidates.push(Candidate { key, order, remaining, is_waiting: false, chunk: 0 });
            }
        }
        let seats = self.config.max_num_seqs - self.running.len();
        for &(order, key) in self.waiting.iter().take(seats.min(budget)) {
            let remaining = self.sequences[key].remaining_tokens();
            candidates.push(Candidate { key, order, remaining, is_waiting: true, chunk: 0 });
        }
        promised_blocks
    }

    /// Makes the candidate's chunk up to `tokens` longer, as far as blocks can be had; returns by how much.
    fn extend_chunk(
        &mut self,
        candidate: &mut Candidate,
        tokens: usize,
        promised_blocks: &mut usize,
    ) -> usize {
        let Candidate { key, remaining, chunk, .. } = *candidate;
        let wanted = tokens.min(remaining - chunk);
        if wanted == 0 || self.sequences[key].phase == Phase::Waiting {
            return 0;
        }
        let block_size = self.config.block_size;
        let until = self.sequences[key].computed_tokens + chunk;
        let missing = self.sequences[key].missing_blocks(until + wanted, block_size);
        let missing = missing.min(self.pool.num_available_blocks());
        let taken = self.take_blocks(key, missing);
        debug_assert!(taken);
        *promised_blocks = promised_blocks.saturating_sub(missing);
        let room = self.sequences[key].blocks.len() * block_size - until;
        let gained = wanted.min(room);
        if gained > 0 {
            candidate.chunk += gained;
            self.sequences[key].planned_in_step = self.step_number;
        }
        gained
    }

    fn push_planned(&mut self, key: SequenceKey, num_tokens: usize) {
        let sequence = &self.sequences[key];
        let needs_logits = num_tokens == sequence.remaining_tokens();
        self.plan.push(&PlannedRows {
            tokens: sequence.tokens(sequence.computed_tokens, num_tokens),
            first_position: sequence.computed_tokens,
            blocks: &sequence.blocks,
            table_version: sequence.table_version,
            needs_logits,
        });
        self.step.planned.push(Planned { key, num_tokens, needs_logits });
    }

    fn publish_positions(&mut self) {
        if !std::mem::take(&mut self.waiting_changed) {
            return;
        }
        for (position, &(_, key)) in self.waiting.iter().enumerate() {
            let sequence = &self.sequences[key];
            self.intake.table.slot(sequence.request).set_position(position);
        }
    }
}
