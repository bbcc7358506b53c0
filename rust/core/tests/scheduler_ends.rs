//! How requests begin and end: the limits at the door, every kind of end, on the toy model.

mod toy;

use pagurid_core::error::ErrorCode;
use pagurid_core::output::{FinishReason, StopReason};
use pagurid_core::request::RequestOptions;
use pagurid_core::sampling_params::SamplingParams;
use pagurid_core::scheduler::config::SchedulerConfig;
use toy::{EOS, Toy, answer, config, forever, greedy, prompt};

#[test]
fn d13_what_can_never_fit_is_refused_and_the_rest_is_served() {
    let base = SchedulerConfig { num_blocks: 50, block_size: 16, max_model_len: 2048, ..config() };
    let mut toy = Toy::new(SchedulerConfig { max_num_batched_tokens: 256, ..base });
    let refused = |toy: &Toy, len| {
        let error = toy
            .intake
            .submit(prompt(1, len).into(), greedy(None).into(), RequestOptions::default())
            .unwrap_err();
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
    let error = toy.intake.submit([].into(), greedy(None).into(), RequestOptions::default()).unwrap_err();
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
        let result = toy.intake.submit(prompt(1, len).into(), params.into(), RequestOptions::default());
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
            let result = toy.intake.submit(
                prompt(1, len).into(),
                greedy(max_tokens).into(),
                RequestOptions::default(),
            );
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
    toy.outputs.release(released[0]);
    (0..3).for_each(|_| assert!(toy.step()));
    toy.outputs.release(released[1]);
    toy.take_one(released[2]);
    toy.outputs.release(released[2]);
    while toy.step() {}
    toy.outputs.release(released[3]);
    toy.outputs.release(released[3]);
    assert!(!toy.intake.has_unfinished_requests());
    for &id in &released {
        assert!(toy.outputs.take_output(id).is_none());
        assert_eq!(toy.intake.progress(id), None);
    }
    assert_eq!(toy.outputs.take_ready(), []);
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
        let output = toy.outputs.take_output(id).unwrap();
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
fn a_wrong_call_is_an_error_and_the_step_stays_open() {
    let mut toy = Toy::new(config());
    assert_eq!(toy.scheduler.commit(Some(&[])).unwrap_err().code, ErrorCode::Internal);
    toy.submit(&prompt(1, 4), forever(2));
    assert!(toy.scheduler.plan().unwrap());
    for wrong in [&[][..], &[1, 2], &[toy::VOCAB_SIZE]] {
        assert_eq!(toy.scheduler.commit(Some(wrong)).unwrap_err().code, ErrorCode::Internal);
    }
    assert!(toy.scheduler.commit(None).is_err(), "nothing was sampled");
    assert!(toy.scheduler.sample(&[0.0; 3], (1, 3), &|_, _| {}).is_err());
    toy.scheduler.commit(Some(&[1])).unwrap();
    toy.run();
}

#[test]
fn bad_tokens_are_refused_with_their_place() {
    let toy = Toy::new(config());
    let submit = |prompt: &[u32], params: SamplingParams| {
        toy.intake.submit(prompt.into(), params.into(), RequestOptions::default()).unwrap_err()
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
