//! A bounded ring: any thread pushes, one thread pops, nobody waits for anybody.
//!
//! Owns: the cells and the two counters of tickets. Ticket t belongs to cell t mod capacity, in lap t / capacity.
//! Invariants: a cell's stamp is 2 × lap while it is empty for that lap and 2 × lap + 1 while it is full, so that
//! whoever holds the ticket, and nobody else, may touch the value; items leave in the order of their tickets.
//! Pushing is lock-free, popping wait-free for one consumer (more are safe, but may have to try again).
//! Must not know: what the items are.

use std::mem::MaybeUninit;

use crate::padded::Padded;
use crate::sync::UnsafeCell;
use crate::sync::atomic::{AtomicUsize, Ordering};

struct Cell<T> {
    stamp: AtomicUsize,
    value: UnsafeCell<MaybeUninit<T>>,
}

/// A ring of any capacity from 1.
pub struct BoundedQueue<T> {
    cells: Box<[Cell<T>]>,
    /// The next ticket to pop.
    head: Padded<AtomicUsize>,
    /// The next ticket to push.
    tail: Padded<AtomicUsize>,
}

// SAFETY: a value is moved in by one thread and out by another, never looked at by two: `T: Send` is enough.
unsafe impl<T: Send> Send for BoundedQueue<T> {}
// SAFETY: as above; the stamps see to it that only the holder of a ticket touches the cell.
unsafe impl<T: Send> Sync for BoundedQueue<T> {}

impl<T> BoundedQueue<T> {
    /// An empty ring for `capacity` items.
    ///
    /// # Panics
    /// If `capacity` is 0.
    pub fn new(capacity: usize) -> Self {
        assert!(capacity > 0, "a queue holds at least one item");
        let empty = || Cell { stamp: AtomicUsize::new(0), value: UnsafeCell::new(MaybeUninit::uninit()) };
        Self {
            cells: (0..capacity).map(|_| empty()).collect(),
            head: Padded(AtomicUsize::new(0)),
            tail: Padded(AtomicUsize::new(0)),
        }
    }

    /// The most items there can be.
    pub fn capacity(&self) -> usize {
        self.cells.len()
    }

    /// The cell of a ticket and its stamp while it waits for the ticket's push.
    fn cell(&self, ticket: usize) -> (&Cell<T>, usize) {
        (&self.cells[ticket % self.cells.len()], ticket / self.cells.len() * 2)
    }

    /// Adds an item behind all others, or gives it back if the ring is full.
    pub fn push(&self, item: T) -> Result<(), T> {
        // Acquire, here and on failure, pairs with the Release below: who builds on another's ticket knows of the
        // pops that the other knew of. So a push that comes after a pop (in any way) never finds the ring full.
        let mut ticket = self.tail.load(Ordering::Acquire);
        loop {
            let (cell, empty) = self.cell(ticket);
            // Acquire pairs with the Release in `pop`: the last lap's value is out before ours goes in.
            let stamp = cell.stamp.load(Ordering::Acquire);
            if stamp < empty {
                return Err(item);
            }
            if stamp > empty {
                // Another push was faster.
                ticket = self.tail.load(Ordering::Acquire);
                continue;
            }
            let next = ticket + 1;
            match self.tail.compare_exchange_weak(ticket, next, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => {
                    // SAFETY: the ticket is ours and its cell empty: nobody touches the value until the stamp says so.
                    cell.value.with_mut(|value| unsafe { (*value).write(item) });
                    // Release pairs with the Acquire in `pop`: the value comes before the stamp.
                    cell.stamp.store(empty + 1, Ordering::Release);
                    return Ok(());
                }
                Err(now) => ticket = now,
            }
        }
    }

    /// The oldest item; None if there is none, or if its push is not done yet.
    pub fn pop(&self) -> Option<T> {
        // Relaxed: the stamp tells whether the ticket's item is there, the exchange whose it is.
        let mut ticket = self.head.load(Ordering::Relaxed);
        loop {
            let (cell, empty) = self.cell(ticket);
            // Acquire pairs with the Release in `push`.
            if cell.stamp.load(Ordering::Acquire) != empty + 1 {
                return None;
            }
            match self.head.compare_exchange(ticket, ticket + 1, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => {
                    // SAFETY: the ticket is ours and its cell full: the value is written and nobody else reads it.
                    let item = cell.value.with_mut(|value| unsafe { (*value).assume_init_read() });
                    // Release pairs with the Acquire in `push`: the value is out before the next goes in.
                    cell.stamp.store(empty + 2, Ordering::Release);
                    return Some(item);
                }
                Err(now) => ticket = now,
            }
        }
    }

    /// Items that are there or under way. A glance: it may be out of date at once.
    pub fn len(&self) -> usize {
        let head = self.head.load(Ordering::Relaxed);
        self.tail.load(Ordering::Relaxed).saturating_sub(head)
    }

    /// Whether `pop` would give nothing.
    pub fn is_empty(&self) -> bool {
        let (cell, empty) = self.cell(self.head.load(Ordering::Relaxed));
        cell.stamp.load(Ordering::Acquire) != empty + 1
    }
}

impl<T> Drop for BoundedQueue<T> {
    fn drop(&mut self) {
        while self.pop().is_some() {}
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn items_leave_in_order_through_many_laps_of_any_size() {
        for capacity in 1..6 {
            let queue = BoundedQueue::new(capacity);
            for lap in 0..5 {
                for item in 0..capacity {
                    assert_eq!(queue.push((lap, item)), Ok(()));
                }
                assert_eq!(queue.push((9, 9)), Err((9, 9)), "full");
                assert_eq!((queue.len(), queue.is_empty()), (capacity, false));
                for item in 0..capacity {
                    assert_eq!(queue.pop(), Some((lap, item)));
                }
                assert_eq!((queue.pop(), queue.len(), queue.is_empty()), (None, 0, true));
            }
        }
    }

    #[test]
    fn what_is_left_is_dropped_with_the_queue() {
        let item = Arc::new(());
        let queue = BoundedQueue::new(3);
        for _ in 0..3 {
            queue.push(Arc::clone(&item)).unwrap();
        }
        drop(queue.pop());
        assert_eq!(Arc::strong_count(&item), 3);
        drop(queue);
        assert_eq!(Arc::strong_count(&item), 1);
    }
}
