//! The toy model of the simulation behind a scheduler, step by step, for tests of single behaviours.

#![allow(dead_code)] // each test binary uses its part

use pagurid_core::clock::Clock;
use pagurid_core::intake::Intake;
use pagurid_core::metrics::RequestMetrics;
use pagurid_core::output::{FinishReason, SequenceDelta};
use pagurid_core::outputs::Outputs;
use pagurid_core::request::RequestOptions;
use pagurid_core::request_table::RequestId;
use pagurid_core::sampling_params::SamplingParams;
use pagurid_core::scheduler::Scheduler;
use pagurid_core::scheduler::config::SchedulerConfig;
use pagurid_core::scheduler::policy::{PreemptionVictim, SchedulingPolicy};
pub use toy_model::VOCAB_SIZE;
use toy_model::{Ends, ToyModel};
#[path = "../../examples/simulate/simulation/toy_model.rs"]
mod toy_model;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Ends an answer.
pub const EOS: u32 = 0;

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
        scheduling_policy: SchedulingPolicy::Fcfs,
        priority_ageing_ms: 1000.0,
        step_time_target_ms: None,
        max_queue_wait_ms: None,
        preemption_victim: PreemptionVictim::LeastWaste,
        overlap_steps: false,
        isolate_tenants: false,
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

/// The one right answer, and why it ends.
pub fn answer(prompt: &[u32], max_tokens: usize) -> (Vec<u32>, FinishReason) {
    let answer = toy_model::answer(prompt, &Ends { max_tokens, eos_token_ids: &[EOS], ..Ends::default() });
    (answer.tokens, answer.reason)
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
    pub outputs: Outputs,
    pub clock: Clock,
    model: ToyModel,
    pub answers: HashMap<(RequestId, u32), Answer>,
    pub metrics: HashMap<RequestId, RequestMetrics>,
    /// Tokens of each sequence of the last step, decodes and chunks alike.
    pub last_chunks: Vec<usize>,
    launched: VecDeque<Vec<u32>>,
}

impl Toy {
    pub fn new(config: SchedulerConfig) -> Self {
        let model = ToyModel::new(&config, None);
        let clock = Clock::manual();
        let (scheduler, intake, outputs) =
            Scheduler::reproducible(config, None, clock.clone(), [1, 2]).unwrap();
        Self {
            scheduler,
            intake,
            outputs,
            clock,
            model,
            answers: HashMap::new(),
            metrics: HashMap::new(),
            last_chunks: Vec::new(),
            launched: VecDeque::new(),
        }
    }

    pub fn submit(&self, prompt: &[u32], params: SamplingParams) -> RequestId {
        self.submit_as(prompt, params, RequestOptions::default())
    }

    pub fn submit_as(&self, prompt: &[u32], params: SamplingParams, options: RequestOptions) -> RequestId {
        self.intake.submit(prompt.into(), Arc::new(params), options).unwrap()
    }

    /// Runs the model on the newest step: the tokens for its logits rows. Takes 1 ms on the clock.
    pub fn forward(&mut self) -> Vec<u32> {
        self.clock.advance(1_000_000);
        let plan = self.scheduler.step_plan().buffers();
        let sequences = 0..plan.num_sequences.load(Relaxed);
        self.last_chunks = sequences.map(|sequence| toy_model::rows(plan, sequence).len()).collect();
        self.model.forward(plan)
    }

    /// Plans a step and runs it, but keeps what it gave.
    pub fn launch(&mut self) -> bool {
        let most = if self.intake.config().overlap_steps { 2 } else { 1 };
        if self.scheduler.num_open_steps() == most || !self.scheduler.plan().unwrap() {
            return false;
        }
        let tokens = self.forward();
        self.launched.push_back(tokens);
        true
    }

    /// Commits the oldest step that was launched; false if there is none.
    pub fn commit(&mut self) -> bool {
        let Some(tokens) = self.launched.pop_front() else { return false };
        self.scheduler.commit(Some(&tokens)).unwrap();
        true
    }

    /// Fails the oldest step that was launched.
    pub fn abort(&mut self) {
        self.launched.pop_front();
        self.scheduler.abort_step("a fault");
    }

    /// Launches a step and commits the oldest one, which is the one before if steps overlap; false if there was none.
    pub fn step(&mut self) -> bool {
        let launched = self.launch();
        let overlaps = self.intake.config().overlap_steps;
        if launched && overlaps && self.launched.len() == 1 {
            return true;
        }
        self.commit()
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
        for id in self.outputs.take_ready() {
            self.take_one(id);
        }
    }

    pub fn take_one(&mut self, id: RequestId) {
        let Some(output) = self.outputs.take_output(id) else { return };
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
