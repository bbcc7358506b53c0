//! The structures under loom: `make test-loom`. Each test is named after the race whose interleavings it goes
//! through, within `LOOM_MAX_PREEMPTIONS` if that is set. `tools/loom_mutants.py` proves that they can fail.
#![cfg(loom)]

mod blocks;
mod jobs;
mod notices;
mod outputs;
mod queues;
mod race;
mod slots;
mod tracked;
mod wake_up;
