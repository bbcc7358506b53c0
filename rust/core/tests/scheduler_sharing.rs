//! Steps that overlap, prefixes that are shared, answers that are forked.

mod toy;

use std::sync::atomic::Ordering::Relaxed;

use pagurid_core::error::ErrorCode;
use pagurid_core::request::RequestOptions;
use pagurid_core::sampling_params::SamplingParams;
use pagurid_core::scheduler::config::SchedulerConfig;
use toy::{Toy, answer, config, forever, prompt};

fn forever_answer(prompt: &[u32], tokens: u32) -> Vec<u32> {
    let mut toy = Toy::new(SchedulerConfig { num_blocks: 200, ..config() });
    let id = toy.submit(prompt, forever(tokens));
    toy.run();
    toy.tokens(id).to_vec()
}

#[test]
fn the_second_of_two_open_steps_takes_its_tokens_from_the_first() {
    let mut toy = Toy::new(SchedulerConfig { overlap_steps: true, ..config() });
    let id = toy.submit(&prompt(1, 6), forever(3));
    assert!(toy.launch() && toy.launch());
    let plan = toy.scheduler.step_plan().buffers().clone();
    assert_eq!((plan.num_tokens.load(Relaxed), plan.token_ids[0].load(Relaxed)), (1, -1));
    assert_eq!(toy.scheduler.plan().unwrap_err().code, ErrorCode::Internal, "two steps are open");
    assert!(toy.commit() && toy.launch() && toy.commit());
    assert!(!toy.launch(), "no row beyond max_tokens");
    toy.run();
    assert_eq!(toy.tokens(id), forever_answer(&prompt(1, 6), 3));
    // The end of a sequence makes its part in the next step late.
    let (salt, len) = (0..400)
        .find_map(|salt| {
            Some((salt, answer(&prompt(salt, 6), 50).0.len())).filter(|&(_, len)| (3..40).contains(&len))
        })
        .unwrap();
    let stops = toy.submit(&prompt(salt, 6), toy::greedy(Some(50)));
    let cancelled = toy.submit(&prompt(5, 6), forever(50));
    (0..3).for_each(|_| assert!(toy.step()));
    assert!(toy.launch());
    toy.intake.cancel(cancelled);
    toy.run();
    assert_eq!(toy.tokens(stops).len(), len);
    let given = toy.tokens(cancelled).to_vec();
    assert!(given.len() < 6 && forever_answer(&prompt(5, 6), 50).starts_with(&given));
}

#[test]
fn d17_prefixes_are_shared_within_a_scope_only() {
    for prefix_hash_bits in [128, 0] {
        for isolate_tenants in [false, true] {
            let mut toy = Toy::new(SchedulerConfig { isolate_tenants, prefix_hash_bits, ..config() });
            let mut cached = |tenant: Option<&str>, salt: Option<&str>| {
                let options = RequestOptions {
                    tenant: tenant.map(Into::into),
                    cache_salt: salt.map(Into::into),
                    ..RequestOptions::default()
                };
                let id = toy.submit_as(&prompt(3, 17), forever(2), options);
                toy.run();
                assert_eq!(toy.tokens(id), forever_answer(&prompt(3, 17), 2));
                toy.metrics[&id].cached_tokens
            };
            assert_eq!(cached(None, None), 0);
            let alone = prefix_hash_bits == 0;
            assert_eq!(cached(None, Some("a")), 0, "another salt");
            assert_eq!(cached(None, Some("a")), if alone { 0 } else { 16 }, "the same salt");
            // Where all hashes are one, one block is published.
            let all = if alone { 4 } else { 16 };
            let shares = if isolate_tenants { 0 } else { all };
            assert_eq!(cached(Some("a"), None), shares, "a tenant is no salt");
            assert_eq!(cached(Some("a"), Some("a")), if alone || isolate_tenants { 0 } else { 16 });
            assert_eq!(cached(None, None), all);
        }
    }
}

#[test]
fn forks_share_the_whole_prompt_and_copy_what_they_write_to() {
    for enable_prefix_caching in [true, false] {
        for len in [1, 3, 4, 5, 30, 32] {
            let mut toy =
                Toy::new(SchedulerConfig { enable_prefix_caching, max_num_batched_tokens: 64, ..config() });
            let prompt = prompt(2, len);
            let params = SamplingParams { n: 4, ..forever(9) };
            let id = toy.submit(&prompt, params);
            assert!(toy.step());
            let counters = toy.intake.stats().counters;
            assert_eq!(counters.used_blocks as usize, len.div_ceil(4), "the blocks of one prompt of {len}");
            assert_eq!(toy.last_chunks, [len], "which is computed once");
            assert!(toy.step());
            let copies = toy.scheduler.step_plan().buffers().num_block_copies.load(Relaxed);
            assert_eq!(copies, if len % 4 == 0 { 0 } else { 3 }, "all but the last copy a half-filled block");
            toy.run();
            let expected = forever_answer(&prompt, 9);
            assert!((0..4).all(|index| toy.answers[&(id, index)].tokens == expected));
        }
    }
}
