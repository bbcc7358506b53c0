//! The sampler against a naive one that sorts everything in f64, and its draws against the exact law.

use std::sync::Arc;

use pagurid_core::sampling::SequenceSampler;
use pagurid_core::sampling_params::SamplingParams;
use proptest::prelude::*;

fn sampler(params: &SamplingParams, seed: u64) -> SequenceSampler {
    let no_eos: Arc<[u32]> = Arc::new([]);
    SequenceSampler::new(Arc::new(params.clone()), &no_eos, seed, 0, &[])
}

/// Probabilities by token id, straight from the definition.
fn law(params: &SamplingParams, logits: &[f32]) -> Vec<f64> {
    let max = logits.iter().copied().filter(|logit| !logit.is_nan()).fold(f32::NEG_INFINITY, f32::max);
    let weight = |logit: f32| {
        if logit.is_nan() { 0.0 } else { (f64::from(logit - max) / f64::from(params.temperature)).exp() }
    };
    let mut order: Vec<usize> = (0..logits.len()).filter(|&id| !logits[id].is_nan()).collect();
    order.sort_by(|&a, &b| logits[b].total_cmp(&logits[a]).then(a.cmp(&b)));
    if params.top_k > 0 {
        order.truncate(params.top_k as usize);
    }
    let total: f64 = order.iter().map(|&id| weight(logits[id])).sum();
    if params.top_p < 1.0 {
        let mut sum = 0.0;
        let kept = order.iter().position(|&id| {
            sum += weight(logits[id]);
            sum >= f64::from(params.top_p) * total * (1.0 - 1e-9)
        });
        order.truncate(kept.map_or(order.len(), |at| at + 1));
    }
    order.retain(|&id| weight(logits[id]) >= f64::from(params.min_p));
    let total: f64 = order.iter().map(|&id| weight(logits[id])).sum();
    let mut law = vec![0.0; logits.len()];
    for id in order {
        law[id] = weight(logits[id]) / total;
    }
    law
}

/// χ² of the draws; so many standard deviations over its mean would be a one-in-millions accident.
fn check_law(params: &SamplingParams, logits: &[f32], draws: u64) {
    let law = law(params, logits);
    let sampler = sampler(params, 42);
    let mut counts = vec![0u64; logits.len()];
    for position in 0..draws {
        counts[sampler.sample(logits, position as usize).token.unwrap() as usize] += 1;
    }
    let (mut chi2, mut cells) = (0.0, 0);
    for (id, &probability) in law.iter().enumerate() {
        if probability * (draws as f64) < 5.0 {
            assert!(
                probability > 0.0 || counts[id] == 0,
                "token {id} is impossible, drawn {} times",
                counts[id]
            );
            continue;
        }
        let expected = probability * draws as f64;
        chi2 += (counts[id] as f64 - expected).powi(2) / expected;
        cells += 1;
    }
    let freedom = f64::from((cells - 1).max(1));
    assert!(chi2 < freedom + 6.0 * (2.0 * freedom).sqrt() + 10.0, "chi2 {chi2} at {freedom} for {params:?}");
}

fn settings() -> Vec<SamplingParams> {
    let base = SamplingParams::default();
    vec![
        base.clone(),
        SamplingParams { temperature: 0.5, ..base.clone() },
        SamplingParams { temperature: 2.0, top_k: 5, ..base.clone() },
        SamplingParams { top_p: 0.8, ..base.clone() },
        SamplingParams { min_p: 0.1, ..base.clone() },
        SamplingParams { temperature: 1.3, top_k: 40, top_p: 0.9, min_p: 0.05, ..base },
    ]
}

fn spread_logits(count: usize) -> Vec<f32> {
    (0..count).map(|id| ((id * 2_654_435_761) % 1000) as f32 / 200.0).collect()
}

#[test]
fn draws_follow_the_law() {
    for params in settings() {
        check_law(&params, &spread_logits(50), 100_000);
        check_law(&params, &spread_logits(1000), 20_000);
    }
}

