//! The tile on AVX-512 with VNNI. int16 activations are two planes of int8: twice the integer work, no more memory.

use std::arch::x86_64::{
    __m512, __m512i, _MM_HINT_T0, _mm_loadu_si128, _mm_prefetch, _mm256_loadu_si256, _mm512_add_ps,
    _mm512_and_si512, _mm512_cvtepi8_epi32, _mm512_cvtepi32_ps, _mm512_cvtph_ps, _mm512_dpbusd_epi32,
    _mm512_fmadd_ps, _mm512_loadu_ps, _mm512_loadu_si512, _mm512_mask_storeu_ps, _mm512_mul_ps,
    _mm512_set1_epi8, _mm512_set1_epi32, _mm512_set1_ps, _mm512_setzero_ps, _mm512_setzero_si512,
    _mm512_srli_epi16,
};

use super::activations::group_words;
use super::layout::{Layout, PANEL};
use super::tile::Tile;

/// # Safety
/// The tile's memory is there; the machine has the instructions.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
pub(super) unsafe fn multiply<L: Layout, const PLANES: usize>(tile: &Tile) {
    // SAFETY: the caller's.
    unsafe {
        match tile.rows {
            1 => multiply_rows::<L, PLANES, 1>(tile),
            2 => multiply_rows::<L, PLANES, 2>(tile),
            3 => multiply_rows::<L, PLANES, 3>(tile),
            4 => multiply_rows::<L, PLANES, 4>(tile),
            5 => multiply_rows::<L, PLANES, 5>(tile),
            6 => multiply_rows::<L, PLANES, 6>(tile),
            7 => multiply_rows::<L, PLANES, 7>(tile),
            _ => multiply_rows::<L, PLANES, 8>(tile),
        }
    }
}

