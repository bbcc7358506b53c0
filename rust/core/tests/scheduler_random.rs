//! The scheduler under random arrivals, cancels, releases, aborts and tiny pools, against the toy model's one right
//! answer. Invariants are checked after every operation.

mod toy;

use std::collections::HashMap;

use pagurid_core::error::ErrorCode;
use pagurid_core::output::FinishReason;
use pagurid_core::request::RequestOptions;
use pagurid_core::request_table::RequestId;
use pagurid_core::sampling_params::SamplingParams;
use pagurid_core::scheduler::config::SchedulerConfig;
use pagurid_core::scheduler::policy::{PreemptionVictim, SchedulingPolicy};
use proptest::prelude::*;
use toy::{Toy, answer, config, greedy};

#[derive(Clone, Debug)]
enum Op {
    Submit { shared: usize, own: Vec<u32>, max_tokens: Option<u32>, n: u32, priority: i32, tenant: usize },
    Cancel(prop::sample::Index),
    Release(prop::sample::Index),
    Step,
    Abort,
    CancelInStep(prop::sample::Index),
    Take,
    TakeOne(prop::sample::Index),
}

fn op() -> impl Strategy<Value = Op> {
    let index = any::<prop::sample::Index>;
    let own = prop::collection::vec(1..5_u32, 0..12);
    let n = prop_oneof![2 => Just(1_u32), 1 => 2..4_u32];
    let submit = (0..30_usize, own, prop::option::of(1..40_u32), n, -2..3_i32, 0..4_usize).prop_map(
        |(shared, own, max_tokens, n, priority, tenant)| Op::Submit {
            shared,
            own,
            max_tokens,
            n,
            priority,
            tenant,
        },
    );
    prop_oneof![
        6 => submit,
        1 => index().prop_map(Op::Cancel),
        1 => index().prop_map(Op::Release),
        20 => Just(Op::Step),
        1 => Just(Op::Abort),
        1 => index().prop_map(Op::CancelInStep),
        4 => Just(Op::Take),
        2 => index().prop_map(Op::TakeOne),
    ]
}

fn sizes() -> impl Strategy<Value = SchedulerConfig> {
    let sizes = (2..40_usize, 1..6_usize, 1..6_usize, 0..20_usize);
    let cache = (any::<bool>(), prop_oneof![Just(128_u32), 0..6_u32], any::<bool>());
    let policy = (
        prop::sample::select(&SchedulingPolicy::ALL[..]),
        prop::sample::select(&PreemptionVictim::ALL[..]),
        prop::option::of(1..4_u32),
        any::<bool>(),
    );
    (sizes, cache, policy).prop_map(|(sizes, cache, policy)| {
        let (num_blocks, block_size, max_num_seqs, more_tokens) = sizes;
        let (enable_prefix_caching, prefix_hash_bits, isolate_tenants) = cache;
        let (scheduling_policy, preemption_victim, step_time_target_ms, overlap_steps) = policy;
        SchedulerConfig {
            num_blocks,
            block_size,
            max_model_len: 60,
            max_num_seqs,
            max_num_batched_tokens: max_num_seqs + more_tokens,
            max_queued_requests: 6,
            scheduling_policy,
            preemption_victim,
            step_time_target_ms: step_time_target_ms.map(f64::from),
            overlap_steps,
            isolate_tenants,
            enable_prefix_caching,
            prefix_hash_bits,
            ..config()
        }
    })
}

struct Accepted {
    prompt: Vec<u32>,
    max_tokens: usize,
    n: u32,
    /// Ended from outside: any prefix of the answer is right.
    is_cut: bool,
    is_released: bool,
}

struct Run {
    toy: Toy,
    accepted: HashMap<RequestId, Accepted>,
    ids: Vec<RequestId>,
}

impl Run {
    fn submit(
        &mut self,
        shared: usize,
        own: &[u32],
        max_tokens: Option<u32>,
        n: u32,
        options: RequestOptions,
    ) {
        let prompt: Vec<u32> = (0..shared as u32).map(|at| 1 + at % 7).chain(own.iter().copied()).collect();
        let params = SamplingParams { n, ..greedy(max_tokens) };
        let room = self.toy.intake.max_tokens_for(prompt.len(), &params);
        match self.toy.intake.submit(prompt.clone().into(), params.into(), options) {
            Ok(id) => {
                let max_tokens = room.unwrap();
                let accepted = Accepted { prompt, max_tokens, n, is_cut: false, is_released: false };
                assert!(self.accepted.insert(id, accepted).is_none(), "ids are unique");
                self.ids.push(id);
            }
            Err(error) if error.code == ErrorCode::QueueFull => {
                assert!(self.toy.intake.stats().counters.num_waiting >= 6);
            }
            Err(error) => {
                assert_eq!(room.map(|_| ()), Err(error.clone()), "both doors say the same");
                let config = self.toy.intake.config();
                let total = prompt.len() + max_tokens.unwrap_or(1) as usize;
                let fits = total <= config.max_model_len && prompt.len() <= config.pool_tokens();
                assert!(prompt.is_empty() || !fits, "{error}");
            }
        }
    }

