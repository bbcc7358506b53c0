//! `sample`: a token for each logits row of a step.
//!
//! Owns: how the rows are spread over threads. Invariant: a row's token is a function of the row and its sequence alone, so
//! it doesn't matter who chooses it when. Must not know: how a token is chosen (`sampling`), whose threads those are.

use std::sync::OnceLock;

use super::{Planned, Scheduler};
use crate::error::{Error, Result};
use crate::sampling::Sampled;

/// From this many numbers on, waking the other cores costs less than it saves.
const PARALLEL_LOGITS: usize = 1 << 16;

/// Calls its second argument once with each number below the first, on whatever threads it has; returns when all is done.
/// The core has no threads of its own: those of the kernels are idle while tokens are chosen.
pub type ForEachPiece<'a> = &'a dyn Fn(usize, &(dyn Fn(usize) + Sync));

impl Scheduler {
    /// Chooses a token for each logits row of the oldest open step; `logits` is `[num_logits_rows, vocab_size]`.
    pub fn sample(
        &mut self,
        logits: &[f32],
        shape: (usize, usize),
        for_each_piece: ForEachPiece<'_>,
    ) -> Result<()> {
        let vocab_size = self.config.vocab_size;
        let step = self.open_step("sample()")?;
        step.sampling.clear();
        step.sampling.extend(step.planned.iter().copied().filter(|planned| planned.needs_logits));
        let num_rows = step.sampling.len();
        if shape != (num_rows, vocab_size) {
            let message =
                format!("sample() needs logits [{num_rows}, {vocab_size}], got [{}, {}]", shape.0, shape.1);
            return Err(Error::internal(message));
        }
        let sequences = &self.sequences;
        let step = self.steps.front_mut().expect("checked above");
        step.sampled.clear();
        step.sampled.resize_with(num_rows, OnceLock::new);
        let (planned, sampled) = (&step.sampling, &step.sampled);
        let choose = |row: usize| {
            let Planned { key, incarnation, .. } = planned[row];
            let chosen = match sequences.get(key) {
                Some(sequence) if sequence.incarnation == incarnation => {
                    let logits = &logits[row * vocab_size..][..vocab_size];
                    sequence.sampler.sample(logits, sequence.output.len())
                }
                _ => Sampled { token: None, logprobs: None },
            };
            // If it was set before, then to the same.
            let _ = sampled[row].set(chosen);
        };
        if num_rows > 1 && logits.len() >= PARALLEL_LOGITS {
            for_each_piece(num_rows, &choose);
        } else {
            (0..num_rows).for_each(choose);
        }
        step.is_sampled = true;
        Ok(())
    }
}
