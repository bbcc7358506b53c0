//! `_core.SamplingParams`. First cut: unchecked.

use std::collections::HashMap;
use std::sync::Arc;

use pagurid_core::sampling_params;
use pyo3::prelude::*;

/// How the tokens of one request are chosen.
#[pyclass(frozen, module = "pagurid._core")]
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

#[pymethods]
impl SamplingParams {
    #[new]
    #[pyo3(signature = (*, n = 1, temperature = 1.0, top_k = 0, top_p = 1.0, min_p = 0.0, repetition_penalty = 1.0,
        presence_penalty = 0.0, frequency_penalty = 0.0, logit_bias = None, seed = None, stop = None,
        stop_token_ids = None, include_stop_str_in_output = false, max_tokens = None, min_tokens = 0,
        ignore_eos = false, logprobs = None, skip_special_tokens = true))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        n: u32,
        temperature: f32,
        top_k: i64,
        top_p: f32,
        min_p: f32,
        repetition_penalty: f32,
        presence_penalty: f32,
        frequency_penalty: f32,
        logit_bias: Option<HashMap<u32, f32>>,
        seed: Option<u64>,
        stop: Option<Stop>,
        stop_token_ids: Option<Vec<u32>>,
        include_stop_str_in_output: bool,
        max_tokens: Option<u32>,
        min_tokens: u32,
        ignore_eos: bool,
        logprobs: Option<u32>,
        skip_special_tokens: bool,
    ) -> Self {
        let stop = match stop {
            None => Vec::new(),
            Some(Stop::One(text)) => vec![text],
            Some(Stop::Many(texts)) => texts,
        };
        Self(Arc::new(sampling_params::SamplingParams {
            n,
            temperature,
            top_k,
            top_p,
            min_p,
            repetition_penalty,
            presence_penalty,
            frequency_penalty,
            logit_bias: logit_bias.unwrap_or_default().into_iter().collect(),
            seed,
            stop,
            stop_token_ids: stop_token_ids.unwrap_or_default(),
            include_stop_str_in_output,
            max_tokens,
            min_tokens,
            ignore_eos,
            logprobs,
            skip_special_tokens,
        }))
    }
}
