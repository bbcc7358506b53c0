//! `Lanes` as an array: plain Rust that the compiler vectorises (to NEON on Arm, to SSE2 on old x86).

use half::{bf16, f16};

use super::{LANES, Lanes};

#[derive(Clone, Copy)]
#[repr(align(64))]
pub(crate) struct Portable([f32; LANES]);

/// Fused only where that is an instruction: elsewhere it would be a call of a library for each lane.
const FUSED: bool = cfg!(any(target_arch = "aarch64", target_feature = "fma"));

/// Adding and taking this away rounds a float below 2^22 to a whole number, ties to even.
const ROUND: f32 = 12_582_912.0;

/// Without branches, so that it can be vectorised. Its exponent is 112 too small for a float32 until it is
/// multiplied, which makes subnormals normal; infinity and NaN need all bits of the exponent.
#[inline(always)]
fn widen_f16(from: f16) -> f32 {
    let bits = u32::from(from.to_bits());
    let magnitude = f32::from_bits((bits & 0x7fff) << 13) * f32::from_bits((127 + 112) << 23);
    let exponent = if magnitude >= 65536.0 { 0xff << 23 } else { 0 };
    f32::from_bits(magnitude.to_bits() | exponent | (bits & 0x8000) << 16)
}

#[inline(always)]
fn lanewise(f: impl Fn(usize) -> f32) -> Portable {
    let mut out = [0f32; LANES];
    for (i, lane) in out.iter_mut().enumerate() {
        *lane = f(i);
    }
    Portable(out)
}

impl Lanes for Portable {
    const WIDE: bool = false;
    #[inline(always)]
    unsafe fn splat(x: f32) -> Self {
        Portable([x; LANES])
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: the caller has 16 floats there.
        unsafe { Portable(from.cast::<[f32; LANES]>().read_unaligned()) }
    }
    #[inline(always)]
    unsafe fn load_partial(from: *const f32, lanes: usize) -> Self {
        let mut out = [0f32; LANES];
        for (i, lane) in out.iter_mut().enumerate().take(lanes) {
            // SAFETY: the caller has `lanes` floats there.
            *lane = unsafe { from.add(i).read() };
        }
        Portable(out)
    }
    #[inline(always)]
    unsafe fn load_f16(from: *const f16) -> Self {
        // SAFETY: the caller has 16 numbers there.
        let from = unsafe { from.cast::<[f16; LANES]>().read_unaligned() };
        lanewise(|i| widen_f16(from[i]))
    }
    #[inline(always)]
    unsafe fn load_bf16(from: *const bf16) -> Self {
        // SAFETY: the caller has 16 numbers there.
        let from = unsafe { from.cast::<[bf16; LANES]>().read_unaligned() };
        lanewise(|i| f32::from_bits(u32::from(from[i].to_bits()) << 16))
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: the caller has room for 16 floats there.
        unsafe { to.cast::<[f32; LANES]>().write_unaligned(self.0) }
    }
    #[inline(always)]
    unsafe fn store_partial(self, to: *mut f32, lanes: usize) {
        for (i, &lane) in self.0.iter().enumerate().take(lanes) {
            // SAFETY: the caller has room for `lanes` floats there.
            unsafe { to.add(i).write(lane) }
        }
    }
    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        lanewise(|i| self.0[i] + other.0[i])
    }
    #[inline(always)]
    unsafe fn sub(self, other: Self) -> Self {
        lanewise(|i| self.0[i] - other.0[i])
    }
    #[inline(always)]
    unsafe fn mul(self, other: Self) -> Self {
        lanewise(|i| self.0[i] * other.0[i])
    }
    #[inline(always)]
    unsafe fn div(self, other: Self) -> Self {
        lanewise(|i| self.0[i] / other.0[i])
    }
    #[inline(always)]
    unsafe fn max(self, other: Self) -> Self {
        lanewise(|i| if self.0[i] > other.0[i] { self.0[i] } else { other.0[i] })
    }
    #[inline(always)]
    unsafe fn min(self, other: Self) -> Self {
        lanewise(|i| if self.0[i] < other.0[i] { self.0[i] } else { other.0[i] })
    }
    #[inline(always)]
    unsafe fn fma(self, a: Self, b: Self) -> Self {
        if FUSED {
            lanewise(|i| self.0[i].mul_add(a.0[i], b.0[i]))
        } else {
            lanewise(|i| self.0[i] * a.0[i] + b.0[i])
        }
    }
    #[inline(always)]
    unsafe fn round(self) -> Self {
        lanewise(|i| (self.0[i] + ROUND) - ROUND)
    }
    #[inline(always)]
    unsafe fn pow2(self) -> Self {
        // The low bits of n + ROUND are n in two's complement: cheaper than a checked conversion.
        lanewise(|i| f32::from_bits((self.0[i] + ROUND).to_bits().wrapping_add(127) << 23))
    }
}
