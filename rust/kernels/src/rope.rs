//! Rotary position embedding of q and k, and the write of k and v into the paged cache.
//!
//! Pairs are half a head apart (`NeoX` order): element i turns with element i + D/2.

use crate::attention::MAX_HEAD_DIM;
use crate::kv_cache::KvCacheShape;
use crate::lanes::rows::{for_lanes, load, store};
use crate::lanes::{Lanes, per_isa};
use crate::shared_output::SharedOutput;
use crate::threads::for_each_piece;
use crate::{Cpu, InvalidArgument};

/// A slot that nothing is written to.
pub const NO_SLOT: i64 = -1;

/// Elements of qkv in a piece of work: some µs.
const PIECE_ELEMENTS: usize = 16 << 10;

/// What is read. T rows.
#[derive(Debug, Clone, Copy)]
pub struct RopeInputs<'a> {
    /// [T, (`num_heads` + 2 `kv_heads`) D]
    pub qkv: &'a [f32],
    /// [positions, D]: cos half | sin half
    pub cos_sin: &'a [f32],
    /// [T]
    pub positions: &'a [i32],
    /// [T]: block * `block_size` + offset, or `NO_SLOT`. No slot twice.
    pub slot_mapping: &'a [i64],
    /// Heads of q.
    pub num_heads: usize,
}

/// `q_out` [T, `num_heads`, D] = rotated q; rotated k and v go to their slots.
pub fn rope_kv_write(
    cpu: Cpu,
    inputs: RopeInputs,
    k_cache: &mut [f32],
    v_cache: &mut [f32],
    cache: KvCacheShape,
    q_out: &mut [f32],
) -> Result<(), InvalidArgument> {
    let RopeInputs { qkv, cos_sin, positions, slot_mapping, num_heads } = inputs;
    let head_dim = cache.head_dim;
    let rows = positions.len();
    let width = (num_heads + 2 * cache.kv_heads) * head_dim;
    assert_eq!(qkv.len(), rows * width);
    assert_eq!(slot_mapping.len(), rows);
    assert_eq!(q_out.len(), rows * num_heads * head_dim);
    assert_eq!((k_cache.len(), v_cache.len()), (cache.len(), cache.len()));
    assert!(head_dim <= MAX_HEAD_DIM && head_dim.is_multiple_of(2));
    assert!(cos_sin.len().is_multiple_of(head_dim));
    let max_positions = cos_sin.len() / head_dim;
    if let Some((row, p)) = positions.iter().enumerate().find(|&(_, &p)| p < 0 || p as usize >= max_positions)
    {
        return Err(InvalidArgument(format!(
            "positions must be in 0..{max_positions}; got {p} in row {row}"
        )));
    }
    let slots = cache.num_blocks * cache.block_size;
    if let Some((row, slot)) =
        slot_mapping.iter().enumerate().find(|&(_, &slot)| slot < NO_SLOT || slot >= slots as i64)
    {
        return Err(InvalidArgument(format!("slots must be in -1..{slots}; got {slot} in row {row}")));
    }
    let (k_cache, v_cache, q_out) =
        (SharedOutput::new(k_cache), SharedOutput::new(v_cache), SharedOutput::new(q_out));
    let piece_rows = (PIECE_ELEMENTS / width).max(1);
    for_each_piece(cpu.num_threads, rows.div_ceil(piece_rows), &|piece| {
        let first = piece * piece_rows;
        for row in first..rows.min(first + piece_rows) {
            let slot = usize::try_from(slot_mapping[row]).ok();
            let task = Row {
                qkv: &qkv[row * width..][..width],
                cos_sin: &cos_sin[positions[row] as usize * head_dim..][..head_dim],
                slot: slot.map(|slot| (slot / cache.block_size, slot % cache.block_size)),
                q_out: q_out.at(row * num_heads * head_dim),
                num_heads,
            };
            // SAFETY: the slot was checked; rows and slots belong to one piece each.
            unsafe { rotate_row(cpu.isa, task, k_cache, v_cache, cache) }
        }
    });
    Ok(())
}

#[derive(Clone, Copy)]
struct Row<'a> {
    qkv: &'a [f32],
    cos_sin: &'a [f32],
    slot: Option<(usize, usize)>,
    q_out: *mut f32,
    num_heads: usize,
}

per_isa!(unsafe fn rotate_row(row: Row, k_cache: SharedOutput, v_cache: SharedOutput, cache: KvCacheShape) => rotate_row_body);

#[inline(always)]
unsafe fn rotate_row_body<L: Lanes>(
    row: Row,
    k_cache: SharedOutput,
    v_cache: SharedOutput,
    cache: KvCacheShape,
) {
    let KvCacheShape { kv_heads, head_dim, block_size, .. } = cache;
    let (q, kv) = row.qkv.split_at(row.num_heads * head_dim);
    let (k, v) = kv.split_at(kv_heads * head_dim);
    // SAFETY: the caller's slot and q_out are inside of their memory; the heads have head_dim floats.
    unsafe {
        for head in 0..row.num_heads {
            rotate::<L>(&q[head * head_dim..], row.cos_sin, row.q_out.add(head * head_dim));
        }
        let Some((block, offset)) = row.slot else { return };
        let mut turned = [0f32; MAX_HEAD_DIM];
        for head in 0..kv_heads {
            rotate::<L>(&k[head * head_dim..], row.cos_sin, turned.as_mut_ptr());
            let at = cache.head_at(block, head);
            for (d, &x) in turned.iter().enumerate().take(head_dim) {
                *k_cache.at(at + d * block_size + offset) = x;
            }
            let v = &v[head * head_dim..][..head_dim];
            std::ptr::copy_nonoverlapping(v.as_ptr(), v_cache.at(at + offset * head_dim), head_dim);
        }
    }
}

/// Writes a head, turned, to `out`.
#[inline(always)]
unsafe fn rotate<L: Lanes>(x: &[f32], cos_sin: &[f32], out: *mut f32) {
    let half = cos_sin.len() / 2;
    let (x, cos_sin) = (x.as_ptr(), cos_sin.as_ptr());
    for_lanes!(half, |i, lanes| {
        // SAFETY: a head, its table row and the output have 2 `half` floats.
        unsafe {
            let (a, b) = (load::<L>(x.add(i), lanes), load::<L>(x.add(half + i), lanes));
            let (cos, sin) = (load::<L>(cos_sin.add(i), lanes), load::<L>(cos_sin.add(half + i), lanes));
            store(a.mul(cos).sub(b.mul(sin)), out.add(i), lanes);
            store(b.mul(cos).add(a.mul(sin)), out.add(half + i), lanes);
        }
    });
}
