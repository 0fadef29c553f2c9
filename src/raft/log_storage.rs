//! The log as openraft wants it: the newest entries in memory, all of them in `log.db`.

use std::{
    collections::VecDeque,
    fmt::Debug,
    io,
    ops::{Bound, RangeBounds},
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use openraft::{
    OptionalSend,
    storage::{IOFlushed, LogState, RaftLogReader, RaftLogStorage},
};
use tokio::sync::oneshot;

use crate::raft::{
    types::{Entry, LogId, Types, Vote},
    wire,
};
use crate::store::{Done, Error, LogDb, Record};

#[derive(Clone, Debug)]
pub struct LogStorage {
    db: LogDb,
    recent: Arc<Mutex<Recent>>,
}

/// What need not be read from the disk.
#[derive(Debug, Default)]
struct Recent {
    /// Without a gap, up to the last one.
    entries: VecDeque<Entry>,
    bytes: usize,
    /// Entries up to here may leave memory, because they can be read from the disk.
    durable: Option<u64>,
    /// What was durable before one of these may have been taken back.
    truncations: u64,
    last: Option<LogId>,
    purged: Option<LogId>,
    committed: Option<LogId>,
    vote: Option<Vote>,
}

/// Entries in memory, in bytes of their batches.
const RECENT_BYTES: usize = 32 << 20;
/// What one read from the disk brings.
const READ_BYTES: usize = 4 << 20;

impl LogStorage {
    pub fn open(
        path: &Path,
        failed: Arc<dyn Fn(&Error) + Send + Sync>,
    ) -> Result<LogStorage, Error> {
        let (db, contents) = LogDb::open(path, RECENT_BYTES, failed)?;
        let mut recent = Recent {
            durable: contents.last.map(|last| last.index),
            last: contents.last.map(wire::from_position),
            purged: contents.head.purged.map(wire::from_position),
            committed: contents.head.committed.map(wire::from_position),
            vote: contents.head.vote.map(wire::from_stored_vote),
            ..Recent::default()
        };
        for record in &contents.tail {
            recent.push(decode(record)?);
        }
        Ok(LogStorage { db, recent: Arc::new(Mutex::new(recent)) })
    }

    /// Neither entries nor a vote, ever.
    pub fn is_empty(&self) -> bool {
        let recent = self.recent();
        recent.last.is_none() && recent.vote.is_none()
    }

    /// Writes what waits, and lets go of the file.
    pub fn close(&self) {
        self.db.close();
    }

    fn recent(&self) -> MutexGuard<'_, Recent> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn durably(&self, request: impl FnOnce(&LogDb, Done)) -> io::Result<()> {
        let (sender, done) = oneshot::channel();
        request(
            &self.db,
            Box::new(move |result| {
                // Nobody waits any more only when the core is gone.
                let _ = sender.send(result);
            }),
        );
        done.await.map_err(|_| io::Error::other("the log's writer is gone"))?
    }

    /// What is no longer in memory.
    async fn read_older(&self, from: u64, to: u64) -> io::Result<Vec<Entry>> {
        let db = self.db.clone();
        let read = move || -> Result<Vec<Entry>, Error> {
            let mut entries = Vec::new();
            let mut next = from;
            while next < to {
                let records = db.read(next, to, READ_BYTES)?;
                let Some(last) = records.last() else { break };
                next = last.index + 1;
                for record in &records {
                    entries.push(decode(record)?);
                }
            }
            Ok(entries)
        };
        Ok(tokio::task::spawn_blocking(read).await.map_err(io::Error::other)??)
    }
}

impl Recent {
    fn push(&mut self, entry: Entry) {
        self.bytes += size(&entry);
        self.last = Some(entry.log_id);
        self.entries.push_back(entry);
    }

    fn first_index(&self) -> u64 {
        self.entries.front().map_or(u64::MAX, |entry| entry.log_id.index)
    }

    fn range(&self, from: u64, to: u64) -> impl Iterator<Item = &Entry> {
        let first = self.first_index();
        let skip = from.saturating_sub(first) as usize;
        self.entries.iter().skip(skip).take_while(move |entry| entry.log_id.index < to)
    }

    fn made_durable(&mut self, index: u64, truncations: u64) {
        if truncations != self.truncations {
            return;
        }
        self.durable = self.durable.max(Some(index));
        while self.bytes > RECENT_BYTES && Some(self.first_index()) <= self.durable {
            let Some(oldest) = self.entries.pop_front() else { return };
            self.bytes -= size(&oldest);
        }
    }

    fn truncate_after(&mut self, last: Option<LogId>) {
        let keep = last.map_or(0, |last| last.index + 1);
        let kept = self.entries.partition_point(|entry| entry.log_id.index < keep);
        self.bytes -= self.entries.drain(kept..).map(|entry| size(&entry)).sum::<usize>();
        self.last = last.min(self.last).or(self.purged);
        self.durable = self.durable.min(self.last.map(|last| last.index));
        self.truncations += 1;
    }

