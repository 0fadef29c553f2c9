//! A controller's directory: used by one process, and bound to one controller of one cluster.

use std::{
    fs::{self, File, OpenOptions},
    io::{Read as _, Write as _},
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
};

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use crate::store::{Error, sqlite::sync_dir};

/// Holds the lock until it is closed or dropped.
#[derive(Debug)]
pub struct DataDir {
    path: PathBuf,
    identity: Mutex<Identity>,
    clean: bool,
    lock: Mutex<Option<File>>,
}

/// What `node.json` says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Identity {
    format: u32,
    node_id: u64,
    /// Absent until the controller was let into a cluster. A directory that lost it has lost everything.
    cluster_id: Option<String>,
    /// Why it must never be used again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    dismissed: Option<String>,
    /// Set while the cluster is being recovered from this directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    recovering: Option<Recovery>,
}

/// What a recovery makes of a directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recovery {
    /// The cluster's new id.
    pub cluster_id: String,
    /// Of the entries that it adds; all others have lower ones.
    pub term: u64,
}

const FORMAT: u32 = 1;
const LOCK: &str = "LOCK";
const IDENTITY: &str = "node.json";
const LOG: &str = "log.db";
/// A link to the file of the present generation: a snapshot is installed by replacing the link.
const STATE: &str = "state.db";
/// There while nobody has opened the directory since it was last closed in order.
const CLEAN: &str = "CLEAN";

impl DataDir {
    /// Opens the directory of controller `node_id`, making it if it is not there.
    ///
    /// # Errors
    /// When another process uses it, or it is another's or incomplete.
    pub fn open(path: &Path, node_id: u64) -> Result<Self, Error> {
        let dir = DataDir::open_for_recovery(path, node_id)?;
        match dir.recovering() {
            None => Ok(dir),
            Some(_) => Err(Error::Recovering { path: path.to_owned() }),
        }
    }

    /// The number of the controller whose directory this is, if it is one's.
    ///
    /// # Errors
    /// When it can not be read.
    pub fn node_id(path: &Path) -> Result<Option<u64>, Error> {
        Ok(read_identity(&path.join(IDENTITY))?.map(|identity| identity.node_id))
    }

