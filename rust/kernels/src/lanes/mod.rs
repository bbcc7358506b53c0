//! Sixteen f32 lanes: one AVX-512 register, two AVX2 registers, or an array.
//!
//! Kernels written against `Lanes` do the same operations in the same order on all of them.

#[cfg(target_arch = "x86_64")]
pub(crate) mod avx2;
#[cfg(target_arch = "x86_64")]
pub(crate) mod avx512;
pub(crate) mod element;
pub(crate) mod portable;
pub(crate) mod rows;

use half::{bf16, f16};

/// Lanes of a vector.
pub(crate) const LANES: usize = 16;

/// # Safety
/// Every method needs the implementation's instructions, and those that take an address need 16 numbers there
/// (the `partial` ones: `lanes` numbers).
pub(crate) trait Lanes: Copy {
    /// Whether 24 sums fit the registers; else about 6 do.
    const WIDE: bool;
    unsafe fn splat(x: f32) -> Self;
    unsafe fn load(from: *const f32) -> Self;
    /// The first `lanes` floats; the other lanes are 0 and their memory is not touched.
    unsafe fn load_partial(from: *const f32, lanes: usize) -> Self;
    /// Widened, which is exact.
    unsafe fn load_f16(from: *const f16) -> Self;
    /// Widened, which is exact.
    unsafe fn load_bf16(from: *const bf16) -> Self;
    unsafe fn store(self, to: *mut f32);
    /// Writes the first `lanes` floats only.
    unsafe fn store_partial(self, to: *mut f32, lanes: usize);
    unsafe fn add(self, other: Self) -> Self;
    unsafe fn sub(self, other: Self) -> Self;
    unsafe fn mul(self, other: Self) -> Self;
    unsafe fn div(self, other: Self) -> Self;
    /// `other` where one of the two is NaN.
    unsafe fn max(self, other: Self) -> Self;
    /// `other` where one of the two is NaN.
    unsafe fn min(self, other: Self) -> Self;
    /// `self * a + b`
    unsafe fn fma(self, a: Self, b: Self) -> Self;
    /// To the nearest whole number, ties to even.
    unsafe fn round(self) -> Self;
    /// `2^self` for a whole `self` in -126..=127
    unsafe fn pow2(self) -> Self;

    /// Asks for the cache line at any address, into L2; nothing is read.
    #[inline(always)]
    unsafe fn prefetch<T>(_address: *const T) {}

    /// Sum over the lanes in a fixed tree: halves added until one is left.
    #[inline(always)]
    unsafe fn sum(self) -> f32 {
        // SAFETY: the caller has the instructions; the array has 16 floats.
        unsafe {
            let mut a = [0f32; LANES];
            self.store(a.as_mut_ptr());
            let mut half = LANES / 2;
            while half > 0 {
                for i in 0..half {
                    a[i] += a[i + half];
                }
                half /= 2;
            }
            a[0]
        }
    }

    /// Four sums by the same tree: the same bits as `sum`, in fewer instructions.
    #[inline(always)]
    unsafe fn sum4(of: [Self; 4]) -> [f32; 4] {
        // SAFETY: the caller has the instructions.
        unsafe { [of[0].sum(), of[1].sum(), of[2].sum(), of[3].sum()] }
    }

    /// The largest lane.
    #[inline(always)]
    unsafe fn maximum(self) -> f32 {
        // SAFETY: the caller has the instructions; the array has 16 floats.
        unsafe {
            let mut a = [0f32; LANES];
            self.store(a.as_mut_ptr());
            let mut half = LANES / 2;
            while half > 0 {
                for i in 0..half {
                    a[i] = if a[i] > a[i + half] { a[i] } else { a[i + half] };
                }
                half /= 2;
            }
            a[0]
        }
    }

    /// `e^self`, within 2 ulp between -87 and 88; beyond, as at these ends. NaN stays NaN.
    #[inline(always)]
    unsafe fn exp(self) -> Self {
        // SAFETY: the caller has the instructions.
        unsafe {
            let x = Self::splat(88.0).min(Self::splat(-87.0).max(self));
            let n = x.mul(Self::splat(std::f32::consts::LOG2_E)).round();
            // ln 2 in two parts, so that the reduced argument keeps its low bits
            let r = n.fma(Self::splat(-0.693_359_4), x);
            let r = n.fma(Self::splat(2.121_944_4e-4), r);
            let mut p = Self::splat(1.987_569_2e-4);
            for c in [1.398_2e-3, 8.333_452e-3, 4.166_579_6e-2, 0.166_666_66, 0.5] {
                p = p.fma(r, Self::splat(c));
            }
            let p = p.fma(r.mul(r), r).add(Self::splat(1.0));
            p.mul(n.pow2())
        }
    }
}

/// Declares `fn name(isa, arguments…)` that runs `body::<L>(arguments…)` with the instructions of `isa`.
/// The body is an `unsafe fn`: its contract beside the instructions is the caller's.
macro_rules! per_isa {
    ($(#[$attribute:meta])* $visibility:vis unsafe fn $name:ident($($argument:ident: $type:ty),* $(,)?) => $body:ident) => {
        $(#[$attribute])*
        #[allow(clippy::too_many_arguments)]
        $visibility unsafe fn $name(isa: $crate::Isa, $($argument: $type),*) {
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f,avx512vl,avx2,fma")]
            #[allow(clippy::too_many_arguments)]
            unsafe fn avx512($($argument: $type),*) {
                // SAFETY: the instructions are on; the rest is the caller's contract.
                unsafe { $body::<$crate::lanes::avx512::Avx512>($($argument),*) }
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,f16c")]
            #[allow(clippy::too_many_arguments)]
            unsafe fn avx2($($argument: $type),*) {
                // SAFETY: as above.
                unsafe { $body::<$crate::lanes::avx2::Avx2>($($argument),*) }
            }
            // SAFETY: an `Isa` is proof that the machine has the instructions.
            unsafe {
                match isa.0 {
                    #[cfg(target_arch = "x86_64")]
                    $crate::cpu::Kind::Avx512 => avx512($($argument),*),
                    #[cfg(target_arch = "x86_64")]
                    $crate::cpu::Kind::Avx2 => avx2($($argument),*),
                    $crate::cpu::Kind::Portable => $body::<$crate::lanes::portable::Portable>($($argument),*),
                }
            }
        }
    };
}
pub(crate) use per_isa;
