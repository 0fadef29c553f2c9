//! Read-only questions about what has left memory.

use std::{
    path::PathBuf,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use rusqlite::{Connection, OptionalExtension as _, ToSql, params};
use serde::de::DeserializeOwned;
use tokio::sync::{Semaphore, watch};

use crate::model::{Job, JobId, Task, TaskId, TaskState};
use crate::store::{Error, StateDb, sqlite, state_db::StateFiles};

/// Asks the store beside its writer, on a few connections of its own. Clones share them.
#[derive(Clone, Debug)]
pub struct History {
    pool: Arc<Pool>,
    progress: Progress,
}

/// How far memory and the store are. What an entry archives leaves memory a little before it is in the store, so who
/// looks at both looks at memory first, and then waits here until the store has caught up.
#[derive(Clone, Debug)]
pub struct Progress {
    in_memory: Arc<AtomicU64>,
    stored: watch::Sender<u64>,
}

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

/// Questions answered at one time; more wait.
const AT_ONCE: usize = 4;

impl History {
    pub fn new(db: &StateDb, progress: Progress) -> Self {
        let pool = Pool {
            files: db.files(),
            idle: Mutex::default(),
            permits: Arc::new(Semaphore::new(AT_ONCE)),
        };
        History { pool: Arc::new(pool), progress }
    }

    /// # Errors
    /// When the store can not be read.
    pub async fn job(&self, id: JobId) -> Result<Option<Job>, Error> {
        let select = "SELECT body FROM jobs WHERE id = ?1";
        self.ask(move |asked| asked.one(select, &[&(id.0 as i64)])).await
    }

    /// # Errors
    /// When the store can not be read.
    pub async fn task(&self, id: TaskId) -> Result<Option<Task>, Error> {
        let select = "SELECT body FROM tasks WHERE job = ?1 AND idx = ?2";
        self.ask(move |asked| asked.one(select, &[&(id.job.0 as i64), &id.index])).await
    }

    /// Newest first.
    ///
    /// # Errors
    /// When the store can not be read.
    pub async fn jobs(&self, query: JobQuery) -> Result<Vec<(JobId, Job)>, Error> {
        self.ask(move |asked| asked.jobs(&query)).await
    }

    /// By index.
    ///
    /// # Errors
    /// When the store can not be read.
    pub async fn tasks(&self, query: TaskQuery) -> Result<Vec<(TaskId, Task)>, Error> {
        self.ask(move |asked| asked.tasks(&query)).await
    }

    async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&Asked) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        self.progress.catch_up().await;
        let pool = self.pool.clone();
        let permit = pool.permits.clone().acquire_owned().await.expect("never closed");
        let answer = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            pool.ask(question)
        });
        answer.await.expect("a question neither panics nor is cancelled")
    }
}

impl Progress {
    pub fn new(index: u64) -> Self {
        Progress { in_memory: Arc::new(AtomicU64::new(index)), stored: watch::Sender::new(index) }
    }

    /// To be called before the state shows the entry.
    pub fn in_memory(&self, index: u64) {
        self.in_memory.store(index, Ordering::Release);
    }

    /// To be called when the entry's rows are committed.
    pub fn stored(&self, index: u64) {
        self.stored.send_replace(index);
    }

    pub fn watch_stored(&self) -> watch::Receiver<u64> {
        self.stored.subscribe()
    }

    async fn catch_up(&self) {
        let seen = self.in_memory.load(Ordering::Acquire);
        let mut stored = self.stored.subscribe();
        // The sender lives in `self`; and a store that never catches up has ended the process.
        let _ = stored.wait_for(|stored| *stored >= seen).await;
    }
}

#[derive(Debug)]
struct Pool {
    files: StateFiles,
    idle: Mutex<Vec<Asked>>,
    permits: Arc<Semaphore>,
}

/// One connection, to one generation of the file.
#[derive(Debug)]
struct Asked {
    connection: Connection,
    path: PathBuf,
}

