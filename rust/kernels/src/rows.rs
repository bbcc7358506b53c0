//! Rows by number, and what is added to every row.

use crate::InvalidArgument;

/// out [`indices`, width] = rows `indices` of x [rows, width], in order: an embedding, or the rows to go on with.
pub fn take_rows(x: &[f32], indices: &[i32], width: usize, out: &mut [f32]) -> Result<(), InvalidArgument> {
    assert_eq!(out.len(), indices.len() * width);
    check_rows(indices, x.len() / width)?;
    for (&index, out) in indices.iter().zip(out.chunks_exact_mut(width)) {
        out.copy_from_slice(&x[index as usize * width..][..width]);
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
