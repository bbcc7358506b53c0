//! Pagurid core: everything between a request and a step plan. No Python, no torch.

pub mod error;
