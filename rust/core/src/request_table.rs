//! Every live request's place that all threads may look at: identity, cancel flag, progress, outputs.
//!
//! Owns: the slots, the ids, the list of requests with something to take. A slot is taken by `acquire` (any thread)
//! and given back when both sides have let go: the engine by `finish`, the consumer by taking the last output or by
//! `release`; whoever comes second frees it.
//! Invariants: an id names its slot and the slot's generation, so an id of a past life changes nothing; a request
//! is in the ready list at most once; output put before a request is marked ready is seen by the take that follows.
//! Lock-free throughout: every step is one compare-and-swap or swap. Must not know: schedules, blocks.

use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use crossbeam_queue::SegQueue;
use crossbeam_utils::atomic::AtomicCell;

use crate::output::PendingOutput;
use crate::progress::{RequestProgress, RequestState};

/// Unique in the life of a process.
pub type RequestId = u64;

const SLOT_BITS: u32 = 24;
const GENERATION_SHIFT: u32 = 8;
const LIVE: u64 = 1;
const CANCELLED: u64 = 1 << 1;
const READY: u64 = 1 << 2;
const FINISHED: u64 = 1 << 3;
const RELEASED: u64 = 1 << 4;

/// The slot that `id` names.
pub fn slot_index(id: RequestId) -> usize {
    (id & ((1 << SLOT_BITS) - 1)) as usize
}

const NOT_ADMITTED: u32 = u32::MAX;

/// One request's place. Aligned, so that neighbours don't share a cache line.
#[repr(align(64))]
pub struct RequestSlot {
    /// generation << 8 | flags: whoever changes a flag proves with the generation that it means this request.
    word: AtomicU64,
    state: AtomicU8,
    position: AtomicU32,
    prefill_done_tokens: AtomicU32,
    prefill_total_tokens: AtomicU32,
    cached_tokens: AtomicU32,
    /// The engine thread takes it, adds, puts it back; the consumer takes it. An empty cell is no output.
    outputs: AtomicCell<Option<Box<PendingOutput>>>,
}

impl Default for RequestSlot {
    fn default() -> Self {
        Self {
            word: AtomicU64::new(1 << GENERATION_SHIFT),
            state: AtomicU8::new(RequestState::Queued as u8),
            position: AtomicU32::new(0),
            prefill_done_tokens: AtomicU32::new(0),
            prefill_total_tokens: AtomicU32::new(0),
            cached_tokens: AtomicU32::new(NOT_ADMITTED),
            outputs: AtomicCell::new(None),
        }
    }
}

impl RequestSlot {
    /// Sets `set` and clears `clear` if the slot still is `id`'s; returns the flags before.
    fn update(&self, id: RequestId, set: u64, clear: u64) -> Option<u64> {
        let generation = id >> SLOT_BITS;
        // AcqRel: pairs with itself on other threads, so that what was written before a flag was set is seen by
        // whoever finds it set.
        let change = |word: u64| {
            let same = word >> GENERATION_SHIFT == generation && word & LIVE != 0;
            same.then_some((word | set) & !clear)
        };
        self.word.fetch_update(Ordering::AcqRel, Ordering::Acquire, change).ok()
    }

    fn flags(&self, id: RequestId) -> Option<u64> {
        let word = self.word.load(Ordering::Acquire);
        (word >> GENERATION_SHIFT == id >> SLOT_BITS && word & LIVE != 0).then_some(word)
    }

    // The progress figures are a glance: each is right by itself, so Relaxed is enough.

    /// Tells the watchers where the request is.
    pub fn set_state(&self, state: RequestState) {
        self.state.store(state as u8, Ordering::Relaxed);
    }

    /// Tells the watchers how many are ahead.
    pub fn set_position(&self, position: usize) {
        self.position.store(position as u32, Ordering::Relaxed);
    }

    /// Tells the watchers how far the prefill is.
    pub fn set_prefill(&self, done_tokens: usize, total_tokens: usize) {
        self.prefill_done_tokens.store(done_tokens as u32, Ordering::Relaxed);
        self.prefill_total_tokens.store(total_tokens as u32, Ordering::Relaxed);
    }

    /// Tells the watchers what the prefix cache gave.
    pub fn set_cached_tokens(&self, tokens: usize) {
        self.cached_tokens.store(tokens as u32, Ordering::Relaxed);
    }
}

/// All slots; grows with the number of live requests, never shrinks.
#[derive(Default)]
pub struct RequestTable {
    slots: boxcar::Vec<RequestSlot>,
    vacant: SegQueue<u32>,
    ready: SegQueue<RequestId>,
    num_live: AtomicUsize,
}

impl RequestTable {
    /// A slot for a new request, queued behind `position` others.
    ///
    /// # Panics
    /// If 2^24 requests are live.
    pub fn acquire(&self, prompt_tokens: usize, position: usize) -> RequestId {
        let index =
            self.vacant.pop().map_or_else(|| self.slots.push(RequestSlot::default()), |slot| slot as usize);
        assert!(index < 1 << SLOT_BITS, "more than {} requests at once", 1 << SLOT_BITS);
        let slot = &self.slots[index];
        slot.set_state(RequestState::Queued);
        slot.set_position(position);
        slot.set_prefill(0, prompt_tokens);
        slot.cached_tokens.store(NOT_ADMITTED, Ordering::Relaxed);
        // Nobody else changes a vacant slot. Release pairs with the Acquire of whoever uses the id.
        let generation = slot.word.load(Ordering::Acquire) >> GENERATION_SHIFT;
        slot.word.store(generation << GENERATION_SHIFT | LIVE, Ordering::Release);
        self.num_live.fetch_add(1, Ordering::Relaxed);
        generation << SLOT_BITS | index as u64
    }

