//! The workers: threads that help whoever calls, stay awake for a moment, then sleep.
//!
//! Owns: the workers' lives, and the way of a job and of its panic between them and the caller. The hand-over itself and
//! its orderings are `pagurid_lockfree`'s, checked under loom.
//! Invariant: a call allocates nothing; its job lies on the caller's stack, and a worker touches it only while it
//! holds a piece of it.

use std::any::Any;
use std::hint::spin_loop;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr::NonNull;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use pagurid_lockfree::{JobSlot, Share, Sleepers};

/// How long a worker without work stays awake: longer than from one kernel of a step to the next, for waking up takes
/// as long as a small layer.
const PATIENCE: Duration = Duration::from_micros(80);
/// Looks for work between two looks at the clock; about 1 µs.
const LOOKS: usize = 32;
/// Sleepers that one thread wakes: some µs each for a caller who has work to do. The woken wake the others.
const WAKES: usize = 2;

/// Thread 0 is whoever calls; the others are workers.
pub(super) struct Pool {
    num_threads: usize,
    slot: JobSlot<JobPointer>,
    sleepers: Sleepers,
}

impl Pool {
    pub(super) fn new(num_threads: usize) -> Self {
        Self { num_threads, slot: JobSlot::default(), sleepers: Sleepers::new(num_threads) }
    }

    /// To be called once. Where the system refuses a thread, the others do its share.
    pub(super) fn start_workers(&'static self) {
        for number in 1..self.num_threads {
            let worker = thread::Builder::new().name(format!("pagurid-{number}"));
            if worker.spawn(move || self.serve(number)).is_err() {
                break;
            }
        }
    }

    pub(super) fn for_each_piece(&self, threads: usize, pieces: usize, work: &(dyn Fn(usize) + Sync)) {
        let job = Job { work, panic: Mutex::new(None) };
        let Some(open) = self.slot.open(JobPointer::new(&job), pieces, threads.min(self.num_threads)) else {
            (0..pieces).for_each(work);
            return;
        };
        self.wake_workers();
        if let Some(mut share) = open.join() {
            job.take_pieces(&mut share);
        }
        drop(open); // waits for the pieces that others have begun
        if let Some(payload) = job.panic.into_inner().unwrap_or_else(PoisonError::into_inner) {
            resume_unwind(payload);
        }
    }

    fn wake_workers(&self) {
        let threads = self.slot.wanted_threads();
        self.sleepers.wake(threads, WAKES);
    }

    /// A worker's life.
    fn serve(&self, number: usize) {
        loop {
            self.sleepers.sleep(number, || self.slot.wanted_threads() > number);
            self.wake_workers();
            let mut last_work = Instant::now();
            while last_work.elapsed() < PATIENCE {
                for _ in 0..LOOKS {
                    if let Some(mut share) = self.slot.join(number) {
                        // SAFETY: we hold a share of the job, so it is there; it may go when the share does, which
                        // is after the last use.
                        unsafe { share.job().0.as_ref() }.take_pieces(&mut share);
                        drop(share);
                        last_work = Instant::now();
                    }
                    spin_loop();
                }
            }
        }
    }
}

/// On the stack of its caller.
struct Job<'a> {
    work: &'a (dyn Fn(usize) + Sync),
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

impl Job<'_> {
    /// Until none is left. The share outlives this function, because `self` may be gone once it is dropped.
    fn take_pieces(&self, share: &mut Share<'_, JobPointer>) {
        let result = catch_unwind(AssertUnwindSafe(|| share.for_each(self.work)));
        if let Err(payload) = result {
            share.cancel_rest();
            self.panic.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(payload);
        }
    }
}

