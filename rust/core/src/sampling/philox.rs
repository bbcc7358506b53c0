//! Philox4x32-10, the counter-based generator of Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (2011).
//!
//! Owns: the mapping of (seed, sequence index, position) to one uniform number, the same here and on a GPU:
//! key = (seed low, seed high), counter = (position low, position high, sequence index, 0).
//! Invariant: no state. Must not know: what the number is for.

const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
const ROUNDS: u32 = 10;

/// Four random words of a counter under a key.
pub fn philox4x32(counter: [u32; 4], key: [u32; 2]) -> [u32; 4] {
    let ([mut a, mut b, mut c, mut d], [mut k0, mut k1]) = (counter, key);
    for _ in 0..ROUNDS {
        let (first, second) = (wide(MULTIPLIERS[0], a), wide(MULTIPLIERS[1], c));
        [a, b, c, d] = [second.0 ^ b ^ k0, second.1, first.0 ^ d ^ k1, first.1];
        k0 = k0.wrapping_add(WEYL[0]);
        k1 = k1.wrapping_add(WEYL[1]);
    }
    [a, b, c, d]
}

/// High and low word of a product.
fn wide(a: u32, b: u32) -> (u32, u32) {
    let product = u64::from(a) * u64::from(b);
    ((product >> 32) as u32, product as u32)
}

/// A number in [0, 1) with 53 random bits for the token at `position` of sequence `index`.
pub fn uniform(seed: u64, index: u32, position: u64) -> f64 {
    let counter = [position as u32, (position >> 32) as u32, index, 0];
    let words = philox4x32(counter, [seed as u32, (seed >> 32) as u32]);
    let bits = (u64::from(words[1]) << 32 | u64::from(words[0])) >> 11;
    bits as f64 * (-53f64).exp2()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The known answers that come with the paper's own library.
    #[test]
    fn known_answers() {
        let max = u32::MAX;
        assert_eq!(philox4x32([0; 4], [0; 2]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        assert_eq!(philox4x32([max; 4], [max; 2]), [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]);
        assert_eq!(
            philox4x32([0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344], [0xa409_3822, 0x299f_31d0]),
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]
        );
    }

    #[test]
    fn uniform_stays_below_one_and_depends_on_everything() {
        let mut seen = std::collections::BTreeSet::new();
        for (seed, index, position) in
            [(0, 0, 0), (1, 0, 0), (1 << 32, 0, 0), (0, 1, 0), (0, 0, 1), (0, 0, 1 << 32)]
        {
            let u = uniform(seed, index, position);
            assert!((0.0..1.0).contains(&u));
            assert!(seen.insert(u.to_bits()));
        }
    }
}
