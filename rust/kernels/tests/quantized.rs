//! Products with quantised weights: against float64, and the promise that a row's bits are its own on every machine.

mod random;

use std::sync::Arc;

use half::f16;
use pagurid_kernels::Cpu;
use pagurid_kernels::quantized::{ActivationType, Activations, GgufType, PackedLinear, PackedMatrix};
use random::{Random, bits, cpus};

const TYPES: [ActivationType; 2] = [ActivationType::Int8, ActivationType::Int16];

/// Random codes, with scales that make sense.
fn random_blocks(random: &mut Random, kind: GgufType, weights: usize) -> Vec<u8> {
    let mut blocks = Vec::new();
    for _ in 0..weights / kind.block_len() {
        let mut block: Vec<u8> = (0..kind.block_bytes()).map(|_| random.next() as u8).collect();
        let halves: &[usize] = match kind {
            GgufType::Q4_1 | GgufType::Q5_1 | GgufType::Q4_K | GgufType::Q5_K => &[0, 2],
            GgufType::Q6_K => &[208],
            _ => &[0],
        };
        for &at in halves {
            block[at..at + 2].copy_from_slice(&f16::from_f32(random.float() / 16.0).to_le_bytes());
        }
        blocks.extend(block);
    }
    blocks
}

fn matrix(random: &mut Random, kind: GgufType, out: usize, width: usize) -> Arc<PackedMatrix> {
    let blocks = random_blocks(random, kind, out * width);
    Arc::new(PackedMatrix::from_gguf(2, kind, &blocks, out, width, &|row| row).unwrap())
}

fn multiply(cpu: Cpu, linear: &PackedLinear, activations: ActivationType, x: &[f32]) -> Vec<f32> {
    let mut out = vec![f32::NAN; x.len() / linear.in_features() * linear.out_features()];
    linear.multiply(cpu, x, &mut Activations::new(activations), &mut out);
    out
}

fn width(random: &mut Random, kind: GgufType) -> usize {
    kind.block_len() * random.between(1, if kind.block_len() == 32 { 21 } else { 4 })
}

#[test]
fn agrees_with_float64() {
    let mut random = Random(1);
    for round in 0..64 {
        let kind = GgufType::ALL[round % GgufType::ALL.len()];
        let width = width(&mut random, kind);
        let (rows, outs) = (random.between(1, 19), [random.between(1, 50), random.between(1, 20)]);
        let matrices: Vec<_> = outs.iter().map(|&out| matrix(&mut random, kind, out, width)).collect();
        let bias = (round % 3 == 0).then(|| random.floats(outs[0] + outs[1]));
        let linear = PackedLinear::new(matrices, bias.as_deref()).unwrap();
        let x = random.floats(rows * width);
        let mut weights = vec![0f32; linear.out_features() * width];
        for (row, out) in weights.chunks_mut(width).enumerate() {
            linear.read_rows(&[row as i32], out).unwrap();
        }
        for (activations, step) in [(ActivationType::Int8, 127.0), (ActivationType::Int16, 32384.0)] {
            for cpu in cpus() {
                let got = multiply(cpu, &linear, activations, &x);
                for (i, &got) in got.iter().enumerate() {
                    let (x, w) = (
                        &x[i / linear.out_features() * width..][..width],
                        &weights[i % linear.out_features() * width..][..width],
                    );
                    let pairs = || x.iter().zip(w).map(|(&x, &w)| (f64::from(x), f64::from(w)));
                    let b = bias.as_ref().map_or(0.0, |bias| f64::from(bias[i % linear.out_features()]));
                    let expected = b + pairs().map(|(x, w)| x * w).sum::<f64>();
                    // Each x is off by at most half a step of a group whose largest is at most 1. The last part is
                    // float32's rounding, of sums that a minimum may make large before they cancel out.
                    let worst = pairs().map(|(_, w)| w.abs()).sum::<f64>() * 0.5 / step
                        + 1e-6
                            * (1.0
                                + pairs().map(|(x, w)| (x * w).abs()).sum::<f64>()
                                + 16.0 * width as f64 / 32.0);
                    assert!(
                        (f64::from(got) - expected).abs() <= worst,
                        "{kind:?} × {activations:?} on {cpu:?}, width {width}: [{i}] is {got}, should be {expected}"
                    );
                }
            }
        }
    }
}

