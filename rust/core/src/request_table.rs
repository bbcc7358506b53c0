//! Every live request's place that all threads may look at: identity, cancel flag, progress.
//!
//! Owns: the slots, the ids, the notices of fresh cancels and releases. A slot is taken by `acquire` (any thread) and
//! given back by the consumer (`outputs`) when the request is over and its last output was taken or dropped.
//! Invariants: an id names its slot and the slot's generation, so an id of a past life changes nothing; the flag is the
//! truth, a notice only saves a search.
//! Lock-free throughout. Must not know: schedules, blocks, outputs.

use std::sync::atomic::{AtomicU8, AtomicU32, AtomicUsize, Ordering};

use pagurid_lockfree::{IndexStack, Life, NoticeLink, NoticeList, SlotWord, StackLink};

use crate::progress::{RequestProgress, RequestState};

/// Unique in the life of a process.
pub type RequestId = u64;

const SLOT_BITS: u32 = 24;

/// The slot that `id` names.
pub fn slot_index(id: RequestId) -> usize {
    (id & ((1 << SLOT_BITS) - 1)) as usize
}

fn generation(id: RequestId) -> u64 {
    id >> SLOT_BITS
}

const UNKNOWN: u32 = u32::MAX;

/// More slots than these are made when they are needed.
const MOST_SLOTS_AHEAD: usize = 1 << 14;

/// One request's place. Aligned, so that neighbours don't share a cache line.
#[repr(align(128))]
pub struct RequestSlot {
    word: SlotWord,
    state: AtomicU8,
    position: AtomicU32,
    wait_ms: AtomicU32,
    prefill_done_tokens: AtomicU32,
    prefill_total_tokens: AtomicU32,
    cached_tokens: AtomicU32,
    vacant: StackLink,
    cancelled: NoticeLink,
    released: NoticeLink,
}

impl Default for RequestSlot {
    fn default() -> Self {
        Self {
            word: SlotWord::default(),
            state: AtomicU8::new(RequestState::Queued as u8),
            position: AtomicU32::new(0),
            wait_ms: AtomicU32::new(UNKNOWN),
            prefill_done_tokens: AtomicU32::new(0),
            prefill_total_tokens: AtomicU32::new(0),
            cached_tokens: AtomicU32::new(UNKNOWN),
            vacant: StackLink::default(),
            cancelled: NoticeLink::default(),
            released: NoticeLink::default(),
        }
    }
}

impl RequestSlot {
    // The progress figures are a glance: each is right by itself, so Relaxed is enough.

    /// Tells the watchers where the request is.
    pub fn set_state(&self, state: RequestState) {
        self.state.store(state as u8, Ordering::Relaxed);
    }

    /// Tells the watchers how many are ahead, and how long it may take.
    pub fn set_position(&self, position: usize, wait_ms: Option<f64>) {
        self.position.store(position as u32, Ordering::Relaxed);
        self.wait_ms.store(wait_ms.map_or(UNKNOWN, |ms| ms.ceil() as u32), Ordering::Relaxed);
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
    vacant: IndexStack,
    cancelled: NoticeList,
    released: NoticeList,
    num_live: AtomicUsize,
}

impl RequestTable {
    /// With slots for `num_requests`: none of them is made while somebody waits for it, as long as they suffice.
    pub fn new(num_requests: usize) -> Self {
        let table = Self::default();
        let num_requests = num_requests.min(MOST_SLOTS_AHEAD);
        for _ in 0..num_requests {
            table.slots.push(RequestSlot::default());
        }
        for index in (0..num_requests).rev() {
            table.vacant.push(index as u32, &table.slots[index].vacant);
        }
        table
    }

