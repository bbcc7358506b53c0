//! One job at a time, cut into pieces that whoever is free takes.
//!
//! Owns: the job, what is left of it, and who may touch it.
//! Invariant: whoever holds a piece holds the job. A piece is taken by one exchange on `open`, which succeeds only on a
//! job that still has one, whichever job that is by then; the job stays until every piece is counted off `unfinished`,
//! and only then can the next come. A thread without a piece looks at `open` and touches nothing else, and nobody
//! ever waits for it: a thread that the machine has taken away costs the pieces that it has begun, no more.
//! Must not know: what a piece is, where threads sleep.

use crate::backoff::Backoff;
use crate::padded::Padded;
use crate::sync::UnsafeCell;
use crate::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// In `JobSlot::open` the number of threads is above this bit.
const THREADS_SHIFT: u32 = 48;
const PIECES: u64 = (1 << THREADS_SHIFT) - 1;

/// The place for one job of type `J`.
pub struct JobSlot<J> {
    /// Pieces that nobody has taken, and how many threads may work on them.
    open: Padded<AtomicU64>,
    /// Pieces that aren't done.
    unfinished: Padded<AtomicUsize>,
    is_taken: Padded<AtomicBool>,
    /// The job and the number of its pieces. Written by the owner before `open` shows it, read by who has a piece.
    job: UnsafeCell<Option<(J, usize)>>,
}

// SAFETY: the job goes as a copy to each thread that has a piece, so `J: Send` is enough; when the cell may be read and
// when it may be written is the invariant above.
unsafe impl<J: Copy + Send> Sync for JobSlot<J> {}

impl<J> Default for JobSlot<J> {
    fn default() -> Self {
        Self {
            open: Padded::default(),
            unfinished: Padded::default(),
            is_taken: Padded::default(),
            job: UnsafeCell::new(None),
        }
    }
}

impl<J: Copy + Send> JobSlot<J> {
    /// Shows a job to the threads with numbers below `threads`; the owner is number 0. `None` if another is under way.
    pub fn open(&self, job: J, pieces: usize, threads: usize) -> Option<OpenJob<'_, J>> {
        assert!(pieces as u64 <= PIECES && (1..1 << (u64::BITS - THREADS_SHIFT)).contains(&threads));
        // Acquire pairs with the Release in the drop of `OpenJob`: nobody reads the last job any more.
        if self.is_taken.swap(true, Ordering::Acquire) {
            return None;
        }
        // SAFETY: the slot is ours, and nobody has a piece: all of the last job's are done, and `open` shows none.
        self.job.with_mut(|place| unsafe { *place = Some((job, pieces)) });
        // Relaxed: who counts down has taken a piece first, so the store below comes between.
        self.unfinished.store(pieces, Ordering::Relaxed);
        // Release pairs with the Acquire in `take_piece`: whoever gets a piece sees the job.
        self.open.store((threads as u64) << THREADS_SHIFT | pieces as u64, Ordering::Release);
        Some(OpenJob { slot: self })
    }

    /// Takes a piece for thread number `thread`, if there is one.
    pub fn join(&self, thread: usize) -> Option<Share<'_, J>> {
        let untaken = self.take_piece(thread)?;
        // SAFETY: we hold a piece, so the job stays, and its owner wrote it before it showed the piece.
        let (job, pieces) = self.job.with(|place| unsafe { *place }).expect("a job with a piece is there");
        Some(Share { slot: self, job, pieces, thread, first: Some(pieces - untaken), held: 1 })
    }

    /// How many threads could find a piece now: a glance.
    pub fn wanted_threads(&self) -> usize {
        // Relaxed: `take_piece` says what is true.
        let open = self.open.load(Ordering::Relaxed);
        if open & PIECES == 0 { 0 } else { (open >> THREADS_SHIFT) as usize }
    }

    /// The number of pieces that were left, this one included.
    fn take_piece(&self, thread: usize) -> Option<usize> {
        let mut open = self.open.load(Ordering::Relaxed);
        loop {
            let untaken = open & PIECES;
            if untaken == 0 || thread as u64 >= open >> THREADS_SHIFT {
                return None;
            }
            // Acquire pairs with the Release in `open`; the exchanges between keep its release sequence.
            match self.open.compare_exchange_weak(open, open - 1, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return Some(untaken as usize),
                Err(now) => open = now,
            }
        }
    }
}