    fn purge(&mut self, upto: LogId) {
        let gone = self.entries.partition_point(|entry| entry.log_id.index <= upto.index);
        self.bytes -= self.entries.drain(..gone).map(|entry| size(&entry)).sum::<usize>();
        self.purged = Some(upto);
        self.last = self.last.max(Some(upto));
    }
}

impl RaftLogReader<Types> for LogStorage {
    async fn try_get_log_entries<R>(&mut self, range: R) -> Result<Vec<Entry>, io::Error>
    where
        R: RangeBounds<u64> + Clone + Debug + OptionalSend,
    {
        let (from, to) = bounds(&range);
        if from >= to {
            return Ok(Vec::new());
        }
        let (newer, first): (Vec<Entry>, u64) = {
            let recent = self.recent();
            let from = recent.purged.map_or(from, |purged| from.max(purged.index + 1));
            (recent.range(from, to).cloned().collect(), recent.first_index())
        };
        if from >= first {
            return Ok(newer);
        }
        let mut entries = self.read_older(from, to.min(first)).await?;
        entries.extend(newer);
        Ok(entries)
    }

    async fn read_vote(&mut self) -> Result<Option<Vote>, io::Error> {
        Ok(self.recent().vote)
    }

    /// A follower that is far behind is sent a few megabytes at a time.
    async fn limited_get_log_entries(
        &mut self,
        start: u64,
        end: u64,
    ) -> Result<Vec<Entry>, io::Error> {
        let first = self.recent().first_index();
        if start >= first {
            let mut bytes = 0;
            let recent = self.recent();
            let within = |entry: &&Entry| {
                let fits = bytes < READ_BYTES;
                bytes += size(entry);
                fits
            };
            return Ok(recent.range(start, end).take_while(within).cloned().collect());
        }
        let db = self.db.clone();
        let read = move || -> Result<Vec<Entry>, Error> {
            db.read(start, end.min(first), READ_BYTES)?.iter().map(decode).collect()
        };
        Ok(tokio::task::spawn_blocking(read).await.map_err(io::Error::other)??)
    }
}

impl RaftLogStorage<Types> for LogStorage {
    type LogReader = Self;

    async fn get_log_state(&mut self) -> Result<LogState<Types>, io::Error> {
        let recent = self.recent();
        Ok(LogState { last_purged_log_id: recent.purged, last_log_id: recent.last })
    }

    async fn get_log_reader(&mut self) -> Self {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote) -> Result<(), io::Error> {
        let stored = wire::stored_vote(vote);
        self.durably(|db, done| db.save_vote(stored, done)).await?;
        self.recent().vote = Some(*vote);
        Ok(())
    }

    async fn save_committed(&mut self, committed: Option<LogId>) -> Result<(), io::Error> {
        self.recent().committed = committed;
        self.db.hint_committed(committed.map(wire::position));
        Ok(())
    }

    async fn read_committed(&mut self) -> Result<Option<LogId>, io::Error> {
        Ok(self.recent().committed)
    }

    async fn append<I>(&mut self, entries: I, callback: IOFlushed<Types>) -> Result<(), io::Error>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let mut records = Vec::new();
        let truncations = {
            let mut recent = self.recent();
            for entry in entries {
                records.push(wire::record(&entry));
                recent.push(entry);
            }
            recent.truncations
        };
        let last = records.last().map(|record| record.index);
        let recent = self.recent.clone();
        self.db.append(
            records,
            Box::new(move |result| {
                if let (Ok(()), Some(last)) = (&result, last) {
                    let mut recent = recent.lock().unwrap_or_else(PoisonError::into_inner);
                    recent.made_durable(last, truncations);
                }
                callback.io_completed(result);
            }),
        );
        Ok(())
    }

    async fn truncate_after(&mut self, last: Option<LogId>) -> Result<(), io::Error> {
        self.recent().truncate_after(last);
        self.durably(|db, done| db.truncate_after(last.map(|last| last.index), done)).await
    }

    async fn purge(&mut self, upto: LogId) -> Result<(), io::Error> {
        self.recent().purge(upto);
        self.durably(|db, done| db.purge(wire::position(upto), done)).await
    }
}

fn decode(record: &Record) -> Result<Entry, Error> {
    wire::from_record(record).map_err(|fault| Error::Corrupt {
        path: "log.db".into(),
        record: format!("entry {}: {fault}", record.index),
    })
}

fn size(entry: &Entry) -> usize {
    match &entry.payload {
        openraft::EntryPayload::Normal(batch) => batch.0.len(),
        openraft::EntryPayload::Blank | openraft::EntryPayload::Membership(_) => 0,
    }
}

/// `from..to`; an inverted range is empty.
fn bounds(range: &impl RangeBounds<u64>) -> (u64, u64) {
    let from = match range.start_bound() {
        Bound::Included(index) => *index,
        Bound::Excluded(index) => index.saturating_add(1),
        Bound::Unbounded => 0,
    };
    let to = match range.end_bound() {
        Bound::Included(index) => index.saturating_add(1),
        Bound::Excluded(index) => *index,
        Bound::Unbounded => u64::MAX,
    };
    (from, to)
}
