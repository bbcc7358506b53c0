//! Memory of tensors that somebody else has allocated, kept alive by whoever holds it here.

use std::any::Any;
use std::sync::Arc;

use half::{bf16, f16};

use crate::linear::Weight;

/// What must live as long as the memory: the tensor, say.
pub type Owner = Arc<dyn Any + Send + Sync>;

/// Elements in a row that never move.
pub struct Tensor<T = f32> {
    start: *mut T,
    len: usize,
    _owner: Owner,
}

// SAFETY: it is an address; what may be done with it is said where it is used.
unsafe impl<T: Send> Send for Tensor<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Tensor<T> {}

impl<T> Tensor<T> {
    /// # Safety
    /// `start` is the address of `len` initialised elements that live, where they are, as long as `owner`.
    pub unsafe fn new(start: *mut T, len: usize, owner: Owner) -> Self {
        debug_assert!(len == 0 || !start.is_null());
        Self {
            start: if len == 0 { std::ptr::NonNull::dangling().as_ptr() } else { start },
            len,
            _owner: owner,
        }
    }

    /// Elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// # Safety
    /// Nobody writes to them meanwhile.
    pub(super) unsafe fn read(&self) -> &[T] {
        // SAFETY: `new`'s and this function's contract.
        unsafe { std::slice::from_raw_parts(self.start, self.len) }
    }

    /// # Safety
    /// Nobody else reads or writes them meanwhile.
    #[allow(clippy::mut_from_ref)] // the memory is another's; the contract says whose turn it is
    pub(super) unsafe fn write(&self) -> &mut [T] {
        // SAFETY: `new`'s and this function's contract.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.len) }
    }
}

/// A matrix of weights in any of their float types.
pub enum WeightTensor {
    /// 32 bits.
    F32(Tensor<f32>),
    /// IEEE 754's 16 bits.
    F16(Tensor<f16>),
    /// The upper 16 bits of a float32.
    Bf16(Tensor<bf16>),
}

impl WeightTensor {
    /// Numbers in the matrix.
    pub fn len(&self) -> usize {
        match self {
            Self::F32(weight) => weight.len(),
            Self::F16(weight) => weight.len(),
            Self::Bf16(weight) => weight.len(),
        }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// # Safety
    /// Nobody writes to it meanwhile.
    pub(super) unsafe fn read(&self) -> Weight<'_> {
        // SAFETY: the caller's promise.
        unsafe {
            match self {
                Self::F32(weight) => Weight::F32(weight.read()),
                Self::F16(weight) => Weight::F16(weight.read()),
                Self::Bf16(weight) => Weight::Bf16(weight.read()),
            }
        }
    }
}
