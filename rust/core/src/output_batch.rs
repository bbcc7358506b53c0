//! What the steps since the consumer's last look have given, all requests together, on its way across threads.
//!
//! Owns: the flat form in which the engine thread appends, one short record per token, so that a step costs no
//! allocation and no atomic operation per sequence. The whole batch crosses in one exchange (`outputs`).
//! Invariant: nothing of a sequence follows its end, so tokens can be read before ends, and those before the requests
//! that are over. Must not know: threads, readers.

use pagurid_lockfree::Batch;

use crate::metrics::RequestMetrics;
use crate::output::{Finish, TokenLogprobs};
use crate::request_table::RequestId;

/// A token that a sequence has gained. Whole words, put together in registers: records that are assembled in memory
/// piece by piece and then copied make the processor wait for all its writes before, one cache miss each.
#[derive(Clone, Copy, Debug)]
pub struct TokenRecord {
    request: RequestId,
    index_and_token: u64,
    count_and_text: u64,
}

/// In the highest bit of `count_and_text`.
const HAS_LOGPROBS: u64 = 1 << 63;

impl TokenRecord {
    /// Of sequence `index`, which has `completion_tokens` with this one; `text_bytes` bytes of text came with it.
    #[inline]
    pub fn new(
        request: RequestId,
        index: u32,
        token: u32,
        completion_tokens: u32,
        text_bytes: usize,
        has_logprobs: bool,
    ) -> Self {
        let logprobs = if has_logprobs { HAS_LOGPROBS } else { 0 };
        Self {
            request,
            index_and_token: u64::from(index) | u64::from(token) << 32,
            count_and_text: u64::from(completion_tokens) | (text_bytes as u64) << 32 | logprobs,
        }
    }

    /// Whose.
    pub fn request(&self) -> RequestId {
        self.request
    }

    /// Which of the request's sequences.
    pub fn index(&self) -> u32 {
        self.index_and_token as u32
    }

    /// The token.
    pub fn token(&self) -> u32 {
        (self.index_and_token >> 32) as u32
    }

    /// Of this sequence, with this one.
    pub fn completion_tokens(&self) -> u32 {
        self.count_and_text as u32
    }

    /// So many bytes of the batch's text are its.
    pub fn text_bytes(&self) -> usize {
        ((self.count_and_text & !HAS_LOGPROBS) >> 32) as usize
    }

    /// Whether an entry of the batch's log-probabilities is its.
    pub fn has_logprobs(&self) -> bool {
        self.count_and_text & HAS_LOGPROBS != 0
    }
}

/// The end of a sequence.
#[derive(Debug)]
pub struct SequenceEnd {
    /// Whose.
    pub request: RequestId,
    /// Which of the request's sequences.
    pub index: u32,
    /// Of this sequence, in all.
    pub completion_tokens: u32,
    /// Text that was held back until now.
    pub text: String,
    /// Why.
    pub finish: Finish,
}

/// See the module.
#[derive(Debug, Default)]
pub struct OutputBatch {
    /// In the order in which they came.
    pub tokens: Vec<TokenRecord>,
    /// Their texts, one after the other.
    pub text: String,
    /// Their log-probabilities, of those that have some.
    pub logprobs: Vec<TokenLogprobs>,
    /// Sequences that ended.
    pub ends: Vec<SequenceEnd>,
    /// Requests that are over.
    pub over: Vec<(RequestId, Box<RequestMetrics>)>,
}

impl Batch for OutputBatch {
    fn is_empty(&self) -> bool {
        self.tokens.is_empty() && self.ends.is_empty() && self.over.is_empty()
    }

    fn clear(&mut self) {
        self.tokens.clear();
        self.text.clear();
        self.logprobs.clear();
        self.ends.clear();
        self.over.clear();
    }

    fn append(&mut self, later: &mut Self) {
        self.tokens.append(&mut later.tokens);
        self.text.push_str(&later.text);
        self.logprobs.append(&mut later.logprobs);
        self.ends.append(&mut later.ends);
        self.over.append(&mut later.over);
        later.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_keeps_its_numbers_apart() {
        for (index, token, count, bytes, logprobs) in
            [(0, 0, 0, 0, false), (127, u32::MAX, u32::MAX, i32::MAX as usize, true), (1, 2, 3, 4, true)]
        {
            let record = TokenRecord::new(u64::MAX, index, token, count, bytes, logprobs);
            let numbers = (record.index(), record.token(), record.completion_tokens(), record.text_bytes());
            assert_eq!(numbers, (index, token, count, bytes));
            assert_eq!((record.request(), record.has_logprobs()), (u64::MAX, logprobs));
        }
    }
}
