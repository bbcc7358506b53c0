//! When the tokens of an answer came.
//!
//! Owns: the times of the last commits, and for each sequence the runs of commits that gave it a token each. A sequence
//! is part of every step as a rule, so that a token costs it no memory: what a run means is worked out at its end.
//! Must not know: steps, what the figures are for.

use std::collections::VecDeque;

use crate::clock::Nanos;

/// Number of a commit.
pub type CommitNumber = u64;

/// When the commits were, as far back as somebody may ask.
#[derive(Default)]
pub struct CommitTimes {
    times: VecDeque<Nanos>,
    /// Number of the first of `times`.
    first: CommitNumber,
}

impl CommitTimes {
    /// The number of the last commit.
    pub fn last(&self) -> CommitNumber {
        self.first + self.times.len() as CommitNumber - 1
    }

    /// Another one.
    pub fn push(&mut self, now: Nanos) {
        self.times.push_back(now);
    }

    /// Commits that are remembered.
    pub fn len(&self) -> usize {
        self.times.len()
    }

    /// Whether none is remembered.
    pub fn is_empty(&self) -> bool {
        self.times.is_empty()
    }

    /// Nobody will ask for commits before this one.
    pub fn forget_before(&mut self, commit: CommitNumber) {
        let forgotten = commit.saturating_sub(self.first).min(self.times.len() as CommitNumber);
        self.times.drain(..forgotten as usize);
        self.first += forgotten;
    }

    /// When it was.
    pub fn at(&self, commit: CommitNumber) -> Nanos {
        self.times[(commit - self.first) as usize]
    }
}

/// Of one sequence.
#[derive(Clone, Debug, Default)]
#[repr(C)]
pub struct TokenTimes {
    /// The run under way, (first, last); 0, 0 before the first token.
    run: (CommitNumber, CommitNumber),
    /// Its share of the steps' time.
    pub busy: Nanos,
    /// The runs before.
    runs: Vec<(CommitNumber, CommitNumber)>,
}

impl TokenTimes {
    /// The commit under way gives a token.
    #[inline]
    pub fn push(&mut self, commit: CommitNumber, is_first: bool) {
        if self.run.1 + 1 == commit && !is_first {
            self.run.1 = commit;
            return;
        }
        if !is_first {
            self.runs.push(self.run);
        }
        self.run = (commit, commit);
    }

    /// The commit that gave the first token; None before it.
    pub fn first_commit(&self) -> Option<CommitNumber> {
        let &(first, _) = self.runs.first().unwrap_or(&self.run);
        (first > 0).then_some(first)
    }

    /// When the first and the last token were there, and the time from each token to the next, in ms, appended to `out`.
    pub fn work_out(&self, times: &CommitTimes, out: &mut Vec<f32>) -> Option<(Nanos, Nanos)> {
        let first = times.at(self.first_commit()?);
        let mut last = first;
        let mut is_first = true;
        for &(from, to) in self.runs.iter().chain([&self.run]) {
            for commit in from..=to {
                let now = times.at(commit);
                if !std::mem::take(&mut is_first) {
                    out.push(((now - last) as f64 / 1e6) as f32);
                }
                last = now;
            }
        }
        Some((first, last))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_and_gaps_give_the_times_between_tokens() {
        let mut commits = CommitTimes::default();
        // Commit numbers start at 1: 0 means none.
        commits.push(0);
        let (mut times, mut out) = (TokenTimes::default(), Vec::new());
        assert_eq!((times.first_commit(), times.work_out(&commits, &mut out)), (None, None));
        let mut is_first = true;
        for commit in 1..=9_u64 {
            commits.push(commit * commit * 1_000_000);
            assert_eq!(commits.last(), commit);
            if ![1, 5, 6].contains(&commit) {
                times.push(commit, std::mem::take(&mut is_first));
            }
        }
        commits.forget_before(times.first_commit().unwrap());
        assert_eq!((commits.len(), commits.at(2)), (8, 4_000_000));
        assert_eq!(times.work_out(&commits, &mut out), Some((4_000_000, 81_000_000)));
        assert_eq!(out, [5.0, 7.0, 33.0, 15.0, 17.0]);
    }
}
