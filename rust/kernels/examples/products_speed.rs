//! Time of all products of one step of a model of 135M parameters: `products_speed [rounds [words…]]`.
//!
//! Words choose among the lines that are printed (`Q4_1`, `Int16`, `avx2`, …). Medians, in ms, and GB/s of weights.

use std::sync::Arc;
use std::time::Instant;

use pagurid_kernels::quantized::{ActivationType, Activations, GgufType, PackedLinear, PackedMatrix};
use pagurid_kernels::{Cpu, Isa, threads};

/// (outputs, width) of a layer's products.
const LAYER: [(usize, usize); 4] = [(960, 576), (576, 576), (3072, 576), (576, 1536)];
const LAYERS: usize = 30;
const HEAD: (usize, usize) = (49152, 576);

fn model(kind: GgufType) -> Vec<PackedLinear> {
    let shapes = std::iter::repeat_n(LAYER, LAYERS).flatten().chain([HEAD]);
    shapes
        .map(|(out, width)| {
            let blocks = vec![0x11; out * width / kind.block_len() * kind.block_bytes()];
            let matrix = PackedMatrix::from_gguf(2, kind, &blocks, out, width, &|row| row);
            PackedLinear::new(vec![Arc::new(matrix.expect("widths are whole blocks"))], None)
                .expect("one matrix")
        })
        .collect()
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let rounds: usize = arguments.next().map_or(15, |n| n.parse().expect("rounds must be a number"));
    let words: Vec<String> = arguments.collect();
    for kind in [GgufType::Q4_0, GgufType::Q4_1, GgufType::Q8_0] {
        let model = model(kind);
        let bytes: usize = model.iter().map(PackedLinear::len_bytes).sum();
        for activations in [ActivationType::Int16, ActivationType::Int8] {
            for isa in Isa::available() {
                for rows in [1, 4, 16, 32, 512] {
                    let name = format!("{kind:?} × {activations:?} {}", isa.name());
                    if !words.iter().all(|word| name.contains(word.as_str())) {
                        continue;
                    }
                    let cpu = Cpu { isa, num_threads: threads::num_threads() };
                    let ms = step_ms(cpu, &model, activations, rows, if rows > 32 { 3 } else { rounds });
                    println!("{name}, {rows} rows: {ms:.2} ms, {:.1} GB/s", bytes as f64 / ms / 1e6);
                }
            }
        }
    }
}

fn step_ms(cpu: Cpu, model: &[PackedLinear], kind: ActivationType, rows: usize, rounds: usize) -> f64 {
    let mut activations = Activations::new(kind);
    let x = vec![0.5f32; rows * 1536];
    // Only rows that are sampled from meet the vocabulary, here the last of a prompt.
    let rows_of = |linear: &PackedLinear| if rows > 32 && linear.out_features() > 40_000 { 1 } else { rows };
    let mut out = vec![0f32; rows.min(32) * HEAD.0 + rows * 3072];
    let mut times: Vec<f64> = (0..rounds)
        .map(|_| {
            let start = Instant::now();
            for linear in model {
                let rows = rows_of(linear);
                let x = &x[..rows * linear.in_features()];
                linear.multiply(cpu, x, &mut activations, &mut out[..rows * linear.out_features()]);
            }
            start.elapsed().as_secs_f64() * 1e3
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[rounds / 2]
}
