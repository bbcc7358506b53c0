//! A stack of slot indices: the slots that are vacant, given back and taken by any thread.
//!
//! Owns: the head. The links lie in the slots (`StackLink`), so that the table of slots can grow.
//! Invariant: every pop changes the head's tag, so that a pop that has read a link which is out of date fails,
//! although the same slot may be on top again (ABA).
//! Must not know: what a slot is.

use crate::padded::Padded;
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// No slot has this index.
const END: u32 = u32::MAX;
const ONE_POP: u64 = 1 << 32;

/// A slot's place in one stack.
#[derive(Default)]
pub struct StackLink {
    below: AtomicU32,
}

/// Indices, last in first out.
pub struct IndexStack {
    /// pops so far << 32 | index on top
    head: Padded<AtomicU64>,
}

impl Default for IndexStack {
    fn default() -> Self {
        Self { head: Padded(AtomicU64::new(END as u64)) }
    }
}

impl IndexStack {
    /// Puts `index`, whose `link` in this stack it is and which is not in it, on top.
    pub fn push(&self, index: u32, link: &StackLink) {
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            link.below.store(head as u32, Ordering::Relaxed);
            let next = head & !(END as u64) | index as u64;
            // Release pairs with the Acquire in `pop`: the link, and all that was done to the slot, comes first.
            match self.head.compare_exchange_weak(head, next, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }

    /// Takes the index on top.
    pub fn pop<'a>(&self, link_of: impl Fn(u32) -> &'a StackLink) -> Option<u32> {
        // Acquire pairs with the Release in `push`; all changes are read-modify-writes, so that whoever pushed the
        // slot that is on top now is among those we pair with.
        let mut head = self.head.load(Ordering::Acquire);
        loop {
            let index = head as u32;
            if index == END {
                return None;
            }
            // Perhaps another has popped the slot and pushes it right now: then the tag has changed.
            let below = link_of(index).below.load(Ordering::Relaxed);
            let next = (head & !(END as u64)).wrapping_add(ONE_POP) | below as u64;
            match self.head.compare_exchange_weak(head, next, Ordering::Acquire, Ordering::Acquire) {
                Ok(_) => return Some(index),
                Err(now) => head = now,
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_last_slot_in_is_the_first_out() {
        let (stack, links) = (IndexStack::default(), <[StackLink; 3]>::default());
        let pop = || stack.pop(|index| &links[index as usize]);
        assert_eq!(pop(), None);
        for index in [1, 0, 2] {
            stack.push(index, &links[index as usize]);
        }
        assert_eq!(pop(), Some(2));
        stack.push(2, &links[2]);
        assert_eq!((pop(), pop(), pop(), pop()), (Some(2), Some(0), Some(1), None));
    }
}
