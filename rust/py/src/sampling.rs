//! `_core.SamplingParams` and `_core.sample`.

use std::collections::BTreeMap;
use std::sync::Arc;

use numpy::PyReadonlyArray1;
use pagurid_core::error::Error;
use pagurid_core::sampling::{MAX_ROW, SequenceSampler};
use pagurid_core::sampling_params;
use pyo3::prelude::*;

use crate::errors::to_python;

/// How the tokens of one request are chosen.
#[pyclass(frozen, eq, module = "pagurid._core")]
#[derive(PartialEq)]
pub struct SamplingParams(Arc<sampling_params::SamplingParams>);

impl SamplingParams {
    pub fn inner(&self) -> Arc<sampling_params::SamplingParams> {
        self.0.clone()
    }
}

#[derive(FromPyObject)]
enum Stop {
    One(String),
    Many(Vec<String>),
}

/// A whole number that must fit the core's type; the error names the parameter.
fn whole<T: TryFrom<i64>>(param: &'static str, value: i64) -> PyResult<T> {
    T::try_from(value).map_err(|_| {
        let expected = if value < 0 { "0 or more" } else { "a smaller number" };
        to_python(&Error::invalid(param, format!("{param}: expected {expected}, got {value}")))
    })
}

fn maybe_whole<T: TryFrom<i64>>(param: &'static str, value: Option<i64>) -> PyResult<Option<T>> {
    value.map(|value| whole(param, value)).transpose()
}

/// Any 64-bit number, signed or not.
fn seed_bits(seed: i128) -> PyResult<u64> {
    let fits = i128::from(i64::MIN) <= seed && seed <= i128::from(u64::MAX);
    if fits {
        return Ok(seed as u64);
    }
    Err(to_python(&Error::invalid("seed", format!("seed: expected a 64-bit number, got {seed}"))))
}

