//! One weight matrix as its file has it, in the order that the kernels read: `PackedMatrix`.
//!
//! Owns: packing GGUF blocks, and reading rows back (an embedding's lookup).
//! Invariant: no bit of a code or a scale changes; rows past the last are zeros.
//! Must not know: activations.

use half::f16;

use super::gguf_type::{Block, GROUP, GgufType, OFFSET};
use super::layout::{Geometry, PANEL};
use crate::InvalidArgument;
use crate::huge_pages::AlignedBytes;
use crate::shared_output::SharedOutput;
use crate::threads::for_each_piece;

/// W [`out_features`, `in_features`], quantised.
pub struct PackedMatrix {
    kind: GgufType,
    out_features: usize,
    in_features: usize,
    geometry: Geometry,
    bytes: AlignedBytes,
}

impl PackedMatrix {
    /// From GGUF blocks, row by row. Row `row` of W is row `row_of(row)` of the file.
    pub fn from_gguf(
        num_threads: usize,
        kind: GgufType,
        blocks: &[u8],
        out_features: usize,
        in_features: usize,
        row_of: &(dyn Fn(usize) -> usize + Sync),
    ) -> Result<Self, InvalidArgument> {
        if !in_features.is_multiple_of(kind.block_len()) || in_features == 0 {
            return Err(InvalidArgument(format!(
                "in_features must be a multiple of {}, the weights in a block of {}; got {in_features}",
                kind.block_len(),
                kind.name()
            )));
        }
        let row_bytes = in_features / kind.block_len() * kind.block_bytes();
        if blocks.len() != out_features * row_bytes {
            return Err(InvalidArgument(format!(
                "{out_features} rows of {in_features} weights in {} are {} bytes; got {}",
                kind.name(),
                out_features * row_bytes,
                blocks.len()
            )));
        }
        let geometry = Geometry::of(kind);
        let panel_bytes = panel_bytes(&geometry, in_features);
        let panels = out_features.div_ceil(PANEL);
        let mut bytes = AlignedBytes::zeroed(panels * panel_bytes);
        let out = SharedOutput::new(bytes.as_mut_slice());
        for_each_piece(num_threads, panels, &|panel| {
            // SAFETY: each panel's bytes belong to its piece.
            let to = unsafe { std::slice::from_raw_parts_mut(out.at(panel * panel_bytes), panel_bytes) };
            for row in 0..PANEL.min(out_features - panel * PANEL) {
                let from = row_of(panel * PANEL + row);
                pack_row(kind, &geometry, &blocks[from * row_bytes..][..row_bytes], row, to);
            }
        });
        Ok(Self { kind, out_features, in_features, geometry, bytes })
    }

    /// The weights' type in the file.
    pub fn kind(&self) -> GgufType {
        self.kind
    }

    /// Rows of W.
    pub fn out_features(&self) -> usize {
        self.out_features
    }

    /// Columns of W.
    pub fn in_features(&self) -> usize {
        self.in_features
    }

    /// Memory that it takes.
    pub fn len_bytes(&self) -> usize {
        self.bytes.as_slice().len()
    }

    /// One row in float32.
    pub fn read_row(&self, row: usize, out: &mut [f32]) {
        assert!(row < self.out_features && out.len() == self.in_features);
        let geometry = &self.geometry;
        let panel = &self.bytes.as_slice()[row / PANEL * self.panel_bytes()..][..self.panel_bytes()];
        let row = row % PANEL;
        let zero = match (geometry.nibbles, geometry.minimum) {
            (true, false) => 8.0,
            (true, true) => 0.0,
            (false, _) => f32::from(OFFSET),
        };
        for (group, out) in out.chunks_exact_mut(GROUP).enumerate() {
            let record = &panel[group / geometry.groups * geometry.record_bytes..];
            let place = group % geometry.groups;
            let codes = &record[place * geometry.code_bytes..];
            for (element, out) in out.iter_mut().enumerate() {
                let half = usize::from(geometry.halves && element >= GROUP / 2);
                let (scale, minimum) = scale_of(geometry, record, place, half, row);
                let (at, shift) = geometry.code_at(row, element);
                let code = codes[at] >> shift & if geometry.nibbles { 15 } else { 255 };
                *out = (f32::from(code) - zero) * scale + minimum;
            }
        }
    }

    pub(super) fn panel_bytes(&self) -> usize {
        panel_bytes(&self.geometry, self.in_features)
    }

    pub(super) fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    pub(super) fn bytes(&self) -> &[u8] {
        self.bytes.as_slice()
    }
}

fn panel_bytes(geometry: &Geometry, in_features: usize) -> usize {
    (in_features / GROUP).div_ceil(geometry.groups) * geometry.record_bytes
}

fn pack_row(kind: GgufType, geometry: &Geometry, blocks: &[u8], row: usize, panel: &mut [u8]) {
    let block_groups = kind.block_len() / GROUP;
    for (number, bytes) in blocks.chunks_exact(kind.block_bytes()).enumerate() {
        let block = Block::read(kind, bytes);
        for (i, codes) in block.codes.iter().enumerate().take(block_groups) {
            let group = number * block_groups + i;
            let record = &mut panel[group / geometry.groups * geometry.record_bytes..];
            let place = group % geometry.groups;
            for (element, code) in codes.iter().enumerate() {
                let (at, shift) = geometry.code_at(row, element);
                record[place * geometry.code_bytes + at] |= code << shift;
            }
            let scales = &mut record[geometry.scales + place * geometry.scale_bytes..];
            if geometry.integer_scales {
                let [first, second] = block.integers[i];
                (scales[row], scales[PANEL + row]) = (first, second);
                put_halves(&mut record[geometry.shared..], geometry, row, &block);
            } else {
                put_halves(scales, geometry, row, &block);
            }
        }
    }
}

/// 16 scales, then 16 minima if there are any.
fn put_halves(to: &mut [u8], geometry: &Geometry, row: usize, block: &Block) {
    to[2 * row..2 * row + 2].copy_from_slice(&block.scale.to_le_bytes());
    if geometry.minimum {
        to[2 * (PANEL + row)..][..2].copy_from_slice(&block.minimum.to_le_bytes());
    }
}

/// Scale and minimum of a row's group (of its half), in float32; products of an f16 and an integer are exact there.
fn scale_of(geometry: &Geometry, record: &[u8], place: usize, half: usize, row: usize) -> (f32, f32) {
    let halves = |bytes: &[u8], at: usize| f16::from_le_bytes([bytes[2 * at], bytes[2 * at + 1]]).to_f32();
    let scales = &record[geometry.scales + place * geometry.scale_bytes..];
    let floats = if geometry.integer_scales { &record[geometry.shared..] } else { scales };
    let mut scale = halves(floats, row);
    let mut minimum = if geometry.minimum { halves(floats, PANEL + row) } else { 0.0 };
    if geometry.integer_scales {
        scale *= f32::from(scales[half * PANEL + row].cast_signed());
        if geometry.minimum {
            minimum *= f32::from(scales[PANEL + row].cast_signed());
        }
    }
    (scale, minimum)
}
