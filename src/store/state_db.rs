//! `state.db`: the state as rows, together with the place in the log that it stands for.
//!
//! A transaction holds whole log entries, so after a crash the file may be behind, and is never torn: the log catches it
//! up. Commits do not wait for the disk; `take_durable` does, before the log may let go of what it still holds.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use rusqlite::{Connection, params};

use crate::state::{Counters, State};
use crate::store::{
    DataDir, Error, Position, Rows,
    checkpoint::{Checkpointer, WalLimit},
    load,
    snapshot::Snapshot,
    sqlite::{self, Kind},
};

/// Where in the log the rows stand, and what else must change together with them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    pub position: Option<Position>,
    /// Who the members are, in the raft room's own encoding.
    pub membership: Vec<u8>,
    /// Every controller that was ever a member: numbers are not used again.
    pub members_ever: BTreeSet<u64>,
    /// Of everything applied so far.
    pub hash: [u8; 32],
    pub cluster_id: Option<String>,
}

/// What was found in the file.
#[derive(Debug)]
pub struct Loaded {
    pub state: State,
    pub applied: Applied,
}

/// The connection that writes.
#[derive(Debug)]
pub struct StateDb {
    connection: Connection,
    files: StateFiles,
    wal_limit: WalLimit,
    checkpointer: Checkpointer,
}

/// Where the present file is; shared with those that read beside the writer.
#[derive(Clone, Debug)]
pub(super) struct StateFiles {
    link: PathBuf,
    current: Arc<Mutex<PathBuf>>,
}

pub(super) const STATE: Kind =
    Kind { application_id: 0x4452_5354, migrations: &[include_str!("migrations/state_1.sql")] };
const PRAGMAS: &str = "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; \
                       PRAGMA wal_autocheckpoint = 0; PRAGMA cache_size = -65536;";
/// A file above this size is only checked page by page when it was not closed in order.
const QUICK_CHECK_BELOW: u64 = 256 << 20;

impl StateDb {
    /// Opens and loads the present file; a new one holds a new cluster's state.
    ///
    /// # Errors
    /// When it can not be read, or is damaged.
    pub fn open(dir: &DataDir) -> Result<(StateDb, Loaded), Error> {
        let files = StateFiles::open(dir.state())?;
        let path = files.current();
        let small = fs::metadata(&path).is_ok_and(|file| file.len() < QUICK_CHECK_BELOW);
        let check = small || !dir.was_closed();
        let (db, loaded) = StateDb::open_file(files, &path, check)?;
        // What a crashed process left only in the kernel's memory must not count as durable.
        sqlite::sync_with_wal(&path)?;
        Ok((db, loaded))
    }

    fn open_file(files: StateFiles, path: &Path, check: bool) -> Result<(StateDb, Loaded), Error> {
        let connection = sqlite::open(path, &STATE, PRAGMAS)?;
        if check {
            sqlite::quick_check(&connection, path)?;
        }
        let loaded = load::load(&connection, path)?;
        let checkpointer = Checkpointer::start(path, &STATE, PRAGMAS)?;
        let db = StateDb { connection, files, wal_limit: WalLimit::new(path), checkpointer };
        Ok((db, loaded))
    }

    /// Writes the rows that whole log entries changed, and where that leads.
    ///
    /// # Errors
    /// When the disk refuses; then nothing of it was written.
    pub fn write(
        &mut self,
        rows: &Rows,
        counters: &Counters,
        applied: &Applied,
    ) -> Result<(), Error> {
        let path = self.files.current();
        let fault = Error::sqlite("write", &path);
        let transaction = self.connection.transaction().map_err(&fault)?;
        rows.write(&transaction).map_err(&fault)?;
        write_meta(&transaction, counters, applied).map_err(&fault)?;
        transaction.commit().map_err(&fault)?;
        self.wal_limit.after_commit(&self.connection);
        Ok(())
    }

    /// Replaces everything by the snapshot in `file`, which is used up. The old file stays the present one until the
    /// new one is complete and durable.
    ///
    /// # Errors
    /// When the snapshot is damaged or another cluster's, or the disk refuses.
    pub fn install(&mut self, file: &Path, cluster_id: Option<&str>) -> Result<Loaded, Error> {
        verify(file, cluster_id)?;
        let old = self.files.current();
        let new = self.files.next();
        remove_with_wal(&new);
        fs::rename(file, &new).map_err(Error::io("install", &new))?;
        let (db, loaded) = StateDb::open_file(self.files.clone(), &new, false)?;
        sqlite::sync_with_wal(&new)?;
        self.files.switch_to(&new)?;
        *self = db;
        remove_with_wal(&old);
        Ok(loaded)
    }

    /// For those that read beside the writer.
    pub(super) fn files(&self) -> StateFiles {
        self.files.clone()
    }

