//! What the clients know of their requests, and what must be true of all that they are given.
//!
//! Owns: the ledger of accepted requests, each with its one right answer, and the checks of outputs and refusals.
//! Invariants checked: answers are right token by token; a sequence ends once, for a reason that somebody gave; nothing
//! comes after the end; the figures fit. A broken one panics.
//! Must not know: how steps are made.

use std::collections::{BTreeMap, HashMap};

use pagurid_core::error::ErrorCode;
use pagurid_core::intake::Intake;
use pagurid_core::metrics::RequestMetrics;
use pagurid_core::output::{Finish, FinishReason};
use pagurid_core::outputs::Outputs;
use pagurid_core::progress::RequestState;
use pagurid_core::request_table::RequestId;

use super::api::{self, Submission};
use super::toy_model::{Answer, Ends, answer, piece};

/// What one sequence has given.
#[derive(Clone, Default)]
struct Given {
    tokens: usize,
    text: String,
    is_finished: bool,
}

/// One accepted request.
pub struct Entry {
    /// The core's name for it.
    pub id: RequestId,
    /// As it came.
    pub submission: Submission,
    /// The answer of each of its sequences.
    pub expected: Answer,
    given: Vec<Given>,
    is_cancelled: bool,
    /// A step failed while it lived and nobody had cancelled it.
    may_fail: bool,
    client: Client,
}

/// What the client waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Client {
    /// More.
    Waits,
    /// Nothing: it has left.
    Left,
    /// Nothing: it has taken all.
    HasAll,
}

impl Entry {
    /// Whether its client still waits for something.
    pub fn is_awaited(&self) -> bool {
        self.client == Client::Waits
    }

    /// Whether it got the whole answer.
    pub fn is_complete(&self) -> bool {
        self.client == Client::HasAll
            && self.given.iter().all(|given| given.tokens == self.expected.tokens.len())
    }

    /// Most steps that it can be part of.
    pub fn most_steps(&self) -> usize {
        self.given.len() * (self.submission.prompt.len() + self.expected.tokens.len() + 1)
    }

    fn check_finish(&self, finish: &Finish, given: &Given) {
        let (label, expected) = (self.submission.label, &self.expected);
        match finish.reason {
            FinishReason::Cancelled => assert!(self.is_cancelled, "#{label} was cancelled by nobody"),
            FinishReason::Error => assert!(self.may_fail, "#{label} failed, but no step of its did"),
            reason => {
                assert_eq!(
                    (given.tokens, reason),
                    (expected.tokens.len(), expected.reason),
                    "#{label} ends elsewhere"
                );
                assert_eq!(finish.stop_reason, expected.stop_reason, "#{label} names its stop");
                assert_eq!(given.text, expected.text, "#{label} has another text");
                return;
            }
        }
        let text: String = expected.tokens[..given.tokens].iter().copied().map(piece).collect();
        assert_eq!(given.text, text, "#{label} has another text");
    }

    fn check_metrics(&self, metrics: &RequestMetrics) {
        let label = self.submission.label;
        let given: usize = self.given.iter().map(|given| given.tokens).sum();
        assert!(self.given.iter().all(|given| given.is_finished), "#{label} ends before its sequences");
        assert_eq!(metrics.prompt_tokens as usize, self.submission.prompt.len(), "#{label}: prompt tokens");
        assert_eq!(metrics.completion_tokens as usize, given, "#{label}: completion tokens");
        assert!(metrics.cached_tokens < metrics.prompt_tokens, "#{label}: one token is always computed");
        let ttft = metrics.ttft_ms.unwrap_or(metrics.total_ms);
        assert!(
            metrics.queue_ms <= ttft && ttft <= metrics.total_ms,
            "#{label}: times in order: {metrics:?}"
        );
    }
}

/// See the module.
#[derive(Default)]
pub struct Ledger {
    entries: BTreeMap<u32, Entry>,
    labels: HashMap<RequestId, u32>,
    /// Ended from outside since the last step.
    to_end: Vec<RequestId>,
}

impl Ledger {
    /// The request of this label, if it was accepted.
    pub fn get(&self, label: u32) -> Option<&Entry> {
        self.entries.get(&label)
    }

