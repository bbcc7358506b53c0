//! silu(gate) * up.

use crate::Cpu;
use crate::lanes::rows::{for_lanes, load, store};
use crate::lanes::{Lanes, per_isa};
use crate::shared_output::SharedOutput;
use crate::threads::for_each_piece;

/// Elements in a piece of work: some µs.
const PIECE_ELEMENTS: usize = 32 << 10;

/// `gate_up` [rows, 2 width], gate first → out [rows, width] = silu(gate) * up
pub fn silu_mul(cpu: Cpu, gate_up: &[f32], out: &mut [f32], width: usize) {
    assert_eq!(gate_up.len(), 2 * out.len());
    if out.is_empty() {
        return;
    }
    assert_eq!(out.len() % width, 0);
    let rows = out.len() / width;
    let piece_rows = (PIECE_ELEMENTS / width).max(1);
    let out = SharedOutput::new(out);
    for_each_piece(cpu.num_threads, rows.div_ceil(piece_rows), &|piece| {
        let first = piece * piece_rows;
        for row in first..rows.min(first + piece_rows) {
            // SAFETY: the row is inside of both, and belongs to this piece.
            unsafe {
                silu_mul_row(cpu.isa, gate_up.as_ptr().add(2 * row * width), out.at(row * width), width);
            }
        }
    });
}

per_isa!(unsafe fn silu_mul_row(gate_up: *const f32, out: *mut f32, width: usize) => silu_mul_row_body);

#[inline(always)]
unsafe fn silu_mul_row_body<L: Lanes>(gate_up: *const f32, out: *mut f32, width: usize) {
    for_lanes!(width, |i, lanes| {
        // SAFETY: the caller's row has 2 `width` floats, and its output `width`.
        unsafe {
            let gate = load::<L>(gate_up.add(i), lanes);
            let up = load::<L>(gate_up.add(width + i), lanes);
            let one = L::splat(1.0);
            let silu = gate.div(one.add(L::splat(0.0).sub(gate).exp()));
            store(silu.mul(up), out.add(i), lanes);
        }
    });
}
