//! One row of logits: its maxima, and an order of tokens in which equal logits go by id.
//!
//! Must not know: parameters, probabilities.

use super::isa::per_isa;

/// A token with its logit, ordered best first: higher logits before lower ones, then lower ids before higher ones.
/// NaN comes last, as impossible as −∞.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ranked(u64);

impl Ranked {
    /// Impossible, and the highest id: nothing comes after it.
    pub const LAST: Self = Self((f32::NEG_INFINITY.to_bits() as u64) << 32 | u32::MAX as u64);

    /// The logit becomes an integer of the reverse order in the upper half, the id is the lower half.
    #[inline]
    pub fn new(id: u32, logit: f32) -> Self {
        let logit = if logit.is_nan() { f32::NEG_INFINITY } else { logit + 0.0 };
        let bits = logit.to_bits();
        let ascending = if bits >> 31 == 0 { bits | 1 << 31 } else { !bits };
        Self(u64::from(!ascending) << 32 | u64::from(id))
    }

    /// The token.
    pub fn id(self) -> u32 {
        self.0 as u32
    }

    /// Its logit, −∞ for NaN.
    pub fn logit(self) -> f32 {
        let ascending = !((self.0 >> 32) as u32);
        f32::from_bits(if ascending >> 31 == 1 { ascending & !(1 << 31) } else { !ascending })
    }
}

/// Lanes of the widest vectors.
pub const LANES: usize = 16;
/// Logits whose maxima are taken lane by lane: 16 groups of 64.
const BLOCK: usize = 1024;

/// The larger of each lane. Not `max`: this is one instruction, and drops NaN.
#[inline(always)]
fn larger(lanes: &mut [f32; LANES], logits: &[f32]) {
    for (lane, &logit) in lanes.iter_mut().zip(logits) {
        *lane = if logit > *lane { logit } else { *lane };
    }
}

#[inline(always)]
fn block_maxima(block: &[f32]) -> [f32; LANES] {
    let mut lanes = [f32::NEG_INFINITY; LANES];
    let (vectors, rest) = block.as_chunks::<LANES>();
    for vector in vectors {
        larger(&mut lanes, vector);
    }
    larger(&mut lanes, rest);
    lanes
}

#[inline(always)]
fn maximum_of(lanes: &[f32; LANES]) -> f32 {
    lanes.iter().fold(f32::NEG_INFINITY, |max, &lane| if lane > max { lane } else { max })
}

per_isa! {
    /// The largest logit; −∞ if there is none or all are NaN. `groups` become the maxima of groups that make up the row,
    /// so at least as many logits are as large as the k-th of them as k.
    pub fn maxima(logits: &[f32], groups: &mut Vec<f32>) -> f32 {
        groups.clear();
        let mut max = [f32::NEG_INFINITY; LANES];
        for block in logits.chunks(BLOCK) {
            let lanes = block_maxima(block);
            larger(&mut max, &lanes);
            groups.extend_from_slice(&lanes);
        }
        maximum_of(&max)
    }

    /// The token with the largest logit, the lowest of several; None if every logit is −∞ or NaN.
    pub fn argmax(logits: &[f32]) -> Option<u32> {
        let (mut best, mut start) = (f32::NEG_INFINITY, 0);
        for (number, block) in logits.chunks(BLOCK).enumerate() {
            let max = maximum_of(&block_maxima(block));
            if max > best {
                (best, start) = (max, number * BLOCK);
            }
        }
        if best == f32::NEG_INFINITY {
            return None;
        }
        logits[start..].iter().position(|&logit| logit == best).map(|at| (start + at) as u32)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::isa::Isa;
    use super::*;

    proptest! {
        #[test]
        fn ranked_orders_by_logit_then_id(a: f32, b: f32, i: u32, j: u32) {
            prop_assume!(!a.is_nan() && !b.is_nan());
            let (first, second) = (Ranked::new(i, a), Ranked::new(j, b));
            let expected = b.partial_cmp(&a).unwrap().then(i.cmp(&j));
            prop_assert_eq!(first.cmp(&second), expected);
            prop_assert_eq!(first.logit(), a);
            prop_assert_eq!(first.id(), i);
            prop_assert!(first <= Ranked::LAST);
        }

        #[test]
        fn argmax_is_the_first_of_the_largest(logits in prop::collection::vec(
            prop_oneof![(-3i8..3).prop_map(f32::from), Just(f32::NAN), Just(f32::NEG_INFINITY)], 0..3000)) {
            let mut expected = None;
            for (id, &logit) in logits.iter().enumerate() {
                if logit > expected.map_or(f32::NEG_INFINITY, |best: usize| logits[best]) {
                    expected = Some(id);
                }
            }
            let max = expected.map_or(f32::NEG_INFINITY, |best| logits[best]);
            let mut groups = Vec::new();
            for isa in Isa::available() {
                prop_assert_eq!(argmax(isa, &logits), expected.map(|id| id as u32));
                prop_assert_eq!(maxima(isa, &logits, &mut groups), max);
                prop_assert_eq!(groups.iter().copied().fold(f32::NEG_INFINITY, f32::max), max);
            }
        }
    }
}
