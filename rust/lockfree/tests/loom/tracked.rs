//! Plain memory whose accesses loom checks: it fails the test when two of them are not ordered by the structure.

use loom::cell::UnsafeCell;

#[derive(Default)]
pub struct Tracked<T>(UnsafeCell<T>);

// SAFETY: that no two threads access it at the same time is what loom checks, at every access.
unsafe impl<T: Send> Sync for Tracked<T> {}

impl<T> Tracked<T> {
    pub fn read<R>(&self, read: impl FnOnce(&T) -> R) -> R {
        // SAFETY: loom fails the test if somebody writes meanwhile, or may have without our seeing it.
        self.0.with(|value| read(unsafe { &*value }))
    }

    pub fn write<R>(&self, write: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: as above, for anybody who reads or writes.
        self.0.with_mut(|value| write(unsafe { &mut *value }))
    }
}
