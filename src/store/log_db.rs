//! `log.db`: the replicated log, the vote, and how far the log was purged.
//!
//! One thread writes. Whatever waits when it looks is one transaction and one fsync, so a slow disk costs latency, not
//! throughput. Order matters: what was asked first is durable first.

use std::{
    collections::VecDeque,
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    thread::{self, JoinHandle},
};

use bytes::Bytes;
use crossbeam_channel::{Receiver, Sender, bounded};
use rusqlite::{Connection, OptionalExtension as _, Transaction, params};

use crate::store::{
    Error,
    checkpoint::{Checkpointer, WalLimit},
    sqlite::{self, Kind},
};

/// One log entry as it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    pub index: u64,
    pub term: u64,
    pub body: Bytes,
}

/// A place in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    pub term: u64,
    pub index: u64,
}

/// What this replica promised: in this term it follows nobody but `node`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vote {
    pub term: u64,
    pub node: u64,
    pub committed: bool,
}

/// All that is kept beside the entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogHead {
    pub vote: Option<Vote>,
    /// Entries up to here are gone; the state holds what they did.
    pub purged: Option<Position>,
    /// A hint: at least so much was committed. Never waits for the disk on its own account.
    pub committed: Option<Position>,
}

/// What was found at the start.
#[derive(Debug)]
pub struct LogContents {
    pub head: LogHead,
    pub last: Option<Position>,
    /// The newest entries, as many as were asked for.
    pub tail: VecDeque<Record>,
}

/// Called once, when the request is durable or never will be.
pub type Done = Box<dyn FnOnce(io::Result<()>) + Send>;

/// The log. Clones are the same one.
#[derive(Clone)]
pub struct LogDb {
    shared: Arc<Shared>,
}

struct Shared {
    path: PathBuf,
    requests: Sender<Request>,
    /// Entries that are not in memory are read here, beside the writer.
    reader: Mutex<Connection>,
    writer: Mutex<Option<JoinHandle<()>>>,
}

struct Request {
    write: Write,
    done: Done,
}

enum Write {
    Append(Vec<Record>),
    SaveVote(Vote),
    HintCommitted(Option<Position>),
    /// Entries above this are taken back.
    TruncateAfter(Option<u64>),
    /// Entries up to and with this are given up.
    Purge(Position),
    Close,
}

const LOG: Kind =
    Kind { application_id: 0x4452_4c47, migrations: &[include_str!("migrations/log_1.sql")] };
const PRAGMAS: &str =
    "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = 0;";
/// Requests that may wait for the writer.
const BACKLOG: usize = 16_384;
/// The most that one transaction takes.
const MOST_AT_ONCE: usize = 1024;

impl LogDb {
    /// Opens the log, and reads and checks all of it. `failed` is told of the error that ends the writing.
    ///
    /// # Errors
    /// When it can not be read, or is damaged.
    pub fn open(
        path: &Path,
        tail_bytes: usize,
        failed: Arc<dyn Fn(&Error) + Send + Sync>,
    ) -> Result<(LogDb, LogContents), Error> {
        let connection = sqlite::open(path, &LOG, PRAGMAS)?;
        let contents = read_contents(&connection, path, tail_bytes)?;
        let checkpointer = Checkpointer::start(path, &LOG, PRAGMAS)?;
        let reader = Mutex::new(sqlite::open_reader(path)?);
        let (requests, inbox) = bounded(BACKLOG);
        let writer = Writer {
            path: path.to_owned(),
            connection,
            head: contents.head,
            wal_limit: WalLimit::new(path),
            _checkpointer: checkpointer,
        };
        let thread = thread::Builder::new()
            .name(String::from("log"))
            .spawn(move || writer.run(&inbox, &*failed))
            .map_err(Error::io("start a thread for", path))?;
        let writer = Mutex::new(Some(thread));
        let shared = Shared { path: path.to_owned(), requests, reader, writer };
        Ok((LogDb { shared: Arc::new(shared) }, contents))
    }

