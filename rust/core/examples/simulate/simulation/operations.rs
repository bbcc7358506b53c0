//! What an episode consists of: operations that mean the same whatever others are left out before them.
//!
//! Owns: the list's words and how people read them. Must not know: who draws them, what they do.

use std::fmt;

use pagurid_core::clock::{Nanos, as_ms};

use super::api::Submission;

/// One operation. Labels name requests for good, so leaving out a `Submit` turns what is done to it into nothing.
#[derive(Clone, Debug)]
pub enum Operation {
    /// A request comes.
    Submit(Submission),
    /// Its client wants it to end.
    Cancel(u32),
    /// Its client has gone.
    Release(u32),
    /// Opens a step and computes it, unless as many as may be are open.
    Plan,
    /// Ends the oldest open step, if there is one.
    Commit,
    /// The oldest open step fails, perhaps after it has written its slots with anything.
    Abort { scribbles: bool },
    /// The consumer takes all that is ready.
    Take,
    /// The consumer looks at one request.
    TakeOne(u32),
    /// Time passes.
    Pass(Nanos),
}

impl fmt::Display for Operation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Submit(Submission { label, prompt, params, age, tenant, priority, cache_salt }) => {
                write!(out, "submit #{label}: prompt {prompt:?} ({} tokens)", prompt.len())?;
                write!(
                    out,
                    ", n {}, max_tokens {:?}, min_tokens {}",
                    params.n, params.max_tokens, params.min_tokens
                )?;
                write!(out, ", stop {:?}, ignore_eos {}", params.stop_token_ids, params.ignore_eos)?;
                write!(out, ", age {age:?}, tenant {tenant}, priority {priority}, salt {cache_salt:?}")
            }
            Self::Cancel(label) => write!(out, "cancel #{label}"),
            Self::Release(label) => write!(out, "release #{label}"),
            Self::Plan => write!(out, "plan"),
            Self::Commit => write!(out, "commit"),
            Self::Abort { scribbles: false } => write!(out, "abort"),
            Self::Abort { scribbles: true } => write!(out, "abort, slots overwritten"),
            Self::Take => write!(out, "take all"),
            Self::TakeOne(label) => write!(out, "take #{label}"),
            Self::Pass(nanos) => write!(out, "{} ms pass", as_ms(*nanos)),
        }
    }
}
