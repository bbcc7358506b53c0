//! How sequences and requests end: once, whatever the reason, with everything given back.
//!
//! Owns: the last delta of a sequence, the figures of a request. Ending has two parts: `end_*` marks, at any moment;
//! `finish_ending` takes out, when no step refers to the sequence any more.

use super::{Scheduler, SequenceKey};
use crate::clock::Nanos;
use crate::detokenizer::Detokenizer;
use crate::output::{Finish, PendingOutput};
use crate::request_table::{RequestId, slot_index};
use crate::sequence::Phase;

impl Scheduler {
    /// Marks a sequence; what it still gets is dropped. The first reason counts.
    pub(super) fn end_sequence(&mut self, key: SequenceKey, finish: Finish) {
        let sequence = &mut self.sequences[key];
        if sequence.finish.is_none() {
            sequence.finish = Some(finish);
            self.ending.push(key);
        }
    }

    /// Marks all sequences of a request; those held back are never started.
    pub(super) fn end_request(&mut self, id: RequestId, finish: &Finish) {
        let slot = slot_index(id);
        let request = self.requests[slot].as_deref_mut().expect("the caller has seen an active request");
        let (started, n) = (request.num_started, request.params.n);
        if started < n {
            request.num_started = n;
            self.num_held_back -= (n - started) as usize;
            self.intake.table.put(id, |output| {
                for index in started..n {
                    output.delta(index).finish = Some(finish.clone());
                }
            });
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
        let mut sequence = self.sequences.remove(key);
        let id = sequence.request;
        if sequence.phase == Phase::Waiting && self.waiting.remove(&(sequence.order, key)) {
            self.waiting_changed = true;
        }
        let count = sequence.give_back_blocks(&mut self.pool);
        let rest = sequence.detokenizer.as_mut().map(Detokenizer::finish).unwrap_or_default();
        let finish = sequence.finish.take();
        let reason = finish.as_ref().map(|finish| finish.reason);
        let add = |output: &mut PendingOutput| {
            let delta = output.delta(sequence.index);
            delta.text.push_str(&rest);
            delta.completion_tokens = sequence.output.len() as u32;
            delta.finish = finish;
        };
        let request = self.request_mut(id);
        request.record.lose_blocks(count);
        request.sequences.retain(|&other| other != key);
        let is_last = request.sequences.is_empty() && request.num_started == request.params.n;
        if !is_last {
            self.intake.table.put(id, add);
            return;
        }
        let mut request = self.requests[slot_index(id)].take().expect("just seen");
        if request.record.first_scheduled.is_none() {
            self.intake.submissions.leave();
        }
        let (bytes, price) = (self.config.kv_bytes_per_block, self.config.cost_per_hour);
        let metrics = request.record.finish(now, bytes, price);
        if let Some(reason) = reason {
            self.counters.requests_finished[reason as usize] += 1;
        }
        // Before the last output is shown: whoever has seen it finds the request ended.
        self.intake.request_ended();
        self.intake.table.finish(id, |output| {
            add(output);
            output.metrics = Some(Box::new(metrics));
        });
    }
}
