//! From adjusted logits to the law a token is drawn from: temperature, then `top_k`, then `top_p`, then `min_p`.
//!
//! Owns: which tokens stay possible, and the draw. Ties at a cut go to the lower id. Sums run in f64 in a fixed order,
//! so a draw depends on nothing but its row. Nothing sorts the whole vocabulary unless the law itself is that flat.
//! Must not know: penalties, random generators.

use super::exp::exp;
use super::row::{Ranked, maximum};
use crate::sampling_params::SamplingParams;

/// Weights are summed in runs of this length, so that a draw finds its run first and its token in it.
const RUN: usize = 256;
/// How much less likely than the best a token may be to be looked at in each round of the `top_p` search.
const TOP_P_ROUNDS: [f32; 4] = [1e-2, 1e-4, 1e-7, 0.0];

/// Buffers that live from draw to draw.
#[derive(Debug, Default)]
pub struct Scratch {
    weights: Vec<f32>,
    runs: Vec<f64>,
    ranked: Vec<Ranked>,
    kept: Vec<(u32, f32)>,
}

/// One token of the law; `uniform` is in [0, 1). None if every logit is −∞ or NaN.
pub fn draw(params: &SamplingParams, logits: &[f32], uniform: f64, scratch: &mut Scratch) -> Option<u32> {
    let max = maximum(logits);
    if max == f32::NEG_INFINITY {
        return None;
    }
    let law = Law { max, inverse_temperature: 1.0 / params.temperature };
    let top_k = if params.top_k <= 0 { logits.len() } else { params.top_k as usize };
    if top_k < logits.len() {
        scratch.keep_top_k(logits, top_k);
        let total = scratch.kept_total(&law);
        scratch.cut_top_p(params.top_p, total);
    } else if params.top_p < 1.0 {
        scratch.weigh(logits, &law);
        let total = scratch.runs.iter().sum();
        scratch.keep_top_p(logits, &law, params.top_p, total);
    } else {
        scratch.weigh(logits, &law);
        if params.min_p > 0.0 {
            scratch.drop_below(params.min_p);
        }
        return scratch.draw_from_all(uniform);
    }
    scratch.kept.retain(|&(_, weight)| weight >= params.min_p);
    scratch.kept.sort_unstable_by_key(|&(id, _)| id);
    scratch.draw_from_kept(uniform)
}

/// Weights relative to the best token's, which is 1.
struct Law {
    max: f32,
    inverse_temperature: f32,
}

impl Law {
    #[inline]
    fn weight(&self, logit: f32) -> f32 {
        // ∞ − ∞ and 0 · ∞ are NaN: the best token itself, whatever the temperature.
        if logit == self.max { 1.0 } else { exp((logit - self.max) * self.inverse_temperature) }
    }
}

impl Scratch {
    /// All weights, and their sums by runs.
    fn weigh(&mut self, logits: &[f32], law: &Law) {
        self.weights.clear();
        self.weights.extend(logits.iter().map(|&logit| law.weight(logit)));
        self.sum_runs();
    }

    fn sum_runs(&mut self) {
        self.runs.clear();
        self.runs.extend(
            self.weights.chunks(RUN).map(|run| run.iter().map(|&weight| f64::from(weight)).sum::<f64>()),
        );
    }

    fn drop_below(&mut self, min_p: f32) {
        for weight in &mut self.weights {
            *weight = if *weight >= min_p { *weight } else { 0.0 };
        }
        self.sum_runs();
    }

    /// The k best, best first, with logits for weights.
    fn keep_top_k(&mut self, logits: &[f32], k: usize) {
        self.ranked.clear();
        self.ranked.extend(logits.iter().enumerate().map(|(id, &logit)| Ranked::new(id as u32, logit)));
        self.ranked.select_nth_unstable(k - 1);
        self.ranked.truncate(k);
        self.ranked.sort_unstable();
        self.kept.clear();
        self.kept.extend(self.ranked.iter().map(|ranked| (ranked.id(), ranked.logit())));
    }

    /// Turns the kept logits into weights; returns their sum.
    fn kept_total(&mut self, law: &Law) -> f64 {
        let mut total = 0.0;
        for (_, value) in &mut self.kept {
            *value = law.weight(*value);
            total += f64::from(*value);
        }
        total
    }

    /// Of the kept, best first, the fewest that have `top_p` of the total; returns whether they have it.
    fn cut_top_p(&mut self, top_p: f32, total: f64) -> bool {
        let (wanted, mut sum) = (f64::from(top_p) * total, 0.0);
        for at in 0..self.kept.len() {
            sum += f64::from(self.kept[at].1);
            if sum >= wanted {
                self.kept.truncate(at + 1);
                return true;
            }
        }
        false
    }

    /// The fewest of all tokens that have `top_p` of the total: looks at the likely ones first.
    fn keep_top_p(&mut self, logits: &[f32], law: &Law, top_p: f32, total: f64) {
        for least in TOP_P_ROUNDS {
            self.ranked.clear();
            let likely =
                self.weights.iter().enumerate().filter(|&(_, &weight)| weight > 0.0 && weight >= least);
            self.ranked.extend(likely.map(|(id, _)| Ranked::new(id as u32, logits[id])));
            self.ranked.sort_unstable();
            self.kept.clear();
            self.kept.extend(self.ranked.iter().map(|ranked| (ranked.id(), law.weight(ranked.logit()))));
            if self.cut_top_p(top_p, total) {
                return;
            }
        }
    }

    fn draw_from_all(&self, uniform: f64) -> Option<u32> {
        let total: f64 = self.runs.iter().sum();
        let mut left = uniform * total;
        let mut last = None;
        for (number, &run) in self.runs.iter().enumerate() {
            if run <= 0.0 {
                continue;
            }
            let start = number * RUN;
            let weights = &self.weights[start..self.weights.len().min(start + RUN)];
            if left < run {
                return pick(weights.iter().copied().enumerate(), left).map(|at| (start + at) as u32);
            }
            left -= run;
            last = weights.iter().rposition(|&weight| weight > 0.0).map(|at| (start + at) as u32);
        }
        // Roundings can leave a speck over.
        last
    }

    fn draw_from_kept(&self, uniform: f64) -> Option<u32> {
        let total: f64 = self.kept.iter().map(|&(_, weight)| f64::from(weight)).sum();
        let weights = self.kept.iter().map(|&(_, weight)| weight);
        pick(weights.enumerate(), uniform * total).map(|at| self.kept[at].0)
    }
}

/// The first at which the running sum passes `target`; the last possible one if roundings leave a speck over.
fn pick(weights: impl Iterator<Item = (usize, f32)>, target: f64) -> Option<usize> {
    let (mut sum, mut last) = (0.0, None);
    for (at, weight) in weights {
        if weight > 0.0 {
            sum += f64::from(weight);
            last = Some(at);
            if sum > target {
                break;
            }
        }
    }
    last
}
