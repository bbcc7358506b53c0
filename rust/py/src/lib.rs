//! The PyO3 module `pagurid._core`: thin bindings, no logic. The only crate that touches the GIL.

use pyo3::prelude::*;

mod errors;
mod kernels;

#[pymodule]
mod _core {
    #[pymodule_export]
    use crate::errors::error_table;
    #[pymodule_export]
    use crate::kernels::kernels;

    #[pymodule_init]
    fn init(module: &pyo3::Bound<'_, pyo3::types::PyModule>) -> pyo3::PyResult<()> {
        use pyo3::types::PyModuleMethods;
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
