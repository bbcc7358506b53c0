//! y = x Wᵀ with the weights of GGUF files as they are, and activations rounded to int8 or int16.
//!
//! Owns: the cut into pieces. A piece is some panels of 16 outputs against some rows of x.
//! Invariant: a row's outputs have the same bits in any batch, on any number of threads and on any instruction set with
//! fused multiply-add; `tile` says in which order they are summed.
//!
//! Speed: a few rows are bound by memory, so W is read as one stream; many are bound by arithmetic, so that
//! a panel stays in L1 while tiles of x go by, and each tile asks for its share of the next panel.

mod activations;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod gguf_type;
mod layout;
mod packed;
mod portable;
mod tile;

use std::sync::Arc;

pub use activations::{ActivationType, Activations};
pub use gguf_type::GgufType;
pub use packed::PackedMatrix;

use crate::rows::check_rows;
use crate::shared_output::SharedOutput;
use crate::threads::for_each_piece;
use crate::{Cpu, InvalidArgument};
use activations::TILE_ROWS;
use layout::PANEL;
use tile::{Tile, kernel};

/// Rows that share a pass over the weights: their activations stay in L2.
const BLOCK_ROWS: usize = 128;
/// Bytes of W in a piece of work: some µs from memory.
const PIECE_BYTES: usize = 64 << 10;
/// How far ahead one row asks memory for the weights: measured, the hardware alone stops at each page.
const AHEAD_BYTES: usize = 6 << 10;
/// Multiply-adds that one thread does before another could wake up.
const INLINE_WORK: usize = 400_000;

/// One or more matrices of one width whose outputs lie side by side (q, k and v, say), and a bias.
pub struct PackedLinear {
    parts: Vec<Part>,
    in_features: usize,
    out_features: usize,
}

struct Part {
    matrix: Arc<PackedMatrix>,
    /// Where its outputs begin.
    first: usize,
    /// Padded to whole panels; empty if there is none.
    bias: Vec<f32>,
}

impl PackedLinear {
    /// The parts' outputs follow each other; `bias` has one float for each.
    pub fn new(matrices: Vec<Arc<PackedMatrix>>, bias: Option<&[f32]>) -> Result<Self, InvalidArgument> {
        let widths: Vec<usize> = matrices.iter().map(|matrix| matrix.in_features()).collect();
        if widths.is_empty() || widths.iter().any(|&width| width != widths[0]) {
            return Err(InvalidArgument(format!(
                "a layer needs one or more matrices of one width; got widths {widths:?}"
            )));
        }
        let out_features = matrices.iter().map(|matrix| matrix.out_features()).sum();
        if let Some(bias) = bias.filter(|bias| bias.len() != out_features) {
            return Err(InvalidArgument(format!("bias must have {out_features} floats; got {}", bias.len())));
        }
        let mut first = 0;
        let mut parts = Vec::with_capacity(matrices.len());
        for matrix in matrices {
            let end = first + matrix.out_features();
            let mut part_bias = bias.map_or_else(Vec::new, |bias| bias[first..end].to_vec());
            if !part_bias.is_empty() {
                part_bias.resize(part_bias.len().next_multiple_of(PANEL), 0.0);
            }
            parts.push(Part { matrix, first, bias: part_bias });
            first = end;
        }
        Ok(Self { parts, in_features: widths[0], out_features })
    }

    /// Length of a dot product.
    pub fn in_features(&self) -> usize {
        self.in_features
    }

    /// Outputs of a row.
    pub fn out_features(&self) -> usize {
        self.out_features
    }

    /// Memory of the weights.
    pub fn len_bytes(&self) -> usize {
        self.parts.iter().map(|part| part.matrix.len_bytes()).sum()
    }

    /// Multiply-adds for `rows` rows.
    pub fn work(&self, rows: usize) -> usize {
        rows * self.in_features * self.out_features
    }

