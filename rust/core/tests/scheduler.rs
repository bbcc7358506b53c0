//! The scheduler's promises, one by one, on the toy model.

mod toy;

use std::time::Duration;

use pagurid_core::error::ErrorCode;
use pagurid_core::output::{FinishReason, StopReason};
use pagurid_core::request_table::RequestState;
use pagurid_core::sampling_params::SamplingParams;
use pagurid_core::scheduler::config::SchedulerConfig;
use toy::{EOS, Toy, answer, config, greedy};

/// Tokens 1, 2, 3, …, different for each `salt`.
fn prompt(salt: u32, len: usize) -> Vec<u32> {
    (0..len as u32).map(|at| 1 + (salt * 7 + at * (salt % 5 + 1)) % (toy::VOCAB_SIZE - 1)).collect()
}

fn forever(max_tokens: u32) -> SamplingParams {
    SamplingParams { ignore_eos: true, ..greedy(Some(max_tokens)) }
}

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
fn d13_what_can_never_fit_is_refused_and_the_rest_is_served() {
    let base = SchedulerConfig { num_blocks: 50, block_size: 16, max_model_len: 2048, ..config() };
    let mut toy = Toy::new(SchedulerConfig { max_num_batched_tokens: 256, ..base });
    let refused = |toy: &Toy, len| {
        let error =
            toy.intake.submit(prompt(1, len).into(), greedy(None).into(), Duration::ZERO).unwrap_err();
        assert_eq!(error.code, ErrorCode::ContextLengthExceeded);
        error.message
    };
    let message = refused(&toy, 1002);
    assert!(message.contains("1002") && message.contains("784"), "{message}");
    refused(&toy, 785);
    // Exactly the pool: one token can follow, for the last token of an answer needs no slot.
    let whole = toy.submit(&prompt(1, 784), greedy(None));
    assert_eq!(toy.intake.max_tokens_for(784, &greedy(None)), Ok(1));
    let short = toy.submit(&prompt(2, 10), forever(4));
    toy.run();
    assert_eq!(toy.answers[&(whole, 0)].tokens.len(), 1);
    assert_eq!(toy.finish(short), Some(FinishReason::Length));
    // The prompt fits, prompt + max_tokens does not: it ends when growth is impossible.
    let grows = toy.submit(&prompt(3, 770), forever(100));
    let other = toy.submit(&prompt(4, 10), forever(4));
    toy.run();
    assert_eq!(
        toy.answers[&(grows, 0)].tokens.len(),
        15,
        "784 slots hold 770 + 14 tokens, one more needs none"
    );
    assert_eq!(
        (toy.finish(grows), toy.finish(other)),
        (Some(FinishReason::Length), Some(FinishReason::Length))
    );
}

#[test]
fn d14_an_empty_prompt_is_refused() {
    let mut toy = Toy::new(config());
    let error = toy.intake.submit([].into(), greedy(None).into(), Duration::ZERO).unwrap_err();
    assert_eq!((error.code, error.param), (ErrorCode::InvalidRequest, Some("prompt")));
    let next = toy.submit(&[1], greedy(Some(1)));
    toy.run();
    assert_eq!(toy.tokens(next).len(), 1);
}

#[test]
fn d15_the_edge_of_the_context() {
    let mut toy = Toy::new(SchedulerConfig { max_model_len: 16, ..config() });
    for (len, max_tokens, expected) in [
        (14, Some(1), Some(1)),
        (14, None, Some(2)),
        (15, Some(1), Some(1)),
        (15, None, Some(1)),
        (14, Some(10), None),
    ] {
        let params = SamplingParams { ignore_eos: true, ..greedy(max_tokens) };
        let result = toy.intake.submit(prompt(1, len).into(), params.into(), Duration::ZERO);
        match expected {
            Some(tokens) => {
                let id = result.unwrap();
                toy.run();
                assert_eq!((toy.tokens(id).len(), toy.finish(id)), (tokens, Some(FinishReason::Length)));
            }
            None => assert!(result.unwrap_err().message.contains("14 prompt tokens + max_tokens 10 = 24")),
        }
    }
    for len in [16, 17] {
        for max_tokens in [Some(1), None] {
            let result = toy.intake.submit(prompt(1, len).into(), greedy(max_tokens).into(), Duration::ZERO);
            let error = result.unwrap_err();
            assert_eq!(error.code, ErrorCode::ContextLengthExceeded);
            assert!(error.message.contains(&len.to_string()) && error.message.contains("16"), "{error}");
        }
    }
}

