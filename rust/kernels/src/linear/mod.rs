//! y = x Wᵀ with both matrices as they lie in memory: each element is one dot product of two rows.
//!
//! Invariant: the order of a dot product's sum depends on its length alone. It is cut into chunks of nearly equal
//! length (`chunk_len`); in a chunk lane l adds the products of k ≡ l mod 16 one by one, then the lanes are added in a
//! fixed tree, and the chunks' sums from left to right. Tiles, threads and the number of rows change nothing.
//! W of 16 bits is widened to float32, which is exact: the bits are those of the same numbers in float32.
//!
//! Speed: a few rows are bound by memory, so W is streamed once, and widened in registers. Many rows are bound by
//! arithmetic: a tile of sums stays in registers, a panel of W rows (widened once) in the L1 cache, and x in L2.

mod tile;
mod weight;

use std::mem::MaybeUninit;

pub use weight::Weight;

use crate::Cpu;
use crate::lanes::element::Element;
use crate::lanes::rows::for_lanes;
use crate::lanes::{LANES, per_isa};
use crate::shared_output::SharedOutput;
use crate::threads::for_each_piece;
use tile::{Rows, Tile, TileKernel, tile_features, tile_row, tile_rows};

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
const MAX_CHUNK: usize = 768;
/// Tiles of rows of x from which on a panel of 16-bit numbers is widened once for all of them.
const WIDENED_TILES: usize = 3;
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
pub fn linear<'a>(cpu: Cpu, x: &[f32], weight: impl Into<Weight<'a>>, out: &mut [f32], shape: LinearShape) {
    let LinearShape { rows, in_features, out_features } = shape;
    let weight = weight.into();
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
    let piece_features = (PIECE_BYTES / (in_features * weight.element_bytes()) / PANEL * PANEL).max(PANEL);
    let block_rows = (X_BYTES / (in_features * size_of::<f32>()) / 4 * 4).clamp(4, 1024);
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
            // Threads take pieces in turns, so this is likely to be this thread's next one.
            next_feature: first_feature + num_threads * piece_features,
        };
        // SAFETY: the lengths were checked above, and parts don't overlap.
        unsafe { multiply_part(cpu.isa, x.as_ptr(), weight, out, shape, part) }
    });
}

#[derive(Clone, Copy)]
struct Part {
    rows: (usize, usize),
    features: (usize, usize),
    next_feature: usize,
}

