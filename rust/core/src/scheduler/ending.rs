//! How sequences and requests end: once, whatever the reason, with everything given back.
//!
//! Owns: the last delta of a sequence, the figures of a request. Ending has two parts: `end_*` marks, at any moment;
//! `finish_ending` takes out, when the call is done with its sequences. Open steps that still name one find it gone.

use super::{Scheduler, SequenceKey};
use crate::clock::Nanos;
use crate::output::{Finish, FinishReason};
use crate::output_batch::SequenceEnd;
use crate::request_table::{RequestId, slot_index};
use crate::sequence::Phase;

impl Scheduler {
    /// Marks a sequence; what it still gets is dropped. The first reason counts.
    pub(super) fn end_sequence(&mut self, key: SequenceKey, finish: Finish) {
        let sequence = &mut self.sequences[key];
        if sequence.finish.is_none() {
            sequence.finish = Some(Box::new(finish));
            self.ending.push(key);
        }
    }

    /// Marks all sequences of a request; those held back are never started.
    pub(super) fn end_request(&mut self, id: RequestId, finish: &Finish) {
        let slot = slot_index(id);
        let request = self.requests[slot].as_deref_mut().expect("the caller has seen an active request");
        let (started, n) = (request.num_started, request.params.n);
        request.num_started = n;
        self.num_held_back -= (n - started) as usize;
        for index in started..n {
            let (text, finish) = (String::new(), finish.clone());
            self.batch.ends.push(SequenceEnd { request: id, index, completion_tokens: 0, text, finish });
        }
        for at in 0..self.request(id).sequences.len() {
            let key = self.request(id).sequences[at];
            self.end_sequence(key, finish.clone());
        }
    }

    /// Takes out all marked sequences.
    pub(super) fn finish_ending(&mut self, now: Nanos) {
        if self.ending.is_empty() {
            return;
        }
        let sequences = &self.sequences;
        self.running.retain(|&(_, key)| sequences[key].finish.is_none());
        while let Some(key) = self.ending.pop() {
            self.take_out(key, now);
        }
    }

    fn take_out(&mut self, key: SequenceKey, now: Nanos) {
        self.publish_computed_blocks(key);
        let mut sequence = self.sequences.remove(key);
        let (id, tenant) = (sequence.request, sequence.tenant);
        if sequence.phase == Phase::Waiting {
            let lane = self.lane(tenant);
            self.waiting_changed |= self.waiting.remove(lane, sequence.order, key);
        } else {
            self.tenants.stop_running(tenant);
        }
        let count = sequence.give_back_blocks(&mut self.pool);
        let text = sequence.detokenizer.as_mut().map(|it| it.finish()).unwrap_or_default();
        let finish = sequence.finish.take().expect("only marked ones are taken out");
        let reason = finish.reason;
        if matches!(reason, FinishReason::Stop | FinishReason::Length) {
            let limit = sequence.ends.has_limit.then_some(sequence.ends.max_tokens as usize);
            self.forecast.observe(sequence.output.len(), limit);
        }
        let completion_tokens = sequence.output.len() as u32;
        let (index, finish) = (sequence.index, *finish);
        self.batch.ends.push(SequenceEnd { request: id, index, completion_tokens, text, finish });
        let request = self.requests[slot_index(id)].as_mut().expect("a live sequence's request is active");
        request.record.lose_blocks(count);
        request.record.add_sequence(completion_tokens, &sequence.times, &self.commits);
        request.sequences.retain(|&other| other != key);
        if !request.sequences.is_empty() || request.num_started < request.params.n {
            return;
        }
        let mut request = self.requests[slot_index(id)].take().expect("just seen");
        if request.record.first_scheduled.is_none() {
            self.intake.submissions.leave();
        }
        self.tenants.leave(tenant);
        let (bytes, price) = (self.config.kv_bytes_per_block, self.config.cost_per_hour);
        let metrics = request.record.finish(now, bytes, price);
        self.counters.requests_finished[reason as usize] += 1;
        // Before the last output is shown: whoever has seen it finds the request ended.
        self.intake.request_ended();
        self.intake.table.finish(id);
        self.batch.over.push((id, Box::new(metrics)));
    }
}
