//! A toy language model over the step plan, for tests of the scheduler.
//!
//! Its "KV cache" holds, for every slot, a hash of all tokens up to that position, read through the block table and
//! extended token by token; the next token is a function of that hash. So a wrong slot, block, position, chunk or
//! shared block changes the text, and the right text is known without any scheduler.

#![allow(dead_code)] // each test binary uses its part

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use pagurid_core::intake::Intake;
use pagurid_core::metrics::RequestMetrics;
use pagurid_core::output::{FinishReason, SequenceDelta};
use pagurid_core::request_table::RequestId;
use pagurid_core::sampling_params::SamplingParams;
use pagurid_core::scheduler::Scheduler;
use pagurid_core::scheduler::config::SchedulerConfig;

/// Ends an answer.
pub const EOS: u32 = 0;
pub const VOCAB_SIZE: u32 = 37;

pub fn config() -> SchedulerConfig {
    SchedulerConfig {
        num_blocks: 64,
        block_size: 4,
        max_model_len: 128,
        max_num_seqs: 8,
        max_num_batched_tokens: 16,
        vocab_size: VOCAB_SIZE as usize,
        eos_token_ids: vec![EOS],
        max_queued_requests: 64,
        enable_prefix_caching: true,
        prefix_hash_bits: 128,
        kv_bytes_per_block: 100,
        cost_per_hour: Some(3.6),
    }
}

pub fn greedy(max_tokens: Option<u32>) -> SamplingParams {
    SamplingParams { temperature: 0.0, max_tokens, ..SamplingParams::default() }
}

/// Tokens 1, 2, 3, …, different for each `salt`.
pub fn prompt(salt: u32, len: usize) -> Vec<u32> {
    (0..len as u32).map(|at| 1 + (salt * 7 + at * (salt % 5 + 1)) % (VOCAB_SIZE - 1)).collect()
}

pub fn forever(max_tokens: u32) -> SamplingParams {
    SamplingParams { ignore_eos: true, ..greedy(Some(max_tokens)) }
}

fn extend(prefix: u64, token: u32) -> u64 {
    (prefix ^ u64::from(token).wrapping_add(0x9E37_79B9_7F4A_7C15))
        .wrapping_mul(0xD6E8_FEB8_6659_FD93)
        .rotate_left(23)
}

fn next_token(prefix: u64) -> u32 {
    // End-of-sequence is a rare token.
    let token = (prefix >> 17) as u32 % (4 * VOCAB_SIZE);
    if token == EOS { EOS } else { 1 + token % (VOCAB_SIZE - 1) }
}

/// The one right answer, and why it ends.
pub fn answer(prompt: &[u32], max_tokens: usize) -> (Vec<u32>, FinishReason) {
    let mut prefix = prompt.iter().fold(0, |prefix, &token| extend(prefix, token));
    let mut tokens = Vec::new();
    while tokens.len() < max_tokens {
        let token = next_token(prefix);
        tokens.push(token);
        if token == EOS {
            return (tokens, FinishReason::Stop);
        }
        prefix = extend(prefix, token);
    }
    (tokens, FinishReason::Length)
}

/// All that one sequence has given so far.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    pub tokens: Vec<u32>,
    pub text: String,
    pub finish: Option<FinishReason>,
    pub deltas: usize,
}

pub struct Toy {
    pub scheduler: Scheduler,
    pub intake: Arc<Intake>,
    kv: Vec<u64>,
    pub answers: HashMap<(RequestId, u32), Answer>,
    pub metrics: HashMap<RequestId, RequestMetrics>,
    /// Tokens of each sequence of the last step, decodes and chunks alike.
    pub last_chunks: Vec<usize>,
}

impl Toy {
    pub fn new(config: SchedulerConfig) -> Self {
        let slots = config.num_blocks * config.block_size;
        let (scheduler, intake) = Scheduler::new(config, None).unwrap();
        Self {
            scheduler,
            intake,
            kv: vec![0; slots],
            answers: HashMap::new(),
            metrics: HashMap::new(),
            last_chunks: Vec::new(),
        }
    }

    pub fn submit(&self, prompt: &[u32], params: SamplingParams) -> RequestId {
        self.intake.submit(prompt.into(), Arc::new(params), Duration::ZERO).unwrap()
    }

