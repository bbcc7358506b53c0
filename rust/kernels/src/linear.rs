//! y = x Wᵀ with both matrices as they lie in memory: each element is one dot product of two rows.
//!
//! Invariant: the order of a dot product's sum depends on its length alone. It is cut into chunks of nearly equal
//! length (`chunk_len`); in a chunk lane l adds the products of k ≡ l mod 16 one by one, then the lanes are added in a
//! fixed tree, and the chunks' sums from left to right. Tiles, threads and the number of rows change nothing.
//!
//! Speed: a few rows are bound by memory, so W is streamed once. Many rows are bound by arithmetic: a tile of
//! sums stays in registers, a panel of W rows in the L1 cache, and x in L2.

use crate::Cpu;
use crate::lanes::{LANES, Lanes, per_isa};
use crate::shared_output::SharedOutput;
use crate::threads::for_each_piece;

/// Sizes of x [rows, `in_features`] and W [`out_features`, `in_features`].
#[derive(Debug, Clone, Copy)]
pub struct LinearShape {
    /// Rows of x.
    pub rows: usize,
    /// Length of a dot product.
    pub in_features: usize,
    /// Rows of W.
    pub out_features: usize,
}

impl LinearShape {
    /// Multiply-adds to do.
    pub fn work(&self) -> usize {
        self.rows * self.in_features * self.out_features
    }
}

/// Rows of W that stay in L1 (with a chunk of at most `MAX_CHUNK`) while rows of x go by.
const PANEL: usize = 12;
const MAX_CHUNK: usize = 640;
/// Bytes of W in one piece of work: some 10 µs from memory.
const PIECE_BYTES: usize = 128 << 10;
/// Bytes of x that stay in L2 while panels go by.
const X_BYTES: usize = 768 << 10;
/// Multiply-adds that one thread does before another could wake up.
const INLINE_WORK: usize = 200_000;

/// Part of the invariant: a function of the length alone, a multiple of the lanes.
fn chunk_len(in_features: usize) -> usize {
    let chunks = in_features.div_ceil(MAX_CHUNK).max(1);
    in_features.div_ceil(chunks).next_multiple_of(LANES)
}

/// out [rows, `out_features`] = x Wᵀ
pub fn linear(cpu: Cpu, x: &[f32], weight: &[f32], out: &mut [f32], shape: LinearShape) {
    let LinearShape { rows, in_features, out_features } = shape;
    assert_eq!(x.len(), rows * in_features);
    assert_eq!(weight.len(), out_features * in_features);
    assert_eq!(out.len(), rows * out_features);
    if out.is_empty() {
        return;
    }
    if in_features == 0 {
        out.fill(0.0);
        return;
    }
    let row_bytes = in_features * size_of::<f32>();
    let piece_features = (PIECE_BYTES / row_bytes / PANEL * PANEL).max(PANEL);
    let block_rows = (X_BYTES / row_bytes / 4 * 4).clamp(4, 1024);
    let feature_pieces = out_features.div_ceil(piece_features);
    let pieces = feature_pieces * rows.div_ceil(block_rows);
    let num_threads = if shape.work() <= INLINE_WORK { 1 } else { cpu.num_threads };
    let out = SharedOutput::new(out);
    for_each_piece(num_threads, pieces, &|piece| {
        let (first_row, first_feature) =
            (piece / feature_pieces * block_rows, piece % feature_pieces * piece_features);
        let part = Part {
            rows: (first_row, rows.min(first_row + block_rows)),
            features: (first_feature, out_features.min(first_feature + piece_features)),
        };
        // SAFETY: the lengths were checked above, and parts don't overlap.
        unsafe { multiply_part(cpu.isa, x.as_ptr(), weight.as_ptr(), out, shape, part) }
    });
}

#[derive(Clone, Copy)]
struct Part {
    rows: (usize, usize),
    features: (usize, usize),
}

per_isa!(unsafe fn multiply_part(x: *const f32, weight: *const f32, out: SharedOutput, shape: LinearShape, part: Part) => multiply_part_body);

