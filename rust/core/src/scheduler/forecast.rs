//! How long answers will become, as far as those that ended tell.
//!
//! Owns: the averages. An answer whose request set `max_tokens` is expected to use the part of it that such answers used
//! so far; any other is expected to be as long as such answers were. Who has outgrown that goes on for a while.
//! Must not know: sequences, what is decided by it.

/// Each answer takes this much weight from the ones before it: about the last 64 count.
const WEIGHT: f64 = 1.0 / 64.0;

/// Before anything has ended.
const FIRST_SHARE: f64 = 1.0;
const FIRST_TOKENS: f64 = 256.0;

/// Who has outgrown what was expected is expected to grow by this part of itself, and by so many tokens at least.
const OUTGROWN_SHARE: f64 = 0.25;
const OUTGROWN_TOKENS: f64 = 16.0;

/// See the module.
#[derive(Clone, Debug)]
pub struct LengthForecast {
    /// Of `max_tokens`, where it was set.
    share: f64,
    /// Where it was not.
    tokens: f64,
}

impl Default for LengthForecast {
    fn default() -> Self {
        Self { share: FIRST_SHARE, tokens: FIRST_TOKENS }
    }
}

impl LengthForecast {
    /// An answer has ended by itself after `tokens`; `limit`: what its request had set.
    pub fn observe(&mut self, tokens: usize, limit: Option<usize>) {
        match limit {
            Some(limit) => self.share += (tokens as f64 / limit as f64 - self.share) * WEIGHT,
            None => self.tokens += (tokens as f64 - self.tokens) * WEIGHT,
        }
    }

    /// Tokens that an answer will probably still get, having `tokens` and getting `max_tokens` at most.
    pub fn remaining_tokens(&self, tokens: usize, max_tokens: usize, limit: Option<usize>) -> usize {
        let expected = limit.map_or(self.tokens, |limit| self.share * limit as f64);
        let most = max_tokens.saturating_sub(tokens);
        let outgrown = (OUTGROWN_SHARE * tokens as f64).max(OUTGROWN_TOKENS);
        let ahead = expected - tokens as f64;
        let remaining = if ahead >= 1.0 { ahead } else { outgrown };
        (remaining.ceil() as usize).min(most)
    }
}

/// The most blocks that sequences will hold at once, each given as (blocks that only it holds, tokens there is room for
/// in them, tokens it will still get), if all grow together. Orders the list.
///
/// Source: the peak lies at the end of one of them. When the one with r tokens left ends, all with r or more hold what
/// they have and r more. See Gong et al., "Past-Future Scheduler for LLM Serving under SLA Guarantees", 2025.
pub fn peak_blocks(sequences: &mut [(usize, usize, usize)], block_size: usize) -> usize {
    sequences.sort_unstable_by_key(|&(_, _, remaining)| std::cmp::Reverse(remaining));
    let (mut peak, mut held, mut room) = (0, 0, 0);
    for (at, &(blocks, free_slots, remaining)) in sequences.iter().enumerate() {
        held += blocks;
        room += free_slots;
        let grown = ((at + 1) * remaining).saturating_sub(room).div_ceil(block_size);
        peak = peak.max(held + grown);
    }
    peak
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_forecast_follows_what_ends() {
        let mut forecast = LengthForecast::default();
        assert_eq!(forecast.remaining_tokens(0, 100, Some(100)), 100);
        assert_eq!(forecast.remaining_tokens(56, 8000, None), 200);
        (0..500).for_each(|_| forecast.observe(25, Some(100)));
        (0..500).for_each(|_| forecast.observe(80, None));
        assert!((49..=52).contains(&forecast.remaining_tokens(0, 200, Some(200))));
        assert!((70..=71).contains(&forecast.remaining_tokens(10, 8000, None)));
        assert_eq!(forecast.remaining_tokens(400, 8000, None), 100, "it has outgrown the forecast");
        assert_eq!(forecast.remaining_tokens(400, 410, None), 10, "but not its limit");
    }

    #[test]
    fn the_peak_is_at_somebodys_end() {
        assert_eq!(peak_blocks(&mut [], 16), 0);
        assert_eq!(peak_blocks(&mut [(10, 0, 160)], 16), 20);
        // The short one ends after 16 tokens, when it holds 11 blocks and the other 2; later the other has 11.
        assert_eq!(peak_blocks(&mut [(1, 0, 160), (10, 0, 16)], 16), 13);
        assert_eq!(peak_blocks(&mut [(1, 15, 15)], 16), 1, "room in what it has");
    }
}
