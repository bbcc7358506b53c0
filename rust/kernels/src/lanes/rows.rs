//! Walking along a row whose length need not be a multiple of the lanes.

use super::{LANES, Lanes};

/// Runs a block along a row; only the last run may have fewer than all lanes. A macro, because a closure may
/// stay a function of its own, and then without the caller's instructions.
macro_rules! for_lanes {
    ($width:expr, |$i:ident, $lanes:ident| $body:block) => {
        let mut $i = 0;
        while $i < $width {
            let $lanes = $crate::lanes::LANES.min($width - $i);
            $body
            $i += $crate::lanes::LANES;
        }
    };
}
pub(crate) use for_lanes;

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
