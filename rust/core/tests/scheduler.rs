//! The scheduler's promises, one by one, on the toy model.

mod toy;

use pagurid_core::error::ErrorCode;
use pagurid_core::output::FinishReason;
use pagurid_core::progress::RequestState;
use pagurid_core::request::RequestOptions;
use pagurid_core::sampling_params::SamplingParams;
use pagurid_core::scheduler::config::SchedulerConfig;
use pagurid_core::scheduler::policy::PreemptionVictim;
use toy::{Toy, answer, config, forever, greedy, prompt};

#[test]
fn answers_are_right_in_a_batch_and_in_chunks() {
    let mut toy = Toy::new(config());
    let prompts: Vec<_> = (0..12).map(|salt| prompt(salt, 1 + salt as usize * 7)).collect();
    let ids: Vec<_> = prompts.iter().map(|prompt| toy.submit(prompt, greedy(Some(20)))).collect();
    toy.run();
    for (prompt, id) in prompts.iter().zip(ids) {
        let (tokens, finish) = answer(prompt, 20);
        assert_eq!((toy.tokens(id), toy.finish(id)), (&tokens[..], Some(finish)));
    }
}

#[test]
fn d16_hits_are_whole_blocks_and_something_is_always_computed() {
    for (len, hit) in [(31, 16), (32, 16), (33, 32)] {
        let mut toy = Toy::new(SchedulerConfig { block_size: 16, max_num_batched_tokens: 64, ..config() });
        let prompt = prompt(3, len);
        let cold = toy.submit(&prompt, greedy(Some(5)));
        toy.run();
        let warm = toy.submit(&prompt, greedy(Some(5)));
        toy.run();
        assert_eq!(
            (toy.metrics[&cold].cached_tokens, toy.metrics[&warm].cached_tokens),
            (0, hit),
            "prompt of {len}"
        );
        assert_eq!(toy.tokens(cold), toy.tokens(warm));
        assert_eq!(toy.intake.stats().counters.cached_tokens, u64::from(hit));
    }
}

#[test]
fn d16_a_chunk_loop_does_not_run_past_a_cached_prompt() {
    let mut toy = Toy::new(SchedulerConfig {
        block_size: 16,
        num_blocks: 100,
        max_model_len: 600,
        max_num_batched_tokens: 512,
        ..config()
    });
    for len in [512, 520] {
        let prompt = prompt(1, len);
        let id = toy.submit(&prompt, greedy(Some(3)));
        toy.run();
        assert_eq!(toy.tokens(id), answer(&prompt, 3).0);
    }
    assert_eq!(toy.intake.stats().counters.cached_tokens, 512);
}

#[test]
fn an_answer_stays_cached_for_the_next_turn() {
    let mut toy = Toy::new(config());
    let mut turn = prompt(2, 10);
    let first = toy.submit(&turn, forever(10));
    toy.run();
    turn.extend(toy.tokens(first));
    turn.extend([5, 6, 7]);
    let second = toy.submit(&turn, forever(4));
    toy.run();
    // 20 tokens of the first turn, the last of them never computed: 19 / 4 blocks.
    assert_eq!(toy.metrics[&second].cached_tokens, 16);
    assert_eq!(toy.tokens(second), forever_answer(&turn, 4));
}

fn forever_answer(prompt: &[u32], len: usize) -> Vec<u32> {
    let mut toy = Toy::new(SchedulerConfig { enable_prefix_caching: false, ..config() });
    let id = toy.submit(prompt, forever(len as u32));
    toy.run();
    assert_eq!(toy.intake.stats().counters.cached_blocks, 0);
    toy.tokens(id).to_vec()
}

