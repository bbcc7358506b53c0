//! Token ids → text, whole code points only. First cut, without stop strings.

use std::sync::Arc;

use crate::sampling_params::SamplingParams;
use crate::vocabulary::Vocabulary;

/// Assembles one sequence's text.
pub struct Detokenizer {
    vocabulary: Arc<Vocabulary>,
    skip_special_tokens: bool,
    pending: Vec<u8>,
    text: String,
}

impl Detokenizer {
    /// For one sequence of a request; the answer continues a prompt.
    pub fn for_request(vocabulary: Arc<Vocabulary>, params: &SamplingParams) -> Self {
        Self {
            vocabulary,
            skip_special_tokens: params.skip_special_tokens,
            pending: Vec::new(),
            text: String::new(),
        }
    }

    /// Appends a token; returns the text that it completes. Reuses one buffer: this is called for every token.
    pub fn push(&mut self, token_id: u32) -> &str {
        self.text.clear();
        if self.skip_special_tokens && self.vocabulary.special_token_ids.contains(&token_id) {
            return &self.text;
        }
        if let Some(bytes) = self.vocabulary.token_bytes.get(token_id as usize) {
            self.pending.extend_from_slice(bytes);
        }
        let whole = match std::str::from_utf8(&self.pending) {
            Ok(text) => text.len(),
            Err(error) if error.error_len().is_none() => error.valid_up_to(),
            Err(_) => self.pending.len(),
        };
        self.text.push_str(&String::from_utf8_lossy(&self.pending[..whole]));
        self.pending.drain(..whole);
        &self.text
    }

    /// What the last `push` returned.
    pub fn text(&self) -> &str {
        &self.text
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
