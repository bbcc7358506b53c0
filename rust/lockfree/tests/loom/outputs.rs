//! Sending outputs vs receiving and announcing them.

use loom::sync::atomic::{AtomicUsize, Ordering};
use pagurid_lockfree::{Batch, BatchChannel, Mailbox};

use crate::race::race;
use crate::tracked::Tracked;

/// A batch of numbers.
#[derive(Default)]
pub struct Outputs(pub Vec<u32>);

impl Batch for Outputs {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
    fn append(&mut self, later: &mut Self) {
        self.0.append(&mut later.0);
    }
    fn clear(&mut self) {
        self.0.clear();
    }
}

#[derive(Default)]
struct Channel {
    outputs: BatchChannel<Outputs>,
    /// How many the consumer has announced.
    num_announced: AtomicUsize,
    woken: AtomicUsize,
}

impl Channel {
    fn send(&self, value: u32) {
        self.outputs.send(&mut Box::new(Outputs(vec![value])));
    }

    fn receive(&self) -> Vec<u32> {
        let mut received = Vec::new();
        self.outputs.receive(|batch| received.append(&mut batch.0));
        received
    }

    fn announce(&self, received: &[u32]) {
        self.num_announced.fetch_add(received.len(), Ordering::Relaxed);
        self.outputs.announced();
    }
}

#[test]
fn send_vs_coalescing_receive_keeps_all_in_order() {
    race(
        Channel::default,
        [
            |channel: &Channel| {
                (1..=3).for_each(|value| channel.send(value));
                Vec::new()
            },
            |channel| [channel.receive(), channel.receive()].concat(),
        ],
        |channel, mut results| {
            results.push(channel.receive());
            assert_eq!(results.concat(), [1, 2, 3]);
        },
    );
}

#[test]
fn send_vs_receive_and_announce_no_wake_up_is_missing() {
    race(
        Channel::default,
        [
            |channel: &Channel| {
                for value in 1..=2 {
                    channel.send(value);
                    // As the engine does after a step: without news nobody is woken.
                    if channel.outputs.has_news() {
                        channel.woken.store(value as usize, Ordering::Relaxed);
                    } else {
                        assert_eq!(channel.num_announced.load(Ordering::Relaxed), value as usize);
                    }
                }
            },
            |channel| {
                let received = channel.receive();
                if !received.is_empty() {
                    channel.announce(&received);
                }
            },
        ],
        |channel, _| {
            let received = channel.receive();
            channel.announce(&received);
            assert_eq!(channel.num_announced.load(Ordering::Relaxed), 2);
            assert!(!channel.outputs.has_news());
        },
    );
}

#[test]
fn store_vs_take_vs_take_gives_it_whole_to_one() {
    race(
        Mailbox::<Tracked<u32>>::default,
        [
            |mailbox: &Mailbox<Tracked<u32>>| {
                let value = Box::<Tracked<u32>>::default();
                value.write(|value| *value = 7);
                mailbox.store(value);
                0
            },
            |mailbox| mailbox.take().map_or(0, |value| value.read(|value| *value)),
            |mailbox| mailbox.take().map_or(0, |value| value.read(|value| *value)),
        ],
        |mailbox, results| {
            let rest = mailbox.take().map_or(0, |value| value.read(|value| *value));
            assert_eq!(results.iter().sum::<u32>() + rest, 7);
        },
    );
}
