//! A toy language model over the step plan.
//!
//! Its "KV cache" holds, for every slot, a hash of all tokens up to that position, extended token by token through the
//! block table; the next token is a function of all hashes of the context, read through the table as attention reads.
//! So a wrong slot, block, position, chunk or shared block changes the answer, and the right answer is known without
//! any scheduler (`answer`).
//! Owns: the slots, the model's part of the promise about a plan (it panics if the plan breaks it).
//! Must not know: requests, time.

use std::sync::atomic::Ordering::Relaxed;

use pagurid_core::output::{FinishReason, StopReason};
use pagurid_core::scheduler::config::SchedulerConfig;
use pagurid_core::step_plan::StepBuffers;

/// The model knows tokens below this.
pub const VOCAB_SIZE: u32 = 37;

/// What the model computed wrong, to prove that the checks see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The last slot of every second block is written one slot too early.
    WrongSlot,
}

fn mix(state: u64, value: u64) -> u64 {
    (state ^ value.wrapping_add(0x9E37_79B9_7F4A_7C15)).wrapping_mul(0xD6E8_FEB8_6659_FD93).rotate_left(23)
}

fn next_token(context: u64) -> u32 {
    // Token 0, the usual end of sequence, is a rare one.
    let token = (context >> 17) as u32 % (4 * VOCAB_SIZE);
    if token == 0 { 0 } else { 1 + token % (VOCAB_SIZE - 1) }
}

/// What a token is in a text.
pub fn piece(token: u32) -> char {
    char::from_u32(u32::from('\u{3b1}') + token).expect("there are as many letters")
}

/// What ends an answer.
#[derive(Default)]
pub struct Ends<'a> {
    /// `FinishReason::Length` after so many.
    pub max_tokens: usize,
    /// None of the lists below counts before.
    pub min_tokens: usize,
    /// End-of-sequence tokens that count.
    pub eos_token_ids: &'a [u32],
    /// Stop tokens.
    pub stop_token_ids: &'a [u32],
    /// A stop string, if there is one.
    pub stop: Option<&'a str>,
}

/// The one right answer.
pub struct Answer {
    /// All of it.
    pub tokens: Vec<u32>,
    /// Without the token or the string that stopped it.
    pub text: String,
    /// Why it ends.
    pub reason: FinishReason,
    /// What the request had named.
    pub stop_reason: Option<StopReason>,
}

/// Computes it without any scheduler.
pub fn answer(prompt: &[u32], ends: &Ends<'_>) -> Answer {
    let (mut prefix, mut context) = (0, 0);
    let mut read = |token: u32| {
        prefix = mix(prefix, u64::from(token));
        context = mix(context, prefix);
        next_token(context)
    };
    let mut next = 0;
    for &token in prompt {
        next = read(token);
    }
    let (tokens, text) = (Vec::new(), String::new());
    let mut answer = Answer { tokens, text, reason: FinishReason::Length, stop_reason: None };
    while answer.tokens.len() < ends.max_tokens {
        answer.tokens.push(next);
        let may_stop = answer.tokens.len() >= ends.min_tokens;
        if may_stop && ends.stop_token_ids.contains(&next) {
            return Answer {
                reason: FinishReason::Stop,
                stop_reason: Some(StopReason::Token(next)),
                ..answer
            };
        }
        if may_stop && ends.eos_token_ids.contains(&next) {
            return Answer { reason: FinishReason::Stop, ..answer };
        }
        answer.text.push(piece(next));
        if let Some(stop) = ends.stop.filter(|stop| may_stop && answer.text.ends_with(stop)) {
            answer.text.truncate(answer.text.len() - stop.len());
            let stop_reason = Some(StopReason::Text(stop.to_owned()));
            return Answer { reason: FinishReason::Stop, stop_reason, ..answer };
        }
        next = read(next);
    }
    answer
}

/// See the module.
pub struct ToyModel {
    config: SchedulerConfig,
    kv: Vec<u64>,
    /// The pass that wrote the slot last.
    written: Vec<u64>,
    passes: u64,
    /// What the last pass gave: the next one may refer to it.
    last_tokens: Vec<u32>,
    fault: Option<Fault>,
}

impl ToyModel {
    /// With nothing in its slots.
    pub fn new(config: &SchedulerConfig, fault: Option<Fault>) -> Self {
        let slots = config.num_blocks * config.block_size;
        Self {
            config: config.clone(),
            kv: vec![0; slots],
            written: vec![0; slots],
            passes: 0,
            last_tokens: Vec::new(),
            fault,
        }
    }

