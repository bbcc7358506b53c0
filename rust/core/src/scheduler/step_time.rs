//! How long a step takes, learnt from the steps that were: the chunk budget that keeps a step-time target.
//!
//! Owns: a straight line time = base + per token × tokens, fitted by least squares in which older steps count less.
//! Must not know: sequences, what the tokens are.

use crate::clock::Nanos;

/// Each step takes this much weight from the ones before it: about the last 30 count.
const FORGETTING: f64 = 1.0 - 1.0 / 32.0;

/// Sums of weights, tokens and times.
#[derive(Clone, Debug, Default)]
pub struct StepTimeModel {
    weight: f64,
    tokens: f64,
    time: f64,
    tokens_squared: f64,
    tokens_time: f64,
}

impl StepTimeModel {
    /// A step of `tokens` tokens took `time`.
    pub fn observe(&mut self, tokens: usize, time: Nanos) {
        let (tokens, time) = (tokens as f64, time as f64);
        for (sum, new) in [
            (&mut self.weight, 1.0),
            (&mut self.tokens, tokens),
            (&mut self.time, time),
            (&mut self.tokens_squared, tokens * tokens),
            (&mut self.tokens_time, tokens * time),
        ] {
            *sum = *sum * FORGETTING + new;
        }
    }

    /// (base, per token), in ns. All steps alike say nothing about the base: then it is 0.
    fn line(&self) -> Option<(f64, f64)> {
        if self.weight == 0.0 {
            return None;
        }
        let (tokens, time) = (self.tokens / self.weight, self.time / self.weight);
        let variance = self.tokens_squared / self.weight - tokens * tokens;
        let covariance = self.tokens_time / self.weight - tokens * time;
        let slope = covariance / variance;
        if variance <= 1e-6 * tokens * tokens || slope <= 0.0 {
            return Some((0.0, time / tokens));
        }
        let base = time - slope * tokens;
        // A base below zero is noise: the line then goes through the origin.
        if base < 0.0 { Some((0.0, time / tokens)) } else { Some((base, slope)) }
    }

    /// How long the last steps took; None while nothing is known.
    pub fn mean(&self) -> Option<Nanos> {
        (self.weight > 0.0).then(|| (self.time / self.weight) as Nanos)
    }

    /// The most tokens of a step that is to take `target`; None while nothing is known.
    pub fn tokens_within(&self, target: Nanos) -> Option<usize> {
        let (base, per_token) = self.line()?;
        Some((((target as f64 - base) / per_token).max(0.0)) as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_is_found_and_followed() {
        let mut model = StepTimeModel::default();
        assert_eq!(model.tokens_within(1_000_000), None);
        for step in 0..200 {
            let tokens = 8 + step % 5 * 60;
            model.observe(tokens, 20_000 + 200 * tokens as Nanos);
        }
        let budget = model.tokens_within(60_000).unwrap();
        assert!((195..=200).contains(&budget), "{budget}");
        assert_eq!(model.tokens_within(10_000), Some(0), "less than the base");
        // The machine has become half as fast.
        for step in 0..300 {
            let tokens = 8 + step % 5 * 60;
            model.observe(tokens, 40_000 + 400 * tokens as Nanos);
        }
        let budget = model.tokens_within(60_000).unwrap();
        assert!((45..=52).contains(&budget), "{budget}");
    }

    #[test]
    fn steps_that_are_all_alike_give_a_proportion() {
        let mut model = StepTimeModel::default();
        (0..50).for_each(|_| model.observe(100, 1_000));
        let budget = model.tokens_within(500).unwrap();
        assert!((49..=50).contains(&budget), "{budget}");
    }
}
