//! `RMSNorm`, alone and with the addition to the residual stream.
//!
//! Invariant: the sum of squares runs in 16 lanes, one by one, then a fixed tree.

use crate::Cpu;
use crate::lanes::rows::{for_lanes, load, store};
use crate::lanes::{Lanes, per_isa};
use crate::shared_output::SharedOutput;
use crate::threads::for_each_piece;

/// Elements in a piece of work: some µs.
const PIECE_ELEMENTS: usize = 32 << 10;

/// out = x / sqrt(mean(x²) + eps) * weight, for each row of x [rows, `weight.len()`].
pub fn rms_norm(cpu: Cpu, x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
    assert_eq!(x.len(), out.len());
    let out = SharedOutput::new(out);
    // SAFETY: x and out have the same length.
    for_rows(cpu, x.len(), weight, |start, rows| unsafe {
        norm_rows(cpu.isa, x.as_ptr().add(start), weight, eps, out.at(start), rows);
    });
}

/// residual += x; out = `rms_norm(residual)`
pub fn add_rms_norm(cpu: Cpu, x: &[f32], residual: &mut [f32], weight: &[f32], eps: f32, out: &mut [f32]) {
    assert_eq!(x.len(), out.len());
    assert_eq!(x.len(), residual.len());
    let (residual, out) = (SharedOutput::new(residual), SharedOutput::new(out));
    // SAFETY: x, residual and out have the same length, and pieces don't overlap.
    for_rows(cpu, x.len(), weight, |start, rows| unsafe {
        add_norm_rows(cpu.isa, x.as_ptr().add(start), residual.at(start), weight, eps, out.at(start), rows);
    });
}

/// Heads of a row of qkv that are normalised, each by itself.
#[derive(Debug, Clone, Copy)]
pub struct HeadNorm<'a> {
    /// [D]
    pub q_weight: &'a [f32],
    /// [D]
    pub k_weight: &'a [f32],
    /// Heads of q.
    pub num_heads: usize,
    /// Heads of k, and of v.
    pub num_kv_heads: usize,
    /// Added to the mean of the squares.
    pub eps: f32,
}

/// Each head of q and of k in qkv [T, (`num_heads` + 2 `num_kv_heads`) D] becomes its `rms_norm`, in place.
pub fn norm_heads(cpu: Cpu, qkv: &mut [f32], norm: HeadNorm) {
    let HeadNorm { q_weight, k_weight, num_heads, num_kv_heads, eps } = norm;
    let head_dim = q_weight.len();
    assert_eq!(k_weight.len(), head_dim);
    let width = (num_heads + 2 * num_kv_heads) * head_dim;
    assert_eq!(qkv.len() % width, 0);
    let rows = qkv.len() / width;
    let piece_rows = (PIECE_ELEMENTS / width).max(1);
    let qkv = SharedOutput::new(qkv);
    for_each_piece(cpu.num_threads, rows.div_ceil(piece_rows), &|piece| {
        for row in piece * piece_rows..rows.min((piece + 1) * piece_rows) {
            let q = qkv.at(row * width);
            let k = qkv.at(row * width + num_heads * head_dim);
            // SAFETY: q and k lie in this piece's row; a head is read to its end before it is written.
            unsafe {
                norm_rows(cpu.isa, q, q_weight, eps, q, num_heads);
                norm_rows(cpu.isa, k, k_weight, eps, k, num_kv_heads);
            }
        }
    });
}

/// Calls `work(first element, rows)` for pieces of the rows.
fn for_rows(cpu: Cpu, elements: usize, weight: &[f32], work: impl Fn(usize, usize) + Sync) {
    let width = weight.len();
    if elements == 0 {
        return;
    }
    assert_eq!(elements % width, 0);
    let rows = elements / width;
    let piece_rows = (PIECE_ELEMENTS / width).max(1);
    for_each_piece(cpu.num_threads, rows.div_ceil(piece_rows), &|piece| {
        let first = piece * piece_rows;
        work(first * width, piece_rows.min(rows - first));
    });
}

per_isa!(unsafe fn norm_rows(x: *const f32, weight: &[f32], eps: f32, out: *mut f32, rows: usize) => norm_rows_body);
per_isa!(unsafe fn add_norm_rows(x: *const f32, residual: *mut f32, weight: &[f32], eps: f32, out: *mut f32, rows: usize) => add_norm_rows_body);

#[inline(always)]
unsafe fn norm_rows_body<L: Lanes>(x: *const f32, weight: &[f32], eps: f32, out: *mut f32, rows: usize) {
    let width = weight.len();
    for row in 0..rows {
        // SAFETY: the caller's x and out have that many rows.
        unsafe {
            let (x, out) = (x.add(row * width), out.add(row * width));
            let mut squares = L::splat(0.0);
            for_lanes!(width, |i, lanes| {
                let v = load::<L>(x.add(i), lanes);
                squares = v.fma(v, squares);
            });
            scale_row(x, squares, weight, eps, out);
        }
    }
}

#[inline(always)]
unsafe fn add_norm_rows_body<L: Lanes>(
    x: *const f32,
    residual: *mut f32,
    weight: &[f32],
    eps: f32,
    out: *mut f32,
    rows: usize,
) {
    let width = weight.len();
    for row in 0..rows {
        // SAFETY: the caller's x, residual and out have that many rows.
        unsafe {
            let (x, residual, out) = (x.add(row * width), residual.add(row * width), out.add(row * width));
            let mut squares = L::splat(0.0);
            for_lanes!(width, |i, lanes| {
                let v = load::<L>(residual.add(i), lanes).add(load::<L>(x.add(i), lanes));
                store(v, residual.add(i), lanes);
                squares = v.fma(v, squares);
            });
            scale_row(residual, squares, weight, eps, out);
        }
    }
}

/// out = x * weight / sqrt(mean + eps)
#[inline(always)]
unsafe fn scale_row<L: Lanes>(x: *const f32, squares: L, weight: &[f32], eps: f32, out: *mut f32) {
    // SAFETY: x and out have `weight.len()` floats.
    unsafe {
        let scale = L::splat(1.0 / (squares.sum() / weight.len() as f32 + eps).sqrt());
        for_lanes!(weight.len(), |i, lanes| {
            let v = load::<L>(x.add(i), lanes).mul(scale).mul(load::<L>(weight.as_ptr().add(i), lanes));
            store(v, out.add(i), lanes);
        });
    }
}
