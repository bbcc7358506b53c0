//! Where the keys and values of a chunk are, and the buffers of a thread.
//!
//! K and V are read where they lie if 16 keys in a row are neighbours (`block_size` a multiple of 16), else
//! from a copy in that layout.

use super::{AttentionInputs, CHUNK, GROUPS, Unit};
use crate::lanes::LANES;

/// Buffers of one thread; grown when needed, never shrunk.
#[derive(Default)]
pub(super) struct Scratch {
    /// Scaled query rows: [rows, D]
    pub(super) q: Vec<f32>,
    /// Scores, then weights: [rows, CHUNK]
    pub(super) scores: Vec<f32>,
    /// Two lots of parts
    parts: Vec<f32>,
    /// [D, CHUNK], for small blocks
    k_copy: Vec<f32>,
    /// [CHUNK, D], for small blocks
    v_copy: Vec<f32>,
}

impl Scratch {
    /// (state, next), each of `len` floats.
    pub(super) fn parts(&mut self, len: usize) -> (*mut f32, *mut f32) {
        let start = grown(&mut self.parts, 2 * len);
        (start, start.wrapping_add(len))
    }
}

pub(super) fn grown(buffer: &mut Vec<f32>, len: usize) -> *mut f32 {
    if buffer.len() < len {
        buffer.resize(len, 0.0);
    }
    buffer.as_mut_ptr()
}

/// Where the keys and values of a chunk are, by groups of 16.
#[derive(Clone, Copy)]
pub(super) struct Keys {
    /// Groups past the last used one repeat it, so that groups can be taken several at a time.
    pub(super) k: [*const f32; GROUPS],
    pub(super) v: [*const f32; GROUPS],
    /// The next chunk's K, if it comes next here; only to ask memory for.
    pub(super) next_k: [*const f32; GROUPS],
    /// Floats from one dimension of K to the next.
    pub(super) k_stride: usize,
}

/// The keys from `start` that the unit sees, up to a chunk; `ahead` if the next chunk follows in this thread.
pub(super) fn keys_of(
    inputs: &AttentionInputs,
    unit: &Unit,
    start: usize,
    ahead: bool,
    scratch: &mut Scratch,
) -> Keys {
    let seen = unit.seen(unit.rows() - 1);
    let len = (seen - start).min(CHUNK);
    let cache = inputs.cache;
    let (head_dim, block_size) = (cache.head_dim, cache.block_size);
    let table = &inputs.block_tables[unit.sequence * inputs.max_blocks()..];
    let place =
        |key: usize| (cache.head_at(table[key / block_size] as usize, unit.kv_head), key % block_size);
    let nowhere = [std::ptr::null(); GROUPS];
    let mut keys = Keys { k: nowhere, v: nowhere, next_k: nowhere, k_stride: block_size };
    let last = (len - 1) / LANES;
    if block_size.is_multiple_of(LANES) {
        for group in 0..GROUPS {
            let (at, offset) = place(start + group.min(last) * LANES);
            keys.k[group] = inputs.k_cache[at + offset..].as_ptr();
            keys.v[group] = inputs.v_cache[at + offset * head_dim..].as_ptr();
            let next = start + CHUNK + group * LANES;
            keys.next_k[group] = if ahead && next < seen {
                inputs.k_cache[place(next).0 + place(next).1..].as_ptr()
            } else {
                keys.k[group]
            };
        }
        return keys;
    }
    let k = grown(&mut scratch.k_copy, head_dim * CHUNK);
    let v = grown(&mut scratch.v_copy, CHUNK * head_dim);
    for key in 0..len {
        let (at, offset) = place(start + key);
        for d in 0..head_dim {
            // SAFETY: the copies have CHUNK keys of head_dim floats.
            unsafe {
                *k.add(d * CHUNK + key) = inputs.k_cache[at + d * block_size + offset];
                *v.add(key * head_dim + d) = inputs.v_cache[at + offset * head_dim + d];
            }
        }
    }
    keys.k_stride = CHUNK;
    for group in 0..GROUPS {
        let at = group.min(last) * LANES;
        keys.k[group] = k.wrapping_add(at);
        keys.v[group] = v.wrapping_add(at * head_dim);
        keys.next_k[group] = keys.k[group];
    }
    keys
}
