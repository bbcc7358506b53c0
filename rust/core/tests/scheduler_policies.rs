//! Who is served first, who must give way, and what those who wait are told.

mod toy;

use pagurid_core::error::ErrorCode;
use pagurid_core::progress::RequestState;
use pagurid_core::request::RequestOptions;
use pagurid_core::request_table::RequestId;
use pagurid_core::sampling_params::SamplingParams;
use pagurid_core::scheduler::config::SchedulerConfig;
use pagurid_core::scheduler::policy::{PreemptionVictim, SchedulingPolicy};
use toy::{Toy, config, forever, prompt};

fn with(scheduling_policy: SchedulingPolicy) -> SchedulerConfig {
    SchedulerConfig { scheduling_policy, ..config() }
}

fn priority(priority: i32) -> RequestOptions {
    RequestOptions { priority, ..RequestOptions::default() }
}

fn tenant(name: &str) -> RequestOptions {
    RequestOptions { tenant: Some(name.into()), ..RequestOptions::default() }
}

fn state(toy: &Toy, id: RequestId) -> RequestState {
    toy.intake.progress(id).expect("it is not taken yet").state
}

fn forever_answer(prompt: &[u32], tokens: u32) -> Vec<u32> {
    let mut toy = Toy::new(SchedulerConfig { num_blocks: 200, ..config() });
    let id = toy.submit(prompt, forever(tokens));
    toy.run();
    toy.tokens(id).to_vec()
}

/// The order in which requests get their first token when there is one seat.
fn order_of_service(toy: &mut Toy, ids: &[RequestId]) -> Vec<usize> {
    let mut order = Vec::new();
    while order.len() < ids.len() {
        assert!(toy.step());
        toy.take();
        for (at, id) in ids.iter().enumerate() {
            if toy.answers.contains_key(&(*id, 0)) && !order.contains(&at) {
                order.push(at);
            }
        }
    }
    toy.run();
    order
}

#[test]
fn smaller_priorities_go_first_and_waiting_makes_up_for_levels() {
    let sizes =
        SchedulerConfig { max_num_seqs: 1, priority_ageing_ms: 100.0, ..with(SchedulingPolicy::Priority) };
    let mut toy = Toy::new(sizes.clone());
    let ids = [3, 1, 2, 1].map(|level| toy.submit_as(&prompt(level as u32, 5), forever(1), priority(level)));
    assert_eq!(order_of_service(&mut toy, &ids), [1, 3, 2, 0]);
    // Level 2 came 250 ms before level 0: it has made up for two levels.
    let mut toy = Toy::new(sizes);
    let old = toy.submit_as(&prompt(1, 5), forever(1), priority(2));
    toy.clock.advance(250_000_000);
    let new = toy.submit_as(&prompt(2, 5), forever(1), priority(0));
    assert_eq!(order_of_service(&mut toy, &[new, old]), [1, 0]);
}

#[test]
fn d18_a_more_important_request_takes_a_seat_and_nobody_in_the_plan_loses_it() {
    let mut toy = Toy::new(SchedulerConfig { max_num_seqs: 2, ..with(SchedulingPolicy::Priority) });
    let (first, second) = (prompt(1, 6), prompt(2, 6));
    let low = [&first, &second].map(|prompt| toy.submit_as(prompt, forever(20), priority(5)));
    (0..4).for_each(|_| assert!(toy.step()));
    let high = toy.submit_as(&prompt(3, 6), forever(5), priority(0));
    assert!(toy.step());
    assert_eq!(state(&toy, high), RequestState::Decode, "served in the very next step");
    assert_eq!(toy.last_chunks.len(), 2, "who keeps its seat has its token, too");
    assert_eq!(low.map(|id| state(&toy, id)), [RequestState::Decode, RequestState::Preempted]);
    let equals = [4, 5].map(|salt| toy.submit_as(&prompt(salt, 6), forever(3), priority(0)));
    assert!(toy.step());
    let states = equals.map(|id| state(&toy, id));
    assert_eq!(states, [RequestState::Decode, RequestState::Queued], "equals don't take each other's seats");
    toy.run();
    assert_eq!(toy.tokens(low[0]), forever_answer(&first, 20));
    assert_eq!(toy.tokens(low[1]), forever_answer(&second, 20), "as if it had never been preempted");
    assert!(toy.metrics[&low[1]].preemptions >= 1);
}

