//! What is known of attempts on this machine's disk. Agent, launcher and shims may each die at any moment; this is what
//! the others go by.
//!
//! ```text
//! DIR/                      the worker's data directory (0700)
//!   contact                 when a leader was last known to listen
//!   agent.sock              here shims tell the agent that something happened
//!   launcher.sock .log      the process that forks shims
//!   attempts/12.0.1/        one per attempt that the controllers have not settled yet
//!     launch.json           by the agent, before the start: what to run
//!     shim.json             by the shim, once and for all: who supervises; then: who runs
//!     intent.json           by the agent, before it signals the shim: why to stop, and how soon
//!     output                by the job: stdout and stderr
//!     exit.json             by the shim: how it ended, and what is left of its tree
//!   finished/12.0.1/        settled; kept for a while for its output
//! ```
//!
//! `shim.json` is the claim: it is made by `link(2)`, which one process alone can win. So an attempt never gets two
//! shims, however often its start is asked for, and an agent that finds an unclaimed attempt after a crash can claim it
//! itself ("void") and be sure that a start still under way will come to nothing.

mod record;
mod retention;
mod scan;

use std::{
    fs::{self, DirBuilder, File, OpenOptions, Permissions},
    io::{self, ErrorKind, Write},
    os::{
        fd::AsRawFd,
        unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt},
    },
    path::{Path, PathBuf},
};

use serde::{Serialize, de::DeserializeOwned};

pub use self::{
    record::{Claim, Ended, Exit, Held, Intent, Launch, Prepared, StopCause, Stopped, Tree},
    retention::{Retention, prune},
    scan::{Found, FoundState, Status, scan},
};
use crate::{
    model::AttemptId,
    worker::{clock::BootTime, process::Process},
};

#[derive(Clone, Debug)]
pub struct DataDir {
    root: PathBuf,
}

/// The directory of one attempt.
#[derive(Clone, Debug)]
pub struct AttemptDir {
    path: PathBuf,
}

/// A record that was written and may not be on the disk yet.
#[derive(Debug)]
pub struct Unsynced {
    file: File,
    directory: File,
}

/// A path to a socket in a directory whose own path may be too long for a socket's address.
#[derive(Debug)]
pub struct SocketPath {
    _directory: File,
    path: PathBuf,
}

impl DataDir {
    /// Names a directory that exists already.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        DataDir { root: root.into() }
    }

    /// Makes the directory and what it needs, for the own user only.
    ///
    /// # Errors
    /// Something of it cannot be made.
    pub fn create(root: &Path) -> io::Result<Self> {
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(0o700);
        builder.create(root)?;
        fs::set_permissions(root, Permissions::from_mode(0o700))?;
        let dir = DataDir { root: root.canonicalize()? };
        builder.create(dir.attempts())?;
        builder.create(dir.finished())?;
        Ok(dir)
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    pub fn attempts(&self) -> PathBuf {
        self.root.join("attempts")
    }

    pub fn finished(&self) -> PathBuf {
        self.root.join("finished")
    }

    pub fn attempt(&self, attempt: AttemptId) -> AttemptDir {
        AttemptDir { path: self.attempts().join(attempt.to_string()) }
    }

    /// The directory of an attempt that may be settled already; `None` when nothing is left of it.
    pub fn find(&self, attempt: AttemptId) -> Option<AttemptDir> {
        let places = [self.attempts(), self.finished()];
        let mut paths = places.iter().map(|place| place.join(attempt.to_string()));
        paths.find(|path| path.is_dir()).map(|path| AttemptDir { path })
    }

    /// Puts an attempt aside that the controllers have settled. Its output stays until [`prune`] takes it.
    ///
    /// # Errors
    /// It cannot be moved; that it is gone already is no error.
    pub fn settle(&self, attempt: AttemptId) -> io::Result<()> {
        let (from, to) = (self.attempt(attempt).path, self.finished().join(attempt.to_string()));
        match fs::rename(&from, &to) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty => {
                fs::remove_dir_all(&to)?;
                fs::rename(&from, &to)
            }
            other => other,
        }
    }

    /// # Errors
    /// The directory cannot be opened.
    pub fn socket(&self, name: &str) -> io::Result<SocketPath> {
        let directory = File::open(&self.root)?;
        let path = PathBuf::from(format!("/proc/self/fd/{}/{name}", directory.as_raw_fd()));
        Ok(SocketPath { _directory: directory, path })
    }
}

