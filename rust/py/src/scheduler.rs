//! `_core.Scheduler` and its config.
//!
//! Owns: which half of the core a call goes to. The engine thread's half is checked out for the time of a call and
//! put back after it, so a second thread gets an error instead of a data race, and nobody ever waits.
//! Must not know: policies.

use std::sync::Arc;
use std::time::Duration;

use crossbeam_utils::atomic::AtomicCell;
use numpy::{PyReadonlyArray1, PyReadonlyArray2, PyUntypedArrayMethods};
use pagurid_core::error::{Error, Result};
use pagurid_core::intake::Intake;
use pagurid_core::scheduler::{self, config};
use pyo3::prelude::*;

use crate::errors::to_python;
use crate::outputs::{OutputDelta, RequestProgress, SchedulerStats, into_deltas};
use crate::sampling::SamplingParams;
use crate::step_plan::StepPlan;
use crate::text::Vocabulary;

/// Sizes and limits of a scheduler, checked.
#[pyclass(frozen, module = "pagurid._core")]
pub struct SchedulerConfig(config::SchedulerConfig);

#[pymethods]
impl SchedulerConfig {
    #[new]
    #[pyo3(signature = (*, num_blocks, block_size = 16, max_model_len, max_num_seqs, max_num_batched_tokens, vocab_size,
        eos_token_ids = Vec::new(), max_queued_requests = 1024, enable_prefix_caching = true, prefix_hash_bits = 128,
        kv_bytes_per_block = 0,
        cost_per_hour = None))]
    #[allow(clippy::too_many_arguments)] // keyword arguments, each with a name
    fn new(
        num_blocks: usize,
        block_size: usize,
        max_model_len: usize,
        max_num_seqs: usize,
        max_num_batched_tokens: usize,
        vocab_size: usize,
        eos_token_ids: Vec<u32>,
        max_queued_requests: usize,
        enable_prefix_caching: bool,
        prefix_hash_bits: u32,
        kv_bytes_per_block: u64,
        cost_per_hour: Option<f64>,
    ) -> PyResult<Self> {
        let config = config::SchedulerConfig {
            num_blocks,
            block_size,
            max_model_len,
            max_num_seqs,
            max_num_batched_tokens,
            vocab_size,
            eos_token_ids,
            max_queued_requests,
            enable_prefix_caching,
            prefix_hash_bits,
            kv_bytes_per_block,
            cost_per_hour,
        };
        config.validate().map(Self).map_err(|error| to_python(&error))
    }
    #[getter]
    fn num_blocks(&self) -> usize {
        self.0.num_blocks
    }
    #[getter]
    fn block_size(&self) -> usize {
        self.0.block_size
    }
    #[getter]
    fn max_model_len(&self) -> usize {
        self.0.max_model_len
    }
    #[getter]
    fn max_num_seqs(&self) -> usize {
        self.0.max_num_seqs
    }
    #[getter]
    fn max_num_batched_tokens(&self) -> usize {
        self.0.max_num_batched_tokens
    }
    #[getter]
    fn vocab_size(&self) -> usize {
        self.0.vocab_size
    }
    #[getter]
    fn eos_token_ids(&self) -> Vec<u32> {
        self.0.eos_token_ids.clone()
    }
    #[getter]
    fn max_queued_requests(&self) -> usize {
        self.0.max_queued_requests
    }
    #[getter]
    fn enable_prefix_caching(&self) -> bool {
        self.0.enable_prefix_caching
    }
    #[getter]
    fn prefix_hash_bits(&self) -> u32 {
        self.0.prefix_hash_bits
    }
    #[getter]
    fn kv_bytes_per_block(&self) -> u64 {
        self.0.kv_bytes_per_block
    }
    #[getter]
    fn cost_per_hour(&self) -> Option<f64> {
        self.0.cost_per_hour
    }
    fn __repr__(&self) -> String {
        format!("{:?}", self.0)
    }
}

