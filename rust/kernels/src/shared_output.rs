//! Output memory that several threads write, each its own part.

use std::marker::PhantomData;

/// A `&mut [f32]` that threads share. Only `at` gives addresses out; who writes where is the caller's proof.
#[derive(Clone, Copy)]
pub(crate) struct SharedOutput<'a> {
    start: *mut f32,
    len: usize,
    memory: PhantomData<&'a mut [f32]>,
}

// SAFETY: it only hands out addresses; the kernels give each thread a part of its own.
unsafe impl Send for SharedOutput<'_> {}
// SAFETY: as above.
unsafe impl Sync for SharedOutput<'_> {}

impl<'a> SharedOutput<'a> {
    pub(crate) fn new(memory: &'a mut [f32]) -> Self {
        Self { start: memory.as_mut_ptr(), len: memory.len(), memory: PhantomData }
    }

    /// The address of element `index`, which must be inside.
    #[inline(always)]
    pub(crate) fn at(&self, index: usize) -> *mut f32 {
        debug_assert!(index <= self.len);
        self.start.wrapping_add(index)
    }
}
