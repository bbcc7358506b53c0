//! A server on a simulated clock: arrivals in, figures out.
//!
//! Owns: the cost of a step (base + per token), streams of arrivals, the loop of plan and commit. The model's answers
//! don't matter here, so it gives the same token always and every answer has the length asked for.
//! Must not know: what is measured.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use pagurid_core::clock::{Clock, Nanos};
use pagurid_core::metrics::RequestMetrics;
use pagurid_core::sampling_params::SamplingParams;
use pagurid_core::scheduler::config::SchedulerConfig;
use pagurid_core::stats::Counters;
use pagurid_core::step_plan::StepBuffers;

use crate::arguments::Arguments;
use crate::simulation::api::{self, Submission};
use crate::simulation::random::Random;
use crate::simulation::toy_model::VOCAB_SIZE;

/// Simulated time for each of `--steps`.
const STEP_SPAN_MS: f64 = 25.0;

/// One request to come.
#[derive(Clone, Copy)]
pub struct Arrival {
    /// When.
    pub at: Nanos,
    /// Whose.
    pub tenant: u32,
    /// Tokens of the prompt.
    pub prompt: usize,
    /// Tokens of the answer.
    pub answer: u32,
}

/// What became of it.
pub struct Outcome {
    /// Whose it was.
    pub tenant: u32,
    /// What the core thought at its submission that it would wait.
    pub wait_estimate_ms: Option<f64>,
    /// Its figures.
    pub metrics: RequestMetrics,
}

/// What became of all.
#[derive(Default)]
pub struct Served {
    /// In the order of their ends.
    pub outcomes: Vec<Outcome>,
    /// Steps it took.
    pub steps: u64,
    /// Rows of all steps.
    pub computed_tokens: u64,
    /// Prompt and answer tokens of each tenant, as far as they were done within the window.
    pub tokens: HashMap<u32, u64>,
    /// How often a sequence lost its blocks.
    pub preemptions: u64,
    /// When the last one ended.
    pub end: Nanos,
}

/// The time that arrivals fill.
pub fn span(arguments: &Arguments) -> Nanos {
    (arguments.steps as f64 * STEP_SPAN_MS * 1e6) as Nanos
}

/// A Poisson process of one tenant, with sizes drawn for each request.
pub fn poisson(
    random: &mut Random,
    tenant: u32,
    per_second: f64,
    until: Nanos,
    mut sizes: impl FnMut(&mut Random) -> (usize, u32),
) -> Vec<Arrival> {
    let mut arrivals = Vec::new();
    let mut at = 0.0;
    loop {
        at += random.exponential(1e9 / per_second);
        if at >= until as f64 {
            return arrivals;
        }
        let (prompt, answer) = sizes(random);
        arrivals.push(Arrival { at: at as Nanos, tenant, prompt, answer });
    }
}

/// All of them in order of time.
pub fn merge(streams: &[Vec<Arrival>]) -> Vec<Arrival> {
    let mut arrivals = streams.concat();
    arrivals.sort_by_key(|arrival| arrival.at);
    arrivals
}

/// Serves all arrivals to the end. `observe` sees every step before it ends; tokens count for `Served::tokens` until
/// `window`.
pub fn serve(
    arguments: &Arguments,
    config: SchedulerConfig,
    arrivals: &[Arrival],
    window: Nanos,
    observe: &mut dyn FnMut(&StepBuffers, &Counters),
) -> Served {
    let clock = Clock::manual();
    let (mut scheduler, intake, mut outputs) =
        api::scheduler(config, clock.clone(), arguments.seed).expect("the sizes of a scenario are valid");
    let plan = scheduler.step_plan().buffers().clone();
    let mut random = Random::new(arguments.seed);
    let mut live = HashMap::new();
    let mut served = Served::default();
    let mut coming = arrivals.iter().zip(0..).peekable();
    loop {
        while let Some((arrival, label)) = coming.next_if(|(arrival, _)| arrival.at <= clock.now()) {
            let age = Duration::from_nanos(clock.now() - arrival.at);
            let submission = submission(&mut random, label, arrival, age);
            let id = api::submit(&intake, &submission).expect("a scenario's requests are good");
            live.insert(id, (*arrival, api::wait_estimate_ms(&intake, id)));
        }
        if !scheduler.has_work() {
            let Some((next, _)) = coming.peek() else { break };
            clock.advance(next.at - clock.now());
            continue;
        }
        if !scheduler.plan().expect("no step is open") {
            continue;
        }
        observe(&plan, &intake.stats().counters);
        let num_tokens = plan.num_tokens.load(Relaxed) as u64;
        clock.advance(arguments.base() + arguments.per_token() * num_tokens);
        let tokens = vec![1; plan.num_logits_rows.load(Relaxed)];
        scheduler.commit(Some(&tokens)).expect("the step is open");
        served.steps += 1;
        served.computed_tokens += num_tokens;
        for id in outputs.take_ready() {
            let Some(output) = outputs.take_output(id) else { continue };
            let (arrival, wait_estimate_ms) = live[&id];
            if clock.now() <= window {
                for delta in &output.deltas {
                    let is_first = delta.token_ids.len() == delta.completion_tokens as usize;
                    let tokens = delta.token_ids.len() + if is_first { arrival.prompt } else { 0 };
                    *served.tokens.entry(arrival.tenant).or_default() += tokens as u64;
                }
            }
            if let Some(metrics) = output.metrics {
                live.remove(&id);
                served.outcomes.push(Outcome { tenant: arrival.tenant, wait_estimate_ms, metrics: *metrics });
            }
        }
    }
    scheduler.check_invariants(true).expect("the core is idle and whole");
    served.preemptions = intake.stats().counters.preemptions;
    served.end = clock.now();
    served
}

fn submission(random: &mut Random, label: u32, arrival: &Arrival, age: Duration) -> Submission {
    let prompt = (0..arrival.prompt).map(|_| random.below(VOCAB_SIZE as usize) as u32).collect();
    let params = SamplingParams {
        max_tokens: Some(arrival.answer),
        ignore_eos: true,
        temperature: 0.0,
        seed: Some(0),
        ..SamplingParams::default()
    };
    Submission {
        label,
        prompt,
        params: Arc::new(params),
        age,
        tenant: arrival.tenant,
        priority: 0,
        cache_salt: None,
    }
}
