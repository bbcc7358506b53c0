//! Random clients and a random engine: draws an episode's setting, then one operation after another.
//!
//! Owns: every probability. Arrivals are Poisson or in bursts; prompts share prefixes and go on conversations; cancels
//! look for a request in the state whose turn it is.
//! Must not know: what is checked.

use std::sync::Arc;
use std::time::Duration;

use pagurid_core::clock::Nanos;
use pagurid_core::progress::RequestState;
use pagurid_core::sampling_params::SamplingParams;
use pagurid_core::scheduler::config::SchedulerConfig;

use super::api::{self, Submission};
use super::operations::Operation;
use super::random::Random;
use super::toy_model::{Fault, VOCAB_SIZE, piece};
use super::world::{Setting, World};

const MS: f64 = 1e6;
const DAY: usize = 86_400_000_000_000;

/// An episode's sizes.
pub fn setting(random: &mut Random, policy: api::SchedulingPolicy, fault: Option<Fault>) -> Setting {
    let usable_blocks = match random.below(4) {
        0 => random.within(1..=6),
        1 | 2 => random.within(4..=24),
        _ => random.within(16..=120),
    };
    let max_num_seqs = random.within(1..=10);
    let victim = *random.pick(&api::PreemptionVictim::ALL).expect("some");
    let config = SchedulerConfig {
        num_blocks: usable_blocks + 1,
        block_size: *random.pick(&[1, 2, 3, 4, 4, 5, 8, 16]).expect("some"),
        max_model_len: random.within(4..=100),
        max_num_seqs,
        max_num_batched_tokens: max_num_seqs + random.within(0..=40),
        eos_token_ids: if random.chance(0.5) { vec![0] } else { vec![0, 5] },
        max_queued_requests: random.within(1..=20),
        priority_ageing_ms: random.within(1..=5_000) as f64,
        step_time_target_ms: random.chance(0.3).then(|| random.within(1..=40) as f64),
        max_queue_wait_ms: random.chance(0.2).then(|| random.within(1..=5_000) as f64),
        overlap_steps: random.chance(0.4),
        isolate_tenants: random.chance(0.2),
        enable_prefix_caching: random.chance(0.8),
        prefix_hash_bits: match random.below(4) {
            0 => random.within(0..=8) as u32,
            1 => random.within(0..=128) as u32,
            _ => 128,
        },
        ..api::config(policy, victim)
    };
    let base = random.within(0..=20_000_000) as Nanos;
    Setting {
        config,
        policy,
        seed: random.bits(),
        base,
        per_token: random.within(1..=500_000) as Nanos,
        fault,
    }
}

/// See the module.
pub struct Workload {
    random: Random,
    next_label: u32,
    /// What prompts begin with.
    prefixes: Vec<Vec<u32>>,
    next_arrival: f64,
    mean_interval: f64,
    /// Requests that come together, at most.
    max_burst: usize,
    /// Still to come now.
    burst: usize,
    abort_chance: f64,
    /// Of a client's whim, at each turn.
    whim_chance: f64,
    longest_prompt: usize,
}

impl Workload {
    /// Clients for this setting.
    pub fn new(mut random: Random, setting: &Setting) -> Self {
        let config = &setting.config;
        let longest_prompt = config.max_model_len.min(config.pool_tokens());
        let prefixes = (0..random.within(1..=3))
            .map(|_| {
                let len = random.within(0..=longest_prompt);
                (0..len).map(|_| 1 + random.below(VOCAB_SIZE as usize - 1) as u32).collect()
            })
            .collect();
        let max_burst =
            if random.chance(0.5) { 1 } else { random.within(2..=config.max_queued_requests + 3) };
        let step = setting.base as f64 + setting.per_token as f64 * config.max_num_seqs as f64;
        let steps_between = 0.5 + 6.0 * random.unit();
        let mean_interval = step * steps_between * (1 + max_burst) as f64 / 2.0;
        let abort_chance = if random.chance(0.5) { 0.0 } else { 0.02 };
        let whim_chance = 0.3 * random.unit();
        Self {
            next_label: 0,
            prefixes,
            next_arrival: 0.0,
            mean_interval,
            max_burst,
            burst: 0,
            abort_chance,
            whim_chance,
            longest_prompt,
            random,
        }
    }

    /// What happens next.
    pub fn next(&mut self, world: &World) -> Operation {
        let now = world.intake.now() as f64;
        if self.burst == 0 && self.next_arrival <= now {
            self.burst = self.random.within(1..=self.max_burst);
            self.next_arrival = now + self.random.exponential(self.mean_interval);
        }
        if self.burst > 0 {
            self.burst -= 1;
            return Operation::Submit(self.submission(world));
        }
        if self.random.chance(self.whim_chance)
            && let Some(whim) = self.whim(world)
        {
            return whim;
        }
        if world.is_open() {
            // The next step, while this one is open.
            if world.may_plan() && self.random.chance(0.8) {
                return Operation::Plan;
            }
            if self.random.chance(self.abort_chance) {
                return Operation::Abort { scribbles: self.random.chance(0.5) };
            }
            return Operation::Commit;
        }
        if world.scheduler.has_work() {
            return Operation::Plan;
        }
        Operation::Pass((self.next_arrival - now) as Nanos + 1)
    }

