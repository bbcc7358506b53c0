//! Pagurid core: everything between a request and a step plan. No Python, no torch.

// Loops over logits must end up inside one function per instruction set, so that they are compiled for it.
#![allow(clippy::inline_always)]

pub mod block_hash;
pub mod block_pool;
pub mod clock;
pub mod detokenizer;
pub mod error;
pub mod intake;
pub mod metrics;
pub mod output;
pub mod output_batch;
pub mod outputs;
pub mod prefix_cache;
pub mod progress;
pub mod request;
pub mod request_table;
pub mod sampling;
pub mod sampling_params;
pub mod scheduler;
pub mod seeds;
pub mod sequence;
pub mod sequence_arena;
pub mod stats;
pub mod step_plan;
pub mod stop_strings;
pub mod token_list;
pub mod token_times;
pub mod vocabulary;