#[test]
fn d21_a_long_prompt_delays_neither_short_ones_nor_decodes_and_finishes() {
    let mut toy = Toy::new(SchedulerConfig {
        num_blocks: 1200,
        block_size: 16,
        max_model_len: 16_384,
        max_num_seqs: 64,
        max_num_batched_tokens: 512,
        ..config()
    });
    let decodes: Vec<_> = (0..8).map(|salt| toy.submit(&prompt(salt, 5), forever(300))).collect();
    (0..3).for_each(|_| assert!(toy.step()));
    toy.take();
    let long = toy.submit(&prompt(20, 8192), forever(2));
    let shorts: Vec<_> = (0..20).map(|salt| toy.submit(&prompt(30 + salt, 20), forever(2))).collect();
    for step in 0..3 {
        let before: Vec<_> = decodes.iter().map(|&id| toy.tokens(id).len()).collect();
        assert!(toy.step());
        toy.take();
        for (&id, before) in decodes.iter().zip(before) {
            assert_eq!(toy.tokens(id).len(), before + 1, "every decode gets a token in step {step}");
        }
    }
    assert!(shorts.iter().all(|id| toy.answers.contains_key(&(*id, 0))), "short ones have their first token");
    // A stream of short prompts doesn't starve the long one either.
    let (mut steps, mut salt) = (0, 100);
    while toy.finish(long).is_none() {
        while toy.intake.stats().counters.num_waiting < 40 {
            salt += 1;
            toy.submit(&prompt(salt, 20), forever(1));
        }
        assert!(toy.step());
        toy.take();
        steps += 1;
        assert!(steps < 150, "the long prompt finishes");
    }
    toy.run();
}

#[test]
fn equal_prompts_share_the_budget_in_useful_chunks() {
    let base = SchedulerConfig { num_blocks: 400, max_num_seqs: 32, max_num_batched_tokens: 256, ..config() };
    let mut toy = Toy::new(base);
    for salt in 0..32 {
        toy.submit(&prompt(salt, 100), forever(1));
    }
    assert!(toy.step());
    assert_eq!(toy.last_chunks, [64, 64, 64, 64], "equal shares, but none below the useful chunk");
    toy.run();
}

#[test]
fn preemption_changes_nothing_but_the_time() {
    // Without a look ahead at admission, the answers outgrow the pool.
    let preemption_victim = PreemptionVictim::Youngest;
    let mut toy = Toy::new(SchedulerConfig { num_blocks: 20, preemption_victim, ..config() });
    let prompts: Vec<_> = (0..8).map(|salt| prompt(salt, 5 + salt as usize)).collect();
    let ids: Vec<_> = prompts.iter().map(|prompt| toy.submit(prompt, forever(30))).collect();
    toy.run();
    assert!(toy.intake.stats().counters.preemptions > 0);
    assert_eq!(
        ids.iter().map(|id| u64::from(toy.metrics[id].preemptions)).sum::<u64>(),
        toy.intake.stats().counters.preemptions
    );
    for (prompt, id) in prompts.iter().zip(ids) {
        assert_eq!(toy.tokens(id), forever_answer(prompt, 30));
    }
    assert_eq!(toy.metrics[&0x0100_0000].preemptions, 0, "the oldest is never preempted");
}

#[test]
fn the_oldest_prefill_takes_blocks_before_younger_decodes() {
    let mut toy = Toy::new(SchedulerConfig {
        num_blocks: 6,
        block_size: 16,
        max_num_seqs: 2,
        max_num_batched_tokens: 2,
        enable_prefix_caching: false,
        ..config()
    });
    let prompt = prompt(1, 40);
    let old = toy.submit(&prompt, forever(2));
    let young = toy.submit(&[1], forever(40));
    for step in 1..40 {
        assert!(toy.step());
        assert!(
            toy.intake.progress(old).unwrap().prefill_done_tokens >= step,
            "the oldest advances in every step"
        );
    }
    toy.run();
    assert!(toy.metrics[&young].preemptions > 0, "the younger one had to give its blocks back");
    assert_eq!(toy.tokens(young), forever_answer(&[1], 40));
}

#[test]
fn prefills_do_not_take_each_others_promised_blocks() {
    let mut toy = Toy::new(SchedulerConfig { num_blocks: 14, ..config() });
    let ids = [1, 2, 3].map(|salt| toy.submit(&prompt(salt, 40), forever(2)));
    toy.run();
    assert_eq!(toy.intake.stats().counters.preemptions, 0);
    assert!(ids.iter().all(|&id| toy.tokens(id).len() == 2));
}

#[test]
fn siblings_wait_for_the_prompt_and_share_it() {
    let mut toy = Toy::new(config());
    let prompt = prompt(1, 30);
    let id = toy.submit(&prompt, SamplingParams { n: 3, ..forever(10) });
    assert!(toy.step());
    assert_eq!(toy.last_chunks, [16], "the first sequence alone computes the prompt");
    assert_eq!(toy.intake.stats().counters.num_waiting, 2);
    toy.run();
    let expected = forever_answer(&prompt, 10);
    for index in 0..3 {
        assert_eq!(toy.answers[&(id, index)].tokens, expected);
    }
    let metrics = &toy.metrics[&id];
    assert_eq!((metrics.prompt_tokens, metrics.completion_tokens, metrics.cached_tokens), (30, 30, 0));
    // Three tables of 10 blocks, but the prompt's 7 full ones are the same.
    assert_eq!(toy.intake.stats().counters.prompt_tokens, 30);
}

