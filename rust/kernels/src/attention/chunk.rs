//! One unit of query rows against one chunk of keys: scores, softmax, weighted values.
//!
//! K and V are read where they lie if 16 keys in a row are neighbours (`block_size` a multiple of 16), else
//! from a copy in that layout. Within a row every sum runs in the order of the keys.

use super::parts::PartShape;
use super::{AttentionInputs, CHUNK, Unit, row_offset};
use crate::Isa;
use crate::lanes::{LANES, Lanes, per_isa};

/// Vectors of 16 keys in a chunk.
const GROUPS: usize = CHUNK / LANES;
/// Groups whose K or V stays in L1 while query rows go by.
const HALF: usize = GROUPS / 2;

/// Buffers of one thread; grown when needed, never shrunk.
#[derive(Default)]
pub(super) struct Scratch {
    /// Scaled query rows: [rows, D]
    q: Vec<f32>,
    /// Scores, then weights: [rows, CHUNK]
    scores: Vec<f32>,
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

fn grown(buffer: &mut Vec<f32>, len: usize) -> *mut f32 {
    if buffer.len() < len {
        buffer.resize(len, 0.0);
    }
    buffer.as_mut_ptr()
}

/// Where the keys and values of a chunk are, by groups of 16.
#[derive(Clone, Copy)]
struct Keys {
    /// Groups past the last used one repeat it, so that groups can be taken several at a time.
    k: [*const f32; GROUPS],
    v: [*const f32; GROUPS],
    /// Floats from one dimension of K to the next.
    k_stride: usize,
}

/// Writes the part of every row of the unit that sees some of this chunk's keys to `parts`.
pub(super) fn attend(
    isa: Isa,
    inputs: &AttentionInputs,
    unit: &Unit,
    chunk: usize,
    scratch: &mut Scratch,
    parts: *mut f32,
) {
    let head_dim = inputs.cache.head_dim;
    let rows = unit.rows();
    let start = chunk * CHUNK;
    let keys = keys_of(inputs, unit, start, (unit.seen(rows - 1) - start).min(CHUNK), scratch);
    // Rows of the first positions may end before this chunk.
    let first = (start + 1).saturating_sub(unit.first_seen) * unit.heads;
    let q = grown(&mut scratch.q, rows * head_dim);
    for row in first..rows {
        let from = &inputs.q[row_offset(inputs, unit, row)..][..head_dim];
        for (d, &x) in from.iter().enumerate() {
            // SAFETY: the buffer has `rows` times `head_dim` floats.
            unsafe { *q.add(row * head_dim + d) = x * inputs.scale }
        }
    }
    let task = Task {
        q,
        scores: grown(&mut scratch.scores, rows * CHUNK),
        parts,
        keys,
        shape: PartShape { head_dim },
        start,
        unit: *unit,
    };
    // SAFETY: the buffers have the unit's rows; block numbers and lengths were checked.
    unsafe { attend_rows(isa, &task, first, rows) }
}

fn keys_of(inputs: &AttentionInputs, unit: &Unit, start: usize, len: usize, scratch: &mut Scratch) -> Keys {
    let cache = inputs.cache;
    let (head_dim, block_size) = (cache.head_dim, cache.block_size);
    let table = &inputs.block_tables[unit.sequence * inputs.max_blocks()..];
    let place =
        |key: usize| (cache.head_at(table[key / block_size] as usize, unit.kv_head), key % block_size);
    let mut keys =
        Keys { k: [std::ptr::null(); GROUPS], v: [std::ptr::null(); GROUPS], k_stride: block_size };
    let last = (len - 1) / LANES;
    if block_size.is_multiple_of(LANES) {
        for group in 0..GROUPS {
            let (at, offset) = place(start + group.min(last) * LANES);
            keys.k[group] = inputs.k_cache[at + offset..].as_ptr();
            keys.v[group] = inputs.v_cache[at + offset * head_dim..].as_ptr();
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
    }
    keys
}

struct Task {
    q: *const f32,
    scores: *mut f32,
    parts: *mut f32,
    keys: Keys,
    shape: PartShape,
    start: usize,
    unit: Unit,
}

impl Task {
    /// Keys of the chunk that a row sees.
    #[inline(always)]
    fn len(&self, row: usize) -> usize {
        (self.unit.seen(row) - self.start).min(CHUNK)
    }
}

per_isa!(unsafe fn attend_rows(task: &Task, first: usize, rows: usize) => attend_rows_body);

#[inline(always)]
unsafe fn attend_rows_body<L: Lanes>(task: &Task, first: usize, rows: usize) {
    // SAFETY: the caller's task has these rows.
    unsafe {
        let used = task.len(rows - 1).div_ceil(LANES);
        for group in (0..used).step_by(HALF) {
            let mut row = first;
            while row < rows {
                row += match (L::WIDE, rows - row) {
                    (true, 4..) => scores::<L, 4, 4>(task, row, group),
                    (true, 3) => scores::<L, 3, 4>(task, row, group),
                    (true, 2) => scores::<L, 2, 4>(task, row, group),
                    (true, _) => scores::<L, 1, 4>(task, row, group),
                    (false, 2..) => scores::<L, 2, 2>(task, row, group),
                    (false, _) => scores::<L, 1, 2>(task, row, group),
                };
            }
        }
        for row in first..rows {
            softmax::<L>(task, row);
        }
        for group in (0..used).step_by(HALF) {
            let mut row = first;
            while row < rows {
                row += match (L::WIDE, rows - row) {
                    (true, 4..) => values::<L, 4, 4>(task, row, group),
                    (true, 3) => values::<L, 3, 4>(task, row, group),
                    (true, 2) => values::<L, 2, 4>(task, row, group),
                    (true, _) => values::<L, 1, 4>(task, row, group),
                    (false, 2..) => values::<L, 2, 2>(task, row, group),
                    (false, _) => values::<L, 1, 2>(task, row, group),
                };
            }
        }
    }
}

/// Scores of ROWS rows against HALF groups of keys, N at a time. Returns ROWS.
#[inline(always)]
unsafe fn scores<L: Lanes, const ROWS: usize, const N: usize>(
    task: &Task,
    row: usize,
    first: usize,
) -> usize {
    let head_dim = task.shape.head_dim;
    let stride = task.keys.k_stride;
    for group in (first..first + HALF).step_by(N) {
        // SAFETY: the caller's rows and groups; a group has 16 keys of head_dim floats.
        unsafe {
            let q = task.q.add(row * head_dim);
            let mut k = [std::ptr::null(); N];
            k.copy_from_slice(&task.keys.k[group..group + N]);
            let mut sums = [[L::splat(0.0); N]; ROWS];
            for d in 0..head_dim {
                let mut keys = [L::splat(0.0); N];
                for (keys, &k) in keys.iter_mut().zip(&k) {
                    *keys = L::load(k.add(d * stride));
                }
                for (r, sums) in sums.iter_mut().enumerate() {
                    let x = L::splat(*q.add(r * head_dim + d));
                    for (sum, &keys) in sums.iter_mut().zip(&keys) {
                        *sum = keys.fma(x, *sum);
                    }
                }
            }
            for (r, sums) in sums.iter().enumerate() {
                for (n, sum) in sums.iter().enumerate() {
                    sum.store(task.scores.add((row + r) * CHUNK + (group + n) * LANES));
                }
            }
        }
    }
    ROWS
}

/// Turns a row's scores into e^(score - maximum), and notes maximum and sum in its part.
#[inline(always)]
unsafe fn softmax<L: Lanes>(task: &Task, row: usize) {
    // SAFETY: the caller's row.
    unsafe {
        let len = task.len(row);
        let full = len.next_multiple_of(LANES);
        let scores = task.scores.add(row * CHUNK);
        // Lanes past the last key hold whatever the block held.
        for i in len..full {
            *scores.add(i) = f32::NEG_INFINITY;
        }
        let mut maximum = L::load(scores);
        for i in (LANES..full).step_by(LANES) {
            maximum = maximum.max(L::load(scores.add(i)));
        }
        let maximum = maximum.maximum();
        for i in (0..full).step_by(LANES) {
            L::load(scores.add(i)).sub(L::splat(maximum)).exp().store(scores.add(i));
        }
        for i in len..full {
            *scores.add(i) = 0.0;
        }
        let mut sum = L::splat(0.0);
        for i in (0..full).step_by(LANES) {
            sum = sum.add(L::load(scores.add(i)));
        }
        let part = task.parts.add(row * task.shape.len());
        *part.add(task.shape.maximum()) = maximum;
        *part.add(task.shape.sum()) = sum.sum();
    }
}

/// Adds the weighted values of HALF groups of keys to the outputs of ROWS rows, VECTORS vectors at a time.
/// Returns ROWS.
#[inline(always)]
unsafe fn values<L: Lanes, const ROWS: usize, const VECTORS: usize>(
    task: &Task,
    row: usize,
    first: usize,
) -> usize {
    let head_dim = task.shape.head_dim;
    // SAFETY: the caller's rows and groups.
    unsafe {
        let mut d = 0;
        while d + VECTORS * LANES <= head_dim {
            values_at::<L, ROWS, VECTORS>(task, row, first, d, LANES);
            d += VECTORS * LANES;
        }
        while d < head_dim {
            values_at::<L, ROWS, 1>(task, row, first, d, LANES.min(head_dim - d));
            d += LANES;
        }
    }
    ROWS
}

#[inline(always)]
unsafe fn values_at<L: Lanes, const ROWS: usize, const VECTORS: usize>(
    task: &Task,
    row: usize,
    first: usize,
    d: usize,
    lanes: usize,
) {
    // SAFETY: the caller's rows and groups.
    unsafe {
        let part_len = task.shape.len();
        let out = task.parts.add(row * part_len + d);
        let begin = first * LANES;
        let end = begin + HALF * LANES;
        // All rows together as far as the first one sees, then each for itself: a row must not meet a
        // value that it does not see, not even with weight 0.
        let together = task.len(row).min(end);
        let mut sums = [[L::splat(0.0); VECTORS]; ROWS];
        if first > 0 {
            for (r, sums) in sums.iter_mut().enumerate() {
                for (u, sum) in sums.iter_mut().enumerate() {
                    *sum = L::load(out.add(r * part_len + u * LANES));
                }
            }
        }
        add_values::<L, ROWS, VECTORS>(task, row, begin, together, d, lanes, &mut sums);
        for (r, sums) in sums.iter_mut().enumerate() {
            let alone = task.len(row + r).min(end);
            if alone > together.max(begin) {
                let mut one = [*sums];
                add_values::<L, 1, VECTORS>(task, row + r, together.max(begin), alone, d, lanes, &mut one);
                *sums = one[0];
            }
            for (u, sum) in sums.iter().enumerate() {
                sum.store(out.add(r * part_len + u * LANES));
            }
        }
    }
}

/// sums += Σ weight * value over the keys `begin`..`end` of the chunk, one by one.
#[inline(always)]
unsafe fn add_values<L: Lanes, const ROWS: usize, const VECTORS: usize>(
    task: &Task,
    row: usize,
    begin: usize,
    end: usize,
    d: usize,
    lanes: usize,
    sums: &mut [[L; VECTORS]; ROWS],
) {
    let head_dim = task.shape.head_dim;
    let mut key = begin;
    while key < end {
        let group_end = end.min((key / LANES + 1) * LANES);
        // SAFETY: keys below `end` exist, so their values may be read.
        unsafe {
            let mut v = task.keys.v[key / LANES].add(key % LANES * head_dim + d);
            let mut weight = task.scores.add(row * CHUNK + key);
            while key < group_end {
                let mut values = [L::splat(0.0); VECTORS];
                for (u, value) in values.iter_mut().enumerate() {
                    // Only a single vector can be the head's last, shorter one.
                    *value = if VECTORS == 1 { L::load_partial(v, lanes) } else { L::load(v.add(u * LANES)) };
                }
                for (r, sums) in sums.iter_mut().enumerate() {
                    let w = L::splat(*weight.add(r * CHUNK));
                    for (sum, &value) in sums.iter_mut().zip(&values) {
                        *sum = value.fma(w, *sum);
                    }
                }
                v = v.wrapping_add(head_dim);
                weight = weight.add(1);
                key += 1;
            }
        }
    }
}
