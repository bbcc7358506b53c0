//! How the tokens of one request are chosen.
//!
//! Owns: the parameters, their defaults and the limits that need no model. Must not know: the vocabulary (`request`
//! checks ids against it), how sampling works.

use crate::error::{Error, Result};

/// Most answers per request.
pub const MAX_N: u32 = 128;
/// Most stop strings.
pub const MAX_STOP_STRINGS: usize = 64;
/// Longest stop string.
pub const MAX_STOP_BYTES: usize = 1024;
/// Most stop tokens.
pub const MAX_STOP_TOKEN_IDS: usize = 256;
/// Most biased tokens.
pub const MAX_LOGIT_BIAS: usize = 1024;
/// Most alternatives reported per token.
pub const MAX_LOGPROBS: u32 = 20;
/// Penalties that are added lie within ± this.
const MAX_ADDED_PENALTY: f32 = 2.0;

/// Parameters of one request.
#[derive(Clone, Debug, PartialEq)]
pub struct SamplingParams {
    /// Answers per request.
    pub n: u32,
    /// 0 is greedy.
    pub temperature: f32,
    /// 0 and −1 are off.
    pub top_k: i64,
    /// 1 is off.
    pub top_p: f32,
    /// 0 is off.
    pub min_p: f32,
    /// 1 is off.
    pub repetition_penalty: f32,
    /// 0 is off.
    pub presence_penalty: f32,
    /// 0 is off.
    pub frequency_penalty: f32,
    /// Added to the logits.
    pub logit_bias: Vec<(u32, f32)>,
    /// None: drawn at submit.
    pub seed: Option<u64>,
    /// Texts that end the answer.
    pub stop: Vec<String>,
    /// Tokens that end the answer.
    pub stop_token_ids: Vec<u32>,
    /// Whether the text keeps the stop string.
    pub include_stop_str_in_output: bool,
    /// None: what is left.
    pub max_tokens: Option<u32>,
    /// No end before.
    pub min_tokens: u32,
    /// Don't end at end-of-sequence tokens.
    pub ignore_eos: bool,
    /// How many alternatives to report.
    pub logprobs: Option<u32>,
    /// Hide special tokens from the text.
    pub skip_special_tokens: bool,
}

impl Default for SamplingParams {
    fn default() -> Self {
        Self {
            n: 1,
            temperature: 1.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            repetition_penalty: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            logit_bias: Vec::new(),
            seed: None,
            stop: Vec::new(),
            stop_token_ids: Vec::new(),
            include_stop_str_in_output: false,
            max_tokens: None,
            min_tokens: 0,
            ignore_eos: false,
            logprobs: None,
            skip_special_tokens: true,
        }
    }
}

