//! The second half of a chunk: outputs += weights times values, key by key.

use super::CHUNK;
use super::chunk::{HALF, Task};
use crate::lanes::{LANES, Lanes};

/// `values` of as many of the rows `row`..`rows` as fit the registers. Returns how many.
#[inline(always)]
pub(super) unsafe fn values_of_some<L: Lanes, const FETCH: bool>(
    task: &Task,
    row: usize,
    rows: usize,
    group: usize,
) -> usize {
    // SAFETY: the caller's rows and groups.
    unsafe {
        match (L::WIDE, rows - row) {
            (true, 4..) => values::<L, 4, 4, FETCH>(task, row, group),
            (true, 3) => values::<L, 3, 4, FETCH>(task, row, group),
            (true, 2) => values::<L, 2, 4, FETCH>(task, row, group),
            (true, _) => values::<L, 1, 4, FETCH>(task, row, group),
            (false, 2..) => values::<L, 2, 2, FETCH>(task, row, group),
            (false, _) => values::<L, 1, 2, FETCH>(task, row, group),
        }
    }
}

/// Adds the weighted values of HALF groups of keys to the outputs of ROWS rows, VECTORS vectors at a time.
/// Returns ROWS.
#[inline(always)]
unsafe fn values<L: Lanes, const ROWS: usize, const VECTORS: usize, const FETCH: bool>(
    task: &Task,
    row: usize,
    first: usize,
) -> usize {
    let head_dim = task.shape.head_dim;
    // SAFETY: the caller's rows and groups.
    unsafe {
        let mut d = 0;
        while d + VECTORS * LANES <= head_dim {
            values_at::<L, ROWS, VECTORS, FETCH>(task, row, first, d, LANES);
            d += VECTORS * LANES;
        }
        while d < head_dim {
            values_at::<L, ROWS, 1, FETCH>(task, row, first, d, LANES.min(head_dim - d));
            d += LANES;
        }
    }
    ROWS
}

#[inline(always)]
unsafe fn values_at<L: Lanes, const ROWS: usize, const VECTORS: usize, const FETCH: bool>(
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
        add_values::<L, ROWS, VECTORS, FETCH>(task, row, begin, together, d, lanes, &mut sums);
        for (r, sums) in sums.iter_mut().enumerate() {
            let alone = task.len(row + r).min(end);
            if alone > together.max(begin) {
                let mut one = [*sums];
                add_values::<L, 1, VECTORS, false>(
                    task,
                    row + r,
                    together.max(begin),
                    alone,
                    d,
                    lanes,
                    &mut one,
                );
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
unsafe fn add_values<L: Lanes, const ROWS: usize, const VECTORS: usize, const FETCH: bool>(
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
            let next_k = task.keys.next_k[key / LANES];
            let mut weight = task.scores.add(row * CHUNK + key);
            while key < group_end {
                let mut values = [L::splat(0.0); VECTORS];
                for (u, value) in values.iter_mut().enumerate() {
                    if FETCH {
                        // As many lines of the next keys as this vector has.
                        L::prefetch(next_k.wrapping_add(key % LANES * head_dim + d + u * LANES));
                    }
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
