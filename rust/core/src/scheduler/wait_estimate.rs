//! How long a queued request will wait.
//!
//! Owns: two ways to foretell it. While all seats are taken, whoever is among the first gets the seat of a running
//! sequence, whose end is foretold (`forecast`). Further back, and while blocks are what is short, it is the position
//! times the time from one admission to the next, averaged over the last ones while others were waiting, so that idle
//! times don't count.
//! Must not know: the queue, sequences.

use pagurid_lockfree::SeqLock;

use crate::clock::Nanos;

/// Each admission takes this much weight from the ones before it: about the last 64 count.
const FORGETTING: f64 = 1.0 - 1.0 / 64.0;

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct AdmissionPace {
    admissions: f64,
    time: f64,
    /// When the last look was, if requests were left waiting then.
    last_with_waiting: Option<Nanos>,
}

impl AdmissionPace {
    /// At `now`, `admitted` requests were admitted and `are_waiting` tells whether any were left.
    pub fn observe(&mut self, now: Nanos, admitted: usize, are_waiting: bool) {
        if let Some(last) = self.last_with_waiting {
            self.time += now.saturating_sub(last) as f64;
            for _ in 0..admitted {
                self.time *= FORGETTING;
                self.admissions = self.admissions * FORGETTING + 1.0;
            }
        }
        self.last_with_waiting = are_waiting.then_some(now);
    }

    /// Time from one admission to the next; None while nothing is known.
    pub fn interval(&self) -> Option<Nanos> {
        (self.admissions > 0.5).then(|| (self.time / self.admissions) as Nanos)
    }
}

/// Positions whose waits are foretold one by one for those at the door.
const FORETOLD: usize = 32;

/// What is foretold, for those at the door on any thread: moments at which a position is served, 0 where unknown, and
/// the time from one admission to the next.
#[derive(Default)]
pub struct SharedWaits(SeqLock<{ FORETOLD + 1 }>);

impl SharedWaits {
    /// Engine thread only.
    pub fn publish(&self, now: Nanos, waits: &Waits) {
        let mut numbers = [0; FORETOLD + 1];
        for (number, seat) in numbers.iter_mut().zip(&waits.seats).take(FORETOLD) {
            *number = now + seat;
        }
        numbers[FORETOLD] = waits.interval.unwrap_or(0);
        self.0.publish(&numbers);
    }

    /// How long whoever stands at `position` will wait from `now` on.
    pub fn wait(&self, now: Nanos, position: usize) -> Option<Nanos> {
        let numbers = self.0.read();
        match numbers[..FORETOLD].get(position) {
            Some(&seat) if seat > 0 => Some(seat.saturating_sub(now)),
            _ => Some(numbers[FORETOLD] * (position as u64 + 1)).filter(|&wait| wait > 0),
        }
    }
}

/// The same on the engine thread.
#[derive(Clone, Debug, Default)]
pub struct Waits {
    /// From now on, when the seats become free, soonest first; empty unless all are taken.
    pub seats: Vec<Nanos>,
    /// Time from one admission to the next.
    pub interval: Option<Nanos>,
    /// When that was worked out.
    pub published: Nanos,
}

impl Waits {
    /// How long whoever stands at `position` will wait.
    pub fn wait(&self, position: usize) -> Option<Nanos> {
        let by_pace = self.interval.map(|interval| interval * (position as u64 + 1));
        self.seats.get(position).copied().or(by_pace)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_times_of_waiting_count() {
        let mut pace = AdmissionPace::default();
        assert_eq!(pace.interval(), None);
        pace.observe(0, 5, true);
        assert_eq!(pace.interval(), None, "who came first did not wait for others");
        let mut now = 0;
        for step in 1..400 {
            now += 10;
            pace.observe(now, usize::from(step % 4 == 0), true);
        }
        let interval = pace.interval().unwrap();
        assert!((37..=43).contains(&interval), "{interval}");
        pace.observe(now, 1, false);
        pace.observe(now + 1_000_000, 0, true);
        assert!(pace.interval().unwrap() < 45, "nobody waited in that time");
    }

    #[test]
    fn the_door_hears_what_the_engine_foretells() {
        let (shared, mut waits) = (SharedWaits::default(), Waits::default());
        assert_eq!((shared.wait(0, 0), waits.wait(0)), (None, None));
        waits.interval = Some(100);
        waits.seats = vec![30, 70];
        shared.publish(1000, &waits);
        assert_eq!([0, 1, 2].map(|position| waits.wait(position).unwrap()), [30, 70, 300]);
        assert_eq!([0, 1, 2].map(|position| shared.wait(1010, position).unwrap()), [20, 60, 300]);
        assert_eq!(shared.wait(2000, 0), Some(0), "any moment now");
    }
}