    /// Appends entries, in order and without a gap to what is there.
    pub fn append(&self, records: Vec<Record>, done: Done) {
        self.request(Write::Append(records), done);
    }

    pub fn save_vote(&self, vote: Vote, done: Done) {
        self.request(Write::SaveVote(vote), done);
    }

    /// Goes to the disk with whatever is written next.
    pub fn hint_committed(&self, committed: Option<Position>) {
        self.request(Write::HintCommitted(committed), Box::new(|_| ()));
    }

    pub fn truncate_after(&self, last: Option<u64>, done: Done) {
        self.request(Write::TruncateAfter(last), done);
    }

    pub fn purge(&self, upto: Position, done: Done) {
        self.request(Write::Purge(upto), done);
    }

    /// Writes what waits, and ends the writing.
    pub fn close(&self) {
        self.request(Write::Close, Box::new(|_| ()));
        let writer = self.shared.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(writer) = writer {
            let _ = writer.join();
        }
    }

    /// What is durable of the entries from `from` to before `to`, stopping early after `most_bytes` (but not before
    /// one). Entries that were purged meanwhile are left out.
    ///
    /// # Errors
    /// When they can not be read, or one of them is damaged or missing between two others.
    pub fn read(&self, from: u64, to: u64, most_bytes: usize) -> Result<Vec<Record>, Error> {
        let path = &self.shared.path;
        let fault = Error::sqlite("read", path);
        let connection = self.shared.reader.lock().unwrap_or_else(PoisonError::into_inner);
        let mut select = connection
            .prepare_cached(
                "SELECT idx, term, checksum, body FROM entries WHERE idx >= ?1 AND idx < ?2 ORDER BY idx",
            )
            .map_err(&fault)?;
        let mut rows = select.query(params![from as i64, to as i64]).map_err(&fault)?;
        let (mut records, mut bytes) = (Vec::new(), 0);
        while let Some(row) = rows.next().map_err(&fault)? {
            let record = read_record(row, path)?;
            let wanted = records.last().map(|last: &Record| last.index + 1);
            if wanted.is_some_and(|wanted| wanted != record.index) {
                return Err(gap(path, record.index - 1));
            }
            bytes += record.body.len();
            records.push(record);
            if bytes >= most_bytes {
                break;
            }
        }
        Ok(records)
    }

    fn request(&self, write: Write, done: Done) {
        if let Err(refused) = self.shared.requests.send(Request { write, done }) {
            let closed = Error::Closed { path: self.shared.path.clone() };
            (refused.into_inner().done)(Err(closed.into()));
        }
    }
}

impl std::fmt::Debug for LogDb {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LogDb").field("path", &self.shared.path).finish_non_exhaustive()
    }
}

struct Writer {
    path: PathBuf,
    connection: Connection,
    head: LogHead,
    wal_limit: WalLimit,
    _checkpointer: Checkpointer,
}

impl Writer {
    fn run(mut self, inbox: &Receiver<Request>, failed: &(dyn Fn(&Error) + Send + Sync)) {
        let mut hinted = false;
        while let Ok(first) = inbox.recv() {
            let mut writes = Vec::new();
            let mut waiting = Vec::new();
            let more = std::iter::from_fn(|| inbox.try_recv().ok()).take(MOST_AT_ONCE - 1);
            for Request { write, done } in std::iter::once(first).chain(more) {
                writes.push(write);
                waiting.push(done);
            }
            let closing = writes.iter().any(|write| matches!(write, Write::Close));
            let only_hints =
                !closing && writes.iter().all(|write| matches!(write, Write::HintCommitted(_)));
            if only_hints {
                hinted |= self.note_hints(&writes);
                continue;
            }
            let written = self.write(writes, hinted);
            hinted = false;
            for done in waiting {
                done(
                    written.as_ref().copied().map_err(|error| io::Error::other(error.to_string())),
                );
            }
            if let Err(error) = written {
                // Nothing may be written after a failure: the next fsync could report success for what was lost.
                failed(&error);
                return self.refuse_all(inbox);
            }
            if closing {
                return;
            }
        }
    }

