//! What is kept on disk: the log and the state, each in an SQLite file of its own. No SQL leaves this room.

pub mod backup;
pub mod piece;

mod checkpoint;
mod data_dir;
mod error;
mod history;
mod load;
mod log_db;
mod rows;
mod snapshot;
mod sqlite;
mod state_db;

pub use self::data_dir::{DataDir, Recovery};
pub use self::error::Error;
pub use self::history::{History, JobQuery, Progress, TaskQuery};
pub use self::log_db::{Done, LogContents, LogDb, LogHead, Position, Record, Vote};
pub use self::rows::Rows;
pub use self::snapshot::Snapshot;
pub use self::state_db::{Applied, Loaded, Snapshots, StateDb};

/// Makes every later write to the log fail, as a dying disk does.
#[cfg(test)]
pub(crate) fn sabotage(log: &std::path::Path) {
    let connection = rusqlite::Connection::open(log).expect("the log is there");
    connection.execute_batch("DROP TABLE entries").expect("nobody holds it for long");
}

#[cfg(test)]
mod tests;
