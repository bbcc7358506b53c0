//! Token id → bytes: all that the detokeniser knows of a tokenizer.
//!
//! Owns: the bytes of every token in one buffer, which tokens are special, and the one-shot decode that streams are
//! held to. Must not know: how text becomes tokens, sequences.

use crate::detokenizer::Utf8Assembler;
use crate::error::{Error, Result};

/// The bytes of every token.
#[derive(Debug)]
pub struct Vocabulary {
    bytes: Vec<u8>,
    /// Token i is `bytes[starts[i]..starts[i + 1]]`.
    starts: Vec<usize>,
    is_special: Vec<bool>,
    strip_leading_space: bool,
}

impl Vocabulary {
    /// `strip_leading_space`: one space at the very start of a text is dropped, as SentencePiece does.
    pub fn new<T: AsRef<[u8]>>(
        token_bytes: &[T],
        special_token_ids: &[u32],
        strip_leading_space: bool,
    ) -> Result<Self> {
        let mut bytes = Vec::with_capacity(token_bytes.iter().map(|token| token.as_ref().len()).sum());
        let mut starts = Vec::with_capacity(token_bytes.len() + 1);
        starts.push(0);
        for token in token_bytes {
            bytes.extend_from_slice(token.as_ref());
            starts.push(bytes.len());
        }
        let mut is_special = vec![false; token_bytes.len()];
        for &id in special_token_ids {
            let Some(flag) = is_special.get_mut(id as usize) else {
                let message = format!("special_token_ids must be in 0..{}, got {id}", token_bytes.len());
                return Err(Error::invalid("special_token_ids", message));
            };
            *flag = true;
        }
        Ok(Self { bytes, starts, is_special, strip_leading_space })
    }

    /// Number of tokens.
    pub fn len(&self) -> usize {
        self.is_special.len()
    }

    /// Whether there are no tokens.
    pub fn is_empty(&self) -> bool {
        self.is_special.is_empty()
    }

    /// What the token adds to a text; nothing for ids that there are not.
    pub fn token_bytes(&self, token_id: u32) -> &[u8] {
        let at = token_id as usize;
        if at < self.len() { &self.bytes[self.starts[at]..self.starts[at + 1]] } else { &[] }
    }

    /// Whether the token is hidden from texts by default.
    pub fn is_special(&self, token_id: u32) -> bool {
        self.is_special.get(token_id as usize).copied().unwrap_or(false)
    }

    /// Whether a text's first space is dropped.
    pub fn strips_leading_space(&self) -> bool {
        self.strip_leading_space
    }

    /// The text of all these tokens at once. Ill-formed bytes become U+FFFD.
    pub fn decode(&self, token_ids: &[u32], skip_special_tokens: bool) -> String {
        let mut assembler = Utf8Assembler::new(self.strip_leading_space);
        let mut text = String::new();
        for &id in token_ids {
            if !(skip_special_tokens && self.is_special(id)) {
                assembler.push(self.token_bytes(id), &mut text);
            }
        }
        assembler.finish(&mut text);
        text
    }
}
