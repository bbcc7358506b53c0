//! The way of what a step gives from the engine thread to the one consumer: a batch at a time, and nobody ever waits.
//!
//! Owns: the batch that is on its way, the emptied one that comes back, and whether the consumer holds anything that it
//! has not announced yet. While the consumer sleeps, one batch grows.
//! Invariants: what is received is all that was sent since, in order; after a send, `has_news` is true until the
//! consumer has both received that and announced it, so that a wake-up on `has_news` is never missing.
//! Must not know: what a batch holds.

use crate::mailbox::Mailbox;
use crate::sync::atomic::{AtomicBool, Ordering};

/// What is collected on one side and emptied on the other.
pub trait Batch: Default {
    /// Whether there is nothing in it.
    fn is_empty(&self) -> bool;
    /// Moves all of `later` to its end.
    fn append(&mut self, later: &mut Self);
    /// Empties it and keeps its memory.
    fn clear(&mut self);
}

/// See the module.
pub struct BatchChannel<B> {
    batch: Mailbox<B>,
    spare: Mailbox<B>,
    has_unannounced: AtomicBool,
}

impl<B> Default for BatchChannel<B> {
    fn default() -> Self {
        Self { batch: Mailbox::default(), spare: Mailbox::default(), has_unannounced: AtomicBool::new(false) }
    }
}

impl<B: Batch> BatchChannel<B> {
    /// Sender: hands over `batch`, which is empty afterwards.
    pub fn send(&self, batch: &mut Box<B>) {
        if batch.is_empty() {
            return;
        }
        if let Some(mut earlier) = self.batch.take() {
            // The consumer has not looked since the last time: it gets both at once.
            earlier.append(batch);
            self.batch.store(earlier);
        } else {
            let next = self.spare.take().unwrap_or_default();
            self.batch.store(std::mem::replace(batch, next));
        }
    }

    /// Consumer: all that was sent since, if anything. What it holds is unannounced from now on.
    pub fn receive(&self, empty: impl FnOnce(&mut B)) {
        if self.batch.is_empty() {
            return;
        }
        // Before the batch is taken: who finds the mailbox empty because of that finds the flag up. Relaxed: the
        // Release of the take publishes it, paired with the Acquire in `has_news`.
        self.has_unannounced.store(true, Ordering::Relaxed);
        if let Some(mut batch) = self.batch.take() {
            empty(&mut batch);
            batch.clear();
            self.spare.store(batch);
        }
    }

    /// Consumer: all that it received is announced.
    pub fn announced(&self) {
        // Release pairs with the Acquire in `has_news`: whoever finds the flag down finds the announcement.
        self.has_unannounced.store(false, Ordering::Release);
    }

    /// Sender: whether the consumer has something to receive or to announce.
    pub fn has_news(&self) -> bool {
        // In this order: see `receive`.
        !self.batch.is_empty() || self.has_unannounced.load(Ordering::Acquire)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    impl Batch for Vec<u32> {
        fn is_empty(&self) -> bool {
            self.is_empty()
        }
        fn append(&mut self, later: &mut Self) {
            self.append(later);
        }
        fn clear(&mut self) {
            self.clear();
        }
    }

    #[test]
    fn what_is_received_is_all_that_was_sent_since() {
        let (channel, mut batch) = (BatchChannel::<Vec<u32>>::default(), Box::default());
        let mut received = Vec::new();
        let mut receive = || {
            channel.receive(|batch| received.append(batch));
            std::mem::take(&mut received)
        };
        channel.send(&mut batch);
        assert!(!channel.has_news() && receive().is_empty());
        for value in [1, 2] {
            batch.push(value);
            channel.send(&mut batch);
            assert!(batch.is_empty());
        }
        assert!(channel.has_news());
        assert_eq!(receive(), [1, 2]);
        assert!(channel.has_news(), "received, but not announced");
        channel.announced();
        assert!(!channel.has_news() && receive().is_empty());
        batch.push(3);
        channel.send(&mut batch);
        assert_eq!(receive(), [3]);
    }
}
