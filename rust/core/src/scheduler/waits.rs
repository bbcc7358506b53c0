//! What those who wait are told: how many are ahead of them and how long it may take.
//!
//! Owns: when that is worked out anew: whenever the queue has changed, and often enough that nobody sees an old figure.
//! Must not know: how they wait for it.

use super::Scheduler;
use crate::clock::{Nanos, as_ms};

/// While somebody waits, figures are no older than this.
const REFRESH: Nanos = 200_000_000;

impl Scheduler {
    pub(super) fn publish_waits(&mut self, now: Nanos) {
        let admitted = std::mem::take(&mut self.num_admitted);
        self.pace.observe(now, admitted, !self.waiting.is_empty());
        let is_stale = !self.waiting.is_empty() && now.saturating_sub(self.waits.published) >= REFRESH;
        if !std::mem::take(&mut self.waiting_changed) && !is_stale {
            return;
        }
        self.waits.published = now;
        self.foretell_seats();
        // While nobody waits, nobody is refused for the sake of those who did once.
        self.waits.interval = self.pace.interval().filter(|_| !self.waiting.is_empty());
        self.intake.waits.publish(now, &self.waits);
        let mut order = std::mem::take(&mut self.service_order);
        order.clear();
        self.waiting.in_service_order(&self.tenants, usize::MAX, &mut order);
        for (position, &key) in order.iter().enumerate() {
            let slot = self.intake.table.slot(self.sequences[key].request);
            slot.set_position(position, self.waits.wait(position).map(as_ms));
        }
        self.service_order = order;
    }

    /// When the running sequences will end, if there is no other seat.
    fn foretell_seats(&mut self) {
        let mut seats = std::mem::take(&mut self.waits.seats);
        seats.clear();
        if let Some(step) = self.step_time.mean()
            && !self.waiting.is_empty()
            && self.running.len() == self.config.max_num_seqs
        {
            let ends = self.running.iter().map(|&(_, key)| {
                let sequence = &self.sequences[key];
                let chunks = sequence.remaining_tokens() / self.min_chunk_tokens();
                (self.forecast_remaining(sequence) + chunks) as Nanos * step
            });
            seats.extend(ends);
            seats.sort_unstable();
        }
        self.waits.seats = seats;
    }
}
