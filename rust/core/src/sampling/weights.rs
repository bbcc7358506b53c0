//! Weights of tokens relative to the best one's, and the draw of one token by them.
//!
//! Owns: the sums. A weight counts in whole units of 2⁻⁴⁰, so every sum is exact: it depends neither on an order nor on
//! an instruction set, here or on a GPU. A weight of 2⁻¹⁷ or more is a whole number of units as it is; rounding the others
//! moves a row of 49,152 by less than 5·10⁻⁸ of the best token's probability in all, a tenth of what `exp` errs.
//! Must not know: which tokens were left out, and why.

use super::exp::exp;
use super::isa::{Isa, per_isa};
use super::row::{LANES, Ranked};

/// Weights are summed in runs of this length, so that a draw finds its run first and its token in it.
const RUN: usize = 256;

/// Logits that are weighed together: four vectors, whose long chains of operations overlap.
const GROUP: usize = 4 * LANES;

/// Adding this to a weight leaves the weight in the low bits, as a whole number of units.
const UNITS: f64 = 4096.0;

/// The best token's weight in units.
pub const ONE: u64 = 1 << 40;

/// Longest row: the units of all its weights fit a u64.
pub const MAX_ROW: usize = 1 << 23;

/// A weight in units of 2⁻⁴⁰, to the nearest, for 0 ≤ weight ≤ 1.
#[inline(always)]
pub fn units(weight: f32) -> u64 {
    (f64::from(weight) + UNITS).to_bits().wrapping_sub(UNITS.to_bits())
}

/// So many whole ones are the share `uniform`, in [0, 1), of `total`: at most `total` − 1.
pub fn portion(uniform: f64, total: u64) -> u64 {
    let bits = (uniform * 53f64.exp2()) as u64;
    ((u128::from(bits) * u128::from(total)) >> 53) as u64
}

/// From logits to weights: exp((logit − max) / temperature), so the best token's is 1.
#[derive(Clone, Copy, Debug)]
pub struct Law {
    /// Finite.
    pub max: f32,
    /// 1 / temperature.
    pub inverse_temperature: f32,
}

impl Law {
    #[inline(always)]
    fn weights<const N: usize>(self, logits: &[f32; N]) -> [f32; N] {
        exp(&logits.map(|logit| (logit - self.max) * self.inverse_temperature))
    }
}

/// A row's weights and their sums.
#[derive(Debug, Default)]
pub struct Weights {
    weights: Vec<f32>,
    /// Units of each run.
    runs: Vec<u64>,
}

impl Weights {
    /// Those of `logits`.
    pub fn weigh(&mut self, isa: Isa, logits: &[f32], law: Law) {
        self.resize(logits.len());
        weigh(isa, logits, law, &mut self.weights, &mut self.runs);
    }

    /// Those of `logits`; what is below `least` becomes 0.
    pub fn weigh_from(&mut self, isa: Isa, logits: &[f32], law: Law, least: f32) {
        self.resize(logits.len());
        weigh_from(isa, logits, law, least, &mut self.weights, &mut self.runs);
    }

    fn resize(&mut self, len: usize) {
        assert!(len <= MAX_ROW, "a row of more than {MAX_ROW} logits");
        self.weights.resize(len, 0.0);
        self.runs.resize(len.div_ceil(RUN), 0);
    }

    /// Only tokens up to `last`, and with weights from `least` on, keep theirs; the others' become 0.
    pub fn keep(&mut self, isa: Isa, ids: &[u32], logits: &[f32], last: Ranked, least: f32) {
        keep(isa, ids, logits, (last.id(), last.logit()), least, &mut self.weights, &mut self.runs);
    }

    /// One for each logit.
    pub fn as_slice(&self) -> &[f32] {
        &self.weights
    }

    /// In units.
    pub fn total(&self) -> u64 {
        self.runs.iter().sum()
    }

    /// Where the running sum passes the share `uniform`, in [0, 1), of the total; None if all weights are 0.
    pub fn pick(&self, uniform: f64) -> Option<usize> {
        let mut left = portion(uniform, self.total());
        for (number, &run) in self.runs.iter().enumerate() {
            if left >= run {
                left -= run;
                continue;
            }
            let start = number * RUN;
            let at = self.weights[start..].iter().position(|&weight| {
                let units = units(weight);
                let is_here = left < units;
                left = left.wrapping_sub(units);
                is_here
            });
            return at.map(|at| start + at);
        }
        None
    }
}

/// Sixteen running sums in units, `UNITS` left in until the end: that spares an instruction per weight.
struct Sums {
    lanes: [u64; LANES],
    added: u64,
}

impl Sums {
    #[inline(always)]
    fn new() -> Self {
        Self { lanes: [0; LANES], added: 0 }
    }

    #[inline(always)]
    fn add(&mut self, weights: &[f32; GROUP]) {
        for vector in weights.as_chunks::<LANES>().0 {
            for (lane, &weight) in self.lanes.iter_mut().zip(vector) {
                *lane = lane.wrapping_add((f64::from(weight) + UNITS).to_bits());
            }
        }
        self.added += GROUP as u64;
    }

