//! The scheduler's counters, written by the engine thread, read whole by any thread.
//!
//! Owns: the snapshot; a sequence lock keeps it from being read half old, half new.
//! Invariant: readers see the figures of one moment (free + cached + used = total in every snapshot).
//! Must not know: what the counters count.

use pagurid_lockfree::SeqLock;

use crate::clock::Nanos;
use crate::output::FinishReason;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// Plain counters, as the engine thread keeps them.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Counters {
            $($(#[$doc])* pub $name: u64,)*
            /// Requests that ended, by `FinishReason`.
            pub requests_finished: [u64; FinishReason::ALL.len()],
        }

        /// Numbers in `Counters`.
        const LEN: usize = [$(stringify!($name)),*].len() + FinishReason::ALL.len();

        impl Counters {
            fn to_numbers(self) -> [u64; LEN] {
                let mut numbers = [0; LEN];
                let named = [$(self.$name),*];
                numbers[..named.len()].copy_from_slice(&named);
                numbers[named.len()..].copy_from_slice(&self.requests_finished);
                numbers
            }

            fn from_numbers(numbers: [u64; LEN]) -> Self {
                let mut numbers = numbers.into_iter();
                let mut next = || numbers.next().expect("as many numbers as counters");
                // Fields are evaluated in the order in which they are written: that of `to_numbers`.
                Self { $($name: next(),)* requests_finished: std::array::from_fn(|_| next()) }
            }
        }
    };
}

counters! {
    /// Sequences that hold blocks.
    num_running,
    /// Sequences that wait for their first or next step.
    num_waiting,
    /// Blocks that hold nothing.
    free_blocks,
    /// Blocks without an owner that can be hit.
    cached_blocks,
    /// Blocks with an owner.
    used_blocks,
    /// Steps that ended well.
    steps,
    /// Prompt tokens of admitted requests.
    prompt_tokens,
    /// Tokens given out.
    completion_tokens,
    /// Prompt tokens found in the prefix cache.
    cached_tokens,
    /// Prompt tokens looked up there.
    prefix_cache_queries_tokens,
    /// How often a sequence lost its blocks.
    preemptions,
    /// Tokens that had to be computed again after that.
    recomputed_tokens,
    /// Steps that failed.
    failed_steps,
    /// Of these, since the last good one.
    consecutive_failed_steps,
    /// Time in steps, in ns.
    busy_ns,
    /// Of this, attributed to requests, in ns.
    attributed_busy_ns,
    /// Tokens of the last step.
    last_step_tokens,
    /// Time of the last step, in ns.
    last_step_ns,
}

/// The counters, shared.
#[derive(Default)]
pub struct SharedCounters(SeqLock<LEN>);

impl SharedCounters {
    /// Engine thread only: shows `counters` to the readers.
    pub fn publish(&self, counters: &Counters) {
        self.0.publish(&counters.to_numbers());
    }

    /// The last published counters.
    pub fn read(&self) -> Counters {
        Counters::from_numbers(self.0.read())
    }
}

/// A snapshot for people and programs.
#[derive(Clone, Debug, PartialEq)]
pub struct SchedulerStats {
    /// The counters of one moment.
    pub counters: Counters,
    /// Blocks that can be handed out.
    pub total_blocks: usize,
    /// Of all layers together.
    pub kv_bytes_per_block: u64,
    /// Life of the scheduler.
    pub uptime: Nanos,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn readers_never_see_half_a_write() {
        let shared = SharedCounters::default();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for value in 0..200_000 {
                    let counters = Counters { free_blocks: value, used_blocks: value, ..Counters::default() };
                    shared.publish(&Counters { requests_finished: [value; 4], ..counters });
                }
                stop.store(true, Ordering::Relaxed);
            });
            while !stop.load(Ordering::Relaxed) {
                let counters = shared.read();
                assert_eq!(counters.free_blocks, counters.used_blocks);
                assert_eq!(counters.requests_finished, [counters.free_blocks; 4]);
            }
        });
    }
}
