//! How to wait for a thread that will be done soon, on cores that others use, too.
//!
//! Owns: how long to spin, when to give the core away. Must not know: what is waited for.

use std::time::Duration;

use crate::sync::{hint, nap, thread};

/// Some ten µs, what a piece of work takes; so that waiting usually costs nothing.
const SPINS: u32 = 1000;
/// Then the other thread has probably lost its core, maybe to us: it comes next if it stands in line for this one.
const YIELDS: u32 = 16;
/// Then it stands in line for another core. One that falls idle takes it over, so ours must.
const FIRST_NAP: Duration = Duration::from_micros(20);
const LONGEST_NAP: Duration = Duration::from_micros(500);

/// One wait.
#[derive(Default)]
pub(crate) struct Backoff {
    pauses: u32,
}

impl Backoff {
    /// Between one look and the next; longer each time.
    pub(crate) fn pause(&mut self) {
        match self.pauses.checked_sub(SPINS) {
            None => hint::spin_loop(),
            Some(yields) if yields < YIELDS => thread::yield_now(),
            Some(others) => {
                let doublings = (others - YIELDS).min(16);
                nap((FIRST_NAP * (1 << doublings)).min(LONGEST_NAP));
            }
        }
        self.pauses = self.pauses.saturating_add(1);
    }
}
