//! Paged attention: against float64, and the promise that a row's bits are its own.

mod random;

use pagurid_kernels::Cpu;
use pagurid_kernels::attention::{AttentionInputs, paged_attention};
use pagurid_kernels::kv_cache::KvCacheShape;
use random::{Random, assert_close, bits, cpus};

/// The keys and values of one sequence, and queries for all its positions.
struct Sequence {
    len: usize,
    q: Vec<f32>, // [len, num_heads, D]
    k: Vec<f32>, // [len, kv_heads, D]
    v: Vec<f32>,
}

#[derive(Clone, Copy, Debug)]
#[allow(clippy::struct_field_names)] // as everywhere
struct Heads {
    num_heads: usize,
    kv_heads: usize,
    head_dim: usize,
}

impl Heads {
    fn row_len(&self) -> usize {
        self.num_heads * self.head_dim
    }

    fn scale(&self) -> f32 {
        1.0 / (self.head_dim as f32).sqrt()
    }

    fn sequence(&self, random: &mut Random, len: usize) -> Sequence {
        let mut floats = |n| random.floats(n).into_iter().map(|x| x * 3.0).collect::<Vec<_>>();
        let kv_len = len * self.kv_heads * self.head_dim;
        Sequence { len, q: floats(len * self.row_len()), k: floats(kv_len), v: floats(kv_len) }
    }

    /// Row `row` of the output in float64.
    fn naive(&self, sequence: &Sequence, row: usize) -> Vec<f64> {
        let d = self.head_dim;
        let mut out = vec![];
        for head in 0..self.num_heads {
            let kv_head = head / (self.num_heads / self.kv_heads);
            let q = &sequence.q[row * self.row_len() + head * d..][..d];
            let at = |key: usize| (key * self.kv_heads + kv_head) * d;
            let scores: Vec<f64> = (0..=row)
                .map(|key| {
                    let k = &sequence.k[at(key)..][..d];
                    q.iter().zip(k).map(|(&q, &k)| f64::from(q) * f64::from(k)).sum::<f64>()
                        * f64::from(self.scale())
                })
                .collect();
            let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let weights: Vec<f64> = scores.iter().map(|s| (s - max).exp()).collect();
            let sum: f64 = weights.iter().sum();
            out.extend((0..d).map(|i| {
                (0..=row).map(|key| weights[key] * f64::from(sequence.v[at(key) + i])).sum::<f64>() / sum
            }));
        }
        out
    }
}

/// Puts the sequences into a cache full of NaN, in blocks chosen by `seed`, and computes their last `rows`.
fn run(
    cpu: Cpu,
    heads: Heads,
    block_size: usize,
    work: &[(&Sequence, usize, usize)], // (sequence, context length, rows)
    seed: u64,
) -> Vec<Vec<f32>> {
    let mut random = Random(seed);
    let max_blocks = work.iter().map(|w| w.1.div_ceil(block_size)).max().unwrap() + random.between(0, 2);
    let num_blocks = work.len() * max_blocks + 3;
    let cache = KvCacheShape { num_blocks, kv_heads: heads.kv_heads, head_dim: heads.head_dim, block_size };
    let mut free: Vec<i32> = (0..num_blocks as i32).collect();
    let (mut k_cache, mut v_cache) = (vec![f32::NAN; cache.len()], vec![f32::NAN; cache.len()]);
    let (mut q, mut query_start, mut context_lens, mut tables) = (vec![], vec![0], vec![], vec![]);
    for &(sequence, context, rows) in work {
        let mut table = vec![-1; max_blocks]; // unused entries may be anything
        for key in 0..context {
            let entry = &mut table[key / block_size];
            if *entry < 0 {
                *entry = free.swap_remove(random.between(0, free.len() - 1));
            }
            for head in 0..heads.kv_heads {
                let at = (*entry as usize * heads.kv_heads + head) * heads.head_dim * block_size;
                for d in 0..heads.head_dim {
                    let from = (key * heads.kv_heads + head) * heads.head_dim + d;
                    k_cache[at + d * block_size + key % block_size] = sequence.k[from];
                    v_cache[at + key % block_size * heads.head_dim + d] = sequence.v[from];
                }
            }
        }
        q.extend(&sequence.q[(context - rows) * heads.row_len()..context * heads.row_len()]);
        query_start.push(query_start.last().unwrap() + rows as i32);
        context_lens.push(context as i32);
        tables.extend(table);
    }
    let inputs = AttentionInputs {
        q: &q,
        k_cache: &k_cache,
        v_cache: &v_cache,
        cache,
        query_start: &query_start,
        context_lens: &context_lens,
        block_tables: &tables,
        num_heads: heads.num_heads,
        scale: heads.scale(),
    };
    let mut out = vec![f32::NAN; q.len()];
    paged_attention(cpu, &inputs, &mut out).unwrap();
    let rows = query_start.windows(2).map(|w| (w[0] as usize, w[1] as usize));
    rows.map(|(start, end)| out[start * heads.row_len()..end * heads.row_len()].to_vec()).collect()
}

#[test]
fn agrees_with_float64() {
    let mut random = Random(1);
    for _ in 0..60 {
        let kv_heads = random.between(1, 3);
        let heads = Heads {
            num_heads: kv_heads * random.between(1, 8),
            kv_heads,
            head_dim: random.pick(&[8, 24, 64, 64, 80, 128]),
        };
        let block_size = random.pick(&[1, 8, 16, 16, 32, 5]);
        let sequences: Vec<_> = (0..random.between(1, 3))
            .map(|_| {
                let most = random.pick(&[3, 40, 200]);
                let len = random.between(1, most);
                heads.sequence(&mut random, len)
            })
            .collect();
        let work: Vec<_> = sequences.iter().map(|s| (s, s.len, random.between(1, s.len))).collect();
        let expected: Vec<f64> = work
            .iter()
            .flat_map(|&(s, context, rows)| {
                (context - rows..context).flat_map(move |row| heads.naive(s, row))
            })
            .collect();
        for cpu in cpus() {
            let got = run(cpu, heads, block_size, &work, random.next()).concat();
            let what = format!("{heads:?} block size {block_size} on {cpu:?}");
            assert_close(&got, &expected, 2e-5, &what);
        }
    }
}

