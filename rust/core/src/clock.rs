//! The core's one clock: monotonic nanoseconds since the core was made.
//!
//! Owns: where time comes from. Everything else handles plain numbers, so that a simulation can bring its own.

use std::time::Instant;

/// Nanoseconds since the core was made.
pub type Nanos = u64;

/// Monotonic clock.
#[derive(Clone, Copy)]
pub struct Clock {
    start: Instant,
}

impl Default for Clock {
    fn default() -> Self {
        Self { start: Instant::now() }
    }
}

impl Clock {
    /// Now.
    pub fn now(&self) -> Nanos {
        self.start.elapsed().as_nanos() as Nanos
    }
}

/// For people and programs: milliseconds.
pub fn as_ms(nanos: Nanos) -> f64 {
    nanos as f64 / 1e6
}