#[test]
fn d20_a_short_prompt_in_small_chunks_leaves_nothing_behind() {
    for block_size in [1, 16] {
        let config = SchedulerConfig {
            num_blocks: 400,
            block_size,
            max_model_len: 256,
            max_num_seqs: 4,
            max_num_batched_tokens: 4,
            ..config()
        };
        let mut toy = Toy::new(config);
        let length = toy.submit(&prompt(1, 10), forever(200));
        toy.run();
        assert_eq!((toy.tokens(length).len(), toy.finish(length)), (200, Some(FinishReason::Length)));

        let stop_at = toy.tokens(length)[30];
        let first = toy.tokens(length).iter().position(|&token| token == stop_at).unwrap();
        let stop =
            toy.submit(&prompt(1, 10), SamplingParams { stop_token_ids: vec![stop_at], ..forever(200) });
        toy.run();
        assert_eq!((toy.tokens(stop).len(), toy.finish(stop)), (first + 1, Some(FinishReason::Stop)));

        let cancelled = toy.submit(&prompt(1, 10), forever(200));
        (0..5).for_each(|_| assert!(toy.step()));
        toy.intake.cancel(cancelled);
        toy.run();
        assert_eq!(toy.finish(cancelled), Some(FinishReason::Cancelled));

        let failed = toy.submit(&prompt(1, 10), forever(200));
        (0..5).for_each(|_| assert!(toy.step()));
        assert!(toy.scheduler.plan().unwrap());
        toy.scheduler.abort_step("the model exploded");
        toy.run();
        assert_eq!(toy.finish(failed), Some(FinishReason::Error));
        let stats = toy.intake.stats().counters;
        assert_eq!(stats.requests_finished, [1, 1, 1, 1]);
        assert_eq!((stats.failed_steps, stats.consecutive_failed_steps), (1, 1));
    }
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
    let mut toy = Toy::new(SchedulerConfig { num_blocks: 20, ..config() });
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
fn cancel_is_seen_wherever_the_request_is() {
    let mut toy = Toy::new(config());
    // Queued, never drained.
    let queued = toy.submit(&prompt(1, 10), SamplingParams { n: 2, ..forever(5) });
    toy.intake.cancel(queued);
    toy.intake.cancel(queued);
    assert!(!toy.scheduler.plan().unwrap());
    toy.take();
    for index in 0..2 {
        assert_eq!(toy.answers[&(queued, index)].finish, Some(FinishReason::Cancelled));
    }
    assert_eq!(toy.metrics[&queued].completion_tokens, 0);
    // In the middle of its prompt, between plan and commit: the step's result is dropped.
    let prefilling = toy.submit(&prompt(2, 40), forever(5));
    assert!(toy.step());
    assert!(toy.scheduler.plan().unwrap());
    toy.intake.cancel(prefilling);
    let tokens = toy.forward();
    toy.scheduler.commit(Some(&tokens)).unwrap();
    toy.take();
    assert_eq!((toy.tokens(prefilling).len(), toy.finish(prefilling)), (0, Some(FinishReason::Cancelled)));
    assert_eq!(toy.intake.stats().counters.used_blocks, 0, "the blocks are back within the step");
    // Decoding.
    let decoding = toy.submit(&prompt(3, 5), forever(50));
    (0..4).for_each(|_| assert!(toy.step()));
    toy.intake.cancel(decoding);
    toy.run();
    assert_eq!((toy.tokens(decoding).len(), toy.finish(decoding)), (4, Some(FinishReason::Cancelled)));
    // Finished, not taken; and long gone.
    let finished = toy.submit(&prompt(4, 5), forever(2));
    while toy.step() {}
    toy.intake.cancel(finished);
    toy.run();
    assert_eq!(toy.finish(finished), Some(FinishReason::Length));
    toy.intake.cancel(finished);
    toy.intake.cancel(987_654_321);
    toy.run();
}

#[test]
fn a_released_request_leaves_nothing_behind() {
    let mut toy = Toy::new(config());
    let released: Vec<_> = (0..4).map(|salt| toy.submit(&prompt(salt, 10), forever(5))).collect();
    toy.intake.release(released[0]);
    (0..3).for_each(|_| assert!(toy.step()));
    toy.intake.release(released[1]);
    toy.take_one(released[2]);
    toy.intake.release(released[2]);
    while toy.step() {}
    toy.intake.release(released[3]);
    toy.intake.release(released[3]);
    assert!(!toy.intake.has_unfinished_requests());
    for &id in &released {
        assert!(toy.intake.take_output(id).is_none());
        assert_eq!(toy.intake.progress(id), None);
    }
    assert_eq!(toy.intake.take_ready(), []);
    assert_eq!(toy.intake.num_live_requests(), 0);
    toy.scheduler.check_invariants(true).unwrap();
    // Slots are used again under other ids.
    let next = toy.submit(&prompt(9, 3), forever(1));
    assert!(!released.contains(&next));
    toy.run();
}

#[test]
fn an_aborted_step_publishes_nothing_and_spares_the_others() {
    let mut toy = Toy::new(SchedulerConfig { max_num_seqs: 1, ..config() });
    let victim = toy.submit(&prompt(1, 40), SamplingParams { n: 2, ..forever(5) });
    let waiting = toy.submit(&prompt(2, 10), forever(5));
    assert!(toy.step());
    assert!(toy.scheduler.plan().unwrap());
    assert_eq!(toy.scheduler.plan().unwrap_err().code, ErrorCode::Internal, "a step is open");
    toy.scheduler.abort_step("out of luck");
    toy.take();
    for index in 0..2 {
        assert_eq!(toy.answers[&(victim, index)].finish, Some(FinishReason::Error));
    }
    assert_eq!(toy.intake.stats().counters.cached_blocks, 4, "the 16 tokens of the step that succeeded");
    toy.run();
    assert_eq!(toy.finish(waiting), Some(FinishReason::Length));
    assert_eq!(toy.intake.stats().counters.consecutive_failed_steps, 0);
    toy.scheduler.abort_step("no step is open: nothing to end");
    assert_eq!(toy.intake.stats().counters.failed_steps, 1);
}

#[test]
fn what_stops_an_answer() {
    let mut toy = Toy::new(config());
    let (salt, at) = (0..200)
        .find_map(|salt| {
            let (tokens, finish) = answer(&prompt(salt, 6), 60);
            (finish == FinishReason::Stop && tokens.len() > 3).then_some((salt, tokens.len()))
        })
        .unwrap();
    let prompt = prompt(salt, 6);
    let mut end = |params: SamplingParams| {
        let id = toy.submit(&prompt, params);
        while toy.step() {}
        let output = toy.intake.take_output(id).unwrap();
        let delta = output.deltas.into_iter().next().unwrap();
        (delta.token_ids.len(), delta.finish.unwrap())
    };
    let (len, finish) = end(greedy(Some(60)));
    assert_eq!((len, finish.reason, finish.stop_reason), (at, FinishReason::Stop, None), "end of sequence");
    let (len, finish) = end(SamplingParams { stop_token_ids: vec![EOS], ..forever(60) });
    assert_eq!(
        (len, finish.stop_reason),
        (at, Some(StopReason::Token(EOS))),
        "a stop token wins over ignore_eos"
    );
    let (len, finish) = end(SamplingParams { min_tokens: at as u32 + 1, ..greedy(Some(at as u32 + 3)) });
    assert!(
        len > at && finish.reason == FinishReason::Length || finish.reason == FinishReason::Stop,
        "min_tokens"
    );
    let (len, finish) = end(greedy(Some(at as u32)));
    assert_eq!((len, finish.reason), (at, FinishReason::Stop), "stop wins over length on the same token");
}

#[test]
fn the_queue_is_bounded_until_requests_run_and_closes() {
    let mut toy = Toy::new(SchedulerConfig { max_queued_requests: 3, max_num_seqs: 1, ..config() });
    let submit = |toy: &Toy| toy.intake.submit(prompt(1, 4).into(), forever(2).into(), Duration::ZERO);
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
    assert_eq!(toy.intake.take_ready(), [id]);
    let output = toy.intake.take_output(id).unwrap();
    assert_eq!(output.deltas.iter().map(|delta| delta.token_ids.len()).collect::<Vec<_>>(), [9, 9]);
    assert!(output.metrics.is_some() && toy.intake.take_output(id).is_none());
}

#[test]
fn a_wrong_call_is_an_error_and_the_step_stays_open() {
    let mut toy = Toy::new(config());
    assert_eq!(toy.scheduler.commit(Some(&[])).unwrap_err().code, ErrorCode::Internal);
    toy.submit(&prompt(1, 4), forever(2));
    assert!(toy.scheduler.plan().unwrap());
    for wrong in [&[][..], &[1, 2], &[toy::VOCAB_SIZE]] {
        assert_eq!(toy.scheduler.commit(Some(wrong)).unwrap_err().code, ErrorCode::Internal);
    }
    assert!(toy.scheduler.commit(None).is_err(), "nothing was sampled");
    assert!(toy.scheduler.sample(&[0.0; 3], (1, 3)).is_err());
    toy.scheduler.commit(Some(&[1])).unwrap();
    toy.run();
}

#[test]
fn bad_tokens_are_refused_with_their_place() {
    let toy = Toy::new(config());
    let submit = |prompt: &[u32], params: SamplingParams| {
        toy.intake.submit(prompt.into(), params.into(), Duration::ZERO).unwrap_err()
    };
    let error = submit(&[1, toy::VOCAB_SIZE], greedy(None));
    assert_eq!(error.message, "token ids must be in 0..37, got 37 at position 1");
    assert_eq!(
        submit(&[1], SamplingParams { logit_bias: vec![(37, 1.0)], ..greedy(None) }).param,
        Some("logit_bias")
    );
    assert_eq!(submit(&[1], SamplingParams { stop: vec!["x".into()], ..greedy(None) }).param, Some("stop"));
    assert_eq!(
        submit(&[1], SamplingParams { stop_token_ids: vec![37], ..greedy(None) }).param,
        Some("stop_token_ids")
    );
}
