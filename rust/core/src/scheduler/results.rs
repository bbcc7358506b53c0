//! `commit`, `abort_step`: what a step's results do to its sequences.
//!
//! Owns: the end of the oldest open step. Invariants: blocks are published only after the step that filled them
//! succeeded; results that come too late, for sequences that ended or were preempted meanwhile, are dropped; the step's
//! time is shared among its requests by their tokens, to the last nanosecond.

use super::policy::SchedulingPolicy;
use super::{OpenStep, Planned, Scheduler, SequenceKey};
use crate::clock::Nanos;
use crate::error::{Error, Result};
use crate::output::{Finish, FinishReason, StopReason, TokenLogprobs};
use crate::output_batch::TokenRecord;
use crate::progress::RequestState;
use crate::sampling::Sampled;
use crate::sequence::Phase;
use crate::token_times::CommitNumber;

/// So many sequences ahead of the one that is looked at are fetched.
pub(super) const FETCH_AHEAD: usize = 16;

/// After so many commits, those that no living sequence has a token of are forgotten.
const MANY_COMMITS: usize = 1 << 14;

/// A step's time, dealt out by rows so that the parts add up to the last nanosecond.
struct TimeShares {
    per_row: Nanos,
    /// So many rows get one more.
    longer: Nanos,
}

impl TimeShares {
    fn new(time: Nanos, num_rows: usize) -> Self {
        let num_rows = num_rows as Nanos;
        Self { per_row: time / num_rows, longer: time % num_rows }
    }

    #[inline]
    fn take(&mut self, num_rows: u32) -> Nanos {
        let num_rows = Nanos::from(num_rows);
        let longer = self.longer.min(num_rows);
        self.longer -= longer;
        self.per_row * num_rows + longer
    }
}

impl Scheduler {
    pub(super) fn open_step(&mut self, call: &str) -> Result<&mut OpenStep> {
        let message = || Error::internal(format!("{call} needs a plan that returned True"));
        self.steps.front_mut().ok_or_else(message)
    }

    /// Ends the oldest open step with the tokens of `sample`, or with these.
    pub fn commit(&mut self, sampled: Option<&[u32]>) -> Result<()> {
        self.check_tokens(sampled)?;
        let now = self.intake.now();
        self.drain_cancels();
        let mut step = self.steps.pop_front().expect("checked above");
        let elapsed = now.saturating_sub(step.started.max(self.last_commit));
        self.commits.push(now);
        let commit = self.commits.last();
        let mut shares = TimeShares::new(elapsed, step.num_tokens);
        let (mut attributed, mut row) = (0, 0);
        for (at, planned) in step.planned.iter().enumerate() {
            if let Some(ahead) = step.planned.get(at + FETCH_AHEAD) {
                self.sequences.prefetch(ahead.key);
            }
            let &Planned { key, incarnation, num_tokens, num_rows, needs_logits } = planned;
            let result = needs_logits.then(|| {
                row += 1;
                if let Some(tokens) = sampled {
                    return (Some(tokens[row - 1]), None);
                }
                let sampled = step.sampled[row - 1].take();
                sampled.map_or((None, None), |Sampled { token, logprobs }| (token, logprobs))
            });
            let share = shares.take(num_rows);
            let Some(sequence) = self.sequences.get_mut(key).filter(|it| it.incarnation == incarnation)
            else {
                continue;
            };
            sequence.times.busy += share;
            attributed += share;
            if result.is_some() {
                sequence.pending_tokens -= 1;
            }
            if sequence.finish.is_some() {
                continue;
            }
            if matches!(result, Some((None, _))) {
                // What the step computed for it is not to be trusted: it doesn't count as computed.
                self.end_without_token(key);
                continue;
            }
            sequence.computed_tokens += num_tokens as usize;
            if sequence.phase != Phase::Decode {
                self.advance_prefill(key);
            }
            if let Some((Some(token), logprobs)) = result {
                self.accept(key, token, logprobs, commit);
            }
        }
        self.counters.steps += 1;
        self.counters.consecutive_failed_steps = 0;
        self.counters.attributed_busy_ns += attributed;
        self.step_time.observe(step.num_tokens, elapsed);
        self.close_step(step, elapsed, now);
        Ok(())
    }

    /// Ends all requests that have a part in the oldest open step with an error; publishes nothing of it.
    pub fn abort_step(&mut self, message: &str) {
        let Some(step) = self.steps.pop_front() else { return };
        let now = self.intake.now();
        let elapsed = now.saturating_sub(step.started.max(self.last_commit));
        let error = Some(message.to_owned());
        let finish = Finish { reason: FinishReason::Error, stop_reason: None, error };
        self.drain_cancels();
        let mut shares = TimeShares::new(elapsed, step.num_tokens);
        for planned in &step.planned {
            let share = shares.take(planned.num_rows);
            let sequence = self.sequences.get_mut(planned.key);
            if let Some(sequence) = sequence.filter(|it| it.incarnation == planned.incarnation) {
                sequence.times.busy += share;
                self.counters.attributed_busy_ns += share;
                let id = sequence.request;
                self.end_request(id, &finish);
            }
        }
        self.counters.failed_steps += 1;
        self.counters.consecutive_failed_steps += 1;
        self.close_step(step, elapsed, now);
    }