impl Unsynced {
    /// # Errors
    /// The disk does not take it.
    pub fn sync(self) -> io::Result<()> {
        self.file.sync_all()?;
        self.directory.sync_all()
    }
}

impl AsRef<Path> for SocketPath {
    fn as_ref(&self) -> &Path {
        &self.path
    }
}

impl AttemptDir {
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn output(&self) -> PathBuf {
        self.path.join("output")
    }

    /// Makes the directory ready to be launched from; `false` when it exists already and nothing was done.
    ///
    /// # Errors
    /// It cannot be made or written.
    pub fn create(&self, launch: Launch, boot_id: &str) -> io::Result<bool> {
        match DirBuilder::new().mode(0o700).create(&self.path) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => return Ok(false),
            other => other?,
        }
        let prepared =
            Prepared { boot_id: boot_id.to_owned(), prepared_at: BootTime::now(), launch };
        let written = new_file(&self.path.join("launch.json"))
            .and_then(|mut file| file.write_all(&to_json(&prepared)));
        match written {
            Ok(()) => Ok(true),
            Err(error) => {
                fs::remove_dir_all(&self.path)?;
                Err(error)
            }
        }
    }

    /// # Errors
    /// It cannot be read, or is incomplete: then nothing can have been launched from it.
    pub fn prepared(&self) -> io::Result<Prepared> {
        Ok(serde_json::from_slice(&fs::read(self.path.join("launch.json"))?)?)
    }

    /// Becomes the one supervisor of this attempt; `None` when there is, or was, another.
    ///
    /// # Errors
    /// The claim cannot be written.
    pub fn claim(&self, claim: &Claim) -> io::Result<Option<File>> {
        let draft = self.path.join(format!("shim.json.{}", std::process::id()));
        let mut file = new_file(&draft)?;
        let linked = write_line(&mut file, claim)
            .and_then(|()| fs::hard_link(&draft, self.path.join("shim.json")));
        fs::remove_file(&draft)?;
        match linked {
            Ok(()) => Ok(Some(file)),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Who has claimed this attempt, and the job's main process once it runs.
    ///
    /// # Errors
    /// The claim cannot be read.
    pub fn claimed(&self) -> io::Result<Option<(Claim, Option<Process>)>> {
        let text = match fs::read_to_string(self.path.join("shim.json")) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            other => other?,
        };
        let mut lines = text.lines();
        let claim = serde_json::from_str(lines.next().unwrap_or_default())?;
        let main = lines.next().and_then(|line| serde_json::from_str(line).ok());
        Ok(Some((claim, main)))
    }

    /// # Errors
    /// It cannot be written.
    pub fn write_intent(&self, intent: &Intent) -> io::Result<()> {
        self.replace("intent.json", intent).map(drop)
    }

    pub fn intent(&self) -> Option<Intent> {
        read_complete(&self.path.join("intent.json"))
    }

    /// Returns once the record would survive a loss of power. The rename comes first, so that on common filesystems one
    /// commit carries both.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write_exit(&self, exit: &Exit) -> io::Result<()> {
        self.publish_exit(exit)?.sync()
    }

    /// For all to see, but lost with the machine's power until it is [synced](Unsynced::sync).
    ///
    /// # Errors
    /// It cannot be written.
    pub fn publish_exit(&self, exit: &Exit) -> io::Result<Unsynced> {
        let directory = File::open(&self.path)?;
        Ok(Unsynced { file: self.replace("exit.json", exit)?, directory })
    }

    /// A record cut short by a loss of power counts as none.
    pub fn exit(&self) -> Option<Exit> {
        read_complete(&self.path.join("exit.json"))
    }

    fn replace(&self, name: &str, value: &impl Serialize) -> io::Result<File> {
        let draft = self.path.join(format!("{name}.{}", std::process::id()));
        let mut file = File::create(&draft)?;
        file.write_all(&to_json(value))?;
        fs::rename(&draft, self.path.join(name))?;
        Ok(file)
    }
}

/// Appends one line in one write, so that a reader sees all of it or nothing.
///
/// # Errors
/// It cannot be written.
pub fn write_line(file: &mut File, value: &impl Serialize) -> io::Result<()> {
    let mut line = to_json(value);
    line.push(b'\n');
    file.write_all(&line)
}

fn new_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

fn to_json(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("our records have string keys only")
}

fn read_complete<T: DeserializeOwned>(path: &Path) -> Option<T> {
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

#[cfg(test)]
mod tests;