/// A job whose lifetime the compiler does not see.
#[derive(Clone, Copy)]
struct JobPointer(NonNull<Job<'static>>);

// SAFETY: a `Job` may be used by several threads: its work is `Sync`, its panic in a mutex.
unsafe impl Send for JobPointer {}

impl JobPointer {
    fn new(job: &Job<'_>) -> Self {
        Self(NonNull::from(job).cast())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    const THREADS: usize = 4;

    /// With workers, who live as long as the process.
    fn new_pool() -> &'static Pool {
        let pool: &Pool = Box::leak(Box::new(Pool::new(THREADS)));
        pool.start_workers();
        pool
    }

    fn check_that_it_works(pool: &Pool) {
        let counts: [AtomicUsize; 50] = std::array::from_fn(|_| AtomicUsize::new(0));
        pool.for_each_piece(THREADS, counts.len(), &|i| {
            counts[i].fetch_add(1, Ordering::Relaxed);
        });
        assert!(counts.iter().all(|count| count.load(Ordering::Relaxed) == 1));
    }

    fn fall_asleep() {
        thread::sleep(5 * PATIENCE);
    }

    #[test]
    fn calls_one_after_the_other_and_side_by_side_stay_apart() {
        let pool = new_pool();
        let rounds = if cfg!(miri) { 20 } else { 3000 };
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for round in 0..rounds {
                        let sum = AtomicUsize::new(0);
                        pool.for_each_piece(3, 5, &|i| {
                            sum.fetch_add(i + round, Ordering::Relaxed);
                        });
                        assert_eq!(sum.into_inner(), 10 + 5 * round);
                        if round % 100 == 0 {
                            fall_asleep();
                        }
                    }
                });
            }
        });
    }

    /// More sleep than a thread wakes, so this is about the woken, too.
    #[test]
    fn all_workers_come_however_deep_they_sleep() {
        let pool = new_pool();
        let rounds = if cfg!(miri) { 5 } else { 300 };
        for round in 0..rounds {
            let present = AtomicUsize::new(0);
            pool.for_each_piece(THREADS, THREADS, &|_| {
                present.fetch_add(1, Ordering::Relaxed);
                while present.load(Ordering::Relaxed) < THREADS {
                    thread::yield_now(); // for ever if one does not come
                }
            });
            if round % 2 == 0 {
                fall_asleep();
            }
        }
    }

    #[test]
    fn no_more_threads_work_than_were_asked_for() {
        let pool = new_pool();
        for _ in 0..10 {
            let names = Mutex::new(HashSet::new());
            pool.for_each_piece(2, 50, &|_| {
                let name = thread::current().name().map(str::to_owned);
                names.lock().unwrap().insert(name);
                thread::yield_now();
            });
            let mut names = names.into_inner().unwrap();
            names.remove(&thread::current().name().map(str::to_owned));
            assert!(names.is_empty() || names == HashSet::from([Some("pagurid-1".to_owned())]), "{names:?}");
        }
    }

    #[test]
    fn a_call_within_a_piece_is_done_by_its_thread() {
        let pool = new_pool();
        let sum = AtomicUsize::new(0);
        pool.for_each_piece(THREADS, 8, &|i| {
            let thread = thread::current().id();
            pool.for_each_piece(THREADS, 9, &|j| {
                assert_eq!(thread::current().id(), thread);
                sum.fetch_add(i * j, Ordering::Relaxed);
            });
        });
        assert_eq!(sum.into_inner(), 28 * 36);
    }

    #[test]
    fn a_panic_reaches_the_caller_when_nobody_works_any_more() {
        let pool = new_pool();
        for bad_piece in 0..20 {
            let at_work = AtomicUsize::new(0);
            let result = catch_unwind(AssertUnwindSafe(|| {
                pool.for_each_piece(3, 20, &|i| {
                    assert!(i != bad_piece, "piece {i} is bad");
                    at_work.fetch_add(1, Ordering::Relaxed);
                    thread::yield_now();
                    at_work.fetch_sub(1, Ordering::Relaxed);
                });
            }));
            assert_eq!(at_work.into_inner(), 0);
            let payload = result.unwrap_err();
            assert_eq!(payload.downcast_ref::<String>(), Some(&format!("piece {bad_piece} is bad")));
            check_that_it_works(pool);
        }
        let all_bad =
            catch_unwind(AssertUnwindSafe(|| pool.for_each_piece(3, 20, &|_| panic!("all are bad"))));
        assert_eq!(all_bad.unwrap_err().downcast_ref::<&str>(), Some(&"all are bad"));
        check_that_it_works(pool);
    }

    #[test]
    fn without_workers_the_caller_does_it_all() {
        check_that_it_works(&Pool::new(THREADS));
    }
}
