//! Numbers that one thread writes and any thread reads whole, without the writer ever waiting.
//!
//! Owns: the numbers and their version. Invariant: the version is odd while a write is under way and changes with
//! each, so that a reader who finds the same even version before and after has seen the numbers of one moment.
//! Must not know: what the numbers count.

use crate::sync::atomic::{AtomicU64, Ordering, fence};
use crate::sync::hint;

/// `N` numbers of one moment.
pub struct SeqLock<const N: usize> {
    version: AtomicU64,
    numbers: [AtomicU64; N],
}

impl<const N: usize> Default for SeqLock<N> {
    fn default() -> Self {
        Self { version: AtomicU64::new(0), numbers: std::array::from_fn(|_| AtomicU64::new(0)) }
    }
}

impl<const N: usize> SeqLock<N> {
    /// The one writer: shows `numbers` to the readers. Wait-free.
    pub fn publish(&self, numbers: &[u64; N]) {
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version + 1, Ordering::Relaxed);
        // Pairs with the fence in `read`: who sees a new number sees the odd version, too.
        fence(Ordering::Release);
        for (shared, &number) in self.numbers.iter().zip(numbers) {
            shared.store(number, Ordering::Relaxed);
        }
        // Release pairs with the Acquire load in `read`: who sees this version sees its numbers.
        self.version.store(version + 2, Ordering::Release);
    }

    /// The last published numbers. Tries again while a write is under way.
    pub fn read(&self) -> [u64; N] {
        loop {
            let version = self.version.load(Ordering::Acquire);
            let numbers = std::array::from_fn(|index| self.numbers[index].load(Ordering::Relaxed));
            // Pairs with the fence in `publish`.
            fence(Ordering::Acquire);
            if version.is_multiple_of(2) && self.version.load(Ordering::Relaxed) == version {
                return numbers;
            }
            hint::spin_loop();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn readers_see_what_was_published_last() {
        let shared = SeqLock::default();
        assert_eq!(shared.read(), [0, 0]);
        shared.publish(&[1, 2]);
        shared.publish(&[3, 4]);
        assert_eq!(shared.read(), [3, 4]);
    }
}
