//! Walking along a row whose length need not be a multiple of the lanes.

use super::{LANES, Lanes};

/// Calls `f(first element, lanes)` along a row; only the last call may have fewer than all lanes.
#[inline(always)]
pub(crate) fn for_lanes(width: usize, mut f: impl FnMut(usize, usize)) {
    let mut i = 0;
    while i + LANES <= width {
        f(i, LANES);
        i += LANES;
    }
    if i < width {
        f(i, width - i);
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