    /// A slot for a new request, queued behind `position` others.
    ///
    /// # Panics
    /// If 2^24 requests are live.
    pub fn acquire(&self, prompt_tokens: usize, position: usize, wait_ms: Option<f64>) -> RequestId {
        let index = self
            .vacant
            .pop(|index| &self.slots[index as usize].vacant)
            .map_or_else(|| self.slots.push(RequestSlot::default()), |index| index as usize);
        assert!(index < 1 << SLOT_BITS, "more than {} requests at once", 1 << SLOT_BITS);
        self.num_live.fetch_add(1, Ordering::Relaxed);
        let slot = &self.slots[index];
        let generation = slot.word.open(|| {
            slot.set_state(RequestState::Queued);
            slot.set_position(position, wait_ms);
            slot.set_prefill(0, prompt_tokens);
            slot.cached_tokens.store(UNKNOWN, Ordering::Relaxed);
        });
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

    fn life(&self, id: RequestId) -> Option<Life> {
        self.lookup(id)?.word.life_of(generation(id))
    }

    /// Raises the cancel flag; true if this call was the one that raised it on an unfinished request.
    pub fn cancel(&self, id: RequestId) -> bool {
        let Some(slot) = self.lookup(id) else { return false };
        let is_first = slot.word.cancel(generation(id));
        if is_first {
            self.cancelled.notify(slot_index(id) as u32, &slot.cancelled);
        }
        is_first
    }

    /// Whether the cancel flag is up.
    pub fn is_cancelled(&self, id: RequestId) -> bool {
        self.life(id).is_some_and(Life::is_cancelled)
    }

    /// Whether `drain_cancelled` would give anything.
    pub fn has_cancelled(&self) -> bool {
        !self.cancelled.is_empty()
    }

    /// Engine thread: live requests whose cancel flag was raised since the last look.
    pub fn drain_cancelled(&self, mut each: impl FnMut(RequestId)) {
        let link_of = |index| &self.slots[index as usize].cancelled;
        self.cancelled.drain(link_of, |index| {
            // Whoever lives there now: if it is another than the notice meant, its own flag tells.
            if let Some(life) = self.slots[index as usize].word.life().filter(|life| life.is_cancelled()) {
                each(life.generation() << SLOT_BITS | u64::from(index));
            }
        });
    }

    /// A glance at the request; None if the id is unknown or all its outputs were taken.
    pub fn progress(&self, id: RequestId) -> Option<RequestProgress> {
        let slot = self.lookup(id)?;
        slot.word.glance(generation(id), || {
            let state = RequestState::ALL[slot.state.load(Ordering::Relaxed) as usize];
            let known = |figure: &AtomicU32| Some(figure.load(Ordering::Relaxed)).filter(|&it| it != UNKNOWN);
            let waits = matches!(state, RequestState::Queued | RequestState::Preempted);
            RequestProgress {
                state,
                position: waits.then(|| slot.position.load(Ordering::Relaxed)),
                wait_ms_estimate: if waits { known(&slot.wait_ms) } else { None },
                prefill_done_tokens: slot.prefill_done_tokens.load(Ordering::Relaxed),
                prefill_total_tokens: slot.prefill_total_tokens.load(Ordering::Relaxed),
                cached_tokens: known(&slot.cached_tokens),
            }
        })
    }

    /// Engine thread: the request is over; the engine does not touch the slot again. Before its end is shown.
    pub fn finish(&self, id: RequestId) {
        let slot = self.slot(id);
        slot.set_state(RequestState::Finished);
        slot.word.finish(generation(id));
    }

    /// Nobody wants the request's outputs any more.
    pub fn release(&self, id: RequestId) {
        let Some(slot) = self.lookup(id) else { return };
        if slot.word.release(generation(id)) {
            // Its end may have reached the consumer already: it must look again.
            self.released.notify(slot_index(id) as u32, &slot.released);
        }
    }

    /// Whether nobody wants the request's outputs.
    pub fn is_released(&self, id: RequestId) -> bool {
        self.life(id).is_none_or(Life::is_released)
    }

    /// Consumer: finished requests that were released since the last look.
    pub fn drain_released(&self, mut each: impl FnMut(RequestId)) {
        let link_of = |index| &self.slots[index as usize].released;
        self.released.drain(link_of, |index| {
            if let Some(life) = self.slots[index as usize].word.life().filter(|life| life.is_released()) {
                each(life.generation() << SLOT_BITS | u64::from(index));
            }
        });
    }

    /// Consumer: gives the slot of a request back that is over, and whose end has arrived.
    pub fn vacate(&self, id: RequestId) {
        let slot = self.slot(id);
        if slot.word.life_of(generation(id)).is_some() {
            slot.word.vacate(generation(id));
            self.num_live.fetch_sub(1, Ordering::Relaxed);
            self.vacant.push(slot_index(id) as u32, &slot.vacant);
        }
    }
}