    /// Takes snapshots beside the writer.
    pub fn snapshots(&self) -> Snapshots {
        Snapshots { files: self.files() }
    }

    /// Writes back everything, so that the next start finds a file without a write-ahead log.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn close(self) -> Result<(), Error> {
        drop(self.checkpointer);
        let path = self.files.current();
        self.connection
            .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
            .map_err(Error::sqlite("close", &path))?;
        sqlite::sync_with_wal(&path)
    }
}

/// Takes snapshots of the state, each on a connection of its own.
#[derive(Clone, Debug)]
pub struct Snapshots {
    files: StateFiles,
}

impl Snapshots {
    /// The state as it was committed last; it stays as it is for as long as the snapshot lives.
    ///
    /// # Errors
    /// When the file can not be read.
    pub fn take(&self) -> Result<Snapshot, Error> {
        Snapshot::take(&self.files.current())
    }

    /// The same, once it would survive a power cut.
    ///
    /// # Errors
    /// When the file can not be read, or the disk refuses.
    pub fn take_durable(&self) -> Result<Snapshot, Error> {
        let path = self.files.current();
        let snapshot = Snapshot::take(&path)?;
        sqlite::sync_with_wal(&path)?;
        Ok(snapshot)
    }
}

impl StateFiles {
    fn open(link: PathBuf) -> Result<Self, Error> {
        let dir = link.parent().expect("a file in the data directory");
        if fs::symlink_metadata(&link).is_err() {
            symlink("state-1.db", &link).map_err(Error::io("make", &link))?;
            sqlite::sync_dir(dir)?;
        }
        let target = fs::read_link(&link).map_err(Error::io("follow", &link))?;
        let current = dir.join(target);
        for entry in fs::read_dir(dir).map_err(Error::io("list", dir))?.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let generation = name.starts_with("state-") && name.ends_with(".db");
            if (generation && entry.path() != current) || name.starts_with("incoming-") {
                remove_with_wal(&entry.path());
            }
        }
        Ok(StateFiles { link, current: Arc::new(Mutex::new(current)) })
    }

    pub(super) fn current(&self) -> PathBuf {
        self.current.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn next(&self) -> PathBuf {
        let current = self.current();
        let name = current.file_stem().unwrap_or_default().to_string_lossy();
        let generation: u64 =
            name.rsplit('-').next().and_then(|number| number.parse().ok()).unwrap_or(0);
        self.link.with_file_name(format!("state-{}.db", generation + 1))
    }

    /// The one moment at which the state is replaced: before it the old file counts, after it the new one.
    fn switch_to(&self, path: &Path) -> Result<(), Error> {
        let draft = self.link.with_extension("db.new");
        let _ = fs::remove_file(&draft);
        let name = path.file_name().expect("a file in the data directory");
        symlink(name, &draft).map_err(Error::io("make", &draft))?;
        fs::rename(&draft, &self.link).map_err(Error::io("replace", &self.link))?;
        sqlite::sync_dir(self.link.parent().expect("a file in the data directory"))?;
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = path.to_owned();
        Ok(())
    }
}

fn write_meta(
    connection: &Connection,
    counters: &Counters,
    applied: &Applied,
) -> Result<(), rusqlite::Error> {
    let mut replace =
        connection.prepare_cached("INSERT OR REPLACE INTO meta (key, value) VALUES (?1, ?2)")?;
    if let Some(Position { term, index }) = applied.position {
        replace.execute(params!["applied_term", term as i64])?;
        replace.execute(params!["applied_index", index as i64])?;
    }
    if let Some(cluster_id) = &applied.cluster_id {
        replace.execute(params!["cluster_id", cluster_id])?;
    }
    let counters = serde_json::to_string(counters).expect("plain data");
    replace.execute(params!["counters", counters])?;
    replace.execute(params!["membership", applied.membership])?;
    let ever = serde_json::to_string(&applied.members_ever).expect("plain data");
    replace.execute(params!["members_ever", ever])?;
    replace.execute(params!["state_hash", applied.hash])?;
    Ok(())
}

fn verify(file: &Path, cluster_id: Option<&str>) -> Result<(), Error> {
    let connection = sqlite::open_reader(file)?;
    sqlite::check(&connection, file, &STATE)?;
    sqlite::quick_check(&connection, file)?;
    let found = load::applied(&connection, file)?.cluster_id;
    match (found, cluster_id) {
        (Some(found), Some(expected)) if found != expected => {
            Err(Error::OtherCluster { path: file.to_owned(), found, expected: expected.to_owned() })
        }
        _ => Ok(()),
    }
}

fn remove_with_wal(path: &Path) {
    for suffix in ["", "-wal", "-shm"] {
        let mut name = path.as_os_str().to_owned();
        name.push(suffix);
        // What is not there, or can not be removed, is looked for again at the next start.
        let _ = fs::remove_file(PathBuf::from(name));
    }
}
