//! `plan`: who computes how many tokens in this step.
//!
//! Owns: the order of its parts. Blocks for the running answers' next tokens first, by preemption if need be; then
//! admissions (`admission`); then one token for each running answer; what is left of the budget goes to prompts
//! (`prefilling`).
//! Invariants: the step's tokens never exceed the budget; nobody in the plan is preempted, as preemption comes before
//! planning; the first in the order of service is never preempted, so somebody always advances.

use super::results::FETCH_AHEAD;
use super::{Planned, Scheduler, SequenceKey};
use crate::clock::Nanos;
use crate::error::{Error, Result};
use crate::output::FinishReason;
use crate::sequence::Phase;
use crate::step_plan::{DecodeRow, PlannedRows};

impl Scheduler {
    /// Drains what came in, then fills the step plan. True if there is a step to run.
    pub fn plan(&mut self) -> Result<bool> {
        let most = if self.config.overlap_steps { 2 } else { 1 };
        if self.steps.len() == most {
            let steps = if most == 1 { "a step was" } else { "two steps were" };
            let message = format!("plan() was called while {steps} open: commit or abort the oldest first");
            return Err(Error::internal(message));
        }
        let now = self.intake.now();
        self.step_number += 1;
        let mut step = std::mem::take(&mut self.spare_step);
        step.started = now;
        step.is_sampled = false;
        step.planned.clear();
        self.steps.push_back(step);
        self.plans.rotate_left(1);
        self.plan_mut().clear();
        self.drain_submissions();
        self.drain_cancels();
        self.finish_ending(now);

        self.secure_next_tokens(now);
        self.finish_ending(now);
        self.admit_waiting();
        let budget = self.plan_decodes(self.config.max_num_batched_tokens);
        self.plan_prefills(budget);

        self.publish_waits(now);
        let step = self.steps.back_mut().expect("pushed above");
        let is_step = !step.planned.is_empty();
        let plan = self.plans.back().expect("one at least");
        (step.num_tokens, step.num_logits_rows) = (plan.num_tokens(), plan.num_logits_rows());
        if is_step {
            self.plan_mut().publish();
        } else {
            self.spare_step = self.steps.pop_back().expect("pushed above");
            // The open step's buffers stay the newest.
            self.plan_mut().publish();
            self.plans.rotate_right(1);
        }
        self.send_outputs();
        self.publish_counters();
        Ok(is_step)
    }

    pub(super) fn plan_mut(&mut self) -> &mut crate::step_plan::StepPlan {
        self.plans.back_mut().expect("there is one at least")
    }

    /// Preempts until there are blocks for the next token of every running answer, and for the first in the order of
    /// service whatever it computes.
    fn secure_next_tokens(&mut self, now: Nanos) {
        let mut is_noticed = false;
        loop {
            // The rule: a block for everyone, without looking who needs one.
            let available = self.pool.num_available_blocks();
            if available >= self.running.len() {
                return;
            }
            if self.blocks_for_next_tokens() <= available {
                return;
            }
            if !std::mem::replace(&mut is_noticed, true) {
                self.pool.notice_idle();
                continue;
            }
            let &(_, first) = self.running.first().expect("somebody needs a block");
            let sequence = &self.sequences[first];
            if sequence.planned_tokens == self.config.pool_tokens() {
                if sequence.pending_tokens > 0 {
                    return;
                }
                // It holds the whole pool: nobody's end or preemption could ever help.
                self.end_sequence(first, FinishReason::Length.into());
                self.finish_ending(now);
                continue;
            }
            let Some(victim) = self.choose_victim(|_| true) else { return };
            self.preempt(victim);
        }
    }

    /// Blocks that the running answers' next tokens need, and the first in the order of service whatever it computes.
    pub(super) fn blocks_for_next_tokens(&self) -> usize {
        let running = self.running.iter().enumerate();
        let needs = running.map(|(at, &(_, key))| {
            let sequence = &self.sequences[key];
            let takes_part = at == 0 || sequence.lacks_one_token();
            if takes_part { sequence.blocks_for_next_token(&self.pool) } else { 0 }
        });
        needs.sum()
    }

    /// One token for every sequence that lacks only one; returns the budget left.
    fn plan_decodes(&mut self, mut budget: usize) -> usize {
        let mut at = 0;
        // Forks that join on the way are inserted behind their first: they have their part in the step already.
        while let Some(&(_, key)) = self.running.get(at) {
            if let Some(&(_, ahead)) = self.running.get(at + FETCH_AHEAD) {
                self.sequences.prefetch(ahead);
            }
            at += 1;
            let sequence = &self.sequences[key];
            let has_part = sequence.planned_in_step == self.step_number || sequence.finish.is_some();
            if has_part || !sequence.lacks_one_token() {
                continue;
            }
            if sequence.blocks_for_next_token(&self.pool) == 0 || self.grow(key) {
                self.push_decode(key);
                budget -= 1;
            }
        }
        budget
    }

    /// The block that the next token needs. False: it can't be in this step.
    fn grow(&mut self, key: SequenceKey) -> bool {
        let sequence = &self.sequences[key];
        if sequence.writes_to_shared_block(&self.pool) {
            return self.copy_tail(key);
        }
        self.take_blocks(key, 1)
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

    /// The next token of a running answer joins the step.
    fn push_decode(&mut self, key: SequenceKey) {
        let step_number = self.step_number;
        let sequence = &mut self.sequences[key];
        let token = if sequence.pending_tokens == 0 {
            sequence.last_token as i32
        } else {
            // Still to come, from this logits row of the step before.
            -1 - sequence.pending_row as i32
        };
        let plan = self.plans.back_mut().expect("there is one at least");
        let row = plan.push_decode(&DecodeRow {
            token,
            position: sequence.planned_tokens,
            tail: sequence.tail_block(),
            blocks: &sequence.blocks,
            table_version: sequence.table_version,
        });
        sequence.planned_tokens += 1;
        sequence.pending_tokens += 1;
        sequence.pending_row = row;
        sequence.planned_in_step = step_number;
        let (incarnation, is_first_token) = (sequence.incarnation, sequence.phase == Phase::Prefill);
        let planned = Planned { key, incarnation, num_tokens: 1, num_rows: 1, needs_logits: true };
        self.steps.back_mut().expect("a step is being planned").planned.push(planned);
        if is_first_token {
            self.fork_held_back(key);
        }
    }

    /// A chunk of known tokens joins the step.
    pub(super) fn push_chunk(&mut self, key: SequenceKey, num_tokens: usize) {
        let plan = self.plans.back_mut().expect("there is one at least");
        let sequence = &mut self.sequences[key];
        let needs_logits = num_tokens == sequence.remaining_tokens();
        plan.push_chunk(&PlannedRows {
            tokens: sequence.tokens(sequence.planned_tokens, num_tokens),
            first_position: sequence.planned_tokens,
            blocks: &sequence.blocks,
            table_version: sequence.table_version,
        });
        sequence.planned_tokens += num_tokens;
        if sequence.preemptions == 0 {
            self.tenants.charge_prompt(sequence.tenant, num_tokens);
        }
        if needs_logits {
            sequence.pending_row = plan.push_logits_row();
            sequence.pending_tokens += 1;
        }
        let incarnation = sequence.incarnation;
        let planned = {
            let num_tokens = num_tokens as u32;
            Planned { key, incarnation, num_tokens, num_rows: num_tokens, needs_logits }
        };
        self.steps.back_mut().expect("a step is being planned").planned.push(planned);
        if needs_logits {
            self.fork_held_back(key);
        }
    }
}
