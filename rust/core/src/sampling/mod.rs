//! Chooses tokens. First cut: greedy only.

use std::sync::Arc;

use crate::output::TokenLogprobs;
use crate::sampling_params::SamplingParams;

/// What one sequence needs for choosing its tokens.
pub struct SequenceSampler;

impl SequenceSampler {
    /// Of sequence `index`, keyed by `seed`. `eos_token_ids` are what `min_tokens` forbids, unless ignored anyway.
    pub fn new(
        _params: Arc<SamplingParams>,
        _eos_token_ids: &Arc<[u32]>,
        _seed: u64,
        _index: u32,
        _prompt: &[u32],
    ) -> Self {
        Self
    }

    /// The token at `position` of the answer; the lowest id wins ties.
    pub fn sample(&self, logits: &[f32], _position: usize) -> (u32, Option<TokenLogprobs>) {
        let mut best = 0;
        for (token, &logit) in logits.iter().enumerate() {
            if logit > logits[best] {
                best = token;
            }
        }
        (best as u32, None)
    }

    /// The answer has gained a token.
    pub fn push(&mut self, _token: u32) {}
}
