//! One row of logits: its maximum, and an order of tokens in which equal logits go by id.
//!
//! Must not know: parameters, probabilities.

/// A token with its logit, ordered best first: higher logits before lower ones, then lower ids before higher ones.
/// NaN comes last, as impossible as −∞.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ranked(u64);

impl Ranked {
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

/// Width of the compiler's widest vectors.
const LANES: usize = 16;
/// So much is searched again when it holds a new maximum.
const CHUNK: usize = 1024;

/// The largest logit; −∞ if there is none or all are NaN.
pub fn maximum(logits: &[f32]) -> f32 {
    let mut lanes = [f32::NEG_INFINITY; LANES];
    let (chunks, rest) = logits.as_chunks::<LANES>();
    for chunk in chunks {
        for (lane, &logit) in lanes.iter_mut().zip(chunk) {
            // Not `max`: this is one instruction, and drops NaN.
            *lane = if logit > *lane { logit } else { *lane };
        }
    }
    lanes.iter().chain(rest).fold(f32::NEG_INFINITY, |max, &logit| if logit > max { logit } else { max })
}

/// The token with the largest logit, the lowest of several; None if every logit is −∞ or NaN.
pub fn argmax(logits: &[f32]) -> Option<u32> {
    let (mut best, mut at) = (f32::NEG_INFINITY, None);
    for (number, chunk) in logits.chunks(CHUNK).enumerate() {
        let max = maximum(chunk);
        if max > best {
            best = max;
            at = chunk.iter().position(|&logit| logit == max).map(|offset| (number * CHUNK + offset) as u32);
        }
    }
    at
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

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
            prop_assert_eq!(argmax(&logits), expected.map(|id| id as u32));
        }
    }
}
