//! Which part of the used KV memory holds nothing?
//!
//! Owns: the load (contexts of 400 tokens on average at block 16, nothing shared) and the formula: in each step, waste =
//! 1 − useful / (used blocks × block size), useful = the sum of the context lengths of all running sequences after the
//! step, used blocks = those with an owner; the mean over all steps in which every running sequence takes part (of
//! others the plan says nothing). Must not know: why.

use std::sync::atomic::Ordering::Relaxed;

use pagurid_core::scheduler::config::SchedulerConfig;

use super::load::{poisson, serve, span};
use super::statistics::{mean, quantile};
use crate::arguments::Arguments;
use crate::report::Report;
use crate::simulation::api::{self, PreemptionVictim};
use crate::simulation::random::Random;

/// See the module.
pub fn run(arguments: &Arguments, report: &mut Report) -> u64 {
    let mut random = Random::new(arguments.seed);
    // Prompts of 267 and answers of 200 tokens on average: then a running sequence's context is 400 long on average.
    let arrivals = poisson(&mut random, 0, 2.0, span(arguments), |random| {
        (random.within(1..=533), random.within(1..=399) as u32)
    });
    let config = SchedulerConfig {
        num_blocks: 2048,
        max_num_seqs: 32,
        max_num_batched_tokens: 512,
        ..api::config(arguments.policy, PreemptionVictim::LeastWaste)
    };
    let block_size = config.block_size as u64;
    let (mut wastes, mut contexts_sum, mut contexts_count) = (Vec::new(), 0, 0);
    let served = serve(arguments, config, &arrivals, 0, &mut |plan, counters| {
        let num_sequences = plan.num_sequences.load(Relaxed);
        if num_sequences as u64 == counters.num_running {
            let contexts = &plan.context_lens[..num_sequences];
            let useful: u64 = contexts.iter().map(|tokens| tokens.load(Relaxed) as u64).sum();
            contexts_sum += useful;
            contexts_count += num_sequences as u64;
            wastes.push(1.0 - useful as f64 / (counters.used_blocks * block_size) as f64);
        }
    });
    report.number("requests", arrivals.len() as f64);
    report.number("mean_context_tokens", contexts_sum as f64 / contexts_count as f64);
    report.number("steps_measured", wastes.len() as f64);
    report.number("kv_waste_mean", mean(&wastes));
    report.number("kv_waste_p99", quantile(wastes, 0.99));
    served.steps
}
