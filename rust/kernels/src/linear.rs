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
const MAX_CHUNK: usize = 768;
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
            // Threads take pieces in turns, so this is likely to be this thread's next one.
            next_feature: first_feature + num_threads * piece_features,
        };
        // SAFETY: the lengths were checked above, and parts don't overlap.
        unsafe { multiply_part(cpu.isa, x.as_ptr(), weight.as_ptr(), out, shape, part) }
    });
}

#[derive(Clone, Copy)]
struct Part {
    rows: (usize, usize),
    features: (usize, usize),
    next_feature: usize,
}

per_isa!(unsafe fn multiply_part(x: *const f32, weight: *const f32, out: SharedOutput, shape: LinearShape, part: Part) => multiply_part_body);

#[inline(always)]
unsafe fn multiply_part_body<L: TileKernel>(
    x: *const f32,
    weight: *const f32,
    out: SharedOutput,
    shape: LinearShape,
    part: Part,
) {
    let LinearShape { in_features, out_features, .. } = shape;
    let chunk_len = chunk_len(in_features);
    // Rows of x and of W in one tile.
    let (rows_at_once, at_once): (usize, usize) = if L::WIDE { (4, 6) } else { (2, 3) };
    let fetch = at_once.div_ceil((part.rows.1 - part.rows.0).div_ceil(rows_at_once));
    let mut panel = part.features.0;
    while panel < part.features.1 {
        let panel_end = part.features.1.min(panel + PANEL);
        let next_panel = if panel_end < part.features.1 { panel_end } else { part.next_feature };
        let fetch = if next_panel < out_features { fetch } else { 0 };
        let mut k = 0;
        while k < in_features {
            let mut row = part.rows.0;
            let mut fetch_from = 0;
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
                    fetch: if fetch_from < at_once { fetch } else { 0 },
                    fetch_from: next_panel - panel + fetch_from,
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
                fetch_from += fetch;
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
    /// For each N rows of W, how many rows of the next panel are asked of memory while this tile is computed, and
    /// how far ahead they are: rows are too short for the hardware to notice in time. The tiles of a panel share
    /// this, so that memory and arithmetic are busy together.
    fetch: usize,
    fetch_from: usize,
}

/// ROWS rows of x against W's rows `feature`..`end`, N at a time. Returns ROWS.
#[inline(always)]
unsafe fn tile_row<L: TileKernel, const ROWS: usize, const N: usize>(
    tile: &Tile,
    mut feature: usize,
    end: usize,
) -> usize {
    // SAFETY: the caller's rows and features are inside of the matrices.
    unsafe {
        while feature + N <= end {
            match tile.fetch.min(N) {
                0 => L::multiply_tile::<ROWS, N, 0>(tile, feature),
                1 => L::multiply_tile::<ROWS, N, 1>(tile, feature),
                2 => L::multiply_tile::<ROWS, N, 2>(tile, feature),
                3..6 => L::multiply_tile::<ROWS, N, 3>(tile, feature),
                _ => L::multiply_tile::<ROWS, N, N>(tile, feature),
            }
            feature += N;
        }
        while feature < end {
            L::multiply_tile::<ROWS, 1, 0>(tile, feature);
            feature += 1;
        }
    }
    ROWS
}

/// `multiply_tile_body` as a function of its own: inlined, its sums would compete with all around them for registers.
trait TileKernel: Lanes {
    unsafe fn multiply_tile<const ROWS: usize, const N: usize, const FETCH: usize>(
        tile: &Tile,
        feature: usize,
    );
}

macro_rules! tile_kernel {
    ($(#[$feature:meta])* $lanes:ty) => {
        impl TileKernel for $lanes {
            $(#[$feature])*
            #[inline(never)]
            unsafe fn multiply_tile<const ROWS: usize, const N: usize, const FETCH: usize>(
                tile: &Tile,
                feature: usize,
            ) {
                // SAFETY: the caller has the instructions, and its rows and features are inside of the matrices.
                unsafe { multiply_tile_body::<Self, ROWS, N, FETCH>(tile, feature) }
            }
        }
    };
}
#[cfg(target_arch = "x86_64")]
tile_kernel!(
    #[target_feature(enable = "avx512f,avx512vl,avx2,fma")]
    crate::lanes::avx512::Avx512
);
#[cfg(target_arch = "x86_64")]
tile_kernel!(
    #[target_feature(enable = "avx2,fma")]
    crate::lanes::avx2::Avx2
);
tile_kernel!(crate::lanes::portable::Portable);

#[inline(always)]
unsafe fn multiply_tile_body<L: Lanes, const ROWS: usize, const N: usize, const FETCH: usize>(
    tile: &Tile,
    feature: usize,
) {
    // SAFETY: the caller's rows and features are inside of the matrices.
    unsafe {
        let stride = tile.stride;
        let x = tile.x;
        let w = tile.weight.add(feature * stride);
        let ahead = w.wrapping_add(tile.fetch_from * stride);
        let mut sums = [[L::splat(0.0); N]; ROWS];
        let mut k = 0;
        while k + LANES <= tile.len {
            let mut xs = [L::splat(0.0); ROWS];
            for (r, v) in xs.iter_mut().enumerate() {
                *v = L::load(x.add(r * stride + k));
            }
            for n in 0..N {
                let weights = L::load(w.add(n * stride + k));
                if n < FETCH {
                    L::prefetch(ahead.wrapping_add(n * stride + k));
                }
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
        // Four sums over lanes at a time, across the borders of rows. By way of memory: any loop that is not
        // unrolled here would keep the sums in memory all along.
        let mut lanes = [[0f32; LANES]; 24];
        for (r, sums) in sums.iter().enumerate() {
            for (n, sum) in sums.iter().enumerate() {
                sum.store(lanes[r * N + n].as_mut_ptr());
            }
        }
        for (i, four) in lanes.chunks_exact(4).enumerate().take((ROWS * N).div_ceil(4)) {
            let at = |j: usize| L::load(four[j].as_ptr());
            let four = L::sum4([at(0), at(1), at(2), at(3)]);
            for (j, &sum) in four.iter().enumerate().take(ROWS * N - 4 * i) {
                let (row, n) = ((4 * i + j) / N, (4 * i + j) % N);
                let to = tile.out.add(row * tile.out_stride + feature + n);
                *to = if tile.first { sum } else { *to + sum };
            }
        }
    }
}
