//! What the core's parts can do on this machine, as one JSON object: `benchmarks/core.py` runs it.
//!
//! `alloc_free_blocks_per_s`: blocks allocated and freed, 256 at a time, by one thread and by two together.
//! `prefix_lookup_blocks_per_s`: blocks of 16 tokens hashed, found and confirmed, in prompts of 2048 tokens.
//! `submit_ns`: one `submit` of a prompt of 32 tokens, with 8 threads that submit at the same time while one drains.
//! Medians of several runs, single calls timed by themselves where a quantile is asked for.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use pagurid_core::block_hash::{BlockHasher, CacheScope};
use pagurid_core::block_pool::{BlockPool, NULL_BLOCK};
use pagurid_core::prefix_cache::PrefixCache;
use pagurid_core::request::RequestOptions;
use pagurid_core::sampling_params::SamplingParams;
use pagurid_core::scheduler::Scheduler;
use pagurid_core::scheduler::config::SchedulerConfig;
use pagurid_core::scheduler::policy::{PreemptionVictim, SchedulingPolicy};
use pagurid_lockfree::BlockRefs;

const RUNS: usize = 7;

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn alloc_free(threads: usize) -> f64 {
    const BULK: usize = 256;
    const ROUNDS: usize = 40_000;
    let (blocks, barrier) = (BlockRefs::new(1 << 16), Barrier::new(threads + 1));
    let seconds = std::thread::scope(|scope| {
        let work = || {
            let mut held = Vec::with_capacity(BULK);
            barrier.wait();
            for _ in 0..ROUNDS {
                assert!(blocks.allocate(BULK, &mut held));
                blocks.release_all(&held);
                held.clear();
            }
        };
        let handles: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        barrier.wait();
        let start = Instant::now();
        for handle in handles {
            handle.join().expect("the worker ends well");
        }
        start.elapsed().as_secs_f64()
    });
    (threads * ROUNDS * BULK) as f64 / seconds
}

fn prefix_lookup() -> f64 {
    const BLOCK_SIZE: usize = 16;
    const PROMPTS: usize = 64;
    const PROMPT_BLOCKS: usize = 128;
    let num_blocks = PROMPTS * PROMPT_BLOCKS + 1;
    let cache = PrefixCache::new(num_blocks, BLOCK_SIZE);
    let mut pool = BlockPool::new(num_blocks, BLOCK_SIZE, Some(cache)).expect("the sizes are valid");
    let hasher = BlockHasher::new(BLOCK_SIZE, 128).expect("128 bits are valid");
    let scope = CacheScope::default();
    let prompts: Vec<Vec<u32>> = (0..PROMPTS)
        .map(|prompt| (0..BLOCK_SIZE * PROMPT_BLOCKS).map(|at| (prompt * 7919 + at * 31) as u32).collect())
        .collect();
    for prompt in &prompts {
        let mut blocks = Vec::new();
        assert!(pool.allocate(PROMPT_BLOCKS, &mut blocks));
        let mut parent = NULL_BLOCK;
        for ((&block, hash), tokens) in
            blocks.iter().zip(hasher.chain(&scope, prompt)).zip(prompt.chunks(BLOCK_SIZE))
        {
            pool.publish(block, hash, &scope, parent, tokens);
            parent = block;
        }
    }
    let mut found = Vec::with_capacity(PROMPT_BLOCKS);
    let start = Instant::now();
    for prompt in &prompts {
        found.clear();
        let hits = pool.find_prefix(&hasher.chain(&scope, prompt), &scope, prompt, &mut found);
        assert_eq!(hits, PROMPT_BLOCKS);
    }
    (PROMPTS * PROMPT_BLOCKS) as f64 / start.elapsed().as_secs_f64()
}

