//! The whole core in simulation: many short random episodes, checked after each step against the one right answer.
//!
//! Owns: the episode (drawn, replayed, shrunk) and the run of many. Everything follows from the seed.
//! Must not know: who asks for it (the example, the tests).

pub mod api;
mod caught;
mod checks;
mod head_of_line;
pub mod operations;
pub mod random;
mod shrink;
pub mod tally;
pub mod toy_model;
mod workload;
mod world;

use caught::catch;
use operations::Operation;
use random::Random;
use tally::Tally;
use toy_model::Fault;
use workload::Workload;
use world::{Setting, World};

/// An episode that broke a promise.
pub struct Failure {
    /// Of the episode: `--replay` takes it.
    pub seed: u64,
    /// What broke in the shrunk one.
    pub message: String,
    /// Sizes and times.
    pub setting: Setting,
    /// What is left of the operations; after them everything is left to end by itself.
    pub operations: Vec<Operation>,
}

/// Steps before everything is left to end by itself, at most.
const MAX_STEPS: usize = 400;

/// Runs episodes until they made `steps` steps; stops at the first that fails.
pub fn run(
    seed: u64,
    steps: u64,
    policy: api::SchedulingPolicy,
    fault: Option<Fault>,
) -> Result<Tally, Box<Failure>> {
    let mut seeds = Random::new(seed);
    let mut total = Tally::default();
    while total.steps < steps {
        let tally = episode(seeds.bits(), policy, fault, &mut |_, _| {})?;
        total.add(&tally);
    }
    Ok(total)
}

/// Draws and runs one episode; `watch` sees every operation before it is done. A failure is shrunk.
pub fn episode(
    seed: u64,
    policy: api::SchedulingPolicy,
    fault: Option<Fault>,
    watch: &mut dyn FnMut(&Operation, &World),
) -> Result<Tally, Box<Failure>> {
    let mut random = Random::new(seed);
    let setting = workload::setting(&mut random, policy, fault);
    let most = random.within(10..=MAX_STEPS) as u64;
    let mut operations = Vec::new();
    let drawn = catch(|| {
        let mut world = World::new(setting.clone());
        let mut workload = Workload::new(random, &setting);
        while world.tally.steps < most {
            let operation = workload.next(&world);
            watch(&operation, &world);
            operations.push(operation);
            world.apply(&operations[operations.len() - 1]);
        }
        world.drain();
        world.tally
    });
    let message = match drawn {
        Ok(tally) => return Ok(tally),
        Err(message) => message,
    };
    let mut last = message;
    let operations = shrink::shrink(operations, |operations| match replay(&setting, operations) {
        Ok(_) => false,
        Err(message) => {
            last = message;
            true
        }
    });
    Err(Box::new(Failure { seed, message: last, setting, operations }))
}

/// Runs a recorded episode.
fn replay(setting: &Setting, operations: &[Operation]) -> Result<Tally, String> {
    catch(|| {
        let mut world = World::new(setting.clone());
        for operation in operations {
            world.apply(operation);
        }
        world.drain();
        world.tally
    })
}
