//! The sampler against one that sorts the whole row and adds up one by one: the very same tokens, on every instruction set.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use pagurid_core::sampling::isa::Isa;
use pagurid_core::sampling::{SequenceSampler, filters, logprobs, philox, row};
use pagurid_core::sampling_params::SamplingParams;

mod toy;

/// exp, one number at a time.
fn exp(x: f32) -> f32 {
    if x.is_nan() || x < -87.33 {
        return 0.0;
    }
    let n = (x * std::f32::consts::LOG2_E).round_ties_even();
    let r = (x - n * 0.693_359_4) + n * 2.121_944_4e-4;
    let coefficients = [1.398_2e-3, 8.333_452e-3, 4.166_579_6e-2, 0.166_666_65, 0.5];
    let p = coefficients.iter().fold(1.987_569_1e-4, |p, coefficient| p * r + coefficient);
    (p * r * r + r + 1.0) * n.exp2()
}

/// In units of 2⁻⁴⁰.
fn units(weight: f32) -> u64 {
    (f64::from(weight) * 40f64.exp2()).round_ties_even() as u64
}

/// A row and the full sort of it, which is what the sampler spares.
struct Row {
    logits: Vec<f32>,
    order: Vec<usize>,
}

impl Row {
    fn new(logits: Vec<f32>) -> Self {
        let value = |id: usize| if logits[id].is_nan() { f32::NEG_INFINITY } else { logits[id] };
        let mut order: Vec<usize> = (0..logits.len()).collect();
        order.sort_by(|&a, &b| value(b).partial_cmp(&value(a)).expect("no NaN").then(a.cmp(&b)));
        Self { logits, order }
    }

    fn draw(&self, params: &SamplingParams, uniform: f64) -> Option<u32> {
        let max = self.logits[self.order[0]];
        if max.is_nan() || max == f32::NEG_INFINITY {
            return None;
        }
        let inverse_temperature = 1.0 / params.temperature;
        let weight = |id: &usize| {
            let logit = self.logits[*id];
            if logit == max { 1.0 } else { exp((logit - max) * inverse_temperature) }
        };
        let all = self.order.len();
        let top_k = if params.top_k > 0 { all.min(params.top_k as usize) } else { all };
        let mut kept: Vec<(usize, f32)> = self.order[..top_k].iter().map(|id| (*id, weight(id))).collect();
        if params.top_p < 1.0 {
            let total: u64 = kept.iter().map(|&(_, weight)| units(weight)).sum();
            let wanted = (f64::from(params.top_p) * total as f64).ceil() as u64;
            let mut sum = 0;
            let end = kept.iter().position(|&(_, weight)| {
                sum += units(weight);
                sum >= wanted
            });
            kept.truncate(end.expect("all have it") + 1);
        }
        kept.retain(|&(_, weight)| weight >= params.min_p);
        kept.sort_unstable_by_key(|&(id, _)| id);
        let total: u64 = kept.iter().map(|&(_, weight)| units(weight)).sum();
        let target = (u128::from((uniform * 53f64.exp2()) as u64) * u128::from(total)) >> 53;
        let mut sum = 0;
        let found = kept.iter().find(|&&(_, weight)| {
            sum += units(weight);
            u128::from(sum) > target
        });
        found.map(|&(id, _)| id as u32)
    }
}

/// Philox as a source of test data.
struct Random(u64);

impl Random {
    fn next(&mut self) -> f64 {
        self.0 += 1;
        philox::uniform(99, 7, self.0)
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[(self.next() * from.len() as f64) as usize]
    }

    fn normal(&mut self) -> f32 {
        let radius = (-2.0 * (1.0 - self.next()).ln()).sqrt();
        (radius * (std::f64::consts::TAU * self.next()).cos()) as f32
    }
}

const KINDS: usize = 9;

fn logits(kind: usize, len: usize, random: &mut Random) -> Vec<f32> {
    let special = [f32::NAN, f32::NEG_INFINITY, 0.0, -0.0, f32::MIN, -1e30];
    (0..len)
        .map(|_| match kind {
            0 => random.normal(),
            1 => 4.0 * random.normal(),
            // Ties, at every cut.
            2 => (2.0 * random.normal()).round(),
            3 => -0.0,
            4 if random.next() < 0.5 => random.pick(&special),
            // An outlier; several infinities; huge and tiny spans.
            5 if random.next() < 0.01 => 1e30,
            6 if random.next() < 0.05 => f32::INFINITY,
            7 => f32::MAX * random.pick(&[1.0, -1.0, 0.5]),
            8 => 1.0 + f32::EPSILON * (3.0 * random.next()).floor() as f32,
            _ => (14.0 - 6.0 * random.next().ln().abs()) as f32,
        })
        .collect()
}

fn settings(len: usize, random: &mut Random) -> SamplingParams {
    SamplingParams {
        temperature: random.pick(&[1e-5, 0.3, 1.0, 1.0, 2.5, 1e30]),
        top_k: random.pick(&[0, 0, -1, 1, 2, 50, 300, 1000, len as i64 - 1, len as i64]).max(-1),
        top_p: random.pick(&[1.0, 1.0, 0.999_999, 0.95, 0.5, 1e-6]),
        min_p: random.pick(&[0.0, 0.0, 1e-12, 0.05, 1.0]),
        ..SamplingParams::default()
    }
}