    /// Answers everything with a refusal, until it is closed.
    fn refuse_all(&self, inbox: &Receiver<Request>) {
        for Request { write, done } in inbox {
            done(Err(Error::Closed { path: self.path.clone() }.into()));
            if matches!(write, Write::Close) {
                return;
            }
        }
    }

    /// Keeps a hint for the next transaction.
    fn note_hints(&mut self, writes: &[Write]) -> bool {
        let before = self.head;
        for write in writes {
            if let Write::HintCommitted(committed) = write {
                self.head.committed = *committed;
            }
        }
        before != self.head
    }

    /// One transaction, durable when it returns.
    fn write(&mut self, writes: Vec<Write>, hinted: bool) -> Result<(), Error> {
        let fault = Error::sqlite("write", &self.path);
        let before = self.head;
        let transaction = self.connection.transaction().map_err(&fault)?;
        for write in writes {
            apply(&transaction, write, &mut self.head).map_err(&fault)?;
        }
        if hinted || self.head != before {
            write_head(&transaction, &self.head).map_err(&fault)?;
        }
        transaction.commit().map_err(&fault)?;
        self.wal_limit.after_commit(&self.connection);
        Ok(())
    }
}

fn apply(
    transaction: &Transaction<'_>,
    write: Write,
    head: &mut LogHead,
) -> Result<(), rusqlite::Error> {
    match write {
        Write::Append(records) => {
            let mut insert = transaction.prepare_cached(
                "INSERT OR REPLACE INTO entries (idx, term, checksum, body) VALUES (?1, ?2, ?3, ?4)",
            )?;
            for record in records {
                insert.execute(params![
                    record.index as i64,
                    record.term as i64,
                    record.checksum(),
                    &record.body[..],
                ])?;
            }
        }
        Write::SaveVote(vote) => head.vote = Some(vote),
        Write::HintCommitted(committed) => head.committed = committed,
        Write::TruncateAfter(last) => {
            let last = last.map_or(-1, |last| last as i64);
            transaction.prepare_cached("DELETE FROM entries WHERE idx > ?1")?.execute([last])?;
        }
        Write::Purge(upto) => {
            let mut delete = transaction.prepare_cached("DELETE FROM entries WHERE idx <= ?1")?;
            delete.execute([upto.index as i64])?;
            head.purged = Some(upto);
        }
        Write::Close => {}
    }
    Ok(())
}

impl Record {
    fn checksum(&self) -> i64 {
        checksum(&[&self.index.to_le_bytes(), &self.term.to_le_bytes(), &self.body])
    }
}

impl LogHead {
    fn checksum(&self) -> i64 {
        let vote = self.vote.map(|vote| [vote.term, vote.node, u64::from(vote.committed)]);
        let place = |position: Option<Position>| position.map(|at| [at.term, at.index, 0]);
        let mut bytes = Vec::new();
        for field in [vote, place(self.purged), place(self.committed)] {
            bytes.push(u8::from(field.is_some()));
            bytes.extend(field.unwrap_or_default().into_iter().flat_map(u64::to_le_bytes));
        }
        checksum(&[&bytes])
    }
}

fn checksum(parts: &[&[u8]]) -> i64 {
    let mut hasher = blake3::Hasher::new();
    for part in parts {
        hasher.update(part);
    }
    let hash = hasher.finalize();
    i64::from_le_bytes(hash.as_bytes()[..8].try_into().expect("eight bytes"))
}

