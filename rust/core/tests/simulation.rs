//! The random simulation of the whole core, bounded; the same code as `cargo run --example simulate`.

#[path = "../examples/simulate/simulation/mod.rs"]
mod simulation;

use simulation::api::SchedulingPolicy;
use simulation::operations::Operation;
use simulation::tally::Tally;
use simulation::toy_model::Fault;
use simulation::{Failure, episode, run};

fn check(seed: u64, steps: u64, policy: SchedulingPolicy) -> Tally {
    run(seed, steps, policy, None).unwrap_or_else(|failure| {
        let Failure { seed, message, setting, operations } = *failure;
        let operations: Vec<String> = operations.iter().map(ToString::to_string).collect();
        panic!("--replay {seed}: {message}\n{setting:#?}\n{}", operations.join("\n"))
    })
}

#[test]
fn every_promise_holds_in_random_episodes_that_go_everywhere() {
    for policy in SchedulingPolicy::ALL {
        for (what, count) in check(1, 100_000, policy).counts() {
            assert!(count > 0, "{}: {what} never happened", policy.name());
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    assert_eq!(check(5, 5_000, SchedulingPolicy::Fcfs), check(5, 5_000, SchedulingPolicy::Fcfs));
}

#[test]
fn a_wrong_slot_is_caught_and_told_in_few_operations() {
    let failure =
        run(1, 100_000, SchedulingPolicy::Fcfs, Some(Fault::WrongSlot)).expect_err("the model is broken");
    assert!(failure.message.contains("is wrong after"), "{}", failure.message);
    assert!(failure.operations.len() <= 3, "{} operations are left", failure.operations.len());
    assert!(failure.operations.iter().any(|operation| matches!(operation, Operation::Submit(_))));
    let again = episode(failure.seed, SchedulingPolicy::Fcfs, Some(Fault::WrongSlot), &mut |_, _| {});
    assert_eq!(again.expect_err("the seed repeats it").message, failure.message);
}

#[test]
#[ignore = "make test-deep"]
fn every_promise_holds_in_ten_million_steps() {
    for policy in SchedulingPolicy::ALL {
        check(2, 10_000_000, policy);
    }
}