    fn pick(&self, index: prop::sample::Index) -> Option<RequestId> {
        (!self.ids.is_empty()).then(|| *index.get(&self.ids))
    }

    fn cut(&mut self, id: RequestId) {
        self.accepted.get_mut(&id).unwrap().is_cut = true;
    }

    fn apply(&mut self, op: Op) {
        match op {
            Op::Submit { shared, own, max_tokens, n, priority, tenant } => {
                let tenant = ["a", "b", "c"].get(tenant).map(|&name| name.into());
                let options = RequestOptions { priority, tenant, ..RequestOptions::default() };
                self.submit(shared, &own, max_tokens, n, options);
            }
            Op::Step => {
                let had_work = self.toy.scheduler.has_work();
                let before = self.toy.intake.stats().counters;
                let stepped = self.toy.step();
                let after = self.toy.intake.stats().counters;
                let ended = after.requests_finished != before.requests_finished;
                assert!(stepped || !had_work || ended, "work advances");
            }
            Op::Abort => {
                // Whoever ended with an error is allowed a cut answer; found out when it is taken.
                self.toy.launch();
                self.toy.abort();
            }
            Op::CancelInStep(index) => {
                self.toy.launch();
                if let Some(id) = self.pick(index) {
                    self.toy.intake.cancel(id);
                    self.cut(id);
                }
                self.toy.commit();
            }
            Op::Take => self.toy.take(),
            Op::TakeOne(index) => {
                if let Some(id) = self.pick(index) {
                    self.toy.take_one(id);
                }
            }
            Op::Cancel(index) => {
                if let Some(id) = self.pick(index) {
                    self.toy.intake.cancel(id);
                    self.cut(id);
                }
            }
            Op::Release(index) => {
                if let Some(id) = self.pick(index) {
                    self.toy.outputs.release(id);
                    self.accepted.get_mut(&id).unwrap().is_released = true;
                }
            }
        }
        self.toy.scheduler.check_invariants(false).unwrap();
    }

    fn check_answers(&self) {
        for (&id, request) in &self.accepted {
            if request.is_released {
                continue;
            }
            let config = self.toy.intake.config();
            let (expected, finish) = answer(&request.prompt, request.max_tokens);
            for index in 0..request.n {
                let given = &self.toy.answers[&(id, index)];
                let is_prefix = expected.starts_with(&given.tokens);
                assert!(
                    is_prefix,
                    "request {id}.{index}: {:?} is not the start of {expected:?}",
                    given.tokens
                );
                match given.finish.expect("every sequence ends") {
                    FinishReason::Cancelled => assert!(request.is_cut),
                    FinishReason::Error => {}
                    reason => {
                        assert_eq!((given.tokens.len(), reason), (expected.len(), finish));
                        assert!(request.prompt.len() + given.tokens.len() <= config.pool_tokens() + 1);
                    }
                }
            }
            assert!(self.toy.metrics.contains_key(&id), "every request ends");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases.max(1000), max_shrink_iters: 4000, ..ProptestConfig::default() })]

    #[test]
    fn every_answer_is_right_and_everything_is_given_back(
        sizes in sizes(),
        ops in prop::collection::vec(op(), 1..120),
    ) {
        let mut run = Run { toy: Toy::new(sizes), accepted: HashMap::new(), ids: Vec::new() };
        for op in ops {
            run.apply(op);
        }
        run.toy.run();
        run.check_answers();
        prop_assert_eq!(run.toy.intake.num_live_requests(), 0);
        let counters = run.toy.intake.stats().counters;
        let overlaps = run.toy.intake.config().overlap_steps;
        prop_assert!(counters.busy_ns == counters.attributed_busy_ns || overlaps, "no time is lost");
        let finished: u64 = counters.requests_finished.iter().sum();
        prop_assert_eq!(finished, run.ids.len() as u64);
    }
}
