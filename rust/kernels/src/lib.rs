//! CPU kernels of Pagurid: linear layers (float and quantised), norms, activations, `RoPE` with the KV write, paged attention.
//!
//! Owns: the arithmetic, and the order it is done in.
//! Invariant: what a row gets has the same bits whatever the other rows, the cut of a prompt into chunks,
//! the numbers of its blocks, or the thread count. So every sum runs in an order that is a function of the
//! row's own length alone. Bits may differ between instruction sets only where the portable code has no
//! fused multiply-add.
//! Must not know: Python, models, the scheduler. Activations are float32; weights may be float16, bfloat16, or quantised as in GGUF files.

// The bodies of kernels must melt into the functions that switch an instruction set on.
#![allow(clippy::inline_always)]
// Slices whose lengths don't fit the shapes beside them panic, in every kernel.
#![allow(clippy::missing_panics_doc)]

pub mod activation;
pub mod attention;
pub mod cpu;
mod error;
mod huge_pages;
pub mod kv_cache;
mod lanes;
pub mod linear;
pub mod norm;
pub mod quantized;
pub mod rope;
pub mod rows;
mod shared_output;
pub mod tape;
pub mod threads;

pub use cpu::{Cpu, Isa};
pub use error::InvalidArgument;