#[test]
fn a_more_important_request_takes_blocks() {
    let mut toy = Toy::new(SchedulerConfig { num_blocks: 22, ..with(SchedulingPolicy::Priority) });
    let low: Vec<_> = (0..3).map(|salt| toy.submit_as(&prompt(salt, 16), forever(12), priority(1))).collect();
    (0..5).for_each(|_| assert!(toy.step()));
    let high = toy.submit_as(&prompt(9, 40), forever(2), priority(-1));
    toy.run();
    assert!(low.iter().map(|id| toy.metrics[id].preemptions).sum::<u32>() > 0);
    assert!(toy.metrics[&high].queue_ms <= 2.0, "{:?}", toy.metrics[&high]);
    assert_eq!(toy.metrics[&high].preemptions, 0);
}

#[test]
fn nobody_passes_for_a_seat_but_small_ones_pass_who_lacks_blocks_and_not_for_ever() {
    // 40 blocks of 4; the runner holds 12 and will need 30; the big one needs 20.
    let sizes = SchedulerConfig { num_blocks: 41, preemption_victim: PreemptionVictim::Youngest, ..config() };
    let mut toy = Toy::new(sizes);
    let runner = toy.submit(&prompt(1, 100), forever(28));
    while toy.intake.progress(runner).unwrap().state != RequestState::Decode {
        assert!(toy.step());
    }
    let big = toy.submit(&prompt(2, 80), forever(2));
    let smalls: Vec<_> = (0..40).map(|salt| toy.submit(&prompt(10 + salt, 4), forever(1))).collect();
    let before_big = loop {
        // Those who finish in the step that admits it did not pass it.
        let finished = smalls.iter().filter(|&&id| state(&toy, id) == RequestState::Finished).count();
        assert!(toy.step());
        if state(&toy, big) != RequestState::Queued {
            break finished;
        }
    };
    assert!((1..=16).contains(&before_big), "{before_big} passed");
    toy.run();
    let sizes = SchedulerConfig { max_num_seqs: 1, ..config() };
    let mut toy = Toy::new(sizes);
    let ids = [60, 5, 2].map(|len| toy.submit(&prompt(len, len as usize), forever(2)));
    assert_eq!(order_of_service(&mut toy, &ids), [0, 1, 2]);
}

#[test]
fn a_light_tenant_is_served_beside_a_flood_and_equal_ones_get_equal_parts() {
    let sizes = SchedulerConfig {
        num_blocks: 600,
        max_queued_requests: 500,
        max_num_batched_tokens: 64,
        ..with(SchedulingPolicy::Fair)
    };
    let mut toy = Toy::new(sizes.clone());
    let flood: Vec<_> =
        (0..200).map(|salt| toy.submit_as(&prompt(salt, 20), forever(8), tenant("a"))).collect();
    (0..10).for_each(|_| assert!(toy.step()));
    let light = toy.submit_as(&prompt(7, 30), forever(4), tenant("b"));
    (0..2).for_each(|_| assert!(toy.step()));
    toy.take();
    assert!(!toy.tokens(light).is_empty(), "its first token comes within two steps");
    toy.run();
    assert!(flood.iter().all(|id| toy.tokens(*id).len() == 8), "the flood is served, too");

    let mut toy = Toy::new(sizes);
    let mut of = Vec::new();
    for salt in 0..80 {
        // One asks for three times as much at once as the other.
        for name in ["a", "a", "a", "b"] {
            of.push((name, toy.submit_as(&prompt(salt, 20), forever(8), tenant(name))));
        }
    }
    (0..150).for_each(|_| assert!(toy.step()));
    toy.take();
    let given = |name: &str| -> usize {
        let ids = of.iter().filter(|(whose, _)| *whose == name);
        ids.filter_map(|(_, id)| toy.answers.get(&(*id, 0))).map(|answer| answer.tokens.len()).sum()
    };
    let (a, b) = (given("a") as f64, given("b") as f64);
    assert!((0.9..1.1).contains(&(a / b)), "{a} and {b} tokens");
}

