//! What anyone may see of a request at a glance.
//!
//! Owns: the states and their words. Must not know: who changes them and when (`scheduler`), where they are kept
//! (`request_table`).

/// Where a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum RequestState {
    /// Waits for its first step.
    Queued,
    /// Its tokens are being computed.
    Prefill,
    /// It gains a token in every step.
    Decode,
    /// It lost its blocks and waits to be resumed.
    Preempted,
    /// Its outputs are complete.
    Finished,
}

impl RequestState {
    /// Every state.
    pub const ALL: [Self; 5] = [Self::Queued, Self::Prefill, Self::Decode, Self::Preempted, Self::Finished];

    /// The word on the wire.
    pub const fn wire(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Prefill => "prefill",
            Self::Decode => "decode",
            Self::Preempted => "preempted",
            Self::Finished => "finished",
        }
    }
}

/// A glance at a request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RequestProgress {
    /// Where it is.
    pub state: RequestState,
    /// Sequences ahead of it, while it waits.
    pub position: Option<u32>,
    /// How long it will probably wait until it runs, in ms, while it waits and as soon as there is experience.
    pub wait_ms_estimate: Option<u32>,
    /// Tokens computed, of those that must be before the next token.
    pub prefill_done_tokens: u32,
    /// Tokens that must be computed before the next token.
    pub prefill_total_tokens: u32,
    /// Found in the prefix cache; None until admitted.
    pub cached_tokens: Option<u32>,
}
