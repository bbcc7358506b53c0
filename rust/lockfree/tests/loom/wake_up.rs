//! Falling asleep vs waking up, publishing figures vs reading them.

use std::time::Duration;

use loom::sync::atomic::{AtomicUsize, Ordering};
use pagurid_lockfree::{SeqLock, WakeUp};

use crate::race::race;

/// Loom has no clock: whoever is not woken sleeps for ever, and loom reports the deadlock.
const FOR_EVER: Duration = Duration::from_secs(3600);

#[derive(Default)]
struct Engine {
    wake_up: WakeUp,
    published: AtomicUsize,
}

impl Engine {
    fn publish(&self) {
        self.published.fetch_add(1, Ordering::Relaxed);
        self.wake_up.notify();
    }

    fn sleep_until(&self, published: usize) {
        assert!(self.wake_up.sleep(FOR_EVER, || self.published.load(Ordering::Relaxed) >= published));
    }
}

#[test]
fn sleep_vs_notify_no_wake_up_is_lost() {
    race(Engine::default, [Engine::publish, Engine::publish, |engine| engine.sleep_until(2)], |_, _| ());
}

#[test]
fn sleep_vs_explicit_wake_ends_one_sleep() {
    race(
        Engine::default,
        [
            |engine: &Engine| engine.wake_up.wake(),
            |engine| assert!(!engine.wake_up.sleep(FOR_EVER, || false)),
        ],
        |_, _| (),
    );
}

#[test]
fn sleep_vs_notify_when_another_thread_takes_over() {
    race(
        || (Engine::default(), AtomicUsize::new(0)),
        [
            |(engine, _): &(Engine, AtomicUsize)| {
                engine.publish();
                engine.publish();
            },
            |(engine, turn)| {
                engine.sleep_until(1);
                turn.store(1, Ordering::Release);
            },
            |(engine, turn)| {
                if turn.load(Ordering::Acquire) == 1 {
                    engine.sleep_until(2);
                }
            },
        ],
        |_, _| (),
    );
}

#[test]
fn publish_vs_read_gives_the_figures_of_one_moment() {
    race(
        SeqLock::<2>::default,
        [
            |shared: &SeqLock<2>| (1..=2).for_each(|figure| shared.publish(&[figure, figure])),
            |shared| {
                let [first, second] = shared.read();
                assert_eq!(first, second);
            },
        ],
        |shared, _| assert_eq!(shared.read(), [2, 2]),
    );
}
