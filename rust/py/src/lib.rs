//! The `PyO3` module `pagurid._core`: thin bindings, no logic. The only crate that touches the GIL.

use pyo3::prelude::*;

mod block_pool;
mod errors;
mod kernels;
mod outputs;
mod sampling;
mod scheduler;
mod step_plan;
mod text;

#[pymodule]
mod _core {
    #[pymodule_export]
    use crate::block_pool::BlockPool;
    #[pymodule_export]
    use crate::errors::error_table;
    #[pymodule_export]
    use crate::kernels::kernels;
    #[pymodule_export]
    use crate::outputs::{OutputDelta, RequestMetrics, RequestProgress, SchedulerStats, TokenLogprobs};
    #[pymodule_export]
    use crate::sampling::SamplingParams;
    #[pymodule_export]
    use crate::scheduler::{Scheduler, SchedulerConfig};
    #[pymodule_export]
    use crate::step_plan::StepPlan;
    #[pymodule_export]
    use crate::text::Vocabulary;

    #[pymodule_init]
    fn init(module: &pyo3::Bound<'_, pyo3::types::PyModule>) -> pyo3::PyResult<()> {
        use pyo3::types::PyModuleMethods;
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