    /// All that were accepted, in the order they came.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.entries.values()
    }

    /// Requests accepted.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Hands a request in and checks what the door says. True if it was accepted.
    pub fn submit(&mut self, intake: &Intake, submission: Submission) -> bool {
        let config = intake.config();
        let (label, prompt) = (submission.label, submission.prompt.len());
        let total = prompt + submission.params.max_tokens.unwrap_or(1) as usize;
        let fits = total <= config.max_model_len && prompt <= config.pool_tokens();
        let is_good = prompt > 0 && fits;
        let room = intake.max_tokens_for(prompt, &submission.params).ok();
        let id = match api::submit(intake, &submission) {
            Ok(id) => id,
            Err(error) if error.code == ErrorCode::QueueFull => {
                let waiting = intake.stats().counters.num_waiting as usize;
                let is_full = waiting >= config.max_queued_requests;
                assert!(
                    is_full || config.max_queue_wait_ms.is_some(),
                    "#{label} refused with {waiting} waiting"
                );
                assert!(error.retry_after_ms.is_some(), "#{label} is not told when to come back");
                return false;
            }
            Err(error) => {
                assert!(!is_good, "#{label} refused: {error}");
                return false;
            }
        };
        assert!(is_good, "#{label} accepted, though it can never run");
        let estimate = api::wait_estimate_ms(intake, id);
        assert!(estimate.is_none_or(|ms| ms.is_finite() && ms >= 0.0), "#{label} waits {estimate:?} ms");
        let ends = Ends {
            max_tokens: room.expect("both doors say the same"),
            min_tokens: submission.params.min_tokens as usize,
            eos_token_ids: if submission.params.ignore_eos { &[] } else { &config.eos_token_ids },
            stop_token_ids: &submission.params.stop_token_ids,
            stop: submission.params.stop.first().map(String::as_str),
        };
        let expected = answer(&submission.prompt, &ends);
        assert!(self.labels.insert(id, label).is_none(), "ids are unique");
        let given = vec![Given::default(); submission.params.n as usize];
        let entry = Entry {
            id,
            submission,
            expected,
            given,
            is_cancelled: false,
            may_fail: false,
            client: Client::Waits,
        };
        self.entries.insert(label, entry);
        true
    }

    /// Whoever is not over may now end as cancelled, and must within a step.
    pub fn cancel(&mut self, label: u32) {
        let Some(entry) = self.entries.get_mut(&label) else { return };
        entry.is_cancelled = true;
        self.to_end.push(entry.id);
    }

    /// The same, and nothing more is given.
    pub fn release(&mut self, label: u32) {
        self.cancel(label);
        if let Some(entry) = self.entries.get_mut(&label).filter(|entry| entry.is_awaited()) {
            entry.client = Client::Left;
        }
    }

    /// A step fails: who was part of it may end with an error, unless somebody has ended it before.
    pub fn fail_step(&mut self) {
        for entry in self.entries.values_mut().filter(|entry| entry.is_awaited() && !entry.is_cancelled) {
            entry.may_fail = true;
        }
    }

    /// A step ended: whoever was ended from outside is gone, or no step has ever seen it.
    pub fn check_ended(&self, intake: &Intake) {
        for &id in &self.to_end {
            let state = intake.progress(id).map(|progress| progress.state);
            let label = self.labels[&id];
            let is_gone = matches!(state, None | Some(RequestState::Finished | RequestState::Queued));
            assert!(is_gone, "#{label} ended, but is {state:?}");
        }
    }

    /// A step was planned: whoever was ended from outside before is gone.
    pub fn check_gone(&mut self, intake: &Intake) {
        self.check_ended(intake);
        for id in self.to_end.drain(..) {
            let state = intake.progress(id).map(|progress| progress.state);
            assert_ne!(state, Some(RequestState::Queued), "#{} ended, but is queued", self.labels[&id]);
        }
    }

    /// Takes what is new of one request and checks it.
    pub fn take(&mut self, intake: &Intake, outputs: &mut Outputs, id: RequestId) {
        let Some(output) = outputs.take_output(id) else { return };
        let label = *self.labels.get(&id).expect("outputs are of accepted requests");
        let entry = self.entries.get_mut(&label).expect("has a label");
        assert!(entry.is_awaited(), "#{label} gives something after its end");
        for delta in output.deltas {
            let sequence = &mut entry.given[delta.index as usize];
            assert!(!sequence.is_finished, "#{label}.{} gives something after its end", delta.index);
            let from = sequence.tokens;
            sequence.tokens += delta.token_ids.len();
            sequence.text.push_str(&delta.text);
            assert_eq!(
                Some(&delta.token_ids[..]),
                entry.expected.tokens.get(from..sequence.tokens),
                "#{label}.{} is wrong after {from} tokens; right is {:?}",
                delta.index,
                entry.expected.tokens
            );
            assert_eq!(delta.completion_tokens as usize, sequence.tokens, "#{label}: tokens are counted");
            if let Some(finish) = delta.finish {
                sequence.is_finished = true;
                entry.check_finish(&finish, &entry.given[delta.index as usize]);
            }
        }
        if let Some(metrics) = output.metrics {
            entry.check_metrics(&metrics);
            entry.client = Client::HasAll;
            assert_eq!(intake.progress(id), None, "#{label} is over, but known");
        }
    }

    /// At the end of an episode, when all was taken: nobody waits.
    pub fn check_over(&self) {
        for entry in self.entries.values() {
            assert!(!entry.is_awaited(), "#{} never ends", entry.submission.label);
        }
    }
}
