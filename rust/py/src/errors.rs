//! Raises `pagurid.errors` classes for the core's errors, by wire code.
//!
//! Owns: the way from `pagurid_core::error::Error` to a Python exception. Must not know: what went wrong.

use pagurid_core::error::{Error, ErrorCode};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyType};

static CLASSES: PyOnceLock<Py<PyDict>> = PyOnceLock::new();

fn class(py: Python<'_>, code: ErrorCode) -> PyResult<Bound<'_, PyType>> {
    let classes = CLASSES.get_or_try_init(py, || -> PyResult<Py<PyDict>> {
        Ok(py.import("pagurid.errors")?.getattr("ERRORS")?.cast_into::<PyDict>()?.unbind())
    })?;
    let class = classes.bind(py).get_item(code.wire())?;
    let class = class.ok_or_else(|| {
        PyRuntimeError::new_err(format!("pagurid.errors.ERRORS has no class for {:?}", code.wire()))
    })?;
    Ok(class.cast_into::<PyType>()?)
}

/// The Python exception for `error`.
pub fn to_python(error: &Error) -> PyErr {
    Python::attach(|py| {
        let build = || -> PyResult<PyErr> {
            let kwargs = PyDict::new(py);
            kwargs.set_item("param", error.param)?;
            kwargs.set_item("retry_after_ms", error.retry_after_ms)?;
            let exception = class(py, error.code)?.call((error.message.as_str(),), Some(&kwargs))?;
            Ok(PyErr::from_value(exception))
        };
        build().unwrap_or_else(|failed| failed)
    })
}

/// (wire code, HTTP status) of every error the core knows, in the order of `pagurid.errors.ERRORS`.
#[pyfunction]
pub fn error_table() -> Vec<(&'static str, u16)> {
    ErrorCode::ALL.iter().map(|code| (code.wire(), code.http_status())).collect()
}
