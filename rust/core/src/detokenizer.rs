//! Token ids → text, whole code points only. First cut, without stop strings.

use std::sync::Arc;

use crate::sampling_params::SamplingParams;
use crate::vocabulary::Vocabulary;

/// Assembles one sequence's text.
pub struct Detokenizer {
    vocabulary: Arc<Vocabulary>,
    skip_special_tokens: bool,
    pending: Vec<u8>,
}

impl Detokenizer {
    /// For one sequence of a request; the answer continues a prompt.
    pub fn for_request(vocabulary: Arc<Vocabulary>, params: &SamplingParams) -> Self {
        Self { vocabulary, skip_special_tokens: params.skip_special_tokens, pending: Vec::new() }
    }

    /// Appends a token; returns the text that it completes.
    pub fn push(&mut self, token_id: u32) -> String {
        if self.skip_special_tokens && self.vocabulary.special_token_ids.contains(&token_id) {
            return String::new();
        }
        if let Some(bytes) = self.vocabulary.token_bytes.get(token_id as usize) {
            self.pending.extend_from_slice(bytes);
        }
        let whole = match std::str::from_utf8(&self.pending) {
            Ok(text) => text.len(),
            Err(error) if error.error_len().is_none() => error.valid_up_to(),
            Err(_) => self.pending.len(),
        };
        let rest = self.pending.split_off(whole);
        String::from_utf8_lossy(&std::mem::replace(&mut self.pending, rest)).into_owned()
    }

    /// The stop string that ended the text.
    pub fn stopped_by(&self) -> Option<&str> {
        None
    }

    /// What is still held back.
    pub fn finish(&mut self) -> String {
        String::from_utf8_lossy(&std::mem::take(&mut self.pending)).into_owned()
    }
}
