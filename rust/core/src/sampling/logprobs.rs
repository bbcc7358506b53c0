//! Log-probabilities of the raw model distribution: before penalties, temperature and filters.
//!
//! Owns: their normalisation and the floor that keeps them finite. Must not know: which token was chosen, or why.

use super::exp::exp;
use super::row::{Ranked, maximum};
use crate::output::TokenLogprobs;

/// What an impossible token (logit −∞) is reported as: JSON has no infinities.
pub const FLOOR: f32 = -9999.0;

/// Of `token` and of the `top` most likely ones, best first; ties by id.
pub fn logprobs_of(logits: &[f32], token: u32, top: usize) -> TokenLogprobs {
    let max = maximum(logits);
    let normaliser = if max.is_finite() {
        let sum: f64 = logits.iter().map(|&logit| f64::from(exp(logit - max))).sum();
        f64::from(max) + sum.ln()
    } else {
        f64::from(max)
    };
    let logprob = |logit: f32| {
        let value = (f64::from(logit) - normaliser) as f32;
        // NaN: ∞ − ∞, which is where all the probability is.
        if value.is_nan() && logit == max { 0.0 } else { value.max(FLOOR) }
    };
    let mut best: Vec<Ranked> = Vec::with_capacity(top + 1);
    if top > 0 {
        for (id, &logit) in logits.iter().enumerate() {
            let ranked = Ranked::new(id as u32, logit);
            if best.len() == top && ranked >= best[top - 1] {
                continue;
            }
            let at = best.partition_point(|other| *other < ranked);
            best.insert(at, ranked);
            best.truncate(top);
        }
    }
    TokenLogprobs {
        token_id: token,
        logprob: logprob(logits[token as usize]),
        top: best.iter().map(|ranked| (ranked.id(), logprob(ranked.logit()))).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// D12: finite, best first, whatever the logits.
    #[test]
    fn are_finite_and_ordered() {
        let logits = [1.0, f32::NEG_INFINITY, 3.0, 3.0, f32::NAN];
        let found = logprobs_of(&logits, 0, 5);
        assert_eq!(found.top.iter().map(|&(id, _)| id).collect::<Vec<_>>(), [2, 3, 0, 1, 4]);
        assert!(found.top.iter().all(|(_, logprob)| logprob.is_finite()));
        assert_eq!(found.top[3].1.to_bits(), FLOOR.to_bits());
        let expected = 1.0 - (1f64.exp() + 2.0 * 3f64.exp()).ln();
        assert!((f64::from(found.logprob) - expected).abs() < 1e-6);
        let infinite = logprobs_of(&[0.0, f32::INFINITY], 1, 2);
        assert_eq!(infinite.top, [(1, 0.0), (0, FLOOR)]);
    }
}
