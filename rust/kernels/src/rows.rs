//! Rows by number, and what is added to every row.

use half::slice::HalfFloatSliceExt;

use crate::InvalidArgument;
use crate::linear::Weight;

/// out [`indices`, width] = rows `indices` of x [rows, width], in order and widened: an embedding, or the rows to go on
/// with.
pub fn take_rows<'a>(
    x: impl Into<Weight<'a>>,
    indices: &[i32],
    width: usize,
    out: &mut [f32],
) -> Result<(), InvalidArgument> {
    let x = x.into();
    assert_eq!(out.len(), indices.len() * width);
    check_rows(indices, x.len() / width)?;
    for (&index, out) in indices.iter().zip(out.chunks_exact_mut(width)) {
        let row = index as usize * width..(index as usize + 1) * width;
        match x {
            Weight::F32(x) => out.copy_from_slice(&x[row]),
            Weight::F16(x) => x[row].convert_to_f32_slice(out),
            Weight::Bf16(x) => x[row].convert_to_f32_slice(out),
        }
    }
    Ok(())
}

/// Whether all indices name one of so many rows.
pub fn check_rows(indices: &[i32], rows: usize) -> Result<(), InvalidArgument> {
    match indices.iter().find(|&&index| index < 0 || index as usize >= rows) {
        Some(index) => Err(InvalidArgument(format!("indices must be in 0..{rows}; got {index}"))),
        None => Ok(()),
    }
}

/// x [rows, `bias.len()`] += bias
pub fn add_bias(x: &mut [f32], bias: &[f32]) {
    for row in x.chunks_exact_mut(bias.len()) {
        for (x, &bias) in row.iter_mut().zip(bias) {
            *x += bias;
        }
    }
}
