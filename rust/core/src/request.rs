//! One request as it waits in the queue: checked against every limit, so that nothing later can refuse it.
//!
//! Owns: the limits that need the scheduler's sizes (`SamplingParams` has checked its own already).
//! Must not know: the queue, the engine thread.

use std::sync::Arc;
use std::time::Duration;

use crate::block_hash::{BlockHash, CacheScope};
use crate::clock::Nanos;
use crate::error::{Error, ErrorCode, Result};
use crate::request_table::RequestId;
use crate::sampling_params::SamplingParams;
use crate::scheduler::config::SchedulerConfig;

/// Longest name of a tenant, and longest cache salt.
const MAX_NAME_BYTES: usize = 256;

/// What a request's sender says of it, beside how its tokens are chosen.
#[derive(Clone, Debug, Default)]
pub struct RequestOptions {
    /// Smaller is more important; only the priority policy looks at it.
    pub priority: i32,
    /// Who pays under the fair policy: the name behind an API key, or the request's `user`.
    pub tenant: Option<Arc<str>>,
    /// Only requests with the same salt share prefixes.
    pub cache_salt: Option<Arc<str>>,
    /// How long ago it came to the door.
    pub age: Duration,
}

impl RequestOptions {
    fn check(&self) -> Result<()> {
        for (param, value) in [("user", &self.tenant), ("cache_salt", &self.cache_salt)] {
            if let Some(len) = value.as_ref().map(|value| value.len()).filter(|&len| len > MAX_NAME_BYTES) {
                let message = format!("{param}: expected at most {MAX_NAME_BYTES} bytes, got {len}");
                return Err(Error::invalid(param, message));
            }
        }
        Ok(())
    }

    /// Who may share its prefixes.
    pub fn scope(&self, config: &SchedulerConfig) -> CacheScope {
        let tenant = self.tenant.clone().filter(|_| config.isolate_tenants);
        CacheScope { tenant, salt: self.cache_salt.clone() }
    }
}

/// A validated request on its way to the scheduler.
pub struct Request {
    /// Its name in the request table.
    pub id: RequestId,
    /// At least one token, all within the vocabulary.
    pub prompt_token_ids: Arc<[u32]>,
    /// Chained hashes of the prompt's full blocks; empty without prefix caching.
    pub prompt_hashes: Vec<BlockHash>,
    /// How its tokens are chosen.
    pub params: Arc<SamplingParams>,
    /// What its sender says of it.
    pub options: RequestOptions,
    /// Who may share its prefixes.
    pub scope: CacheScope,
    /// The request's own, or one drawn at the door.
    pub seed: u64,
    /// Most completion tokens of each sequence.
    pub max_tokens: usize,
    /// When it came to the door.
    pub arrival: Nanos,
}

/// The most completion tokens of each sequence of such a request, or why it can never run.
pub fn max_completion_tokens(
    config: &SchedulerConfig,
    prompt_tokens: usize,
    params: &SamplingParams,
) -> Result<usize> {
    let refuse =
        |message: String| Err(Error::new(ErrorCode::ContextLengthExceeded, message).with_param("prompt"));
    if prompt_tokens == 0 {
        return Err(Error::invalid("prompt", "the prompt must have at least 1 token, got 0"));
    }
    if prompt_tokens >= config.max_model_len {
        return refuse(format!(
            "the prompt has {prompt_tokens} tokens: no room for an answer in a context of {} tokens",
            config.max_model_len
        ));
    }
    if prompt_tokens > config.pool_tokens() {
        return refuse(format!(
            "the prompt has {prompt_tokens} tokens: the KV cache holds {} tokens ({} blocks of {})",
            config.pool_tokens(),
            config.num_usable_blocks(),
            config.block_size
        ));
    }
    match params.max_tokens.map(|tokens| tokens as usize) {
        None => Ok(config.completion_room(prompt_tokens)),
        Some(max_tokens) if prompt_tokens + max_tokens > config.max_model_len => refuse(format!(
            "{prompt_tokens} prompt tokens + max_tokens {max_tokens} = {} exceed the context of {} tokens",
            prompt_tokens + max_tokens,
            config.max_model_len
        )),
        Some(max_tokens) => Ok(max_tokens),
    }
}

/// Checks the prompt's tokens and what in the parameters depends on the model.
pub fn check(
    config: &SchedulerConfig,
    has_vocabulary: bool,
    prompt: &[u32],
    params: &SamplingParams,
    options: &RequestOptions,
) -> Result<usize> {
    options.check()?;
    let max_tokens = max_completion_tokens(config, prompt.len(), params)?;
    let vocab_size = config.vocab_size;
    if let Some((at, &id)) = prompt.iter().enumerate().find(|&(_, &id)| id as usize >= vocab_size) {
        let message = format!("token ids must be in 0..{vocab_size}, got {} at position {at}", id as i32);
        return Err(Error::invalid("prompt", message));
    }
    if let Some(&(id, _)) = params.logit_bias.iter().find(|&&(id, _)| id as usize >= vocab_size) {
        let message = format!("logit_bias token ids must be in 0..{vocab_size}, got {id}");
        return Err(Error::invalid("logit_bias", message));
    }
    if let Some(&id) = params.stop_token_ids.iter().find(|&&id| id as usize >= vocab_size) {
        let message = format!("stop_token_ids must be in 0..{vocab_size}, got {id}");
        return Err(Error::invalid("stop_token_ids", message));
    }
    if !params.stop.is_empty() && !has_vocabulary {
        return Err(Error::invalid(
            "stop",
            "stop strings need a scheduler with a vocabulary; use stop_token_ids",
        ));
    }
    Ok(max_tokens)
}
