//! One panel of weights against one tile of activations: what the kernels of all instruction sets are given.
//!
//! Invariant: an output is one chain: in a group (or in its halves, if each has a scale) an exact integer sum, rounded to
//! float32 once; then `acc = sum * weight_scale * x_scale + acc` and, with a minimum, `acc = minimum * x_sum + acc`, over
//! ascending groups. The same on every instruction set, for every number of rows.

use super::activations::{ActivationType, TILE_ROWS};
use super::gguf_type::GgufType;
use super::layout::with_layout;
use crate::Isa;
use crate::cpu::Kind;

/// All addresses of a tile.
pub(super) struct Tile {
    /// The panel's records.
    pub(super) weights: *const u8,
    /// The activations' tile.
    pub(super) x: *const u32,
    /// Rows of it, up to `TILE_ROWS`.
    pub(super) rows: usize,
    /// Groups of a row.
    pub(super) groups: usize,
    /// 16 floats, or null.
    pub(super) bias: *const f32,
    /// The first row's first output.
    pub(super) out: *mut f32,
    /// Floats from one row of the output to the next.
    pub(super) out_stride: usize,
    /// Outputs of a row: 16, fewer at the end of the matrix.
    pub(super) columns: usize,
    /// What will be needed soon is asked of memory while this tile is computed, `ahead_lines` lines with each group.
    pub(super) ahead: *const u8,
    pub(super) ahead_lines: usize,
}

/// A kernel; unsafe because it needs the tile's memory and the instructions.
pub(super) type TileKernel = unsafe fn(&Tile);

/// The kernel for weights of a type, for this machine.
pub(super) fn kernel(isa: Isa, kind: GgufType, activations: ActivationType) -> TileKernel {
    macro_rules! choose {
        ($set:ident) => {
            match activations {
                ActivationType::Int8 => with_layout!(kind, L => super::$set::multiply::<L, 1>),
                ActivationType::Int16 => with_layout!(kind, L => super::$set::multiply::<L, 2>),
            }
        };
    }
    match isa.0 {
        #[cfg(target_arch = "x86_64")]
        Kind::Avx512 => choose!(avx512),
        #[cfg(target_arch = "x86_64")]
        Kind::Avx2 => choose!(avx2),
        Kind::Portable => choose!(portable),
    }
}

const _: () = assert!(TILE_ROWS == 8, "the kernels list 1 to 8 rows");
