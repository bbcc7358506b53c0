//! One answer being grown: its tokens, its blocks, its text.
//!
//! Owns: the state of one sequence, from its first admission to its end, preemptions included.
//! Invariants: something is always left to compute while it lives; its blocks hold exactly the planned tokens; a
//! preempted sequence keeps everything but its blocks; `computed` ≤ `planned` tokens, equal when no step is open.
//! Must not know: other sequences, the budget.

use std::sync::Arc;

use crate::block_hash::{BlockHash, BlockHasher, CacheScope};
use crate::block_pool::{BlockId, BlockPool, NULL_BLOCK};
use crate::detokenizer::Detokenizer;
use crate::output::Finish;
use crate::prefix_cache::Publication;
use crate::request_table::RequestId;
use crate::sampling::SequenceSampler;
use crate::scheduler::policy::ServiceOrder;
use crate::token_list::TokenList;
use crate::token_times::TokenTimes;

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

/// What ends an answer, gathered so that most tokens need no look at the parameters.
#[derive(Clone, Copy, Debug)]
pub struct EndRules {
    /// Most completion tokens.
    pub max_tokens: u32,
    /// No end by a token before.
    pub min_tokens: u32,
    /// Whether the request had set `max_tokens`.
    pub has_limit: bool,
    /// Whether end-of-sequence tokens end it.
    pub at_eos: bool,
    /// Whether the parameters name stop tokens.
    pub at_stop_tokens: bool,
}

/// See the module. The fields that every step touches come first, so that they share cache lines (`HOT_BYTES`).
#[repr(C, align(64))]
pub struct Sequence {
    /// Known tokens whose KV is in the blocks.
    pub computed_tokens: usize,
    /// The same, once the open steps are done.
    pub planned_tokens: usize,
    /// Tokens that open steps will still give it.
    pub pending_tokens: u32,
    /// If any: the logits row of the newest open step that gives the last of them.
    pub pending_row: u32,
    /// Changes when it is preempted; unique over all sequences. Results for another incarnation are late.
    pub incarnation: u64,
    /// Changes whenever a block that is already in the table does; unique over all sequences.
    pub table_version: u64,
    /// Its block table.
    pub blocks: Vec<BlockId>,

    /// The answer so far.
    pub output: TokenList,
    /// Its newest known token.
    pub last_token: u32,
    /// Which of the request's sequences.
    pub index: u32,
    /// Where it is.
    pub phase: Phase,
    /// Whether its last block may have other owners that write to it, too.
    pub is_forked: bool,
    /// Whether its sampler wants to know its tokens.
    pub counts_tokens: bool,
    /// Its request.
    pub request: RequestId,
    /// Shared with the request's other sequences.
    pub prompt: Arc<[u32]>,

    /// Its last block, as of so many blocks and that version of the table: a look at the table would be far.
    pub tail: (BlockId, u32, u64),
    /// The step that it was last part of.
    pub planned_in_step: u64,
    /// What ends it.
    pub ends: EndRules,
    /// Set when it is to end, until it is taken out.
    pub finish: Option<Box<Finish>>,
    /// When its tokens came.
    pub times: TokenTimes,

    /// Text assembly; None without a vocabulary.
    pub detokenizer: Option<Box<Detokenizer>>,
    /// How its tokens are chosen, penalty counts included.
    pub sampler: SequenceSampler,
    /// Who pays under the fair policy.
    pub tenant: u32,
    /// Smaller is served first.
    pub order: ServiceOrder,
    /// Smaller is more important.
    pub priority: i32,
    /// How often it lost its blocks.
    pub preemptions: u32,
    /// How often others were admitted while it stood first and could not be.
    pub passed_by: u32,
    /// Chained hashes of its full blocks as far as they are known: never computed twice.
    pub hashes: Vec<BlockHash>,
    /// Who may share its prefix.
    pub scope: CacheScope,
    /// Its first blocks that are published.
    pub published_blocks: usize,
    /// False once a block could not be published: then no later one can be hit either.
    pub publishable: bool,
    /// Whether it was ever admitted: later admissions are resumes.
    pub was_admitted: bool,
}

impl Sequence {
    /// The first so many are what every step touches: all before the sampler.
    pub const HOT_BYTES: usize = std::mem::offset_of!(Self, sampler);

    /// Prompt and answer.
    pub fn known_tokens(&self) -> usize {
        self.prompt.len() + self.output.len()
    }

