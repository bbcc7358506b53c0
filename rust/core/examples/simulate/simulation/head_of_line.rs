//! First come, first served, as a promise: the oldest request that has blocks moves on in every step.
//!
//! Owns: what was seen of the oldest one when the step was planned. Of requests with several answers nothing is said:
//! their progress is that of all of them mixed. Must not know: other policies.

use pagurid_core::intake::Intake;
use pagurid_core::progress::{RequestProgress, RequestState};
use pagurid_core::request_table::RequestId;

use super::checks::Ledger;

/// See the module.
#[derive(Default)]
pub struct HeadOfLine(Option<(RequestId, RequestProgress)>);

impl HeadOfLine {
    /// A step was planned.
    pub fn step_planned(&mut self, ledger: &Ledger, intake: &Intake) {
        let mut awaited = ledger.entries().filter(|entry| entry.is_awaited());
        let oldest = awaited.find_map(|entry| {
            let progress = intake.progress(entry.id)?;
            // Of one with several answers the state is that of whichever changed last: some may run.
            let runs = matches!(progress.state, RequestState::Prefill | RequestState::Decode);
            (runs || entry.submission.params.n > 1).then_some((entry, progress))
        });
        let single = oldest.filter(|(entry, _)| entry.submission.params.n == 1);
        self.0 = single.map(|(entry, progress)| (entry.id, progress));
    }

    /// The step ended well: it has moved on.
    pub fn step_committed(&mut self, intake: &Intake) {
        let Some((id, before)) = self.0.take() else { return };
        let Some(after) = intake.progress(id) else { return };
        let moved =
            after.state != RequestState::Prefill || after.prefill_done_tokens > before.prefill_done_tokens;
        assert!(moved, "the oldest running request stands still: {after:?}");
    }
}
