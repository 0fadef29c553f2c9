//! Read-only questions about what has left memory.

use crate::model::{Job, JobId, Task, TaskId, TaskState};
use crate::store::Error;

#[derive(Clone, Debug)]
pub struct History {}

/// Which finished jobs; everything left out matches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobQuery {
    pub ids: Vec<JobId>,
    pub states: Vec<TaskState>,
    pub user: Option<String>,
    pub queue: Option<String>,
    /// Part of the name.
    pub name: Option<String>,
    /// Only older ones.
    pub before: Option<JobId>,
    pub limit: u32,
}

/// Which ended tasks of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskQuery {
    pub job: JobId,
    pub index: Option<u32>,
    pub states: Vec<TaskState>,
    /// Only higher indices.
    pub after: Option<u32>,
    pub limit: u32,
}

impl History {
    pub async fn job(&self, _id: JobId) -> Result<Option<Job>, Error> {
        todo!()
    }
    pub async fn task(&self, _id: TaskId) -> Result<Option<Task>, Error> {
        todo!()
    }
    pub async fn jobs(&self, _query: JobQuery) -> Result<Vec<(JobId, Job)>, Error> {
        todo!()
    }
    pub async fn tasks(&self, _query: TaskQuery) -> Result<Vec<(TaskId, Task)>, Error> {
        todo!()
    }
}
