//! Walking along a row whose length need not be a multiple of the lanes.

use super::{LANES, Lanes};

/// Calls `f(first element, lanes)` along a row; only the last call may have fewer than all lanes.
#[inline(always)]
pub(crate) fn for_lanes(width: usize, mut f: impl FnMut(usize, usize)) {
    // One call only: called from two places the closure would stay a function, without the instructions.
    let mut i = 0;
    while i < width {
        f(i, LANES.min(width - i));
        i += LANES;
    }
}

#[inline(always)]
pub(crate) unsafe fn load<L: Lanes>(from: *const f32, lanes: usize) -> L {
    // SAFETY: the caller has `lanes` floats there.
    unsafe { if lanes == LANES { L::load(from) } else { L::load_partial(from, lanes) } }
}

#[inline(always)]
pub(crate) unsafe fn store<L: Lanes>(v: L, to: *mut f32, lanes: usize) {
    // SAFETY: the caller has room for `lanes` floats there.
    unsafe { if lanes == LANES { v.store(to) } else { v.store_partial(to, lanes) } }
}
