//! The core, its clock, its model and its clients, one operation after another.
//!
//! Owns: what an operation does, and what must be true after each step: the scheduler's own invariants, the pool's
//! sum, progress. A broken one panics. Must not know: where the operations come from.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use pagurid_core::clock::{Clock, Nanos};
use pagurid_core::intake::Intake;
use pagurid_core::outputs::Outputs;
use pagurid_core::scheduler::Scheduler;
use pagurid_core::scheduler::config::SchedulerConfig;

use super::api;
use super::checks::{Entry, Ledger};
use super::head_of_line::HeadOfLine;
use super::operations::Operation;
use super::tally::Tally;
use super::toy_model::{Fault, ToyModel};

/// What is fixed in an episode.
#[derive(Clone, Debug)]
pub struct Setting {
    /// Of the core.
    pub config: SchedulerConfig,
    /// In which order the core serves.
    pub policy: api::SchedulingPolicy,
    /// Fixes the hash keys.
    pub seed: u64,
    /// Time of a step: this, and for each token …
    pub base: Nanos,
    /// … this.
    pub per_token: Nanos,
    /// What the model does wrong.
    pub fault: Option<Fault>,
}

/// A step that was computed and is still open.
struct Launched {
    tokens: Vec<u32>,
    /// Where it wrote.
    slots: Vec<usize>,
}

/// See the module.
pub struct World {
    setting: Setting,
    /// The engine's half.
    pub scheduler: Scheduler,
    /// The door.
    pub intake: Arc<Intake>,
    outputs: Outputs,
    clock: Clock,
    model: ToyModel,
    /// Steps that are open, oldest first: all are computed already, one after the other.
    launched: VecDeque<Launched>,
    head_of_line: HeadOfLine,
    /// The clients' view.
    pub ledger: Ledger,
    /// What happened.
    pub tally: Tally,
}

impl World {
    /// An empty core.
    pub fn new(setting: Setting) -> Self {
        let clock = Clock::manual();
        let (scheduler, intake, outputs) =
            api::scheduler(setting.config.clone(), clock.clone(), setting.seed)
                .expect("the sizes of an episode are valid");
        let model = ToyModel::new(&setting.config, setting.fault);
        let (ledger, tally) = (Ledger::default(), Tally::default());
        Self {
            setting,
            scheduler,
            intake,
            outputs,
            clock,
            model,
            launched: VecDeque::new(),
            head_of_line: HeadOfLine::default(),
            ledger,
            tally,
        }
    }

    /// What is fixed.
    pub fn setting(&self) -> &Setting {
        &self.setting
    }

    /// Does it, and checks.
    pub fn apply(&mut self, operation: &Operation) {
        match operation {
            Operation::Submit(submission) => {
                let is_accepted = self.ledger.submit(&self.intake, submission.clone());
                *if is_accepted { &mut self.tally.requests } else { &mut self.tally.refused } += 1;
            }
            Operation::Cancel(label) => {
                if let Some(id) = self.ledger.get(*label).map(|entry| entry.id) {
                    let state = self.intake.progress(id).map(|progress| progress.state);
                    self.tally.count_cancel(state, self.is_open());
                    self.ledger.cancel(*label);
                    self.intake.cancel(id);
                }
            }
            Operation::Release(label) => {
                if let Some(id) = self.ledger.get(*label).map(|entry| entry.id) {
                    self.tally.releases += 1;
                    self.ledger.release(*label);
                    self.outputs.release(id);
                    assert!(
                        self.outputs.take_output(id).is_none(),
                        "#{label} is released, but gives something"
                    );
                }
            }
            Operation::Plan if self.may_plan() => self.plan(),
            Operation::Commit if self.is_open() => self.commit(),
            Operation::Abort { scribbles } if self.is_open() => self.abort(*scribbles),
            Operation::Plan | Operation::Commit | Operation::Abort { .. } => {}
            Operation::Take => {
                for id in self.outputs.take_ready() {
                    self.ledger.take(&self.intake, &mut self.outputs, id);
                }
            }
            Operation::TakeOne(label) => {
                if let Some(id) = self.ledger.get(*label).map(|entry| entry.id) {
                    self.ledger.take(&self.intake, &mut self.outputs, id);
                }
            }
            Operation::Pass(nanos) => self.clock.advance(*nanos),
        }
    }

