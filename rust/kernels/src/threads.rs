//! Sharing a kernel's work among threads, in small pieces that whoever is free takes.
//!
//! The caller works, too, and rayon's global pool gives it helpers. A helper that comes late (its core was
//! taken by the event loop) finds the work closed and leaves: it costs its share, not the whole call. One that
//! is done waits a moment for the next call: waking a sleeping thread takes as long as a small layer.
//! Invariant: which thread computes a piece never changes its bits.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::InvalidArgument;

/// Threads of the pool; 0 until it is first asked for.
static NUM_THREADS: Mutex<usize> = Mutex::new(0);

/// More would be a mistake in a unit.
const MAX_THREADS: usize = 1024;

/// Sizes the pool. Only before its first use: rayon's pool cannot be changed afterwards.
pub fn set_num_threads(n: usize) -> Result<(), InvalidArgument> {
    if !(1..=MAX_THREADS).contains(&n) {
        return Err(InvalidArgument(format!("num_threads must be in 1..={MAX_THREADS}; got {n}")));
    }
    let mut num_threads = NUM_THREADS.lock().unwrap_or_else(PoisonError::into_inner);
    if *num_threads == 0 {
        *num_threads = build_pool(n);
    }
    if *num_threads == n {
        return Ok(());
    }
    Err(InvalidArgument(format!(
        "num_threads was fixed at {} when the kernels were first used; got {n}",
        *num_threads
    )))
}

/// Threads that kernels use; all cores that this process may run on, if nobody said otherwise.
pub fn num_threads() -> usize {
    let mut num_threads = NUM_THREADS.lock().unwrap_or_else(PoisonError::into_inner);
    if *num_threads == 0 {
        *num_threads = build_pool(std::thread::available_parallelism().map_or(1, usize::from));
    }
    *num_threads
}

/// The threads that the pool has; it may have been built already by others in this process.
fn build_pool(n: usize) -> usize {
    let builder = rayon::ThreadPoolBuilder::new().num_threads(n);
    match builder.thread_name(|i| format!("pagurid-{i}")).build_global() {
        Ok(()) => n,
        Err(_) => rayon::current_num_threads(),
    }
}

/// Calls `work(piece)` once for each piece, on about `num_threads` threads; returns when all is done.
/// A panic of `work` goes on in the caller, after the other threads have stopped.
pub fn for_each_piece(num_threads: usize, pieces: usize, work: &(dyn Fn(usize) + Sync)) {
    let helpers = num_threads.min(pieces).saturating_sub(1);
    if helpers == 0 {
        (0..pieces).for_each(work);
        return;
    }
    // SAFETY: only the lifetime is dropped. `close` returns once no helper is inside, and no helper gets in later,
    // so `work` outlives its last use.
    let work =
        unsafe { std::mem::transmute::<&(dyn Fn(usize) + Sync), &'static (dyn Fn(usize) + Sync)>(work) };
    let job = Arc::new(Job {
        work,
        pieces,
        next: AtomicUsize::new(0),
        inside: AtomicUsize::new(0),
        panic: Mutex::new(None),
    });
    let waiting = publish(&job);
    for _ in waiting..helpers {
        let job = Arc::clone(&job);
        rayon::spawn(move || serve(job));
    }
    job.take_pieces();
    job.close();
    let panic = job.panic.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(payload) = panic {
        resume_unwind(payload);
    }
}

/// How long a helper that is done stays awake: longer than from one kernel of a step to the next.
const PATIENCE: Duration = Duration::from_micros(50);

/// The last job, for helpers that are awake. It may be closed long since; then they leave it at once.
static LATEST: Mutex<Option<Arc<Job>>> = Mutex::new(None);
/// Counts what was put in `LATEST`.
static PUBLISHED: AtomicUsize = AtomicUsize::new(0);
/// Helpers that look at `PUBLISHED`.
static WAITING: AtomicUsize = AtomicUsize::new(0);

/// Shows a job to the helpers that wait, and returns how many there are. Those come: a helper that gives up first
/// takes itself off `WAITING`, then looks at `PUBLISHED` once more, and here the order is the other way round; all
/// four are `SeqCst`, so one of the two sees the other.
fn publish(job: &Arc<Job>) -> usize {
    *LATEST.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(job));
    PUBLISHED.fetch_add(1, Ordering::SeqCst);
    WAITING.load(Ordering::SeqCst)
}

