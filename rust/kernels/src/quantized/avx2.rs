//! The tile on AVX2: 8 rows of W and at most 4 rows of x at a time, for 16 registers. int16 activations stay int16: on
//! widened weights they cost no more than int8 does.

use std::arch::x86_64::{
    __m256, __m256i, _MM_HINT_T0, _mm_and_si128, _mm_loadl_epi64, _mm_loadu_si128, _mm_prefetch,
    _mm_set1_epi8, _mm_srli_epi16, _mm_xor_si128, _mm256_abs_epi8, _mm256_add_epi16, _mm256_add_epi32,
    _mm256_add_ps, _mm256_and_si256, _mm256_cvtepi8_epi16, _mm256_cvtepi8_epi32, _mm256_cvtepi32_ps,
    _mm256_cvtepu8_epi16, _mm256_cvtph_ps, _mm256_fmadd_ps, _mm256_hadd_epi32, _mm256_loadu_ps,
    _mm256_loadu_si256, _mm256_madd_epi16, _mm256_maddubs_epi16, _mm256_mul_ps, _mm256_permute4x64_epi64,
    _mm256_set1_epi8, _mm256_set1_epi16, _mm256_set1_epi32, _mm256_set1_epi64x, _mm256_set1_ps,
    _mm256_setzero_ps, _mm256_setzero_si256, _mm256_sign_epi8, _mm256_srli_epi16, _mm256_storeu_ps,
    _mm256_sub_epi16, _mm256_xor_si256,
};

use super::activations::group_words;
use super::layout::{Layout, PANEL};
use super::tile::Tile;

/// Rows of x at a time.
const PART: usize = 4;
/// Rows of W at a time.
const LANES: usize = 8;

/// # Safety
/// The tile's memory is there; the machine has the instructions.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn multiply<L: Layout, const PLANES: usize>(tile: &Tile) {
    for side in 0..PANEL / LANES {
        for row in (0..tile.rows).step_by(PART) {
            // SAFETY: the caller's; these rows are inside of the tile.
            unsafe {
                match tile.rows - row {
                    1 => multiply_rows::<L, PLANES, 1>(tile, side, row),
                    2 => multiply_rows::<L, PLANES, 2>(tile, side, row),
                    3 => multiply_rows::<L, PLANES, 3>(tile, side, row),
                    _ => multiply_rows::<L, PLANES, 4>(tile, side, row),
                }
            }
        }
    }
}

/// One group of a half panel, and ROWS rows of x.
struct Group {
    codes: *const u8,
    scales: *const u8,
    shared: *const u8,
    x: *const u32,
    /// From one word of a row to its next.
    rows: usize,
}

