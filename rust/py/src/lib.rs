//! The `PyO3` module `pagurid._core`: thin bindings, no logic. The only crate that touches the GIL.

#![allow(clippy::needless_pass_by_value)] // PyO3 hands its arguments over by value

use pyo3::prelude::pymodule;

mod block_pool;
mod errors;
mod figures;
mod kernels;
mod outputs;
mod quantized;
mod sampling;
mod scheduler;
mod scheduler_config;
mod step_plan;
mod tape;
mod text;

#[pymodule]
mod _core {
    use pagurid_core::output::FinishReason;
    use pagurid_core::progress::RequestState;
    use pagurid_core::scheduler::policy::SchedulingPolicy;
    use pyo3::prelude::*;
    use pyo3::types::PyTuple;

    #[pymodule_export]
    use crate::block_pool::BlockPool;
    #[pymodule_export]
    use crate::errors::error_table;
    #[pymodule_export]
    use crate::figures::{RequestMetrics, RequestProgress, SchedulerStats};
    #[pymodule_export]
    use crate::kernels::kernels;
    #[pymodule_export]
    use crate::outputs::{OutputDelta, TokenLogprobs};
    #[pymodule_export]
    use crate::sampling::{SamplingParams, sample};
    #[pymodule_export]
    use crate::scheduler::Scheduler;
    #[pymodule_export]
    use crate::scheduler_config::SchedulerConfig;
    #[pymodule_export]
    use crate::step_plan::StepPlan;
    #[pymodule_export]
    use crate::text::{Detokenizer, Vocabulary};

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))?;
        add_literals(module, "FinishReason", &FinishReason::ALL.map(FinishReason::wire))?;
        add_literals(module, "RequestState", &RequestState::ALL.map(RequestState::wire))?;
        add_literals(module, "SchedulingPolicy", &SchedulingPolicy::ALL.map(SchedulingPolicy::name))?;
        // The stub says what is public.
        module.delattr("__all__")
    }

    /// A type alias for these words, so that the stub's name exists when the program runs, too.
    fn add_literals(module: &Bound<'_, PyModule>, name: &str, words: &[&str]) -> PyResult<()> {
        let typing = module.py().import("typing")?;
        let literal = typing.getattr("Literal")?;
        let literals = words.iter().map(|word| literal.get_item(word)).collect::<PyResult<Vec<_>>>()?;
        module.add(name, typing.getattr("Union")?.get_item(PyTuple::new(module.py(), literals)?)?)
    }
}
