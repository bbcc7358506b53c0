//! "Slot i has news": a list of slot indices, each at most once in it, that any thread adds to and one empties.
//!
//! Owns: the head of the list. The links lie in the slots (`NoticeLink`), so that the table of slots can grow.
//! Invariants: a slot's link belongs to whoever has set its mark, until the drain clears it; the drain takes the
//! whole list by one swap (nothing is popped, hence no ABA) and clears a slot's mark before it hands the slot over,
//! so that a notice that finds the mark set is seen by the handing over, and one that comes later queues anew.
//! Must not know: what the news is.

use crate::padded::Padded;
use crate::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// No slot has this index.
const END: u32 = u32::MAX;

/// A slot's place in one list.
#[derive(Default)]
pub struct NoticeLink {
    is_queued: AtomicBool,
    next: AtomicU32,
}

/// The slots with news.
pub struct NoticeList {
    /// The slot whose notice came last.
    head: Padded<AtomicU32>,
}

impl Default for NoticeList {
    fn default() -> Self {
        Self { head: Padded(AtomicU32::new(END)) }
    }
}

impl NoticeList {
    /// Queues the slot `index`, whose `link` in this list it is, unless it is queued. True if it was not.
    /// What was written before is seen by the drain that hands the slot over.
    pub fn notify(&self, index: u32, link: &NoticeLink) -> bool {
        // AcqRel pairs with the swap in `drain`. Release: it finds our mark, hence our news. Acquire: it has read
        // the link before we write it.
        if link.is_queued.swap(true, Ordering::AcqRel) {
            return false;
        }
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            link.next.store(head, Ordering::Relaxed);
            // Release pairs with the Acquire in `drain`: the link comes before the head that leads to it.
            match self.head.compare_exchange_weak(head, index, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => head = now,
            }
        }
    }

    /// Whether `drain` would hand over nothing.
    pub fn is_empty(&self) -> bool {
        self.head.load(Ordering::Relaxed) == END
    }

    /// Hands over all slots that are queued now, in the order of their first notices.
    pub fn drain<'a>(&self, link_of: impl Fn(u32) -> &'a NoticeLink, mut hand_over: impl FnMut(u32)) {
        // Acquire pairs with the Release in `notify`; as all pushes are read-modify-writes, with that of every link.
        let mut last_to_first = self.head.swap(END, Ordering::Acquire);
        // The chain is ours until the marks are cleared: turn it round in place.
        let mut first_to_last = END;
        while last_to_first != END {
            let link = link_of(last_to_first);
            let before = link.next.load(Ordering::Relaxed);
            link.next.store(first_to_last, Ordering::Relaxed);
            (first_to_last, last_to_first) = (last_to_first, before);
        }
        while first_to_last != END {
            let index = first_to_last;
            let link = link_of(index);
            first_to_last = link.next.load(Ordering::Relaxed);
            // A swap, not a store: it reads the mark of the last notice that found the slot queued, and so pairs
            // with its Release. Its own Release pairs with the Acquire in `notify`: we have read the link.
            link.is_queued.swap(false, Ordering::AcqRel);
            hand_over(index);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn slots_are_handed_over_once_in_the_order_of_their_notices() {
        let (list, links) = (NoticeList::default(), <[NoticeLink; 4]>::default());
        let notify = |index: u32| list.notify(index, &links[index as usize]);
        let drain = || {
            let mut slots = Vec::new();
            list.drain(|index| &links[index as usize], |index| slots.push(index));
            slots
        };
        assert!(list.is_empty() && drain().is_empty());
        assert!(notify(2) && notify(0) && notify(3) && !notify(0) && !list.is_empty());
        assert_eq!(drain(), [2, 0, 3]);
        assert!(notify(0));
        assert_eq!((drain(), drain()), (vec![0], vec![]));
    }

    #[test]
    fn a_notice_during_the_handing_over_queues_the_slot_anew() {
        let (list, link) = (NoticeList::default(), NoticeLink::default());
        list.notify(0, &link);
        let mut handed_over = 0;
        list.drain(
            |_| &link,
            |_| {
                handed_over += 1;
                assert!(list.notify(0, &link));
            },
        );
        assert_eq!((handed_over, list.is_empty()), (1, false));
    }
}