/// Queue, blocks, plan, sampling, detokenising and outputs of one engine.
///
/// Threads: `submit`, `cancel`, `release`, `progress`, `stats`, `wake`, `close` from any thread; `wait_for_work`, `plan`,
/// `sample`, `commit`, `abort_step`, `check_invariants` from the one engine thread; `take_ready` and
/// `take_output` from one consumer. Every method gives up the GIL while it works.
#[pyclass(frozen, module = "pagurid._core")]
pub struct Scheduler {
    config: Py<SchedulerConfig>,
    intake: Arc<Intake>,
    engine: AtomicCell<Option<Box<scheduler::Scheduler>>>,
    step_plan: Py<StepPlan>,
}

impl Scheduler {
    fn with_engine<T: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&mut scheduler::Scheduler) -> Result<T> + Send,
    ) -> PyResult<T> {
        py.detach(|| {
            let mut engine = self.engine.take().ok_or_else(|| {
                Error::internal(
                    "the engine thread's half of the scheduler is in use by another thread, or has panicked",
                )
            })?;
            let result = call(&mut engine);
            self.engine.store(Some(engine));
            result
        })
        .map_err(|error| to_python(&error))
    }
}

/// Any Python integers; what lies outside u32 is left for `submit` to refuse with its position.
fn token_ids(prompt: &Bound<'_, PyAny>) -> PyResult<Arc<[u32]>> {
    let narrow = |id: i64| u32::try_from(id).unwrap_or(u32::MAX);
    if let Ok(array) = prompt.extract::<PyReadonlyArray1<'_, i32>>() {
        return Ok(array.as_array().iter().map(|&id| narrow(i64::from(id))).collect());
    }
    if let Ok(array) = prompt.extract::<PyReadonlyArray1<'_, i64>>() {
        return Ok(array.as_array().iter().map(|&id| narrow(id)).collect());
    }
    let ids: Vec<i64> = prompt.extract().map_err(|_| {
        let kind = prompt.get_type().name().map_or_else(|_| "?".to_owned(), |name| name.to_string());
        to_python(&Error::invalid(
            "prompt",
            format!("the prompt must be a sequence of token ids, got {kind}"),
        ))
    })?;
    Ok(ids.into_iter().map(narrow).collect())
}

fn seconds(name: &'static str, value: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(value).map_err(|_| {
        to_python(&Error::invalid(name, format!("{name} must be a number of seconds ≥ 0, got {value}")))
    })
}

#[pymethods]
impl Scheduler {
    #[new]
    #[pyo3(signature = (config, vocabulary = None))]
    fn new(
        py: Python<'_>,
        config: Py<SchedulerConfig>,
        vocabulary: Option<PyRef<'_, Vocabulary>>,
    ) -> PyResult<Self> {
        let vocabulary = vocabulary.map(|vocabulary| vocabulary.inner());
        let (engine, intake) = scheduler::Scheduler::new(config.get().0.clone(), vocabulary)
            .map_err(|error| to_python(&error))?;
        let step_plan = Py::new(py, StepPlan::new(engine.step_plan().buffers().clone()))?;
        Ok(Self { config, intake, engine: AtomicCell::new(Some(Box::new(engine))), step_plan })
    }

    #[getter]
    fn config(&self, py: Python<'_>) -> Py<SchedulerConfig> {
        self.config.clone_ref(py)
    }

    #[getter]
    fn step_plan(&self, py: Python<'_>) -> Py<StepPlan> {
        self.step_plan.clone_ref(py)
    }

    /// Validates every limit and queues the request; returns its id. `age_ms`: how long ago it arrived at the door.
    ///
    /// Raises `InvalidRequest`, `ContextLengthExceeded`, `QueueFull`, `Overloaded`.
    #[pyo3(signature = (prompt_token_ids, params, *, age_ms = 0.0))]
    fn submit(
        &self,
        py: Python<'_>,
        prompt_token_ids: &Bound<'_, PyAny>,
        params: &SamplingParams,
        age_ms: f64,
    ) -> PyResult<u64> {
        let age = seconds("age_ms", age_ms / 1e3)?;
        let prompt = token_ids(prompt_token_ids)?;
        let params = params.inner();
        py.detach(|| self.intake.submit(prompt, params, age)).map_err(|error| to_python(&error))
    }

