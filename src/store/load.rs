//! From rows back to the state.

use std::{collections::BTreeSet, path::Path};

use rusqlite::{Connection, OptionalExtension as _, types::FromSql};
use serde::de::DeserializeOwned;

use crate::model::{IdempotencyKey, JobId, QueueName, TaskId, WorkerId};
use crate::state::{Counters, FEATURE_LEVEL, State};
use crate::store::{Applied, Error, Loaded, Position};

/// Everything that is not history.
pub(super) fn load(connection: &Connection, path: &Path) -> Result<Loaded, Error> {
    let applied = applied(connection, path)?;
    if applied.position.is_none() {
        return Ok(Loaded { state: State::default(), applied });
    }
    let mut state = State::empty();
    let file = File { connection, path };
    file.each("SELECT body, id FROM jobs WHERE archived = 0", |row, job| {
        state.jobs.load(JobId(row.get::<_, i64>(1)? as u64), job);
        Ok(())
    })?;
    file.each("SELECT body, job, idx FROM tasks WHERE archived = 0", |row, task| {
        let job = JobId(row.get::<_, i64>(1)? as u64);
        state.tasks.load(TaskId { job, index: row.get(2)? }, task);
        Ok(())
    })?;
    file.each("SELECT body, id FROM workers WHERE archived = 0", |row, worker| {
        state.workers.load(WorkerId(row.get::<_, i64>(1)? as u64), worker);
        Ok(())
    })?;
    file.each("SELECT body, name FROM queues WHERE archived = 0", |row, queue| {
        state.queues.load(QueueName::new(row.get::<_, String>(1)?), queue);
        Ok(())
    })?;
    file.each("SELECT body, key FROM idempotency_keys WHERE archived = 0", |row, usage| {
        state.keys.load(IdempotencyKey::new(row.get::<_, String>(1)?), usage);
        Ok(())
    })?;
    state.counters = counters(connection, path)?;
    if state.counters.feature_level > FEATURE_LEVEL {
        return Err(Error::NewerState {
            path: path.to_owned(),
            found: state.counters.feature_level,
            known: FEATURE_LEVEL,
        });
    }
    state.rebuild();
    Ok(Loaded { state, applied })
}

/// Where in the log the rows stand.
pub(super) fn applied(connection: &Connection, path: &Path) -> Result<Applied, Error> {
    let term: Option<i64> = meta(connection, path, "applied_term")?;
    let index: Option<i64> = meta(connection, path, "applied_index")?;
    let position =
        term.zip(index).map(|(term, index)| Position { term: term as u64, index: index as u64 });
    let hash: Option<[u8; 32]> = meta(connection, path, "state_hash")?;
    let ever: Option<String> = meta(connection, path, "members_ever")?;
    let ever = ever.map_or(Ok(BTreeSet::new()), |text| serde_json::from_str(&text));
    let fault = |fault| Error::corrupt(path, format!("members_ever: {fault}"));
    Ok(Applied {
        position,
        membership: meta(connection, path, "membership")?.unwrap_or_default(),
        members_ever: ever.map_err(fault)?,
        hash: hash.unwrap_or_default(),
        cluster_id: meta(connection, path, "cluster_id")?,
    })
}

pub(super) fn counters(connection: &Connection, path: &Path) -> Result<Counters, Error> {
    let text: Option<String> = meta(connection, path, "counters")?;
    let text = text.ok_or_else(|| Error::corrupt(path, "the counters are missing"))?;
    serde_json::from_str(&text).map_err(|fault| Error::corrupt(path, format!("counters: {fault}")))
}

fn meta<T: FromSql>(connection: &Connection, path: &Path, key: &str) -> Result<Option<T>, Error> {
    connection
        .query_row("SELECT value FROM meta WHERE key = ?1", [key], |row| row.get(0))
        .optional()
        .map_err(Error::sqlite("read", path))
}

struct File<'a> {
    connection: &'a Connection,
    path: &'a Path,
}

impl File<'_> {
    /// Reads the body (first column) of every row.
    fn each<T: DeserializeOwned>(
        &self,
        select: &str,
        mut take: impl FnMut(&rusqlite::Row<'_>, T) -> Result<(), rusqlite::Error>,
    ) -> Result<(), Error> {
        let fault = Error::sqlite("read", self.path);
        let mut statement = self.connection.prepare(select).map_err(&fault)?;
        let mut rows = statement.query([]).map_err(&fault)?;
        while let Some(row) = rows.next().map_err(&fault)? {
            let body = row.get_ref(0).map_err(&fault)?;
            let body = body.as_str().map_err(|fault| self.damaged(select, &fault))?;
            let value = serde_json::from_str(body).map_err(|fault| self.damaged(select, &fault))?;
            take(row, value).map_err(&fault)?;
        }
        Ok(())
    }

    fn damaged(&self, select: &str, fault: &dyn std::fmt::Display) -> Error {
        Error::corrupt(self.path, format!("a row of `{select}`: {fault}"))
    }
}
