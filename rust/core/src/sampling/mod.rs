//! Chooses tokens: a pure function of logits, parameters, the sequence's tokens, seed and position.
//!
//! Owns: the order of the parts (bias and penalties, `min_tokens`, then greedy or the law of `filters`), so that the
//! batch around a sequence never changes its tokens. Must not know: the scheduler, other sequences.

mod candidates;
mod exp;
pub mod filters;
pub mod isa;
pub mod logprobs;
pub mod penalties;
pub mod philox;
pub mod row;
mod weights;

use std::cell::RefCell;
use std::sync::Arc;

use crate::output::TokenLogprobs;
use crate::sampling_params::SamplingParams;
use isa::Isa;
use penalties::TokenCounts;
pub use weights::MAX_ROW;

/// Colder than this is greedy: the next best token would need a logit within 1e-4 to be seen at all.
const GREEDY_BELOW: f32 = 1e-5;

/// A row's outcome.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampled {
    /// None if the model gave no logit that is a number.
    pub token: Option<u32>,
    /// If the request asked for them.
    pub logprobs: Option<TokenLogprobs>,
}

/// What one sequence needs for choosing its tokens.
#[derive(Clone, Debug)]
pub struct SequenceSampler {
    params: Arc<SamplingParams>,
    eos_token_ids: Arc<[u32]>,
    seed: u64,
    index: u32,
    counts: TokenCounts,
}

thread_local! {
    /// One set per thread, so that no token costs an allocation.
    static BUFFERS: RefCell<Buffers> = RefCell::default();
}

#[derive(Default)]
struct Buffers {
    adjusted: Vec<f32>,
    draw: filters::Scratch,
    logprobs: logprobs::Scratch,
}

impl SequenceSampler {
    /// Of sequence `index`, keyed by `seed`. `eos_token_ids` are what `min_tokens` forbids, beside stop tokens.
    pub fn new(
        params: Arc<SamplingParams>,
        eos_token_ids: &Arc<[u32]>,
        seed: u64,
        index: u32,
        prompt: &[u32],
    ) -> Self {
        let counts = TokenCounts::new(&params, prompt);
        Self { params, eos_token_ids: eos_token_ids.clone(), seed, index, counts }
    }

    /// The token at `position` of the answer, from its row of logits.
    pub fn sample(&self, logits: &[f32], position: usize) -> Sampled {
        BUFFERS.with_borrow_mut(|buffers| {
            let token = self.choose(logits, position, buffers);
            let logprobs = token.zip(self.params.logprobs).map(|(token, top)| {
                logprobs::logprobs_of(Isa::selected(), logits, token, top as usize, &mut buffers.logprobs)
            });
            Sampled { token, logprobs }
        })
    }

    fn choose(&self, logits: &[f32], position: usize, buffers: &mut Buffers) -> Option<u32> {
        let params = &*self.params;
        let Buffers { adjusted, draw, .. } = buffers;
        let may_not_end = position < params.min_tokens as usize;
        if !penalties::changes_logits(params) && !may_not_end {
            return self.choose_adjusted(logits, position, draw);
        }
        adjusted.clear();
        adjusted.extend_from_slice(logits);
        penalties::adjust(params, &self.counts, adjusted);
        if may_not_end {
            let eos: &[u32] = if params.ignore_eos { &[] } else { &self.eos_token_ids };
            for &id in eos.iter().chain(&params.stop_token_ids) {
                if let Some(logit) = adjusted.get_mut(id as usize) {
                    *logit = f32::NEG_INFINITY;
                }
            }
        }
        self.choose_adjusted(adjusted, position, draw)
    }

    fn choose_adjusted(
        &self,
        logits: &[f32],
        position: usize,
        scratch: &mut filters::Scratch,
    ) -> Option<u32> {
        let isa = Isa::selected();
        if self.params.temperature < GREEDY_BELOW {
            return row::argmax(isa, logits);
        }
        let uniform = philox::uniform(self.seed, self.index, position as u64);
        filters::draw(isa, &self.params, logits, uniform, scratch)
    }

    /// What it chooses by.
    pub fn params(&self) -> &SamplingParams {
        &self.params
    }

    /// Whether `push` must be called for every token: only penalties need the counts.
    pub fn counts_tokens(&self) -> bool {
        penalties::has_penalties(&self.params)
    }

    /// The answer has gained a token.
    pub fn push(&mut self, token: u32) {
        self.counts.push(token);
    }
}