#[pymethods]
impl SamplingParams {
    #[new]
    #[pyo3(signature = (*, n = 1, temperature = 1.0, top_k = 0, top_p = 1.0, min_p = 0.0,
        repetition_penalty = 1.0, presence_penalty = 0.0, frequency_penalty = 0.0, logit_bias = None, seed = None,
        stop = None, stop_token_ids = None, include_stop_str_in_output = false, max_tokens = None, min_tokens = 0,
        ignore_eos = false, logprobs = None, skip_special_tokens = true))]
    #[allow(clippy::too_many_arguments)] // they are what the class is
    #[allow(clippy::fn_params_excessive_bools)] // keyword-only
    fn new(
        n: i64,
        temperature: f32,
        top_k: i64,
        top_p: f32,
        min_p: f32,
        repetition_penalty: f32,
        presence_penalty: f32,
        frequency_penalty: f32,
        logit_bias: Option<BTreeMap<i64, f32>>,
        seed: Option<i128>,
        stop: Option<Stop>,
        stop_token_ids: Option<Vec<i64>>,
        include_stop_str_in_output: bool,
        max_tokens: Option<i64>,
        min_tokens: i64,
        ignore_eos: bool,
        logprobs: Option<i64>,
        skip_special_tokens: bool,
    ) -> PyResult<Self> {
        let stop = match stop {
            None => Vec::new(),
            Some(Stop::One(text)) => vec![text],
            Some(Stop::Many(texts)) => texts,
        };
        let logit_bias = logit_bias.unwrap_or_default();
        let logit_bias = logit_bias.into_iter().map(|(id, bias)| Ok((whole("logit_bias", id)?, bias)));
        let stop_token_ids = stop_token_ids.unwrap_or_default();
        let stop_token_ids = stop_token_ids.into_iter().map(|id| whole("stop_token_ids", id));
        let params = sampling_params::SamplingParams {
            n: whole("n", n)?,
            temperature,
            top_k,
            top_p,
            min_p,
            repetition_penalty,
            presence_penalty,
            frequency_penalty,
            logit_bias: logit_bias.collect::<PyResult<_>>()?,
            seed: seed.map(seed_bits).transpose()?,
            stop,
            stop_token_ids: stop_token_ids.collect::<PyResult<_>>()?,
            include_stop_str_in_output,
            max_tokens: maybe_whole("max_tokens", max_tokens)?,
            min_tokens: whole("min_tokens", min_tokens)?,
            ignore_eos,
            logprobs: maybe_whole("logprobs", logprobs)?,
            skip_special_tokens,
        };
        params.check().map_err(|error| to_python(&error))?;
        Ok(Self(Arc::new(params)))
    }

    fn __repr__(&self) -> String {
        format!("{:?}", self.0)
    }

    #[getter]
    fn n(&self) -> u32 {
        self.0.n
    }
    #[getter]
    fn temperature(&self) -> f32 {
        self.0.temperature
    }
    #[getter]
    fn top_k(&self) -> i64 {
        self.0.top_k
    }
    #[getter]
    fn top_p(&self) -> f32 {
        self.0.top_p
    }
    #[getter]
    fn min_p(&self) -> f32 {
        self.0.min_p
    }
    #[getter]
    fn repetition_penalty(&self) -> f32 {
        self.0.repetition_penalty
    }
    #[getter]
    fn presence_penalty(&self) -> f32 {
        self.0.presence_penalty
    }
    #[getter]
    fn frequency_penalty(&self) -> f32 {
        self.0.frequency_penalty
    }
    #[getter]
    fn logit_bias(&self) -> BTreeMap<u32, f32> {
        self.0.logit_bias.iter().copied().collect()
    }
    #[getter]
    fn seed(&self) -> Option<u64> {
        self.0.seed
    }
    #[getter]
    fn stop(&self) -> Vec<String> {
        self.0.stop.clone()
    }
    #[getter]
    fn stop_token_ids(&self) -> Vec<u32> {
        self.0.stop_token_ids.clone()
    }
    #[getter]
    fn include_stop_str_in_output(&self) -> bool {
        self.0.include_stop_str_in_output
    }
    #[getter]
    fn max_tokens(&self) -> Option<u32> {
        self.0.max_tokens
    }
    #[getter]
    fn min_tokens(&self) -> u32 {
        self.0.min_tokens
    }
    #[getter]
    fn ignore_eos(&self) -> bool {
        self.0.ignore_eos
    }
    #[getter]
    fn logprobs(&self) -> Option<u32> {
        self.0.logprobs
    }
    #[getter]
    fn skip_special_tokens(&self) -> bool {
        self.0.skip_special_tokens
    }
}

/// One token from one row of logits; a pure function of its arguments.
#[pyfunction]
#[pyo3(signature = (logits, params, *, seed, position, sequence_index = 0, prompt_token_ids = Vec::new(),
    output_token_ids = Vec::new()))]
pub fn sample(
    logits: PyReadonlyArray1<'_, f32>,
    params: &SamplingParams,
    seed: u64,
    position: usize,
    sequence_index: u32,
    prompt_token_ids: Vec<u32>,
    output_token_ids: Vec<u32>,
) -> PyResult<u32> {
    let no_eos: Arc<[u32]> = Arc::new([]);
    let mut sampler = SequenceSampler::new(params.inner(), &no_eos, seed, sequence_index, &prompt_token_ids);
    for token in output_token_ids {
        sampler.push(token);
    }
    let logits = logits.as_slice().map_err(|_| {
        to_python(&Error::invalid("logits", "logits: expected a contiguous array, got one with gaps"))
    })?;
    if logits.len() > MAX_ROW {
        return Err(to_python(&Error::invalid(
            "logits",
            format!("logits: expected at most {MAX_ROW} numbers, got {}", logits.len()),
        )));
    }
    sampler.sample(logits, position).token.ok_or_else(|| {
        to_python(&Error::invalid("logits", "logits: expected at least one number above -inf, got none"))
    })
}
