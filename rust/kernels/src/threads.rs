//! Sharing a kernel's work among threads, in small pieces that whoever is free takes.
//!
//! Owns: how many threads kernels use, and the pool that they share.
//! Invariants: which thread computes a piece never changes its bits; a call never waits for a piece that nobody has
//! begun, so it ends even where there is no other thread at all.
//! Must not know: what a piece computes.

mod pool;

use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::{ptr, thread};

use crate::InvalidArgument;
use pool::Pool;

/// Threads of the pool; 0 until it is first asked for.
static NUM_THREADS: AtomicUsize = AtomicUsize::new(0);

/// More would be a mistake in a unit.
const MAX_THREADS: usize = 1024;

/// Sizes the pool. Once: what was planned for a number of threads stays so.
pub fn set_num_threads(n: usize) -> Result<(), InvalidArgument> {
    if !(1..=MAX_THREADS).contains(&n) {
        return Err(InvalidArgument(format!("num_threads must be in 1..={MAX_THREADS}; got {n}")));
    }
    match fix_num_threads(n) {
        fixed if fixed == n => Ok(()),
        fixed => Err(InvalidArgument(format!(
            "num_threads was fixed at {fixed} when the kernels were first used; got {n}"
        ))),
    }
}

/// Threads that kernels use; all cores that this process may run on, if nobody said otherwise.
pub fn num_threads() -> usize {
    // Relaxed, here and below: nothing but the number depends on it.
    match NUM_THREADS.load(Ordering::Relaxed) {
        0 => fix_num_threads(thread::available_parallelism().map_or(1, usize::from).min(MAX_THREADS)),
        fixed => fixed,
    }
}

/// The number that was there first.
fn fix_num_threads(n: usize) -> usize {
    NUM_THREADS.compare_exchange(0, n, Ordering::Relaxed, Ordering::Relaxed).map_or_else(|fixed| fixed, |_| n)
}

/// Calls `work(piece)` once for each piece, on up to `num_threads` threads; returns when all is done.
/// Within a piece, or while another caller has the pool, one thread does it all: the caller's.
/// A panic of `work` goes on in the caller, after the other threads have stopped.
pub fn for_each_piece(num_threads: usize, pieces: usize, work: &(dyn Fn(usize) + Sync)) {
    let threads = num_threads.min(pieces);
    if threads < 2 {
        (0..pieces).for_each(work);
    } else {
        pool().for_each_piece(threads, pieces, work);
    }
}

/// The pool of this process: null until its first use, and again in a forked child, which has no thread but one.
static POOL: AtomicPtr<Pool> = AtomicPtr::new(ptr::null_mut());

fn pool() -> &'static Pool {
    // Acquire pairs with the Release in `start_pool`.
    let pool = POOL.load(Ordering::Acquire);
    // SAFETY: what was put there is never freed.
    unsafe { pool.as_ref() }.unwrap_or_else(start_pool)
}

#[cold]
fn start_pool() -> &'static Pool {
    forget_the_pool_in_forked_children();
    let new = Box::into_raw(Box::new(Pool::new(num_threads())));
    // Release pairs with the Acquire in `pool`, Acquire with this Release in another thread.
    match POOL.compare_exchange(ptr::null_mut(), new, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => {
            // SAFETY: it is never freed.
            let pool = unsafe { &*new };
            pool.start_workers();
            pool
        }
        Err(first) => {
            // SAFETY: nobody else has seen ours; the first one is never freed.
            unsafe {
                drop(Box::from_raw(new));
                &*first
            }
        }
    }
}

/// A child has a copy of the pool's memory, perhaps of the middle of a call, and none of the workers. It leaves that
/// copy alone and starts a pool of its own.
fn forget_the_pool_in_forked_children() {
    #[cfg(unix)]
    {
        use std::sync::atomic::AtomicBool;

        type Handler = extern "C" fn();
        // SAFETY: the declaration of POSIX.
        unsafe extern "C" {
            fn pthread_atfork(
                before: Option<Handler>,
                parent: Option<Handler>,
                child: Option<Handler>,
            ) -> i32;
        }
        extern "C" fn forget() {
            POOL.store(ptr::null_mut(), Ordering::Relaxed); // the child has one thread
        }
        static IS_REGISTERED: AtomicBool = AtomicBool::new(false);
        // Relaxed: who comes second need not wait. A child forked meanwhile works alone, for its callers do all.
        if !IS_REGISTERED.swap(true, Ordering::Relaxed) {
            // SAFETY: the handler is async-signal-safe: one store. Without memory for it, children work alone.
            unsafe { pthread_atfork(None, None, Some(forget)) };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    #[test]
    fn every_piece_runs_once() {
        for num_threads in [1, 2, 3, 8] {
            for pieces in [0, 1, 2, 7, 500] {
                let counts: Vec<AtomicUsize> = (0..pieces).map(|_| AtomicUsize::new(0)).collect();
                for_each_piece(num_threads, pieces, &|i| {
                    counts[i].fetch_add(1, Ordering::Relaxed);
                });
                assert!(counts.iter().all(|count| count.load(Ordering::Relaxed) == 1));
            }
        }
    }

    #[test]
    fn all_use_one_pool_and_one_number_of_threads() {
        let pools: Vec<usize> = thread::scope(|scope| {
            let callers: Vec<_> = (0..4).map(|_| scope.spawn(|| ptr::from_ref(pool()).addr())).collect();
            callers.into_iter().map(|caller| caller.join().unwrap()).collect()
        });
        assert!(pools.iter().all(|&pool| pool == pools[0]));
        assert!(set_num_threads(num_threads()).is_ok());
        let message = set_num_threads(num_threads() + 1).unwrap_err().0;
        assert!(message.contains(&format!("fixed at {}", num_threads())), "{message}");
    }

    #[test]
    fn a_thread_count_out_of_range_is_refused() {
        for n in [0, MAX_THREADS + 1] {
            assert!(set_num_threads(n).unwrap_err().0.contains(&format!("got {n}")));
        }
    }

    /// Forked in the middle of a call of another thread: the child does not inherit that call.
    #[cfg(all(unix, not(miri)))]
    #[test]
    fn a_forked_child_has_a_pool_of_its_own() {
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    for_each_piece(2, 8, &|_| thread::yield_now());
                }
            });
            for _ in 0..20 {
                for_each_piece(2, 2, &|_| ());
                // SAFETY: the child calls what this test is about, which must work there, and ends.
                let child = unsafe { libc::fork() };
                if child == 0 {
                    let done = AtomicUsize::new(0);
                    for_each_piece(2, 100, &|_| {
                        thread::yield_now();
                        done.fetch_add(1, Ordering::Relaxed);
                    });
                    // SAFETY: ends the process without what Rust or C would do at exit.
                    unsafe { libc::_exit(if done.into_inner() == 100 { 42 } else { 1 }) };
                }
                assert!(child > 0);
                let mut status = 0;
                // SAFETY: our child, our variable.
                assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
                assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 42, "status {status}");
            }
            stop.store(true, Ordering::Relaxed);
        });
    }
}