#[test]
fn tokens_are_those_of_a_full_sort_on_every_instruction_set() {
    let (mut random, mut scratch) = (Random(0), filters::Scratch::default());
    for len in [1, 2, 15, 16, 17, 63, 64, 65, 255, 257, 1000, 1023, 1025, 1040, 5000, 49_152] {
        for kind in 0..KINDS {
            let row = Row::new(logits(kind, len, &mut random));
            for _ in 0..if len > 10_000 { 12 } else { 60 } {
                let params = settings(len, &mut random);
                let uniform = random.next();
                let uniform = random.pick(&[0.0, 1.0 - f64::EPSILON / 2.0, uniform, uniform]);
                let expected = row.draw(&params, uniform);
                for isa in Isa::available() {
                    let found = filters::draw(isa, &params, &row.logits, uniform, &mut scratch);
                    assert_eq!(found, expected, "{} of {len}, kind {kind}, {params:?}", isa.name());
                }
            }
        }
    }
}

#[test]
fn logprobs_are_those_of_a_full_sort_with_equal_bits_on_every_instruction_set() {
    let (mut random, mut scratch) = (Random(1 << 40), logprobs::Scratch::default());
    for len in [1, 2, 15, 16, 17, 1000, 1025, 49_152] {
        for kind in 0..KINDS {
            let row = Row::new(logits(kind, len, &mut random));
            let token = (random.next() * len as f64) as u32;
            for top in [0, 1, 5, 20] {
                let mut found = Isa::available()
                    .into_iter()
                    .map(|isa| logprobs::logprobs_of(isa, &row.logits, token, top, &mut scratch));
                let first = found.next().expect("one at least");
                let ids: Vec<usize> = first.top.iter().map(|&(id, _)| id as usize).collect();
                assert_eq!(ids, row.order[..top.min(len)]);
                let max = row.logits[row.order[0]];
                if max.is_finite() {
                    let number =
                        |logit: f32| if logit.is_nan() { f64::NEG_INFINITY } else { f64::from(logit) };
                    let sum: f64 =
                        row.logits.iter().map(|&logit| (number(logit) - f64::from(max)).exp()).sum();
                    for &(id, logprob) in &first.top {
                        let exact = number(row.logits[id as usize]) - f64::from(max) - sum.ln();
                        let exact = exact.max(f64::from(logprobs::FLOOR));
                        // The sum's error, and the rounding of a logit's difference to f32.
                        let allowed = 1e-6 + 1e-7 * exact.abs();
                        assert!((f64::from(logprob) - exact).abs() < allowed, "{logprob} {exact}");
                    }
                }
                assert!(found.all(|other| other == first));
            }
        }
    }
}

#[test]
fn the_best_token_is_the_lowest_of_equals_on_every_instruction_set() {
    let mut random = Random(1 << 50);
    for len in [1, 2, 15, 16, 17, 1000, 1025, 49_152] {
        for kind in 0..KINDS {
            let row = Row::new(logits(kind, len, &mut random));
            let best = row.order[0];
            let expected = (row.logits[best] > f32::NEG_INFINITY).then_some(best as u32);
            for isa in Isa::available() {
                assert_eq!(row::argmax(isa, &row.logits), expected);
            }
        }
    }
}

/// A step's rows, chosen by threads in whatever order, are what each sequence's sampler chooses alone.
#[test]
fn a_step_s_tokens_do_not_depend_on_who_chooses_them() {
    const VOCAB_SIZE: usize = 30_000;
    let config = toy::config();
    let mut toy =
        toy::Toy::new(pagurid_core::scheduler::config::SchedulerConfig { vocab_size: VOCAB_SIZE, ..config });
    let mut random = Random(1 << 55);
    let rows: Vec<Vec<f32>> = (0..5).map(|_| logits(1, VOCAB_SIZE, &mut random)).collect();
    let params = |seed: u64| SamplingParams { seed: Some(seed), max_tokens: Some(1), ..Default::default() };
    let requests: Vec<_> =
        (0..5).map(|seed| toy.submit(&toy::prompt(seed, 2), params(seed.into()))).collect();
    assert!(toy.scheduler.plan().unwrap());
    let calls = AtomicUsize::new(0);
    let for_each_piece = |pieces: usize, work: &(dyn Fn(usize) + Sync)| {
        calls.fetch_add(1, Ordering::Relaxed);
        std::thread::scope(|scope| {
            for piece in (0..pieces).rev() {
                scope.spawn(move || work(piece));
            }
        });
    };
    toy.scheduler.sample(&rows.concat(), (5, VOCAB_SIZE), &for_each_piece).unwrap();
    toy.scheduler.commit(None).unwrap();
    assert_eq!(calls.into_inner(), 1);
    let no_eos: Arc<[u32]> = Arc::new([]);
    for ((request, row), seed) in requests.into_iter().zip(&rows).zip(0..) {
        let alone = SequenceSampler::new(Arc::new(params(seed)), &no_eos, seed, 0, &[]).sample(row, 0);
        let output = toy.outputs.take_output(request).unwrap();
        assert_eq!(output.deltas[0].token_ids, [alone.token.unwrap()]);
    }
}