    fn plan(&mut self) {
        let had_work = self.scheduler.has_work();
        let ended = |world: &Self| world.intake.stats().counters.requests_finished;
        let before = ended(self);
        let is_step = self.scheduler.plan().expect("it may plan");
        let advances = is_step || self.is_open() || ended(self) != before;
        assert!(advances || !had_work, "there is work, but nobody advances");
        self.ledger.check_gone(&self.intake);
        if !is_step {
            self.check();
            return;
        }
        let plan = self.scheduler.step_plan().buffers();
        let tokens = self.model.forward(plan);
        let slots = plan.slot_mapping[..plan.num_tokens.load(Relaxed)].iter();
        let slots = slots.map(|slot| slot.load(Relaxed) as usize).collect();
        self.launched.push_back(Launched { tokens, slots });
        if self.setting.policy == api::SchedulingPolicy::Fcfs && !self.setting.config.overlap_steps {
            self.head_of_line.step_planned(&self.ledger, &self.intake);
        }
    }

    fn commit(&mut self) {
        let Launched { tokens, slots } = self.launched.pop_front().expect("a step is open");
        self.clock.advance(self.step_time(slots.len()));
        self.scheduler.commit(Some(&tokens)).expect("the step is open");
        self.head_of_line.step_committed(&self.intake);
        self.close();
    }

    fn abort(&mut self, scribbles: bool) {
        self.ledger.fail_step();
        let Launched { slots, .. } = self.launched.pop_front().expect("a step is open");
        // A step that came after it has written over what it left behind.
        if scribbles && !self.is_open() {
            self.model.scribble(&slots);
        }
        self.clock.advance(self.setting.base);
        let before = self.intake.stats().counters;
        self.scheduler.abort_step("a fault");
        self.tally.aborts += 1;
        let after = self.intake.stats().counters;
        let is_late = self.setting.config.overlap_steps;
        assert!(
            before.requests_finished != after.requests_finished || is_late,
            "a failed step ends its requests"
        );
        self.close();
    }

    fn step_time(&self, num_tokens: usize) -> Nanos {
        self.setting.base + self.setting.per_token * num_tokens as Nanos
    }

    /// Whether a step is open.
    pub fn is_open(&self) -> bool {
        !self.launched.is_empty()
    }

    /// Whether another step may be planned.
    pub fn may_plan(&self) -> bool {
        self.launched.len() < if self.setting.config.overlap_steps { 2 } else { 1 }
    }

    fn close(&mut self) {
        self.tally.steps += 1;
        self.check();
        self.ledger.check_ended(&self.intake);
    }

    fn check(&self) {
        self.scheduler.check_invariants(false).unwrap_or_else(|error| panic!("{error}"));
        let stats = self.intake.stats();
        let counters = stats.counters;
        let blocks = counters.free_blocks + counters.cached_blocks + counters.used_blocks;
        assert_eq!(blocks as usize, stats.total_blocks, "every block is free, cached or used");
        let all_is_attributed = counters.busy_ns == counters.attributed_busy_ns;
        assert!(all_is_attributed || self.setting.config.overlap_steps, "all time is attributed");
    }

    /// Lets everything end by itself, then checks that everything was given back.
    pub fn drain(&mut self) {
        while self.is_open() {
            self.apply(&Operation::Commit);
        }
        let work: usize =
            self.ledger.entries().filter(|entry| entry.is_awaited()).map(Entry::most_steps).sum();
        let most = self.tally.steps + 2 * work as u64 + 2;
        while self.scheduler.has_work() || self.is_open() {
            self.apply(&Operation::Plan);
            self.apply(&Operation::Plan);
            self.apply(&Operation::Commit);
            assert!(self.tally.steps <= most, "{work} tokens take more than twice as many steps");
        }
        self.apply(&Operation::Take);
        self.scheduler.check_invariants(true).unwrap_or_else(|error| panic!("{error}"));
        self.ledger.check_over();
        let counters = self.intake.stats().counters;
        assert_eq!(self.intake.num_live_requests(), 0, "no request is left");
        assert_eq!(counters.used_blocks, 0, "all blocks are back");
        let finished: u64 = counters.requests_finished.iter().sum();
        assert_eq!(finished as usize, self.ledger.len(), "every request ends exactly once");
        self.tally.add_counters(&counters);
    }
}
