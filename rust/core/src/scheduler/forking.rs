//! Parallel samples: the sequences of a request behind its first one, and copy-on-write.
//!
//! Owns: how they start. When the first one's prompt is computed, the others share all its blocks, the half-filled last
//! one included, and choose their first tokens from the same logits. Whoever writes to a block that others hold, too,
//! gets a copy first. A fork that finds no seat then starts later, like a request, from the prefix cache.
//! Invariant: blocks with more than one owner are never written to.

use super::{Planned, Scheduler, SequenceKey};
use crate::progress::RequestState;
use crate::sequence::Phase;

impl Scheduler {
    /// The last chunk of `first`'s prompt has joined the step: its request's other sequences join it, too.
    pub(super) fn fork_held_back(&mut self, first: SequenceKey) {
        let sequence = &self.sequences[first];
        let (id, order) = (sequence.request, sequence.order);
        let request = self.request(id);
        if request.num_started == request.params.n || !sequence.output.is_empty() {
            return;
        }
        let mut at = self.running.binary_search(&(order, first)).expect("it runs");
        let held_back = request.params.n - request.num_started;
        let seats = (self.config.max_num_seqs - self.running.len()).min(held_back as usize);
        for _ in 0..seats {
            let key = self.new_sequence(id);
            self.num_held_back -= 1;
            at += 1;
            self.fork(first, key);
            self.running.insert(at, (self.sequences[key].order, key));
        }
        // The rest wait for seats; they will find the prompt in the prefix cache.
        while self.request(id).num_started < self.request(id).params.n {
            self.num_held_back -= 1;
            self.start_waiting(id);
        }
    }

    fn fork(&mut self, first: SequenceKey, key: SequenceKey) {
        let row = self.plan_mut().push_logits_row();
        let step_number = self.step_number;
        let [first, fork] = self.sequences.pair_mut([first, key]).expect("both live");
        first.is_forked = true;
        fork.is_forked = true;
        fork.blocks.clone_from(&first.blocks);
        fork.blocks.iter().for_each(|&block| self.pool.share(block));
        fork.computed_tokens = first.computed_tokens;
        fork.planned_tokens = first.planned_tokens;
        (fork.pending_tokens, fork.pending_row) = (1, row);
        (fork.published_blocks, fork.publishable) = (first.published_blocks, first.publishable);
        fork.planned_in_step = step_number;
        fork.was_admitted = true;
        fork.phase = Phase::Prefill;
        let (id, incarnation, blocks) = (fork.request, fork.incarnation, fork.blocks.len());
        self.tenants.start_running(fork.tenant);
        // This step's part, and that of the step before if it is still open: the fork has no part in that one.
        let num_tokens = (first.planned_tokens - first.computed_tokens) as u32;
        let planned = Planned { key, incarnation, num_tokens, num_rows: 0, needs_logits: true };
        self.steps.back_mut().expect("a step is being planned").planned.push(planned);
        self.request_mut(id).record.gain_blocks(blocks);
        self.intake.table.slot(id).set_state(RequestState::Prefill);
    }

    /// A copy of its last block for a sequence that is to write to it while others hold it. False without a block.
    pub(super) fn copy_tail(&mut self, key: SequenceKey) -> bool {
        let version = self.new_version();
        let mut copy = std::mem::take(&mut self.token_scratch);
        copy.clear();
        let is_taken = self.pool.allocate(1, &mut copy);
        if is_taken {
            let sequence = &mut self.sequences[key];
            let tail = sequence.blocks.last_mut().expect("a forked sequence has blocks");
            let source = std::mem::replace(tail, copy[0]);
            sequence.table_version = version;
            sequence.is_forked = false;
            self.plan_mut().push_block_copy(source, copy[0]);
            self.pool.release(source);
        }
        self.token_scratch = copy;
        is_taken
    }
}
