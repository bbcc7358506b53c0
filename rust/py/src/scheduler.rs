//! `_core.Scheduler`.
//!
//! Owns: which part of the core a call goes to. The engine thread's part and the consumer's are checked out for the time
//! of a call and put back after it, so a second thread gets an error instead of a data race, and nobody ever waits.
//! Must not know: policies.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use numpy::{PyReadonlyArray1, PyReadonlyArray2, PyUntypedArrayMethods};
use pagurid_core::error::{Error, Result};
use pagurid_core::intake::Intake;
use pagurid_core::outputs::Outputs;
use pagurid_core::request::RequestOptions;
use pagurid_core::scheduler;
use pagurid_kernels::threads;
use pagurid_lockfree::Mailbox;
use pyo3::prelude::*;

use crate::errors::to_python;
use crate::figures::{RequestProgress, SchedulerStats};
use crate::outputs::{OutputDelta, into_deltas};
use crate::sampling::SamplingParams;
use crate::scheduler_config::SchedulerConfig;
use crate::step_plan::StepPlan;
use crate::tape::Tape;
use crate::text::Vocabulary;

/// Queue, blocks, plan, sampling, detokenising and outputs of one engine.
///
/// Threads: `submit`, `cancel`, `release`, `progress`, `stats`, `wake`, `close` from any thread; `wait_for_work`, `plan`,
/// `sample`, `commit`, `abort_step`, `check_invariants` from the one engine thread; `take_ready` and
/// `take_output` from one consumer. What takes long gives up the GIL.
#[pyclass(frozen, module = "pagurid._core")]
pub struct Scheduler {
    config: Py<SchedulerConfig>,
    intake: Arc<Intake>,
    engine: Mailbox<scheduler::Scheduler>,
    outputs: Mailbox<Outputs>,
    /// One, or two if steps overlap.
    step_plans: Vec<Py<StepPlan>>,
    /// Which of them the last `plan` filled.
    newest_plan: AtomicUsize,
}

/// Calls that touch fewer sequences than this take some tens of microseconds: they keep the GIL. Giving it up
/// could cost the interpreter's whole switch interval (5 ms) to get it back from a busy event loop.
const SHORT_CALL_SEQUENCES: usize = 512;

/// Prompts up to this length are hashed in some tens of microseconds.
const SHORT_PROMPT_TOKENS: usize = 16 * 1024;

/// Runs `call` without the GIL if it is worth it.
fn detach_if<T: Send>(py: Python<'_>, is_long: bool, call: impl FnOnce() -> T + Send) -> T {
    if is_long { py.detach(call) } else { call() }
}

impl Scheduler {
    fn newest(&self) -> &Py<StepPlan> {
        // Relaxed: written and read on the engine thread; others get a glance.
        &self.step_plans[self.newest_plan.load(Ordering::Relaxed)]
    }

    fn with_engine<T: Send>(
        &self,
        py: Python<'_>,
        is_long: bool,
        call: impl FnOnce(&mut scheduler::Scheduler) -> Result<T> + Send,
    ) -> PyResult<T> {
        detach_if(py, is_long, || {
            let mut engine = self.engine.take().ok_or_else(|| in_use("engine thread"))?;
            let result = call(&mut engine);
            self.engine.store(engine);
            result
        })
        .map_err(|error| to_python(&error))
    }

    fn with_outputs<T>(&self, call: impl FnOnce(&mut Outputs) -> T) -> PyResult<T> {
        let mut outputs = self.outputs.take().ok_or_else(|| to_python(&in_use("consumer")))?;
        let result = call(&mut outputs);
        self.outputs.store(outputs);
        Ok(result)
    }
}

fn for_each_piece(pieces: usize, work: &(dyn Fn(usize) + Sync)) {
    threads::for_each_piece(threads::num_threads(), pieces, work);
}

