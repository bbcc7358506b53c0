//! Who gives way when blocks or seats run out, and how.
//!
//! Owns: the choice of the victim. What a preemption wastes is what must be computed again: the tokens of the blocks
//! that nobody else holds. What it gives is these blocks for as long as the victim would have held them: who will end
//! soon gives them back for nothing. Who wastes least for what it gives is chosen, but not a sequence that has lost its
//! blocks often enough, as long as there is another.
//! Invariants: the first in the order of service and whoever is in the plan under way are never chosen, so somebody
//! always advances and no step is planned with blocks that are gone.

use std::cmp::Reverse;

use super::policy::{PreemptionVictim, SchedulingPolicy};
use super::{Scheduler, SequenceKey};
use crate::output::FinishReason;
use crate::progress::RequestState;
use crate::sequence::{Phase, Sequence};

/// After so many preemptions a sequence is chosen only if all others have had as many.
const MAX_PREEMPTIONS: u32 = 3;

impl Scheduler {
    /// The sequence to preempt among those that `may_be_chosen`.
    pub(super) fn choose_victim(&self, may_be_chosen: impl Fn(&Sequence) -> bool) -> Option<SequenceKey> {
        let others = self.running.iter().skip(1);
        let candidates = others.filter(|&&(_, key)| {
            let sequence = &self.sequences[key];
            sequence.finish.is_none()
                && sequence.planned_in_step != self.step_number
                && may_be_chosen(sequence)
        });
        if self.config.preemption_victim == PreemptionVictim::Youngest {
            return candidates.last().map(|&(_, key)| key);
        }
        let cost = |&&(order, key): &&(_, SequenceKey)| {
            let sequence = &self.sequences[key];
            let standing = match self.config.scheduling_policy {
                SchedulingPolicy::Fcfs => 0,
                SchedulingPolicy::Priority => i64::from(sequence.priority),
                SchedulingPolicy::Fair => self.tenants.served(sequence.tenant) as i64,
            };
            let is_protected = sequence.preemptions >= MAX_PREEMPTIONS;
            (is_protected, Reverse(standing), self.price(sequence), Reverse(order))
        };
        candidates.min_by_key(cost).map(|&(_, key)| key)
    }

    /// What a preemption costs for what it gives: tokens to compute again, over blocks × tokens for which they would
    /// have been held.
    fn price(&self, sequence: &Sequence) -> u64 {
        let freed = sequence.blocks.len() as u64 * self.forecast_remaining(sequence).max(1) as u64;
        ((self.wasted_tokens(sequence) as u64) << 20) / freed.max(1)
    }

    /// Tokens that a preemption would make us compute again.
    fn wasted_tokens(&self, sequence: &Sequence) -> usize {
        // Blocks that others hold, beside the prefix cache, stay whatever happens.
        let is_shared = |&&block: &&u32| self.pool.owners(block) > 1;
        let kept = sequence.blocks.iter().take_while(is_shared).count() * self.config.block_size;
        sequence.planned_tokens.saturating_sub(kept)
    }

    /// Sends a running sequence back to waiting; its full blocks stay in the prefix cache as long as they can.
    pub(super) fn preempt(&mut self, key: SequenceKey) {
        let (incarnation, table_version) = (self.new_version(), self.new_version());
        self.publish_computed_blocks(key);
        let sequence = &mut self.sequences[key];
        let (order, lane) = (sequence.order, sequence.tenant);
        let count = sequence.give_back_blocks(&mut self.pool);
        (sequence.incarnation, sequence.table_version) = (incarnation, table_version);
        sequence.phase = Phase::Waiting;
        sequence.preemptions += 1;
        sequence.passed_by = 0;
        let (id, known) = (sequence.request, sequence.known_tokens());
        let at = self.running.binary_search(&(order, key)).expect("it runs");
        self.running.remove(at);
        self.tenants.stop_running(lane);
        let lane = self.lane(lane);
        self.waiting.insert(lane, order, key);
        self.waiting_changed = true;
        if known > self.config.pool_tokens() {
            // It held the whole pool, with others: it could never be resumed.
            self.end_sequence(key, FinishReason::Length.into());
        }
        self.counters.preemptions += 1;
        let request = self.request_mut(id);
        request.record.lose_blocks(count);
        request.record.preemptions += 1;
        self.intake.table.slot(id).set_state(RequestState::Preempted);
    }

    /// Preempts somebody so that a waiting sequence whose claim is better gets a seat. False if there is nobody.
    pub(super) fn make_seat(&mut self, key: SequenceKey) -> bool {
        let gives_way = self.must_give_way_to(key);
        let Some(victim) = self.choose_victim(gives_way) else { return false };
        self.preempt(victim);
        true
    }

    /// Admits a waiting sequence by preempting those that its claim is better than, one by one, as long as it takes. If
    /// all of their blocks would not be enough, nobody is preempted.
    pub(super) fn admit_by_preemption(&mut self, key: SequenceKey, promised_blocks: &mut usize) -> bool {
        let gives_way = self.must_give_way_to(key);
        let sequence = &self.sequences[key];
        let needed = sequence.missing_blocks(sequence.known_tokens(), self.config.block_size);
        let others = self.running.iter().skip(1).map(|&(_, key)| &self.sequences[key]);
        let held: usize = others.filter(|other| gives_way(other)).map(|other| other.blocks.len()).sum();
        if self.pool.num_available_blocks() + held <= needed {
            return false;
        }
        while let Some(victim) = self.choose_victim(&gives_way) {
            self.preempt(victim);
            if self.admit(key, promised_blocks) {
                return true;
            }
        }
        false
    }

    /// Which running sequences a waiting one's claim is better than.
    fn must_give_way_to(&self, key: SequenceKey) -> impl Fn(&Sequence) -> bool + use<> {
        let waiting = &self.sequences[key];
        let (policy, tenant, priority, order) =
            (self.config.scheduling_policy, waiting.tenant, waiting.priority, waiting.order);
        let fair_share = (self.config.max_num_seqs / self.tenants.num_at_work().max(1)).max(1);
        let running = match policy {
            SchedulingPolicy::Fair => self.tenants.running_by_tenant(),
            SchedulingPolicy::Fcfs | SchedulingPolicy::Priority => Vec::new(),
        };
        move |other| {
            other.preemptions < MAX_PREEMPTIONS
                && match policy {
                    SchedulingPolicy::Fcfs => false,
                    SchedulingPolicy::Priority => other.priority > priority && other.order > order,
                    SchedulingPolicy::Fair => {
                        running[tenant as usize] < fair_share && running[other.tenant as usize] > fair_share
                    }
                }
        }
    }
}
