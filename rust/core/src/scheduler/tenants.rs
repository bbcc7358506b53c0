//! Who has been served how much: the virtual counters of the fair policy.
//!
//! Owns: one counter per tenant that has work here, in tokens: prompt tokens that had to be computed count once, answer
//! tokens twice, as a step of decoding costs more per token than a chunk of a prompt.
//! Invariants: a tenant that comes (back) starts at most `CREDIT_TOKENS` below the least served of those who have work:
//! so one that asks for little is served at once, and nobody saves up more than that while away. Tenants without work
//! are forgotten as soon as they would start there anyway.
//! Source: virtual token counters, Sheng et al., "Fairness in Serving Large Language Models", OSDI 2024.
//! Must not know: sequences, the queue.

use std::collections::HashMap;
use std::sync::Arc;

use slab::Slab;

/// Key of a tenant while it has work.
pub type TenantKey = u32;

/// What an answer token counts, when a computed prompt token counts 1.
const ANSWER_TOKEN_WEIGHT: u64 = 2;

/// What a tenant that asks for little may be served ahead of the others.
const CREDIT_TOKENS: u64 = 16_384;

/// Tenants without work that are remembered before the ones that don't matter any more are looked for.
const MANY_AWAY: usize = 1024;

struct Tenant {
    name: Option<Arc<str>>,
    served: u64,
    /// Its live requests.
    requests: usize,
    /// Its sequences that hold blocks.
    running: usize,
}

/// All tenants with work.
#[derive(Default)]
pub struct Tenants {
    at_work: Slab<Tenant>,
    by_name: HashMap<Option<Arc<str>>, TenantKey>,
    /// What those without work were served.
    away: HashMap<Option<Arc<str>>, u64>,
    /// Who comes starts here at least.
    floor: u64,
}

impl Tenants {
    /// One more request of this tenant.
    pub fn enter(&mut self, name: Option<&Arc<str>>) -> TenantKey {
        let name = name.cloned();
        if let Some(&key) = self.by_name.get(&name) {
            self.at_work[key as usize].requests += 1;
            return key;
        }
        if let Some(least) = self.at_work.iter().map(|(_, tenant)| tenant.served).min() {
            self.floor = self.floor.max(least.saturating_sub(CREDIT_TOKENS));
        }
        let served = self.away.remove(&name).unwrap_or(0).max(self.floor);
        let tenant = Tenant { name: name.clone(), served, requests: 1, running: 0 };
        let key = self.at_work.insert(tenant) as TenantKey;
        self.by_name.insert(name, key);
        key
    }

    /// One request less.
    pub fn leave(&mut self, key: TenantKey) {
        let tenant = &mut self.at_work[key as usize];
        tenant.requests -= 1;
        if tenant.requests == 0 {
            let Tenant { name, served, .. } = self.at_work.remove(key as usize);
            self.by_name.remove(&name);
            // Who comes back at once must not be better off than if it had stayed.
            self.away.insert(name, served);
            if self.away.len() > MANY_AWAY {
                if self.at_work.is_empty() {
                    self.floor = self.floor.max(served.saturating_sub(CREDIT_TOKENS));
                }
                let floor = self.floor;
                self.away.retain(|_, served| *served > floor);
            }
        }
    }

    /// Tenants with work.
    pub fn num_at_work(&self) -> usize {
        self.at_work.len()
    }

    /// What it was served so far.
    pub fn served(&self, key: TenantKey) -> u64 {
        self.at_work[key as usize].served
    }

    /// Its sequences that hold blocks.
    pub fn running(&self, key: TenantKey) -> usize {
        self.at_work[key as usize].running
    }

    /// The same of all, by key.
    pub fn running_by_tenant(&self) -> Vec<usize> {
        let mut running = vec![0; self.at_work.iter().map(|(key, _)| key + 1).max().unwrap_or(0)];
        self.at_work.iter().for_each(|(key, tenant)| running[key] = tenant.running);
        running
    }

    /// A sequence was admitted, for the first time or again.
    pub fn start_running(&mut self, key: TenantKey) {
        self.at_work[key as usize].running += 1;
    }

    /// A sequence has given its blocks back.
    pub fn stop_running(&mut self, key: TenantKey) {
        self.at_work[key as usize].running -= 1;
    }

    /// These prompt tokens are computed for it.
    pub fn charge_prompt(&mut self, key: TenantKey, tokens: usize) {
        self.at_work[key as usize].served += tokens as u64;
    }

    /// It got an answer token.
    pub fn charge_answer_token(&mut self, key: TenantKey) {
        self.at_work[key as usize].served += ANSWER_TOKEN_WEIGHT;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_saves_up_more_than_the_credit_while_away() {
        let mut tenants = Tenants::default();
        let (a, b) = (Arc::<str>::from("a"), Arc::<str>::from("b"));
        let busy = tenants.enter(Some(&a));
        tenants.charge_prompt(busy, 100_000);
        let light = tenants.enter(Some(&b));
        assert_eq!(tenants.served(light), 100_000 - CREDIT_TOKENS);
        assert_eq!(tenants.enter(Some(&a)), busy);
        tenants.charge_prompt(light, 20_000);
        tenants.charge_answer_token(light);
        tenants.leave(light);
        let light = tenants.enter(Some(&b));
        assert_eq!(
            tenants.served(light),
            100_000 - CREDIT_TOKENS + 20_002,
            "what it was served is remembered"
        );
        for key in [busy, busy, light] {
            tenants.leave(key);
        }
        assert_eq!(tenants.num_at_work(), 0);
        let again = tenants.enter(Some(&a));
        assert_eq!(tenants.served(again), 100_000);
    }

    #[test]
    fn tenants_that_are_away_are_forgotten() {
        let mut tenants = Tenants::default();
        for number in 0..10_000 {
            let key = tenants.enter(Some(&Arc::from(number.to_string())));
            tenants.charge_prompt(key, 5 * CREDIT_TOKENS as usize);
            tenants.leave(key);
            assert!(tenants.away.len() <= MANY_AWAY + 1);
        }
    }
}
