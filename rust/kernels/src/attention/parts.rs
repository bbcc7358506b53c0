//! What one chunk of keys gives a query row: an output that is not yet divided, a maximum and a sum.

use super::padded;
use crate::lanes::rows::{for_lanes, store};
use crate::lanes::{LANES, Lanes, per_isa};

/// Layout of a part: output (padded to whole vectors) | maximum | sum.
#[derive(Debug, Clone, Copy)]
pub(super) struct PartShape {
    pub(super) head_dim: usize,
}

impl PartShape {
    /// Floats of a part; a whole number of vectors.
    #[inline(always)]
    pub(super) fn len(self) -> usize {
        padded(self.head_dim) + LANES
    }

    #[inline(always)]
    pub(super) fn maximum(self) -> usize {
        padded(self.head_dim)
    }

    #[inline(always)]
    pub(super) fn sum(self) -> usize {
        padded(self.head_dim) + 1
    }
}

per_isa! {
    /// Adds the part of the next chunk to a state.
    ///
    /// # Safety
    /// Both are parts of this shape, and `state` is the caller's alone.
    pub(super) unsafe fn fold(state: *mut f32, next: *const f32, shape: PartShape) => fold_body
}

#[inline(always)]
unsafe fn fold_body<L: Lanes>(state: *mut f32, next: *const f32, shape: PartShape) {
    // SAFETY: the caller's parts have this shape.
    unsafe {
        let (old, new) = (*state.add(shape.maximum()), *next.add(shape.maximum()));
        let maximum = if old > new { old } else { new };
        let (old_factor, new_factor) = (L::splat(old - maximum).exp(), L::splat(new - maximum).exp());
        for i in (0..padded(shape.head_dim)).step_by(LANES) {
            L::load(state.add(i))
                .mul(old_factor)
                .add(L::load(next.add(i)).mul(new_factor))
                .store(state.add(i));
        }
        let mut factors = [[0f32; LANES]; 2];
        old_factor.store(factors[0].as_mut_ptr());
        new_factor.store(factors[1].as_mut_ptr());
        *state.add(shape.maximum()) = maximum;
        *state.add(shape.sum()) =
            *state.add(shape.sum()) * factors[0][0] + *next.add(shape.sum()) * factors[1][0];
    }
}

per_isa! {
    /// Writes a row's output.
    ///
    /// # Safety
    /// `state` is a part of this shape, `out` has room for a head.
    pub(super) unsafe fn finish(state: *const f32, out: *mut f32, shape: PartShape) => finish_body
}

#[inline(always)]
unsafe fn finish_body<L: Lanes>(state: *const f32, out: *mut f32, shape: PartShape) {
    // SAFETY: the caller's part has this shape.
    let scale = unsafe { L::splat(1.0 / *state.add(shape.sum())) };
    for_lanes!(shape.head_dim, |i, lanes| {
        // SAFETY: as above; the padding of the part may be read.
        unsafe { store(L::load(state.add(i)).mul(scale), out.add(i), lanes) }
    });
}
