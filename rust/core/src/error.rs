//! The one table of errors: Rust enum ↔ wire code ↔ HTTP status (↔ `pagurid.errors`, held equal by a test).
//!
//! Owns: every error the core can hand to a user. Messages state what was expected and what came.
//! Must not know: Python, transports.

use std::fmt;

/// What kind of error, in the order of `pagurid.errors.ERRORS`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorCode {
    /// A field is missing, of the wrong type, or outside its limits.
    InvalidRequest,
    /// No key, or a wrong one.
    Unauthorized,
    /// The key, origin or host may not do this.
    Forbidden,
    /// The request names a model that is not served.
    ModelNotFound,
    /// Prompt plus answer cannot fit the model's context or the KV pool.
    ContextLengthExceeded,
    /// A generation of this id is still running.
    IdInUse,
    /// The request queue holds as many requests as it may.
    QueueFull,
    /// This client sends more than it may.
    RateLimited,
    /// The server cannot take work now.
    Overloaded,
    /// The request took longer than its limit.
    Timeout,
    /// There is no generation of this id to resume.
    StreamNotFound,
    /// The server was restarted since the client's stream began.
    EpochChanged,
    /// Our fault.
    Internal,
}

impl ErrorCode {
    /// Every code, in the order of the table in the design.
    pub const ALL: [Self; 13] = [
        Self::InvalidRequest,
        Self::Unauthorized,
        Self::Forbidden,
        Self::ModelNotFound,
        Self::ContextLengthExceeded,
        Self::IdInUse,
        Self::QueueFull,
        Self::RateLimited,
        Self::Overloaded,
        Self::Timeout,
        Self::StreamNotFound,
        Self::EpochChanged,
        Self::Internal,
    ];

    /// The word on the wire.
    pub const fn wire(self) -> &'static str {
        match self {
            Self::InvalidRequest => "invalid_request",
            Self::Unauthorized => "unauthorized",
            Self::Forbidden => "forbidden",
            Self::ModelNotFound => "model_not_found",
            Self::ContextLengthExceeded => "context_length_exceeded",
            Self::IdInUse => "id_in_use",
            Self::QueueFull => "queue_full",
            Self::RateLimited => "rate_limited",
            Self::Overloaded => "overloaded",
            Self::Timeout => "timeout",
            Self::StreamNotFound => "stream_not_found",
            Self::EpochChanged => "epoch_changed",
            Self::Internal => "internal",
        }
    }

    /// The HTTP status that carries it.
    pub const fn http_status(self) -> u16 {
        match self {
            Self::InvalidRequest | Self::ContextLengthExceeded => 400,
            Self::Unauthorized => 401,
            Self::Forbidden => 403,
            Self::ModelNotFound | Self::StreamNotFound => 404,
            Self::IdInUse | Self::EpochChanged => 409,
            Self::QueueFull | Self::RateLimited => 429,
            Self::Overloaded => 503,
            Self::Timeout => 504,
            Self::Internal => 500,
        }
    }
}

/// One error on its way to a user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// Its row in the table.
    pub code: ErrorCode,
    /// What was expected and what came, with the real numbers.
    pub message: String,
    /// The field at fault.
    pub param: Option<&'static str>,
    /// For errors that pass: when to try again.
    pub retry_after_ms: Option<u64>,
}

/// The core's results.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An error of `code` without further facts.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), param: None, retry_after_ms: None }
    }

    /// `param` is missing, of the wrong type, or outside its limits.
    pub fn invalid(param: &'static str, message: impl Into<String>) -> Self {
        Self::new(ErrorCode::InvalidRequest, message).with_param(param)
    }

    /// A bug of ours: an invariant does not hold, or calls came in an impossible order.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::Internal, message)
    }

    /// Names the field at fault.
    #[must_use]
    pub fn with_param(mut self, param: &'static str) -> Self {
        self.param = Some(param);
        self
    }

    /// Says when to try again.
    #[must_use]
    pub fn with_retry_after_ms(mut self, retry_after_ms: u64) -> Self {
        self.retry_after_ms = Some(retry_after_ms);
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code.wire(), self.message)
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_is_in_declaration_order_and_codes_are_distinct() {
        for (i, code) in ErrorCode::ALL.iter().enumerate() {
            assert_eq!(*code as usize, i);
            assert_eq!(ErrorCode::ALL.iter().filter(|other| other.wire() == code.wire()).count(), 1);
        }
    }
}
