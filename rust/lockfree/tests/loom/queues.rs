//! The queues at the door: submit vs drain, reserve vs leave.

use loom::thread;
use pagurid_lockfree::{BoundedQueue, SubmissionQueue};

use crate::race::race;

/// Pops until `count` items are there.
fn pop_all(queue: &BoundedQueue<u32>, count: usize) -> Vec<u32> {
    let mut items = Vec::new();
    while items.len() < count {
        match queue.pop() {
            Some(item) => items.push(item),
            None => thread::yield_now(),
        }
    }
    items
}

/// Pushes as soon as there is room.
fn push(queue: &BoundedQueue<u32>, item: u32) -> Vec<u32> {
    while queue.push(item).is_err() {
        thread::yield_now();
    }
    Vec::new()
}

#[test]
fn submit_vs_submit_vs_drain() {
    race(
        || BoundedQueue::new(2),
        [|queue: &BoundedQueue<u32>| push(queue, 10), |queue| push(queue, 20), |queue| pop_all(queue, 2)],
        |queue, results| {
            let mut items = results.concat();
            items.sort_unstable();
            assert_eq!(items, [10, 20]);
            assert_eq!((queue.is_empty(), queue.len(), queue.pop()), (true, 0, None));
        },
    );
}

#[test]
fn submit_vs_drain_through_two_laps_of_one_cell() {
    race(
        || BoundedQueue::new(1),
        [|queue: &BoundedQueue<u32>| [push(queue, 1), push(queue, 2)].concat(), |queue| pop_all(queue, 2)],
        |_, results| assert_eq!(results[1], [1, 2], "in order"),
    );
}

#[test]
fn submit_vs_drain_vs_drain_is_safe_too() {
    race(
        || BoundedQueue::new(1),
        [
            |queue: &BoundedQueue<u32>| push(queue, 1),
            |queue| queue.pop().into_iter().collect(),
            |queue| queue.pop().into_iter().collect(),
        ],
        |queue, mut results| {
            results.push(queue.pop().into_iter().collect());
            assert_eq!(results.concat(), [1]);
        },
    );
}

#[test]
fn submit_vs_is_empty_says_what_pop_gives() {
    race(
        || BoundedQueue::new(2),
        [
            |queue: &BoundedQueue<u32>| assert_eq!(queue.push(1), Ok(())),
            |queue| assert!(queue.is_empty() || queue.pop() == Some(1)),
        ],
        |_, _| (),
    );
}

/// Pops an item and leaves its place.
fn serve(queue: &SubmissionQueue<u32>, item: u32) {
    assert_eq!(queue.pop(), Some(item));
    queue.leave();
}

/// Takes a place, if there is one, and an item onto it: there must be room.
fn submit(queue: &SubmissionQueue<u32>, item: u32) {
    if queue.reserve().is_some() {
        queue.push(item);
    }
}

/// Has as many items as it may.
fn full(bound: usize) -> SubmissionQueue<u32> {
    let queue = SubmissionQueue::new(bound);
    for item in 0..bound {
        submit(&queue, item as u32);
    }
    queue
}

#[test]
fn leave_vs_reserve_a_place_always_has_room() {
    race(
        || full(1),
        [|queue: &SubmissionQueue<u32>| submit(queue, 7), |queue| serve(queue, 0)],
        |queue, _| {
            assert_eq!(queue.num_waiting(), queue.len());
            assert_eq!(queue.pop().is_some(), queue.num_waiting() == 1);
        },
    );
}

#[test]
fn leave_vs_two_reserves_a_place_always_has_room() {
    race(
        || full(2),
        [
            |queue: &SubmissionQueue<u32>| submit(queue, 7),
            |queue| submit(queue, 8),
            |queue| {
                serve(queue, 0);
                serve(queue, 1);
            },
        ],
        |queue, _| assert_eq!(queue.num_waiting(), queue.len()),
    );
}
