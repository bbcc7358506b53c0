//! The sequences that hold no blocks, in the order in which they will be served.
//!
//! Owns: one lane per tenant under the fair policy, else one lane for all, each by `ServiceOrder`.
//! Must not know: blocks, why a sequence waits.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use super::SequenceKey;
use super::policy::ServiceOrder;
use super::tenants::{TenantKey, Tenants};

/// What a waiting sequence is assumed to cost its tenant, when the order of the whole queue is foretold.
const ASSUMED_COST_TOKENS: u64 = 512;

/// See the module.
#[derive(Default)]
pub struct WaitingQueue {
    lanes: BTreeMap<TenantKey, BTreeSet<(ServiceOrder, SequenceKey)>>,
    len: usize,
}

impl WaitingQueue {
    /// Sequences that wait.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Puts a sequence in its place. `lane` is 0 unless the policy is fair.
    pub fn insert(&mut self, lane: TenantKey, order: ServiceOrder, key: SequenceKey) {
        let is_new = self.lanes.entry(lane).or_default().insert((order, key));
        debug_assert!(is_new, "a sequence waits once");
        self.len += 1;
    }

    /// Takes a sequence out; false if it does not wait.
    pub fn remove(&mut self, lane: TenantKey, order: ServiceOrder, key: SequenceKey) -> bool {
        let Some(sequences) = self.lanes.get_mut(&lane) else { return false };
        if !sequences.remove(&(order, key)) {
            return false;
        }
        if sequences.is_empty() {
            self.lanes.remove(&lane);
        }
        self.len -= 1;
        true
    }

    /// Whether a sequence waits.
    pub fn contains(&self, lane: TenantKey, order: ServiceOrder, key: SequenceKey) -> bool {
        self.lanes.get(&lane).is_some_and(|sequences| sequences.contains(&(order, key)))
    }

    /// Appends the first `limit` sequences in the order of service, as far as it can be foretold.
    pub fn in_service_order(&self, tenants: &Tenants, limit: usize, out: &mut Vec<SequenceKey>) {
        if self.lanes.len() <= 1 {
            let lane = self.lanes.values().next();
            out.extend(lane.into_iter().flatten().take(limit).map(|&(_, key)| key));
            return;
        }
        // The least served tenant's next one, as if each were charged when it is taken.
        let mut heads: BinaryHeap<_> = self
            .lanes
            .iter()
            .map(|(&tenant, lane)| {
                let mut lane = lane.iter();
                let &(order, key) = lane.next().expect("empty lanes are removed");
                (Reverse((tenants.served(tenant), order, key)), HeapLane(lane))
            })
            .collect();
        let until = out.len() + limit;
        while out.len() < until
            && let Some((Reverse((served, _, key)), HeapLane(mut lane))) = heads.pop()
        {
            out.push(key);
            if let Some(&(order, key)) = lane.next() {
                heads.push((Reverse((served + ASSUMED_COST_TOKENS, order, key)), HeapLane(lane)));
            }
        }
    }
}

/// The rest of a lane; all are equal in the heap, which is ordered by the heads.
struct HeapLane<'a>(std::collections::btree_set::Iter<'a, (ServiceOrder, SequenceKey)>);

impl PartialEq for HeapLane<'_> {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}
impl Eq for HeapLane<'_> {}
impl PartialOrd for HeapLane<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for HeapLane<'_> {
    fn cmp(&self, _: &Self) -> std::cmp::Ordering {
        std::cmp::Ordering::Equal
    }
}
