//! What is fixed while a scheduler lives, and the limits that follow from it.

use crate::block_pool::check_size;
use crate::error::{Error, Result};
use crate::sampling::MAX_ROW;
use crate::scheduler::policy::{PreemptionVictim, SchedulingPolicy};

/// Sizes and limits of one scheduler. Make it with `validate`.
#[derive(Clone, Debug, PartialEq)]
pub struct SchedulerConfig {
    /// KV blocks, block 0 included.
    pub num_blocks: usize,
    /// Tokens per block.
    pub block_size: usize,
    /// Longest prompt + answer, in tokens.
    pub max_model_len: usize,
    /// Most sequences in one step.
    pub max_num_seqs: usize,
    /// Most tokens in one step.
    pub max_num_batched_tokens: usize,
    /// Columns of the logits.
    pub vocab_size: usize,
    /// Tokens that end an answer.
    pub eos_token_ids: Vec<u32>,
    /// Requests that may wait; one more is refused.
    pub max_queued_requests: usize,
    /// Who is served first.
    pub scheduling_policy: SchedulingPolicy,
    /// Under the priority policy: so long a wait makes up for one level.
    pub priority_ageing_ms: f64,
    /// Prompts are computed in chunks small enough that a step with running answers takes about so long.
    pub step_time_target_ms: Option<f64>,
    /// A request that would probably wait longer is refused.
    pub max_queue_wait_ms: Option<f64>,
    /// Who gives blocks back when they run out.
    pub preemption_victim: PreemptionVictim,
    /// Whether a step may be planned while another is open.
    pub overlap_steps: bool,
    /// Whether tenants never share prefixes.
    pub isolate_tenants: bool,
    /// Whether computed prefixes are kept and shared.
    pub enable_prefix_caching: bool,
    /// Width of the prefix cache's hashes; fewer than 128 only to force collisions in tests.
    pub prefix_hash_bits: u32,
    /// Of all layers together; only for the figures.
    pub kv_bytes_per_block: u64,
    /// Price of the machine; gives every answer its cost.
    pub cost_per_hour: Option<f64>,
}

impl SchedulerConfig {
    /// Checks every field.
    pub fn validate(self) -> Result<Self> {
        let at_least = |param: &'static str, value: usize, least: usize| {
            if value < least || value > i32::MAX as usize {
                let range = format!("{least}..={}", i32::MAX);
                return Err(Error::invalid(param, format!("{param} must be in {range}, got {value}")));
            }
            Ok(())
        };
        at_least("max_model_len", self.max_model_len, 2)?;
        at_least("max_num_seqs", self.max_num_seqs, 1)?;
        at_least("max_num_batched_tokens", self.max_num_batched_tokens, 1)?;
        at_least("vocab_size", self.vocab_size, 1)?;
        if self.vocab_size > MAX_ROW {
            let message = format!("vocab_size must be in 1..={MAX_ROW}, got {}", self.vocab_size);
            return Err(Error::invalid("vocab_size", message));
        }
        at_least("max_queued_requests", self.max_queued_requests, 1)?;
        if self.max_num_batched_tokens < self.max_num_seqs {
            return Err(Error::invalid(
                "max_num_batched_tokens",
                format!(
                    "max_num_batched_tokens ({}) must be at least max_num_seqs ({}): every running sequence gets a \
                     token in every step",
                    self.max_num_batched_tokens, self.max_num_seqs
                ),
            ));
        }
        check_size(self.num_blocks, self.block_size)?;
        if let Some(&id) = self.eos_token_ids.iter().find(|&&id| id as usize >= self.vocab_size) {
            return Err(Error::invalid(
                "eos_token_ids",
                format!("eos_token_ids must be below vocab_size ({}), got {id}", self.vocab_size),
            ));
        }
        let positive = |param: &'static str, value: Option<f64>| match value {
            Some(value) if !(value.is_finite() && value > 0.0) => {
                let message = format!("{param} must be a finite number > 0, got {value}");
                Err(Error::invalid(param, message))
            }
            _ => Ok(()),
        };
        positive("priority_ageing_ms", Some(self.priority_ageing_ms))?;
        positive("step_time_target_ms", self.step_time_target_ms)?;
        positive("max_queue_wait_ms", self.max_queue_wait_ms)?;
        if let Some(cost) = self.cost_per_hour.filter(|cost| !(cost.is_finite() && *cost >= 0.0)) {
            let message = format!("cost_per_hour must be a finite number ≥ 0, got {cost}");
            return Err(Error::invalid("cost_per_hour", message));
        }
        Ok(self)
    }

    /// Blocks that can be handed out.
    pub fn num_usable_blocks(&self) -> usize {
        self.num_blocks - 1
    }

    /// Tokens whose KV the whole pool holds.
    pub fn pool_tokens(&self) -> usize {
        self.num_usable_blocks() * self.block_size
    }

    /// Width of the block tables.
    pub fn max_blocks_per_sequence(&self) -> usize {
        self.max_model_len.div_ceil(self.block_size).min(self.num_usable_blocks())
    }

    /// Most completion tokens after a prompt of this length: the context's end, or the pool's. The last token
    /// of an answer is never computed, so it needs no slot.
    pub fn completion_room(&self, prompt_tokens: usize) -> usize {
        let context = self.max_model_len.saturating_sub(prompt_tokens);
        let pool = (self.pool_tokens() + 1).saturating_sub(prompt_tokens);
        context.min(pool)
    }
}