per_isa!(unsafe fn multiply_part(x: *const f32, weight: Weight<'_>, out: SharedOutput, shape: LinearShape, part: Part) => multiply_part_body);

#[inline(always)]
unsafe fn multiply_part_body<L: TileKernel>(
    x: *const f32,
    weight: Weight<'_>,
    out: SharedOutput,
    shape: LinearShape,
    part: Part,
) {
    let widen = (part.rows.1 - part.rows.0).div_ceil(tile_rows::<L>()) >= WIDENED_TILES;
    // SAFETY: the caller's part is inside of the matrices.
    unsafe {
        match (weight, widen) {
            (Weight::F32(weight), _) => multiply_panels::<L, _, false>(x, weight.as_ptr(), out, shape, part),
            (Weight::F16(weight), false) => {
                multiply_panels::<L, _, false>(x, weight.as_ptr(), out, shape, part);
            }
            (Weight::F16(weight), true) => {
                multiply_panels::<L, _, true>(x, weight.as_ptr(), out, shape, part);
            }
            (Weight::Bf16(weight), false) => {
                multiply_panels::<L, _, false>(x, weight.as_ptr(), out, shape, part);
            }
            (Weight::Bf16(weight), true) => {
                multiply_panels::<L, _, true>(x, weight.as_ptr(), out, shape, part);
            }
        }
    }
}

/// A part panel by panel, and a panel chunk by chunk; WIDEN copies the panel's chunk to float32 first.
#[inline(always)]
unsafe fn multiply_panels<L: TileKernel, M: Element, const WIDEN: bool>(
    x: *const f32,
    weight: *const M,
    out: SharedOutput,
    shape: LinearShape,
    part: Part,
) {
    let LinearShape { in_features, out_features, .. } = shape;
    let chunk_len = chunk_len(in_features);
    let rows = part.rows.1 - part.rows.0;
    let fetch = tile_features::<L>().div_ceil(rows.div_ceil(tile_rows::<L>()));
    let mut widened = Widened(MaybeUninit::uninit());
    let mut panel = part.features.0;
    while panel < part.features.1 {
        let features = PANEL.min(part.features.1 - panel);
        let panel_end = panel + features;
        let next_panel = if panel_end < part.features.1 { panel_end } else { part.next_feature };
        let mut k = 0;
        while k < in_features {
            let tile = Tile {
                x: x.wrapping_add(part.rows.0 * in_features + k),
                x_stride: in_features,
                len: chunk_len.min(in_features - k),
                out: out.at(part.rows.0 * out_features + panel),
                out_stride: out_features,
                first: k == 0,
                fetch: if next_panel < out_features { fetch } else { 0 },
                ahead: weight.wrapping_add(next_panel * in_features + k).cast(),
                ahead_stride_bytes: in_features * size_of::<M>(),
            };
            let in_memory = Rows { start: weight.wrapping_add(panel * in_features + k), stride: in_features };
            // SAFETY: panel and rows are inside of the matrices.
            unsafe {
                if WIDEN {
                    let copy = widened.fill::<L, M>(in_memory, features, tile.len);
                    multiply_tiles::<L, f32, M>(tile, copy, rows, features);
                } else {
                    multiply_tiles::<L, M, M>(tile, in_memory, rows, features);
                }
            }
            k += chunk_len;
        }
        panel = panel_end;
    }
}

/// All rows of x against a panel at one chunk; `tile` is the first.
#[inline(always)]
unsafe fn multiply_tiles<L: TileKernel, W: Element, M>(
    mut tile: Tile,
    weight: Rows<W>,
    rows: usize,
    features: usize,
) {
    let mut row = 0;
    let mut fetched = 0;
    while row < rows {
        // SAFETY: the caller's rows and features are inside of the matrices.
        let tile_rows = unsafe {
            match (L::WIDE, rows - row) {
                (true, 4..) => tile_row::<L, W, M, 4, 6>(&tile, weight, features),
                (true, 3) => tile_row::<L, W, M, 3, 6>(&tile, weight, features),
                (true, 2) => tile_row::<L, W, M, 2, 6>(&tile, weight, features),
                (true, _) => tile_row::<L, W, M, 1, 6>(&tile, weight, features),
                (false, 2..) => tile_row::<L, W, M, 2, 3>(&tile, weight, features),
                (false, _) => tile_row::<L, W, M, 1, 3>(&tile, weight, features),
            }
        };
        row += tile_rows;
        tile.x = tile.x.wrapping_add(tile_rows * tile.x_stride);
        tile.out = tile.out.wrapping_add(tile_rows * tile.out_stride);
        tile.ahead = tile.ahead.wrapping_add(tile.fetch * tile.ahead_stride_bytes);
        fetched += tile.fetch;
        if fetched >= tile_features::<L>() {
            tile.fetch = 0;
        }
    }
}

/// A panel at one chunk in float32; aligned, so that no load crosses a cache line.
#[repr(align(64))]
struct Widened(MaybeUninit<[f32; PANEL * MAX_CHUNK]>);

impl Widened {
    /// The first `len` numbers of `rows` rows.
    #[inline(always)]
    unsafe fn fill<L: TileKernel, M: Element>(
        &mut self,
        from: Rows<M>,
        rows: usize,
        len: usize,
    ) -> Rows<f32> {
        let start = self.0.as_mut_ptr().cast::<f32>();
        for row in 0..rows {
            let from = from.start.wrapping_add(row * from.stride);
            let to = start.wrapping_add(row * MAX_CHUNK);
            // SAFETY: the caller has `len` numbers; a row here has room for all lanes of them.
            unsafe {
                for_lanes!(len, |k, lanes| {
                    let row = from.wrapping_add(k);
                    let wide: L = if lanes == LANES { M::load(row) } else { M::load_partial(row, lanes) };
                    wide.store(to.wrapping_add(k));
                });
            }
        }
        Rows { start, stride: MAX_CHUNK }
    }
}
