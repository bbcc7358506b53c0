//! One unit of query rows against one chunk of keys: scores, softmax, weighted values.
//!
//! Within a row every sum runs in the order of the keys. Blocks lie anywhere, so the hardware cannot guess the
//! next one: while scores are computed the values are asked of memory, and meanwhile the next chunk's keys.

use super::keys::{Keys, Scratch, grown, keys_of};
use super::parts::PartShape;
use super::values::values_of_some;
use super::{AttentionInputs, CHUNK, GROUPS, Unit, row_offset};
use crate::Isa;
use crate::lanes::{LANES, Lanes, per_isa};

/// Groups whose K or V stays in L1 while query rows go by.
pub(super) const HALF: usize = GROUPS / 2;

/// Writes the part of every row of the unit that sees some of this chunk's keys to `parts`; `ahead` if the next
/// chunk follows in this thread.
pub(super) fn attend(
    isa: Isa,
    inputs: &AttentionInputs,
    unit: &Unit,
    chunk: usize,
    ahead: bool,
    scratch: &mut Scratch,
    parts: *mut f32,
) {
    let head_dim = inputs.cache.head_dim;
    let rows = unit.rows();
    let start = chunk * CHUNK;
    let keys = keys_of(inputs, unit, start, ahead, scratch);
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

pub(super) struct Task {
    q: *const f32,
    pub(super) scores: *mut f32,
    pub(super) parts: *mut f32,
    pub(super) keys: Keys,
    pub(super) shape: PartShape,
    start: usize,
    unit: Unit,
}

impl Task {
    /// Keys of the chunk that a row sees.
    #[inline(always)]
    pub(super) fn len(&self, row: usize) -> usize {
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
            // The first rows ask memory for what comes next.
            let mut row = first;
            row += scores_of_some::<L, true>(task, row, rows, group);
            while row < rows {
                row += scores_of_some::<L, false>(task, row, rows, group);
            }
        }
        for row in first..rows {
            softmax::<L>(task, row);
        }
        for group in (0..used).step_by(HALF) {
            let mut row = first;
            row += values_of_some::<L, true>(task, row, rows, group);
            while row < rows {
                row += values_of_some::<L, false>(task, row, rows, group);
            }
        }
    }
}

/// `scores` of as many of the rows `row`..`rows` as fit the registers. Returns how many.
#[inline(always)]
unsafe fn scores_of_some<L: Lanes, const FETCH: bool>(
    task: &Task,
    row: usize,
    rows: usize,
    group: usize,
) -> usize {
    // SAFETY: the caller's rows and groups.
    unsafe {
        match (L::WIDE, rows - row) {
            (true, 4..) => scores::<L, 4, 4, FETCH>(task, row, group),
            (true, 3) => scores::<L, 3, 4, FETCH>(task, row, group),
            (true, 2) => scores::<L, 2, 4, FETCH>(task, row, group),
            (true, _) => scores::<L, 1, 4, FETCH>(task, row, group),
            (false, 2..) => scores::<L, 2, 2, FETCH>(task, row, group),
            (false, _) => scores::<L, 1, 2, FETCH>(task, row, group),
        }
    }
}

/// Scores of ROWS rows against HALF groups of keys, N at a time. Returns ROWS.
#[inline(always)]
unsafe fn scores<L: Lanes, const ROWS: usize, const N: usize, const FETCH: bool>(
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
            let mut v = [std::ptr::null(); N];
            v.copy_from_slice(&task.keys.v[group..group + N]);
            let mut sums = [[L::splat(0.0); N]; ROWS];
            for d in 0..head_dim {
                let mut keys = [L::splat(0.0); N];
                for (n, keys) in keys.iter_mut().enumerate() {
                    *keys = L::load(k[n].add(d * stride));
                    if FETCH {
                        // 16 keys of head_dim floats of V: as many lines as there are dimensions
                        L::prefetch(v[n].wrapping_add(d * LANES));
                    }
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
