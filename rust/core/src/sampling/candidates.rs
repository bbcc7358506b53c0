//! The tokens that can be among the best, and where the best of them end: selection without sorting a vocabulary.
//!
//! Owns: the compacted list of candidates, and the search for the last token of a best part, measured in tokens (`top_k`)
//! or in weight (`top_p`). Candidates fall into buckets by their distance from the best; only the bucket that holds
//! the end is sorted. Invariant: the order is that of `Ranked`, so ties at an end go to the lower id.
//! Must not know: parameters.

use super::isa::{Isa, per_isa};
use super::row::{LANES, Ranked};

/// Buckets by distance from the best logit.
const BUCKETS: usize = 1024;
/// Logits that are passed over together if none of them is a candidate.
const BLOCK: usize = 4 * LANES;
/// Adding this rounds a number below 2^22 to a whole one, and leaves that in the low bits.
const ROUNDING: f32 = 12_582_912.0;

/// Tokens in the order of their ids, with their logits.
#[derive(Debug, Default)]
pub struct Candidates {
    ids: Vec<u32>,
    logits: Vec<f32>,
    len: usize,
}

impl Candidates {
    /// All tokens from `least` on but those without a chance: −∞ and NaN never come.
    pub fn gather(&mut self, isa: Isa, logits: &[f32], least: f32) {
        let room = logits.len() + LANES;
        if self.ids.len() < room {
            self.ids.resize(room, 0);
            self.logits.resize(room, 0.0);
        }
        self.len = gather(isa, logits, least.max(f32::MIN), &mut self.ids, &mut self.logits);
    }

    /// Their ids, ascending.
    pub fn ids(&self) -> &[u32] {
        &self.ids[..self.len]
    }

    /// Their logits.
    pub fn logits(&self) -> &[f32] {
        &self.logits[..self.len]
    }
}

/// Gathers the `k` best of a row, and perhaps others: each of the k best groups (see `row::maxima`) has a token that is as
/// good as the last of them. If there are fewer groups, the whole row is searched.
pub fn gather_best(
    isa: Isa,
    logits: &[f32],
    max: f32,
    groups: &[f32],
    k: usize,
    candidates: &mut Candidates,
    selection: &mut Selection,
) {
    let among = if k <= groups.len() { groups } else { logits };
    let last = selection.last_of_best(isa, among, max, |at| at as u32, |_| 1, k as u64);
    candidates.gather(isa, logits, last.map_or(f32::NEG_INFINITY, Ranked::logit));
}

/// Buffers of the search.
#[derive(Debug, Default)]
pub struct Selection {
    /// Of each candidate.
    buckets: Vec<u32>,
    /// What lies in each bucket.
    sums: Vec<u64>,
    /// The bucket with the end in it.
    last: Vec<(Ranked, u64)>,
}

impl Selection {
    /// The last of the fewest best candidates that amount to `wanted`; None if all together don't. `max` is the largest
    /// of `logits`; NaN counts as −∞.
    pub fn last_of_best(
        &mut self,
        isa: Isa,
        logits: &[f32],
        max: f32,
        id: impl Fn(usize) -> u32,
        amount: impl Fn(usize) -> u64,
        wanted: u64,
    ) -> Option<Ranked> {
        // An infinite or a tiny span puts more than need be into one bucket, which costs time only.
        let per_logit = (BUCKETS - 1) as f32 / (max - lowest(isa, logits));
        self.buckets.resize(logits.len(), 0);
        assign_buckets(isa, logits, max, per_logit, &mut self.buckets);
        self.sums.clear();
        self.sums.resize(BUCKETS, 0);
        for (at, &bucket) in self.buckets.iter().enumerate() {
            self.sums[bucket as usize % BUCKETS] += amount(at);
        }
        let mut sum = 0;
        let end = self.sums.iter().position(|&amount| {
            let is_here = sum + amount >= wanted;
            sum += if is_here { 0 } else { amount };
            is_here
        })? as u32;
        self.last.clear();
        let in_end = self.buckets.iter().enumerate().filter(|&(_, &bucket)| bucket == end);
        self.last.extend(in_end.map(|(at, _)| (Ranked::new(id(at), logits[at]), amount(at))));
        self.last.sort_unstable();
        let last = self.last.iter().find(|&&(_, amount)| {
            sum += amount;
            sum >= wanted
        });
        last.map(|&(ranked, _)| ranked)
    }
}

/// Whether any logit is as large; written as a sum, which the compiler makes vectors of.
#[inline(always)]
fn any_from(logits: &[f32], least: f32) -> bool {
    logits.iter().map(|&logit| u32::from(logit >= least)).sum::<u32>() > 0
}

/// The smaller of each lane, but −∞ never.
#[inline(always)]
fn lower(lanes: &mut [f32; LANES], logits: &[f32]) {
    for (lane, &logit) in lanes.iter_mut().zip(logits) {
        let candidate = if logit > f32::NEG_INFINITY { logit } else { f32::INFINITY };
        *lane = if candidate < *lane { candidate } else { *lane };
    }
}

per_isa! {
    fn gather(logits: &[f32], least: f32, ids: &mut [u32], found: &mut [f32]) -> usize {
        let mut len = 0;
        for (number, block) in logits.chunks(BLOCK).enumerate() {
            if !any_from(block, least) {
                continue;
            }
            for (at, vector) in block.chunks(LANES).enumerate() {
                if !any_from(vector, least) {
                    continue;
                }
                // Written in any case: no branch to be guessed wrong. There is room for a whole vector.
                let ids = ids[len..].first_chunk_mut::<LANES>().expect("the list is longer than the row");
                let found = found[len..].first_chunk_mut::<LANES>().expect("the list is longer than the row");
                let (start, mut kept) = (number * BLOCK + at * LANES, 0);
                for (lane, &logit) in vector.iter().enumerate() {
                    (ids[kept % LANES], found[kept % LANES]) = ((start + lane) as u32, logit);
                    kept += usize::from(logit >= least);
                }
                len += kept;
            }
        }
        len
    }

    /// The smallest above −∞; ∞ if there is none.
    fn lowest(logits: &[f32]) -> f32 {
        let mut lanes = [f32::INFINITY; LANES];
        let (vectors, rest) = logits.as_chunks::<LANES>();
        for vector in vectors {
            lower(&mut lanes, vector);
        }
        lower(&mut lanes, rest);
        lanes.iter().copied().fold(f32::INFINITY, f32::min)
    }

    /// Larger logits never come into later buckets: subtraction, product and rounding are all monotone.
    fn assign_buckets(logits: &[f32], max: f32, per_logit: f32, buckets: &mut [u32]) {
        for (bucket, &logit) in buckets.iter_mut().zip(logits) {
            let distance = (max - logit) * per_logit;
            // NaN is ∞ − ∞ or 0 · ∞; then what isn't in the last bucket is finite and in the first.
            let distance = if distance < (BUCKETS - 1) as f32 { distance } else { (BUCKETS - 1) as f32 };
            *bucket = (distance + ROUNDING).to_bits().wrapping_sub(ROUNDING.to_bits());
        }
    }
}
