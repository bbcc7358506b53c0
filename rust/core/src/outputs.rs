//! The consumer's third of the core: what every request has gained since its reader last looked.
//!
//! Owns: the merged outputs that nobody has taken yet, sorted out of the batches as they come; it alone gives a
//! request's slot back, when its last output was taken or dropped.
//! Invariants: the engine never waits: while the consumer sleeps, one batch grows; a request is announced by
//! `take_ready` once for all that came since; nothing of a released request is kept.
//! Must not know: schedules, blocks, what readers do.

use std::sync::Arc;

use crate::intake::Intake;
use crate::output::PendingOutput;
use crate::output_batch::{OutputBatch, SequenceEnd};
use crate::request_table::{RequestId, slot_index};

/// What one request has gained.
#[derive(Default)]
struct Pending {
    id: RequestId,
    output: Box<PendingOutput>,
    is_announced: bool,
}

/// See the module. One thread at a time.
pub struct Outputs {
    intake: Arc<Intake>,
    /// By slot.
    pending: Vec<Option<Pending>>,
    ready: Vec<RequestId>,
}

impl Outputs {
    pub(crate) fn new(intake: Arc<Intake>) -> Self {
        Self { intake, pending: Vec::new(), ready: Vec::new() }
    }

    /// Requests with something to take, each once.
    pub fn take_ready(&mut self) -> Vec<RequestId> {
        self.collect();
        let mut ready = std::mem::take(&mut self.ready);
        // What was taken or released since it was announced is not ready any more.
        ready.retain(|&id| {
            let Some(pending) = Self::of(&mut self.pending, id) else { return false };
            pending.is_announced = false;
            !pending.output.deltas.is_empty() && !self.intake.table.is_released(id)
        });
        self.intake.outputs.announced();
        ready
    }

    /// All that is new of one request.
    pub fn take_output(&mut self, id: RequestId) -> Option<Box<PendingOutput>> {
        self.collect();
        let pending = Self::of(&mut self.pending, id)?;
        if pending.output.deltas.is_empty() || self.intake.table.is_released(id) {
            return None;
        }
        let output = std::mem::take(&mut pending.output);
        if output.metrics.is_some() {
            self.forget(id);
        }
        Some(output)
    }

    /// Wants nothing more of this request: cancels it if it runs, drops what it has given and will give.
    pub fn release(&mut self, id: RequestId) {
        self.intake.release(id);
        self.collect();
    }

    fn of(pending: &mut [Option<Pending>], id: RequestId) -> Option<&mut Pending> {
        pending.get_mut(slot_index(id))?.as_mut().filter(|pending| pending.id == id)
    }

    /// Gives the request's slot back.
    fn forget(&mut self, id: RequestId) {
        self.pending[slot_index(id)] = None;
        self.intake.table.vacate(id);
    }

    /// Sorts what has come by request.
    fn collect(&mut self) {
        let intake = Arc::clone(&self.intake);
        intake.outputs.receive(|batch| self.distribute(batch));
        intake.table.drain_released(|id| {
            // If its end has not come yet, `distribute` will see to it.
            let is_over = Self::of(&mut self.pending, id).map(|pending| {
                pending.output.deltas.clear();
                pending.output.metrics.is_some()
            });
            if is_over == Some(true) {
                self.forget(id);
            }
        });
        if self.ready.is_empty() {
            intake.outputs.announced();
        }
    }

    fn distribute(&mut self, batch: &mut OutputBatch) {
        let mut text = &batch.text[..];
        let mut logprobs = batch.logprobs.drain(..);
        for record in batch.tokens.drain(..) {
            let pending = self.announce(record.request());
            let delta = pending.output.delta(record.index());
            let (head, tail) = text.split_at(record.text_bytes());
            text = tail;
            delta.text.push_str(head);
            delta.token_ids.push(record.token());
            delta.completion_tokens = record.completion_tokens();
            if record.has_logprobs() {
                delta.logprobs.get_or_insert_default().extend(logprobs.next());
            }
        }
        for SequenceEnd { request, index, completion_tokens, text, finish } in batch.ends.drain(..) {
            let delta = self.announce(request).output.delta(index);
            delta.text.push_str(&text);
            delta.completion_tokens = completion_tokens;
            delta.finish = Some(finish);
        }
        for (request, metrics) in batch.over.drain(..) {
            self.announce(request).output.metrics = Some(metrics);
            if self.intake.table.is_released(request) {
                self.forget(request);
            }
        }
    }

    /// What the request has gained, to be added to.
    fn announce(&mut self, id: RequestId) -> &mut Pending {
        let slot = slot_index(id);
        if self.pending.len() <= slot {
            self.pending.resize_with(slot + 1, || None);
        }
        let pending = self.pending[slot].get_or_insert_with(|| Pending { id, ..Pending::default() });
        debug_assert_eq!(pending.id, id, "a slot is given back after its request's last output");
        if !std::mem::replace(&mut pending.is_announced, true) {
            self.ready.push(id);
        }
        pending
    }
}