#[test]
fn a_row_has_the_same_bits_however_it_came_about() {
    let mut random = Random(2);
    for (num_heads, kv_heads, head_dim, len) in [
        (9, 3, 64, 700),
        (1, 1, 64, 300),
        (8, 1, 80, 270),
        (4, 4, 128, 130),
        (10, 2, 24, 260),
        (40, 1, 8, 140),
    ] {
        let heads = Heads { num_heads, kv_heads, head_dim };
        let sequence = heads.sequence(&mut random, len);
        let other = heads.sequence(&mut random, 150);
        for isa_cpus in cpus().chunks(2) {
            let whole = run(isa_cpus[0], heads, 16, &[(&sequence, len, len)], 1).remove(0);
            for &cpu in isa_cpus {
                for block_size in [1, 8, 16, 32, 48] {
                    let seed = random.next();
                    // a chunk of the prompt beside another sequence, and single rows as decode makes them
                    let start = random.between(0, len - 1);
                    let end = random.between(start + 1, len);
                    let mut rows = vec![(start, end)];
                    rows.extend([0, 127, 128, len - 1, start].map(|row| (row, row + 1)));
                    for (start, end) in rows {
                        let work = [(&other, 150, 1), (&sequence, end, end - start), (&other, 150, 0)];
                        let which = random.between(0, 1);
                        let got = &run(cpu, heads, block_size, &work[which..], seed)[1 - which];
                        let expected = &whole[start * heads.row_len()..end * heads.row_len()];
                        assert!(
                            bits(got) == bits(expected),
                            "rows {start}..{end} of {heads:?}, block size {block_size}, on {cpu:?}"
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn a_long_context_of_one_row_is_shared_among_threads() {
    let mut random = Random(3);
    let heads = Heads { num_heads: 2, kv_heads: 1, head_dim: 64 };
    let sequence = heads.sequence(&mut random, 5000);
    for isa_cpus in cpus().chunks(2) {
        let work = [(&sequence, 5000, 1)];
        let one = run(isa_cpus[0], heads, 16, &work, 1).remove(0);
        assert_close(&one, &heads.naive(&sequence, 4999), 2e-5, "5000 keys");
        assert_eq!(bits(&one), bits(&run(isa_cpus[1], heads, 16, &work, 2)[0]));
    }
}

#[test]
fn a_score_far_above_all_before_takes_over() {
    // exp of the difference is far beyond a float, in both directions.
    let heads = Heads { num_heads: 2, kv_heads: 1, head_dim: 16 };
    for large in [0, 100, 290] {
        let mut sequence = heads.sequence(&mut Random(5), 300);
        let q = sequence.q[299 * heads.row_len()..][..16].to_vec();
        for (k, q) in sequence.k[large * 16..][..16].iter_mut().zip(&q) {
            *k = q * 100.0;
        }
        for cpu in cpus() {
            let got = run(cpu, heads, 16, &[(&sequence, 300, 1)], 1).remove(0);
            assert_close(&got, &heads.naive(&sequence, 299), 2e-5, &format!("key {large} on {cpu:?}"));
        }
    }
}

#[test]
fn nan_in_a_seen_value_is_not_hidden() {
    let heads = Heads { num_heads: 2, kv_heads: 1, head_dim: 16 };
    for cpu in cpus() {
        for in_q in [true, false] {
            let mut sequence = heads.sequence(&mut Random(4), 20);
            if in_q {
                sequence.q[19 * heads.row_len()] = f32::NAN;
            } else {
                sequence.v[3 * 16] = f32::NAN;
            }
            let out = run(cpu, heads, 16, &[(&sequence, 20, 1)], 1).remove(0);
            assert!(out[0].is_nan(), "{out:?} on {cpu:?}");
        }
    }
}

#[test]
fn lengths_and_blocks_out_of_range_are_refused() {
    let cache = KvCacheShape { num_blocks: 4, kv_heads: 1, head_dim: 8, block_size: 2 };
    let memory = vec![0f32; cache.len()];
    for cpu in cpus() {
        for (query_start, context_len, table, words) in [
            ([0, 1], 3, [1, 2], "query_start must rise from 0 to the number of rows, 2; got [0, 1]"),
            ([1, 2], 3, [1, 2], "query_start must rise from 0 to the number of rows, 2; got [1, 2]"),
            ([0, 2], 1, [1, 2], "context_lens[0] must be in 2..=4 for its 2 rows and 2 blocks of 2; got 1"),
            ([0, 2], 5, [1, 2], "context_lens[0] must be in 2..=4 for its 2 rows and 2 blocks of 2; got 5"),
            ([0, 2], 3, [1, 4], "block_tables[0] must name blocks in 0..4; got 4"),
            ([0, 2], 3, [-1, 1], "block_tables[0] must name blocks in 0..4; got -1"),
        ] {
            let inputs = AttentionInputs {
                q: &[0.0; 16],
                k_cache: &memory,
                v_cache: &memory,
                cache,
                query_start: &query_start,
                context_lens: &[context_len],
                block_tables: &table,
                num_heads: 1,
                scale: 1.0,
            };
            assert_eq!(paged_attention(cpu, &inputs, &mut [0.0; 16]).unwrap_err().0, words);
        }
    }
}