#[test]
fn a_row_has_the_same_bits_alone_in_any_batch_and_on_every_instruction_set() {
    let mut random = Random(2);
    for kind in GgufType::ALL {
        for activations in TYPES {
            let (rows, out, width) = (139, 37, kind.block_len() * 3);
            let linear = PackedLinear::new(vec![matrix(&mut random, kind, out, width)], None).unwrap();
            let x = random.floats(rows * width);
            let all: Vec<_> =
                cpus().into_iter().map(|cpu| (cpu, multiply(cpu, &linear, activations, &x))).collect();
            for (cpu, all_rows) in &all {
                for row in [0, 1, 7, 64, 127, 128, rows - 1] {
                    let alone = multiply(*cpu, &linear, activations, &x[row * width..][..width]);
                    assert_eq!(
                        bits(&alone),
                        bits(&all_rows[row * out..][..out]),
                        "{kind:?} row {row} on {cpu:?}"
                    );
                }
                if cpu.isa.name() != "portable" {
                    assert_eq!(bits(all_rows), bits(&all[0].1), "{kind:?} on {cpu:?} and {:?}", all[0].0);
                }
            }
        }
    }
}

#[test]
fn extreme_codes_and_activations_do_not_overflow() {
    for kind in GgufType::ALL {
        for byte in [0x00, 0x7f, 0x80, 0xff] {
            for sign in [1.0, -1.0] {
                let mut blocks = vec![byte; kind.block_bytes() * 16 * 2];
                for block in blocks.chunks_mut(kind.block_bytes()) {
                    let one = f16::ONE.to_le_bytes();
                    match kind {
                        GgufType::Q6_K => block[208..].copy_from_slice(&one),
                        GgufType::Q4_0 | GgufType::Q5_0 | GgufType::Q8_0 => block[..2].copy_from_slice(&one),
                        _ => block[..4].copy_from_slice(&[one, one].concat()),
                    }
                }
                let width = 2 * kind.block_len();
                let matrix = PackedMatrix::from_gguf(1, kind, &blocks, 16, width, &|row| row).unwrap();
                let linear = PackedLinear::new(vec![Arc::new(matrix)], None).unwrap();
                let x = vec![sign; width];
                let mut row = vec![0f32; width];
                linear.read_rows(&[3], &mut row).unwrap();
                let expected = row.iter().map(|&w| f64::from(w) * f64::from(sign)).sum::<f64>();
                for cpu in cpus() {
                    for activations in TYPES {
                        let got = f64::from(multiply(cpu, &linear, activations, &x)[3]);
                        assert!(
                            (got - expected).abs() <= 1e-5 * (1.0 + expected.abs()),
                            "{kind:?} of {byte:#x}: {got}, should be {expected}, on {cpu:?}"
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn rows_are_taken_from_where_the_file_has_them() {
    let mut random = Random(3);
    let (out, width) = (40, 96);
    let blocks = random_blocks(&mut random, GgufType::Q4_1, out * width);
    let plain = PackedMatrix::from_gguf(1, GgufType::Q4_1, &blocks, out, width, &|row| row).unwrap();
    let turned =
        PackedMatrix::from_gguf(1, GgufType::Q4_1, &blocks, out, width, &|row| (row * 7) % out).unwrap();
    let (mut a, mut b) = (vec![0f32; width], vec![0f32; width]);
    for row in 0..out {
        plain.read_row(row * 7 % out, &mut a);
        turned.read_row(row, &mut b);
        assert_eq!(bits(&a), bits(&b));
    }
}

#[test]
fn a_number_that_is_not_finite_or_tiny_stays_in_its_row() {
    let mut random = Random(4);
    let linear = PackedLinear::new(vec![matrix(&mut random, GgufType::Q4_1, 20, 64)], None).unwrap();
    for cpu in cpus() {
        for activations in TYPES {
            let mut x = random.floats(4 * 64);
            let clean = multiply(cpu, &linear, activations, &x);
            x[64 + 5] = f32::NAN;
            x[2 * 64 + 40] = f32::INFINITY;
            x[3 * 64..].fill(1e-41);
            let got = multiply(cpu, &linear, activations, &x);
            assert_eq!(bits(&got[..20]), bits(&clean[..20]));
            assert!(got[20..60].iter().all(|y| !y.is_finite()), "{got:?}");
            assert!(got[60..].iter().all(|y| y.abs() < 1e-30), "{got:?}");
        }
    }
}

#[test]
fn wrong_sizes_are_refused() {
    let message = |result: Result<PackedMatrix, _>| {
        let error: pagurid_kernels::InvalidArgument = result.err().expect("refused");
        error.0
    };
    let too_short = PackedMatrix::from_gguf(1, GgufType::Q8_0, &[0; 33], 1, 32, &|row| row);
    assert!(message(too_short).contains("are 34 bytes; got 33"));
    let odd = PackedMatrix::from_gguf(1, GgufType::Q4_K, &[], 1, 288, &|row| row);
    assert!(message(odd).contains("multiple of 256"));
    assert!(PackedLinear::new(vec![], None).is_err());
}
