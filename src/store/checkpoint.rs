//! Moves what was committed from the write-ahead log into the database file, away from the thread that writes.

use std::{
    fs,
    path::{Path, PathBuf},
    thread::{self, JoinHandle},
    time::Duration,
};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use rusqlite::Connection;
use tracing::warn;

use crate::store::{Error, sqlite::Kind};

/// Runs passive checkpoints on a thread and a connection of its own until dropped.
#[derive(Debug)]
pub(super) struct Checkpointer {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// How often. Checkpoints are cheap when there is nothing to move.
const INTERVAL: Duration = Duration::from_millis(500);

impl Checkpointer {
    pub(super) fn start(path: &Path, kind: &Kind, pragmas: &str) -> Result<Self, Error> {
        let connection = super::sqlite::open(path, kind, pragmas)?;
        let (stop, stopped) = bounded(0);
        let owned = path.to_owned();
        let thread = thread::Builder::new()
            .name(String::from("checkpoint"))
            .spawn(move || run(&connection, &owned, &stopped))
            .map_err(Error::io("start a thread for", path))?;
        Ok(Checkpointer { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Checkpointer {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn run(connection: &Connection, path: &Path, stopped: &Receiver<()>) {
    while stopped.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
        if let Err(error) = connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(())) {
            // The writer meets the same disk, and it is the one that decides what an error means.
            warn!(path = %path.display(), %error, "checkpoint failed");
        }
    }
}

/// A write-ahead log that is written without a pause is never empty when a passive checkpoint ends, so it would grow
/// for ever: now and then the writer itself has to wait for the little that is left, and start it anew.
#[derive(Debug)]
pub(super) struct WalLimit {
    wal: PathBuf,
    commits: u32,
    limit: u64,
}

impl WalLimit {
    const FIRST: u64 = 64 << 20;
    const EVERY: u32 = 128;

    pub(super) fn new(path: &Path) -> Self {
        let mut wal = path.as_os_str().to_owned();
        wal.push("-wal");
        WalLimit { wal: PathBuf::from(wal), commits: 0, limit: Self::FIRST }
    }

    /// To be called by the writer after each commit.
    pub(super) fn after_commit(&mut self, connection: &Connection) {
        self.commits += 1;
        if self.commits < Self::EVERY {
            return;
        }
        self.commits = 0;
        let size = fs::metadata(&self.wal).map_or(0, |wal| wal.len());
        if size < self.limit {
            return;
        }
        // A reader may hold an old page for a while; then the next try comes when it has grown by as much again.
        let restarted = connection.busy_timeout(Duration::from_millis(50)).is_ok()
            && connection
                .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, i64>(0))
                .is_ok_and(|busy| busy == 0);
        let _ = connection.busy_timeout(Duration::from_secs(5));
        self.limit = if restarted { Self::FIRST } else { size + Self::FIRST / 2 };
    }
}