fn in_use(owner: &str) -> Error {
    Error::internal(format!(
        "the {owner}'s part of the scheduler is in use by another thread, or has panicked"
    ))
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
        let (engine, intake, outputs) = scheduler::Scheduler::new(config.get().0.clone(), vocabulary)
            .map_err(|error| to_python(&error))?;
        let views = engine.step_plans().map(|plan| Py::new(py, StepPlan::new(plan.buffers().clone())));
        let step_plans = views.collect::<PyResult<Vec<_>>>()?;
        let newest_plan = AtomicUsize::new(step_plans.len() - 1);
        let scheduler = Self {
            config,
            intake,
            engine: Mailbox::default(),
            outputs: Mailbox::default(),
            step_plans,
            newest_plan,
        };
        scheduler.engine.store(Box::new(engine));
        scheduler.outputs.store(Box::new(outputs));
        Ok(scheduler)
    }

    #[getter]
    fn config(&self, py: Python<'_>) -> Py<SchedulerConfig> {
        self.config.clone_ref(py)
    }

    /// What the last `plan()` that returned True has filled.
    #[getter]
    fn step_plan(&self, py: Python<'_>) -> Py<StepPlan> {
        self.newest().clone_ref(py)
    }

    /// Validates every limit and queues the request; returns its id.
    ///
    /// `priority`: smaller is served first, under the priority policy. `tenant`: who pays, under the fair policy.
    /// `cache_salt`: prefixes are shared only with requests of the same salt. `age_ms`: how long ago it arrived at the door.
    /// Raises `InvalidRequest`, `ContextLengthExceeded`, `QueueFull`, `Overloaded`.
    #[pyo3(signature = (prompt_token_ids, params, *, priority = 0, tenant = None, cache_salt = None, age_ms = 0.0))]
    #[allow(clippy::too_many_arguments)] // keyword arguments, each with a name
    fn submit(
        &self,
        py: Python<'_>,
        prompt_token_ids: &Bound<'_, PyAny>,
        params: &SamplingParams,
        priority: i32,
        tenant: Option<&str>,
        cache_salt: Option<&str>,
        age_ms: f64,
    ) -> PyResult<u64> {
        let options = RequestOptions {
            priority,
            tenant: tenant.map(Arc::from),
            cache_salt: cache_salt.map(Arc::from),
            age: seconds("age_ms", age_ms / 1e3)?,
        };
        let prompt = token_ids(prompt_token_ids)?;
        let params = params.inner();
        let is_long = prompt.len() > SHORT_PROMPT_TOKENS;
        detach_if(py, is_long, || self.intake.submit(prompt, params, options))
            .map_err(|error| to_python(&error))
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
        // If the consumer is at work right now, it will find the mark.
        if self.with_outputs(|outputs| outputs.release(request_id)).is_err() {
            self.intake.release(request_id);
        }
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
        let has_work = self.with_engine(py, false, |engine| Ok(engine.has_work()))?;
        Ok(has_work || py.detach(|| self.intake.wait_for_news(timeout)))
    }

    /// Ends a `wait_for_work` early.
    fn wake(&self) {
        self.intake.wake();
    }

    /// True if there is a step to run.
    fn plan(&self, py: Python<'_>) -> PyResult<bool> {
        let is_long = self.intake.num_sequences_at_most() > SHORT_CALL_SEQUENCES;
        self.with_engine(py, is_long, |engine| {
            let is_step = engine.plan()?;
            let newest = engine.step_plan().buffers();
            let at = self.step_plans.iter().position(|plan| plan.get().shows(newest));
            self.newest_plan.store(at.unwrap_or_default(), Ordering::Relaxed);
            Ok(is_step)
        })
    }

    /// `[num_logits_rows, vocab_size]` → the plan's sampled tokens
    fn sample(&self, py: Python<'_>, logits: &Bound<'_, PyAny>) -> PyResult<()> {
        let logits: PyReadonlyArray2<'_, f32> = logits.extract()?;
        let shape = (logits.shape()[0], logits.shape()[1]);
        let slice = logits.as_slice().map_err(|_| {
            to_python(&Error::internal("sample() needs logits that are contiguous, row by row"))
        })?;
        self.with_engine(py, true, |engine| engine.sample(slice, shape, &for_each_piece))
    }

    /// Computes the planned step on a tape and samples its tokens, without the GIL from the first kernel to the last token.
    fn play(&self, py: Python<'_>, tape: &Tape) -> PyResult<()> {
        let plan = self.newest().get();
        self.with_engine(py, true, |engine| {
            let sample = |logits: &[f32], shape| engine.sample(logits, shape, &for_each_piece);
            // SAFETY: planning needs the engine's part of the scheduler, which this thread has. The KV caches are this
            // engine's, and its model steps run on this thread.
            match unsafe { tape.play_inputs(&plan.inputs(), sample) } {
                Ok(sampled) => sampled,
                Err(error) => Err(Error::internal(error.to_string())),
            }
        })
    }

    /// Ends the step with the tokens of `sample` or `play`, or with these (`[num_logits_rows]`).
    #[pyo3(signature = (sampled_token_ids = None))]
    fn commit(&self, py: Python<'_>, sampled_token_ids: Option<PyReadonlyArray1<'_, i32>>) -> PyResult<()> {
        let tokens: Option<Vec<u32>> =
            sampled_token_ids.map(|ids| ids.as_array().iter().map(|&id| id as u32).collect());
        let is_long = self.newest().get().num_sequences() > SHORT_CALL_SEQUENCES;
        self.with_engine(py, is_long, |engine| engine.commit(tokens.as_deref()))
    }

    /// Ends the requests of the current step with `internal`.
    fn abort_step(&self, py: Python<'_>, message: &str) -> PyResult<()> {
        self.with_engine(py, false, |engine| {
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
    fn take_ready(&self) -> PyResult<Vec<u64>> {
        self.with_outputs(Outputs::take_ready)
    }

    /// All that is new, one delta per sequence at most.
    fn take_output(&self, py: Python<'_>, request_id: u64) -> PyResult<Vec<OutputDelta>> {
        match self.with_outputs(|outputs| outputs.take_output(request_id))? {
            Some(pending) => into_deltas(py, request_id, *pending),
            None => Ok(Vec::new()),
        }
    }

    /// Raises `InternalError` naming the invariant that does not hold.
    #[pyo3(signature = (*, idle = false))]
    fn check_invariants(&self, py: Python<'_>, idle: bool) -> PyResult<()> {
        self.with_engine(py, true, |engine| engine.check_invariants(idle))
    }
}
