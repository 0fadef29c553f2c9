//! How long settled attempts are kept for their output.

use std::{
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use super::DataDir;

/// What is kept, newest first, until one of these is reached.
#[derive(Clone, Copy, Debug)]
pub struct Retention {
    pub count: usize,
    /// On the disk, as blocks.
    pub bytes: u64,
    pub age: Duration,
}

impl Default for Retention {
    fn default() -> Self {
        Retention { count: 10_000, bytes: 10 << 30, age: Duration::from_secs(7 * 86_400) }
    }
}

/// Removes settled attempts beyond `retention`, and says how many.
///
/// # Errors
/// The directory of settled attempts cannot be read, or one cannot be removed.
pub fn prune(dir: &DataDir, retention: &Retention) -> io::Result<usize> {
    let mut settled = fs::read_dir(dir.finished())?
        .map(|entry| Settled::read(entry?.path()))
        .collect::<io::Result<Vec<_>>>()?;
    settled.sort_by_key(|settled| std::cmp::Reverse(settled.at));
    let now = SystemTime::now();
    let (mut kept, mut bytes, mut removed) = (0, 0, 0);
    for settled in settled {
        let age = now.duration_since(settled.at).unwrap_or_default();
        let over = kept >= retention.count || bytes + settled.bytes > retention.bytes;
        if over || age > retention.age {
            fs::remove_dir_all(&settled.path)?;
            removed += 1;
        } else {
            kept += 1;
            bytes += settled.bytes;
        }
    }
    Ok(removed)
}

struct Settled {
    path: PathBuf,
    at: SystemTime,
    bytes: u64,
}

impl Settled {
    fn read(path: PathBuf) -> io::Result<Self> {
        // A move leaves an attempt's own times alone; its last change was the record of its end.
        let at = fs::metadata(&path)?.modified()?;
        let bytes = size_on_disk(&path)?;
        Ok(Settled { path, at, bytes })
    }
}

fn size_on_disk(directory: &Path) -> io::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(directory)? {
        bytes += entry?.metadata()?.blocks() * 512;
    }
    Ok(bytes)
}
