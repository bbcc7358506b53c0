//! Output memory that several threads write, each its own part.

use std::marker::PhantomData;

/// A `&mut [T]` that threads share. Only `at` gives addresses out; who writes where is the caller's proof.
pub(crate) struct SharedOutput<'a, T = f32> {
    start: *mut T,
    len: usize,
    memory: PhantomData<&'a mut [T]>,
}

impl<T> Clone for SharedOutput<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for SharedOutput<'_, T> {}

// SAFETY: it only hands out addresses; the kernels give each thread a part of its own.
unsafe impl<T: Send> Send for SharedOutput<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for SharedOutput<'_, T> {}

impl<'a, T> SharedOutput<'a, T> {
    pub(crate) fn new(memory: &'a mut [T]) -> Self {
        Self { start: memory.as_mut_ptr(), len: memory.len(), memory: PhantomData }
    }

    /// The address of element `index`, which must be inside.
    #[inline(always)]
    pub(crate) fn at(&self, index: usize) -> *mut T {
        debug_assert!(index <= self.len);
        self.start.wrapping_add(index)
    }
}
