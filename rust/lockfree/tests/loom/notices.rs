//! Notices vs their drain.

use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use pagurid_lockfree::{NoticeLink, NoticeList};

use crate::race::race;

#[derive(Default)]
struct Slots {
    list: NoticeList,
    links: [NoticeLink; 2],
    /// What each of the notifying threads has to tell, and whether somebody was handed it over.
    news: [AtomicBool; 2],
    seen: [AtomicBool; 2],
    queued: AtomicUsize,
    handed_over: AtomicUsize,
}

impl Slots {
    fn notify(&self, slot: u32) -> Vec<u32> {
        let queued = self.list.notify(slot, &self.links[slot as usize]);
        self.queued.fetch_add(usize::from(queued), Ordering::Relaxed);
        Vec::new()
    }

    fn drain(&self) -> Vec<u32> {
        let mut slots = Vec::new();
        self.list.drain(
            |slot| &self.links[slot as usize],
            |slot| {
                slots.push(slot);
                for (seen, news) in self.seen.iter().zip(&self.news) {
                    if news.load(Ordering::Relaxed) {
                        seen.store(true, Ordering::Relaxed);
                    }
                }
            },
        );
        self.handed_over.fetch_add(slots.len(), Ordering::Relaxed);
        slots
    }
}

fn tell(slots: &Slots, teller: usize) -> Vec<u32> {
    slots.news[teller].store(true, Ordering::Relaxed);
    slots.notify(0)
}

#[test]
fn notify_vs_notify_vs_drain_no_news_of_a_slot_is_lost_or_told_twice() {
    race(
        Slots::default,
        [|slots: &Slots| tell(slots, 0), |slots| tell(slots, 1), Slots::drain],
        |slots, _| {
            slots.drain();
            for seen in &slots.seen {
                assert!(seen.load(Ordering::Relaxed), "lost");
            }
            assert_eq!(slots.handed_over.load(Ordering::Relaxed), slots.queued.load(Ordering::Relaxed));
            assert!(slots.list.is_empty());
        },
    );
}

#[test]
fn notify_vs_drain_keeps_the_order_of_arrival() {
    race(
        Slots::default,
        [|slots: &Slots| [slots.notify(1), slots.notify(0)].concat(), Slots::drain],
        |slots, mut results| {
            results.push(slots.drain());
            assert_eq!(results.concat(), [1, 0]);
        },
    );
}

#[test]
fn notify_of_two_slots_vs_drain_keeps_both() {
    race(
        Slots::default,
        [|slots: &Slots| slots.notify(0), |slots| slots.notify(1), Slots::drain],
        |slots, mut results| {
            results.push(slots.drain());
            let mut seen = results.concat();
            seen.sort_unstable();
            assert_eq!(seen, [0, 1]);
        },
    );
}
