//! `Lanes` in two AVX2 registers. Needs avx2, fma and f16c.

use std::arch::x86_64::{
    __m256, __m256i, _MM_HINT_T1, _mm_loadu_si128, _mm_prefetch, _mm256_add_epi32, _mm256_add_ps,
    _mm256_castsi256_ps, _mm256_cmpgt_epi32, _mm256_cvtepu16_epi32, _mm256_cvtph_ps, _mm256_cvtps_epi32,
    _mm256_div_ps, _mm256_fmadd_ps, _mm256_loadu_ps, _mm256_maskload_ps, _mm256_maskstore_ps, _mm256_max_ps,
    _mm256_min_ps, _mm256_mul_ps, _mm256_round_ps, _mm256_set1_epi32, _mm256_set1_ps, _mm256_setr_epi32,
    _mm256_slli_epi32, _mm256_storeu_ps, _mm256_sub_ps,
};

use half::{bf16, f16};

use super::Lanes;

#[derive(Clone, Copy)]
pub(crate) struct Avx2(__m256, __m256);

/// All bits set in the lanes from `first` on that are below `lanes`.
#[inline(always)]
unsafe fn mask(lanes: usize, first: i32) -> __m256i {
    // SAFETY: the caller has AVX2.
    unsafe {
        let lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
        _mm256_cmpgt_epi32(_mm256_set1_epi32(lanes as i32 - first), lane)
    }
}

/// One operation on vectors.
macro_rules! lanewise {
    ($(fn $name:ident($($other:ident),*) = $intrinsic:expr;)*) => {$(
        #[inline(always)]
        unsafe fn $name(self, $($other: Self),*) -> Self {
            // SAFETY: the caller has AVX2 and FMA.
            unsafe { Avx2($intrinsic(self.0, $($other.0),*), $intrinsic(self.1, $($other.1),*)) }
        }
    )*};
}

impl Lanes for Avx2 {
    const WIDE: bool = false;
    lanewise! {
        fn add(other) = _mm256_add_ps;
        fn sub(other) = _mm256_sub_ps;
        fn mul(other) = _mm256_mul_ps;
        fn div(other) = _mm256_div_ps;
        fn max(other) = _mm256_max_ps;
        fn min(other) = _mm256_min_ps;
        fn fma(a, b) = _mm256_fmadd_ps;
        fn round() = _mm256_round_ps::<0x08>;
    }
    #[inline(always)]
    unsafe fn splat(x: f32) -> Self {
        // SAFETY: the caller has AVX2.
        unsafe { Avx2(_mm256_set1_ps(x), _mm256_set1_ps(x)) }
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: the caller has AVX2 and 16 floats.
        unsafe { Avx2(_mm256_loadu_ps(from), _mm256_loadu_ps(from.add(8))) }
    }
    #[inline(always)]
    unsafe fn load_partial(from: *const f32, lanes: usize) -> Self {
        // SAFETY: the caller has AVX2 and `lanes` floats; masked lanes are not read, so their address may be any.
        unsafe {
            Avx2(
                _mm256_maskload_ps(from, mask(lanes, 0)),
                _mm256_maskload_ps(from.wrapping_add(8), mask(lanes, 8)),
            )
        }
    }
    #[inline(always)]
    unsafe fn load_f16(from: *const f16) -> Self {
        // SAFETY: the caller has F16C and 16 numbers.
        unsafe {
            let half = |from: *const f16| _mm256_cvtph_ps(_mm_loadu_si128(from.cast()));
            Avx2(half(from), half(from.add(8)))
        }
    }
    #[inline(always)]
    unsafe fn load_bf16(from: *const bf16) -> Self {
        // SAFETY: the caller has AVX2 and 16 numbers.
        unsafe {
            let half = |from: *const bf16| {
                let bits = _mm256_cvtepu16_epi32(_mm_loadu_si128(from.cast()));
                _mm256_castsi256_ps(_mm256_slli_epi32::<16>(bits))
            };
            Avx2(half(from), half(from.add(8)))
        }
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: the caller has AVX2 and 16 floats.
        unsafe {
            _mm256_storeu_ps(to, self.0);
            _mm256_storeu_ps(to.add(8), self.1);
        }
    }
    #[inline(always)]
    unsafe fn store_partial(self, to: *mut f32, lanes: usize) {
        // SAFETY: the caller has AVX2 and `lanes` floats; masked lanes are not written.
        unsafe {
            _mm256_maskstore_ps(to, mask(lanes, 0), self.0);
            _mm256_maskstore_ps(to.wrapping_add(8), mask(lanes, 8), self.1);
        }
    }
    #[inline(always)]
    unsafe fn prefetch<T>(address: *const T) {
        // SAFETY: a hint; it may name any address.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(address.cast()) }
    }
    #[inline(always)]
    unsafe fn pow2(self) -> Self {
        // SAFETY: the caller has AVX2.
        unsafe {
            let half = |n: __m256| {
                let exponent = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
                _mm256_castsi256_ps(_mm256_slli_epi32::<23>(exponent))
            };
            Avx2(half(self.0), half(self.1))
        }
    }
}
