//! A consistent copy of the state, taken beside the writer.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    time::Duration,
};

use rusqlite::{Connection, backup::Backup};

use crate::store::{Applied, Error, load, sqlite};

/// The state at one place in the log. While it lives, its pages can not be reclaimed: use it up soon.
#[derive(Debug)]
pub struct Snapshot {
    source: Source,
    applied: Applied,
}

#[derive(Debug)]
enum Source {
    /// An open read transaction: SQLite shows it the same state for as long as it is open.
    Live { connection: Connection, path: PathBuf },
    /// A file of its own, as it was received.
    File(PathBuf),
}

impl Snapshot {
    pub(super) fn take(path: &Path) -> Result<Self, Error> {
        let connection = sqlite::open_reader(path)?;
        connection.execute_batch("BEGIN").map_err(Error::sqlite("read", path))?;
        // The transaction begins with the first read.
        let applied = load::applied(&connection, path)?;
        Ok(Snapshot { source: Source::Live { connection, path: path.to_owned() }, applied })
    }

    /// A snapshot that came from elsewhere.
    ///
    /// # Errors
    /// When the file is not one.
    pub fn received(path: PathBuf) -> Result<Self, Error> {
        let applied = load::applied(&sqlite::open_reader(&path)?, &path)?;
        Ok(Snapshot { source: Source::File(path), applied })
    }

    /// Where in the log it stands, as the snapshot itself says.
    pub fn applied(&self) -> &Applied {
        &self.applied
    }

    /// Writes it to a file of its own, durably; without a write-ahead log. A received one is moved there.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn write_to(self, target: &Path) -> Result<(), Error> {
        match self.source {
            Source::File(path) if path == target => Ok(()),
            Source::File(path) => fs::rename(&path, target).map_err(Error::io("move", &path)),
            Source::Live { connection, path } => {
                copy(&connection, target).map_err(Error::sqlite("copy", &path))?;
                File::open(target)
                    .and_then(|file| file.sync_all())
                    .map_err(Error::io("sync", target))
            }
        }
    }
}

/// Pages per step. Between two steps nothing can change what the open transaction sees.
const STEP: i32 = 4096;

fn copy(source: &Connection, target: &Path) -> Result<(), rusqlite::Error> {
    let _ = fs::remove_file(target);
    let mut copy = Connection::open(target)?;
    copy.execute_batch("PRAGMA synchronous = OFF")?;
    Backup::new(source, &mut copy)?.run_to_completion(STEP, Duration::ZERO, None)?;
    // The copied header says that there is a write-ahead log; a file that travels has none.
    copy.pragma_update(None, "journal_mode", "DELETE")
}