impl Pool {
    fn ask<T>(&self, question: impl FnOnce(&Asked) -> Result<T, Error>) -> Result<T, Error> {
        let path = self.files.current();
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        // A snapshot may have replaced the file since.
        idle.retain(|asked| asked.path == path);
        let known = idle.pop();
        drop(idle);
        let asked = match known {
            Some(asked) => asked,
            None => Asked { connection: sqlite::open_reader(&path)?, path },
        };
        let answer = question(&asked);
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(asked);
        answer
    }
}

impl Asked {
    fn one<T: DeserializeOwned>(
        &self,
        select: &str,
        by: &[&dyn ToSql],
    ) -> Result<Option<T>, Error> {
        let fault = Error::sqlite("read", &self.path);
        let mut select = self.connection.prepare_cached(select).map_err(&fault)?;
        let body: Option<String> =
            select.query_row(by, |row| row.get(0)).optional().map_err(&fault)?;
        body.map(|body| self.parse(&body)).transpose()
    }

    fn jobs(&self, query: &JobQuery) -> Result<Vec<(JobId, Job)>, Error> {
        let ids: Vec<i64> = query.ids.iter().map(|id| id.0 as i64).collect();
        let states: Vec<&str> = query.states.iter().map(|state| state.as_str()).collect();
        // Empty lists match everything, and so do absent values.
        let select = "SELECT id, body FROM jobs WHERE archived = 1 AND id < ?1 \
             AND (?2 = '[]' OR id IN (SELECT value FROM json_each(?2))) \
             AND (?3 = '[]' OR state IN (SELECT value FROM json_each(?3))) \
             AND (?4 IS NULL OR user = ?4) AND (?5 IS NULL OR queue = ?5) \
             AND (?6 IS NULL OR instr(name, ?6) > 0) ORDER BY id DESC LIMIT ?7";
        let before = query.before.map_or(i64::MAX, |id| id.0 as i64);
        let rows = self.list(
            select,
            params![
                before,
                as_json(&ids),
                as_json(&states),
                query.user,
                query.queue,
                query.name,
                query.limit
            ],
        )?;
        Ok(rows.into_iter().map(|(id, job)| (JobId(id as u64), job)).collect())
    }

    fn tasks(&self, query: &TaskQuery) -> Result<Vec<(TaskId, Task)>, Error> {
        let states: Vec<&str> = query.states.iter().map(|state| state.as_str()).collect();
        let select = "SELECT idx, body FROM tasks WHERE archived = 1 AND job = ?1 AND idx > ?2 \
             AND (?3 IS NULL OR idx = ?3) \
             AND (?4 = '[]' OR state IN (SELECT value FROM json_each(?4))) \
             ORDER BY idx LIMIT ?5";
        let after = query.after.map_or(-1, i64::from);
        let job = query.job;
        let rows = self.list(
            select,
            params![job.0 as i64, after, query.index, as_json(&states), query.limit],
        )?;
        // Indices were written as u32.
        Ok(rows
            .into_iter()
            .map(|(index, task)| (TaskId { job, index: index as u32 }, task))
            .collect())
    }

    fn list<T: DeserializeOwned>(
        &self,
        select: &str,
        by: &[&dyn ToSql],
    ) -> Result<Vec<(i64, T)>, Error> {
        let fault = Error::sqlite("read", &self.path);
        let mut select = self.connection.prepare_cached(select).map_err(&fault)?;
        let mut rows = select.query(by).map_err(&fault)?;
        let mut found = Vec::new();
        while let Some(row) = rows.next().map_err(&fault)? {
            let body: String = row.get(1).map_err(&fault)?;
            found.push((row.get(0).map_err(&fault)?, self.parse(&body)?));
        }
        Ok(found)
    }

    fn parse<T: DeserializeOwned>(&self, body: &str) -> Result<T, Error> {
        serde_json::from_str(body).map_err(|fault| Error::corrupt(&self.path, fault.to_string()))
    }
}

fn as_json<T: serde::Serialize>(list: &[T]) -> String {
    serde_json::to_string(list).expect("plain data")
}
