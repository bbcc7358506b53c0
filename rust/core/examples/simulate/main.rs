//! A deterministic simulation of the whole core, as a program: `arguments::USAGE` says how to run it.
//!
//! Owns: what is printed, the exit code. Must not know: how anything is simulated.

mod arguments;
mod report;
mod scenarios;
mod simulation;

use std::process::ExitCode;
use std::time::Instant;

use arguments::{Arguments, USAGE};
use report::Report;
use simulation::Failure;

fn main() -> ExitCode {
    let arguments = match Arguments::read(std::env::args().skip(1)) {
        Ok(arguments) => arguments,
        Err(message) => {
            eprintln!("{message}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let name = arguments.scenario.as_str();
    let figures = scenarios::ALL.iter().find(|(other, _)| *other == name);
    if figures.is_none() && name != "random" {
        eprintln!("there is no scenario {name}\n{USAGE}");
        return ExitCode::from(2);
    }
    let started = Instant::now();
    let mut report = Report::default();
    report.text("scenario", name);
    report.number("seed", arguments.seed as f64);
    report.text("policy", arguments.policy.name());
    let steps = match (arguments.replay, figures) {
        (Some(seed), _) => replay(seed, &arguments),
        (None, Some((_, scenario))) => Ok(scenario(&arguments, &mut report)),
        (None, None) => random(&arguments, &mut report),
    };
    let steps = match steps {
        Ok(steps) => steps as f64,
        Err(failure) => {
            tell(&failure);
            return ExitCode::FAILURE;
        }
    };
    let seconds = started.elapsed().as_secs_f64();
    report.number("steps", steps);
    report.number("seconds", seconds);
    report.number("steps_per_second", steps / seconds);
    print!("{}", report.lines());
    if let Some(path) = arguments.json
        && let Err(error) = std::fs::write(&path, report.json())
    {
        eprintln!("{path}: {error}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

fn random(arguments: &Arguments, report: &mut Report) -> Result<u64, Box<Failure>> {
    let tally = simulation::run(arguments.seed, arguments.steps, arguments.policy, None)?;
    for (key, count) in tally.counts().into_iter().filter(|&(key, _)| key != "steps") {
        report.number(key, count as f64);
    }
    Ok(tally.steps)
}

fn replay(seed: u64, arguments: &Arguments) -> Result<u64, Box<Failure>> {
    let tally = simulation::episode(seed, arguments.policy, None, &mut |operation, world| {
        let counters = world.intake.stats().counters;
        println!(
            "{:12.3} ms  {:2} run {:2} wait {:3} used {:3} cached {:3} free | {operation}",
            world.intake.now() as f64 / 1e6,
            counters.num_running,
            counters.num_waiting,
            counters.used_blocks,
            counters.cached_blocks,
            counters.free_blocks,
        );
    })?;
    Ok(tally.steps)
}

fn tell(failure: &Failure) {
    let Failure { seed, message, setting, operations } = failure;
    println!("episode {seed} fails (--replay {seed} shows it in full)\n{message}\n{setting:#?}");
    for operation in operations {
        println!("{operation}");
    }
    println!("then plan and commit until nothing is left to do");
}
