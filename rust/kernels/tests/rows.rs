//! The kernels whose rows have nothing to do with each other: norms, activation, `RoPE` with the KV write.

mod random;

use pagurid_kernels::activation::silu_mul;
use pagurid_kernels::kv_cache::KvCacheShape;
use pagurid_kernels::norm::{add_rms_norm, rms_norm};
use pagurid_kernels::rope::{NO_SLOT, RopeInputs, rope_kv_write};
use random::{Random, assert_close, bits, cpus};

const EPS: f32 = 1e-5;

fn naive_norm(x: &[f64], weight: &[f32]) -> Vec<f64> {
    x.chunks(weight.len())
        .flat_map(|row| {
            let mean = row.iter().map(|x| x * x).sum::<f64>() / row.len() as f64;
            let scale = 1.0 / (mean + f64::from(EPS)).sqrt();
            row.iter().zip(weight).map(move |(x, &w)| x * scale * f64::from(w))
        })
        .collect()
}

#[test]
fn norms_agree_with_float64() {
    let mut random = Random(1);
    for (rows, width) in [(1, 1), (3, 7), (2, 16), (5, 100), (300, 576), (40, 2048)] {
        let (x, residual) = (random.floats(rows * width), random.floats(rows * width));
        let weight = random.floats(width);
        let wide: Vec<f64> = x.iter().map(|&x| f64::from(x)).collect();
        let summed: Vec<f32> = x.iter().zip(&residual).map(|(&x, &r)| r + x).collect();
        let wide_sum: Vec<f64> = summed.iter().map(|&x| f64::from(x)).collect();
        for cpu in cpus() {
            let what = format!("{rows} x {width} on {cpu:?}");
            let mut out = vec![f32::NAN; rows * width];
            rms_norm(cpu, &x, &weight, EPS, &mut out);
            assert_close(&out, &naive_norm(&wide, &weight), 2e-6, &what);

            let mut new_residual = residual.clone();
            add_rms_norm(cpu, &x, &mut new_residual, &weight, EPS, &mut out);
            assert_eq!(bits(&new_residual), bits(&summed), "{what}");
            assert_close(&out, &naive_norm(&wide_sum, &weight), 2e-6, &what);

            let mut alone = vec![f32::NAN; width];
            let last = (rows - 1) * width;
            rms_norm(cpu, &summed[last..], &weight, EPS, &mut alone);
            assert_eq!(bits(&alone), bits(&out[last..]), "the last row alone, {what}");
        }
    }
}

#[test]
fn silu_mul_agrees_with_float64() {
    let mut random = Random(2);
    for (rows, width) in [(1, 1), (3, 17), (2, 1536), (90, 700)] {
        let mut gate_up = random.floats(rows * 2 * width);
        for (i, x) in gate_up.iter_mut().enumerate() {
            *x *= [1.0, 10.0, 200.0][i % 3]; // beyond where exp overflows, too
        }
        let expected: Vec<f64> = gate_up
            .chunks(2 * width)
            .flat_map(|row| {
                let (gate, up) = row.split_at(width);
                gate.iter().zip(up).map(|(&g, &u)| {
                    let g = f64::from(g);
                    g / (1.0 + (-g).exp()) * f64::from(u)
                })
            })
            .collect();
        for cpu in cpus() {
            let mut out = vec![f32::NAN; rows * width];
            silu_mul(cpu, &gate_up, &mut out, width);
            assert_close(&out, &expected, 2e-6, &format!("{rows} x {width} on {cpu:?}"));
        }
    }
}

#[test]
fn nan_is_not_hidden() {
    for cpu in cpus() {
        let mut out = [0.0; 2];
        silu_mul(cpu, &[f32::NAN, 1.0, 1.0, f32::NAN], &mut out, 2);
        assert!(out.iter().all(|x| x.is_nan()), "{out:?} on {cpu:?}");
        rms_norm(cpu, &[f32::NAN, 1.0], &[1.0, 1.0], EPS, &mut out);
        assert!(out.iter().all(|x| x.is_nan()), "{out:?} on {cpu:?}");
    }
}