    fn whim(&mut self, world: &World) -> Option<Operation> {
        let whim = self.random.below(16);
        match whim {
            0..=5 => return Some(Operation::Take),
            6 => {
                let longest = if self.random.chance(0.02) { DAY } else { 100 * MS as usize };
                return Some(Operation::Pass(self.random.within(1..=longest) as Nanos));
            }
            _ => {}
        }
        let label = match whim {
            7..=9 => self.anyone(),
            10..=14 => {
                let state = *self.random.pick(&RequestState::ALL)?;
                self.someone_in(state, world)
            }
            _ => self.someone_in(RequestState::Decode, world),
        }?;
        Some(match whim {
            7..=8 => Operation::TakeOne(label),
            9 | 15 => Operation::Release(label),
            _ => Operation::Cancel(label),
        })
    }

    fn anyone(&mut self) -> Option<u32> {
        (self.next_label > 0).then(|| self.random.below(self.next_label as usize) as u32)
    }

    fn someone_in(&mut self, state: RequestState, world: &World) -> Option<u32> {
        let is_in = |id| world.intake.progress(id).is_some_and(|progress| progress.state == state);
        let entries = world.ledger.entries().filter(|entry| entry.is_awaited() && is_in(entry.id));
        let labels: Vec<u32> = entries.map(|entry| entry.submission.label).collect();
        self.random.pick(&labels).copied()
    }

    fn submission(&mut self, world: &World) -> Submission {
        let label = self.next_label;
        self.next_label += 1;
        let random = &mut self.random;
        let prompt = if random.chance(0.01) {
            // Too long or empty: refused.
            vec![1; if random.chance(0.5) { 0 } else { self.longest_prompt + 1 }]
        } else {
            let mut prompt = match self.next_turn(world) {
                Some(conversation) => conversation,
                None => self.shared_start(),
            };
            let random = &mut self.random;
            let own = random.within(1..=12);
            prompt.extend((0..own).map(|_| 1 + random.below(4) as u32));
            prompt.truncate(self.longest_prompt.saturating_sub(1).max(1));
            prompt
        };
        let random = &mut self.random;
        let room = world.setting().config.max_model_len.saturating_sub(prompt.len());
        let max_tokens = match random.below(8) {
            0 => None,
            1 => Some(random.within(1..=room + 1)),
            _ => Some(random.within(1..=room.clamp(1, 24))),
        };
        let stop_token_ids =
            if random.chance(0.2) { vec![random.below(VOCAB_SIZE as usize) as u32] } else { Vec::new() };
        let stop = if random.chance(0.2) {
            let letters = random.within(1..=2);
            vec![(0..letters).map(|_| piece(random.below(VOCAB_SIZE as usize) as u32)).collect()]
        } else {
            Vec::new()
        };
        let params = SamplingParams {
            stop,
            n: if random.chance(0.15) { random.within(2..=4) as u32 } else { 1 },
            seed: Some(0),
            temperature: 0.0,
            stop_token_ids,
            max_tokens: max_tokens.map(|tokens| tokens as u32),
            min_tokens: if random.chance(0.1) { random.within(1..=10) as u32 } else { 0 },
            ignore_eos: random.chance(0.2),
            ..SamplingParams::default()
        };
        let age = Duration::from_nanos(if random.chance(0.1) { random.below(50_000_000) as u64 } else { 0 });
        let (tenant, priority) = (random.below(3) as u32, random.within(0..=4) as i32 - 2);
        let cache_salt = random.chance(0.2).then(|| random.below(2) as u32);
        Submission {
            label,
            prompt: prompt.into(),
            params: Arc::new(params),
            age,
            tenant,
            priority,
            cache_salt,
        }
    }

    /// A conversation so far, if somebody has one to go on.
    fn next_turn(&mut self, world: &World) -> Option<Vec<u32>> {
        let label = if self.random.chance(0.3) { self.anyone()? } else { return None };
        let entry = world.ledger.get(label).filter(|entry| entry.is_complete())?;
        Some([&entry.submission.prompt[..], &entry.expected.tokens[..]].concat())
    }

    fn shared_start(&mut self) -> Vec<u32> {
        let random = &mut self.random;
        let prefix = random.pick(&self.prefixes).expect("there is one");
        let len = if random.chance(0.7) { prefix.len() } else { 0 };
        let len = if random.chance(0.3) { random.within(0..=len) } else { len };
        prefix[..len].to_vec()
    }
}
