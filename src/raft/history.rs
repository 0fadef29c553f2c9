//! What left memory, in the words of the API.

use crate::model::{Job, JobId, Task, TaskId};
use crate::rpc::api::{JobFilter, TaskFilter};
use crate::store;

/// Finished jobs and tasks, read from the store. Waits until the store has caught up with memory, so that nothing is in
/// neither.
#[derive(Clone, Debug)]
pub struct History {
    pub(super) store: store::History,
}

impl History {
    /// # Errors
    /// When the store can not be read.
    pub async fn job(&self, id: JobId) -> Result<Option<Job>, store::Error> {
        self.store.job(id).await
    }

    /// # Errors
    /// When the store can not be read.
    pub async fn task(&self, id: TaskId) -> Result<Option<Task>, store::Error> {
        self.store.task(id).await
    }

    /// Newest first; one more than `filter.limit` when there are more.
    ///
    /// # Errors
    /// When the store can not be read.
    pub async fn jobs(&self, filter: JobFilter) -> Result<Vec<(JobId, Job)>, store::Error> {
        let query = store::JobQuery {
            ids: filter.ids,
            states: filter.states,
            user: filter.user,
            queue: filter.queue,
            name: filter.name,
            before: filter.before,
            limit: filter.limit.saturating_add(1),
        };
        self.store.jobs(query).await
    }

    /// By index; one more than `filter.limit` when there are more.
    ///
    /// # Errors
    /// When the store can not be read.
    pub async fn tasks(&self, filter: TaskFilter) -> Result<Vec<(TaskId, Task)>, store::Error> {
        let query = store::TaskQuery {
            job: filter.job,
            index: filter.index,
            states: filter.states,
            after: filter.after,
            limit: filter.limit.saturating_add(1),
        };
        self.store.tasks(query).await
    }
}
