//! Figures under load on a simulated clock: one file for each question.
//!
//! Owns: their names. Must not know: what is asked.

mod fair;
mod kv;
mod load;
mod statistics;
mod wait;
mod waste;

use crate::arguments::Arguments;
use crate::report::Report;

/// Answers one question; returns the steps it took.
pub type Scenario = fn(&Arguments, &mut Report) -> u64;

/// Every question.
pub const ALL: &[(&str, Scenario)] =
    &[("fair", fair::run), ("waste", waste::run), ("kv", kv::run), ("wait", wait::run)];
