//! Sleep and wake-up of one thread, without a lock and without a lost wake-up.
//!
//! Owns: the sleeper's handle and the flag of an explicit wake.
//! Invariant: work that was published before `notify` is either seen by the sleeper's re-check, or its handle is
//! seen by `notify`: both sides write, pass a sequentially consistent fence, then read what the other wrote.
//! Must not know: what the work is.

use std::time::{Duration, Instant};

use crate::mailbox::Mailbox;
use crate::padded::Padded;
use crate::sync::atomic::{AtomicBool, Ordering, fence};
use crate::sync::park_timeout;
use crate::sync::thread::{self, Thread};

/// At most one thread at a time sleeps here; any thread may wake it.
#[derive(Default)]
pub struct WakeUp {
    /// Empty unless somebody sleeps, so that waking a busy thread costs a fence and a load. Whoever takes the handle
    /// owns it: it cannot go away in the hands of one who wakes.
    sleeper: Padded<Mailbox<Thread>>,
    is_woken: AtomicBool,
}

impl WakeUp {
    /// Wakes the sleeper, if there is one. Call after the work is published.
    pub fn notify(&self) {
        // Pairs with the fence in `sleep`.
        fence(Ordering::SeqCst);
        if !self.sleeper.is_empty()
            && let Some(thread) = self.sleeper.take()
        {
            thread.unpark();
        }
    }

    /// Ends the current `sleep`, or the next one, early.
    pub fn wake(&self) {
        // A swap, as in `sleep`: so that one of them comes first, in loom's eyes too.
        self.is_woken.swap(true, Ordering::Relaxed);
        self.notify();
    }

    /// Parks until `has_work`, an explicit wake, or the timeout; returns whether there is work.
    pub fn sleep(&self, timeout: Duration, has_work: impl Fn() -> bool) -> bool {
        let deadline = Instant::now().checked_add(timeout);
        loop {
            if has_work() {
                return true;
            }
            if self.is_woken.swap(false, Ordering::Relaxed) {
                return false;
            }
            let left = match deadline {
                Some(deadline) => deadline.saturating_duration_since(Instant::now()),
                None => Duration::from_secs(3600),
            };
            if left.is_zero() {
                return false;
            }
            self.sleeper.store(Box::new(thread::current()));
            // Pairs with the fence in `notify`: whatever was published before it is seen by the check below.
            fence(Ordering::SeqCst);
            if !has_work() && !self.is_woken.load(Ordering::Relaxed) {
                park_timeout(left);
            }
            drop(self.sleeper.take());
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;

    #[test]
    fn no_wake_up_is_lost_between_two_threads() {
        // One permit at a time goes back and forth; a lost wake-up would hang for the (long) timeout and fail.
        const ROUNDS: usize = 20_000;
        let wake = Arc::new(WakeUp::default());
        let published = Arc::new(AtomicUsize::new(0));
        let taken = Arc::new(AtomicUsize::new(0));
        let sleeper = thread::spawn({
            let (wake, published, taken) = (wake.clone(), published.clone(), taken.clone());
            move || {
                for round in 0..ROUNDS {
                    let woke =
                        wake.sleep(Duration::from_secs(60), || published.load(Ordering::Acquire) > round);
                    assert!(woke);
                    taken.store(round + 1, Ordering::Release);
                }
            }
        });
        for round in 0..ROUNDS {
            published.store(round + 1, Ordering::Release);
            wake.notify();
            while taken.load(Ordering::Acquire) <= round {
                thread::yield_now();
            }
        }
        sleeper.join().unwrap();
    }

    #[test]
    fn an_early_wake_is_kept_and_ends_one_sleep() {
        let wake = WakeUp::default();
        wake.wake();
        assert!(!wake.sleep(Duration::from_secs(60), || false));
        assert!(!wake.sleep(Duration::ZERO, || false));
        assert!(wake.sleep(Duration::ZERO, || true));
    }
}
