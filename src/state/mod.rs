//! The replicated state machine: what every controller agrees on.

mod apply;
mod command;
mod derived;
mod event;
mod invariants;
mod query;
mod table;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use self::apply::{MOST_PREFETCHED, Outcome};
pub use self::command::{Batch, Command, RegisterWorker, SubmitJob, Target};
use self::derived::Derived;
pub use self::derived::{Free, QueuePlace, RequestMark};
pub use self::event::{Event, Rejection};
pub use self::query::TaskCounts;
pub use self::table::{Change, Table};
use crate::model::{
    IdempotencyKey, IndexSet, Job, JobId, Queue, QueueName, Task, TaskId, Timestamp, Worker,
    WorkerId,
};

/// Everything the cluster knows. Changed only by [`State::apply`].
#[derive(Clone, Debug)]
pub struct State {
    pub jobs: Table<JobId, Job>,
    /// Tasks between their first start and their end.
    pub tasks: Table<TaskId, Task>,
    pub workers: Table<WorkerId, Worker>,
    pub queues: Table<QueueName, Queue>,
    pub keys: Table<IdempotencyKey, KeyUse>,
    pub counters: Counters,
    derived: Derived,
    /// Counts the changes of each worker's orders since this replica started, so that whoever sends them need not
    /// compare. Not part of what replicas agree on.
    orders_versions: BTreeMap<WorkerId, u64>,
}

/// The numbers that only grow, and the state's own clock.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    pub jobs_submitted: u64,
    pub workers_registered: u64,
    /// Tasks that ended for good, for the counters that people scrape.
    pub tasks_completed: u64,
    pub tasks_failed: u64,
    pub tasks_cancelled: u64,
    /// The latest time any proposer stamped. Never goes backwards.
    pub now: Timestamp,
    /// Commands up to this level may be proposed.
    pub feature_level: u32,
    /// Jobs that completed and left memory, for those that may still name them as a dependency.
    pub retired_ok: IndexSet,
    /// Jobs up to this one may run where nobody sees it, as long as a worker is estranged.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub doubtful_jobs: u64,
    /// Attempts up to this number were placed before the cluster was recovered or restored; later ones have higher
    /// numbers.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub doubtful_attempts: u32,
    /// The cluster of the backup that this one was restored from, if its workers may come over by themselves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adopted_cluster: Option<String>,
}

/// Rows look as before where nothing was ever recovered.
fn is_zero<T: Default + PartialEq>(number: &T) -> bool {
    *number == T::default()
}

/// What an idempotency key was used for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyUse {
    pub job: JobId,
    pub at: Timestamp,
    /// Of the submission, so that the same key for another one is noticed.
    pub digest: String,
}

/// All rows changed since the last call, table by table.
#[derive(Debug, Default)]
pub struct Changes {
    pub jobs: BTreeMap<JobId, Change<Job>>,
    pub tasks: BTreeMap<TaskId, Change<Task>>,
    pub workers: BTreeMap<WorkerId, Change<Worker>>,
    pub queues: BTreeMap<QueueName, Change<Queue>>,
    pub keys: BTreeMap<IdempotencyKey, Change<KeyUse>>,
}

/// The feature level that this program understands.
pub const FEATURE_LEVEL: u32 = 1;

impl State {
    pub fn take_changes(&mut self) -> Changes {
        Changes {
            jobs: self.jobs.take_changes(),
            tasks: self.tasks.take_changes(),
            workers: self.workers.take_changes(),
            queues: self.queues.take_changes(),
            keys: self.keys.take_changes(),
        }
    }

    /// Puts the indexes in order after the tables were loaded row by row.
    pub fn rebuild(&mut self) {
        self.derived = Derived::of(self);
    }
}

/// A new cluster: nothing but the default queue.
impl Default for State {
    fn default() -> Self {
        let mut state = State::empty();
        state.queues.insert(QueueName::default(), Queue::default());
        state
    }
}

impl State {
    /// Not even the default queue: what the store fills row by row.
    pub fn empty() -> Self {
        State {
            jobs: Table::default(),
            tasks: Table::default(),
            workers: Table::default(),
            queues: Table::default(),
            keys: Table::default(),
            counters: Counters { feature_level: FEATURE_LEVEL, ..Counters::default() },
            derived: Derived::default(),
            orders_versions: BTreeMap::new(),
        }
    }
}

/// Two replicas are equal when their rows are: the indexes follow from those.
impl PartialEq for State {
    fn eq(&self, other: &Self) -> bool {
        self.jobs == other.jobs
            && self.tasks == other.tasks
            && self.workers == other.workers
            && self.queues == other.queues
            && self.keys == other.keys
            && self.counters == other.counters
    }
}

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
