//! `check_invariants`: everything the scheduler promises, checked at a quiescent point.

use super::Scheduler;
use crate::error::{Error, Result};
use crate::sequence::Phase;

impl Scheduler {
    /// Names the invariant that does not hold. `idle`: nothing may run, wait or hold a block either.
    pub fn check_invariants(&self, idle: bool) -> Result<()> {
        let fail = |message: String| Err(Error::internal(message));
        let mut owners = vec![0; self.config.num_blocks];
        for (key, sequence) in self.sequences.iter() {
            let place = (sequence.order, key);
            let runs = self.running.binary_search(&place).is_ok();
            let waits = self.waiting.contains(self.lane(sequence.tenant), sequence.order, key);
            if runs == waits || runs == (sequence.phase == Phase::Waiting) {
                return fail(format!("sequence {key} must run or wait: runs {runs}, waits {waits}"));
            }
            if waits && !sequence.blocks.is_empty() {
                return fail(format!("sequence {key} waits but holds {} blocks", sequence.blocks.len()));
            }
            let (computed, planned) = (sequence.computed_tokens, sequence.planned_tokens);
            let open = !self.steps.is_empty();
            if computed > planned || (!open && (computed != planned || sequence.pending_tokens != 0)) {
                let pending = sequence.pending_tokens;
                return fail(format!(
                    "sequence {key}: {computed} tokens computed, {planned} planned, {pending} pending, step open {open}"
                ));
            }
            if sequence.remaining_tokens() == 0 {
                return fail(format!("sequence {key} lives but has nothing left to compute"));
            }
            if sequence.blocks.len() * self.config.block_size < planned {
                let blocks = sequence.blocks.len();
                return fail(format!("sequence {key}: {planned} tokens in {blocks} blocks"));
            }
            for &block in &sequence.blocks {
                owners[block as usize] += 1;
            }
            if self.active(sequence.request).is_none_or(|request| !request.sequences.contains(&key)) {
                return fail(format!("sequence {key} is unknown to its request"));
            }
        }
        if self.running.len() + self.waiting.len() != self.sequences.len() {
            return fail(format!(
                "{} running + {} waiting are not the {} sequences",
                self.running.len(),
                self.waiting.len(),
                self.sequences.len()
            ));
        }
        if self.running.len() > self.config.max_num_seqs {
            return fail(format!("{} sequences run, {} may", self.running.len(), self.config.max_num_seqs));
        }
        let active = self.requests.iter().flatten();
        let held_back: usize =
            active.clone().map(|request| (request.params.n - request.num_started) as usize).sum();
        if held_back != self.num_held_back {
            return fail(format!("{held_back} sequences are held back, counted {}", self.num_held_back));
        }
        for request in active {
            let blocks: usize = request.sequences.iter().map(|&key| self.sequences[key].blocks.len()).sum();
            if blocks != request.record.blocks as usize {
                return fail(format!(
                    "request {} holds {blocks} blocks, counted {}",
                    request.id, request.record.blocks
                ));
            }
        }
        if !self.running.is_sorted() {
            return fail("running is not in the order of service".to_owned());
        }
        self.pool.check_invariants(Some(&owners))?;
        if idle {
            let (running, waiting) = (self.running.len(), self.waiting.len() + self.intake.submissions.len());
            if running + waiting + self.num_held_back > 0 || !self.steps.is_empty() {
                return fail(format!(
                    "not idle: {running} running, {waiting} waiting, {} steps open",
                    self.steps.len()
                ));
            }
            if self.pool.num_used_blocks() > 0 || self.requests.iter().any(Option::is_some) {
                return fail(format!("idle, but {} blocks are in use", self.pool.num_used_blocks()));
            }
            if self.intake.has_unfinished_requests() || self.intake.submissions.num_waiting() > 0 {
                return fail("idle, but requests are counted as unfinished".to_owned());
            }
        }
        Ok(())
    }
}
