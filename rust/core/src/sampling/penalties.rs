//! What a sequence's own tokens, and the request's wishes, do to its logits.
//!
//! Owns: the counts of the sequence's tokens, kept as it grows, and how they change a row.
//! Invariant: repetition counts prompt and answer from the first step on; presence and frequency the answer only.
//! Must not know: how a token is chosen from the row.

use std::collections::{HashMap, HashSet};

use crate::sampling_params::SamplingParams;

/// Token counts of one sequence; empty if the request has no penalties.
#[derive(Clone, Debug, Default)]
pub struct TokenCounts {
    /// Distinct tokens of the prompt.
    prompt: HashSet<u32>,
    /// Tokens of the answer and how often each came.
    answer: HashMap<u32, u32>,
}

impl TokenCounts {
    /// At the start of an answer.
    pub fn new(params: &SamplingParams, prompt: &[u32]) -> Self {
        let prompt = if is_off(params.repetition_penalty, 1.0) {
            HashSet::new()
        } else {
            prompt.iter().copied().collect()
        };
        Self { prompt, answer: HashMap::new() }
    }

    /// The answer has gained a token.
    pub fn push(&mut self, token: u32) {
        *self.answer.entry(token).or_default() += 1;
    }
}

fn is_off(value: f32, neutral: f32) -> bool {
    value.to_bits() == neutral.to_bits()
}

/// Whether any penalty is on: only then are counts kept.
pub fn has_penalties(params: &SamplingParams) -> bool {
    !(is_off(params.repetition_penalty, 1.0)
        && params.presence_penalty == 0.0
        && params.frequency_penalty == 0.0)
}

/// Whether `adjust` would change anything.
pub fn changes_logits(params: &SamplingParams) -> bool {
    has_penalties(params) || !params.logit_bias.is_empty()
}

/// Bias first, then penalties, as the OpenAI API and vLLM have them.
pub fn adjust(params: &SamplingParams, counts: &TokenCounts, logits: &mut [f32]) {
    for &(token, bias) in &params.logit_bias {
        if let Some(logit) = logits.get_mut(token as usize) {
            *logit += bias;
        }
    }
    if !is_off(params.repetition_penalty, 1.0) {
        let answer_only = counts.answer.keys().filter(|token| !counts.prompt.contains(token));
        for &token in counts.prompt.iter().chain(answer_only) {
            if let Some(logit) = logits.get_mut(token as usize) {
                *logit = if *logit > 0.0 {
                    *logit / params.repetition_penalty
                } else {
                    *logit * params.repetition_penalty
                };
            }
        }
    }
    if params.presence_penalty != 0.0 || params.frequency_penalty != 0.0 {
        for (&token, &count) in &counts.answer {
            if let Some(logit) = logits.get_mut(token as usize) {
                *logit -= params.frequency_penalty * count as f32 + params.presence_penalty;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn adjusted(params: &SamplingParams, prompt: &[u32], answer: &[u32]) -> Vec<f32> {
        let mut counts = TokenCounts::new(params, prompt);
        for &token in answer {
            if has_penalties(params) {
                counts.push(token);
            }
        }
        let mut logits = vec![2.0, -2.0, 1.0, 0.0];
        adjust(params, &counts, &mut logits);
        logits
    }

    /// D10: the prompt counts for repetition from the first step on, and for nothing else.
    #[test]
    fn repetition_counts_the_prompt_presence_and_frequency_do_not() {
        let repetition = SamplingParams { repetition_penalty: 2.0, ..Default::default() };
        assert_eq!(adjusted(&repetition, &[0, 0, 1], &[]), [1.0, -4.0, 1.0, 0.0]);
        assert_eq!(adjusted(&repetition, &[0], &[0, 2]), [1.0, -2.0, 0.5, 0.0]);
        let presence = SamplingParams { presence_penalty: 2.0, frequency_penalty: 0.5, ..Default::default() };
        assert_eq!(adjusted(&presence, &[0, 1], &[]), [2.0, -2.0, 1.0, 0.0]);
        assert_eq!(adjusted(&presence, &[0, 1], &[2, 2, 3]), [2.0, -2.0, -2.0, -2.5]);
    }

    #[test]
    fn bias_is_added() {
        let params = SamplingParams { logit_bias: vec![(3, 5.0), (0, -100.0)], ..Default::default() };
        assert!(changes_logits(&params));
        assert_eq!(adjusted(&params, &[], &[]), [-98.0, -2.0, 1.0, 5.0]);
    }
}
