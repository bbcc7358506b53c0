//! Sleep and wake-up of many threads that wait for the same thing, without a lock and without a lost wake-up.
//!
//! Owns: who sleeps. Invariant: work that was published before `wake` is either seen by the sleeper's last look, or
//! the sleeper's bit is seen by `wake`: both sides write, pass a sequentially consistent fence, then read what the other
//! wrote. Waking costs a fence and a load when nobody sleeps, and takes the bits it wakes, so that nobody is woken twice.
//! Must not know: what the work is.

use std::sync::OnceLock;

use crate::sync::atomic::{AtomicU64, Ordering, fence};
use crate::sync::thread::{self, Thread};

const BITS: usize = u64::BITS as usize;

/// Threads with numbers from 0, each of which sleeps under its own.
pub struct Sleepers {
    /// A bit for each thread: set by itself, cleared by whoever wakes it.
    asleep: Box<[AtomicU64]>,
    threads: Box<[OnceLock<Thread>]>,
}

impl Sleepers {
    /// For the numbers below `num_threads`.
    pub fn new(num_threads: usize) -> Self {
        Self {
            asleep: (0..num_threads.div_ceil(BITS)).map(|_| AtomicU64::new(0)).collect(),
            threads: (0..num_threads).map(|_| OnceLock::new()).collect(),
        }
    }

    /// Parks thread number `number`, which must be the caller's own, until it is woken; not at all if `has_work`.
    pub fn sleep(&self, number: usize, has_work: impl Fn() -> bool) {
        let (word, bit) = (&self.asleep[number / BITS], 1 << (number % BITS));
        self.threads[number].get_or_init(thread::current);
        // Release pairs with the Acquire in `wake`: whoever finds the bit finds the thread.
        word.fetch_or(bit, Ordering::Release);
        // Pairs with the fence in `wake`: whatever was published before it is seen by the look below.
        fence(Ordering::SeqCst);
        if has_work() {
            // If somebody has woken us meanwhile, a later park ends early and looks at its bit.
            word.fetch_and(!bit, Ordering::Relaxed);
            return;
        }
        // Relaxed: what we were woken for orders itself.
        while word.load(Ordering::Relaxed) & bit != 0 {
            thread::park();
        }
    }

    /// Wakes up to `at_most` sleepers with numbers below `below`. Call after the work is published.
    pub fn wake(&self, below: usize, at_most: usize) {
        // Pairs with the fence in `sleep`.
        fence(Ordering::SeqCst);
        let mut left = at_most;
        for (word, first) in self.asleep.iter().zip((0..below).step_by(BITS)) {
            let numbers = if below - first < BITS { (1 << (below - first)) - 1 } else { u64::MAX };
            while left > 0 {
                let asleep = word.load(Ordering::Relaxed) & numbers;
                if asleep == 0 {
                    break;
                }
                let number = first + asleep.trailing_zeros() as usize;
                let bit = asleep & asleep.wrapping_neg();
                // Acquire pairs with the Release in `sleep`.
                if word.fetch_and(!bit, Ordering::Acquire) & bit != 0
                    && let Some(thread) = self.threads[number].get()
                {
                    thread.unpark();
                    left -= 1;
                }
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    #[test]
    fn as_many_wake_as_are_asked_for_lowest_numbers_first() {
        const THREADS: usize = 2 * BITS + 3;
        let sleepers = Sleepers::new(THREADS);
        let woken: Vec<AtomicUsize> = (0..THREADS).map(|_| AtomicUsize::new(0)).collect();
        let asleep =
            || -> u32 { sleepers.asleep.iter().map(|word| word.load(Ordering::Relaxed).count_ones()).sum() };
        std::thread::scope(|scope| {
            for number in 0..THREADS {
                let (sleepers, woken) = (&sleepers, &woken);
                scope.spawn(move || {
                    sleepers.sleep(number, || false);
                    woken[number].store(1, Ordering::Relaxed);
                });
            }
            let wait_for = |count| {
                while woken.iter().filter(|woken| woken.load(Ordering::Relaxed) == 1).count() < count {
                    thread::yield_now();
                }
            };
            while asleep() < THREADS as u32 {
                thread::yield_now();
            }
            sleepers.wake(THREADS, 0);
            sleepers.wake(0, THREADS);
            assert_eq!(asleep(), THREADS as u32);
            sleepers.wake(BITS + 1, 2);
            wait_for(2);
            assert!(woken[..2].iter().all(|woken| woken.load(Ordering::Relaxed) == 1));
            sleepers.wake(BITS + 1, THREADS);
            wait_for(BITS + 1);
            assert!(woken[..=BITS].iter().all(|woken| woken.load(Ordering::Relaxed) == 1));
            assert_eq!(asleep(), (THREADS - BITS - 1) as u32);
            sleepers.wake(THREADS, THREADS);
        });
        assert_eq!(asleep(), 0);
    }

    #[test]
    fn who_has_work_does_not_sleep() {
        let sleepers = Sleepers::new(1);
        sleepers.sleep(0, || true);
        sleepers.wake(1, 1);
        assert_eq!(sleepers.asleep[0].load(Ordering::Relaxed), 0);
    }

    #[test]
    fn no_wake_up_is_lost_between_two_threads() {
        const ROUNDS: usize = 20_000;
        let sleepers = Sleepers::new(1);
        let (published, taken) = (AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 0..ROUNDS {
                    while published.load(Ordering::Acquire) <= round {
                        sleepers.sleep(0, || published.load(Ordering::Relaxed) > round);
                    }
                    taken.store(round + 1, Ordering::Release);
                }
            });
            for round in 0..ROUNDS {
                published.store(round + 1, Ordering::Release);
                sleepers.wake(1, 1);
                while taken.load(Ordering::Acquire) <= round {
                    thread::yield_now();
                }
            }
        });
    }
}
