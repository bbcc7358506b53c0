//! The figures of one finished request.
//!
//! Owns: how raw times and counts become the figures that people see.
//! Must not know: where the times come from, who shows them.

use crate::clock::{Nanos, as_ms};
use crate::token_times::{CommitTimes, TokenTimes};

/// Raw times and counts of one request, all its sequences together, as the scheduler gathers them.
#[derive(Clone, Debug, Default)]
pub struct RequestRecord {
    /// When it came to the door.
    pub arrival: Nanos,
    /// When it was first part of a step.
    pub first_scheduled: Option<Nanos>,
    /// When its first token was there.
    pub first_token: Option<Nanos>,
    /// When its last token was there.
    pub last_token: Option<Nanos>,
    /// Tokens of the prompt.
    pub prompt_tokens: u32,
    /// Of these, found in the prefix cache at the first admission.
    pub cached_tokens: u32,
    /// Tokens of all answers.
    pub completion_tokens: u32,
    /// How often a sequence lost its blocks.
    pub preemptions: u32,
    /// Tokens that had to be computed again after that.
    pub recomputed_tokens: u32,
    /// Blocks held now and at most.
    pub blocks: u32,
    /// The most blocks held at once.
    pub peak_blocks: u32,
    /// Its share of the steps' time.
    pub busy: Nanos,
    /// Time between successive tokens of a sequence, in ms.
    pub inter_token_ms: Vec<f32>,
}

impl RequestRecord {
    /// Blocks were taken.
    pub fn gain_blocks(&mut self, count: usize) {
        self.blocks += count as u32;
        self.peak_blocks = self.peak_blocks.max(self.blocks);
    }

    /// Blocks were given back.
    pub fn lose_blocks(&mut self, count: usize) {
        self.blocks -= count as u32;
    }

    /// One of its sequences has ended.
    pub fn add_sequence(&mut self, completion_tokens: u32, times: &TokenTimes, commits: &CommitTimes) {
        let ends = times.work_out(commits, &mut self.inter_token_ms);
        self.first_token = self.first_token.into_iter().chain(ends.map(|(first, _)| first)).min();
        self.last_token = self.last_token.max(ends.map(|(_, last)| last));
        self.completion_tokens += completion_tokens;
        self.busy += times.busy;
    }

    /// The figures, at the request's end.
    pub fn finish(
        &mut self,
        now: Nanos,
        kv_bytes_per_block: u64,
        cost_per_hour: Option<f64>,
    ) -> RequestMetrics {
        let since = |from: Nanos, to: Nanos| as_ms(to.saturating_sub(from));
        let first_scheduled = self.first_scheduled.unwrap_or(now);
        let busy_ms = as_ms(self.busy);
        let cost = cost_per_hour.map(|price| price * busy_ms / 3_600_000.0);
        let tokens = self.prompt_tokens + self.completion_tokens;
        let scheduled_s = since(first_scheduled, now) / 1e3;
        RequestMetrics {
            prompt_tokens: self.prompt_tokens,
            cached_tokens: self.cached_tokens,
            completion_tokens: self.completion_tokens,
            queue_ms: since(self.arrival, first_scheduled),
            prefill_ms: self.first_token.map(|token| since(first_scheduled, token)),
            ttft_ms: self.first_token.map(|token| since(self.arrival, token)),
            decode_ms: self.first_token.zip(self.last_token).map(|(first, last)| since(first, last)),
            total_ms: since(self.arrival, now),
            inter_token_p50_ms: quantile(&mut self.inter_token_ms, 0.50),
            inter_token_p99_ms: quantile(&mut self.inter_token_ms, 0.99),
            tokens_per_second: (self.completion_tokens > 0 && scheduled_s > 0.0)
                .then(|| f64::from(self.completion_tokens) / scheduled_s),
            preemptions: self.preemptions,
            recomputed_tokens: self.recomputed_tokens,
            kv_cache_peak_bytes: u64::from(self.peak_blocks) * kv_bytes_per_block,
            busy_ms,
            cost,
            cost_per_1k_tokens: cost.map(|cost| cost / f64::from(tokens) * 1e3),
        }
    }
}

/// Nearest-rank quantile; reorders `values`.
fn quantile(values: &mut [f32], q: f64) -> Option<f64> {
    let rank = (values.len() as f64 * q).ceil() as usize;
    let index = rank.max(1) - 1;
    (index < values.len()).then(|| f64::from(*values.select_nth_unstable_by(index, f32::total_cmp).1))
}

/// The figures of one finished request. Times in ms, None where there is no such event.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestMetrics {
    /// Tokens of the prompt.
    pub prompt_tokens: u32,
    /// Of these, found in the prefix cache.
    pub cached_tokens: u32,
    /// Tokens of all answers.
    pub completion_tokens: u32,
    /// Arrival → first scheduled.
    pub queue_ms: f64,
    /// First scheduled → first token.
    pub prefill_ms: Option<f64>,
    /// Arrival → first token.
    pub ttft_ms: Option<f64>,
    /// First token → last token.
    pub decode_ms: Option<f64>,
    /// Arrival → end.
    pub total_ms: f64,
    /// Median time between tokens.
    pub inter_token_p50_ms: Option<f64>,
    /// 99th percentile of the time between tokens.
    pub inter_token_p99_ms: Option<f64>,
    /// Completion tokens over the time from first scheduled to the end.
    pub tokens_per_second: Option<f64>,
    /// How often a sequence lost its blocks.
    pub preemptions: u32,
    /// Tokens that had to be computed again after that.
    pub recomputed_tokens: u32,
    /// The most KV memory held at once.
    pub kv_cache_peak_bytes: u64,
    /// Share of the steps' time.
    pub busy_ms: f64,
    /// Busy time × price.
    pub cost: Option<f64>,
    /// Cost over prompt + completion tokens, × 1000.
    pub cost_per_1k_tokens: Option<f64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_nearest_rank() {
        let mut values: Vec<f32> = (1..=100).rev().map(|v| v as f32).collect();
        assert_eq!(quantile(&mut values, 0.50), Some(50.0));
        assert_eq!(quantile(&mut values, 0.99), Some(99.0));
        assert_eq!(quantile(&mut [7.0], 0.99), Some(7.0));
        assert_eq!(quantile(&mut [], 0.5), None);
    }

    #[test]
    fn a_request_that_never_ran_waited_all_its_life() {
        let mut record = RequestRecord { arrival: 1_000_000, prompt_tokens: 3, ..RequestRecord::default() };
        let metrics = record.finish(5_000_000, 10, Some(1.0));
        assert_eq!((metrics.queue_ms, metrics.total_ms), (4.0, 4.0));
        assert_eq!((metrics.ttft_ms, metrics.tokens_per_second, metrics.cost), (None, None, Some(0.0)));
    }

    #[test]
    fn cost_is_the_share_of_the_hour() {
        let mut record = RequestRecord {
            busy: 36_000_000_000,
            prompt_tokens: 400,
            completion_tokens: 100,
            peak_blocks: 3,
            ..RequestRecord::default()
        };
        let metrics = record.finish(1, 10, Some(5.0));
        assert!((metrics.cost.unwrap() - 0.05).abs() < 1e-12);
        assert!((metrics.cost_per_1k_tokens.unwrap() - 0.1).abs() < 1e-12);
        assert_eq!(metrics.kv_cache_peak_bytes, 30);
    }
}