/// The pieces that one thread takes, one after the other, in the order of their numbers. Dropped, all of them are done.
pub struct Share<'a, J: Copy + Send> {
    slot: &'a JobSlot<J>,
    job: J,
    pieces: usize,
    thread: usize,
    first: Option<usize>,
    held: usize,
}

impl<J: Copy + Send> Share<'_, J> {
    /// The job; what it refers to is there as long as the share.
    pub fn job(&self) -> J {
        self.job
    }

    /// Takes all that is left, so that nobody begins another piece.
    pub fn cancel_rest(&mut self) {
        // Relaxed: this job is still the one shown, for we hold a piece of it.
        self.held += (self.slot.open.swap(0, Ordering::Relaxed) & PIECES) as usize;
    }
}

impl<J: Copy + Send> Iterator for Share<'_, J> {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        // Of the same job: it cannot end before the pieces that we hold are counted.
        let untaken = self.slot.take_piece(self.thread)?;
        self.held += 1;
        Some(self.pieces - untaken)
    }
}

impl<J: Copy + Send> Drop for Share<'_, J> {
    fn drop(&mut self) {
        // Release pairs with the Acquire in the drop of `OpenJob`: the owner sees what the pieces wrote, and writes over
        // the job only after we have read it.
        self.slot.unfinished.fetch_sub(self.held, Ordering::Release);
    }
}

/// The owner's side of a job. Dropped, it cancels what nobody has taken and waits for the pieces that were begun.
pub struct OpenJob<'a, J: Copy + Send> {
    slot: &'a JobSlot<J>,
}

impl<J: Copy + Send> OpenJob<'_, J> {
    /// The owner's own share.
    pub fn join(&self) -> Option<Share<'_, J>> {
        self.slot.join(0)
    }
}

impl<J: Copy + Send> Drop for OpenJob<'_, J> {
    fn drop(&mut self) {
        if let Some(mut rest) = self.join() {
            rest.cancel_rest();
        }
        let mut backoff = Backoff::default();
        // Acquire pairs with the Release in the drop of `Share`, with all of them: they count down in one sequence.
        while self.slot.unfinished.load(Ordering::Acquire) != 0 {
            backoff.pause();
        }
        // Release pairs with the Acquire in `open`.
        self.slot.is_taken.store(false, Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn pieces_come_in_order_and_once() {
        let slot = JobSlot::default();
        let job = slot.open('a', 5, 2).unwrap();
        let mut ours = job.join().unwrap();
        let mut theirs = slot.join(1).unwrap();
        assert_eq!((ours.job(), theirs.job()), ('a', 'a'));
        assert_eq!(
            (ours.next(), theirs.next(), theirs.next(), ours.next()),
            (Some(0), Some(1), Some(2), Some(3))
        );
        assert_eq!((theirs.next(), ours.next(), theirs.next()), (Some(4), None, None));
        assert!(slot.join(1).is_none());
    }

    #[test]
    fn there_is_one_job_at_a_time() {
        let slot = JobSlot::default();
        let job = slot.open(1, 1, 2).unwrap();
        assert!(slot.open(2, 1, 2).is_none());
        drop(job);
        let job = slot.open(3, 1, 2).unwrap();
        assert_eq!(job.join().unwrap().job(), 3);
    }

    #[test]
    fn threads_beyond_the_wanted_number_find_nothing() {
        let slot = JobSlot::default();
        assert_eq!(slot.wanted_threads(), 0);
        let job = slot.open((), 9, 2).unwrap();
        assert_eq!(slot.wanted_threads(), 2);
        assert!(slot.join(2).is_none() && slot.join(1).is_some());
        drop(job);
        assert_eq!(slot.wanted_threads(), 0);
    }

    #[test]
    fn what_is_cancelled_nobody_begins_and_nobody_waits_for() {
        let slot = JobSlot::default();
        let job = slot.open((), 9, 2).unwrap();
        let mut share = slot.join(1).unwrap();
        share.cancel_rest();
        assert_eq!((share.next(), share.next()), (Some(0), None));
        assert!(job.join().is_none());
        drop(share);
        drop(job);
        drop(slot.open((), 0, 1));
        drop(slot.open((), 7, 1)); // nobody has taken any
        assert!(slot.open((), 1, 1).is_some());
    }
}
