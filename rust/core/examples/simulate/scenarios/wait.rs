//! How well does the core foresee how long a request will wait?
//!
//! Owns: a load of 90 % of what the server can do and one of 130 %, and the error: |estimate − truth| / truth, the
//! estimate as of the submission, the truth = arrival → first scheduled, over all requests that waited for longer than
//! a large step takes. Must not know: how the core estimates.

use pagurid_core::scheduler::config::SchedulerConfig;

use super::load::{Arrival, Outcome, poisson, serve, span};
use super::statistics::quantile;
use crate::arguments::Arguments;
use crate::report::Report;
use crate::simulation::api::{self, PreemptionVictim};
use crate::simulation::random::Random;

/// Below this a request did not really wait.
const SHORTEST_WAIT_MS: f64 = 100.0;
/// Requests that measure what the server can do.
const CALIBRATION: usize = 500;

fn config(arguments: &Arguments) -> SchedulerConfig {
    SchedulerConfig {
        num_blocks: 1024,
        max_num_seqs: 16,
        max_num_batched_tokens: 256,
        ..api::config(arguments.policy, PreemptionVictim::LeastWaste)
    }
}

fn sizes(random: &mut Random) -> (usize, u32) {
    (random.within(32..=480), random.within(16..=240) as u32)
}

/// See the module.
pub fn run(arguments: &Arguments, report: &mut Report) -> u64 {
    let mut random = Random::new(arguments.seed);
    let all_at_once: Vec<Arrival> = (0..CALIBRATION)
        .map(|_| {
            let (prompt, answer) = sizes(&mut random);
            Arrival { at: 0, tenant: 0, prompt, answer }
        })
        .collect();
    let calibration = serve(arguments, config(arguments), &all_at_once, 0, &mut |_, _| {});
    let capacity = CALIBRATION as f64 / (calibration.end as f64 / 1e9);
    report.number("requests_per_second_at_most", capacity);
    let mut steps = calibration.steps;
    for (name, load) in [("steady", 0.9), ("saturated", 1.3)] {
        let arrivals = poisson(&mut random, 0, load * capacity, span(arguments) / 2, sizes);
        let served = serve(arguments, config(arguments), &arrivals, 0, &mut |_, _| {});
        let waited: Vec<&Outcome> =
            served.outcomes.iter().filter(|outcome| outcome.metrics.queue_ms > SHORTEST_WAIT_MS).collect();
        let errors: Vec<f64> = waited.iter().filter_map(|outcome| relative_error(outcome)).collect();
        let waits = waited.iter().map(|outcome| outcome.metrics.queue_ms).collect();
        report.number(format!("{name}_requests"), served.outcomes.len() as f64);
        report.number(format!("{name}_waited"), waited.len() as f64);
        report.number(format!("{name}_estimated"), errors.len() as f64);
        report.number(format!("{name}_wait_p50_ms"), quantile(waits, 0.5));
        report.number(format!("{name}_wait_relative_error_p50"), quantile(errors, 0.5));
        steps += served.steps;
    }
    steps
}

fn relative_error(outcome: &Outcome) -> Option<f64> {
    let truth = outcome.metrics.queue_ms;
    outcome.wait_estimate_ms.map(|estimate| (estimate - truth).abs() / truth)
}
