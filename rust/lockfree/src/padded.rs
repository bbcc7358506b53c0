//! A value on cache lines of its own, so that threads who write neighbours don't slow each other down.

use std::ops::Deref;

/// 128 bytes: two lines, because the prefetcher of common CPUs fetches lines in pairs.
#[derive(Default)]
#[repr(align(128))]
pub(crate) struct Padded<T>(pub(crate) T);

impl<T> Deref for Padded<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}