impl SamplingParams {
    /// Every limit that needs no model; the error names the parameter, the limit and what came.
    pub fn check(&self) -> Result<()> {
        let refuse = |param: &'static str, expected: String, got: String| {
            Err(Error::invalid(param, format!("{param}: expected {expected}, got {got}")))
        };
        let number = |param, value: f32, expected: &str, is_good: bool| {
            if value.is_finite() && is_good {
                Ok(())
            } else {
                refuse(param, expected.into(), value.to_string())
            }
        };
        if !(1..=MAX_N).contains(&self.n) {
            return refuse("n", format!("1 to {MAX_N}"), self.n.to_string());
        }
        number("temperature", self.temperature, "a finite number from 0", self.temperature >= 0.0)?;
        if self.top_k < -1 {
            return refuse("top_k", "1 or more, or 0 or -1 for all".into(), self.top_k.to_string());
        }
        number("top_p", self.top_p, "above 0, up to 1", self.top_p > 0.0 && self.top_p <= 1.0)?;
        number("min_p", self.min_p, "0 to 1", (0.0..=1.0).contains(&self.min_p))?;
        let repetition = self.repetition_penalty;
        number("repetition_penalty", repetition, "a finite number above 0", repetition > 0.0)?;
        let added = |value: f32| value.abs() <= MAX_ADDED_PENALTY;
        number("presence_penalty", self.presence_penalty, "-2 to 2", added(self.presence_penalty))?;
        number("frequency_penalty", self.frequency_penalty, "-2 to 2", added(self.frequency_penalty))?;
        if self.logit_bias.len() > MAX_LOGIT_BIAS {
            return refuse(
                "logit_bias",
                format!("at most {MAX_LOGIT_BIAS} tokens"),
                self.logit_bias.len().to_string(),
            );
        }
        if let Some((id, bias)) = self.logit_bias.iter().find(|(_, bias)| !bias.is_finite()) {
            return refuse("logit_bias", "finite numbers".into(), format!("{bias} for token {id}"));
        }
        if self.stop.len() > MAX_STOP_STRINGS {
            return refuse(
                "stop",
                format!("at most {MAX_STOP_STRINGS} strings"),
                self.stop.len().to_string(),
            );
        }
        if self.stop.iter().any(String::is_empty) {
            return refuse("stop", "strings of at least 1 character".into(), "an empty one".into());
        }
        if let Some(text) = self.stop.iter().find(|text| text.len() > MAX_STOP_BYTES) {
            return refuse("stop", format!("at most {MAX_STOP_BYTES} bytes each"), text.len().to_string());
        }
        if self.stop_token_ids.len() > MAX_STOP_TOKEN_IDS {
            return refuse(
                "stop_token_ids",
                format!("at most {MAX_STOP_TOKEN_IDS} ids"),
                self.stop_token_ids.len().to_string(),
            );
        }
        if self.max_tokens == Some(0) {
            return refuse("max_tokens", "1 or more".into(), "0".into());
        }
        if let Some(max_tokens) = self.max_tokens
            && self.min_tokens > max_tokens
        {
            return refuse(
                "min_tokens",
                format!("at most max_tokens ({max_tokens})"),
                self.min_tokens.to_string(),
            );
        }
        if let Some(logprobs) = self.logprobs
            && logprobs > MAX_LOGPROBS
        {
            return refuse("logprobs", format!("0 to {MAX_LOGPROBS}"), logprobs.to_string());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_good_and_each_limit_is_named() {
        let good = SamplingParams::default();
        good.check().unwrap();
        let bad: Vec<(&str, SamplingParams)> = vec![
            ("n", SamplingParams { n: 0, ..good.clone() }),
            ("n", SamplingParams { n: 129, ..good.clone() }),
            ("temperature", SamplingParams { temperature: -0.1, ..good.clone() }),
            ("temperature", SamplingParams { temperature: f32::NAN, ..good.clone() }),
            ("temperature", SamplingParams { temperature: f32::INFINITY, ..good.clone() }),
            ("top_k", SamplingParams { top_k: -2, ..good.clone() }),
            ("top_p", SamplingParams { top_p: 0.0, ..good.clone() }),
            ("top_p", SamplingParams { top_p: 1.1, ..good.clone() }),
            ("min_p", SamplingParams { min_p: -0.1, ..good.clone() }),
            ("repetition_penalty", SamplingParams { repetition_penalty: 0.0, ..good.clone() }),
            ("presence_penalty", SamplingParams { presence_penalty: 2.1, ..good.clone() }),
            ("frequency_penalty", SamplingParams { frequency_penalty: -2.1, ..good.clone() }),
            ("logit_bias", SamplingParams { logit_bias: vec![(1, f32::NAN)], ..good.clone() }),
            ("logit_bias", SamplingParams { logit_bias: vec![(1, 1.0); 1025], ..good.clone() }),
            ("stop", SamplingParams { stop: vec![String::new(), "a".into()], ..good.clone() }),
            ("stop", SamplingParams { stop: vec!["a".repeat(1025)], ..good.clone() }),
            ("stop", SamplingParams { stop: vec!["a".into(); 65], ..good.clone() }),
            ("stop_token_ids", SamplingParams { stop_token_ids: vec![1; 257], ..good.clone() }),
            ("max_tokens", SamplingParams { max_tokens: Some(0), ..good.clone() }),
            ("min_tokens", SamplingParams { max_tokens: Some(1), min_tokens: 2, ..good.clone() }),
            ("logprobs", SamplingParams { logprobs: Some(21), ..good }),
        ];
        for (param, params) in bad {
            assert_eq!(params.check().unwrap_err().param, Some(param));
        }
    }
}
