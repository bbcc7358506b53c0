//! Activations as integers, quantised per row and group of 32: `Activations`.
//!
//! x = scale * integer, with the group's largest |x| at the top of the integers. int16 goes to ±32384 = 127 * 254 + 126, so
//! that it is 254 * high + low with both in ±127: on AVX-512 these are two planes of int8, elsewhere it stays int16.
//! Invariant: a row's integers and scales depend on that row alone, and are the same on every instruction set.
//!
//! Rows lie in tiles of `TILE_ROWS`. A tile has for each group, each line of them `rows` times: 8 words per plane with four
//! codes each (or 8 double words with four int16), per plane -128 times the sum of the codes, for the whole group and for
//! its second half, then the scale, and the scaled sum, which a minimum is multiplied with.

use super::gguf_type::GROUP;
use crate::Cpu;
use crate::cpu::Kind;
use crate::lanes::{LANES, Lanes, per_isa};
use crate::shared_output::SharedOutput;
use crate::threads::for_each_piece;

/// Rows of a tile: its sums fit the registers.
pub(super) const TILE_ROWS: usize = 8;
/// Elements in a piece of work: some µs.
const PIECE_ELEMENTS: usize = 16 << 10;

/// What activations are rounded to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ActivationType {
    /// Fastest; logits differ visibly from float32's.
    Int8,
    /// Closer to float32 than weights in float16 would be.
    Int16,
}

impl ActivationType {
    /// int8 codes per activation.
    pub(super) const fn planes(self) -> usize {
        match self {
            ActivationType::Int8 => 1,
            ActivationType::Int16 => 2,
        }
    }
}

/// Words of one row and group.
pub(super) const fn group_words(planes: usize) -> usize {
    10 * planes + 2
}

/// Room for quantised activations, to be used again and again.
pub struct Activations {
    kind: ActivationType,
    rows: usize,
    groups: usize,
    words: Vec<u32>,
}

impl Activations {
    /// Empty.
    pub fn new(kind: ActivationType) -> Self {
        Self { kind, rows: 0, groups: 0, words: Vec::new() }
    }

    /// What it rounds to.
    pub fn kind(&self) -> ActivationType {
        self.kind
    }

    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    /// The tile that begins at row `row`.
    pub(super) fn tile(&self, row: usize) -> &[u32] {
        &self.words[row * self.groups * group_words(self.kind.planes())..]
    }

    /// Takes x [rows, `in_features`]; `in_features` is a multiple of 32.
    pub(super) fn quantize(&mut self, cpu: Cpu, x: &[f32], in_features: usize) {
        assert!(in_features.is_multiple_of(GROUP) && x.len().is_multiple_of(in_features));
        (self.rows, self.groups) = (x.len() / in_features, in_features / GROUP);
        let (rows, groups, planes) = (self.rows, self.groups, self.kind.planes());
        let row_words = groups * group_words(planes);
        if self.words.len() < rows * row_words {
            self.words.resize(rows * row_words, 0);
        }
        let wide = planes == 2 && !cpu.isa.is_avx512();
        let words = SharedOutput::new(&mut self.words);
        let piece_rows = (PIECE_ELEMENTS / in_features).max(1);
        for_each_piece(cpu.num_threads, rows.div_ceil(piece_rows), &|piece| {
            for row in piece * piece_rows..rows.min((piece + 1) * piece_rows) {
                let tile = row / TILE_ROWS * TILE_ROWS;
                let to = Row {
                    words: words.at(tile * row_words),
                    place: row - tile,
                    rows: TILE_ROWS.min(rows - tile),
                    planes,
                    wide,
                };
                // SAFETY: the row is inside of x, and of its tile, where no other row's words are.
                unsafe { quantize_row(cpu.isa, x.as_ptr().add(row * in_features), groups, to) }
            }
        });
    }
}

impl crate::Isa {
    pub(super) fn is_avx512(self) -> bool {
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512 => true,
            _ => false,
        }
    }
}

/// Where a row's words go.
#[derive(Clone, Copy)]
struct Row {
    words: *mut u32,
    place: usize,
    /// Of the tile.
    rows: usize,
    planes: usize,
    /// int16 stays int16.
    wide: bool,
}

impl Row {
    /// Word `word` of group `group`.
    #[inline(always)]
    unsafe fn put(&self, group: usize, word: usize, value: u32) {
        let at = (group * group_words(self.planes) + word) * self.rows + self.place;
        // SAFETY: the caller's group and word are inside of the tile.
        unsafe { *self.words.add(at) = value }
    }
}