/// (p50, p99), in ns.
fn submit() -> (f64, f64) {
    const PRODUCERS: usize = 8;
    const REQUESTS: usize = 1000;
    let config = SchedulerConfig {
        num_blocks: 1 << 14,
        block_size: 16,
        max_model_len: 1024,
        max_num_seqs: 256,
        max_num_batched_tokens: 8192,
        vocab_size: 50_000,
        eos_token_ids: vec![0],
        max_queued_requests: 2 * PRODUCERS * REQUESTS,
        scheduling_policy: SchedulingPolicy::Fcfs,
        priority_ageing_ms: 1000.0,
        step_time_target_ms: None,
        max_queue_wait_ms: None,
        preemption_victim: PreemptionVictim::LeastWaste,
        overlap_steps: false,
        isolate_tenants: false,
        enable_prefix_caching: true,
        prefix_hash_bits: 128,
        kv_bytes_per_block: 0,
        cost_per_hour: None,
    };
    let (mut scheduler, intake, mut outputs) = Scheduler::new(config, None).expect("the sizes are valid");
    let (barrier, is_over) = (Barrier::new(PRODUCERS), AtomicBool::new(false));
    let mut times: Vec<f64> = std::thread::scope(|scope| {
        let producers: Vec<_> = (0..PRODUCERS as u32)
            .map(|producer| {
                let (intake, barrier) = (&intake, &barrier);
                scope.spawn(move || {
                    let prompt: std::sync::Arc<[u32]> = (0..32).map(|at| producer * 100 + at).collect();
                    let params = std::sync::Arc::new(SamplingParams {
                        max_tokens: Some(4),
                        ..SamplingParams::default()
                    });
                    barrier.wait();
                    let timed = (0..REQUESTS).map(|_| {
                        let start = Instant::now();
                        let id = intake.submit(prompt.clone(), params.clone(), RequestOptions::default());
                        let time = start.elapsed().as_nanos() as f64;
                        id.expect("there is room for all");
                        // A client that submits without a pause is none.
                        std::thread::yield_now();
                        time
                    });
                    timed.collect::<Vec<_>>()
                })
            })
            .collect();
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) || intake.has_unfinished_requests() {
                if scheduler.plan().expect("no step is open") {
                    let rows = scheduler.step_plan().num_logits_rows();
                    scheduler.commit(Some(&vec![1; rows])).expect("the step is open");
                }
                for id in outputs.take_ready() {
                    outputs.take_output(id);
                }
                std::thread::yield_now();
            }
        });
        let times = producers.into_iter().flat_map(|it| it.join().expect("the producer ends well")).collect();
        is_over.store(true, Ordering::Relaxed);
        times
    });
    times.sort_by(f64::total_cmp);
    let quantile = |q: f64| times[(times.len() as f64 * q) as usize];
    (quantile(0.5), quantile(0.99))
}

fn main() {
    let runs = |measure: &dyn Fn() -> f64| median((0..RUNS).map(|_| measure()).collect());
    // One and two threads in turn, so that both meet the same disturbances.
    let pairs: Vec<(f64, f64)> = (0..RUNS).map(|_| (alloc_free(1), alloc_free(2))).collect();
    let (one, two) = (
        median(pairs.iter().map(|pair| pair.0).collect()),
        median(pairs.iter().map(|pair| pair.1).collect()),
    );
    let ratio = median(pairs.iter().map(|pair| pair.1 / pair.0).collect());
    let lookup = runs(&prefix_lookup);
    let submits: Vec<(f64, f64)> = (0..RUNS).map(|_| submit()).collect();
    let p50 = median(submits.iter().map(|it| it.0).collect());
    let p99 = median(submits.iter().map(|it| it.1).collect());
    println!(
        "{{\"alloc_free_blocks_per_s\": {{\"1\": {one:.0}, \"2\": {two:.0}, \"2_over_1\": {ratio:.3}}}, \
         \"prefix_lookup_blocks_per_s\": {lookup:.0}, \"submit_ns\": {{\"p50\": {p50:.0}, \"p99\": {p99:.0}}}}}"
    );
}
