//! The request table under real threads: nothing put is lost, nothing is taken twice, no slot leaks or is freed early.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use crossbeam_queue::ArrayQueue;
use pagurid_core::metrics::RequestRecord;
use pagurid_core::progress::RequestState;
use pagurid_core::request_table::{RequestId, RequestTable};

const REQUESTS: usize = 3000;
const TOKENS: u32 = 20;

#[test]
fn put_races_take_and_everything_arrives_once() {
    let table = RequestTable::default();
    // From the engine's side: requests that are to be served.
    let open = ArrayQueue::<RequestId>::new(64);
    let is_submitted = AtomicBool::new(false);
    let taken: HashMap<RequestId, Vec<u32>> = thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..REQUESTS {
                let mut id = table.acquire(1, 0);
                while let Err(back) = open.push(id) {
                    id = back;
                    thread::yield_now();
                }
            }
            is_submitted.store(true, Ordering::Release);
        });
        scope.spawn(|| {
            let mut live: Vec<(RequestId, u32)> = Vec::new();
            loop {
                let done = is_submitted.load(Ordering::Acquire);
                while live.len() < 16
                    && let Some(id) = open.pop()
                {
                    live.push((id, 0));
                }
                if done && live.is_empty() && open.is_empty() {
                    break;
                }
                for (id, next) in &mut live {
                    let token = *next;
                    *next += 1;
                    if *next < TOKENS {
                        table.put(*id, |output| output.delta(0).token_ids.push(token));
                    } else {
                        table.finish(*id, |output| {
                            output.delta(0).token_ids.push(token);
                            output.metrics = Some(Box::new(RequestRecord::default().finish(0, 0, None)));
                        });
                    }
                }
                live.retain(|&(_, next)| next < TOKENS);
            }
        });
        // The consumer: only what is said to be ready is taken, so a lost mark would hang here.
        let mut taken = HashMap::new();
        let (mut ready, mut ended) = (Vec::new(), 0);
        while ended < REQUESTS {
            ready.clear();
            table.take_ready(&mut ready);
            for &id in &ready {
                if let Some(output) = table.take(id) {
                    ended += usize::from(output.metrics.is_some());
                    let tokens: &mut Vec<u32> = taken.entry(id).or_default();
                    output.deltas.iter().for_each(|delta| tokens.extend(&delta.token_ids));
                }
            }
            thread::yield_now();
        }
        taken
    });
    assert_eq!(taken.len(), REQUESTS, "ids are unique although slots are used again");
    assert!(taken.values().all(|tokens| tokens.iter().copied().eq(0..TOKENS)));
    assert_eq!(table.num_live(), 0);
    let mut rest = Vec::new();
    table.take_ready(&mut rest);
    assert_eq!(rest, [], "an id without a request is not ready");
}

#[test]
fn release_races_finish_and_the_slot_is_freed_once() {
    let table = RequestTable::default();
    let (ids, cancels) = (ArrayQueue::<RequestId>::new(8), AtomicUsize::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..REQUESTS {
                let id = table.acquire(1, 0);
                table.put(id, |output| output.delta(0).token_ids.push(1));
                while ids.push(id).is_err() {
                    thread::yield_now();
                }
                table.finish(id, |output| {
                    output.metrics = Some(Box::new(RequestRecord::default().finish(0, 0, None)));
                });
            }
        });
        for released in 0..REQUESTS {
            let id = loop {
                match ids.pop() {
                    Some(id) => break id,
                    None => thread::yield_now(),
                }
            };
            if released % 3 == 0 {
                table.take(id);
            }
            cancels.fetch_add(usize::from(table.release(id)), Ordering::Relaxed);
            assert!(!table.release(id), "a second release changes nothing");
            assert!(table.take(id).is_none());
        }
    });
    assert_eq!(table.num_live(), 0);
    assert!(cancels.load(Ordering::Relaxed) <= REQUESTS);
}

#[test]
fn an_id_of_a_past_life_changes_nothing() {
    let table = RequestTable::default();
    let old = table.acquire(3, 7);
    assert_eq!(table.progress(old).unwrap().position, Some(7));
    assert!(table.cancel(old) && !table.cancel(old), "only the first cancel counts");
    table.finish(old, |output| output.metrics = Some(Box::new(RequestRecord::default().finish(0, 0, None))));
    assert_eq!(table.progress(old).unwrap().state, RequestState::Finished);
    assert!(table.take(old).is_some());
    let new = table.acquire(3, 0);
    assert_ne!(old, new);
    assert!(!table.cancel(old) && !table.release(old) && table.take(old).is_none());
    assert_eq!(table.progress(old), None);
    assert!(!table.is_cancelled(new));
    assert_eq!(table.num_live(), 1);
    for unknown in [0, 1, 1 << 23, u64::MAX] {
        assert!(!table.cancel(unknown) && table.progress(unknown).is_none());
    }
}
