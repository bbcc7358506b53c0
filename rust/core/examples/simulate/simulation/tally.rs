//! How often what happened, to see that an hour of simulation went everywhere.
//!
//! Owns: the counts of the random scenario and their names. Must not know: what is checked.

use pagurid_core::output::FinishReason;
use pagurid_core::progress::RequestState;
use pagurid_core::stats::Counters;

macro_rules! tally {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// See the module.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Tally {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Tally {
            /// Adds an episode's.
            pub fn add(&mut self, other: &Self) {
                $(self.$name += other.$name;)*
            }

            /// Every count with its name.
            pub fn counts(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name),)*]
            }
        }
    };
}

tally! {
    /// Steps that ended, well or not.
    steps,
    /// Episodes.
    episodes,
    /// Requests accepted.
    requests,
    /// Requests refused at the door.
    refused,
    /// Steps that failed.
    aborts,
    /// Clients that left.
    releases,
    /// Cancels of requests that wait for their first step.
    cancels_queued,
    /// Cancels between two chunks of a prompt.
    cancels_prefill,
    /// Cancels between two tokens.
    cancels_decode,
    /// Cancels of requests that have lost their blocks.
    cancels_preempted,
    /// Cancels after the end, taken or not.
    cancels_ended,
    /// Of all these cancels, while a step was open.
    cancels_in_step,
    /// Requests that stopped.
    ended_stop,
    /// Requests that ran out of tokens, context or pool.
    ended_length,
    /// Requests cancelled in time.
    ended_cancelled,
    /// Requests of failed steps.
    ended_error,
    /// How often a sequence lost its blocks.
    preemptions,
    /// Prompt tokens.
    prompt_tokens,
    /// Of these, found in the prefix cache.
    cached_tokens,
    /// Tokens given.
    completion_tokens,
}

impl Tally {
    /// A cancel of a request in this state (None: it is over and taken).
    pub fn count_cancel(&mut self, state: Option<RequestState>, is_in_step: bool) {
        *match state {
            Some(RequestState::Queued) => &mut self.cancels_queued,
            Some(RequestState::Prefill) => &mut self.cancels_prefill,
            Some(RequestState::Decode) => &mut self.cancels_decode,
            Some(RequestState::Preempted) => &mut self.cancels_preempted,
            Some(RequestState::Finished) | None => &mut self.cancels_ended,
        } += 1;
        self.cancels_in_step += u64::from(is_in_step);
    }

    /// An episode's end.
    pub fn add_counters(&mut self, counters: &Counters) {
        self.episodes += 1;
        let finished = |reason: FinishReason| counters.requests_finished[reason as usize];
        self.ended_stop += finished(FinishReason::Stop);
        self.ended_length += finished(FinishReason::Length);
        self.ended_cancelled += finished(FinishReason::Cancelled);
        self.ended_error += finished(FinishReason::Error);
        self.preemptions += counters.preemptions;
        self.prompt_tokens += counters.prompt_tokens;
        self.cached_tokens += counters.cached_tokens;
        self.completion_tokens += counters.completion_tokens;
    }
}