    #[inline(always)]
    fn total(&self) -> u64 {
        let sum = self.lanes.iter().fold(0u64, |sum, &lane| sum.wrapping_add(lane));
        sum.wrapping_sub(UNITS.to_bits().wrapping_mul(self.added))
    }
}

/// Weighs run by run; `choose` may change a group's weights before they count.
#[inline(always)]
fn weigh_runs(
    logits: &[f32],
    law: Law,
    weights: &mut [f32],
    runs: &mut [u64],
    choose: impl Fn([f32; GROUP]) -> [f32; GROUP],
) {
    for ((logits, weights), run) in logits.chunks(RUN).zip(weights.chunks_mut(RUN)).zip(runs) {
        let mut sums = Sums::new();
        let (logits, logits_rest) = logits.as_chunks::<GROUP>();
        let (weights, weights_rest) = weights.as_chunks_mut::<GROUP>();
        for (logits, weights) in logits.iter().zip(weights) {
            *weights = choose(law.weights(logits));
            sums.add(weights);
        }
        if !logits_rest.is_empty() {
            let weights = choose(law.weights(&padded(logits_rest, f32::NEG_INFINITY)));
            weights_rest.copy_from_slice(&weights[..logits_rest.len()]);
            sums.add(&weights);
        }
        *run = sums.total();
    }
}

#[inline(always)]
fn keep_group(
    ids: &[u32; GROUP],
    logits: &[f32; GROUP],
    (last_id, last_logit): (u32, f32),
    least: f32,
    weights: &mut [f32; GROUP],
) {
    for (weight, (&id, &logit)) in weights.iter_mut().zip(ids.iter().zip(logits)) {
        let is_kept = logit > last_logit || (logit == last_logit && id <= last_id);
        *weight = if is_kept && *weight >= least { *weight } else { 0.0 };
    }
}

/// The first of a group; `filler` in the rest.
#[inline(always)]
fn padded<T: Copy>(values: &[T], filler: T) -> [T; GROUP] {
    let mut group = [filler; GROUP];
    group[..values.len()].copy_from_slice(values);
    group
}

per_isa! {
    fn weigh(logits: &[f32], law: Law, weights: &mut [f32], runs: &mut [u64]) {
        weigh_runs(logits, law, weights, runs, |weights| weights);
    }

    fn weigh_from(logits: &[f32], law: Law, least: f32, weights: &mut [f32], runs: &mut [u64]) {
        weigh_runs(logits, law, weights, runs, |mut weights| {
            for weight in &mut weights {
                *weight = if *weight < least { 0.0 } else { *weight };
            }
            weights
        });
    }

    fn keep(ids: &[u32], logits: &[f32], last: (u32, f32), least: f32, weights: &mut [f32], runs: &mut [u64]) {
        let inputs = ids.chunks(RUN).zip(logits.chunks(RUN));
        for (((ids, logits), weights), run) in inputs.zip(weights.chunks_mut(RUN)).zip(runs) {
            let mut sums = Sums::new();
            let (ids, ids_rest) = ids.as_chunks::<GROUP>();
            let (logits, logits_rest) = logits.as_chunks::<GROUP>();
            let (weights, weights_rest) = weights.as_chunks_mut::<GROUP>();
            for ((ids, logits), weights) in ids.iter().zip(logits).zip(weights) {
                keep_group(ids, logits, last, least, weights);
                sums.add(weights);
            }
            if !ids_rest.is_empty() {
                let mut weights = padded(weights_rest, 0.0);
                keep_group(&padded(ids_rest, 0), &padded(logits_rest, 0.0), last, least, &mut weights);
                weights_rest.copy_from_slice(&weights[..ids_rest.len()]);
                sums.add(&weights);
            }
            *run = sums.total();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_the_nearest_whole_number() {
        let mut weight = 1f32;
        while weight > 0.0 {
            for weight in [weight, weight * 0.75, weight * 0.999_999_9] {
                let expected = (f64::from(weight) * 40f64.exp2()).round_ties_even() as u64;
                assert_eq!(units(weight), expected, "{weight:e}");
            }
            weight /= 2.0;
        }
        assert_eq!(units(0.0), 0);
    }

    #[test]
    fn a_pick_is_where_the_running_sum_passes_its_share() {
        let mut weights = Weights::default();
        let law = Law { max: 0.0, inverse_temperature: 1.0 };
        let logits: Vec<f32> =
            (0..600).map(|id| if id % 200 == 199 { 0.0 } else { f32::NEG_INFINITY }).collect();
        weights.weigh(Isa::selected(), &logits, law);
        assert_eq!(weights.total(), 3 * ONE);
        let third = 1.0 / 3.0;
        for (uniform, expected) in [(0.0, 199), (third - 1e-9, 199), (third + 1e-9, 399), (1.0 - 1e-16, 599)]
        {
            assert_eq!(weights.pick(uniform), Some(expected), "{uniform}");
        }
        weights.weigh(Isa::selected(), &[f32::NEG_INFINITY; 20], law);
        assert_eq!(weights.pick(0.5), None);
    }
}
