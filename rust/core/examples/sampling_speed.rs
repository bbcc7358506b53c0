//! What choosing one token costs: µs per row of 49,152 logits, by parameters and by the shape of the row.
//!
//! `peaked` falls like a language model's row (a few likely tokens, a long tail), `flat` is a normal distribution, whose
//! nucleus is most of the vocabulary. Settings take turns, and each figure is the median of the turns.
//! `PAGURID_CPU_ISA=avx512|avx2|portable` forces an instruction set.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use pagurid_core::sampling::SequenceSampler;
use pagurid_core::sampling_params::SamplingParams;

const VOCAB_SIZE: usize = 49_152;
const ROWS: usize = 8;
const TURNS: usize = 41;

/// `SplitMix64`: numbers in (0, 1) that need no crate.
struct Random(u64);

impl Random {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (((z ^ (z >> 31)) >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    }

    fn normal(&mut self) -> f64 {
        (-2.0 * self.next().ln()).sqrt() * (std::f64::consts::TAU * self.next()).cos()
    }
}

fn flat(random: &mut Random) -> Vec<f32> {
    (0..VOCAB_SIZE).map(|_| random.normal() as f32).collect()
}

/// The token of rank r has a logit of about −1.6 ln r; ids are shuffled.
fn peaked(random: &mut Random) -> Vec<f32> {
    let mut logits: Vec<f32> = (1..=VOCAB_SIZE)
        .map(|rank| (14.0 - 1.6 * (rank as f64).ln() + 0.3 * random.normal()) as f32)
        .collect();
    for at in (1..VOCAB_SIZE).rev() {
        logits.swap(at, (random.next() * (at + 1) as f64) as usize);
    }
    logits
}

fn main() {
    let base = SamplingParams::default();
    let settings = [
        ("greedy", SamplingParams { temperature: 0.0, ..base.clone() }),
        ("temperature 0.8", SamplingParams { temperature: 0.8, ..base.clone() }),
        ("top_k 50", SamplingParams { top_k: 50, ..base.clone() }),
        ("top_k 1000", SamplingParams { top_k: 1000, ..base.clone() }),
        ("top_p 0.95", SamplingParams { top_p: 0.95, ..base.clone() }),
        ("min_p 0.05", SamplingParams { min_p: 0.05, ..base.clone() }),
        (
            "top_k 50, top_p 0.95, min_p 0.02",
            SamplingParams { temperature: 0.8, top_k: 50, top_p: 0.95, min_p: 0.02, ..base.clone() },
        ),
        ("greedy, 5 logprobs", SamplingParams { temperature: 0.0, logprobs: Some(5), ..base }),
    ];
    let no_eos: Arc<[u32]> = Arc::new([]);
    let samplers: Vec<_> = settings
        .iter()
        .map(|(_, params)| SequenceSampler::new(Arc::new(params.clone()), &no_eos, 7, 0, &[]))
        .collect();
    let mut random = Random(1);
    let shapes: [(&str, Vec<Vec<f32>>); 2] = [
        ("peaked", (0..ROWS).map(|_| peaked(&mut random)).collect()),
        ("flat", (0..ROWS).map(|_| flat(&mut random)).collect()),
    ];
    println!("{:34}{:>10}{:>10}", "µs per row", "peaked", "flat");
    let mut figures = vec![[0.0; 2]; settings.len()];
    for (column, (_, rows)) in shapes.iter().enumerate() {
        let mut times = vec![Vec::with_capacity(TURNS); settings.len()];
        for turn in 0..TURNS {
            for (sampler, times) in samplers.iter().zip(&mut times) {
                // Once before: so the row comes from the cache, as it does behind the output head.
                for row in rows {
                    black_box(sampler.sample(black_box(row), turn));
                    let start = Instant::now();
                    black_box(sampler.sample(black_box(row), turn));
                    times.push(start.elapsed().as_secs_f64() * 1e6);
                }
            }
        }
        for (times, figure) in times.iter_mut().zip(&mut figures) {
            times.sort_by(f64::total_cmp);
            figure[column] = times[times.len() / 2];
        }
    }
    for ((name, _), [peaked, flat]) in settings.iter().zip(figures) {
        println!("{name:34}{peaked:>10.1}{flat:>10.1}");
    }
}
