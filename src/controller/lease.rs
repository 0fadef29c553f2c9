//! Who was heard of, and when: what only the present leader knows, by its own clock.

use std::collections::BTreeMap;

use crate::model::{LostAfter, Millis, Timestamp, WorkerId};

/// One setting, and the parts of it that each side may use. The order `quorum + worker < controller` is what keeps two
/// copies of a job from running at one time: whoever must stop, stops before whoever may start, starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    pub length: Millis,
}

/// The leases that one leader gives out. Lives as long as its leadership.
#[derive(Clone, Debug)]
pub struct Leases {
    lease: Lease,
    leading_since: Timestamp,
    quorum_heard: Timestamp,
    heard: BTreeMap<WorkerId, Timestamp>,
}

/// Two clocks may differ by one part in this many: far more than any machine's do, and it costs little.
const CLOCK_TOLERANCE: u64 = 32;

impl Lease {
    /// For how long a leader acts after a quorum last acknowledged it.
    pub fn quorum_part(self) -> Millis {
        Millis(self.length.0 / 4)
    }

    /// For how long a worker may run jobs without hearing from a leader, at the least.
    pub fn worker_part(self) -> Millis {
        Millis(self.length.0 / 2)
    }

    /// How long an attempt really runs on in silence: never less than the worker's part of the lease, or a short
    /// hiccup would end it.
    pub fn effective(self, lost_after: LostAfter) -> LostAfter {
        match lost_after {
            LostAfter::After(length) => LostAfter::After(length.max(self.worker_part())),
            LostAfter::Keep => LostAfter::Keep,
        }
    }
}

impl Leases {
    /// A new leader gives every worker one full lease to find it.
    pub fn new(lease: Lease, now: Timestamp) -> Self {
        Leases { lease, leading_since: now, quorum_heard: now, heard: BTreeMap::new() }
    }

    pub fn lease(&self) -> Lease {
        self.lease
    }

    pub fn leading_since(&self) -> Timestamp {
        self.leading_since
    }

    pub fn renew(&mut self, worker: WorkerId, now: Timestamp) {
        self.heard.insert(worker, now);
    }

    pub fn quorum_acknowledged(&mut self, at: Timestamp) {
        self.quorum_heard = self.quorum_heard.max(at);
    }

    /// Whether this leader may still give orders, renew leases and propose.
    pub fn may_act(&self, now: Timestamp) -> bool {
        now.since(self.quorum_heard) <= self.lease.quorum_part()
    }

    /// Whether `worker` reported to this leader within a lease.
    pub fn is_in_touch(&self, worker: WorkerId, now: Timestamp) -> bool {
        self.heard.get(&worker).is_some_and(|heard| now.since(*heard) <= self.lease.length)
    }

    /// Whether `worker` had a full lease to report, and did not.
    pub fn is_expired(&self, worker: WorkerId, now: Timestamp) -> bool {
        now.since(self.silent_since(worker)) > self.lease.length
    }

    /// Since when nothing can have reached `worker` but what this leader knows of.
    pub fn silent_since(&self, worker: WorkerId) -> Timestamp {
        self.heard.get(&worker).copied().unwrap_or_default().max(self.leading_since)
    }

    /// When an attempt on the silent `worker` is over for certain: its own time to run on, by a clock that may be slower
    /// than ours, the time that its stop may take, and a lease for the orders of a leader before this one.
    pub fn given_up_at(&self, worker: WorkerId, lost_after: LostAfter) -> Option<Timestamp> {
        match self.lease.effective(lost_after) {
            LostAfter::After(length) => {
                let by_a_slow_clock = length + Millis(length.0 / CLOCK_TOLERANCE);
                let stopped = by_a_slow_clock + LostAfter::GRACE;
                Some(self.silent_since(worker) + stopped + self.lease.length)
            }
            LostAfter::Keep => None,
        }
    }
}
