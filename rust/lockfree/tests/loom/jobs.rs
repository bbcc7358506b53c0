//! Taking pieces of a job vs ending it, falling asleep vs waking many.

use loom::sync::atomic::{AtomicUsize, Ordering};
use pagurid_lockfree::{JobSlot, Sleepers};

use crate::race::race;
use crate::tracked::Tracked;

const PIECES: usize = 2;

/// As the pool of threads has it: a job is the number of a caller, whose memory lives no longer than its job.
#[derive(Default)]
struct Pool {
    slot: JobSlot<usize>,
    callers: [Caller; 2],
}

#[derive(Default)]
struct Caller {
    /// Read by whoever works for it, written by itself before and after.
    lives: Tracked<u32>,
    done: [Tracked<u32>; PIECES],
}

impl Pool {
    /// A whole call; whether it got the slot.
    fn call(&self, number: usize) -> bool {
        let caller = &self.callers[number];
        caller.lives.write(|lives| *lives = 1);
        let job = self.slot.open(number, PIECES, 2);
        let is_ours = job.is_some();
        if let Some(job) = job {
            if let Some(share) = job.join() {
                self.work(share);
            }
            drop(job);
            caller
                .done
                .iter()
                .for_each(|done| done.read(|&times| assert_eq!(times, 1, "each piece is done once")));
        }
        caller.lives.write(|lives| *lives = 0);
        is_ours
    }

    fn help(&self) {
        if let Some(share) = self.slot.join(1) {
            self.work(share);
        }
    }

    fn work(&self, share: pagurid_lockfree::Share<'_, usize>) {
        let caller = &self.callers[share.job()];
        for piece in share {
            caller.lives.read(|&lives| assert_eq!(lives, 1));
            caller.done[piece].write(|times| *times += 1);
        }
    }
}

#[test]
fn join_vs_end_a_helper_never_touches_a_job_that_has_ended() {
    race(Pool::default, [|pool: &Pool| assert!(pool.call(0)), Pool::help, Pool::help], |_, _| ());
}

#[test]
fn join_vs_next_job_a_late_helper_works_for_the_job_that_is_there() {
    race(
        Pool::default,
        [
            |pool: &Pool| {
                assert!(pool.call(0));
                assert!(pool.call(1));
            },
            |pool| {
                pool.help();
                pool.help();
            },
        ],
        |_, _| (),
    );
}

#[test]
fn open_vs_open_one_of_two_callers_gets_the_slot() {
    race(
        Pool::default,
        [
            |pool: &Pool| pool.call(0),
            |pool| pool.call(1),
            |pool| {
                pool.help();
                false
            },
        ],
        |_, got_it| assert!(got_it.contains(&true)),
    );
}

#[test]
fn cancel_vs_join_the_owner_waits_for_what_was_begun_and_for_no_more() {
    race(
        Pool::default,
        [
            |pool: &Pool| {
                let job = pool.slot.open(0, 3, 3).unwrap();
                pool.callers[0].lives.write(|_| ());
                if let Some(mut share) = job.join() {
                    share.cancel_rest();
                    assert!(share.count() == 1, "the piece that was taken before");
                }
                drop(job);
                pool.callers[0].lives.write(|_| ());
            },
            |pool| drop(pool.slot.join(1)),
            |pool| {
                if let Some(mut share) = pool.slot.join(2) {
                    share.cancel_rest();
                }
            },
        ],
        |pool, _| assert!(pool.slot.open(1, 1, 1).is_some()),
    );
}

struct Crowd {
    sleepers: Sleepers,
    published: AtomicUsize,
    news: Tracked<u32>,
}

impl Crowd {
    fn new() -> Self {
        Self { sleepers: Sleepers::new(2), published: AtomicUsize::new(0), news: Tracked::default() }
    }

    fn publish(&self) {
        self.news.write(|news| *news = 1);
        self.published.store(1, Ordering::Release);
        self.sleepers.wake(2, 1);
    }

    /// Whoever was woken wakes another, as the pool's threads do.
    fn sleep(&self, number: usize) {
        while self.published.load(Ordering::Acquire) == 0 {
            self.sleepers.sleep(number, || self.published.load(Ordering::Relaxed) == 1);
        }
        self.sleepers.wake(2, 1);
        self.news.read(|&news| assert_eq!(news, 1));
    }
}

#[test]
fn sleep_vs_wake_no_wake_up_is_lost() {
    race(Crowd::new, [Crowd::publish, |crowd| crowd.sleep(0)], |_, _| ());
}

#[test]
fn sleep_vs_sleep_vs_wake_the_woken_wake_the_rest() {
    race(Crowd::new, [Crowd::publish, |crowd| crowd.sleep(0), |crowd| crowd.sleep(1)], |_, _| ());
}
