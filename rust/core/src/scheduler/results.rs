//! `sample`, `commit`, `abort_step`: what a step's results do to its sequences.
//!
//! Owns: the end of a step. Invariants: blocks are published only after the step that filled them succeeded; results
//! of sequences that ended meanwhile are dropped; the step's time is shared among its requests by their tokens, to
//! the last nanosecond.

use rayon::prelude::*;

use super::{OpenStep, Planned, Scheduler, SequenceKey};
use crate::clock::Nanos;
use crate::error::{Error, Result};
use crate::output::{Finish, FinishReason, StopReason, TokenLogprobs};
use crate::progress::RequestState;
use crate::sampling::Sampled;
use crate::sequence::Phase;

/// From this many numbers on, waking the other cores costs less than it saves.
const PARALLEL_LOGITS: usize = 1 << 16;

impl Scheduler {
    /// Chooses a token for each logits row of the open step; `logits` is `[num_logits_rows, vocab_size]`.
    pub fn sample(&mut self, logits: &[f32], shape: (usize, usize)) -> Result<()> {
        self.require_open_step("sample()")?;
        let (rows, vocab_size) = (self.plan.num_logits_rows(), self.config.vocab_size);
        if shape != (rows, vocab_size) {
            let message =
                format!("sample() needs logits [{rows}, {vocab_size}], got [{}, {}]", shape.0, shape.1);
            return Err(Error::internal(message));
        }
        let OpenStep { planned, sampled, rows: keys, .. } = &mut self.step;
        keys.clear();
        keys.extend(planned.iter().filter(|planned| planned.needs_logits).map(|planned| planned.key));
        let sequences = &self.sequences;
        let choose = |(&key, row): (&SequenceKey, &[f32])| {
            let sequence = &sequences[key];
            sequence.sampler.sample(row, sequence.output.len())
        };
        if keys.len() > 1 && logits.len() >= PARALLEL_LOGITS {
            // A row's token is a function of the row and its sequence alone, so the order doesn't matter.
            let rows = keys.par_iter().zip_eq(logits.par_chunks_exact(vocab_size));
            rows.map(choose).collect_into_vec(sampled);
        } else {
            sampled.clear();
            sampled.extend(keys.iter().zip(logits.chunks_exact(vocab_size)).map(choose));
        }
        self.step.is_sampled = true;
        Ok(())
    }

    /// Ends the step with the tokens of `sample`, or with these.
    pub fn commit(&mut self, sampled: Option<&[u32]>) -> Result<()> {
        self.require_open_step("commit()")?;
        self.take_sampled(sampled)?;
        let now = self.intake.now();
        self.drain_cancels();
        let mut row = 0;
        for at in 0..self.step.planned.len() {
            let Planned { key, num_tokens, needs_logits } = self.step.planned[at];
            let result = needs_logits.then(|| {
                row += 1;
                let Sampled { token, logprobs } = &mut self.step.sampled[row - 1];
                (*token, logprobs.take())
            });
            if self.sequences[key].finish.is_none() {
                self.advance(key, num_tokens);
                match result {
                    Some((Some(token), logprobs)) => self.accept(key, token, logprobs, now),
                    Some((None, _)) => self.end_without_token(key),
                    None => {}
                }
            }
        }
        self.counters.steps += 1;
        self.counters.consecutive_failed_steps = 0;
        self.close_step();
        Ok(())
    }

    /// Ends all requests that have a part in the open step with an error; publishes nothing of it.
    pub fn abort_step(&mut self, message: &str) {
        if !self.step.is_open {
            return;
        }
        let error = Some(message.to_owned());
        let finish = Finish { reason: FinishReason::Error, stop_reason: None, error };
        self.drain_cancels();
        for at in 0..self.step.planned.len() {
            let id = self.sequences[self.step.planned[at].key].request;
            self.end_request(id, &finish);
        }
        self.counters.failed_steps += 1;
        self.counters.consecutive_failed_steps += 1;
        self.close_step();
    }

    fn take_sampled(&mut self, sampled: Option<&[u32]>) -> Result<()> {
        let rows = self.plan.num_logits_rows();
        let Some(tokens) = sampled else {
            if self.step.is_sampled {
                return Ok(());
            }
            return Err(Error::internal("commit() without tokens needs sample() first"));
        };
        if tokens.len() != rows {
            return Err(Error::internal(format!("commit() needs {rows} tokens, got {}", tokens.len())));
        }
        if let Some(&token) = tokens.iter().find(|&&token| token as usize >= self.config.vocab_size) {
            let message =
                format!("commit() needs tokens in 0..{}, got {}", self.config.vocab_size, token as i32);
            return Err(Error::internal(message));
        }
        self.step.sampled.clear();
        let given = tokens.iter().map(|&token| Sampled { token: Some(token), logprobs: None });
        self.step.sampled.extend(given);
        Ok(())
    }