    /// Runs the model on the open step: the tokens for its logits rows, one each. (Drafts, once the core takes them,
    /// are accepted here: this is where rows beyond the first would be compared with the tokens they follow.)
    pub fn forward(&mut self, plan: &StepBuffers) -> Vec<u32> {
        let num_sequences = self.check(plan);
        let block_size = self.config.block_size;
        self.passes += 1;
        self.copy_blocks(plan);
        let mut logits_rows = (0..plan.num_logits_rows.load(Relaxed))
            .map(|at| plan.logits_rows[at].load(Relaxed) as usize)
            .peekable();
        let mut tokens = Vec::new();
        for sequence in 0..num_sequences {
            let rows = rows(plan, sequence);
            let table = &plan.block_tables[sequence * plan.max_blocks_per_sequence..];
            let slot = |position: usize| {
                let block =
                    table[..plan.max_blocks_per_sequence][position / block_size].load(Relaxed) as usize;
                assert!(block > 0 && block < self.config.num_blocks, "block {block} is none of the pool's");
                block * block_size + position % block_size
            };
            let first = plan.positions[rows.start].load(Relaxed) as usize;
            let mut prefix = if first == 0 { 0 } else { self.kv[slot(first - 1)] };
            for (position, row) in (first..).zip(rows.clone()) {
                let at = slot(position);
                assert_eq!(
                    plan.positions[row].load(Relaxed) as usize,
                    position,
                    "positions follow each other"
                );
                assert_eq!(plan.slot_mapping[row].load(Relaxed) as usize, at, "the slot is the table's");
                assert_ne!(self.written[at], self.passes, "two rows write slot {at}");
                self.written[at] = self.passes;
                let token = match plan.token_ids[row].load(Relaxed) {
                    pending @ ..0 => self.last_tokens[(-1 - pending) as usize],
                    token => token as u32,
                };
                prefix = mix(prefix, u64::from(token));
                let misses = self.fault == Some(Fault::WrongSlot) && (position + 1) % (2 * block_size) == 0;
                self.kv[at - usize::from(misses)] = prefix;
            }
            let context_len = plan.context_lens[sequence].load(Relaxed) as usize;
            assert_eq!(first + rows.len(), context_len, "the context ends with the last row");
            // The answers of one request may begin from the same row.
            while logits_rows.next_if_eq(&(rows.end - 1)).is_some() {
                let context =
                    (0..context_len).fold(0, |context, position| mix(context, self.kv[slot(position)]));
                tokens.push(next_token(context));
            }
        }
        assert_eq!(logits_rows.next(), None, "every logits row is the last of a sequence");
        self.last_tokens.clone_from(&tokens);
        tokens
    }

    /// Before the pass: all are read before any is written.
    fn copy_blocks(&mut self, plan: &StepBuffers) {
        let block_size = self.config.block_size;
        let first_slot = |at: usize| plan.block_copies[at].load(Relaxed) as usize * block_size;
        let copies = 0..plan.num_block_copies.load(Relaxed);
        let read: Vec<_> = copies
            .map(|at| (first_slot(2 * at + 1), self.kv[first_slot(2 * at)..][..block_size].to_vec()))
            .collect();
        for (to, block) in read {
            self.kv[to..][..block_size].copy_from_slice(&block);
        }
    }

    /// What a pass that fails leaves behind: anything, in all the slots it was to write.
    pub fn scribble(&mut self, slots: &[usize]) {
        for &slot in slots {
            self.kv[slot] = 0xBAD;
        }
    }

    fn check(&self, plan: &StepBuffers) -> usize {
        let (num_tokens, num_sequences) = (plan.num_tokens.load(Relaxed), plan.num_sequences.load(Relaxed));
        let budget = self.config.max_num_batched_tokens;
        assert!(num_tokens > 0, "an open step computes something");
        assert!(num_tokens <= budget, "{num_tokens} tokens in a step of at most {budget}");
        assert!(num_sequences <= self.config.max_num_seqs, "{num_sequences} sequences in a step");
        assert_eq!(plan.query_start[0].load(Relaxed), 0);
        assert_eq!(plan.query_start[num_sequences].load(Relaxed) as usize, num_tokens);
        num_sequences
    }
}

/// The rows of one sequence of the step.
pub fn rows(plan: &StepBuffers, sequence: usize) -> std::ops::Range<usize> {
    let rows = plan.query_start[sequence].load(Relaxed) as usize
        ..plan.query_start[sequence + 1].load(Relaxed) as usize;
    assert!(!rows.is_empty(), "no sequence without rows");
    rows
}
