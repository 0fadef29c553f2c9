//! What is kept on disk: the log and the state, each in an SQLite file of its own. No SQL leaves this room.

mod history;

pub use self::history::{History, JobQuery, TaskQuery};

/// Why the store can not be used. Every one of these is final for the process.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{context}: {source}")]
    Io {
        context: String,
        #[source]
        source: std::io::Error,
    },
    #[error("the data directory {path} is in use by process {pid}")]
    Locked { path: String, pid: String },
    #[error(
        "{path} belongs to controller {found}, and this is controller {expected}: point --data-dir at its own directory"
    )]
    OtherNode { path: String, found: u64, expected: u64 },
    #[error("{path} belongs to cluster {found}, not to {expected}")]
    OtherCluster { path: String, found: String, expected: String },
    #[error(
        "{file} is damaged ({record}): move the data directory away, then re-add this controller with `drigs cluster remove` and `drigs cluster add`"
    )]
    Corrupt { file: String, record: String },
}
