//! What is left of a step's budget after the decodes: chunks of prompts.
//!
//! Owns: the shares. Water-filling: equal shares, unused parts flow on, so a long prompt can't starve short ones nor
//! they it. A share is never cut below a useful chunk; the first in the order of service is always served, then short
//! before long. Under the fair policy the least served tenant takes what its prompts can use, in equal shares; under the
//! priority policy who comes first does.
//! Invariant: while answers are running and a step-time target is set, the step's tokens stay within what fits it.

use super::policy::{SchedulingPolicy, ServiceOrder};
use super::tenants::TenantKey;
use super::{Scheduler, SequenceKey};
use crate::clock::from_ms;
use crate::sequence::Phase;

/// Below this, cutting chunks smaller to serve more prompts at once only delays them all.
const MIN_CHUNK_TOKENS: usize = 64;

/// With a step-time target, prompts advance by so much in a step at least, whatever the target says.
const LEAST_BUDGET_TOKENS: usize = 16;

/// A sequence that could compute a part of its known tokens in this step.
#[derive(Clone, Copy)]
pub(super) struct Candidate {
    key: SequenceKey,
    order: ServiceOrder,
    /// 0 for all, unless tenants are told apart; the same holds for what they were served.
    tenant: TenantKey,
    served: u64,
    remaining: usize,
    chunk: usize,
}

impl Scheduler {
    pub(super) fn plan_prefills(&mut self, budget: usize) {
        let mut budget = self.within_target(budget);
        let mut candidates = std::mem::take(&mut self.candidates);
        self.gather_candidates(&mut candidates);
        let first = candidates.iter().map(|candidate| candidate.order).min();
        candidates.sort_unstable_by_key(|c| match self.config.scheduling_policy {
            SchedulingPolicy::Fcfs => (u64::from(Some(c.order) != first), 0, c.remaining, c.order),
            SchedulingPolicy::Priority => (0, 0, 0, c.order),
            SchedulingPolicy::Fair => (c.served, c.tenant, c.remaining, c.order),
        });
        let min_chunk = self.min_chunk_tokens();
        for at in 0..candidates.len() {
            let share = (budget / self.sharers(&candidates[at..])).max(min_chunk).min(budget);
            budget -= self.extend_chunk(&mut candidates[at], share);
        }
        candidates.sort_unstable_by_key(|candidate| (candidate.served, candidate.order));
        for candidate in &mut candidates {
            // What the others left unused flows back.
            budget -= self.extend_chunk(candidate, budget);
            if candidate.chunk > 0 {
                self.push_chunk(candidate.key, candidate.chunk);
            }
        }
        candidates.clear();
        self.candidates = candidates;
    }

    /// A useful chunk of a prompt.
    pub(super) fn min_chunk_tokens(&self) -> usize {
        (self.config.max_num_batched_tokens / 4).clamp(1, MIN_CHUNK_TOKENS)
    }

    /// The part of the budget that keeps the step-time target.
    pub(super) fn within_target(&self, budget: usize) -> usize {
        let decodes = self.config.max_num_batched_tokens - budget;
        let Some(target_ms) = self.config.step_time_target_ms.filter(|_| decodes > 0) else { return budget };
        match self.step_time.tokens_within(from_ms(target_ms)) {
            Some(tokens) => tokens.saturating_sub(decodes).max(LEAST_BUDGET_TOKENS).min(budget),
            None => budget,
        }
    }

    /// Into how many equal shares the budget goes: the first of `candidates` gets one of them.
    fn sharers(&self, candidates: &[Candidate]) -> usize {
        match self.config.scheduling_policy {
            SchedulingPolicy::Fcfs => candidates.len(),
            SchedulingPolicy::Priority => 1,
            SchedulingPolicy::Fair => {
                // They are sorted by tenant.
                let first = candidates[0].tenant;
                candidates.iter().take_while(|candidate| candidate.tenant == first).count()
            }
        }
    }

    /// Collects the running sequences with something to prefill.
    fn gather_candidates(&self, candidates: &mut Vec<Candidate>) {
        let is_fair = self.config.scheduling_policy == SchedulingPolicy::Fair;
        for &(order, key) in &self.running {
            let sequence = &self.sequences[key];
            if sequence.is_prefilling() && sequence.planned_in_step != self.step_number {
                let tenant = if is_fair { sequence.tenant } else { 0 };
                let served = if is_fair { self.tenants.served(tenant) } else { 0 };
                let remaining = sequence.remaining_tokens();
                candidates.push(Candidate { key, order, tenant, served, remaining, chunk: 0 });
            }
        }
    }

    /// Makes the candidate's chunk up to `tokens` longer, as far as blocks can be had; returns by how much.
    fn extend_chunk(&mut self, candidate: &mut Candidate, tokens: usize) -> usize {
        let Candidate { key, remaining, chunk, .. } = *candidate;
        let wanted = tokens.min(remaining - chunk);
        if wanted == 0 {
            return 0;
        }
        debug_assert_eq!(self.sequences[key].phase, Phase::Prefill);
        let block_size = self.config.block_size;
        let until = self.sequences[key].planned_tokens + chunk;
        let missing = self.sequences[key].missing_blocks(until + wanted, block_size);
        let missing = missing.min(self.pool.num_available_blocks());
        let taken = self.take_blocks(key, missing);
        debug_assert!(taken, "the blocks were counted");
        let room = self.sequences[key].blocks.len() * block_size - until;
        let gained = wanted.min(room);
        if gained > 0 {
            candidate.chunk += gained;
            self.sequences[key].planned_in_step = self.step_number;
        }
        gained
    }
}
