//! `_core.StepPlan`: numpy views of the step plan's buffers, without a copy.
//!
//! Owns: the views. Invariant: a view keeps the buffers alive, and they never move.
//! Must not know: what is planned.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicI64, Ordering};

use numpy::ndarray::{ArrayView1, ArrayView2};
use numpy::{PyArray1, PyArray2};
use pagurid_core::step_plan::StepBuffers;
use pagurid_kernels::tape::StepInputs;
use pyo3::prelude::*;

/// Views of the flat buffers that the last `plan()` filled: no copy, valid until the next `plan()`.
///
/// Arrays have their full, fixed capacity and never move; the `num_*` say how much of them counts.
/// Rows are tokens, grouped by sequence.
#[pyclass(frozen, module = "pagurid._core")]
pub struct StepPlan {
    buffers: Arc<StepBuffers>,
}

impl StepPlan {
    pub fn new(buffers: Arc<StepBuffers>) -> Self {
        Self { buffers }
    }

    /// The step that the last `plan()` wrote.
    ///
    /// # Safety
    /// Nobody plans until the result is gone.
    pub(crate) unsafe fn inputs(&self) -> StepInputs<'_> {
        let buffers = &*self.buffers;
        let (tokens, sequences) = (self.num_tokens(), self.num_sequences());
        // SAFETY: an atomic is laid out as its number; the caller sees to it that none is written.
        unsafe {
            StepInputs {
                token_ids: plain(&buffers.token_ids[..tokens]),
                positions: plain(&buffers.positions[..tokens]),
                slot_mapping: plain(&buffers.slot_mapping[..tokens]),
                query_start: plain(&buffers.query_start[..=sequences]),
                context_lens: plain(&buffers.context_lens[..sequences]),
                block_tables: plain(&buffers.block_tables[..sequences * buffers.max_blocks_per_sequence]),
                logits_rows: plain(&buffers.logits_rows[..self.num_logits_rows()]),
                block_copies: plain(&buffers.block_copies[..2 * self.num_block_copies()]),
            }
        }
    }

    /// Whether these are its views.
    pub fn shows(&self, buffers: &Arc<StepBuffers>) -> bool {
        Arc::ptr_eq(&self.buffers, buffers)
    }
}

/// # Safety
/// A is the atomic of N, and nobody writes the buffer while the result lives.
unsafe fn plain<A, N>(buffer: &[A]) -> &[N] {
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(buffer.as_ptr().cast(), buffer.len()) }
}

fn view_i32<'py>(owner: &Bound<'py, StepPlan>, buffer: &[AtomicI32]) -> Bound<'py, PyArray1<i32>> {
    // SAFETY: an AtomicI32 is laid out as an i32; the buffer lives as long as `owner`, which the array keeps alive,
    // and never moves. The core writes it only inside `plan()`, on the thread that reads the views.
    unsafe {
        let view = ArrayView1::from_shape_ptr(buffer.len(), buffer.as_ptr().cast::<i32>());
        PyArray1::borrow_from_array(&view, owner.clone().into_any())
    }
}

fn view_rows<'py>(
    owner: &Bound<'py, StepPlan>,
    buffer: &[AtomicI32],
    columns: usize,
) -> Bound<'py, PyArray2<i32>> {
    let rows = buffer.len() / columns;
    // SAFETY: as in `view_i32`; rows × columns is the buffer's length at most.
    unsafe {
        let view = ArrayView2::from_shape_ptr((rows, columns), buffer.as_ptr().cast::<i32>());
        PyArray2::borrow_from_array(&view, owner.clone().into_any())
    }
}

fn view_i64<'py>(owner: &Bound<'py, StepPlan>, buffer: &[AtomicI64]) -> Bound<'py, PyArray1<i64>> {
    // SAFETY: as in `view_i32`.
    unsafe {
        let view = ArrayView1::from_shape_ptr(buffer.len(), buffer.as_ptr().cast::<i64>());
        PyArray1::borrow_from_array(&view, owner.clone().into_any())
    }
}

#[pymethods]
impl StepPlan {
    #[getter]
    fn num_tokens(&self) -> usize {
        self.buffers.num_tokens.load(Ordering::Acquire)
    }

    #[getter]
    pub fn num_sequences(&self) -> usize {
        self.buffers.num_sequences.load(Ordering::Acquire)
    }

    #[getter]
    fn num_logits_rows(&self) -> usize {
        self.buffers.num_logits_rows.load(Ordering::Acquire)
    }

    /// `[max_num_batched_tokens]`; −1 − r: the token that logits row r of the step before this one will give
    #[getter]
    fn token_ids<'py>(slf: &Bound<'py, Self>) -> Bound<'py, PyArray1<i32>> {
        view_i32(slf, &slf.get().buffers.token_ids)
    }

    /// `[max_num_batched_tokens]`
    #[getter]
    fn positions<'py>(slf: &Bound<'py, Self>) -> Bound<'py, PyArray1<i32>> {
        view_i32(slf, &slf.get().buffers.positions)
    }

    /// `[max_num_batched_tokens]`: block · `block_size` + offset; −1 writes nothing
    #[getter]
    fn slot_mapping<'py>(slf: &Bound<'py, Self>) -> Bound<'py, PyArray1<i64>> {
        view_i64(slf, &slf.get().buffers.slot_mapping)
    }

    /// `[max_num_seqs + 1]`: rows `query_start[s]` .. `query_start[s + 1]` belong to sequence s
    #[getter]
    fn query_start<'py>(slf: &Bound<'py, Self>) -> Bound<'py, PyArray1<i32>> {
        view_i32(slf, &slf.get().buffers.query_start)
    }

    /// `[max_num_seqs]`: tokens in the KV cache after this step
    #[getter]
    fn context_lens<'py>(slf: &Bound<'py, Self>) -> Bound<'py, PyArray1<i32>> {
        view_i32(slf, &slf.get().buffers.context_lens)
    }

    /// `[max_num_seqs, max_blocks_per_sequence]`
    #[getter]
    fn block_tables<'py>(slf: &Bound<'py, Self>) -> Bound<'py, PyArray2<i32>> {
        let buffers = &slf.get().buffers;
        view_rows(slf, &buffers.block_tables, buffers.max_blocks_per_sequence)
    }

    #[getter]
    fn num_block_copies(&self) -> usize {
        self.buffers.num_block_copies.load(Ordering::Acquire)
    }

    /// `[max_num_seqs, 2]`: (from, to), blocks to copy before the step runs; read all before writing any
    #[getter]
    fn block_copies<'py>(slf: &Bound<'py, Self>) -> Bound<'py, PyArray2<i32>> {
        view_rows(slf, &slf.get().buffers.block_copies, 2)
    }

    /// `[max_num_seqs]`: rows whose logits are needed, ascending; one that several sequences choose from is repeated
    #[getter]
    fn logits_rows<'py>(slf: &Bound<'py, Self>) -> Bound<'py, PyArray1<i32>> {
        view_i32(slf, &slf.get().buffers.logits_rows)
    }
}