/// A function of its own, so that its sums have all registers; the number of rows is known, so that they are registers.
#[inline(never)]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
unsafe fn multiply_rows<L: Layout, const PLANES: usize, const ROWS: usize>(tile: &Tile) {
    // SAFETY: the caller's tile has these groups; a record has the bytes that the geometry says.
    unsafe {
        let geometry = const { &L::GEOMETRY };
        let mut acc = [_mm512_setzero_ps(); ROWS];
        let (mut record, mut x, mut ahead) = (tile.weights, tile.x, tile.ahead);
        let mut left = tile.groups;
        while left > 0 {
            let groups = left.min(geometry.groups);
            for place in 0..groups {
                for line in 0..tile.ahead_lines {
                    _mm_prefetch::<_MM_HINT_T0>(ahead.wrapping_add(line * 64).cast());
                }
                ahead = ahead.wrapping_add(tile.ahead_lines * 64);
                group::<L, PLANES, ROWS>(record, place, x, &mut acc);
                x = x.add(group_words(PLANES) * ROWS);
            }
            record = record.add(geometry.record_bytes);
            left -= groups;
        }
        let mask = ((1u32 << tile.columns) - 1) as u16;
        for (row, mut sum) in acc.into_iter().enumerate() {
            if !tile.bias.is_null() {
                sum = _mm512_add_ps(sum, _mm512_loadu_ps(tile.bias));
            }
            _mm512_mask_storeu_ps(tile.out.add(row * tile.out_stride), mask, sum);
        }
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
unsafe fn group<L: Layout, const PLANES: usize, const ROWS: usize>(
    record: *const u8,
    place: usize,
    x: *const u32,
    acc: &mut [__m512; ROWS],
) {
    // SAFETY: the caller's record has this group, and x, too.
    unsafe {
        let geometry = const { &L::GEOMETRY };
        let codes = record.add(place * geometry.code_bytes);
        let word = |word: usize, row: usize| *x.add(word * ROWS + row) as i32;
        let float = |word: usize, row: usize| f32::from_bits(*x.add(word * ROWS + row));
        let halves = if L::HALVES { 2 } else { 1 };
        for half in 0..halves {
            let mut sums = [[_mm512_setzero_si512(); ROWS]; PLANES];
            for (plane, sums) in sums.iter_mut().enumerate() {
                for (row, sum) in sums.iter_mut().enumerate() {
                    *sum = start::<L>(
                        half,
                        word(8 * PLANES + 2 * plane, row),
                        // read only where it is used
                        if L::HALVES { word(8 * PLANES + 2 * plane + 1, row) } else { 0 },
                    );
                }
            }
            for line in half * 8 / halves..(half + 1) * 8 / halves {
                let weights = line_of::<L>(codes, line);
                for (plane, sums) in sums.iter_mut().enumerate() {
                    for (row, sum) in sums.iter_mut().enumerate() {
                        let x = _mm512_set1_epi32(word(plane * 8 + line, row));
                        *sum = _mm512_dpbusd_epi32(*sum, weights, x);
                    }
                }
            }
            let scale = scale::<L>(record, place, half);
            for (row, acc) in acc.iter_mut().enumerate() {
                let mut sum = _mm512_cvtepi32_ps(sums[0][row]);
                if PLANES == 2 {
                    // Rounds once, as a conversion of the whole sum would.
                    sum = _mm512_fmadd_ps(
                        sum,
                        _mm512_set1_ps(254.0),
                        _mm512_cvtepi32_ps(sums[PLANES - 1][row]),
                    );
                }
                let x_scale = _mm512_set1_ps(float(10 * PLANES, row));
                *acc = _mm512_fmadd_ps(_mm512_mul_ps(sum, scale), x_scale, *acc);
            }
        }
        if L::MINIMUM {
            let minimum = minimum::<L>(record, place);
            for (row, acc) in acc.iter_mut().enumerate() {
                *acc = _mm512_fmadd_ps(minimum, _mm512_set1_ps(float(10 * PLANES + 1, row)), *acc);
            }
        }
    }
}

/// What an integer sum starts with: it takes off what the codes were stored with. `all` and `second` are -128 times the
/// sum of the group's and of its second half's activations.
#[inline]
#[target_feature(enable = "avx512f")]
fn start<L: Layout>(half: usize, all: i32, second: i32) -> __m512i {
    match (L::NIBBLES, L::MINIMUM, L::HALVES, half) {
        (true, true, ..) => _mm512_setzero_si512(),
        (true, false, ..) => _mm512_set1_epi32(all >> 4),
        (false, _, false, _) => _mm512_set1_epi32(all),
        (false, _, true, 0) => _mm512_set1_epi32(all - second),
        (false, _, true, _) => _mm512_set1_epi32(second),
    }
}

/// Four codes of each of 16 rows.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn line_of<L: Layout>(codes: *const u8, line: usize) -> __m512i {
    // SAFETY: the caller's group has 8 lines, or 4 of halves.
    unsafe {
        if !L::NIBBLES {
            return _mm512_loadu_si512(codes.add(line * 64).cast());
        }
        let both = _mm512_loadu_si512(codes.add(line % 4 * 64).cast());
        let one = if line < 4 { both } else { _mm512_srli_epi16::<4>(both) };
        _mm512_and_si512(one, _mm512_set1_epi8(15))
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx2")]
unsafe fn halves(at: *const u8) -> __m512 {
    // SAFETY: the caller has 16 f16 there.
    unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(at.cast())) }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx2")]
unsafe fn integers(at: *const u8) -> __m512 {
    // SAFETY: the caller has 16 bytes there.
    unsafe { _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(at.cast()))) }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx2")]
unsafe fn scale<L: Layout>(record: *const u8, place: usize, half: usize) -> __m512 {
    let geometry = const { &L::GEOMETRY };
    // SAFETY: the caller's record has this group.
    unsafe {
        let scales = record.add(geometry.scales + place * geometry.scale_bytes);
        if L::INTEGER_SCALES {
            return _mm512_mul_ps(halves(record.add(geometry.shared)), integers(scales.add(half * PANEL)));
        }
        halves(scales)
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx2")]
unsafe fn minimum<L: Layout>(record: *const u8, place: usize) -> __m512 {
    let geometry = const { &L::GEOMETRY };
    // SAFETY: the caller's record has this group.
    unsafe {
        let scales = record.add(geometry.scales + place * geometry.scale_bytes);
        if L::INTEGER_SCALES {
            let shared = halves(record.add(geometry.shared + 2 * PANEL));
            return _mm512_mul_ps(shared, integers(scales.add(PANEL)));
        }
        halves(scales.add(2 * PANEL))
    }
}
