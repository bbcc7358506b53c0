//! `Lanes` in one AVX-512 register. Needs avx512f and avx512vl.

use std::arch::x86_64::{
    __m512, __mmask16, _MM_HINT_T1, _mm_prefetch, _mm256_loadu_si256, _mm512_add_epi32, _mm512_add_ps,
    _mm512_castsi512_ps, _mm512_cvtepu16_epi32, _mm512_cvtph_ps, _mm512_cvtps_epi32, _mm512_div_ps,
    _mm512_fmadd_ps, _mm512_loadu_ps, _mm512_mask_storeu_ps, _mm512_maskz_loadu_ps, _mm512_max_ps,
    _mm512_min_ps, _mm512_mul_ps, _mm512_permute_ps, _mm512_reduce_max_ps, _mm512_roundscale_ps,
    _mm512_set1_epi32, _mm512_set1_ps, _mm512_shuffle_f32x4, _mm512_slli_epi32, _mm512_storeu_ps,
    _mm512_sub_ps,
};

use half::{bf16, f16};

use super::Lanes;

#[derive(Clone, Copy)]
pub(crate) struct Avx512(__m512);

#[inline(always)]
fn mask(lanes: usize) -> __mmask16 {
    ((1u32 << lanes) - 1) as __mmask16
}

macro_rules! methods {
    ($(fn $name:ident($($argument:ident: $type:ty),*) -> $result:ty { $body:expr })*) => {$(
        #[inline(always)]
        unsafe fn $name($($argument: $type),*) -> $result {
            // SAFETY: the caller has AVX-512F, and the memory where there is an address.
            unsafe { $body }
        }
    )*};
}

/// One operation on two vectors or one.
macro_rules! lanewise {
    ($(fn $name:ident($($other:ident),*) = $intrinsic:expr;)*) => {$(
        #[inline(always)]
        unsafe fn $name(self, $($other: Self),*) -> Self {
            // SAFETY: the caller has AVX-512F.
            unsafe { Avx512($intrinsic(self.0, $($other.0),*)) }
        }
    )*};
}

impl Lanes for Avx512 {
    const WIDE: bool = true;
    methods! {
        fn splat(x: f32) -> Self { Avx512(_mm512_set1_ps(x)) }
        fn load(from: *const f32) -> Self { Avx512(_mm512_loadu_ps(from)) }
        fn load_partial(from: *const f32, lanes: usize) -> Self {
            Avx512(_mm512_maskz_loadu_ps(mask(lanes), from))
        }
        fn load_f16(from: *const f16) -> Self { Avx512(_mm512_cvtph_ps(_mm256_loadu_si256(from.cast()))) }
        fn load_bf16(from: *const bf16) -> Self {
            Avx512(_mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(
                _mm256_loadu_si256(from.cast()),
            ))))
        }
    }
    lanewise! {
        fn add(other) = _mm512_add_ps;
        fn sub(other) = _mm512_sub_ps;
        fn mul(other) = _mm512_mul_ps;
        fn div(other) = _mm512_div_ps;
        fn max(other) = _mm512_max_ps;
        fn min(other) = _mm512_min_ps;
        fn fma(a, b) = _mm512_fmadd_ps;
        fn round() = _mm512_roundscale_ps::<0x08>;
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: the caller has AVX-512F and the memory.
        unsafe { _mm512_storeu_ps(to, self.0) }
    }
    #[inline(always)]
    unsafe fn store_partial(self, to: *mut f32, lanes: usize) {
        // SAFETY: the caller has AVX-512F and the memory.
        unsafe { _mm512_mask_storeu_ps(to, mask(lanes), self.0) }
    }
    #[inline(always)]
    unsafe fn prefetch<T>(address: *const T) {
        // SAFETY: a hint; it may name any address.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(address.cast()) }
    }
    #[inline(always)]
    unsafe fn pow2(self) -> Self {
        // SAFETY: the caller has AVX-512F.
        unsafe {
            let exponent = _mm512_add_epi32(_mm512_cvtps_epi32(self.0), _mm512_set1_epi32(127));
            Avx512(_mm512_castsi512_ps(_mm512_slli_epi32::<23>(exponent)))
        }
    }
    #[inline(always)]
    unsafe fn sum(self) -> f32 {
        // SAFETY: the caller has AVX-512F.
        unsafe { Self::sum4([self; 4])[0] }
    }
    #[inline(always)]
    unsafe fn maximum(self) -> f32 {
        // SAFETY: the caller has AVX-512F.
        unsafe { _mm512_reduce_max_ps(self.0) }
    }
    /// The tree of `sum` with four vectors packed into one as soon as halves are free.
    #[inline(always)]
    unsafe fn sum4(of: [Self; 4]) -> [f32; 4] {
        // SAFETY: the caller has AVX-512F.
        unsafe {
            let halves = |a: __m512, b: __m512| {
                _mm512_add_ps(_mm512_shuffle_f32x4::<0x44>(a, b), _mm512_shuffle_f32x4::<0xee>(a, b))
            };
            let (ab, cd) = (halves(of[0].0, of[1].0), halves(of[2].0, of[3].0));
            let quarters =
                _mm512_add_ps(_mm512_shuffle_f32x4::<0x88>(ab, cd), _mm512_shuffle_f32x4::<0xdd>(ab, cd));
            let pairs = _mm512_add_ps(quarters, _mm512_permute_ps::<0b00_00_11_10>(quarters));
            let sums = _mm512_add_ps(pairs, _mm512_permute_ps::<0b00_00_00_01>(pairs));
            let mut lanes = [0f32; 16];
            _mm512_storeu_ps(lanes.as_mut_ptr(), sums);
            [lanes[0], lanes[4], lanes[8], lanes[12]]
        }
    }
}