    /// Runs the model on the open step: the tokens for its logits rows.
    pub fn forward(&mut self) -> Vec<u32> {
        let config = self.intake.config().clone();
        let plan = self.scheduler.step_plan().buffers().clone();
        let (num_tokens, num_sequences) = (plan.num_tokens.load(Relaxed), plan.num_sequences.load(Relaxed));
        assert!(num_tokens <= config.max_num_batched_tokens, "the budget holds");
        assert_eq!(plan.query_start[0].load(Relaxed), 0);
        assert_eq!(plan.query_start[num_sequences].load(Relaxed) as usize, num_tokens);
        let mut at_row = vec![0; num_tokens];
        let mut written = std::collections::HashSet::new();
        self.last_chunks.clear();
        for sequence in 0..num_sequences {
            let rows = plan.query_start[sequence].load(Relaxed) as usize
                ..plan.query_start[sequence + 1].load(Relaxed) as usize;
            assert!(!rows.is_empty(), "no sequence without rows");
            self.last_chunks.push(rows.len());
            let context_len = plan.context_lens[sequence].load(Relaxed) as usize;
            assert_eq!(plan.positions[rows.end - 1].load(Relaxed) as usize + 1, context_len);
            let table =
                &plan.block_tables[sequence * plan.max_blocks_per_sequence..][..plan.max_blocks_per_sequence];
            let slot = |position: usize| {
                let block = table[position / config.block_size].load(Relaxed) as usize;
                assert!(block > 0 && block < config.num_blocks);
                block * config.block_size + position % config.block_size
            };
            for row in rows {
                let position = plan.positions[row].load(Relaxed) as usize;
                assert_eq!(plan.slot_mapping[row].load(Relaxed) as usize, slot(position));
                assert!(written.insert(slot(position)), "no two rows write one slot");
                let before = if position == 0 { 0 } else { self.kv[slot(position - 1)] };
                self.kv[slot(position)] = extend(before, plan.token_ids[row].load(Relaxed) as u32);
                at_row[row] = self.kv[slot(position)];
            }
        }
        let rows = 0..plan.num_logits_rows.load(Relaxed);
        rows.map(|at| next_token(at_row[plan.logits_rows[at].load(Relaxed) as usize])).collect()
    }

    /// Plans, runs and commits one step; false if there was none.
    pub fn step(&mut self) -> bool {
        if !self.scheduler.plan().unwrap() {
            return false;
        }
        let tokens = self.forward();
        self.scheduler.commit(Some(&tokens)).unwrap();
        true
    }

    /// Steps, checking and taking, until nothing is left to do.
    pub fn run(&mut self) -> usize {
        let mut steps = 0;
        while self.step() {
            steps += 1;
            assert!(steps < 100_000, "progress");
            self.scheduler.check_invariants(false).unwrap();
            self.take();
        }
        self.take();
        self.scheduler.check_invariants(true).unwrap();
        steps
    }

    /// Takes everything that is ready.
    pub fn take(&mut self) {
        for id in self.intake.take_ready() {
            self.take_one(id);
        }
    }

    pub fn take_one(&mut self, id: RequestId) {
        let Some(output) = self.intake.take_output(id) else { return };
        assert!(!self.metrics.contains_key(&id), "nothing comes after the end");
        for delta in output.deltas {
            let SequenceDelta { index, text, token_ids, completion_tokens, finish, .. } = delta;
            let answer = self.answers.entry((id, index)).or_default();
            assert_eq!(answer.finish, None, "a sequence ends once");
            answer.tokens.extend(token_ids);
            answer.text.push_str(&text);
            answer.finish = finish.map(|finish| finish.reason);
            answer.deltas += 1;
            assert_eq!(answer.tokens.len(), completion_tokens as usize);
        }
        if let Some(metrics) = output.metrics {
            self.metrics.insert(id, *metrics);
        }
    }

    pub fn tokens(&self, id: RequestId) -> &[u32] {
        &self.answers[&(id, 0)].tokens
    }

    pub fn finish(&self, id: RequestId) -> Option<FinishReason> {
        self.answers.get(&(id, 0)).and_then(|answer| answer.finish)
    }
}
