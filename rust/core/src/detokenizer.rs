//! Token ids → text, piece by piece, for one sequence.
//!
//! Owns: the bytes of a character that is not whole yet, and the text that a stop string may still claim.
//! Invariants: only whole code points leave; what left is never taken back; all pieces and `finish` together are
//! the one-shot decode of all ids, unless a stop string ended it. Must not know: why a sequence ends otherwise.

use std::sync::Arc;

use crate::sampling_params::SamplingParams;
use crate::stop_strings::StopStrings;
use crate::vocabulary::Vocabulary;

/// Bytes in, whole code points out; ill-formed sequences become one U+FFFD per maximal subpart, as in
/// `String::from_utf8_lossy` of everything at once.
#[derive(Clone, Debug, Default)]
pub struct Utf8Assembler {
    pending: Vec<u8>,
    strip_leading_space: bool,
}

impl Utf8Assembler {
    /// `strip_leading_space`: drop one space if it is the very first byte.
    pub fn new(strip_leading_space: bool) -> Self {
        Self { pending: Vec::new(), strip_leading_space }
    }

    /// Appends to `text` what has become whole.
    pub fn push(&mut self, bytes: &[u8], text: &mut String) {
        let mut bytes = bytes;
        if self.strip_leading_space
            && let Some(&first) = bytes.first()
        {
            self.strip_leading_space = false;
            if first == b' ' {
                bytes = &bytes[1..];
            }
        }
        if self.pending.is_empty() {
            // The rule: a token of whole characters, which needs no copy.
            if let Ok(whole) = std::str::from_utf8(bytes) {
                text.push_str(whole);
                return;
            }
        }
        self.pending.extend_from_slice(bytes);
        let mut rest = &self.pending[..];
        let kept = loop {
            match std::str::from_utf8(rest) {
                Ok(whole) => {
                    text.push_str(whole);
                    break 0;
                }
                Err(error) => {
                    let (whole, tail) = rest.split_at(error.valid_up_to());
                    text.push_str(std::str::from_utf8(whole).expect("valid up to there"));
                    let Some(ill_formed) = error.error_len() else { break tail.len() };
                    text.push(char::REPLACEMENT_CHARACTER);
                    rest = &tail[ill_formed..];
                }
            }
        };
        self.pending.drain(..self.pending.len() - kept);
    }

    /// Nothing comes any more: an unfinished character is ill-formed.
    pub fn finish(&mut self, text: &mut String) {
        text.push_str(&String::from_utf8_lossy(&self.pending));
        self.pending.clear();
    }
}

/// How a `Detokenizer` treats its tokens.
#[derive(Clone, Debug, Default)]
pub struct DetokenizerOptions {
    /// Texts that end the sequence.
    pub stop: Vec<String>,
    /// Whether the text keeps the stop string that ended it.
    pub include_stop_str_in_output: bool,
    /// Whether special tokens are hidden.
    pub skip_special_tokens: bool,
    /// The text continues another one: no leading space is dropped.
    pub continuation: bool,
    /// A stop string that ends before this many tokens is text like any other.
    pub min_tokens: usize,
}

/// Assembles one sequence's text.
#[derive(Clone, Debug)]
pub struct Detokenizer {
    vocabulary: Arc<Vocabulary>,
    skip_special_tokens: bool,
    assembler: Utf8Assembler,
    stop_strings: Option<StopStrings>,
    min_tokens: usize,
    num_tokens: usize,
    /// Whole characters of the newest token.
    whole: String,
    /// What the last `push` released.
    text: String,
}

impl Detokenizer {
    /// For one sequence. The stop strings are not empty.
    pub fn new(vocabulary: Arc<Vocabulary>, options: &DetokenizerOptions) -> Self {
        let strip_leading_space = vocabulary.strips_leading_space() && !options.continuation;
        let stop_strings = (!options.stop.is_empty())
            .then(|| StopStrings::new(&options.stop, options.include_stop_str_in_output));
        Self {
            vocabulary,
            skip_special_tokens: options.skip_special_tokens,
            assembler: Utf8Assembler::new(strip_leading_space),
            stop_strings,
            min_tokens: options.min_tokens,
            num_tokens: 0,
            whole: String::new(),
            text: String::new(),
        }
    }

    /// For one sequence of a request; the answer continues a prompt.
    pub fn for_request(vocabulary: Arc<Vocabulary>, params: &SamplingParams) -> Self {
        let options = DetokenizerOptions {
            stop: params.stop.clone(),
            include_stop_str_in_output: params.include_stop_str_in_output,
            skip_special_tokens: params.skip_special_tokens,
            continuation: true,
            min_tokens: params.min_tokens as usize,
        };
        Self::new(vocabulary, &options)
    }

    /// Appends a token; returns the text that it releases. Reuses its buffers: this is called for every token.
    pub fn push(&mut self, token_id: u32) -> &str {
        self.text.clear();
        if self.stopped_by().is_some() {
            return &self.text;
        }
        self.num_tokens += 1;
        if self.skip_special_tokens && self.vocabulary.is_special(token_id) {
            return &self.text;
        }
        let bytes = self.vocabulary.token_bytes(token_id);
        match &mut self.stop_strings {
            None => self.assembler.push(bytes, &mut self.text),
            Some(stop_strings) => {
                self.whole.clear();
                self.assembler.push(bytes, &mut self.whole);
                let may_stop = self.num_tokens >= self.min_tokens;
                stop_strings.push(&self.whole, may_stop, &mut self.text);
            }
        }
        &self.text
    }

