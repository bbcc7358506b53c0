//! Numbers of 16 or 32 bits in memory that lanes are loaded from, widened to float32.
//!
//! Invariant: widening is exact, so it is the same on every instruction set.

use half::{bf16, f16};

use super::{LANES, Lanes};

/// # Safety
/// The loads need the lanes' instructions, and that many elements at the address.
pub(crate) trait Element: Copy + Default {
    /// All 16 lanes.
    unsafe fn load<L: Lanes>(from: *const Self) -> L;

    /// The first `lanes`; the other lanes are 0 and their memory is not touched.
    #[inline(always)]
    unsafe fn load_partial<L: Lanes>(from: *const Self, lanes: usize) -> L {
        let mut all = [Self::default(); LANES];
        // SAFETY: the caller has the instructions and `lanes` elements; the array has all.
        unsafe {
            for (lane, to) in all.iter_mut().enumerate().take(lanes) {
                *to = from.add(lane).read();
            }
            Self::load(all.as_ptr())
        }
    }
}

impl Element for f32 {
    #[inline(always)]
    unsafe fn load<L: Lanes>(from: *const Self) -> L {
        // SAFETY: the caller's contract.
        unsafe { L::load(from) }
    }
    #[inline(always)]
    unsafe fn load_partial<L: Lanes>(from: *const Self, lanes: usize) -> L {
        // SAFETY: the caller's contract.
        unsafe { L::load_partial(from, lanes) }
    }
}

impl Element for f16 {
    #[inline(always)]
    unsafe fn load<L: Lanes>(from: *const Self) -> L {
        // SAFETY: the caller's contract.
        unsafe { L::load_f16(from) }
    }
}

impl Element for bf16 {
    #[inline(always)]
    unsafe fn load<L: Lanes>(from: *const Self) -> L {
        // SAFETY: the caller's contract.
        unsafe { L::load_bf16(from) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Isa;
    use crate::lanes::per_isa;

    per_isa!(unsafe fn widen_f16(from: *const f16, to: *mut f32, lanes: usize) => widen_f16_body);
    per_isa!(unsafe fn widen_bf16(from: *const bf16, to: *mut f32, lanes: usize) => widen_bf16_body);

    #[inline(always)]
    unsafe fn widen_f16_body<L: Lanes>(from: *const f16, to: *mut f32, lanes: usize) {
        // SAFETY: the caller has `lanes` elements, and room for 16.
        unsafe { widen::<L, f16>(from, to, lanes) }
    }

    #[inline(always)]
    unsafe fn widen_bf16_body<L: Lanes>(from: *const bf16, to: *mut f32, lanes: usize) {
        // SAFETY: the caller has `lanes` elements, and room for 16.
        unsafe { widen::<L, bf16>(from, to, lanes) }
    }

    #[inline(always)]
    unsafe fn widen<L: Lanes, E: Element>(from: *const E, to: *mut f32, lanes: usize) {
        // SAFETY: the caller has `lanes` elements, and room for 16.
        unsafe {
            let wide: L = if lanes == LANES { E::load(from) } else { E::load_partial(from, lanes) };
            wide.store(to);
        }
    }

    fn same(got: f32, expected: f32) -> bool {
        got.to_bits() == expected.to_bits() || got.is_nan() && expected.is_nan()
    }

    #[test]
    fn every_number_of_16_bits_is_widened_exactly() {
        for isa in Isa::available() {
            for first in (0..=u16::MAX).step_by(LANES) {
                let (mut halves, mut brains) = ([f16::ZERO; LANES], [bf16::ZERO; LANES]);
                for lane in 0..LANES {
                    halves[lane] = f16::from_bits(first + lane as u16);
                    brains[lane] = bf16::from_bits(first + lane as u16);
                }
                let (mut from_halves, mut from_brains) = ([f32::NAN; LANES], [f32::NAN; LANES]);
                // SAFETY: 16 elements each.
                unsafe {
                    widen_f16(isa, halves.as_ptr(), from_halves.as_mut_ptr(), LANES);
                    widen_bf16(isa, brains.as_ptr(), from_brains.as_mut_ptr(), LANES);
                }
                for lane in 0..LANES {
                    assert!(same(from_halves[lane], halves[lane].to_f32()), "{isa:?}: {:?}", halves[lane]);
                    assert!(same(from_brains[lane], brains[lane].to_f32()), "{isa:?}: {:?}", brains[lane]);
                }
            }
        }
    }

    #[test]
    fn a_partial_load_reads_no_more() {
        for isa in Isa::available() {
            for lanes in 0..LANES {
                let halves = vec![f16::ONE; lanes]; // Miri and AddressSanitizer see a read behind it
                let mut got = [f32::NAN; LANES];
                // SAFETY: `lanes` elements, and room for 16.
                unsafe { widen_f16(isa, halves.as_ptr(), got.as_mut_ptr(), lanes) };
                let expected: Vec<f32> = (0..LANES).map(|lane| f32::from(lane < lanes)).collect();
                assert_eq!(got, *expected, "{isa:?}");
            }
        }
    }
}
