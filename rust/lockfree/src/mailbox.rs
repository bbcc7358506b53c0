//! One boxed value on its way between two threads.
//!
//! Owns: the pointer in the cell. Invariant: whoever swaps a pointer out owns it, so that nothing is freed twice or
//! read after it was freed; an empty cell is null.
//! Must not know: what is collected.

use std::marker::PhantomData;
use std::ptr;

use crate::sync::atomic::{AtomicPtr, Ordering};

/// A cell that holds at most one value.
pub struct Mailbox<T> {
    value: AtomicPtr<T>,
    owns: PhantomData<*mut T>,
}

// SAFETY: the value is owned by the cell and goes whole from thread to thread: `T: Send` is enough.
unsafe impl<T: Send> Send for Mailbox<T> {}
// SAFETY: as above: `&Mailbox` gives nobody a reference into the value, only the value.
unsafe impl<T: Send> Sync for Mailbox<T> {}

impl<T> Default for Mailbox<T> {
    fn default() -> Self {
        Self { value: AtomicPtr::new(ptr::null_mut()), owns: PhantomData }
    }
}

impl<T> Mailbox<T> {
    /// All that was put in since the last take.
    pub fn take(&self) -> Option<Box<T>> {
        // Acquire pairs with the Release in `store`. Release: whoever finds the cell empty sees what came before.
        let value = self.value.swap(ptr::null_mut(), Ordering::AcqRel);
        // SAFETY: every pointer in the cell comes from `Box::into_raw`, and the swap has made it ours alone.
        (!value.is_null()).then(|| unsafe { Box::from_raw(value) })
    }

    /// Replaces what is there.
    pub fn store(&self, value: Box<T>) {
        // Release pairs with the Acquire in `take`: the value is written before it can be found. Acquire: what is
        // replaced is dropped here.
        let before = self.value.swap(Box::into_raw(value), Ordering::AcqRel);
        if !before.is_null() {
            // SAFETY: as in `take`.
            drop(unsafe { Box::from_raw(before) });
        }
    }

    /// Whether a take would find nothing. A glance.
    pub fn is_empty(&self) -> bool {
        // Acquire pairs with the Release in `take`.
        self.value.load(Ordering::Acquire).is_null()
    }
}

impl<T> Drop for Mailbox<T> {
    fn drop(&mut self) {
        drop(self.take());
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn what_is_stored_is_taken_once() {
        let mailbox = Mailbox::<u32>::default();
        assert!(mailbox.is_empty() && mailbox.take().is_none());
        mailbox.store(Box::new(1));
        assert!(!mailbox.is_empty());
        assert_eq!((mailbox.take().as_deref(), mailbox.take()), (Some(&1), None));
    }

    #[test]
    fn nothing_leaks() {
        let value = Arc::new(());
        let mailbox = Mailbox::default();
        mailbox.store(Box::new(Arc::clone(&value)));
        mailbox.store(Box::new(Arc::clone(&value)));
        assert_eq!(Arc::strong_count(&value), 2, "the first was dropped when it was replaced");
        drop(mailbox);
        assert_eq!(Arc::strong_count(&value), 1);
    }
}