#[inline(always)]
unsafe fn multiply_part_body<L: Lanes>(
    x: *const f32,
    weight: *const f32,
    out: SharedOutput,
    shape: LinearShape,
    part: Part,
) {
    let LinearShape { in_features, out_features, .. } = shape;
    let chunk_len = chunk_len(in_features);
    let mut panel = part.features.0;
    while panel < part.features.1 {
        let panel_end = part.features.1.min(panel + PANEL);
        let mut k = 0;
        while k < in_features {
            let mut row = part.rows.0;
            while row < part.rows.1 {
                let tile = Tile {
                    // SAFETY: row < rows and k < in_features.
                    x: unsafe { x.add(row * in_features + k) },
                    weight: weight.wrapping_add(k),
                    stride: in_features,
                    len: chunk_len.min(in_features - k),
                    out: out.at(row * out_features),
                    out_stride: out_features,
                    first: k == 0,
                };
                let rows = part.rows.1 - row;
                // SAFETY: these rows and features are inside of the matrices.
                row += unsafe {
                    match (L::WIDE, rows) {
                        (true, 4..) => tile_row::<L, 4, 6>(&tile, panel, panel_end),
                        (true, 3) => tile_row::<L, 3, 6>(&tile, panel, panel_end),
                        (true, 2) => tile_row::<L, 2, 6>(&tile, panel, panel_end),
                        (true, _) => tile_row::<L, 1, 6>(&tile, panel, panel_end),
                        (false, 2..) => tile_row::<L, 2, 3>(&tile, panel, panel_end),
                        (false, _) => tile_row::<L, 1, 3>(&tile, panel, panel_end),
                    }
                };
            }
            k += chunk_len;
        }
        panel = panel_end;
    }
}

/// Some rows of x at one chunk, against any rows of W.
struct Tile {
    x: *const f32,
    weight: *const f32,
    stride: usize,
    len: usize,
    out: *mut f32,
    out_stride: usize,
    /// Sets the output, where later chunks add to it.
    first: bool,
}

/// ROWS rows of x against W's rows `feature`..`end`, N at a time. Returns ROWS.
#[inline(always)]
unsafe fn tile_row<L: Lanes, const ROWS: usize, const N: usize>(
    tile: &Tile,
    mut feature: usize,
    end: usize,
) -> usize {
    // SAFETY: the caller's rows and features are inside of the matrices.
    unsafe {
        while feature + N <= end {
            multiply_tile::<L, ROWS, N>(tile, feature);
            feature += N;
        }
        while feature < end {
            multiply_tile::<L, ROWS, 1>(tile, feature);
            feature += 1;
        }
    }
    ROWS
}

#[inline(always)]
unsafe fn multiply_tile<L: Lanes, const ROWS: usize, const N: usize>(tile: &Tile, feature: usize) {
    // SAFETY: the caller's rows and features are inside of the matrices.
    unsafe {
        let stride = tile.stride;
        let x = tile.x;
        let w = tile.weight.add(feature * stride);
        let mut sums = [[L::splat(0.0); N]; ROWS];
        let mut k = 0;
        while k + LANES <= tile.len {
            let mut xs = [L::splat(0.0); ROWS];
            for (r, v) in xs.iter_mut().enumerate() {
                *v = L::load(x.add(r * stride + k));
            }
            for n in 0..N {
                let weights = L::load(w.add(n * stride + k));
                for (&x, sums) in xs.iter().zip(&mut sums) {
                    sums[n] = x.fma(weights, sums[n]);
                }
            }
            k += LANES;
        }
        if k < tile.len {
            let lanes = tile.len - k;
            for n in 0..N {
                let weights = L::load_partial(w.add(n * stride + k), lanes);
                for (r, sums) in sums.iter_mut().enumerate() {
                    sums[n] = L::load_partial(x.add(r * stride + k), lanes).fma(weights, sums[n]);
                }
            }
        }
        // Sums over lanes, four at a time, across the borders of rows.
        let mut i = 0;
        while i < ROWS * N {
            let mut four = [L::splat(0.0); 4];
            for (j, v) in four.iter_mut().enumerate() {
                let at = (i + j).min(ROWS * N - 1);
                *v = sums[at / N][at % N];
            }
            let four = L::sum4(four);
            for (j, &sum) in four.iter().enumerate() {
                if i + j < ROWS * N {
                    let to = tile.out.add((i + j) / N * tile.out_stride + feature + (i + j) % N);
                    *to = if tile.first { sum } else { *to + sum };
                }
            }
            i += 4;
        }
    }
}
