//! From adjusted logits to the law a token is drawn from: temperature, then `top_k`, then `top_p`, then `min_p`.
//!
//! Owns: which tokens stay possible. Ties at a cut go to the lower id. A draw depends on nothing but its row: weights are
//! the same on every machine, and their sums are exact. Nothing sorts the whole vocabulary.
//! Must not know: penalties, random generators.

use super::candidates::{Candidates, Selection, gather_best};
use super::isa::Isa;
use super::row::{Ranked, maxima};
use super::weights::{Law, ONE, Weights, portion, units};
use crate::sampling_params::SamplingParams;

/// Less than half a unit of `weights`, so it counts as nothing.
const NEGLIGIBLE: f64 = 1.0 / (1u64 << 42) as f64;
/// From here on a weight is within 2 % of its units, and rounding can't spoil the bound of `least_of_top_p`.
const WELL_ROUNDED: f64 = 1.0 / (1u64 << 35) as f64;

/// Buffers that live from draw to draw.
#[derive(Debug, Default)]
pub struct Scratch {
    groups: Vec<f32>,
    weights: Weights,
    candidates: Candidates,
    selection: Selection,
}

/// One token of the law; `uniform` is in [0, 1). None if every logit is −∞ or NaN.
pub fn draw(
    isa: Isa,
    params: &SamplingParams,
    logits: &[f32],
    uniform: f64,
    scratch: &mut Scratch,
) -> Option<u32> {
    let max = maxima(isa, logits, &mut scratch.groups);
    if max == f32::NEG_INFINITY {
        return None;
    }
    if max == f32::INFINITY {
        scratch.candidates.gather(isa, logits, max);
        return draw_from_equals(params, scratch.candidates.ids(), uniform);
    }
    let law = Law { max, inverse_temperature: 1.0 / params.temperature };
    let is_cut = |k: &usize| *k < logits.len();
    let top_k = usize::try_from(params.top_k).ok().filter(|&k| k > 0).filter(is_cut);
    let mut row = Row { isa, logits, law, scratch };
    let last = match top_k {
        Some(k) => {
            let last = row.gather_top_k(k);
            if params.top_p < 1.0 {
                row.keep(last, 0.0);
                let wanted = share(params.top_p, row.scratch.weights.total());
                row.last_of_top_p(wanted)
            } else {
                last
            }
        }
        None if params.top_p < 1.0 => {
            row.scratch.weights.weigh(isa, logits, law);
            let total = row.scratch.weights.total();
            let wanted = share(params.top_p, total);
            row.gather_top_p(total, wanted);
            row.last_of_top_p(wanted)
        }
        None => {
            if params.min_p > 0.0 {
                scratch.weights.weigh_from(isa, logits, law, params.min_p);
            } else {
                scratch.weights.weigh(isa, logits, law);
            }
            return scratch.weights.pick(uniform).map(|id| id as u32);
        }
    };
    row.keep(last, params.min_p);
    scratch.weights.pick(uniform).map(|at| scratch.candidates.ids()[at])
}

/// Tokens of infinite logits are equally likely, and leave nothing for others.
fn draw_from_equals(params: &SamplingParams, ids: &[u32], uniform: f64) -> Option<u32> {
    let mut kept = ids.len();
    if params.top_k > 0 {
        kept = kept.min(params.top_k as usize);
    }
    if params.top_p < 1.0 {
        kept = share(params.top_p, kept as u64 * ONE).div_ceil(ONE) as usize;
    }
    ids.get(portion(uniform, kept as u64) as usize).copied()
}

/// At least so many units are `top_p` of the total.
fn share(top_p: f32, total: u64) -> u64 {
    (f64::from(top_p) * total as f64).ceil() as u64
}

/// A row under way: the groups' maxima are known.
struct Row<'a> {
    isa: Isa,
    logits: &'a [f32],
    law: Law,
    scratch: &'a mut Scratch,
}

impl Row<'_> {
    /// Gathers and weighs the k best, and perhaps others; returns the last of the k.
    fn gather_top_k(&mut self, k: usize) -> Ranked {
        let Scratch { groups, candidates, selection, weights } = &mut *self.scratch;
        gather_best(self.isa, self.logits, self.law.max, groups, k, candidates, selection);
        let (ids, logits) = (candidates.ids(), candidates.logits());
        let last = selection.last_of_best(self.isa, logits, self.law.max, |at| ids[at], |_| 1, k as u64);
        weights.weigh(self.isa, logits, self.law);
        // Fewer than k have a chance.
        last.unwrap_or(Ranked::LAST)
    }

    /// Gathers and weighs what can be among the fewest best tokens that have `wanted` of the total.
    fn gather_top_p(&mut self, total: u64, wanted: u64) {
        let Scratch { groups, selection, weights, .. } = &mut *self.scratch;
        // If the groups' best alone have it, so have the tokens that are as good as the last of these.
        weights.weigh(self.isa, groups, self.law);
        let amount = |at: usize| units(weights.as_slice()[at]);
        let last = selection.last_of_best(self.isa, groups, self.law.max, |at| at as u32, amount, wanted);
        let least = match last {
            Some(last) => last.logit(),
            None => self.least_of_top_p(total, wanted),
        };
        let Scratch { candidates, weights, .. } = &mut *self.scratch;
        candidates.gather(self.isa, self.logits, least);
        weights.weigh(self.isa, candidates.logits(), self.law);
    }

    /// A bound that all of them reach: even if every token of the row were just below it, they would not have what is
    /// left over. It is lower than need be by a factor of 2 in weight, against roundings here, so it changes no token.
    fn least_of_top_p(&self, total: u64, wanted: u64) -> f32 {
        let left_over = (total - wanted) as f64 / ONE as f64;
        let weight = 0.5 * left_over / self.logits.len() as f64;
        let weight = if weight < WELL_ROUNDED { NEGLIGIBLE } else { weight };
        let least = f64::from(self.law.max) + weight.ln() / f64::from(self.law.inverse_temperature);
        least as f32
    }

    /// The last of the fewest best candidates that have `wanted` units.
    fn last_of_top_p(&mut self, wanted: u64) -> Ranked {
        let Scratch { candidates, selection, weights, .. } = &mut *self.scratch;
        let (ids, logits, weights) = (candidates.ids(), candidates.logits(), weights.as_slice());
        let amount = |at: usize| units(weights[at]);
        let last = selection.last_of_best(self.isa, logits, self.law.max, |at| ids[at], amount, wanted);
        last.unwrap_or(Ranked::LAST)
    }

    /// Candidates up to `last` with weights from `min_p` on keep theirs; the others' become 0.
    fn keep(&mut self, last: Ranked, min_p: f32) {
        let Scratch { candidates, weights, .. } = &mut *self.scratch;
        weights.keep(self.isa, candidates.ids(), candidates.logits(), last, min_p);
    }
}
