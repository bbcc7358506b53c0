//! One answer being grown: its tokens, its blocks, its text.
//!
//! Owns: the state of one sequence, from its first admission to its end, preemptions included.
//! Invariants: `computed_tokens` < known tokens while it lives (something is always left to compute); its blocks
//! hold exactly the computed tokens plus what the current step writes; a preempted sequence keeps everything but
//! its blocks.
//! Must not know: other sequences, the budget.

use std::sync::Arc;

use crate::block_pool::{BlockId, BlockPool, NULL_BLOCK};
use crate::clock::Nanos;
use crate::detokenizer::Detokenizer;
use crate::output::Finish;
use crate::prefix_cache::{BlockHash, BlockHasher, Publication};
use crate::request_table::RequestId;
use crate::sampling::SequenceSampler;

/// Where a sequence is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// It holds no blocks.
    Waiting,
    /// It holds blocks; older tokens than its newest are still to be computed.
    Prefill,
    /// It gains a token in every step.
    Decode,
}

/// See the module.
pub struct Sequence {
    /// Its request.
    pub request: RequestId,
    /// Which of the request's sequences.
    pub index: u32,
    /// Arrival of the request, then index: smaller is older.
    pub order: u64,
    /// Shared with the request's other sequences.
    pub prompt: Arc<[u32]>,
    /// The answer so far.
    pub output: Vec<u32>,
    /// Known tokens whose KV is in the blocks.
    pub computed_tokens: usize,
    /// Its block table.
    pub blocks: Vec<BlockId>,
    /// Changes whenever a block that is already in the table does; unique over all sequences.
    pub table_version: u64,
    /// Chained hashes of its full blocks as far as they are known: never computed twice.
    pub hashes: Vec<BlockHash>,
    /// Its first blocks that are published.
    pub published_blocks: usize,
    /// False once a block could not be published: then no later one can be hit either.
    pub publishable: bool,
    /// Most completion tokens.
    pub max_tokens: usize,
    /// The step that it was last part of.
    pub planned_in_step: u64,
    /// When its last token was there.
    pub last_token: Option<Nanos>,
    /// Text assembly; None without a vocabulary.
    pub detokenizer: Option<Detokenizer>,
    /// How its tokens are chosen, penalty counts included.
    pub sampler: SequenceSampler,
    /// Set when it is to end, until it is taken out.
    pub finish: Option<Finish>,
    /// Whether it was ever admitted: later admissions are resumes.
    pub was_admitted: bool,
    /// Where it is.
    pub phase: Phase,
}

impl Sequence {
    /// Prompt and answer.
    pub fn known_tokens(&self) -> usize {
        self.prompt.len() + self.output.len()
    }

    /// Known, but not in the blocks yet.
    pub fn remaining_tokens(&self) -> usize {
        self.known_tokens() - self.computed_tokens
    }

    /// Tokens `from .. from + count`: the prompt's part and the answer's part.
    pub fn tokens(&self, from: usize, count: usize) -> [&[u32]; 2] {
        let (prompt_len, to) = (self.prompt.len(), from + count);
        let prompt = &self.prompt[from.min(prompt_len)..to.min(prompt_len)];
        let output = &self.output[from.saturating_sub(prompt_len)..to.saturating_sub(prompt_len)];
        [prompt, output]
    }

    /// Blocks missing to hold `tokens` tokens.
    pub fn missing_blocks(&self, tokens: usize, block_size: usize) -> usize {
        tokens.div_ceil(block_size).saturating_sub(self.blocks.len())
    }

    /// Looks up all known tokens but the last; the blocks found are in the table, but not held yet.
    pub fn find_prefix(&mut self, pool: &BlockPool) -> usize {
        debug_assert!(self.blocks.is_empty());
        // At least one token is always computed, or there would be no logits.
        let hittable = (self.known_tokens() - 1) / pool.block_size();
        let hashes = &self.hashes[..hittable.min(self.hashes.len())];
        if self.output.is_empty() {
            pool.find_prefix(hashes, &self.prompt, &mut self.blocks)
        } else {
            pool.find_prefix(hashes, &[&self.prompt[..], &self.output[..]].concat(), &mut self.blocks)
        }
    }

    /// Holds the blocks that `find_prefix` found.
    pub fn hold_prefix(&mut self, pool: &mut BlockPool) {
        for &block in &self.blocks {
            pool.share(block);
        }
        self.published_blocks = self.blocks.len();
        self.publishable = true;
        self.computed_tokens = self.blocks.len() * pool.block_size();
    }

    /// Publishes the blocks that have become full. True if a block of the table was exchanged for an equal one.
    pub fn publish_full_blocks(
        &mut self,
        pool: &mut BlockPool,
        hasher: &BlockHasher,
        scratch: &mut Vec<u32>,
    ) -> bool {
        let block_size = pool.block_size();
        let mut exchanged = false;
        while self.publishable && (self.published_blocks + 1) * block_size <= self.computed_tokens {
            let at = self.published_blocks;
            scratch.clear();
            scratch.extend(self.tokens(at * block_size, block_size).into_iter().flatten());
            if at == self.hashes.len() {
                let parent = if at == 0 { hasher.root() } else { self.hashes[at - 1] };
                self.hashes.push(hasher.block(parent, scratch));
            }
            let parent = if at == 0 { NULL_BLOCK } else { self.blocks[at - 1] };
            let block = self.blocks[at];
            match pool.publish(block, parent, self.hashes[at], scratch) {
                Publication::Published => {}
                Publication::Duplicate(other) => {
                    // Same tokens after the same prefix, so the same KV: one copy is enough, and the chain of
                    // published parents stays whole.
                    pool.share(other);
                    pool.free(block);
                    self.blocks[at] = other;
                    exchanged = true;
                }
                Publication::Refused => {
                    self.publishable = false;
                    break;
                }
            }
            self.published_blocks += 1;
        }
        exchanged
    }

    /// Gives all blocks back; what they held must be computed again.
    pub fn give_back_blocks(&mut self, pool: &mut BlockPool) -> usize {
        pool.free_sequence(&self.blocks);
        let count = self.blocks.len();
        self.blocks.clear();
        self.computed_tokens = 0;
        self.published_blocks = 0;
        count
    }
}
