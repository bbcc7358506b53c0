//! A slot's life: taken from the vacant ones, cancelled, finished, released, given back, taken again.

use loom::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use pagurid_lockfree::{BatchChannel, IndexStack, Life, NoticeLink, NoticeList, SlotWord, StackLink};

use crate::outputs::Outputs;
use crate::race::race;
use crate::tracked::Tracked;

#[derive(Default)]
struct Vacant {
    stack: IndexStack,
    links: [StackLink; 2],
    /// What only the holder of a slot touches.
    bodies: [Tracked<u32>; 2],
}

impl Vacant {
    /// Slot 0 on top of slot 1.
    fn full() -> Self {
        let vacant = Self::default();
        vacant.push(1);
        vacant.push(0);
        vacant
    }

    fn pop(&self) -> Option<u32> {
        let index = self.stack.pop(|index| &self.links[index as usize]);
        if let Some(index) = index {
            self.bodies[index as usize].write(|touched| *touched += 1);
        }
        index
    }

    fn push(&self, index: u32) {
        self.bodies[index as usize].write(|touched| *touched += 1);
        self.stack.push(index, &self.links[index as usize]);
    }

    fn give_back(&self, index: u32) -> Option<u32> {
        self.push(index);
        None
    }

    /// What was popped and is still there are both slots, each once.
    fn assert_both(&self, mut held: Vec<Option<u32>>) {
        held.extend([self.pop(), self.pop(), self.pop()]);
        held.sort_unstable();
        let slots: Vec<u32> = held.into_iter().flatten().collect();
        assert_eq!(slots, [0, 1]);
    }
}

#[test]
fn pop_vs_pop_pop_push_the_same_top_is_another_stack() {
    race(
        Vacant::full,
        [Vacant::pop, |vacant| {
            let (first, second) = (vacant.pop(), vacant.pop());
            if let Some(first) = first {
                vacant.push(first);
            }
            second
        }],
        Vacant::assert_both,
    );
}

#[test]
fn push_vs_push_vs_pop_no_slot_is_lost() {
    race(
        Vacant::default,
        [|vacant| vacant.give_back(0), |vacant| vacant.give_back(1), Vacant::pop],
        Vacant::assert_both,
    );
}

/// One slot as the core has it: the engine, whoever wants it no more, and the consumer, who vacates it.
#[derive(Default)]
struct Slot {
    word: SlotWord,
    life: u64,
    outputs: BatchChannel<Outputs>,
    released: NoticeList,
    link: NoticeLink,
    vacant: IndexStack,
    vacant_link: StackLink,
    /// What only the consumer touches: outputs of this life that nobody has taken, and whether its end is among them.
    pending: Tracked<(Vec<u32>, bool)>,
    figure: AtomicU64,
    num_vacated: AtomicUsize,
}

/// The last output of a life.
const END: u32 = 9;

impl Slot {
    /// A slot whose life has begun.
    fn opened() -> Self {
        let mut slot = Self::default();
        slot.life = slot.open();
        slot
    }

    fn open(&self) -> u64 {
        self.word.open(|| {
            self.figure.fetch_add(1, Ordering::Relaxed);
        })
    }

    fn finish(&self) {
        self.word.finish(self.life);
        self.outputs.send(&mut Box::new(Outputs(vec![END])));
    }

    fn release(&self) {
        if self.word.release(self.life) {
            self.released.notify(0, &self.link);
        }
    }

    fn vacate_if_over(&self) {
        let is_over = self.pending.read(|(_, is_over)| *is_over);
        if is_over && self.word.life_of(self.life).is_some_and(Life::is_released) {
            self.pending.write(|pending| *pending = (Vec::new(), false));
            self.word.vacate(self.life);
            self.num_vacated.fetch_add(1, Ordering::Relaxed);
            self.vacant.push(0, &self.vacant_link);
        }
    }

    /// The consumer looks at what has come.
    fn collect(&self) {
        self.outputs.receive(|batch| {
            self.pending.write(|(pending, is_over)| {
                pending.append(&mut batch.0);
                *is_over = pending.last() == Some(&END);
            });
            self.vacate_if_over();
        });
        self.released.drain(|_| &self.link, |_| self.vacate_if_over());
    }

    fn pop_vacant(&self) -> Option<u32> {
        self.vacant.pop(|_| &self.vacant_link)
    }
}

#[test]
fn cancel_vs_finish_vs_release_vacates_once() {
    race(
        Slot::opened,
        [
            |slot: &Slot| {
                slot.finish();
                false
            },
            |slot| {
                let is_first = slot.word.cancel(slot.life);
                slot.release();
                is_first
            },
            |slot| {
                slot.collect();
                slot.word.cancel(slot.life)
            },
        ],
        |slot, is_first| {
            assert!(is_first != [false, true, true], "only one cancel is the first");
            slot.collect();
            assert_eq!(slot.num_vacated.load(Ordering::Relaxed), 1);
            assert_eq!((slot.pop_vacant(), slot.pop_vacant()), (Some(0), None));
            assert_eq!(slot.open(), slot.life + 1);
            assert!(!slot.word.life().unwrap().is_cancelled(), "the cancel was the last life's");
        },
    );
}

#[test]
fn cancel_of_a_past_life_vs_reuse_changes_nothing() {
    race(
        || {
            let slot = Slot::opened();
            slot.release();
            slot
        },
        [
            |slot: &Slot| {
                slot.finish();
                slot.collect();
                // Vacated; now it is another's.
                assert_eq!(slot.pop_vacant(), Some(0));
                assert_eq!(slot.open(), slot.life + 1);
            },
            |slot| {
                slot.word.cancel(slot.life);
                assert!(!slot.word.release(slot.life));
            },
        ],
        |slot, _| {
            let next = slot.word.life_of(slot.life + 1).expect("the next life goes on");
            assert!(!next.is_cancelled() && !next.is_released());
        },
    );
}

#[test]
fn glance_vs_reuse_sees_figures_of_one_life() {
    race(
        Slot::opened,
        [
            |slot: &Slot| {
                slot.word.vacate(slot.life);
                slot.open();
            },
            |slot| {
                for life in [slot.life, slot.life + 1] {
                    let seen = slot.word.glance(life, || slot.figure.load(Ordering::Relaxed));
                    assert!(seen.is_none_or(|figure| figure == life), "another life's figure");
                }
            },
        ],
        |_, _| (),
    );
}
