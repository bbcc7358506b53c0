//! The request table and the outputs under real threads: nothing put is lost, nothing is taken twice, no slot leaks or
//! is given back early.

mod toy;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use pagurid_core::progress::RequestState;
use pagurid_core::request::RequestOptions;
use pagurid_core::request_table::RequestTable;
use pagurid_core::scheduler::config::SchedulerConfig;
use toy::{Toy, config, forever, prompt};

const REQUESTS: usize = 2000;

/// Submitters, the engine and the consumer each on a thread of their own; the consumer takes only what is announced,
/// so a lost announcement would hang here.
#[test]
fn commits_race_takes_and_releases_and_everything_arrives_once() {
    let sizes = SchedulerConfig { max_num_seqs: 16, max_num_batched_tokens: 64, ..config() };
    let Toy { mut scheduler, intake, mut outputs, .. } = Toy::new(sizes);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            // The engine.
            while !is_over.load(Ordering::Acquire) {
                if scheduler.plan().unwrap() {
                    let rows = scheduler.step_plan().num_logits_rows();
                    scheduler.commit(Some(&vec![7; rows])).unwrap();
                } else {
                    thread::yield_now();
                }
            }
        });
        let mut tokens: HashMap<u64, Vec<u32>> = HashMap::new();
        let (mut submitted, mut live) = (0, 0);
        while submitted < REQUESTS || live > 0 {
            while submitted < REQUESTS && live < 40 {
                let prompt = prompt(submitted as u32 % 7, 3 + submitted % 9);
                let params = forever(1 + submitted as u32 % 20).into();
                let id = intake.submit(prompt.into(), params, RequestOptions::default()).unwrap();
                submitted += 1;
                if submitted % 5 == 0 {
                    outputs.release(id);
                } else {
                    live += 1;
                    assert!(
                        tokens.insert(id, Vec::new()).is_none(),
                        "ids are unique although slots are used again"
                    );
                }
            }
            for id in outputs.take_ready() {
                let Some(output) = outputs.take_output(id) else { continue };
                let taken = tokens.get_mut(&id).expect("nothing of a released request is announced");
                for delta in &output.deltas {
                    taken.extend(&delta.token_ids);
                    assert_eq!(delta.completion_tokens as usize, taken.len());
                }
                if let Some(metrics) = output.metrics {
                    live -= 1;
                    assert_eq!(metrics.completion_tokens as usize, taken.len());
                    assert!(outputs.take_output(id).is_none());
                }
            }
            thread::yield_now();
        }
        while intake.has_unfinished_requests() {
            thread::yield_now();
        }
        is_over.store(true, Ordering::Release);
    });
    assert_eq!(outputs.take_ready(), [], "an id without a request is not ready");
    assert_eq!(intake.num_live_requests(), 0);
    scheduler.check_invariants(true).unwrap();
}

#[test]
fn an_id_of_a_past_life_changes_nothing() {
    let table = RequestTable::default();
    let old = table.acquire(3, 7, Some(12.3));
    let progress = table.progress(old).unwrap();
    assert_eq!((progress.position, progress.wait_ms_estimate), (Some(7), Some(13)));
    assert!(table.cancel(old) && !table.cancel(old), "only the first cancel counts");
    table.finish(old);
    assert_eq!(table.progress(old).unwrap().state, RequestState::Finished);
    table.vacate(old);
    table.vacate(old);
    let new = table.acquire(3, 0, None);
    assert_ne!(old, new);
    assert!(!table.cancel(old) && table.progress(old).is_none());
    table.release(old);
    assert!(!table.is_cancelled(new) && !table.is_released(new));
    let mut noticed = Vec::new();
    table.drain_cancelled(|id| noticed.push(id));
    assert_eq!(noticed, [], "the cancelled one is gone");
    assert_eq!(table.num_live(), 1);
    for unknown in [0, 1, 1 << 23, u64::MAX] {
        assert!(!table.cancel(unknown) && table.progress(unknown).is_none());
    }
}
