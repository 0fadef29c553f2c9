//! What a controller has on disk: plain tables, brought up to date from the changes after each batch.

use std::collections::BTreeMap;

use drigs::model::{IdempotencyKey, Job, JobId, Queue, QueueName, Task, TaskId, Worker, WorkerId};
use drigs::state::{Change, Counters, KeyUse, State, Table};

#[derive(Clone, Debug, Default)]
pub struct Store {
    pub jobs: BTreeMap<JobId, Job>,
    pub tasks: BTreeMap<TaskId, Task>,
    pub workers: BTreeMap<WorkerId, Worker>,
    pub queues: BTreeMap<QueueName, Queue>,
    pub keys: BTreeMap<IdempotencyKey, KeyUse>,
    pub counters: Counters,
}

impl Store {
    /// Of a cluster to which nothing has happened yet.
    pub fn of(state: &State) -> Self {
        Store {
            queues: state.queues.iter().map(|(name, row)| (name.clone(), row.clone())).collect(),
            counters: state.counters.clone(),
            ..Store::default()
        }
    }

    pub fn write(&mut self, state: &mut State) {
        let changes = state.take_changes();
        write_table(&mut self.jobs, changes.jobs, &state.jobs);
        write_table(&mut self.tasks, changes.tasks, &state.tasks);
        write_table(&mut self.workers, changes.workers, &state.workers);
        write_table(&mut self.queues, changes.queues, &state.queues);
        write_table(&mut self.keys, changes.keys, &state.keys);
        self.counters = state.counters.clone();
    }

    pub fn load(&self) -> State {
        let mut state = State::empty();
        self.jobs.iter().for_each(|(id, row)| state.jobs.load(*id, row.clone()));
        self.tasks.iter().for_each(|(id, row)| state.tasks.load(*id, row.clone()));
        self.workers.iter().for_each(|(id, row)| state.workers.load(*id, row.clone()));
        self.queues.iter().for_each(|(name, row)| state.queues.load(name.clone(), row.clone()));
        self.keys.iter().for_each(|(key, row)| state.keys.load(key.clone(), row.clone()));
        state.counters = self.counters.clone();
        state.rebuild();
        state
    }
}

/// Archived rows stay in the real store as history, but no state is ever loaded from them.
fn write_table<K: Ord + Clone, V: Clone>(
    rows: &mut BTreeMap<K, V>,
    changes: BTreeMap<K, Change<V>>,
    table: &Table<K, V>,
) {
    for (key, change) in changes {
        match change {
            Change::Put => {
                let row = table.get(&key).expect("a row that was put is there").clone();
                rows.insert(key, row);
            }
            Change::Archive(_) | Change::Delete => {
                rows.remove(&key);
            }
        }
    }
}