#[test]
fn progress_tells_where_a_request_is() {
    let mut toy = Toy::new(config());
    let id = toy.submit(&prompt(1, 40), forever(3));
    let glance = |toy: &Toy| {
        let progress = toy.intake.progress(id).unwrap();
        (progress.state, progress.prefill_done_tokens, progress.prefill_total_tokens, progress.cached_tokens)
    };
    assert_eq!(glance(&toy), (RequestState::Queued, 0, 40, None));
    assert!(toy.step());
    assert_eq!(glance(&toy), (RequestState::Prefill, 16, 40, Some(0)));
    (0..2).for_each(|_| assert!(toy.step()));
    assert_eq!(glance(&toy), (RequestState::Decode, 40, 40, Some(0)));
    while toy.step() {}
    assert_eq!(glance(&toy).0, RequestState::Finished);
    toy.take();
    assert_eq!(toy.intake.progress(id), None, "all was taken");
}

#[test]
fn the_steps_time_is_shared_to_the_last_nanosecond() {
    let mut toy = Toy::new(SchedulerConfig { num_blocks: 24, ..config() });
    for salt in 0..10 {
        toy.submit(&prompt(salt, 3 + salt as usize), SamplingParams { n: 1 + salt % 3, ..forever(20) });
    }
    toy.run();
    let counters = toy.intake.stats().counters;
    assert_eq!(counters.busy_ns, counters.attributed_busy_ns);
    let busy_ms: f64 = toy.metrics.values().map(|metrics| metrics.busy_ms).sum();
    assert!((busy_ms - counters.busy_ns as f64 / 1e6).abs() < 1e-6);
    let cost: f64 = toy.metrics.values().map(|metrics| metrics.cost.unwrap()).sum();
    assert!((cost - counters.busy_ns as f64 / 1e9 * 3.6 / 3600.0).abs() < 1e-12);
}

#[test]
fn a_slow_reader_gets_one_delta_per_sequence() {
    let mut toy = Toy::new(config());
    let id = toy.submit(&prompt(1, 4), SamplingParams { n: 2, ..forever(9) });
    while toy.step() {}
    assert_eq!(toy.outputs.take_ready(), [id]);
    let output = toy.outputs.take_output(id).unwrap();
    assert_eq!(output.deltas.iter().map(|delta| delta.token_ids.len()).collect::<Vec<_>>(), [9, 9]);
    assert!(output.metrics.is_some() && toy.outputs.take_output(id).is_none());
}

#[test]
fn the_queue_is_bounded_until_requests_run_and_closes() {
    let mut toy = Toy::new(SchedulerConfig { max_queued_requests: 3, max_num_seqs: 1, ..config() });
    let submit =
        |toy: &Toy| toy.intake.submit(prompt(1, 4).into(), forever(2).into(), RequestOptions::default());
    let ids: Vec<_> = (0..3).map(|_| submit(&toy).unwrap()).collect();
    let error = submit(&toy).unwrap_err();
    assert_eq!((error.code, error.retry_after_ms), (ErrorCode::QueueFull, Some(1000)));
    assert!(error.message.contains('3'));
    assert!(toy.step());
    let fourth = submit(&toy).unwrap();
    assert_eq!(submit(&toy).unwrap_err().code, ErrorCode::QueueFull, "drained, but two still wait");
    assert_eq!(toy.intake.progress(ids[0]).unwrap().state, RequestState::Decode);
    assert_eq!(toy.intake.progress(ids[2]).unwrap().position, Some(1));
    assert_eq!(toy.intake.progress(fourth).unwrap().position, Some(2));
    toy.intake.cancel(ids[1]);
    toy.intake.close();
    assert_eq!(submit(&toy).unwrap_err().code, ErrorCode::Overloaded);
    toy.run();
    assert_eq!(toy.finish(fourth), Some(FinishReason::Length), "what was accepted goes on");
}