    /// The block that its next token goes into.
    #[inline]
    pub fn tail_block(&mut self) -> BlockId {
        let (_, blocks, version) = self.tail;
        if blocks as usize != self.blocks.len() || version != self.table_version {
            let block = self.blocks[self.blocks.len() - 1];
            self.tail = (block, self.blocks.len() as u32, self.table_version);
        }
        self.tail.0
    }

    /// Known or pending, but in no block and no open step yet.
    pub fn remaining_tokens(&self) -> usize {
        self.known_tokens() + self.pending_tokens as usize - self.planned_tokens
    }

    /// Whether its next part in a step is one token, after which it gains one.
    pub fn lacks_one_token(&self) -> bool {
        self.remaining_tokens() == 1 && !self.awaits_its_end()
    }

    /// Whether its next part in a step is a chunk of what it knows.
    pub fn is_prefilling(&self) -> bool {
        self.phase == Phase::Prefill && self.pending_tokens == 0 && self.finish.is_none()
    }

    /// Whether the open steps may bring it to its end by length: nothing more is planned for it then.
    fn awaits_its_end(&self) -> bool {
        self.pending_tokens > 0
            && self.output.len() + self.pending_tokens as usize >= self.ends.max_tokens as usize
    }

    /// Tokens `from .. from + count`, in pieces: the prompt's part and the answer's.
    pub fn tokens(&self, from: usize, count: usize) -> [&[u32]; 3] {
        let (prompt_len, to) = (self.prompt.len(), from + count);
        let prompt = &self.prompt[from.min(prompt_len)..to.min(prompt_len)];
        let [older, recent] =
            self.output.range(from.saturating_sub(prompt_len), to.saturating_sub(prompt_len));
        [prompt, older, recent]
    }

    /// Blocks missing to hold `tokens` tokens.
    pub fn missing_blocks(&self, tokens: usize, block_size: usize) -> usize {
        tokens.div_ceil(block_size).saturating_sub(self.blocks.len())
    }

    /// Blocks that its next token needs: a fresh one at a block's border, or a copy of one that others hold, too.
    pub fn blocks_for_next_token(&self, pool: &BlockPool) -> usize {
        let is_full = self.planned_tokens == self.blocks.len() * pool.block_size();
        usize::from(is_full || self.writes_to_shared_block(pool))
    }

    /// Whether its next token would go into a block that others hold, too.
    pub fn writes_to_shared_block(&self, pool: &BlockPool) -> bool {
        self.is_forked
            && !self.planned_tokens.is_multiple_of(pool.block_size())
            && self.blocks.last().is_some_and(|&tail| pool.references(tail) > 1)
    }

    /// Looks up all known tokens but the last; the blocks found are in the table, but not held yet.
    pub fn find_prefix(&mut self, pool: &BlockPool) -> usize {
        debug_assert!(self.blocks.is_empty());
        // At least one token is always computed, or there would be no logits.
        let hittable = (self.known_tokens() - 1) / pool.block_size();
        let hashes = &self.hashes[..hittable.min(self.hashes.len())];
        if hashes.len() * pool.block_size() <= self.prompt.len() {
            pool.find_prefix(hashes, &self.scope, &self.prompt, &mut self.blocks)
        } else {
            let tokens = self.tokens(0, self.known_tokens()).concat();
            pool.find_prefix(hashes, &self.scope, &tokens, &mut self.blocks)
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
        self.planned_tokens = self.computed_tokens;
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
                let parent = if at == 0 { hasher.root(&self.scope) } else { self.hashes[at - 1] };
                self.hashes.push(hasher.block(parent, scratch));
            }
            let parent = if at == 0 { NULL_BLOCK } else { self.blocks[at - 1] };
            let block = self.blocks[at];
            match pool.publish(block, self.hashes[at], &self.scope, parent, scratch) {
                Publication::Published => {}
                Publication::Duplicate(other) => {
                    // Same tokens after the same prefix, so the same KV: one copy is enough, and the chain of
                    // published parents stays whole.
                    pool.share(other);
                    pool.release(block);
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

    /// Gives all blocks back; what they held must be computed again unless the prefix cache keeps it.
    pub fn give_back_blocks(&mut self, pool: &mut BlockPool) -> usize {
        pool.release_sequence(&self.blocks);
        let count = self.blocks.len();
        self.blocks.clear();
        (self.computed_tokens, self.planned_tokens, self.pending_tokens) = (0, 0, 0);
        (self.published_blocks, self.is_forked) = (0, false);
        count
    }
}