    /// The most completion tokens a sequence of such a request can get (`max_tokens`, or what is left).
    fn max_tokens_for(&self, prompt_tokens: usize, params: &SamplingParams) -> PyResult<usize> {
        self.intake.max_tokens_for(prompt_tokens, &params.inner()).map_err(|error| to_python(&error))
    }

    /// Idempotent; blocks are free before the next step.
    fn cancel(&self, request_id: u64) {
        self.intake.cancel(request_id);
    }

    /// Cancels the request if it is unfinished and drops all that it has given or will give.
    fn release(&self, request_id: u64) {
        self.intake.release(request_id);
    }

    fn progress(&self, request_id: u64) -> Option<RequestProgress> {
        self.intake.progress(request_id).map(RequestProgress)
    }

    fn stats(&self) -> SchedulerStats {
        SchedulerStats(self.intake.stats())
    }

    fn has_unfinished_requests(&self) -> bool {
        self.intake.has_unfinished_requests()
    }

    /// Parks until there is something to plan; False on timeout.
    fn wait_for_work(&self, py: Python<'_>, timeout_s: f64) -> PyResult<bool> {
        let timeout = seconds("timeout_s", timeout_s)?;
        // Work that is under way needs no waiting for; else only news can bring some.
        let has_work = self.with_engine(py, |engine| Ok(engine.has_work()))?;
        Ok(has_work || py.detach(|| self.intake.wait_for_news(timeout)))
    }

    /// Ends a `wait_for_work` early.
    fn wake(&self) {
        self.intake.wake();
    }

    /// True if there is a step to run.
    fn plan(&self, py: Python<'_>) -> PyResult<bool> {
        self.with_engine(py, scheduler::Scheduler::plan)
    }

    /// `[num_logits_rows, vocab_size]` → the plan's sampled tokens
    fn sample(&self, py: Python<'_>, logits: &Bound<'_, PyAny>) -> PyResult<()> {
        let logits: PyReadonlyArray2<'_, f32> = logits.extract()?;
        let shape = (logits.shape()[0], logits.shape()[1]);
        let slice = logits.as_slice().map_err(|_| {
            to_python(&Error::internal("sample() needs logits that are contiguous, row by row"))
        })?;
        self.with_engine(py, |engine| engine.sample(slice, shape))
    }

    /// Ends the step with the tokens of `sample`, or with these (`[num_logits_rows]`).
    #[pyo3(signature = (sampled_token_ids = None))]
    fn commit(&self, py: Python<'_>, sampled_token_ids: Option<PyReadonlyArray1<'_, i32>>) -> PyResult<()> {
        let tokens: Option<Vec<u32>> =
            sampled_token_ids.map(|ids| ids.as_array().iter().map(|&id| id as u32).collect());
        self.with_engine(py, |engine| engine.commit(tokens.as_deref()))
    }

    /// Ends the requests of the current step with `internal`.
    fn abort_step(&self, py: Python<'_>, message: &str) -> PyResult<()> {
        self.with_engine(py, |engine| {
            engine.abort_step(message);
            Ok(())
        })
    }

    /// Refuses further submits (`Overloaded`) and cancels nothing.
    fn close(&self) {
        self.intake.close();
    }

    fn has_ready(&self) -> bool {
        self.intake.has_ready()
    }

    /// Requests with something to take, each once.
    fn take_ready(&self) -> Vec<u64> {
        self.intake.take_ready()
    }

    /// All that is new, one delta per sequence at most.
    fn take_output(&self, py: Python<'_>, request_id: u64) -> PyResult<Vec<OutputDelta>> {
        match self.intake.take_output(request_id) {
            Some(pending) => into_deltas(py, request_id, *pending),
            None => Ok(Vec::new()),
        }
    }

    /// Raises `InternalError` naming the invariant that does not hold.
    #[pyo3(signature = (*, idle = false))]
    fn check_invariants(&self, py: Python<'_>, idle: bool) -> PyResult<()> {
        self.with_engine(py, |engine| engine.check_invariants(idle))
    }
}
