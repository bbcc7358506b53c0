//! `pagurid._core.kernels.QuantizedWeight`: a layer's weights as their file has them, packed for the kernels.
//!
//! Addresses are as in `kernels`. A weight never changes, so any thread may multiply with it.

use std::cell::RefCell;
use std::sync::Arc;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use pagurid_kernels::quantized::{ActivationType, Activations, GgufType, PackedLinear, PackedMatrix};
use pagurid_kernels::{Cpu, InvalidArgument};

use crate::kernels::{call, slice, slice_mut, to_python};

thread_local! {
    /// Room for activations of either type; kept, so that a step allocates nothing.
    static ACTIVATIONS: RefCell<[Activations; 2]> =
        RefCell::new([Activations::new(ActivationType::Int8), Activations::new(ActivationType::Int16)]);
}

/// Where one matrix's blocks are: GGUF type, address, bytes, outputs, and the file's row for each row if they differ.
type Part = (String, usize, usize, usize, Option<Vec<usize>>);

/// One or more matrices of one width whose outputs lie side by side, and a bias.
#[pyclass(frozen, module = "pagurid._core.kernels")]
pub struct QuantizedWeight {
    linear: Arc<PackedLinear>,
    activations: ActivationType,
    types: Vec<&'static str>,
}

impl QuantizedWeight {
    pub(crate) fn linear(&self) -> Arc<PackedLinear> {
        self.linear.clone()
    }

    pub(crate) fn activation_type(&self) -> ActivationType {
        self.activations
    }
}

#[pymethods]
impl QuantizedWeight {
    #[new]
    #[pyo3(signature = (parts, in_features, activations, bias=None))]
    fn new(
        py: Python<'_>,
        parts: Vec<Part>,
        in_features: usize,
        activations: &str,
        bias: Option<usize>,
    ) -> PyResult<Self> {
        let activations = match activations {
            "int8" => ActivationType::Int8,
            "int16" => ActivationType::Int16,
            _ => {
                return Err(PyValueError::new_err(format!(
                    "activations must be int8 or int16; got {activations:?}"
                )));
            }
        };
        let num_threads = Cpu::selected().map_err(to_python)?.num_threads;
        let pack = || {
            let mut matrices = Vec::with_capacity(parts.len());
            for (name, address, len_bytes, out_features, rows) in &parts {
                let kind = GgufType::named(name).ok_or_else(|| {
                    let names: Vec<_> = GgufType::ALL.iter().map(|kind| kind.name()).collect();
                    InvalidArgument(format!("type must be one of {}; got {name}", names.join(", ")))
                })?;
                if let Some(rows) = rows
                    && (rows.len() != *out_features || rows.iter().any(|row| row >= out_features))
                {
                    return Err(InvalidArgument(format!(
                        "rows must be {out_features} numbers below {out_features}"
                    )));
                }
                // SAFETY: the caller's address, as in `kernels`.
                let blocks = unsafe { slice::<u8>(*address, *len_bytes) };
                let row_of = |row: usize| rows.as_ref().map_or(row, |rows| rows[row]);
                matrices.push(Arc::new(PackedMatrix::from_gguf(
                    num_threads,
                    kind,
                    blocks,
                    *out_features,
                    in_features,
                    &row_of,
                )?));
            }
            let types = matrices.iter().map(|matrix| matrix.kind().name()).collect();
            let out_features = matrices.iter().map(|matrix| matrix.out_features()).sum();
            // SAFETY: the caller's address, as in `kernels`.
            let bias = bias.map(|bias| unsafe { slice::<f32>(bias, out_features) });
            Ok(Self { linear: Arc::new(PackedLinear::new(matrices, bias)?), activations, types })
        };
        py.detach(pack).map_err(to_python)
    }

    /// (outputs, width)
    #[getter]
    fn shape(&self) -> (usize, usize) {
        (self.linear.out_features(), self.linear.in_features())
    }

    /// Memory of the packed weights, in bytes.
    #[getter]
    fn nbytes(&self) -> usize {
        self.linear.len_bytes()
    }

    /// GGUF type of each matrix.
    #[getter]
    fn types(&self) -> Vec<&'static str> {
        self.types.clone()
    }

    /// What activations are rounded to: "int8" or "int16".
    #[getter]
    fn activations(&self) -> &'static str {
        match self.activations {
            ActivationType::Int8 => "int8",
            ActivationType::Int16 => "int16",
        }
    }

    /// out [rows, outputs] = x [rows, width] times the weights transposed, plus the bias
    #[pyo3(signature = (x, out, rows, /))]
    fn multiply(&self, py: Python<'_>, x: usize, out: usize, rows: usize) -> PyResult<()> {
        let cpu = Cpu::selected().map_err(to_python)?;
        // SAFETY: the caller's addresses, as in `kernels`.
        let (x, out) = unsafe {
            (
                slice::<f32>(x, rows * self.linear.in_features()),
                slice_mut::<f32>(out, rows * self.linear.out_features()),
            )
        };
        call(py, self.linear.work(rows), || {
            ACTIVATIONS.with_borrow_mut(|activations| {
                self.linear.multiply(cpu, x, &mut activations[self.activations as usize], out);
            });
            Ok(())
        })
    }

    /// out [rows, width] = rows `indices` [rows] (int32) of the weights in float32
    #[pyo3(signature = (indices, out, rows, /))]
    fn read_rows(&self, py: Python<'_>, indices: usize, out: usize, rows: usize) -> PyResult<()> {
        let width = self.linear.in_features();
        // SAFETY: the caller's addresses, as in `kernels`.
        let (indices, out) = unsafe { (slice::<i32>(indices, rows), slice_mut::<f32>(out, rows * width)) };
        call(py, rows * width, || self.linear.read_rows(indices, out))
    }
}