    fn check_tokens(&mut self, sampled: Option<&[u32]>) -> Result<()> {
        let vocab_size = self.config.vocab_size;
        let step = self.open_step("commit()")?;
        let Some(tokens) = sampled else {
            if step.is_sampled {
                return Ok(());
            }
            return Err(Error::internal("commit() without tokens needs sample() first"));
        };
        let rows = step.num_logits_rows;
        if tokens.len() != rows {
            return Err(Error::internal(format!("commit() needs {rows} tokens, got {}", tokens.len())));
        }
        if let Some(&token) = tokens.iter().find(|&&token| token as usize >= vocab_size) {
            let message = format!("commit() needs tokens in 0..{vocab_size}, got {}", token as i32);
            return Err(Error::internal(message));
        }
        Ok(())
    }

    /// Publishes the full blocks that the sequence has computed, so that others can hit them.
    pub(super) fn publish_computed_blocks(&mut self, key: SequenceKey) {
        let sequence = &mut self.sequences[key];
        if let Some(hasher) = &self.hasher
            && sequence.publish_full_blocks(&mut self.pool, hasher, &mut self.token_scratch)
        {
            self.next_version += 1;
            sequence.table_version = self.next_version;
        }
    }

    /// The step has computed a part of what a prefilling sequence knew.
    fn advance_prefill(&mut self, key: SequenceKey) {
        // Of answers only at their end: nobody else has the same one, as a rule.
        self.publish_computed_blocks(key);
        let sequence = &mut self.sequences[key];
        let (computed, known) = (sequence.computed_tokens, sequence.known_tokens());
        let slot = self.intake.table.slot(sequence.request);
        slot.set_prefill(computed, known);
        if computed == known {
            sequence.phase = Phase::Decode;
            slot.set_state(RequestState::Decode);
        }
    }

    /// The model gave this sequence nothing to choose from; the others of the step go on.
    fn end_without_token(&mut self, key: SequenceKey) {
        let id = self.sequences[key].request;
        let error = Some("the model gave no logit that is a number".to_owned());
        self.end_request(id, &Finish { reason: FinishReason::Error, stop_reason: None, error });
    }

    /// One more token of the answer.
    fn accept(
        &mut self,
        key: SequenceKey,
        token: u32,
        logprobs: Option<TokenLogprobs>,
        commit: CommitNumber,
    ) {
        let sequence = &mut self.sequences[key];
        sequence.output.push(token);
        sequence.last_token = token;
        if sequence.counts_tokens {
            sequence.sampler.push(token);
        }
        let completion_tokens = sequence.output.len() as u32;
        sequence.times.push(commit, completion_tokens == 1);
        self.counters.completion_tokens += 1;
        if self.config.scheduling_policy == SchedulingPolicy::Fair {
            self.tenants.charge_answer_token(sequence.tenant);
        }

        let ends = &sequence.ends;
        let may_stop = completion_tokens >= ends.min_tokens;
        let text_start = self.batch.text.len();
        let mut finish: Option<Finish> = None;
        if may_stop && ends.at_stop_tokens && sequence.sampler.params().stop_token_ids.contains(&token) {
            finish =
                Some(Finish { stop_reason: Some(StopReason::Token(token)), ..FinishReason::Stop.into() });
        } else if may_stop && ends.at_eos && self.eos_token_ids.contains(&token) {
            finish = Some(FinishReason::Stop.into());
        } else if let Some(detokenizer) = &mut sequence.detokenizer {
            detokenizer.push(token);
            self.batch.text.push_str(detokenizer.text());
            if let Some(stop) = detokenizer.stopped_by() {
                let stop_reason = Some(StopReason::Text(stop.to_owned()));
                finish = Some(Finish { stop_reason, ..FinishReason::Stop.into() });
            }
        }
        if finish.is_none() && completion_tokens >= ends.max_tokens {
            finish = Some(FinishReason::Length.into());
        }
        let text_bytes = self.batch.text.len() - text_start;
        let (id, index, has_logprobs) = (sequence.request, sequence.index, logprobs.is_some());
        let record = TokenRecord::new(id, index, token, completion_tokens, text_bytes, has_logprobs);
        self.batch.tokens.push(record);
        self.batch.logprobs.extend(logprobs);
        if let Some(finish) = finish {
            self.end_sequence(key, finish);
        }
    }

    fn close_step(&mut self, step: OpenStep, elapsed: Nanos, now: Nanos) {
        self.counters.busy_ns += elapsed;
        self.counters.last_step_tokens = step.num_tokens as u64;
        self.counters.last_step_ns = elapsed;
        self.last_commit = now;
        self.spare_step = step;
        self.finish_ending(now);
        if self.commits.len() > MANY_COMMITS && self.commits.last().is_multiple_of(MANY_COMMITS as u64) {
            let firsts = self.sequences.iter().filter_map(|(_, sequence)| sequence.times.first_commit());
            self.commits.forget_before(firsts.min().unwrap_or(self.commits.last()));
        }
        self.send_outputs();
        self.publish_counters();
    }

    /// Shows what the call has given to the consumer, all at once.
    pub(super) fn send_outputs(&mut self) {
        self.intake.outputs.send(&mut self.batch);
    }
}
