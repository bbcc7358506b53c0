//! What a request's sequences have gained since the consumer last looked.
//!
//! Owns: what the consumer takes of one request (`PendingOutput`).
//! Invariant: taking merges, so a slow reader gets fewer and larger deltas, and memory is bounded by the answer.
//! Must not know: how it crosses threads (`output_batch`, `outputs`), who reads it.

use crate::metrics::RequestMetrics;

/// Why a sequence ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FinishReason {
    /// An end-of-sequence token, a stop token or a stop string.
    Stop,
    /// `max_tokens`, the context or the pool.
    Length,
    /// The client's wish.
    Cancelled,
    /// A failed step.
    Error,
}

impl FinishReason {
    /// Every reason.
    pub const ALL: [Self; 4] = [Self::Stop, Self::Length, Self::Cancelled, Self::Error];

    /// The word on the wire.
    pub const fn wire(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Length => "length",
            Self::Cancelled => "cancelled",
            Self::Error => "error",
        }
    }
}

/// What exactly stopped a sequence, if the request named it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// One of `stop_token_ids`.
    Token(u32),
    /// One of `stop`.
    Text(String),
}

/// The end of one sequence.
#[derive(Clone, Debug, PartialEq)]
pub struct Finish {
    /// Why.
    pub reason: FinishReason,
    /// With `FinishReason::Stop`: what the request had named, None for an end-of-sequence token.
    pub stop_reason: Option<StopReason>,
    /// With `FinishReason::Error`: what happened.
    pub error: Option<String>,
}

impl From<FinishReason> for Finish {
    fn from(reason: FinishReason) -> Self {
        Self { reason, stop_reason: None, error: None }
    }
}

/// Of one chosen token: raw model log-probabilities, finite.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenLogprobs {
    /// The token.
    pub token_id: u32,
    /// Its own log-probability.
    pub logprob: f32,
    /// The most likely tokens, best first.
    pub top: Vec<(u32, f32)>,
}

/// What one sequence has gained since the last take.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SequenceDelta {
    /// Which of the request's sequences.
    pub index: u32,
    /// Whole code points.
    pub text: String,
    /// The new tokens.
    pub token_ids: Vec<u32>,
    /// One entry per new token if the request asked for them.
    pub logprobs: Option<Vec<TokenLogprobs>>,
    /// Of this sequence, so far.
    pub completion_tokens: u32,
    /// Set on the sequence's last delta.
    pub finish: Option<Finish>,
}

/// All that a request has gained since the last take.
#[derive(Debug, Default)]
pub struct PendingOutput {
    /// At most one per sequence, in the order of their first gain.
    pub deltas: Vec<SequenceDelta>,
    /// Set when the request is over: nothing comes after it.
    pub metrics: Option<Box<RequestMetrics>>,
}

impl PendingOutput {
    /// The delta of sequence `index`, begun if there is none.
    pub fn delta(&mut self, index: u32) -> &mut SequenceDelta {
        // One sequence is the rule, so a search beats a map.
        let position = self.deltas.iter().position(|delta| delta.index == index).unwrap_or_else(|| {
            self.deltas.push(SequenceDelta { index, ..SequenceDelta::default() });
            self.deltas.len() - 1
        });
        &mut self.deltas[position]
    }
}
