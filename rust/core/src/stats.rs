//! The scheduler's counters, written by the engine thread, read whole by any thread.
//!
//! Owns: the snapshot and the sequence lock that keeps it from being read half old, half new.
//! Invariant: readers see the figures of one moment (free + cached + used = total in every snapshot).
//! Must not know: what the counters count.

use std::sync::atomic::{AtomicU64, Ordering, fence};

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

        /// The same, shared.
        #[derive(Default)]
        pub struct SharedCounters {
            /// Odd while a write is under way.
            version: AtomicU64,
            $($name: AtomicU64,)*
            requests_finished: [AtomicU64; FinishReason::ALL.len()],
        }

        impl SharedCounters {
            /// Engine thread only: shows `counters` to the readers.
            pub fn publish(&self, counters: &Counters) {
                let version = self.version.load(Ordering::Relaxed);
                self.version.store(version + 1, Ordering::Relaxed);
                // Pairs with the fence in `read`: who sees a new figure sees the odd version, too.
                fence(Ordering::Release);
                $(self.$name.store(counters.$name, Ordering::Relaxed);)*
                for (shared, &value) in self.requests_finished.iter().zip(&counters.requests_finished) {
                    shared.store(value, Ordering::Relaxed);
                }
                // Pairs with the Acquire load in `read`.
                self.version.store(version + 2, Ordering::Release);
            }

            /// The last published counters.
            pub fn read(&self) -> Counters {
                loop {
                    let version = self.version.load(Ordering::Acquire);
                    let mut counters = Counters { $($name: self.$name.load(Ordering::Relaxed),)* ..Counters::default() };
                    for (value, shared) in counters.requests_finished.iter_mut().zip(&self.requests_finished) {
                        *value = shared.load(Ordering::Relaxed);
                    }
                    fence(Ordering::Acquire);
                    if version % 2 == 0 && self.version.load(Ordering::Relaxed) == version {
                        return counters;
                    }
                    std::hint::spin_loop();
                }
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
    use std::sync::atomic::AtomicBool;

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
