//! How many tokens are computed a second time because blocks were taken away?
//!
//! Owns: a mixed load under memory pressure, the same for each choice of victim. Recomputed = tokens of all steps −
//! those that had to be: prompt without the cached start + answer without its last token, which is never computed.
//! Must not know: how victims are chosen.

use pagurid_core::scheduler::config::SchedulerConfig;

use super::load::{Outcome, poisson, serve, span};
use crate::arguments::Arguments;
use crate::report::Report;
use crate::simulation::api::{self, PreemptionVictim};
use crate::simulation::random::Random;

/// See the module.
pub fn run(arguments: &Arguments, report: &mut Report) -> u64 {
    let mut random = Random::new(arguments.seed);
    // Two kinds: short questions with long answers, long prompts with short answers.
    let arrivals = poisson(&mut random, 0, 2.5, span(arguments), |random| {
        if random.chance(0.5) {
            (random.within(16..=64), random.within(128..=384) as u32)
        } else {
            (random.within(256..=768), random.within(16..=64) as u32)
        }
    });
    report.number("requests", arrivals.len() as f64);
    let mut steps = 0;
    for victim in PreemptionVictim::ALL {
        let name = victim.name();
        let config = SchedulerConfig {
            num_blocks: 129,
            max_num_seqs: 32,
            max_num_batched_tokens: 256,
            ..api::config(arguments.policy, victim)
        };
        let served = serve(arguments, config, &arrivals, 0, &mut |_, _| {});
        let needed: u64 = served.outcomes.iter().map(needed_tokens).sum();
        let recomputed = served.computed_tokens as f64 - needed as f64;
        report.number(format!("{name}_preemptions"), served.preemptions as f64);
        report.number(format!("{name}_computed_tokens"), served.computed_tokens as f64);
        report.number(format!("{name}_recomputed_tokens"), recomputed);
        report.number(format!("{name}_recomputed_share"), recomputed / served.computed_tokens as f64);
        report.number(format!("{name}_end_s"), served.end as f64 / 1e9);
        steps += served.steps;
    }
    steps
}

fn needed_tokens(outcome: &Outcome) -> u64 {
    let metrics = &outcome.metrics;
    u64::from(metrics.prompt_tokens - metrics.cached_tokens + metrics.completion_tokens - 1)
}