#[test]
#[ignore = "make test-deep"]
fn a_million_draws_follow_the_law() {
    for params in settings() {
        check_law(&params, &spread_logits(50), 1_000_000);
    }
}

/// D08: whatever the temperature, a number comes out; tiny is greedy, huge is even.
#[test]
fn temperatures_from_tiny_to_huge() {
    let mut logits = spread_logits(300);
    logits[17] = 30.0;
    logits[3] = f32::NEG_INFINITY;
    for temperature in [0.0, 1e-38, 1e-6, 1e-5, 1e-4, 1e-3] {
        let sampler = sampler(&SamplingParams { temperature, ..Default::default() }, 1);
        assert!(
            (0..200).all(|position| sampler.sample(&logits, position).token == Some(17)),
            "{temperature}"
        );
    }
    let sampler = sampler(&SamplingParams { temperature: 1e30, ..Default::default() }, 1);
    let seen: std::collections::BTreeSet<u32> =
        (0..20_000).map(|position| sampler.sample(&logits, position).token.unwrap()).collect();
    assert_eq!(seen.len(), 299);
    assert!(!seen.contains(&3));
}

#[test]
fn a_row_without_a_number_gives_no_token() {
    for temperature in [0.0, 1.0] {
        for bad in [f32::NAN, f32::NEG_INFINITY] {
            let sampled =
                sampler(&SamplingParams { temperature, ..Default::default() }, 1).sample(&[bad; 40], 0);
            assert_eq!(sampled.token, None);
        }
    }
}

#[test]
fn min_tokens_forbids_every_end() {
    let params =
        SamplingParams { temperature: 0.0, min_tokens: 2, stop_token_ids: vec![1], ..Default::default() };
    let eos: Arc<[u32]> = Arc::new([2]);
    let sampler = SequenceSampler::new(Arc::new(params), &eos, 0, 0, &[]);
    let logits = [0.0, 2.0, 3.0, 1.0];
    let tokens: Vec<_> = (0..4).map(|position| sampler.sample(&logits, position).token.unwrap()).collect();
    assert_eq!(tokens, [3, 3, 2, 2]);
}

proptest! {
    #[test]
    fn only_possible_tokens_are_drawn(
        logits in prop::collection::vec(prop_oneof![8 => -10f32..10.0, 1 => Just(f32::NAN), 1 => Just(f32::NEG_INFINITY),
            1 => (-3i8..3).prop_map(f32::from)], 1..400),
        temperature in prop_oneof![Just(0.0f32), 0.05f32..5.0], top_k in -1i64..60,
        top_p in prop_oneof![Just(1.0f32), 0.01f32..1.0], min_p in prop_oneof![Just(0.0f32), 0.0f32..1.0],
        seed: u64,
    ) {
        let params = SamplingParams { temperature, top_k, top_p, min_p, ..Default::default() };
        let found = sampler(&params, seed).sample(&logits, 3).token;
        let possible = logits.iter().any(|&logit| logit > f32::NEG_INFINITY);
        prop_assert_eq!(found.is_some(), possible);
        if let Some(token) = found {
            let token = token as usize;
            if temperature == 0.0 {
                prop_assert!(logits.iter().enumerate().all(|(id, &logit)|
                    logit.is_nan() || logit < logits[token] || (logit == logits[token] && id >= token)));
            } else {
                // Weights within an f32 of a cut may fall on either side of it.
                let wider = SamplingParams { top_p: (top_p * 1.0001).min(1.0), min_p: min_p * 0.9999, ..params };
                prop_assert!(law(&wider, &logits)[token] > 0.0);
            }
        }
        let again = SamplingParams { temperature, top_k, top_p, min_p, ..Default::default() };
        prop_assert_eq!(sampler(&again, seed).sample(&logits, 3).token, found);
    }
}
