//! The life of a slot in one word: which life it is, and how far both sides are with it.
//!
//! Owns: generation << 8 | flags. A slot is opened by whoever has it from the vacant ones. The engine raises `finish`
//! before it shows the end; anybody may raise `release` at any time; the consumer vacates the slot when the end has
//! reached it and nobody wants more. A release is told whether the end may have passed the consumer by already: then
//! it must be made to look again.
//! Invariant: a flag is changed only in proof of the generation, so that an id of a past life changes nothing.
//! Must not know: what lies in the slot.

use crate::sync::atomic::{AtomicU64, Ordering, fence};

const GENERATION_SHIFT: u32 = 8;
const LIVE: u64 = 1;
const CANCELLED: u64 = 1 << 1;
const FINISHED: u64 = 1 << 2;
const RELEASED: u64 = 1 << 3;

/// How far a life is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Life {
    word: u64,
}

impl Life {
    /// Which life of the slot it is.
    pub fn generation(self) -> u64 {
        self.word >> GENERATION_SHIFT
    }

    /// Whether its end was asked for.
    pub fn is_cancelled(self) -> bool {
        self.word & CANCELLED != 0
    }

    /// Whether nobody wants to know more of it.
    pub fn is_released(self) -> bool {
        self.word & RELEASED != 0
    }
}

/// The word of one slot.
pub struct SlotWord(AtomicU64);

impl Default for SlotWord {
    fn default() -> Self {
        Self(AtomicU64::new(1 << GENERATION_SHIFT))
    }
}

impl SlotWord {
    /// Opens a vacant slot that is the caller's alone; `reset` writes what `glance` may read. Gives the generation.
    pub fn open(&self, reset: impl FnOnce()) -> u64 {
        // Relaxed: the vacant slot came to the caller together with its word.
        let generation = self.0.load(Ordering::Relaxed) >> GENERATION_SHIFT;
        // Pairs with the fence in `glance`: who sees what is written from here on sees that the last life is over.
        fence(Ordering::Release);
        reset();
        // Release pairs with the Acquire of whoever finds the slot live.
        self.0.store(generation << GENERATION_SHIFT | LIVE, Ordering::Release);
        generation
    }

    /// The life that goes on here now.
    pub fn life(&self) -> Option<Life> {
        // Acquire pairs with the Release in `open`: who finds the slot live finds it made ready.
        let word = self.0.load(Ordering::Acquire);
        (word & LIVE != 0).then_some(Life { word })
    }

    /// The same, if it is the one that is meant.
    pub fn life_of(&self, generation: u64) -> Option<Life> {
        self.life().filter(|life| life.generation() == generation)
    }

    /// Reads (relaxed) what `reset` or the slot's owner wrote; None if it was not all of this life.
    pub fn glance<R>(&self, generation: u64, read: impl FnOnce() -> R) -> Option<R> {
        self.life_of(generation)?;
        let seen = read();
        // Pairs with the fence in `open`.
        fence(Ordering::Acquire);
        self.life_of(generation).map(|_| seen)
    }

    /// Raises a flag if it still is the same life; gives the flags before.
    fn raise(&self, generation: u64, flag: u64) -> Option<u64> {
        let change = |word: u64| {
            let same = word >> GENERATION_SHIFT == generation && word & LIVE != 0;
            same.then_some(word | flag)
        };
        // Relaxed: a flag carries nothing but itself. What must be seen with it goes another way, with an order of its
        // own: the end by the outputs, which are sent after `finish`, a release after that by a notice.
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, change).ok()
    }

    /// Asks for the end. True if this call was the first to, and the life is unfinished.
    pub fn cancel(&self, generation: u64) -> bool {
        self.raise(generation, CANCELLED).is_some_and(|before| before & (CANCELLED | FINISHED) == 0)
    }

    /// The engine is done with it, and shows that after this call.
    pub fn finish(&self, generation: u64) {
        self.raise(generation, FINISHED);
    }

    /// Nobody wants more. True if this was the first release, and the life was finished before: then the consumer must
    /// be told.
    #[must_use]
    pub fn release(&self, generation: u64) -> bool {
        let before = self.raise(generation, RELEASED);
        before.is_some_and(|before| before & (FINISHED | RELEASED) == FINISHED)
    }

    /// Ends the life. The consumer calls this once, then gives the slot back.
    pub fn vacate(&self, generation: u64) {
        // Release pairs with the Acquire in `life`; towards the next life, giving the slot back does it. A swap, so
        // that it comes after the flags that others raise meanwhile, in loom's eyes too.
        self.0.swap((generation + 1) << GENERATION_SHIFT, Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_first_release_after_the_end_tells_the_consumer() {
        let word = SlotWord::default();
        let first = word.open(|| ());
        word.finish(first);
        assert!(word.release(first) && !word.release(first));
        word.vacate(first);
        let second = word.open(|| ());
        assert!(!word.release(second), "the end is still to come: it finds the flag");
        word.finish(second);
        assert!(!word.release(second) && word.life().unwrap().is_released());
    }

    #[test]
    fn only_the_first_cancel_of_an_unfinished_life_counts() {
        let word = SlotWord::default();
        let generation = word.open(|| ());
        assert!(!word.life().unwrap().is_cancelled());
        assert!(word.cancel(generation) && !word.cancel(generation));
        assert!(word.life_of(generation).unwrap().is_cancelled());
        word.vacate(generation);
        let generation = word.open(|| ());
        word.finish(generation);
        assert!(!word.cancel(generation));
    }

    #[test]
    fn a_past_life_changes_nothing() {
        let word = SlotWord::default();
        let past = word.open(|| ());
        word.vacate(past);
        assert_eq!((word.life(), word.cancel(past)), (None, false), "vacant");
        let present = word.open(|| ());
        let before = word.life();
        word.finish(past);
        assert!(!word.cancel(past) && !word.release(past));
        assert_eq!((word.life_of(past), word.glance(past, || ())), (None, None));
        assert_eq!((word.life_of(present), word.glance(present, || 7)), (before, Some(7)));
    }
}