    /// What the last `push` returned.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The stop string that ended the text.
    pub fn stopped_by(&self) -> Option<&str> {
        self.stop_strings.as_ref()?.stopped_by()
    }

    /// What is still held back, now that nothing comes any more.
    pub fn finish(&mut self) -> String {
        let mut text = String::new();
        if self.stopped_by().is_none() {
            if let Some(stop_strings) = &mut self.stop_strings {
                stop_strings.release(&mut text);
            }
            self.assembler.finish(&mut text);
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn byte_vocabulary() -> Arc<Vocabulary> {
        let tokens: Vec<Vec<u8>> = (0..=255).map(|byte| vec![byte]).collect();
        Arc::new(Vocabulary::new(&tokens, &[0], false).unwrap())
    }

    fn stream(
        vocabulary: &Arc<Vocabulary>,
        options: &DetokenizerOptions,
        ids: &[u32],
    ) -> (Vec<String>, Detokenizer) {
        let mut detokenizer = Detokenizer::new(vocabulary.clone(), options);
        let mut pieces: Vec<String> = ids.iter().map(|&id| detokenizer.push(id).to_owned()).collect();
        pieces.push(detokenizer.finish());
        (pieces, detokenizer)
    }

    /// D02: ill-formed bytes, as WHATWG's decoder sees them, whatever the split.
    #[test]
    fn ill_formed_bytes_become_replacement_characters() {
        let cases: [(&[u8], &str); 6] = [
            (b"\xe3\x81'", "\u{fffd}'"),
            (b"\xe3\x81\\", "\u{fffd}\\"),
            (b"\xc0\x80", "\u{fffd}\u{fffd}"),
            (b"\xed\xa0\x80", "\u{fffd}\u{fffd}\u{fffd}"),
            (b"\xf4\x90\x80\x80", "\u{fffd}\u{fffd}\u{fffd}\u{fffd}"),
            (b"\xf0\x9f", "\u{fffd}"),
        ];
        for (bytes, expected) in cases {
            let ids: Vec<u32> = bytes.iter().map(|&byte| u32::from(byte)).collect();
            let (pieces, _) = stream(&byte_vocabulary(), &DetokenizerOptions::default(), &ids);
            assert_eq!(pieces.concat(), expected, "{bytes:x?}");
        }
    }

    /// D01: no part of a split character leaves before it is whole.
    #[test]
    fn split_characters_leave_whole() {
        let (pieces, _) =
            stream(&byte_vocabulary(), &DetokenizerOptions::default(), &[0xf0, 0x9f, 0xab, 0xa0, 0x21]);
        assert_eq!(pieces, ["", "", "", "\u{1fae0}", "!", ""]);
    }

    /// D03: one leading space is dropped once per text, never in a continuation.
    #[test]
    fn one_leading_space_is_dropped() {
        let tokens = [" ", " leading", " x"];
        let vocabulary = Arc::new(Vocabulary::new(&tokens, &[], true).unwrap());
        let text = |continuation| {
            let options = DetokenizerOptions { continuation, ..DetokenizerOptions::default() };
            stream(&vocabulary, &options, &[0, 1, 2]).0.concat()
        };
        assert_eq!(text(false), " leading x");
        assert_eq!(text(true), "  leading x");
        assert_eq!(vocabulary.decode(&[0, 1, 2], true), " leading x");
    }

    #[test]
    fn special_tokens_are_hidden_if_asked() {
        let vocabulary = byte_vocabulary();
        for skip_special_tokens in [true, false] {
            let options = DetokenizerOptions { skip_special_tokens, ..DetokenizerOptions::default() };
            let expected = if skip_special_tokens { "a" } else { "\0a" };
            assert_eq!(stream(&vocabulary, &options, &[0, 97]).0.concat(), expected);
        }
    }

    #[test]
    fn a_stop_string_before_min_tokens_is_text() {
        let options = DetokenizerOptions { stop: vec!["ab".into()], min_tokens: 3, ..Default::default() };
        let ids: Vec<u32> = b"abab".iter().map(|&byte| u32::from(byte)).collect();
        let (pieces, detokenizer) = stream(&byte_vocabulary(), &options, &ids);
        assert_eq!(pieces.concat(), "ab");
        assert_eq!(detokenizer.stopped_by(), Some("ab"));
    }

    proptest! {
        #[test]
        fn pieces_join_to_the_one_shot_decode(tokens in prop::collection::vec(prop::collection::vec(
            prop_oneof![any::<u8>(), prop::sample::select(b"\xf0\x9f\xab\xa0\xe5\xae\xa2 a".to_vec())], 0..4), 0..20)) {
            let all: Vec<u8> = tokens.concat();
            let vocabulary = Arc::new(Vocabulary::new(&tokens, &[], false).unwrap());
            let ids: Vec<u32> = (0..tokens.len() as u32).collect();
            let (pieces, _) = stream(&vocabulary, &DetokenizerOptions::default(), &ids);
            prop_assert_eq!(pieces.concat(), String::from_utf8_lossy(&all));
            prop_assert_eq!(vocabulary.decode(&ids, true), String::from_utf8_lossy(&all));
        }
    }
}