#[test]
fn rope_turns_pairs_and_writes_only_its_slots() {
    let mut random = Random(3);
    for (head_dim, block_size) in [(64, 16), (80, 8), (6, 1), (128, 32), (2, 3)] {
        let cache = KvCacheShape { num_blocks: 9, kv_heads: random.between(1, 3), head_dim, block_size };
        let num_heads = cache.kv_heads * random.between(1, 3);
        let (rows, max_positions) = (random.between(1, 8), 50);
        let qkv = random.floats(rows * (num_heads + 2 * cache.kv_heads) * head_dim);
        let cos_sin = random.floats(max_positions * head_dim);
        let positions: Vec<i32> = (0..rows).map(|_| random.between(0, max_positions - 1) as i32).collect();
        let slots = cache.num_blocks * block_size;
        let first = random.between(0, slots - 1);
        let slot_mapping: Vec<i64> = (0..rows)
            .map(|row| if row == 1 { NO_SLOT } else { ((first + 5 * row) % slots) as i64 })
            .collect();
        let (k_before, v_before) = (random.floats(cache.len()), random.floats(cache.len()));
        let wide = |of: &[f32]| of.iter().map(|&x| f64::from(x)).collect::<Vec<_>>();
        let (mut k_expected, mut v_expected, mut q_expected) = (wide(&k_before), wide(&v_before), vec![]);
        for row in 0..rows {
            let cs = wide(&cos_sin[positions[row] as usize * head_dim..][..head_dim]);
            let heads = wide(&qkv)[row * (num_heads + 2 * cache.kv_heads) * head_dim..].to_vec();
            let half = head_dim / 2;
            let turned = |head: usize, d: usize| {
                let x = &heads[head * head_dim..];
                if d < half {
                    x[d] * cs[d] - x[d + half] * cs[d + half]
                } else {
                    x[d] * cs[d - half] + x[d - half] * cs[d]
                }
            };
            q_expected.extend((0..num_heads * head_dim).map(|i| turned(i / head_dim, i % head_dim)));
            let Ok(slot) = usize::try_from(slot_mapping[row]) else { continue };
            for head in 0..cache.kv_heads {
                let at = (slot / block_size * cache.kv_heads + head) * head_dim * block_size;
                for d in 0..head_dim {
                    k_expected[at + d * block_size + slot % block_size] = turned(num_heads + head, d);
                    v_expected[at + slot % block_size * head_dim + d] =
                        heads[(num_heads + cache.kv_heads + head) * head_dim + d];
                }
            }
        }
        for cpu in cpus() {
            let (mut k, mut v) = (k_before.clone(), v_before.clone());
            let mut q = vec![f32::NAN; rows * num_heads * head_dim];
            let inputs = RopeInputs {
                qkv: &qkv,
                cos_sin: &cos_sin,
                positions: &positions,
                slot_mapping: &slot_mapping,
                num_heads,
            };
            rope_kv_write(cpu, inputs, &mut k, &mut v, cache, &mut q).unwrap();
            let what = format!("{cache:?} on {cpu:?}");
            assert_close(&q, &q_expected, 1e-6, &what);
            assert_close(&k, &k_expected, 1e-6, &what);
            assert_close(&v, &v_expected, 0.0, &what);
        }
    }
}

#[test]
fn positions_and_slots_out_of_range_are_refused() {
    let cache = KvCacheShape { num_blocks: 2, kv_heads: 1, head_dim: 4, block_size: 2 };
    for cpu in cpus() {
        for (position, slot, words) in [
            (3, 0, "positions must be in 0..3; got 3 in row 1"),
            (-1, 0, "positions must be in 0..3; got -1 in row 1"),
            (0, 4, "slots must be in -1..4; got 4 in row 1"),
            (0, -2, "slots must be in -1..4; got -2 in row 1"),
        ] {
            let (mut k, mut v, mut q) = ([0.0; 16], [0.0; 16], [0.0; 8]);
            let inputs = RopeInputs {
                qkv: &[0.0; 24],
                cos_sin: &[0.0; 12],
                positions: &[0, position],
                slot_mapping: &[1, slot],
                num_heads: 1,
            };
            let error = rope_kv_write(cpu, inputs, &mut k, &mut v, cache, &mut q).unwrap_err();
            assert_eq!(error.0, words);
        }
    }
}
