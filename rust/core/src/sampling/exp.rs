//! exp(x) for x ≤ 0 in f32, without the system's mathematics library, so that a token is the same everywhere.
//!
//! Owns: the polynomial and its error. Plain arithmetic, which the compiler makes vectors of.

/// Below this exp(x) is less than the smallest normal f32, and counts as nothing.
const LOWEST: f32 = -87.33;

/// Adding 1.5 · 2^23 rounds to the nearest integer n, and leaves n in the low bits.
const ROUNDING: f32 = 12_582_912.0;

/// exp(x) of each, within 3 units in the last place, for −∞ ≤ x ≤ 0; 0 below −87.33 and for NaN.
/// Step by step for all of them, so that several vectors hide the latency of one another's long chains.
#[inline(always)]
pub fn exp<const N: usize>(x: &[f32; N]) -> [f32; N] {
    // x = n ln 2 + r with |r| ≤ ln 2 / 2; ln 2 in two parts, the first exact in few bits.
    let clamped = x.map(|x| if x >= LOWEST { x } else { LOWEST });
    let shifted = clamped.map(|x| x * std::f32::consts::LOG2_E + ROUNDING);
    let r: [f32; N] = std::array::from_fn(|i| {
        let n = shifted[i] - ROUNDING;
        (clamped[i] - n * 0.693_359_4) + n * 2.121_944_4e-4
    });
    let mut p = [1.987_569_1e-4; N];
    for coefficient in [1.398_2e-3, 8.333_452e-3, 4.166_579_6e-2, 0.166_666_65, 0.5] {
        for (p, r) in p.iter_mut().zip(&r) {
            *p = *p * *r + coefficient;
        }
    }
    std::array::from_fn(|i| {
        let mantissa = p[i] * r[i] * r[i] + r[i] + 1.0;
        // 2^n: the shift drops all of ROUNDING's own bits but those that are taken away before.
        let n = shifted[i].to_bits().wrapping_sub(ROUNDING.to_bits());
        let power = f32::from_bits(n.wrapping_add(127) << 23);
        if x[i] >= LOWEST { mantissa * power } else { 0.0 }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_close_to_the_real_one() {
        let mut worst = 0f64;
        for step in 0..2_000_000 {
            let x = -87.3 * step as f32 / 2_000_000.0;
            let expected = f64::from(x).exp();
            worst = worst.max((f64::from(exp(&[x])[0]) - expected).abs() / expected);
        }
        assert!(worst < 3.6e-7, "{worst:e}");
    }

    #[test]
    fn ends_are_right() {
        assert_eq!(exp(&[0.0])[0].to_bits(), 1f32.to_bits());
        for x in [-88.0, f32::MIN, f32::NEG_INFINITY, f32::NAN] {
            assert_eq!(exp(&[x])[0].to_bits(), 0);
        }
    }
}