    /// out [`indices`, `in_features`] = rows `indices` of the matrices in float32, without the bias: an embedding.
    pub fn read_rows(&self, indices: &[i32], out: &mut [f32]) -> Result<(), InvalidArgument> {
        assert_eq!(out.len(), indices.len() * self.in_features);
        check_rows(indices, self.out_features)?;
        for (&index, out) in indices.iter().zip(out.chunks_exact_mut(self.in_features)) {
            let row = index as usize;
            let part = self.parts.iter().rfind(|part| part.first <= row).expect("the first begins at 0");
            part.matrix.read_row(row - part.first, out);
        }
        Ok(())
    }

    /// out [rows, `out_features`] = x [rows, `in_features`] Wᵀ + bias; `activations` is room to work in.
    pub fn multiply(&self, cpu: Cpu, x: &[f32], activations: &mut Activations, out: &mut [f32]) {
        let rows = x.len() / self.in_features;
        assert_eq!(x.len(), rows * self.in_features);
        assert_eq!(out.len(), rows * self.out_features);
        if out.is_empty() {
            return;
        }
        let num_threads = if self.work(rows) <= INLINE_WORK { 1 } else { cpu.num_threads };
        let cpu = Cpu { num_threads, ..cpu };
        activations.quantize(cpu, x, self.in_features);
        let activations = &*activations;
        let out = SharedOutput::new(out);
        let pieces_of = |part: &Part| part.matrix.out_features().div_ceil(PANEL * piece_panels(&part.matrix));
        let panel_pieces: usize = self.parts.iter().map(pieces_of).sum();
        for_each_piece(num_threads, panel_pieces * rows.div_ceil(BLOCK_ROWS), &|piece| {
            let first_row = piece / panel_pieces * BLOCK_ROWS;
            let mut piece = piece % panel_pieces;
            for part in &self.parts {
                let pieces = pieces_of(part);
                if piece < pieces {
                    let panels = piece_panels(&part.matrix);
                    let end = part.matrix.out_features().div_ceil(PANEL).min((piece + 1) * panels);
                    let rows = first_row..rows.min(first_row + BLOCK_ROWS);
                    for panel in piece * panels..end {
                        self.multiply_panel(cpu, part, panel, rows.clone(), activations, out);
                    }
                    return;
                }
                piece -= pieces;
            }
        });
    }

    fn multiply_panel(
        &self,
        cpu: Cpu,
        part: &Part,
        panel: usize,
        rows: std::ops::Range<usize>,
        activations: &Activations,
        out: SharedOutput,
    ) {
        let matrix = &part.matrix;
        let geometry = matrix.geometry();
        let panel_bytes = matrix.panel_bytes();
        let weights = matrix.bytes()[panel * panel_bytes..][..panel_bytes].as_ptr();
        let tiles = rows.len().div_ceil(TILE_ROWS);
        let ahead_lines = geometry.record_lines().div_ceil(geometry.groups * tiles);
        let kernel = kernel(cpu.isa, matrix.kind(), activations.kind());
        let column = panel * PANEL;
        for (i, row) in rows.clone().step_by(TILE_ROWS).enumerate() {
            let share = panel_bytes / tiles * i;
            let tile = Tile {
                weights,
                x: activations.tile(row).as_ptr(),
                rows: TILE_ROWS.min(activations.rows() - row),
                groups: self.in_features / gguf_type::GROUP,
                bias: if part.bias.is_empty() { std::ptr::null() } else { part.bias[column..].as_ptr() },
                out: out.at(row * self.out_features + part.first + column),
                out_stride: self.out_features,
                columns: PANEL.min(matrix.out_features() - column),
                ahead: weights.wrapping_add(if tiles == 1 { AHEAD_BYTES } else { panel_bytes + share }),
                ahead_lines,
            };
            // SAFETY: panel and rows are inside of the matrices, and this piece alone writes these outputs.
            unsafe { kernel(&tile) }
        }
    }
}

fn piece_panels(matrix: &PackedMatrix) -> usize {
    (PIECE_BYTES / matrix.panel_bytes()).max(1)
}