    /// The step has computed `num_tokens` more of the sequence's known tokens.
    fn advance(&mut self, key: SequenceKey, num_tokens: usize) {
        let sequence = &mut self.sequences[key];
        sequence.computed_tokens += num_tokens;
        if let Some(hasher) = &self.hasher
            && sequence.computed_tokens / self.config.block_size > sequence.published_blocks
            && sequence.publish_full_blocks(&mut self.pool, hasher, &mut self.token_scratch)
        {
            self.next_table_version += 1;
            sequence.table_version = self.next_table_version;
        }
        if sequence.phase == Phase::Decode {
            return;
        }
        let (id, index, computed) = (sequence.request, sequence.index, sequence.computed_tokens);
        let known = sequence.known_tokens();
        let prompt_done = computed >= sequence.prompt.len();
        let slot = self.intake.table.slot(id);
        slot.set_prefill(computed, known);
        if computed == known {
            sequence.phase = Phase::Decode;
            slot.set_state(RequestState::Decode);
        }
        if index == 0 && prompt_done {
            self.start_held_back(id);
        }
    }

    /// The model gave this sequence nothing to choose from; the others of the step go on.
    fn end_without_token(&mut self, key: SequenceKey) {
        let id = self.sequences[key].request;
        let error = Some("the model gave no logit that is a number".to_owned());
        self.end_request(id, &Finish { reason: FinishReason::Error, stop_reason: None, error });
    }

    /// One more token of the answer.
    fn accept(&mut self, key: SequenceKey, token: u32, logprobs: Option<TokenLogprobs>, now: Nanos) {
        let sequence = &mut self.sequences[key];
        sequence.output.push(token);
        sequence.sampler.push(token);
        let completion_tokens = sequence.output.len();
        let slot = crate::request_table::slot_index(sequence.request);
        let request = self.requests[slot].as_deref_mut().expect("a live sequence's request is active");
        let record = &mut request.record;
        record.completion_tokens += 1;
        record.first_token.get_or_insert(now);
        record.last_token = Some(now);
        if let Some(last) = sequence.last_token.replace(now) {
            record.inter_token_ms.push(((now - last) as f64 / 1e6) as f32);
        }
        self.counters.completion_tokens += 1;

        let params = &*request.params;
        let may_stop = completion_tokens >= params.min_tokens as usize;
        let is_eos = may_stop && !params.ignore_eos && self.eos_token_ids.contains(&token);
        let is_stop_token = may_stop && params.stop_token_ids.contains(&token);
        let mut finish = None;
        let mut text = "";
        if is_stop_token {
            finish =
                Some(Finish { stop_reason: Some(StopReason::Token(token)), ..FinishReason::Stop.into() });
        } else if is_eos {
            finish = Some(FinishReason::Stop.into());
        } else if let Some(detokenizer) = &mut sequence.detokenizer {
            detokenizer.push(token);
            text = detokenizer.text();
            if let Some(stop) = detokenizer.stopped_by() {
                let stop_reason = Some(StopReason::Text(stop.to_owned()));
                finish = Some(Finish { stop_reason, ..FinishReason::Stop.into() });
            }
        }
        if finish.is_none() && completion_tokens >= sequence.max_tokens {
            finish = Some(FinishReason::Length.into());
        }
        let index = sequence.index;
        self.intake.table.put(sequence.request, |output| {
            let delta = output.delta(index);
            delta.text.push_str(text);
            delta.token_ids.push(token);
            delta.completion_tokens = completion_tokens as u32;
            if let Some(logprobs) = logprobs {
                delta.logprobs.get_or_insert_default().push(logprobs);
            }
        });
        if let Some(finish) = finish {
            self.end_sequence(key, finish);
        }
    }

    /// Shares the step's time among its requests, then lets those go that ended.
    fn close_step(&mut self) {
        self.step.is_open = false;
        let end = self.intake.now();
        let elapsed = end - self.step.started;
        let total = self.plan.num_tokens() as u64;
        let (mut tokens, mut given) = (0, 0);
        for at in 0..self.step.planned.len() {
            let Planned { key, num_tokens, .. } = self.step.planned[at];
            tokens += num_tokens as u64;
            // Cumulative, so that roundings don't add up.
            let share = elapsed * tokens / total - given;
            given += share;
            let id = self.sequences[key].request;
            self.request_mut(id).record.busy += share;
        }
        self.counters.busy_ns += elapsed;
        self.counters.attributed_busy_ns += given;
        self.counters.last_step_tokens = total;
        self.counters.last_step_ns = elapsed;
        self.finish_ending(end);
        self.publish_counters();
    }
}
