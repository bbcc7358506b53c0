//! The core's one clock: monotonic nanoseconds since the core was made.
//!
//! Owns: where time comes from. Everything else handles plain numbers, so that a simulation can bring its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Nanoseconds since the core was made.
pub type Nanos = u64;

/// Monotonic clock: the machine's, or one that is set by hand.
#[derive(Clone)]
pub enum Clock {
    /// Of the machine, from this moment on.
    Real(Instant),
    /// Shows what its owner has set.
    Manual(Arc<AtomicU64>),
}

impl Default for Clock {
    fn default() -> Self {
        Self::Real(Instant::now())
    }
}

impl Clock {
    /// A clock that stands at 0 until it is advanced.
    pub fn manual() -> Self {
        Self::Manual(Arc::default())
    }

    /// Now.
    pub fn now(&self) -> Nanos {
        match self {
            Self::Real(start) => start.elapsed().as_nanos() as Nanos,
            // Relaxed: the number guards nothing.
            Self::Manual(now) => now.load(Ordering::Relaxed),
        }
    }

    /// Moves a manual clock on.
    ///
    /// # Panics
    /// If it is the machine's.
    pub fn advance(&self, by: Nanos) {
        let Self::Manual(now) = self else { panic!("nobody sets the machine's clock") };
        now.fetch_add(by, Ordering::Relaxed);
    }
}

/// For people and programs: milliseconds.
pub fn as_ms(nanos: Nanos) -> f64 {
    nanos as f64 / 1e6
}

/// The other way round; what is negative is nothing.
pub fn from_ms(ms: f64) -> Nanos {
    (ms * 1e6) as Nanos
}
