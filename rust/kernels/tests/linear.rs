//! Linear layers: against float64, and the promise that a row's bits are its own.

mod random;

use half::{bf16, f16};
use pagurid_kernels::Cpu;
use pagurid_kernels::linear::{LinearShape, Weight, linear};
use random::{Random, assert_close, bits, cpus};

fn run<'a>(cpu: Cpu, x: &[f32], weight: impl Into<Weight<'a>>, shape: LinearShape) -> Vec<f32> {
    let mut out = vec![f32::NAN; shape.rows * shape.out_features];
    linear(cpu, x, weight, &mut out, shape);
    out
}

#[test]
fn agrees_with_float64() {
    let mut random = Random(1);
    for round in 0..60 {
        let shape = LinearShape {
            rows: random.between(1, 21),
            in_features: if round % 6 == 5 { random.between(600, 1700) } else { random.between(1, 90) },
            out_features: random.between(1, 70),
        };
        let x = random.floats(shape.rows * shape.in_features);
        let weight = random.floats(shape.out_features * shape.in_features);
        let expected: Vec<f64> = x
            .chunks(shape.in_features)
            .flat_map(|x| {
                weight
                    .chunks(shape.in_features)
                    .map(|w| x.iter().zip(w).map(|(&x, &w)| f64::from(x) * f64::from(w)).sum::<f64>())
            })
            .collect();
        for cpu in cpus() {
            let got = run(cpu, &x, weight.as_slice(), shape);
            assert_close(&got, &expected, 1e-5, &format!("{shape:?} on {cpu:?}"));
        }
    }
}

#[test]
fn a_row_has_the_same_bits_alone_and_in_any_batch() {
    let mut random = Random(2);
    // More rows than one block of x, more features than one piece; and a length of several chunks.
    for (rows, in_features, out_features) in [(7, 50, 40), (9, 1536, 31), (150, 1700, 25), (5, 576, 300)] {
        let shape = LinearShape { rows, in_features, out_features };
        let x = random.floats(rows * in_features);
        let weight = random.floats(out_features * in_features);
        let all: Vec<Vec<f32>> =
            cpus().into_iter().map(|cpu| run(cpu, &x, weight.as_slice(), shape)).collect();
        for (cpu, all) in cpus().into_iter().zip(&all) {
            for row in [0, 1, rows / 2, rows - 1] {
                let one = LinearShape { rows: 1, ..shape };
                let alone = run(cpu, &x[row * in_features..][..in_features], weight.as_slice(), one);
                let batched = &all[row * out_features..][..out_features];
                assert_eq!(bits(&alone), bits(batched), "row {row} of {shape:?} on {cpu:?}");
            }
        }
        for pair in all.chunks(2) {
            assert_eq!(bits(&pair[0]), bits(&pair[1]), "one thread and three: {shape:?}");
        }
    }
}

#[test]
fn threads_change_no_bits() {
    // Enough work that helpers wake up and get pieces, again and again.
    let shape = LinearShape { rows: 64, in_features: 1700, out_features: 600 };
    let mut random = Random(4);
    let x = random.floats(shape.rows * shape.in_features);
    let weight = random.floats(shape.out_features * shape.in_features);
    for cpus in cpus().chunks(2) {
        let one = run(cpus[0], &x, weight.as_slice(), shape);
        for _ in 0..5 {
            assert!(bits(&run(cpus[1], &x, weight.as_slice(), shape)) == bits(&one), "{cpus:?}");
        }
    }
}

#[test]
fn instruction_sets_with_fused_multiply_add_agree_to_the_bit() {
    let mut random = Random(3);
    let shape = LinearShape { rows: 5, in_features: 700, out_features: 23 };
    let (x, weight) = (random.floats(5 * 700), random.floats(23 * 700));
    let fused: Vec<_> = cpus()
        .into_iter()
        .filter(|cpu| cpu.isa.name() != "portable")
        .map(|cpu| run(cpu, &x, weight.as_slice(), shape))
        .collect();
    assert!(fused.windows(2).all(|w| bits(&w[0]) == bits(&w[1])));
}

#[test]
fn empty_shapes_are_fine() {
    for cpu in cpus() {
        assert!(
            run(cpu, &[], [1.0; 6].as_slice(), LinearShape { rows: 0, in_features: 3, out_features: 2 })
                .is_empty()
        );
        assert!(
            run(
                cpu,
                &[1.0; 6],
                [0f32; 0].as_slice(),
                LinearShape { rows: 2, in_features: 3, out_features: 0 }
            )
            .is_empty()
        );
        let nothing_to_add =
            run(cpu, &[], [0f32; 0].as_slice(), LinearShape { rows: 2, in_features: 0, out_features: 2 });
        assert_eq!(nothing_to_add, [0.0; 4]);
    }
}

/// What the kernel does with W of 16 bits is what it does with the same numbers in float32, to the bit: so all that is
/// proven above holds for it, too.
#[test]
fn numbers_of_16_bits_have_the_bits_of_float32() {
    let mut random = Random(5);
    let mut shapes: Vec<(usize, usize, usize)> =
        (0..40).map(|_| (random.between(1, 21), random.between(1, 90), random.between(1, 70))).collect();
    // A length of several chunks, more features than one piece, more rows than one block of x, and no whole lanes.
    shapes.extend([(1, 1536, 31), (9, 1700, 150), (150, 1700, 25), (5, 576, 300), (13, 577, 300)]);
    for (rows, in_features, out_features) in shapes {
        let shape = LinearShape { rows, in_features, out_features };
        let x = random.floats(rows * in_features);
        let floats = random.floats(out_features * in_features);
        let halves: Vec<f16> = floats.iter().map(|&w| f16::from_f32(w)).collect();
        let brains: Vec<bf16> = floats.iter().map(|&w| bf16::from_f32(w)).collect();
        let widened_halves: Vec<f32> = halves.iter().map(|w| w.to_f32()).collect();
        let widened_brains: Vec<f32> = brains.iter().map(|w| w.to_f32()).collect();
        for cpu in cpus() {
            for (weight, widened) in [
                (Weight::from(halves.as_slice()), &widened_halves),
                (Weight::from(brains.as_slice()), &widened_brains),
            ] {
                let expected = run(cpu, &x, widened.as_slice(), shape);
                let got = run(cpu, &x, weight, shape);
                assert_eq!(bits(&got), bits(&expected), "{shape:?} on {cpu:?}");
            }
        }
    }
}