    /// Slots that are not given back yet.
    pub fn num_live(&self) -> usize {
        self.num_live.load(Ordering::Relaxed)
    }

    /// The slot of a request that the caller knows to be live.
    pub fn slot(&self, id: RequestId) -> &RequestSlot {
        &self.slots[slot_index(id)]
    }

    fn lookup(&self, id: RequestId) -> Option<&RequestSlot> {
        self.slots.get(slot_index(id))
    }

    fn vacate(&self, slot: &RequestSlot, id: RequestId) {
        drop(slot.outputs.take());
        let next_generation = (id >> SLOT_BITS) + 1;
        slot.word.store(next_generation << GENERATION_SHIFT, Ordering::Release);
        self.num_live.fetch_sub(1, Ordering::Relaxed);
        self.vacant.push(slot_index(id) as u32);
    }

    /// Raises the cancel flag; true if this call was the one that raised it on an unfinished request.
    pub fn cancel(&self, id: RequestId) -> bool {
        let before = self.lookup(id).and_then(|slot| slot.update(id, CANCELLED, 0));
        before.is_some_and(|flags| flags & (CANCELLED | FINISHED) == 0)
    }

    /// Whether the cancel flag is up.
    pub fn is_cancelled(&self, id: RequestId) -> bool {
        self.lookup(id).and_then(|slot| slot.flags(id)).is_some_and(|flags| flags & CANCELLED != 0)
    }

    /// A glance at the request; None if the id is unknown or all its outputs were taken.
    pub fn progress(&self, id: RequestId) -> Option<RequestProgress> {
        let slot = self.lookup(id)?;
        slot.flags(id)?;
        let state = RequestState::ALL[slot.state.load(Ordering::Relaxed) as usize];
        let cached = slot.cached_tokens.load(Ordering::Relaxed);
        let progress = RequestProgress {
            state,
            position: (state == RequestState::Queued).then(|| slot.position.load(Ordering::Relaxed)),
            prefill_done_tokens: slot.prefill_done_tokens.load(Ordering::Relaxed),
            prefill_total_tokens: slot.prefill_total_tokens.load(Ordering::Relaxed),
            cached_tokens: (cached != NOT_ADMITTED).then_some(cached),
        };
        // Still the same request: then none of the figures was another's.
        slot.flags(id).map(|_| progress)
    }

    /// Engine thread: adds to the request's output and marks it ready.
    pub fn put(&self, id: RequestId, add: impl FnOnce(&mut PendingOutput)) {
        let slot = self.slot(id);
        Self::add_output(slot, add);
        let before = slot.update(id, READY, 0);
        if before.is_some_and(|flags| flags & READY == 0) {
            self.ready.push(id);
        }
    }

    /// Engine thread: adds the last output; the engine does not touch the slot again.
    pub fn finish(&self, id: RequestId, add: impl FnOnce(&mut PendingOutput)) {
        let slot = self.slot(id);
        Self::add_output(slot, add);
        slot.set_state(RequestState::Finished);
        match slot.update(id, READY | FINISHED, 0) {
            Some(flags) if flags & RELEASED != 0 => self.vacate(slot, id),
            // The consumer may have taken all already and vacated: then the id in the list names nobody.
            Some(flags) if flags & READY == 0 => self.ready.push(id),
            _ => {}
        }
    }

    fn add_output(slot: &RequestSlot, add: impl FnOnce(&mut PendingOutput)) {
        // A take in between finds the cell empty; the mark that follows makes the consumer look again.
        let mut outputs = slot.outputs.take().unwrap_or_default();
        add(&mut outputs);
        slot.outputs.store(Some(outputs));
    }

    /// Consumer: whether `take_ready` would give anything.
    pub fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Consumer: requests with something to take, each once.
    pub fn take_ready(&self, out: &mut Vec<RequestId>) {
        // As many as are there now: the engine may go on adding.
        for _ in 0..self.ready.len() {
            let Some(id) = self.ready.pop() else { break };
            // The mark goes before the take: what is put after it is marked anew.
            let before = self.slot(id).update(id, 0, READY);
            if before.is_some_and(|flags| flags & RELEASED == 0) {
                out.push(id);
            }
        }
    }

    /// Consumer: all that is new. After the last output was taken the id is unknown.
    pub fn take(&self, id: RequestId) -> Option<Box<PendingOutput>> {
        let slot = self.lookup(id)?;
        if slot.flags(id)? & RELEASED != 0 {
            return None;
        }
        let outputs = slot.outputs.take()?;
        if outputs.metrics.is_some() {
            self.let_go(slot, id);
        }
        Some(outputs)
    }

    /// Consumer: wants nothing more of this request. True if it must still be cancelled.
    pub fn release(&self, id: RequestId) -> bool {
        let must_cancel = self.cancel(id);
        if let Some(slot) = self.lookup(id) {
            self.let_go(slot, id);
        }
        must_cancel
    }

    fn let_go(&self, slot: &RequestSlot, id: RequestId) {
        let before = slot.update(id, RELEASED, 0);
        if before.is_some_and(|flags| flags & FINISHED != 0 && flags & RELEASED == 0) {
            self.vacate(slot, id);
        }
    }
}