fn write_head(transaction: &Transaction<'_>, head: &LogHead) -> Result<(), rusqlite::Error> {
    let mut replace = transaction.prepare_cached(
        "INSERT OR REPLACE INTO head (one, vote_term, vote_node, vote_committed, purged_term, \
         purged_index, committed_term, committed_index, checksum) \
         VALUES (1, ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
    )?;
    replace.execute(params![
        head.vote.map(|vote| vote.term as i64),
        head.vote.map(|vote| vote.node as i64),
        head.vote.map(|vote| vote.committed),
        head.purged.map(|purged| purged.term as i64),
        head.purged.map(|purged| purged.index as i64),
        head.committed.map(|committed| committed.term as i64),
        head.committed.map(|committed| committed.index as i64),
        head.checksum(),
    ])?;
    Ok(())
}

fn read_head(connection: &Connection, path: &Path) -> Result<LogHead, Error> {
    let number = |row: &rusqlite::Row<'_>, column| {
        row.get::<_, Option<i64>>(column).map(|number| number.map(|number| number as u64))
    };
    let position = |row: &rusqlite::Row<'_>, term, index| {
        let (term, index) = (number(row, term)?, number(row, index)?);
        let found = term.zip(index).map(|(term, index)| Position { term, index });
        Ok::<_, rusqlite::Error>(found)
    };
    let select = "SELECT vote_term, vote_node, vote_committed, purged_term, purged_index, \
                  committed_term, committed_index, checksum FROM head";
    let read = connection.query_row(select, [], |row| {
        let vote = number(row, 0)?.zip(number(row, 1)?);
        let committed = row.get::<_, Option<bool>>(2)?.unwrap_or_default();
        let vote = vote.map(|(term, node)| Vote { term, node, committed });
        let head = LogHead { vote, purged: position(row, 3, 4)?, committed: position(row, 5, 6)? };
        Ok((head, row.get::<_, i64>(7)?))
    });
    match read.optional().map_err(Error::sqlite("read", path))? {
        None => Ok(LogHead::default()),
        Some((head, checksum)) if head.checksum() == checksum => Ok(head),
        Some(_) => Err(Error::corrupt(path, "the vote does not match its checksum")),
    }
}

fn read_contents(
    connection: &Connection,
    path: &Path,
    tail_bytes: usize,
) -> Result<LogContents, Error> {
    let fault = Error::sqlite("read", path);
    let head = read_head(connection, path)?;
    // Without a purge the log begins at 0, with one right behind it.
    let mut wanted = head.purged.map_or(0, |purged| purged.index + 1);
    let (mut tail, mut bytes, mut last) = (VecDeque::new(), 0, head.purged);
    let mut select = connection
        .prepare("SELECT idx, term, checksum, body FROM entries ORDER BY idx")
        .map_err(&fault)?;
    let mut rows = select.query([]).map_err(&fault)?;
    while let Some(row) = rows.next().map_err(&fault)? {
        let record = read_record(row, path)?;
        if record.index != wanted {
            return Err(gap(path, wanted));
        }
        wanted = record.index + 1;
        last = Some(Position { term: record.term, index: record.index });
        bytes += record.body.len();
        tail.push_back(record);
        while bytes > tail_bytes {
            let Some(oldest) = tail.pop_front() else { break };
            bytes -= oldest.body.len();
        }
    }
    Ok(LogContents { head, last, tail })
}

fn read_record(row: &rusqlite::Row<'_>, path: &Path) -> Result<Record, Error> {
    let read = || -> Result<_, rusqlite::Error> {
        let body = Bytes::copy_from_slice(row.get_ref(3)?.as_bytes()?);
        let record = Record {
            index: row.get::<_, i64>(0)? as u64,
            term: row.get::<_, i64>(1)? as u64,
            body,
        };
        Ok((record, row.get::<_, i64>(2)?))
    };
    let (record, checksum) = read().map_err(Error::sqlite("read", path))?;
    if record.checksum() != checksum {
        let entry = format!("entry {} does not match its checksum", record.index);
        return Err(Error::corrupt(path, entry));
    }
    Ok(record)
}

fn gap(path: &Path, index: u64) -> Error {
    Error::corrupt(path, format!("entry {index} is missing"))
}
