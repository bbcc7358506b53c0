//! Does one tenant's flood delay another, and do equal tenants get equal parts?
//!
//! Owns: a light tenant beside one that asks for twice what the server can do, against the light one alone with the
//! same arrivals: once with prompts of many steps, once with prompts of one step, to whose first token the step that is
//! under way when they come adds up to another; and eight tenants with equal rights that each ask for more than an
//! eighth. Must not know: policies.

use std::ops::RangeInclusive;

use pagurid_core::scheduler::config::SchedulerConfig;

use super::load::{Arrival, merge, poisson, serve, span};
use super::statistics::{jain, quantile};
use crate::arguments::Arguments;
use crate::report::Report;
use crate::simulation::api::{self, PreemptionVictim};
use crate::simulation::random::Random;

const LIGHT: u32 = 0;
const FLOOD: u32 = 1;
const TENANTS: u32 = 8;
/// With 16 sequences of 256 + 64 tokens at 20 ms + 0.2 ms per token the server ends about 6 requests a second.
const REQUESTS_PER_SECOND: f64 = 6.0;

fn config(arguments: &Arguments) -> SchedulerConfig {
    SchedulerConfig {
        num_blocks: 2048,
        max_model_len: 8192,
        max_num_seqs: 16,
        max_num_batched_tokens: 256,
        ..api::config(arguments.policy, PreemptionVictim::LeastWaste)
    }
}

/// See the module.
pub fn run(arguments: &Arguments, report: &mut Report) -> u64 {
    let mut steps = flood(arguments, report, "light", 0.05, 2048..=4096);
    steps += flood(arguments, report, "short", 0.3, 32..=96);
    // Equal rights and equal wishes: each asks for a quarter of the server.
    steps += share(arguments, report, "jain_equal_demand", |_| 0.25);
    // Equal rights, but some ask for up to eight times what others do; the least is still more than an eighth.
    steps + share(arguments, report, "jain_unequal_demand", |tenant| 0.2 * f64::from(tenant + 1))
}

fn flood(
    arguments: &Arguments,
    report: &mut Report,
    key: &str,
    per_second: f64,
    prompt: RangeInclusive<usize>,
) -> u64 {
    let mut random = Random::new(arguments.seed);
    let until = span(arguments) / 4;
    let light = poisson(&mut random, LIGHT, per_second, until, |random| (random.within(prompt.clone()), 32));
    let flood = poisson(&mut random, FLOOD, 2.0 * REQUESTS_PER_SECOND, until, |_| (256, 64));
    let mut steps = 0;
    let mut ttft = |arrivals: &[Arrival]| {
        let served = serve(arguments, config(arguments), arrivals, until, &mut |_, _| {});
        steps += served.steps;
        let light = served.outcomes.iter().filter(|outcome| outcome.tenant == LIGHT);
        light.filter_map(|outcome| outcome.metrics.ttft_ms).collect::<Vec<f64>>()
    };
    let alone = ttft(&light);
    let beside = ttft(&merge(&[light, flood]));
    report.number(format!("{key}_requests"), alone.len() as f64);
    report.number(format!("{key}_ttft_p50_ms"), quantile(beside.clone(), 0.5));
    report.number(format!("{key}_alone_ttft_p50_ms"), quantile(alone.clone(), 0.5));
    let (beside, alone) = (quantile(beside, 0.99), quantile(alone, 0.99));
    report.number(format!("{key}_ttft_p99_ms"), beside);
    report.number(format!("{key}_alone_ttft_p99_ms"), alone);
    report.number(format!("{key}_ttft_p99_ratio"), beside / alone);
    steps
}

/// `demand`: of each tenant, as a part of what the server can do.
fn share(arguments: &Arguments, report: &mut Report, key: &str, demand: impl Fn(u32) -> f64) -> u64 {
    let mut random = Random::new(arguments.seed);
    let until = span(arguments) / 8;
    let stream = |tenant| {
        let per_second = REQUESTS_PER_SECOND * demand(tenant);
        poisson(&mut random, tenant, per_second, until, |_| (256, 64))
    };
    let arrivals = merge(&(0..TENANTS).map(stream).collect::<Vec<_>>());
    let served = serve(arguments, config(arguments), &arrivals, until, &mut |_, _| {});
    let tokens = |tenant| served.tokens.get(&tenant).copied().unwrap_or(0) as f64;
    report.number(key, jain(&(0..TENANTS).map(tokens).collect::<Vec<f64>>()));
    served.steps
}
