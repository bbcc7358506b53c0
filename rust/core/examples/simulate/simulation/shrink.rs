//! From a long list that fails to a short one that still does.
//!
//! Owns: the search (delta debugging: chunks, then single operations, then smaller requests). Must not know: what
//! fails and why.

use std::sync::Arc;

use super::api::Submission;
use super::operations::Operation;

/// Most replays of one search.
const MAX_REPLAYS: usize = 20_000;

/// Operations that still make `fails` true, none of which can be left out.
pub fn shrink(mut operations: Vec<Operation>, mut fails: impl FnMut(&[Operation]) -> bool) -> Vec<Operation> {
    let mut replays = 0;
    let mut fails = |operations: &[Operation]| {
        replays += 1;
        replays <= MAX_REPLAYS && fails(operations)
    };
    loop {
        let mut is_smaller = false;
        let mut chunk = operations.len().div_ceil(2);
        while chunk > 0 {
            let mut at = 0;
            while at < operations.len() {
                let mut rest = operations.clone();
                rest.drain(at..operations.len().min(at + chunk));
                if fails(&rest) {
                    operations = rest;
                    is_smaller = true;
                } else {
                    at += chunk;
                }
            }
            chunk /= 2;
        }
        for at in 0..operations.len() {
            let Operation::Submit(mut smallest) = operations[at].clone() else { continue };
            while let Some(smaller) = smaller(&smallest).into_iter().find(|submission| {
                let mut changed = operations.clone();
                changed[at] = Operation::Submit(submission.clone());
                fails(&changed)
            }) {
                smallest = smaller;
                operations[at] = Operation::Submit(smallest.clone());
                is_smaller = true;
            }
        }
        if !is_smaller {
            return operations;
        }
    }
}

/// The same request with less of one thing.
fn smaller(submission: &Submission) -> Vec<Submission> {
    let prompt = &submission.prompt;
    let mut all = Vec::new();
    for len in [prompt.len() / 2, prompt.len().saturating_sub(1)] {
        if (1..prompt.len()).contains(&len) {
            all.push(Submission { prompt: prompt[..len].into(), ..submission.clone() });
        }
    }
    let mut change = |can: bool, to: &dyn Fn(&mut pagurid_core::sampling_params::SamplingParams)| {
        if can {
            let mut params = (*submission.params).clone();
            to(&mut params);
            all.push(Submission { params: Arc::new(params), ..submission.clone() });
        }
    };
    let params = &submission.params;
    change(params.n > 1, &|params| params.n -= 1);
    change(params.max_tokens.is_none_or(|tokens| tokens > 1), &|params| params.max_tokens = Some(1));
    change(params.max_tokens.is_some_and(|tokens| tokens > 2), &|params| {
        params.max_tokens = params.max_tokens.map(|tokens| tokens - 1);
    });
    change(params.min_tokens > 0, &|params| params.min_tokens = 0);
    change(!params.stop_token_ids.is_empty(), &|params| params.stop_token_ids.clear());
    change(!params.stop.is_empty(), &|params| params.stop.clear());
    change(params.ignore_eos, &|params| params.ignore_eos = false);
    all
}
