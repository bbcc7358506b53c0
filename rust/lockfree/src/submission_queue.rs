//! The bounded queue between the door and the scheduler: many submitters, one drain, no lock.
//!
//! Owns: the count of items that wait (here or, popped, with the consumer), which is what the bound is about.
//! Invariant: a reserved place always finds room, because the ring is as large as the bound, and because a place is
//! left after its item was popped: `leave` (Release) → `reserve` (Acquire) → `push`.
//! Must not know: what a request is.

use crate::bounded_queue::BoundedQueue;
use crate::padded::Padded;
use crate::sync::atomic::{AtomicUsize, Ordering};

/// Bounded lock-free queue whose bound counts until `leave`, not until `pop`.
pub struct SubmissionQueue<T> {
    ring: BoundedQueue<T>,
    waiting: Padded<AtomicUsize>,
}

impl<T> SubmissionQueue<T> {
    /// A queue for at most `bound` waiting items.
    pub fn new(bound: usize) -> Self {
        Self { ring: BoundedQueue::new(bound), waiting: Padded(AtomicUsize::new(0)) }
    }

    /// The bound.
    pub fn bound(&self) -> usize {
        self.ring.capacity()
    }

    /// Items that wait.
    pub fn num_waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Takes a place; gives how many are ahead, or None when the queue is full.
    pub fn reserve(&self) -> Option<usize> {
        let bound = self.bound();
        let enter = |waiting: usize| (waiting < bound).then_some(waiting + 1);
        // Acquire pairs with the Release in `leave`: the ring's cell is known to be empty when the place is.
        self.waiting.fetch_update(Ordering::Acquire, Ordering::Relaxed, enter).ok()
    }

    /// Puts an item on a reserved place.
    ///
    /// # Panics
    /// If more items are pushed than places were reserved.
    pub fn push(&self, item: T) {
        let pushed = self.ring.push(item).is_ok();
        assert!(pushed, "a reserved place has room in the ring");
    }

    /// The oldest item; its place stays taken until `leave`.
    pub fn pop(&self) -> Option<T> {
        self.ring.pop()
    }

    /// Items that are not popped yet.
    pub fn len(&self) -> usize {
        self.ring.len()
    }

    /// Whether there is nothing to pop.
    pub fn is_empty(&self) -> bool {
        self.ring.is_empty()
    }

    /// A popped item waits no longer.
    pub fn leave(&self) {
        // Release pairs with the Acquire in `reserve`.
        self.waiting.fetch_sub(1, Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_bound_counts_until_an_item_leaves() {
        let queue = SubmissionQueue::new(2);
        for ahead in 0..2 {
            assert_eq!(queue.reserve(), Some(ahead));
            queue.push(ahead);
        }
        assert_eq!(queue.reserve(), None);
        assert_eq!(queue.pop(), Some(0));
        assert_eq!(queue.reserve(), None, "popped, but still waiting");
        queue.leave();
        assert_eq!(queue.reserve(), Some(1));
        queue.push(7);
        assert_eq!((queue.pop(), queue.pop(), queue.pop()), (Some(1), Some(7), None));
    }

    #[test]
    fn concurrent_submitters_never_pass_the_bound() {
        let queue = SubmissionQueue::new(64);
        let accepted: usize = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(|| {
                        let mut accepted = 0;
                        for item in 0..100 {
                            if queue.reserve().is_some() {
                                queue.push(item);
                                accepted += 1;
                            }
                        }
                        accepted
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!((accepted, queue.len()), (64, 64));
    }
}
