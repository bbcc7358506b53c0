//! `pagurid._core.kernels`: raw entry points of the CPU kernels, called by `pagurid.ops` only.

use pyo3::prelude::*;

/// Raw entry points of the CPU kernels.
#[pymodule]
pub mod kernels {}
