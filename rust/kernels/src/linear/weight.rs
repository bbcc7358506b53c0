//! A weight matrix as it lies in memory, in one of the float types that checkpoints have.

use half::{bf16, f16};

/// W [`out_features`, `in_features`], row by row.
#[derive(Debug, Clone, Copy)]
pub enum Weight<'a> {
    /// 32 bits.
    F32(&'a [f32]),
    /// IEEE 754's 16 bits.
    F16(&'a [f16]),
    /// The upper 16 bits of a float32.
    Bf16(&'a [bf16]),
}

impl Weight<'_> {
    /// Numbers in the matrix.
    pub fn len(&self) -> usize {
        match self {
            Self::F32(weight) => weight.len(),
            Self::F16(weight) => weight.len(),
            Self::Bf16(weight) => weight.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of one number.
    pub fn element_bytes(&self) -> usize {
        match self {
            Self::F32(_) => size_of::<f32>(),
            Self::F16(_) | Self::Bf16(_) => size_of::<u16>(),
        }
    }
}

impl<'a> From<&'a [f32]> for Weight<'a> {
    fn from(weight: &'a [f32]) -> Self {
        Self::F32(weight)
    }
}

impl<'a> From<&'a [f16]> for Weight<'a> {
    fn from(weight: &'a [f16]) -> Self {
        Self::F16(weight)
    }
}

impl<'a> From<&'a [bf16]> for Weight<'a> {
    fn from(weight: &'a [bf16]) -> Self {
        Self::Bf16(weight)
    }
}
