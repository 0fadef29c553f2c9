//! Rows as they are written: real columns for people, and the whole row as JSON for the program.

use std::collections::BTreeMap;

use rusqlite::{Connection, params};
use serde::Serialize;

use crate::model::{
    IdempotencyKey, Job, JobId, Link, Mode, Queue, QueueName, Task, TaskId, TaskState, TaskStatus,
    Timestamp, Worker, WorkerId,
};
use crate::state::{Change, Changes, State, Table};

/// Everything that changed, ready to be written. The last word on each row wins.
#[derive(Debug, Default)]
pub struct Rows {
    jobs: BTreeMap<JobId, Row<JobColumns>>,
    tasks: BTreeMap<TaskId, Row<TaskColumns>>,
    workers: BTreeMap<WorkerId, Row<WorkerColumns>>,
    queues: BTreeMap<QueueName, Row<Queue>>,
    keys: BTreeMap<IdempotencyKey, Row<KeyColumns>>,
}

#[derive(Debug)]
enum Row<C> {
    Write { archived: bool, columns: C, body: String },
    Delete,
}

#[derive(Debug)]
struct JobColumns {
    name: String,
    user: String,
    queue: String,
    priority: u32,
    state: TaskState,
    tasks: u64,
    submitted_at: Timestamp,
    started_at: Option<Timestamp>,
    finished_at: Option<Timestamp>,
    exit_code: Option<i32>,
}

#[derive(Debug)]
struct TaskColumns {
    state: TaskState,
    attempts: u32,
    worker: Option<String>,
    placed_at: Option<Timestamp>,
    started_at: Option<Timestamp>,
    ended_at: Option<Timestamp>,
    reason: Option<&'static str>,
    exit_code: Option<i32>,
    signal: Option<i32>,
}

#[derive(Debug)]
struct WorkerColumns {
    name: String,
    address: String,
    epoch: u64,
    state: &'static str,
    cpus: f64,
    memory: u64,
    gpus: usize,
}

#[derive(Debug)]
struct KeyColumns {
    job: JobId,
    used_at: Timestamp,
}

impl Rows {
    /// The changed rows as they stand in `state`.
    pub fn of(state: &State, changes: Changes) -> Rows {
        Rows {
            jobs: rows(&state.jobs, changes.jobs, job_columns),
            tasks: rows(&state.tasks, changes.tasks, |task| task_columns(state, task)),
            workers: rows(&state.workers, changes.workers, worker_columns),
            queues: rows(&state.queues, changes.queues, Queue::clone),
            keys: rows(&state.keys, changes.keys, |key| KeyColumns {
                job: key.job,
                used_at: key.at,
            }),
        }
    }

    /// Adds what changed after this.
    pub fn extend(&mut self, later: Rows) {
        self.jobs.extend(later.jobs);
        self.tasks.extend(later.tasks);
        self.workers.extend(later.workers);
        self.queues.extend(later.queues);
        self.keys.extend(later.keys);
    }

    /// Feeds every row to `hasher`, in an order that is the same on every replica.
    pub fn hash_into(&self, hasher: &mut blake3::Hasher) {
        hash("jobs", &self.jobs, hasher);
        hash("tasks", &self.tasks, hasher);
        hash("workers", &self.workers, hasher);
        hash("queues", &self.queues, hasher);
        hash("keys", &self.keys, hasher);
    }

    pub(super) fn write(&self, connection: &Connection) -> Result<(), rusqlite::Error> {
        self.write_jobs(connection)?;
        self.write_tasks(connection)?;
        self.write_workers(connection)?;
        self.write_queues(connection)?;
        self.write_keys(connection)
    }

    fn write_jobs(&self, connection: &Connection) -> Result<(), rusqlite::Error> {
        let mut replace = connection.prepare_cached(
            "INSERT OR REPLACE INTO jobs (id, name, user, queue, priority, state, tasks, submitted_at, \
             started_at, finished_at, exit_code, archived, body) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)",
        )?;
        let mut delete = connection.prepare_cached("DELETE FROM jobs WHERE id = ?1")?;
        for (id, row) in &self.jobs {
            match row {
                Row::Delete => delete.execute([id.0 as i64])?,
                Row::Write { archived, columns, body } => replace.execute(params![
                    id.0 as i64,
                    columns.name,
                    columns.user,
                    columns.queue,
                    columns.priority,
                    columns.state.as_str(),
                    columns.tasks as i64,
                    shown(columns.submitted_at),
                    columns.started_at.map(shown),
                    columns.finished_at.map(shown),
                    columns.exit_code,
                    archived,
                    body,
                ])?,
            };
        }
        Ok(())
    }