#[test]
fn a_step_time_target_holds_beside_a_long_prompt() {
    let sizes = SchedulerConfig {
        num_blocks: 2000,
        max_model_len: 8000,
        max_num_seqs: 16,
        max_num_batched_tokens: 512,
        step_time_target_ms: Some(30.0),
        ..config()
    };
    let mut toy = Toy::new(sizes);
    // 10 ms + 0.1 ms per token.
    let step = |toy: &mut Toy| {
        assert!(toy.scheduler.plan().unwrap());
        let tokens = toy.forward();
        let num_tokens = toy.scheduler.step_plan().num_tokens();
        toy.clock.advance(9_000_000 + 100_000 * num_tokens as u64);
        toy.scheduler.commit(Some(&tokens)).unwrap();
        num_tokens
    };
    let decodes: Vec<_> =
        (0..8).map(|salt| toy.submit(&prompt(salt, 30 + salt as usize), forever(400))).collect();
    for _ in 0..20 {
        step(&mut toy);
    }
    let long = toy.submit(&prompt(20, 6000), forever(1));
    let mut steps = 0;
    let (mut over, mut total) = (0, 0);
    while state(&toy, long) != RequestState::Finished {
        let before = toy.intake.stats().counters.completion_tokens;
        let num_tokens = step(&mut toy);
        steps += 1;
        if steps > 5 {
            total += 1;
            over += usize::from(num_tokens > 210);
        }
        let given = toy.intake.stats().counters.completion_tokens - before;
        assert!(given >= 8, "every running answer gets a token in every step");
        assert!(steps < 60, "the long prompt goes on");
    }
    assert!(over * 10 <= total, "{over} of {total} steps are too long");
    assert!(steps >= 25, "6000 tokens in chunks of about 190");
    for id in decodes {
        toy.intake.cancel(id);
    }
    toy.run();
}

#[test]
fn those_who_wait_are_told_how_long_and_who_would_wait_too_long_is_refused() {
    let sizes = SchedulerConfig {
        max_num_seqs: 1,
        max_queue_wait_ms: Some(400.0),
        max_queued_requests: 60,
        ..config()
    };
    let mut toy = Toy::new(sizes);
    let submit = |toy: &Toy, salt| {
        toy.intake.submit(prompt(salt, 4).into(), forever(20).into(), RequestOptions::default())
    };
    let ids: Vec<_> = (0..5).map(|salt| submit(&toy, salt).unwrap()).collect();
    assert_eq!(toy.intake.progress(ids[3]).unwrap().wait_ms_estimate, None, "nothing is known yet");
    // Each takes 20 steps of 1 ms.
    (0..45).for_each(|_| assert!(toy.step()));
    let waiting = toy.intake.progress(ids[4]).unwrap();
    assert_eq!(waiting.position, Some(1));
    let estimate = waiting.wait_ms_estimate.unwrap();
    assert!((25..=45).contains(&estimate), "{estimate} ms for 35");
    let mut accepted = 0;
    let error = loop {
        match submit(&toy, 9) {
            Ok(_) => accepted += 1,
            Err(error) => break error,
        }
        assert!(accepted < 50, "the wait grows with the queue");
    };
    assert_eq!(error.code, ErrorCode::QueueFull);
    assert!(error.retry_after_ms.is_some_and(|ms| (100..1000).contains(&ms)), "{error:?}");
    assert!((10..=25).contains(&accepted), "{accepted} fit into 400 ms");
    toy.run();
    assert!(submit(&toy, 1).is_ok(), "nobody waits: nobody is refused");
    toy.run();
}

#[test]
fn who_will_end_soon_keeps_its_blocks_and_recomputed_tokens_are_counted() {
    for (victim, expected) in [(PreemptionVictim::LeastWaste, 1), (PreemptionVictim::Youngest, 2)] {
        let sizes = SchedulerConfig {
            num_blocks: 25,
            enable_prefix_caching: false,
            preemption_victim: victim,
            ..config()
        };
        let mut toy = Toy::new(sizes);
        // Answers so far were much shorter than they might have been.
        let stop_token_ids: Vec<_> = (0..toy::VOCAB_SIZE).collect();
        for _ in 0..500 {
            toy.submit(&[1], SamplingParams { stop_token_ids: stop_token_ids.clone(), ..forever(60) });
            toy.run();
        }
        // In the order of service: the first; one that goes on for long; one that is about to end when they have outgrown
        // the pool.
        let ids =
            [(1, 60), (2, 60), (3, 26)].map(|(salt, tokens)| toy.submit(&prompt(salt, 8), forever(tokens)));
        while toy.intake.stats().counters.preemptions == 0 {
            assert!(toy.step(), "they outgrow the pool");
        }
        let preempted: Vec<_> =
            (0..3).filter(|&at| state(&toy, ids[at]) == RequestState::Preempted).collect();
        assert_eq!(preempted, [expected], "{victim:?}");
        toy.run();
        let counters = toy.intake.stats().counters;
        let recomputed: u32 = ids.iter().map(|id| toy.metrics[id].recomputed_tokens).sum();
        assert_eq!(u64::from(recomputed), counters.recomputed_tokens);
        assert!(recomputed > 0 && counters.preemptions > 0);
    }
}