per_isa!(unsafe fn quantize_row(x: *const f32, groups: usize, to: Row) => quantize_row_body);

#[inline(always)]
unsafe fn quantize_row_body<L: Lanes>(x: *const f32, groups: usize, to: Row) {
    for group in 0..groups {
        // SAFETY: the caller's row has `groups` groups, and its tile, too.
        unsafe { quantize_group::<L>(x.add(group * GROUP), group, to) }
    }
}

#[inline(always)]
unsafe fn quantize_group<L: Lanes>(x: *const f32, group: usize, to: Row) {
    // SAFETY: the caller has GROUP floats at x, and the group in its tile.
    unsafe {
        let x = [L::load(x), L::load(x.add(LANES))];
        let absolute = |x: L| x.max(L::splat(0.0).sub(x));
        // `max` drops a NaN; 0 * x is NaN for those and for infinities, and so is then the scale.
        let zero = x[0].mul(L::splat(0.0)).add(x[1].mul(L::splat(0.0))).sum();
        let largest = absolute(x[0]).max(absolute(x[1])).maximum();
        let top = if to.planes == 1 { 127.0 } else { 127.0 * 254.0 + 126.0 };
        let inverse = top / largest;
        // Too small for an inverse: nothing that a sum would notice.
        let (inverse, scale) =
            if zero == 0.0 && inverse.is_finite() { (inverse, largest / top) } else { (0.0, zero) };
        let whole =
            if zero == 0.0 { x.map(|x| x.mul(L::splat(inverse)).round()) } else { [L::splat(0.0); 2] };
        let total = if to.planes == 1 {
            put_plane::<L>(whole, 0, group, to)
        } else {
            let high = whole.map(|x| x.mul(L::splat(1.0 / 254.0)).round());
            let low = [0, 1].map(|i| high[i].fma(L::splat(-254.0), whole[i]));
            let (high, low) = (put_plane::<L>(high, 0, group, to), put_plane::<L>(low, 1, group, to));
            if to.wide {
                put_wide::<L>(whole, group, to);
            }
            254 * high + low
        };
        to.put(group, 10 * to.planes, scale.to_bits());
        to.put(group, 10 * to.planes + 1, (total as f32 * scale).to_bits());
    }
}

/// Whole numbers of a plane, and their sums. Returns the sum.
#[inline(always)]
unsafe fn put_plane<L: Lanes>(x: [L; 2], plane: usize, group: usize, to: Row) -> i32 {
    // SAFETY: the caller's group; all of x are whole and small.
    unsafe {
        let codes = whole_numbers::<L>(x);
        if !to.wide {
            for line in 0..8 {
                let bytes: [u8; 4] = std::array::from_fn(|i| codes[4 * line + i] as u8);
                to.put(group, plane * 8 + line, u32::from_le_bytes(bytes));
            }
        }
        let first: i32 = codes[..GROUP / 2].iter().sum();
        let second: i32 = codes[GROUP / 2..].iter().sum();
        to.put(group, 8 * to.planes + 2 * plane, (-128 * (first + second)) as u32);
        to.put(group, 8 * to.planes + 2 * plane + 1, (-128 * second) as u32);
        first + second
    }
}

/// int16: line l has elements 4l.. as two words side by side.
#[inline(always)]
unsafe fn put_wide<L: Lanes>(x: [L; 2], group: usize, to: Row) {
    // SAFETY: the caller's group; 16 words of a row are as many as 8 lines of two words.
    unsafe {
        let codes = whole_numbers::<L>(x);
        let start = to.words.add(group * group_words(to.planes) * to.rows);
        for line in 0..8 {
            for pair in 0..2 {
                let [a, b] = [0, 1].map(|i| codes[4 * line + 2 * pair + i] as u16);
                *start.add(2 * (line * to.rows + to.place) + pair) = u32::from(a) | u32::from(b) << 16;
            }
        }
    }
}

#[inline(always)]
unsafe fn whole_numbers<L: Lanes>(x: [L; 2]) -> [i32; GROUP] {
    let mut floats = [0f32; GROUP];
    // SAFETY: the array has room for both; the caller's numbers are whole and small.
    unsafe {
        x[0].store(floats.as_mut_ptr());
        x[1].store(floats.as_mut_ptr().add(LANES));
        floats.map(|x| x.to_int_unchecked::<i32>())
    }
}
