//! Time of all products of one step of a model of 135M parameters with its weights in float32, float16 and bfloat16:
//! `float_weights_speed [rounds [words…]]`.
//!
//! Words choose among the lines (`Bf16`, `avx2`, `16 rows`, …). The types take turns in each round, so that noise meets
//! all of them; medians, in ms, GB/s of weights, and the speed beside float32's in the same rounds.

use std::time::Instant;

use half::{bf16, f16};
use pagurid_kernels::linear::{LinearShape, Weight, linear};
use pagurid_kernels::{Cpu, Isa, threads};

/// (outputs, width) of a layer's products.
const LAYER: [(usize, usize); 4] = [(960, 576), (576, 576), (3072, 576), (576, 1536)];
const LAYERS: usize = 30;
const HEAD: (usize, usize) = (49152, 576);

fn shapes() -> impl Iterator<Item = (usize, usize)> {
    std::iter::repeat_n(LAYER, LAYERS).flatten().chain([HEAD])
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let rounds: usize = arguments.next().map_or(15, |n| n.parse().expect("rounds must be a number"));
    let words: Vec<String> = arguments.collect();
    let len: usize = shapes().map(|(out, width)| out * width).sum();
    let floats: Vec<f32> = (0..len).map(|i| (i % 251) as f32 / 251.0 - 0.5).collect();
    let halves: Vec<f16> = floats.iter().map(|&w| f16::from_f32(w)).collect();
    let brains: Vec<bf16> = floats.iter().map(|&w| bf16::from_f32(w)).collect();
    let models = [Weight::from(&*floats), Weight::from(&*halves), Weight::from(&*brains)];
    for isa in Isa::available() {
        let cpu = Cpu { isa, num_threads: threads::num_threads() };
        for rows in [1, 4, 8, 16, 32, 512] {
            let name = format!("{}, {rows} rows", isa.name());
            if !words.iter().all(|word| name.contains(word.as_str())) {
                continue;
            }
            let mut times = [const { Vec::new() }; 3];
            for _ in 0..if rows > 32 { rounds.min(3) } else { rounds } {
                for (model, times) in models.iter().zip(&mut times) {
                    times.push(step_ms(cpu, *model, rows));
                }
            }
            let medians = times.map(|mut times| {
                times.sort_by(f64::total_cmp);
                times[times.len() / 2]
            });
            for ((model, ms), kind) in models.iter().zip(medians).zip(["float32", "float16", "bfloat16"]) {
                let speed = (len * model.element_bytes()) as f64 / ms / 1e6;
                println!("{name}, {kind}: {ms:.2} ms, {speed:.1} GB/s, × {:.2}", medians[0] / ms);
            }
        }
    }
}

fn step_ms(cpu: Cpu, model: Weight<'_>, rows: usize) -> f64 {
    let x = vec![0.5f32; rows * 1536];
    let mut out = vec![0f32; rows.min(32) * HEAD.0 + rows * 3072];
    let mut first = 0;
    let start = Instant::now();
    for (out_features, in_features) in shapes() {
        // Only rows that are sampled from meet the vocabulary, here the last of a prompt.
        let rows = if rows > 32 && out_features == HEAD.0 { 1 } else { rows };
        let shape = LinearShape { rows, in_features, out_features };
        let part = first..first + in_features * out_features;
        first = part.end;
        let weight = match model {
            Weight::F32(weight) => Weight::F32(&weight[part]),
            Weight::F16(weight) => Weight::F16(&weight[part]),
            Weight::Bf16(weight) => Weight::Bf16(&weight[part]),
        };
        linear(cpu, &x[..rows * in_features], weight, &mut out[..rows * out_features], shape);
    }
    start.elapsed().as_secs_f64() * 1e3
}
