//! From the door to waiting.
//!
//! Owns: how a submitted request becomes active and its sequences are made; how cancels are seen.
//! Must not know: who is admitted when.

use std::sync::Arc;

use super::policy::{Claim, SchedulingPolicy, ServiceOrder};
use super::tenants::TenantKey;
use super::{ActiveRequest, Scheduler, SequenceKey};
use crate::block_pool::NULL_BLOCK;
use crate::clock::from_ms;
use crate::detokenizer::Detokenizer;
use crate::metrics::RequestRecord;
use crate::output::FinishReason;
use crate::request::Request;
use crate::request_table::{RequestId, slot_index};
use crate::sampling::SequenceSampler;
use crate::sequence::{EndRules, Phase, Sequence};
use crate::token_list::TokenList;
use crate::token_times::TokenTimes;

impl Scheduler {
    pub(super) fn drain_submissions(&mut self) {
        // As many as are there now, so that fast submitters can't hold up the step.
        for _ in 0..self.intake.submissions.len() {
            let Some(request) = self.intake.submissions.pop() else { break };
            let id = request.id;
            self.activate(request);
            // The flag, not the notice: a cancel may have been drained before its request was.
            if self.intake.table.is_cancelled(id) {
                self.end_request(id, &FinishReason::Cancelled.into());
            }
        }
    }

    pub(super) fn drain_cancels(&mut self) {
        let intake = Arc::clone(&self.intake);
        intake.table.drain_cancelled(|id| {
            if self.active(id).is_some() {
                self.end_request(id, &FinishReason::Cancelled.into());
            }
        });
    }

    fn activate(&mut self, request: Request) {
        let Request {
            id,
            prompt_token_ids,
            prompt_hashes,
            params,
            options,
            scope,
            seed,
            max_tokens,
            arrival,
        } = request;
        let record = RequestRecord {
            arrival,
            prompt_tokens: prompt_token_ids.len() as u32,
            ..RequestRecord::default()
        };
        let arrival_number = self.next_arrival;
        self.next_arrival += 1;
        self.num_held_back += params.n as usize - 1;
        let slot = slot_index(id);
        if self.requests.len() <= slot {
            self.requests.resize_with(slot + 1, || None);
        }
        let tenant = self.tenants.enter(options.tenant.as_ref());
        self.requests[slot] = Some(Box::new(ActiveRequest {
            id,
            arrival_number,
            params,
            options,
            scope,
            tenant,
            prompt: prompt_token_ids,
            prompt_hashes,
            seed,
            max_tokens,
            record,
            sequences: Vec::new(),
            num_started: 0,
        }));
        self.start_waiting(id);
    }

    /// The lane of the waiting queue: one for all unless tenants are told apart.
    pub(super) fn lane(&self, tenant: TenantKey) -> TenantKey {
        if self.config.scheduling_policy == SchedulingPolicy::Fair { tenant } else { 0 }
    }

    /// Puts the request's next sequence into the waiting order.
    pub(super) fn start_waiting(&mut self, id: RequestId) {
        let key = self.new_sequence(id);
        let sequence = &self.sequences[key];
        let (order, lane) = (sequence.order, self.lane(sequence.tenant));
        self.waiting.insert(lane, order, key);
        self.waiting_changed = true;
    }

    /// The request's next sequence, neither waiting nor running yet.
    pub(super) fn new_sequence(&mut self, id: RequestId) -> SequenceKey {
        let (vocabulary, eos_token_ids) = (self.vocabulary.clone(), self.eos_token_ids.clone());
        let (incarnation, table_version) = (self.new_version(), self.new_version());
        let policy = self.config.scheduling_policy;
        let ageing = from_ms(self.config.priority_ageing_ms);
        let request = self.request_mut(id);
        let index = request.num_started;
        request.num_started += 1;
        let priority = request.options.priority;
        let claim = Claim { arrival: request.record.arrival, priority, ageing };
        let params = &request.params;
        let sampler =
            SequenceSampler::new(params.clone(), &eos_token_ids, request.seed, index, &request.prompt);
        let sequence = Sequence {
            computed_tokens: 0,
            planned_tokens: 0,
            pending_tokens: 0,
            pending_row: 0,
            incarnation,
            table_version,
            blocks: Vec::new(),
            output: TokenList::default(),
            last_token: *request.prompt.last().expect("a prompt has a token at least"),
            index,
            phase: Phase::Waiting,
            is_forked: false,
            counts_tokens: sampler.counts_tokens(),
            request: id,
            prompt: request.prompt.clone(),
            tail: (NULL_BLOCK, 0, 0),
            planned_in_step: 0,
            finish: None,
            times: TokenTimes::default(),
            ends: EndRules {
                max_tokens: request.max_tokens as u32,
                has_limit: params.max_tokens.is_some(),
                min_tokens: params.min_tokens,
                at_eos: !params.ignore_eos,
                at_stop_tokens: !params.stop_token_ids.is_empty(),
            },
            tenant: request.tenant,
            detokenizer: vocabulary.map(|vocabulary| Box::new(Detokenizer::for_request(vocabulary, params))),
            sampler,
            order: ServiceOrder::new(policy, &claim, request.arrival_number, index),
            priority,
            preemptions: 0,
            passed_by: 0,
            hashes: request.prompt_hashes.clone(),
            scope: request.scope.clone(),
            published_blocks: 0,
            publishable: true,
            was_admitted: false,
        };
        let key = self.sequences.insert(sequence);
        self.request_mut(id).sequences.push(key);
        key
    }
}
