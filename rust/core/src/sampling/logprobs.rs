//! Log-probabilities of the raw model distribution: before penalties, temperature and filters.
//!
//! Owns: their normalisation and the floor that keeps them finite. Must not know: which token was chosen, or why.

use super::candidates::{Candidates, Selection, gather_best};
use super::isa::Isa;
use super::row::{Ranked, maxima};
use super::weights::{Law, ONE, Weights};
use crate::output::TokenLogprobs;

/// What an impossible token (logit −∞) is reported as: JSON has no infinities.
pub const FLOOR: f32 = -9999.0;

/// Buffers that live from token to token.
#[derive(Debug, Default)]
pub struct Scratch {
    groups: Vec<f32>,
    weights: Weights,
    candidates: Candidates,
    selection: Selection,
    best: Vec<Ranked>,
}

/// Of `token` and of the `top` most likely ones, best first; ties by id.
pub fn logprobs_of(isa: Isa, logits: &[f32], token: u32, top: usize, scratch: &mut Scratch) -> TokenLogprobs {
    let max = maxima(isa, logits, &mut scratch.groups);
    let mut log_sum = 0.0;
    if max.is_finite() {
        scratch.weights.weigh(isa, logits, Law { max, inverse_temperature: 1.0 });
        log_sum = (scratch.weights.total() as f64 / ONE as f64).ln();
    }
    let logprob = |logit: f32| {
        let value = (f64::from(logit) - f64::from(max) - log_sum) as f32;
        // NaN: ∞ − ∞, which is where all the probability is.
        if value.is_nan() && logit == max { 0.0 } else { value.max(FLOOR) }
    };
    scratch.rank(isa, logits, max, top.min(logits.len()));
    TokenLogprobs {
        token_id: token,
        logprob: logprob(logits[token as usize]),
        top: scratch.best.iter().map(|ranked| (ranked.id(), logprob(ranked.logit()))).collect(),
    }
}

impl Scratch {
    /// The `top` best, best first.
    fn rank(&mut self, isa: Isa, logits: &[f32], max: f32, top: usize) {
        let Self { groups, candidates, selection, best, .. } = self;
        best.clear();
        if top == 0 {
            return;
        }
        gather_best(isa, logits, max, groups, top, candidates, selection);
        let found = candidates.ids().iter().zip(candidates.logits());
        best.extend(found.map(|(&id, &logit)| Ranked::new(id, logit)));
        if best.len() > top {
            best.select_nth_unstable(top - 1);
            best.truncate(top);
        }
        best.sort_unstable();
        // Then those without a chance, which are no candidates.
        let others =
            logits.iter().enumerate().filter(|(_, logit)| logit.is_nan() || **logit == f32::NEG_INFINITY);
        let missing = top - best.len();
        best.extend(others.take(missing).map(|(id, &logit)| Ranked::new(id as u32, logit)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// D12: finite, best first, whatever the logits.
    #[test]
    fn are_finite_and_ordered() {
        let logits = [1.0, f32::NEG_INFINITY, 3.0, 3.0, f32::NAN];
        let mut scratch = Scratch::default();
        let found = logprobs_of(Isa::selected(), &logits, 0, 5, &mut scratch);
        assert_eq!(found.top.iter().map(|&(id, _)| id).collect::<Vec<_>>(), [2, 3, 0, 1, 4]);
        assert!(found.top.iter().all(|(_, logprob)| logprob.is_finite()));
        assert_eq!(found.top[3].1.to_bits(), FLOOR.to_bits());
        let expected = 1.0 - (1f64.exp() + 2.0 * 3f64.exp()).ln();
        assert!((f64::from(found.logprob) - expected).abs() < 1e-6);
        let infinite = logprobs_of(Isa::selected(), &[0.0, f32::INFINITY], 1, 2, &mut scratch);
        assert_eq!(infinite.top, [(1, 0.0), (0, FLOOR)]);
    }
}
