use std::{
    io,
    path::{Path, PathBuf},
};

/// Why the store can not be used. Every one of these is final for the process: what a disk that failed once really
/// holds is known only after a restart.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the data directory {path} is in use by process {pid}")]
    Locked { path: PathBuf, pid: String },
    #[error(
        "the data directory {path} belongs to controller {found}, and this is controller {expected}: give each its own"
    )]
    OtherNode { path: PathBuf, found: u64, expected: u64 },
    #[error("{why} (so says {path}/node.json)")]
    Dismissed { path: PathBuf, why: String },
    #[error("{path} belongs to cluster {found}, not to cluster {expected}")]
    OtherCluster { path: PathBuf, found: String, expected: String },
    #[error("{path} was written by a newer DRIGS (format {found}; this one knows up to {known})")]
    Newer { path: PathBuf, found: i64, known: i64 },
    #[error(
        "the cluster of {path} has gone on to feature level {found}, and this DRIGS knows up to {known}: start the newer one"
    )]
    NewerState { path: PathBuf, found: u32, known: u32 },
    #[error("entry {index} of the log is of a newer DRIGS ({why}): upgrade this controller")]
    NewerEntry { index: u64, why: String },
    #[error(
        "{path} is damaged ({record}): move the data directory away and re-add this controller with `drigs cluster remove` and `drigs cluster add`"
    )]
    Corrupt { path: PathBuf, record: String },
    #[error(
        "the recovery of {path} was begun and not ended: run `drigs cluster recover --data-dir {path}` again"
    )]
    Recovering { path: PathBuf },
    #[error("{path} is not a sound backup: {problem}")]
    Backup { path: PathBuf, problem: String },
    #[error("cannot {doing} {path}: {source}")]
    Io { doing: &'static str, path: PathBuf, source: io::Error },
    #[error("cannot {doing} {path}: {source}")]
    Sqlite { doing: &'static str, path: PathBuf, source: rusqlite::Error },
    /// An earlier error ended the thread that writes.
    #[error("{path} is closed")]
    Closed { path: PathBuf },
}

impl Error {
    pub(super) fn corrupt(path: &Path, record: impl Into<String>) -> Self {
        Error::Corrupt { path: path.to_owned(), record: record.into() }
    }

    pub(super) fn io(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Error::Io { doing, path, source }
    }

    /// Tells damage from everything else that SQLite may say.
    pub(super) fn sqlite(
        doing: &'static str,
        path: &Path,
    ) -> impl Fn(rusqlite::Error) -> Self + use<> {
        use rusqlite::ErrorCode::{DatabaseCorrupt, NotADatabase};
        let path = path.to_owned();
        move |source| match source.sqlite_error_code() {
            Some(NotADatabase | DatabaseCorrupt) => Error::corrupt(&path, source.to_string()),
            _ => Error::Sqlite { doing, path: path.clone(), source },
        }
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        io::Error::other(error.to_string())
    }
}
