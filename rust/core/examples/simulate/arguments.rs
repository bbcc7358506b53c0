//! The command line.
//!
//! Owns: the flags, their defaults and what is said of a wrong one. Must not know: what the flags do.

use std::str::FromStr;

use pagurid_core::clock::Nanos;

use crate::simulation::api::SchedulingPolicy;

/// Shown for a wrong flag.
pub const USAGE: &str = "\
usage: simulate [--seed S] [--steps N] [--scenario NAME] [--policy fcfs|priority|fair] [--json FILE] [--replay SEED]
                [--base-ms B] [--per-token-ms T]
  --seed S         everything follows from it (default 1)
  --steps N        core steps: in all (random), or about as many as the arrivals fill (default 100000)
  --scenario NAME  random (default): everything at random, checked after each step
                   fair, waste, kv, wait: figures under load
  --policy NAME    in which order requests are served (default fcfs)
  --json FILE      write the figures there, too
  --replay SEED    run the one random episode of this seed, telling everything
  --base-ms B      time of a simulated step: B ms (default 20; the scenarios with figures) …
  --per-token-ms T … + T ms for each token (default 0.2)";

/// What was asked for.
pub struct Arguments {
    pub seed: u64,
    pub steps: u64,
    pub scenario: String,
    pub policy: SchedulingPolicy,
    pub json: Option<String>,
    pub replay: Option<u64>,
    base_ms: f64,
    per_token_ms: f64,
}

impl Arguments {
    /// Reads them, or says what is wrong.
    pub fn read(mut words: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut arguments = Self {
            seed: 1,
            steps: 100_000,
            scenario: "random".to_owned(),
            policy: SchedulingPolicy::default(),
            json: None,
            replay: None,
            base_ms: 20.0,
            per_token_ms: 0.2,
        };
        while let Some(flag) = words.next() {
            let value = words.next().ok_or_else(|| format!("{flag} needs a value"))?;
            match flag.as_str() {
                "--seed" => arguments.seed = number(&flag, &value)?,
                "--steps" => arguments.steps = number(&flag, &value)?,
                "--scenario" => arguments.scenario = value,
                "--policy" => {
                    let policy = SchedulingPolicy::ALL.into_iter().find(|policy| policy.name() == value);
                    arguments.policy = policy.ok_or_else(|| format!("there is no policy {value}"))?;
                }
                "--json" => arguments.json = Some(value),
                "--replay" => arguments.replay = Some(number(&flag, &value)?),
                "--base-ms" => arguments.base_ms = number(&flag, &value)?,
                "--per-token-ms" => arguments.per_token_ms = number(&flag, &value)?,
                _ => return Err(format!("there is no {flag}")),
            }
        }
        Ok(arguments)
    }

    /// Time of a simulated step without its tokens.
    pub fn base(&self) -> Nanos {
        (self.base_ms * 1e6) as Nanos
    }

    /// Time of each token of a simulated step.
    pub fn per_token(&self) -> Nanos {
        (self.per_token_ms * 1e6) as Nanos
    }
}

fn number<T: FromStr>(flag: &str, value: &str) -> Result<T, String> {
    value.parse().map_err(|_| format!("{flag} needs a number, got {value}"))
}