/// A helper's life: a job, and those that come soon after.
fn serve(mut job: Arc<Job>) {
    loop {
        let seen = PUBLISHED.load(Ordering::SeqCst);
        job.help();
        WAITING.fetch_add(1, Ordering::SeqCst);
        let start = Instant::now();
        while PUBLISHED.load(Ordering::SeqCst) == seen && start.elapsed() < PATIENCE {
            std::hint::spin_loop();
        }
        WAITING.fetch_sub(1, Ordering::SeqCst);
        if PUBLISHED.load(Ordering::SeqCst) == seen {
            return;
        }
        match LATEST.lock().unwrap_or_else(PoisonError::into_inner).clone() {
            Some(next) => job = next,
            None => return,
        }
    }
}

/// Set in `Job::inside` when nobody may come in any more; below it is the number of helpers inside.
const CLOSED: usize = 1 << (usize::BITS - 1);

struct Job {
    work: &'static (dyn Fn(usize) + Sync),
    pieces: usize,
    next: AtomicUsize,
    inside: AtomicUsize,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

impl Job {
    fn help(&self) {
        // Pairs with the fetch_or in `close`: one of the two comes first, so either the caller waits for this
        // helper or this helper sees CLOSED.
        if self.inside.fetch_add(1, Ordering::Acquire) & CLOSED == 0 {
            self.take_pieces();
        }
        // Release: the caller's Acquire load in `close` sees what the pieces wrote.
        self.inside.fetch_sub(1, Ordering::Release);
    }

    fn take_pieces(&self) {
        let result = catch_unwind(AssertUnwindSafe(|| {
            loop {
                // Relaxed: only the number matters, the pieces share no memory.
                let piece = self.next.fetch_add(1, Ordering::Relaxed);
                if piece >= self.pieces {
                    break;
                }
                (self.work)(piece);
            }
        }));
        if let Err(payload) = result {
            self.next.store(self.pieces, Ordering::Relaxed); // nobody starts another piece
            self.panic.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(payload);
        }
    }

    /// Lets nobody in any more, and waits for those inside: each has at most a piece to finish.
    fn close(&self) {
        self.inside.fetch_or(CLOSED, Ordering::AcqRel);
        let mut turns = 0u32;
        while self.inside.load(Ordering::Acquire) != CLOSED {
            // A piece takes some ten µs, so spinning pays; but the helper may need this very core.
            if turns < 2000 {
                turns += 1;
                std::hint::spin_loop();
            } else {
                std::thread::yield_now();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[test]
    fn every_piece_runs_once() {
        for num_threads in [1, 2, 3, 8] {
            for pieces in [0, 1, 2, 7, 500] {
                let counts: Vec<AtomicU32> = (0..pieces).map(|_| AtomicU32::new(0)).collect();
                for_each_piece(num_threads, pieces, &|i| {
                    counts[i].fetch_add(1, Ordering::Relaxed);
                });
                assert!(counts.iter().all(|c| c.load(Ordering::Relaxed) == 1));
            }
        }
    }

    #[test]
    fn calls_one_after_the_other_and_side_by_side_stay_apart() {
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for round in 0..3000 {
                        let sum = AtomicUsize::new(0);
                        for_each_piece(3, 5, &|i| {
                            sum.fetch_add(i + round, Ordering::Relaxed);
                        });
                        assert_eq!(sum.into_inner(), 10 + 5 * round);
                        if round % 500 == 0 {
                            std::thread::sleep(2 * PATIENCE); // helpers fall asleep
                        }
                    }
                });
            }
        });
    }

    #[test]
    fn a_panic_reaches_the_caller_and_the_pool_still_works() {
        for bad_piece in 0..20 {
            let result = catch_unwind(|| {
                for_each_piece(3, 20, &|i| assert!(i != bad_piece, "piece {i} is bad"));
            });
            let payload = result.unwrap_err();
            assert_eq!(payload.downcast_ref::<String>(), Some(&format!("piece {bad_piece} is bad")));
        }
        every_piece_runs_once();
    }

    #[test]
    fn a_thread_count_out_of_range_is_refused() {
        for n in [0, MAX_THREADS + 1] {
            assert!(set_num_threads(n).unwrap_err().0.contains(&format!("got {n}")));
        }
    }
}
