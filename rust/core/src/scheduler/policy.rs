//! Who is served before whom, and who must give way.
//!
//! Owns: the policies' words, and the one number that orders sequences under each. Ageing is part of that number: a
//! priority level counts as so much later an arrival, so the order of two sequences never changes while they wait.
//! Must not know: queues, blocks.

use crate::clock::Nanos;

/// The order in which requests are served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SchedulingPolicy {
    /// First come, first served.
    #[default]
    Fcfs,
    /// By the request's priority, smaller first, with ageing.
    Priority,
    /// The tenant that was served least comes first.
    Fair,
}

impl SchedulingPolicy {
    /// Every policy.
    pub const ALL: [Self; 3] = [Self::Fcfs, Self::Priority, Self::Fair];

    /// The word in options.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fcfs => "fcfs",
            Self::Priority => "priority",
            Self::Fair => "fair",
        }
    }
}

/// Who gives blocks back when they run out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PreemptionVictim {
    /// Whose loss costs least to compute again.
    #[default]
    LeastWaste,
    /// Who came last: for comparison.
    Youngest,
}

impl PreemptionVictim {
    /// Every choice.
    pub const ALL: [Self; 2] = [Self::LeastWaste, Self::Youngest];

    /// The word in options.
    pub const fn name(self) -> &'static str {
        match self {
            Self::LeastWaste => "least_waste",
            Self::Youngest => "youngest",
        }
    }
}

/// A request's claim: by its virtual arrival, then by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ServiceOrder {
    virtual_arrival: i64,
    number: u64,
}

/// Sequences per request in `ServiceOrder::number`; `SamplingParams` allows fewer.
const STRIDE: u64 = 1 << 10;

impl ServiceOrder {
    /// Of sequence `index` of the request that came as number `request`.
    pub fn new(policy: SchedulingPolicy, claim: &Claim, request: u64, index: u32) -> Self {
        let virtual_arrival = match policy {
            SchedulingPolicy::Fcfs | SchedulingPolicy::Fair => 0,
            SchedulingPolicy::Priority => {
                let levels = i64::from(claim.priority).saturating_mul(claim.ageing as i64);
                (claim.arrival as i64).saturating_add(levels)
            }
        };
        Self { virtual_arrival, number: request * STRIDE + u64::from(index) }
    }
}

/// What a request's claim is made of under the priority policy.
pub struct Claim {
    /// When it came.
    pub arrival: Nanos,
    /// Smaller is more important.
    pub priority: i32,
    /// So long a wait makes up for one level.
    pub ageing: Nanos,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(arrival: Nanos, priority: i32, number: u64) -> ServiceOrder {
        ServiceOrder::new(SchedulingPolicy::Priority, &Claim { arrival, priority, ageing: 10 }, number, 0)
    }

    #[test]
    fn a_level_is_made_up_for_by_waiting() {
        assert!(order(5, 0, 1) < order(0, 1, 0), "more important goes first");
        assert!(order(15, 0, 1) > order(0, 1, 0), "unless the other has waited long enough");
        assert!(order(10, 0, 1) > order(0, 1, 0), "a tie goes to who came first");
        assert!(order(0, i32::MIN, 1) < order(0, i32::MAX, 0));
        let fcfs = |number, index| {
            let claim = Claim { arrival: 0, priority: -7, ageing: 10 };
            ServiceOrder::new(SchedulingPolicy::Fcfs, &claim, number, index)
        };
        assert!(fcfs(0, 127) < fcfs(1, 0) && fcfs(1, 0) < fcfs(1, 1));
    }
}
