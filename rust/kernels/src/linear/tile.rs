//! A tile of sums: a few rows of x against a few rows of W along one chunk, in registers.
//!
//! Invariant: lane l of a sum adds the products of k ≡ l mod 16 in order, and lanes are added in `Lanes::sum`'s tree,
//! whatever the tile's size and the type of W.

use crate::lanes::element::Element;
use crate::lanes::{LANES, Lanes};

/// Rows of x in a tile.
pub(super) const fn tile_rows<L: Lanes>() -> usize {
    if L::WIDE { 4 } else { 2 }
}

/// Rows of W in a tile.
pub(super) const fn tile_features<L: Lanes>() -> usize {
    if L::WIDE { 6 } else { 3 }
}

/// Some rows of x at one chunk, and what becomes of them.
#[derive(Clone, Copy)]
pub(super) struct Tile {
    pub x: *const f32,
    pub x_stride: usize,
    pub len: usize,
    pub out: *mut f32,
    pub out_stride: usize,
    /// Sets the output, where later chunks add to it.
    pub first: bool,
    /// For each N rows of W, how many rows of the next panel are asked of memory while this tile is computed: rows are
    /// too short for the hardware to notice in time. The tiles of a panel share this, so that memory and arithmetic are
    /// busy together.
    pub fetch: usize,
    /// The memory to ask for in the place of row 0, and how far its rows are apart.
    pub ahead: *const u8,
    pub ahead_stride_bytes: usize,
}

/// Rows of W at the tile's chunk.
#[derive(Clone, Copy)]
pub(super) struct Rows<W> {
    pub start: *const W,
    pub stride: usize,
}

/// A tile against `features` rows of W, N at a time. Returns ROWS. M is the type that W has in memory.
#[inline(always)]
pub(super) unsafe fn tile_row<L: TileKernel, W: Element, M, const ROWS: usize, const N: usize>(
    tile: &Tile,
    weight: Rows<W>,
    features: usize,
) -> usize {
    let mut feature = 0;
    // SAFETY: the caller's rows and features are inside of the matrices.
    unsafe {
        while feature + N <= features {
            match tile.fetch.min(N) {
                0 => L::multiply_tile::<W, M, ROWS, N, 0>(tile, weight, feature),
                1 => L::multiply_tile::<W, M, ROWS, N, 1>(tile, weight, feature),
                2 => L::multiply_tile::<W, M, ROWS, N, 2>(tile, weight, feature),
                3..6 => L::multiply_tile::<W, M, ROWS, N, 3>(tile, weight, feature),
                _ => L::multiply_tile::<W, M, ROWS, N, N>(tile, weight, feature),
            }
            feature += N;
        }
        while feature < features {
            L::multiply_tile::<W, M, ROWS, 1, 0>(tile, weight, feature);
            feature += 1;
        }
    }
    ROWS
}

/// `multiply_tile_body` as a function of its own: inlined, its sums would compete with all around them for registers.
pub(super) trait TileKernel: Lanes {
    unsafe fn multiply_tile<W: Element, M, const ROWS: usize, const N: usize, const FETCH: usize>(
        tile: &Tile,
        weight: Rows<W>,
        feature: usize,
    );
}

macro_rules! tile_kernel {
    ($(#[$feature:meta])* $lanes:ty) => {
        impl TileKernel for $lanes {
            $(#[$feature])*
            #[inline(never)]
            unsafe fn multiply_tile<W: Element, M, const ROWS: usize, const N: usize, const FETCH: usize>(
                tile: &Tile,
                weight: Rows<W>,
                feature: usize,
            ) {
                // SAFETY: the caller has the instructions, and its rows and features are inside of the matrices.
                unsafe { multiply_tile_body::<Self, W, M, ROWS, N, FETCH>(tile, weight, feature) }
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
    #[target_feature(enable = "avx2,fma,f16c")]
    crate::lanes::avx2::Avx2
);
tile_kernel!(crate::lanes::portable::Portable);

#[inline(always)]
unsafe fn multiply_tile_body<
    L: Lanes,
    W: Element,
    M,
    const ROWS: usize,
    const N: usize,
    const FETCH: usize,
>(
    tile: &Tile,
    weight: Rows<W>,
    feature: usize,
) {
    // SAFETY: the caller's rows and features are inside of the matrices.
    unsafe {
        let (x, x_stride) = (tile.x, tile.x_stride);
        let stride = weight.stride;
        let w = weight.start.add(feature * stride);
        let ahead = tile.ahead.wrapping_add(feature * tile.ahead_stride_bytes);
        let mut sums = [[L::splat(0.0); N]; ROWS];
        let mut k = 0;
        while k + LANES <= tile.len {
            let mut xs = [L::splat(0.0); ROWS];
            for (r, v) in xs.iter_mut().enumerate() {
                *v = L::load(x.add(r * x_stride + k));
            }
            for n in 0..N {
                let weights = W::load::<L>(w.add(n * stride + k));
                if n < FETCH {
                    L::prefetch(ahead.wrapping_add(n * tile.ahead_stride_bytes + k * size_of::<M>()));
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
                let weights = W::load_partial::<L>(w.add(n * stride + k), lanes);
                for (r, sums) in sums.iter_mut().enumerate() {
                    sums[n] = L::load_partial(x.add(r * x_stride + k), lanes).fma(weights, sums[n]);
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