    /// As [`DataDir::open`], and also where a recovery was begun and not ended.
    ///
    /// # Errors
    /// When another process uses it, or it is another's or incomplete.
    pub fn open_for_recovery(path: &Path, node_id: u64) -> Result<Self, Error> {
        fs::create_dir_all(path).map_err(Error::io("make", path))?;
        let lock = lock(path)?;
        let identity = match read_identity(&path.join(IDENTITY))? {
            Some(identity) => identity,
            None => {
                for file in [LOG, STATE] {
                    if path.join(file).exists() {
                        let record = format!("there is a {file}, but no {IDENTITY}");
                        return Err(Error::corrupt(path, record));
                    }
                }
                let fresh = Identity {
                    format: FORMAT,
                    node_id,
                    cluster_id: None,
                    dismissed: None,
                    recovering: None,
                };
                write_identity(path, &fresh)?;
                fresh
            }
        };
        if identity.node_id != node_id {
            return Err(Error::OtherNode {
                path: path.to_owned(),
                found: identity.node_id,
                expected: node_id,
            });
        }
        if let Some(why) = identity.dismissed {
            return Err(Error::Dismissed { path: path.to_owned(), why });
        }
        for file in [LOG, STATE] {
            if identity.cluster_id.is_some() && !path.join(file).exists() {
                return Err(Error::corrupt(&path.join(file), "it is gone"));
            }
        }
        let clean = fs::remove_file(path.join(CLEAN)).is_ok();
        Ok(DataDir {
            path: path.to_owned(),
            identity: Mutex::new(identity),
            clean,
            lock: Mutex::new(Some(lock)),
        })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn log(&self) -> PathBuf {
        self.path.join(LOG)
    }

    /// Where the link to the present state is.
    pub fn state(&self) -> PathBuf {
        self.path.join(STATE)
    }

    /// Whether it was closed in order before it was opened now.
    pub fn was_closed(&self) -> bool {
        self.clean
    }

    /// Which cluster it was let into.
    pub fn cluster_id(&self) -> Option<String> {
        self.identity().cluster_id.clone()
    }

    /// Binds it to a cluster, durably.
    ///
    /// # Errors
    /// When it belongs to another one, or can not be written.
    pub fn join(&self, cluster_id: &str) -> Result<(), Error> {
        let mut identity = self.identity();
        if let Some(found) = &identity.cluster_id {
            return match found == cluster_id {
                true => Ok(()),
                false => Err(Error::OtherCluster {
                    path: self.path.clone(),
                    found: found.clone(),
                    expected: cluster_id.to_owned(),
                }),
            };
        }
        let joined = Identity { cluster_id: Some(cluster_id.to_owned()), ..identity.clone() };
        write_identity(&self.path, &joined)?;
        *identity = joined;
        Ok(())
    }

    /// The recovery that was begun and not ended.
    pub fn recovering(&self) -> Option<Recovery> {
        self.identity().recovering.clone()
    }

    /// Nobody but a recovery opens it from now on, until that has ended.
    ///
    /// # Errors
    /// When it can not be written.
    pub fn begin_recovery(&self, recovery: &Recovery) -> Result<(), Error> {
        self.rewrite(|identity| identity.recovering = Some(recovery.clone()))
    }

    /// The cluster has its new id.
    ///
    /// # Errors
    /// When it can not be written.
    pub fn end_recovery(&self) -> Result<(), Error> {
        self.rewrite(|identity| {
            if let Some(recovered) = identity.recovering.take() {
                identity.cluster_id = Some(recovered.cluster_id);
            }
        })
    }

    fn rewrite(&self, change: impl FnOnce(&mut Identity)) -> Result<(), Error> {
        let mut identity = self.identity();
        let mut changed = identity.clone();
        change(&mut changed);
        write_identity(&self.path, &changed)?;
        *identity = changed;
        Ok(())
    }

    /// From now on nobody opens it as this controller, durably.
    ///
    /// # Errors
    /// When it can not be written.
    pub fn dismiss(&self, why: &str) -> Result<(), Error> {
        self.rewrite(|identity| identity.dismissed = Some(why.to_owned()))
    }

    /// Lets others have it. `in_order`: everything was written and closed.
    ///
    /// # Errors
    /// When it can not be written.
    pub fn close(&self, in_order: bool) -> Result<(), Error> {
        let lock = self.lock.lock().unwrap_or_else(PoisonError::into_inner).take();
        if lock.is_none() || !in_order {
            return Ok(());
        }
        let path = self.path.join(CLEAN);
        File::create(&path).map_err(Error::io("write", &path))?;
        sync_dir(&self.path)
    }

    fn identity(&self) -> MutexGuard<'_, Identity> {
        self.identity.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn lock(path: &Path) -> Result<File, Error> {
    let file = path.join(LOCK);
    let mut lock = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(&file)
        .map_err(Error::io("open", &file))?;
    match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(rustix::io::Errno::WOULDBLOCK) => {
            let mut pid = String::new();
            let _ = lock.read_to_string(&mut pid);
            let pid = match pid.trim() {
                "" => String::from("of an unknown number"),
                pid => pid.to_owned(),
            };
            return Err(Error::Locked { path: path.to_owned(), pid });
        }
        Err(errno) => return Err(Error::io("lock", &file)(errno.into())),
    }
    lock.set_len(0)
        .and_then(|()| write!(lock, "{}", std::process::id()))
        .map_err(Error::io("write", &file))?;
    Ok(lock)
}

fn read_identity(path: &Path) -> Result<Option<Identity>, Error> {
    let text = match fs::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Error::io("read", path)(error)),
    };
    let identity: Identity =
        serde_json::from_slice(&text).map_err(|fault| Error::corrupt(path, fault.to_string()))?;
    if identity.format > FORMAT {
        return Err(Error::Newer {
            path: path.to_owned(),
            found: identity.format.into(),
            known: FORMAT.into(),
        });
    }
    Ok(Some(identity))
}

/// Replaces the file as a whole, so that a power cut leaves the old one or the new one.
fn write_identity(dir: &Path, identity: &Identity) -> Result<(), Error> {
    let (path, draft) = (dir.join(IDENTITY), dir.join("node.json.new"));
    let text = serde_json::to_vec_pretty(identity).expect("plain data");
    let written = File::create(&draft)
        .and_then(|mut file| file.write_all(&text).and_then(|()| file.sync_all()))
        .and_then(|()| fs::rename(&draft, &path));
    written.map_err(Error::io("write", &path))?;
    sync_dir(dir)
}
