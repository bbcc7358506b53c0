//! The one switch between std and loom: the structures take atomics, cells and threads from here only.
//!
//! Owns: nothing at run time. Under `--cfg loom` every name below is loom's, so that the model checker sees each
//! access; otherwise it is std's and costs nothing.

#[cfg(loom)]
pub use loom::{cell::UnsafeCell, hint, sync::atomic, thread};
#[cfg(not(loom))]
pub use std::{hint, sync::atomic, thread};

#[cfg(not(loom))]
pub use self::cell::UnsafeCell;

/// Parks the thread. Loom has no clock: there only an unpark ends it, so that a lost wake-up is a deadlock, which loom
/// reports.
pub fn park_timeout(timeout: std::time::Duration) {
    #[cfg(loom)]
    {
        let _ = timeout;
        thread::park();
    }
    #[cfg(not(loom))]
    thread::park_timeout(timeout);
}

/// Puts the thread to sleep for a while. Loom has no clock: there the others go first.
pub fn nap(time: std::time::Duration) {
    #[cfg(loom)]
    {
        let _ = time;
        thread::yield_now();
    }
    #[cfg(not(loom))]
    thread::sleep(time);
}

#[cfg(not(loom))]
mod cell {
    /// `std::cell::UnsafeCell` behind loom's closures: every access has a beginning and an end.
    pub struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

    impl<T> UnsafeCell<T> {
        /// A cell with `value`.
        pub fn new(value: T) -> Self {
            Self(std::cell::UnsafeCell::new(value))
        }

        /// Reads what nobody writes meanwhile.
        pub fn with<R>(&self, access: impl FnOnce(*const T) -> R) -> R {
            access(self.0.get())
        }

        /// Writes what nobody else reads or writes meanwhile.
        pub fn with_mut<R>(&self, access: impl FnOnce(*mut T) -> R) -> R {
            access(self.0.get())
        }
    }
}