/// A function of its own, so that its sums have all registers.
#[inline(never)]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn multiply_rows<L: Layout, const PLANES: usize, const ROWS: usize>(
    tile: &Tile,
    side: usize,
    row: usize,
) {
    // SAFETY: the caller's tile has these rows and groups; a record has the bytes that the geometry says.
    unsafe {
        let geometry = const { &L::GEOMETRY };
        let mut acc = [_mm256_setzero_ps(); ROWS];
        let (mut record, mut x, mut ahead) = (tile.weights, tile.x, tile.ahead);
        let ahead_lines = if side == 0 && row == 0 { tile.ahead_lines } else { 0 };
        let float_bytes = if L::INTEGER_SCALES { LANES } else { 2 * LANES };
        let mut left = tile.groups;
        while left > 0 {
            let groups = left.min(geometry.groups);
            for place in 0..groups {
                for line in 0..ahead_lines {
                    _mm_prefetch::<_MM_HINT_T0>(ahead.wrapping_add(line * 64).cast());
                }
                ahead = ahead.wrapping_add(ahead_lines * 64);
                let group = Group {
                    codes: record.add(place * geometry.code_bytes + side * 32),
                    scales: record.add(geometry.scales + place * geometry.scale_bytes + side * float_bytes),
                    shared: record.wrapping_add(geometry.shared + side * 2 * LANES),
                    x,
                    rows: tile.rows,
                };
                add_group::<L, PLANES, ROWS>(&group, row, &mut acc);
                x = x.add(group_words(PLANES) * tile.rows);
            }
            record = record.add(geometry.record_bytes);
            left -= groups;
        }
        let columns = LANES.min(tile.columns.saturating_sub(side * LANES));
        for (r, mut sum) in acc.into_iter().enumerate() {
            if !tile.bias.is_null() {
                sum = _mm256_add_ps(sum, _mm256_loadu_ps(tile.bias.add(side * LANES)));
            }
            let out = tile.out.add((row + r) * tile.out_stride).wrapping_add(side * LANES);
            if columns == LANES {
                _mm256_storeu_ps(out, sum);
            } else {
                let mut lanes = [0f32; LANES];
                _mm256_storeu_ps(lanes.as_mut_ptr(), sum);
                std::ptr::copy_nonoverlapping(lanes.as_ptr(), out, columns);
            }
        }
    }
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn add_group<L: Layout, const PLANES: usize, const ROWS: usize>(
    group: &Group,
    row: usize,
    acc: &mut [__m256; ROWS],
) {
    // SAFETY: the caller's group.
    unsafe {
        let float =
            |word: usize, r: usize| _mm256_set1_ps(f32::from_bits(*group.x.add(word * group.rows + row + r)));
        let halves = if L::HALVES { 2 } else { 1 };
        for half in 0..halves {
            let sums = if PLANES == 1 {
                sums_int8::<L, ROWS>(group, row, half)
            } else {
                sums_int16::<L, ROWS>(group, row, half)
            };
            let scale = scale::<L>(group, half);
            for (r, acc) in acc.iter_mut().enumerate() {
                *acc = _mm256_fmadd_ps(_mm256_mul_ps(sums[r], scale), float(10 * PLANES, r), *acc);
            }
        }
        if L::MINIMUM {
            let minimum = minimum::<L>(group);
            for (r, acc) in acc.iter_mut().enumerate() {
                *acc = _mm256_fmadd_ps(minimum, float(10 * PLANES + 1, r), *acc);
            }
        }
    }
}

/// Lines of codes in memory that a group, or its half, has.
#[inline(always)]
fn lines_of<L: Layout>(half: usize) -> std::ops::Range<usize> {
    match (L::NIBBLES, L::HALVES) {
        (true, _) => 0..4,
        (false, false) => 0..8,
        (false, true) => 4 * half..4 * half + 4,
    }
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn sums_int8<L: Layout, const ROWS: usize>(group: &Group, row: usize, half: usize) -> [__m256; ROWS] {
    // SAFETY: the caller's group.
    unsafe {
        let ones = _mm256_set1_epi16(1);
        let word = |word: usize, r: usize| *group.x.add(word * group.rows + row + r) as i32;
        let mut sums = [_mm256_setzero_si256(); ROWS];
        for line in lines_of::<L>(half) {
            let codes = _mm256_loadu_si256(group.codes.add(line * 64).cast());
            if L::NIBBLES {
                // A pair of products is at most 2 * 15 * 127, and eight such fit 16 bits: they are widened once.
                let fifteen = _mm256_set1_epi8(15);
                let low = _mm256_and_si256(codes, fifteen);
                let high = _mm256_and_si256(_mm256_srli_epi16::<4>(codes), fifteen);
                for (r, sum) in sums.iter_mut().enumerate() {
                    let pairs = _mm256_maddubs_epi16(low, _mm256_set1_epi32(word(line, r)));
                    *sum = _mm256_add_epi16(*sum, pairs);
                    let pairs = _mm256_maddubs_epi16(high, _mm256_set1_epi32(word(line + 4, r)));
                    *sum = _mm256_add_epi16(*sum, pairs);
                }
            } else {
                // |w| times (x with the sign of w): a pair is at most 2 * 128 * 127, which just fits.
                let weights = _mm256_xor_si256(codes, _mm256_set1_epi8(-128));
                let sizes = _mm256_abs_epi8(weights);
                for (r, sum) in sums.iter_mut().enumerate() {
                    let x = _mm256_sign_epi8(_mm256_set1_epi32(word(line, r)), weights);
                    let pairs = _mm256_maddubs_epi16(sizes, x);
                    *sum = _mm256_add_epi32(*sum, _mm256_madd_epi16(pairs, ones));
                }
            }
        }
        let mut out = [_mm256_setzero_ps(); ROWS];
        for (r, out) in out.iter_mut().enumerate() {
            let mut sum = sums[r];
            if L::NIBBLES {
                sum = _mm256_madd_epi16(sum, ones);
                if !L::MINIMUM {
                    // -8 times the sum of the activations
                    sum = _mm256_add_epi32(sum, _mm256_set1_epi32(word(8, r) >> 4));
                }
            }
            *out = _mm256_cvtepi32_ps(sum);
        }
        out
    }
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn sums_int16<L: Layout, const ROWS: usize>(group: &Group, row: usize, half: usize) -> [__m256; ROWS] {
    // SAFETY: the caller's group; a line of int16 is 8 bytes.
    unsafe {
        let x = |line: usize, r: usize| {
            let at = group.x.add(2 * (line * group.rows + row + r));
            _mm256_set1_epi64x(at.cast::<i64>().read_unaligned())
        };
        // A register holds two sums for each of 4 rows of W.
        let mut sums = [[_mm256_setzero_si256(); 2]; ROWS];
        let mut add = |weights: [__m256i; 2], line: usize| {
            for (r, sums) in sums.iter_mut().enumerate() {
                let x = x(line, r);
                for (sum, weights) in sums.iter_mut().zip(weights) {
                    *sum = _mm256_add_epi32(*sum, _mm256_madd_epi16(weights, x));
                }
            }
        };
        for line in lines_of::<L>(half) {
            let codes = [0, 16].map(|at| _mm_loadu_si128(group.codes.add(line * 64 + at).cast()));
            if L::NIBBLES {
                let fifteen = _mm_set1_epi8(15);
                let zero = _mm256_set1_epi16(if L::MINIMUM { 0 } else { 8 });
                let low = codes
                    .map(|codes| _mm256_sub_epi16(_mm256_cvtepu8_epi16(_mm_and_si128(codes, fifteen)), zero));
                add(low, line);
                let high = codes.map(|codes| {
                    let codes = _mm_and_si128(_mm_srli_epi16::<4>(codes), fifteen);
                    _mm256_sub_epi16(_mm256_cvtepu8_epi16(codes), zero)
                });
                add(high, line + 4);
            } else {
                let offset = _mm_set1_epi8(-128);
                add(codes.map(|codes| _mm256_cvtepi8_epi16(_mm_xor_si128(codes, offset))), line);
            }
        }
        // `hadd` works within halves of 128 bits, hence the permutation.
        sums.map(|[a, b]| {
            _mm256_cvtepi32_ps(_mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_hadd_epi32(a, b)))
        })
    }
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn halves(at: *const u8) -> __m256 {
    // SAFETY: the caller has 8 f16 there.
    unsafe { _mm256_cvtph_ps(_mm_loadu_si128(at.cast())) }
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn integers(at: *const u8) -> __m256 {
    // SAFETY: the caller has 8 bytes there.
    unsafe { _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(at.cast()))) }
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn scale<L: Layout>(group: &Group, half: usize) -> __m256 {
    // SAFETY: the caller's group.
    unsafe {
        if L::INTEGER_SCALES {
            return _mm256_mul_ps(halves(group.shared), integers(group.scales.add(half * PANEL)));
        }
        halves(group.scales)
    }
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn minimum<L: Layout>(group: &Group) -> __m256 {
    // SAFETY: the caller's group.
    unsafe {
        if L::INTEGER_SCALES {
            let shared = halves(group.shared.add(2 * PANEL));
            return _mm256_mul_ps(shared, integers(group.scales.add(PANEL)));
        }
        halves(group.scales.add(2 * PANEL))
    }
}
