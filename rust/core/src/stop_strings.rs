//! Stop strings, found across token borders.
//!
//! Owns: the text that a stop string may still claim. Invariants: text leaves as soon as no stop string can begin in
//! it; the match that ends first wins, the longest of those that end together; each byte is looked at once per stop
//! string (amortised). Must not know: tokens.

/// One stop string as Knuth, Morris and Pratt search it.
#[derive(Clone, Debug)]
struct Pattern {
    text: String,
    /// `fallback[n]`: the longest proper prefix that also ends the first n bytes.
    fallback: Vec<usize>,
    /// Bytes matched at the end of what came so far.
    matched: usize,
}

impl Pattern {
    fn new(text: &str) -> Self {
        let bytes = text.as_bytes();
        let mut fallback = vec![0; bytes.len() + 1];
        let mut length = 0;
        for at in 1..bytes.len() {
            while length > 0 && bytes[at] != bytes[length] {
                length = fallback[length];
            }
            length += usize::from(bytes[at] == bytes[length]);
            fallback[at + 1] = length;
        }
        Self { text: text.to_owned(), fallback, matched: 0 }
    }

    /// True if the pattern ends with this byte.
    fn push(&mut self, byte: u8) -> bool {
        let bytes = self.text.as_bytes();
        if self.matched == bytes.len() {
            self.matched = self.fallback[self.matched];
        }
        while self.matched > 0 && bytes[self.matched] != byte {
            self.matched = self.fallback[self.matched];
        }
        self.matched += usize::from(bytes[self.matched] == byte);
        self.matched == bytes.len()
    }

    /// Bytes at the end of what came so far that a later match may begin with.
    fn claimed(&self) -> usize {
        if self.matched == self.text.len() { self.fallback[self.matched] } else { self.matched }
    }
}

/// The stop strings of one sequence and the text they hold back.
#[derive(Clone, Debug)]
pub struct StopStrings {
    /// Longest first, so that the first to end at a byte is the longest that does.
    patterns: Vec<Pattern>,
    include: bool,
    held: String,
    stopped_by: Option<usize>,
}

impl StopStrings {
    /// None of `stop` is empty. `include`: the text ends with the stop string that ended it.
    pub fn new(stop: &[String], include: bool) -> Self {
        debug_assert!(stop.iter().all(|text| !text.is_empty()));
        let mut patterns: Vec<Pattern> = stop.iter().map(|text| Pattern::new(text)).collect();
        patterns.sort_by_key(|pattern| std::cmp::Reverse(pattern.text.len()));
        Self { patterns, include, held: String::new(), stopped_by: None }
    }

    /// Takes whole characters; appends to `released` what no stop string can claim any more.
    ///
    /// With `may_stop` false a stop string that ends here is text like any other.
    pub fn push(&mut self, text: &str, may_stop: bool, released: &mut String) {
        let before = self.held.len();
        self.held.push_str(text);
        for (at, &byte) in text.as_bytes().iter().enumerate() {
            let mut longest = None;
            for (index, pattern) in self.patterns.iter_mut().enumerate() {
                if pattern.push(byte) && longest.is_none() {
                    longest = Some(index);
                }
            }
            if let Some(index) = longest
                && may_stop
            {
                let end = before + at + 1;
                let kept = if self.include { end } else { end - self.patterns[index].text.len() };
                released.push_str(&self.held[..kept]);
                self.held.clear();
                self.stopped_by = Some(index);
                return;
            }
        }
        let claimed = self.patterns.iter().map(Pattern::claimed).max().unwrap_or(0);
        released.extend(self.held.drain(..self.held.len() - claimed));
    }

    /// Nothing comes any more: what was held is text.
    pub fn release(&mut self, released: &mut String) {
        released.push_str(&self.held);
        self.held.clear();
    }

    /// The stop string that was found.
    pub fn stopped_by(&self) -> Option<&str> {
        self.stopped_by.map(|index| &*self.patterns[index].text)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn run(stop: &[&str], include: bool, pieces: &[&str]) -> (Vec<String>, Option<String>) {
        let stop: Vec<String> = stop.iter().map(|&text| text.to_owned()).collect();
        let mut strings = StopStrings::new(&stop, include);
        let mut released = Vec::new();
        for piece in pieces {
            let mut text = String::new();
            strings.push(piece, true, &mut text);
            released.push(text);
            if strings.stopped_by().is_some() {
                break;
            }
        }
        let mut rest = String::new();
        strings.release(&mut rest);
        released.push(rest);
        (released, strings.stopped_by().map(str::to_owned))
    }

    /// D06: tokens DEF, G, HI, J.
    #[test]
    fn a_stop_string_over_token_borders_never_leaks() {
        let tokens = ["DEF", "G", "HI", "J"];
        let joined = |stop: &[&str], include| {
            let (released, stopped_by) = run(stop, include, &tokens);
            (released.concat(), stopped_by)
        };
        assert_eq!(joined(&["DEFGHIJ"], false), (String::new(), Some("DEFGHIJ".into())));
        assert_eq!(joined(&["DE"], false), (String::new(), Some("DE".into())));
        assert_eq!(joined(&["DEFX"], false), ("DEFGHIJ".into(), None));
        assert_eq!(joined(&["GH"], true), ("DEFGH".into(), Some("GH".into())));
    }

    #[test]
    fn only_a_real_partial_match_is_held() {
        let (released, _) = run(&["abcabd"], false, &["abcab", "c", "x"]);
        assert_eq!(released, ["", "abc", "abcx", ""]);
    }

    #[test]
    fn the_longest_of_those_that_end_together_wins() {
        assert_eq!(
            run(&["bc", "abc"], false, &["xabc"]),
            (vec!["x".into(), String::new()], Some("abc".into()))
        );
    }

    proptest! {
        #[test]
        fn equals_a_naive_search(text in "[abé]{0,24}", stop in prop::collection::vec("[abé]{1,4}", 1..4),
                                 cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6), include: bool) {
            let mut borders: Vec<usize> = text.char_indices().map(|(at, _)| at).collect();
            borders.push(text.len());
            let mut at: Vec<usize> = cuts.iter().map(|cut| borders[cut.index(borders.len())]).collect();
            at.extend([0, text.len()]);
            at.sort_unstable();
            let pieces: Vec<&str> = at.windows(2).map(|pair| &text[pair[0]..pair[1]]).collect();
            let stops: Vec<&str> = stop.iter().map(String::as_str).collect();
            let (released, stopped_by) = run(&stops, include, &pieces);

            let first = (1..=text.len()).filter(|&end| text.is_char_boundary(end)).find_map(|end| {
                let ending = stops.iter().filter(|stop| text[..end].ends_with(**stop));
                ending.max_by_key(|stop| stop.len()).map(|stop| (end, *stop))
            });
            match first {
                None => {
                    prop_assert_eq!(released.concat(), text);
                    prop_assert_eq!(stopped_by, None);
                }
                Some((end, stop)) => {
                    let kept = if include { end } else { end - stop.len() };
                    prop_assert_eq!(released.concat(), &text[..kept]);
                    prop_assert_eq!(stopped_by.as_deref(), Some(stop));
                }
            }
        }
    }
}