    fn write_tasks(&self, connection: &Connection) -> Result<(), rusqlite::Error> {
        let mut replace = connection.prepare_cached(
            "INSERT OR REPLACE INTO tasks (job, idx, state, attempts, worker, placed_at, started_at, \
             ended_at, reason, exit_code, signal, archived, body) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)",
        )?;
        let mut delete =
            connection.prepare_cached("DELETE FROM tasks WHERE job = ?1 AND idx = ?2")?;
        for (id, row) in &self.tasks {
            match row {
                Row::Delete => delete.execute(params![id.job.0 as i64, id.index])?,
                Row::Write { archived, columns, body } => replace.execute(params![
                    id.job.0 as i64,
                    id.index,
                    columns.state.as_str(),
                    columns.attempts,
                    columns.worker,
                    columns.placed_at.map(shown),
                    columns.started_at.map(shown),
                    columns.ended_at.map(shown),
                    columns.reason,
                    columns.exit_code,
                    columns.signal,
                    archived,
                    body,
                ])?,
            };
        }
        Ok(())
    }

    fn write_workers(&self, connection: &Connection) -> Result<(), rusqlite::Error> {
        let mut replace = connection.prepare_cached(
            "INSERT OR REPLACE INTO workers (id, name, address, epoch, state, cpus, memory, gpus, \
             archived, body) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
        )?;
        let mut delete = connection.prepare_cached("DELETE FROM workers WHERE id = ?1")?;
        for (id, row) in &self.workers {
            match row {
                Row::Delete => delete.execute([id.0 as i64])?,
                Row::Write { archived, columns, body } => replace.execute(params![
                    id.0 as i64,
                    columns.name,
                    columns.address,
                    columns.epoch as i64,
                    columns.state,
                    columns.cpus,
                    columns.memory as i64,
                    columns.gpus as i64,
                    archived,
                    body,
                ])?,
            };
        }
        Ok(())
    }

    fn write_queues(&self, connection: &Connection) -> Result<(), rusqlite::Error> {
        let mut replace = connection.prepare_cached(
            "INSERT OR REPLACE INTO queues (name, priority, weight, open, archived, body) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        )?;
        let mut delete = connection.prepare_cached("DELETE FROM queues WHERE name = ?1")?;
        for (name, row) in &self.queues {
            match row {
                Row::Delete => delete.execute([name.as_str()])?,
                Row::Write { archived, columns, body } => replace.execute(params![
                    name.as_str(),
                    columns.priority,
                    columns.weight,
                    columns.open,
                    archived,
                    body,
                ])?,
            };
        }
        Ok(())
    }

    fn write_keys(&self, connection: &Connection) -> Result<(), rusqlite::Error> {
        let mut replace = connection.prepare_cached(
            "INSERT OR REPLACE INTO idempotency_keys (key, job, used_at, archived, body) \
             VALUES (?1, ?2, ?3, ?4, ?5)",
        )?;
        let mut delete =
            connection.prepare_cached("DELETE FROM idempotency_keys WHERE key = ?1")?;
        for (key, row) in &self.keys {
            match row {
                Row::Delete => delete.execute([key.as_str()])?,
                Row::Write { archived, columns, body } => replace.execute(params![
                    key.as_str(),
                    columns.job.0 as i64,
                    shown(columns.used_at),
                    archived,
                    body,
                ])?,
            };
        }
        Ok(())
    }
}

fn rows<K, V, C>(
    table: &Table<K, V>,
    changes: BTreeMap<K, Change<V>>,
    columns: impl Fn(&V) -> C,
) -> BTreeMap<K, Row<C>>
where
    K: Ord + Clone,
    V: Serialize,
{
    let row = |archived, value: &V| Row::Write {
        archived,
        columns: columns(value),
        body: serde_json::to_string(value).expect("rows are plain data"),
    };
    let row_for = |key: &K, change| match change {
        Change::Put => row(false, table.get(key).expect("what was put is in the table")),
        Change::Archive(last) => row(true, &last),
        Change::Delete => Row::Delete,
    };
    changes
        .into_iter()
        .map(|(key, change)| {
            let row = row_for(&key, change);
            (key, row)
        })
        .collect()
}

fn hash<K: Serialize, C>(table: &str, rows: &BTreeMap<K, Row<C>>, hasher: &mut blake3::Hasher) {
    for (key, row) in rows {
        hasher.update(table.as_bytes());
        hasher.update(&serde_json::to_vec(key).expect("keys are plain data"));
        match row {
            Row::Write { archived, columns: _, body } => {
                hasher.update(&[1 + u8::from(*archived)]);
                hasher.update(body.as_bytes());
            }
            Row::Delete => {
                hasher.update(&[0]);
            }
        }
    }
}

fn job_columns(job: &Job) -> JobColumns {
    JobColumns {
        name: job.spec.name.clone(),
        user: job.user.to_string(),
        queue: job.spec.queue.to_string(),
        priority: job.spec.priority,
        state: job_state(job),
        tasks: job.spec.indices().len(),
        submitted_at: job.submitted_at,
        started_at: job.started_at,
        finished_at: job.finished_at,
        exit_code: job.first_failure.as_ref().and_then(|failure| failure.ending.exit_code),
    }
}

/// From the row alone: to look at every task at every change would cost too much. Exact once the job is over.
fn job_state(job: &Job) -> TaskState {
    match job.is_finished() {
        true if !job.failed.is_empty() => TaskState::Failed,
        true if !job.cancelled.is_empty() => TaskState::Cancelled,
        true => TaskState::Completed,
        false if job.started_at.is_some() => TaskState::Running,
        false if job.hold.is_some() || !job.waits_for.is_empty() => TaskState::Pending,
        false => TaskState::Queued,
    }
}

fn task_columns(state: &State, task: &Task) -> TaskColumns {
    let (attempt, ending) = match &task.status {
        TaskStatus::Queued { last, .. } => (None, last.as_ref()),
        TaskStatus::Active(attempt) => (Some(attempt), None),
        TaskStatus::Ended { attempt, ending } => (attempt.as_ref(), Some(ending)),
    };
    let is_over = matches!(task.status, TaskStatus::Ended { .. });
    TaskColumns {
        state: state.task_state(task),
        attempts: task.attempts,
        worker: attempt
            .and_then(|attempt| attempt.parts.first())
            .map(|part| part.slice.worker.to_string()),
        placed_at: attempt.map(|attempt| attempt.placed_at),
        started_at: attempt.and_then(|attempt| attempt.started_at),
        ended_at: ending.filter(|_| is_over).map(|ending| ending.at),
        reason: ending.map(|ending| ending.reason.as_str()),
        exit_code: ending.and_then(|ending| ending.exit_code),
        signal: ending.and_then(|ending| ending.signal),
    }
}

fn worker_columns(worker: &Worker) -> WorkerColumns {
    let state = match (&worker.link, &worker.mode) {
        (Link::Silent { .. }, _) => "SILENT",
        (Link::Connected, Mode::Draining { .. }) => "DRAINING",
        (Link::Connected, Mode::Active) => "READY",
    };
    WorkerColumns {
        name: worker.name.to_string(),
        address: worker.address.clone(),
        epoch: worker.epoch.0,
        state,
        cpus: worker.cpus.0 as f64 / 1000.0,
        memory: worker.memory.0,
        gpus: worker.gpus.len(),
    }
}

/// As people read a time: `2026-05-01T12:00:00.123Z`.
fn shown(at: Timestamp) -> String {
    let millis = i64::try_from(at.0).ok();
    let instant = millis.and_then(|millis| jiff::Timestamp::from_millisecond(millis).ok());
    // Out of the calendar's range: the number itself.
    instant.map_or_else(|| at.0.to_string(), |instant| instant.to_string())
}
