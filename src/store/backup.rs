//! A backup: one file that holds the state at one place in the log, says what it is, and can be checked by itself.
//!
//! ```text
//! "DRIGS-BACKUP 1\n"
//! length (u32) and header (JSON)
//! length (u32) and piece (zstd, a mebibyte of the database at most)   again and again
//! 0 (u32), length of the database (u64), its BLAKE3 (32 bytes)
//! BLAKE3 of everything before (32 bytes)
//! ```
//! Numbers are little-endian.

use std::{
    fs::{self, File},
    io::{self, BufReader, BufWriter, Read, Write},
    path::{Path, PathBuf},
};

use rusqlite::Connection;
use serde::{Deserialize, Serialize};

use crate::store::{
    Error, Position, Snapshot, load,
    piece::{Cutter, Joiner, PIECE},
    sqlite,
    state_db::STATE,
};

/// What a backup says of itself. Fields are only added.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    pub contents: Contents,
    /// The controller that made it, and its version.
    pub node_id: u64,
    pub version: String,
    /// When, in milliseconds since the Unix epoch.
    pub taken_at: u64,
}

/// What follows from the database itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contents {
    pub cluster_id: String,
    pub applied_term: u64,
    pub applied_index: u64,
    /// Of everything applied so far, in hexadecimal.
    pub state_hash: String,
    pub feature_level: u32,
    pub jobs_submitted: u64,
    /// Tasks that had a place on a worker.
    pub active_tasks: u64,
    pub workers: u64,
}

/// Who makes a backup, and when.
#[derive(Clone, Debug)]
pub struct Origin {
    pub node_id: u64,
    pub version: String,
    pub taken_at: u64,
}

const MAGIC: &[u8] = b"DRIGS-BACKUP 1\n";
const MOST_HEADER: usize = 1 << 20;
/// zstd may make a piece that does not compress a little longer.
const MOST_PIECE: usize = PIECE + (PIECE >> 4);
const ENDING: &str = "drigs";

/// Writes `snapshot` to `out`. `scratch` is made, and removed again: a slow reader must not hold up the database.
///
/// # Errors
/// When the snapshot can not be read, or `out` does not take it.
pub fn write(
    snapshot: Snapshot,
    scratch: &Path,
    origin: Origin,
    out: &mut impl Write,
) -> Result<Header, Error> {
    let scratch = Scratch(scratch.to_owned());
    snapshot.write_to(&scratch.0)?;
    let header = Header {
        contents: describe(&scratch.0)?,
        node_id: origin.node_id,
        version: origin.version,
        taken_at: origin.taken_at,
    };
    let sent = send(&header, &scratch.0, &mut Hashing::new(out));
    sent.map_err(Error::io("write the backup of", &scratch.0))?;
    Ok(header)
}

/// Writes `snapshot` to `target`: to a draft beside it first, which takes its name once it was read back and found
/// sound. What was there before stays until then.
///
/// # Errors
/// When the disk refuses, or what was written does not read back.
pub fn save(snapshot: Snapshot, target: &Path, origin: Origin) -> Result<Header, Error> {
    let draft = Scratch(with_ending(target, "part"));
    let create = Error::io("write", &draft.0);
    let file = File::create(&draft.0).map_err(create)?;
    let mut out = BufWriter::new(file);
    write(snapshot, &with_ending(target, "database"), origin, &mut out)?;
    let file = out.into_inner().map_err(|fault| fault.into_error());
    file.and_then(|file| file.sync_all()).map_err(Error::io("write", &draft.0))?;
    let header = inspect(&draft.0, &with_ending(target, "check"))?;
    fs::rename(&draft.0, target).map_err(Error::io("write", target))?;
    sqlite::sync_dir(parent(target))?;
    Ok(header)
}

/// Checks all of the backup in `file`: its hashes, the database and that the header speaks the truth. `scratch` is made,
/// and removed again.
///
/// # Errors
/// Says what is wrong with it.
pub fn inspect(file: &Path, scratch: &Path) -> Result<Header, Error> {
    let scratch = Scratch(scratch.to_owned());
    unpack(file, &scratch.0)
}

/// The same, and leaves the database in `database`, durably.
///
/// # Errors
/// Says what is wrong with it.
pub fn unpack(file: &Path, database: &Path) -> Result<Header, Error> {
    let unsound = |problem: String| Error::Backup { path: file.to_owned(), problem };
    let source = File::open(file).map_err(Error::io("open", file))?;
    let mut source = Hashing::new(BufReader::new(source));
    let header = receive(&mut source, database).map_err(|fault| match fault.kind() {
        io::ErrorKind::UnexpectedEof => unsound(String::from("it is cut off")),
        io::ErrorKind::InvalidData => unsound(fault.to_string()),
        _ => Error::io("unpack", file)(fault),
    })?;
    let connection = sqlite::open_reader(database)?;
    sqlite::check(&connection, database, &STATE)?;
    sqlite::quick_check(&connection, database)?;
    drop(connection);
    let found = describe(database)?;
    if found != header.contents {
        return Err(unsound(String::from("what it says of itself is not what it holds")));
    }
    Ok(header)
}

/// Makes the database that [`unpack`] left another cluster's.
///
/// # Errors
/// When it can not be written.
pub fn rename_cluster(database: &Path, cluster_id: &str) -> Result<(), Error> {
    let fault = Error::sqlite("write", database);
    let connection = Connection::open(database).map_err(&fault)?;
    connection
        .execute("INSERT OR REPLACE INTO meta (key, value) VALUES ('cluster_id', ?1)", [cluster_id])
        .map_err(&fault)?;
    // In another cluster no number was used yet.
    connection.execute("DELETE FROM meta WHERE key = 'members_ever'", []).map_err(&fault)?;
    drop(connection);
    sqlite::sync_with_wal(database)
}

/// Removes all but the newest `keep` backups in `dir`, by their names, and what a crash left of drafts.
///
/// # Errors
/// When the directory can not be read or changed.
pub fn keep_newest(dir: &Path, keep: usize) -> Result<(), Error> {
    let entries = fs::read_dir(dir).map_err(Error::io("list", dir))?;
    let mut backups: Vec<PathBuf> = Vec::new();
    for path in entries.flatten().map(|entry| entry.path()) {
        match path.extension().and_then(|ending| ending.to_str()) {
            Some(ENDING) => backups.push(path),
            Some("part" | "database" | "check") => {
                fs::remove_file(&path).map_err(Error::io("remove", &path))?;
            }
            _ => {}
        }
    }
    backups.sort();
    let surplus = backups.len().saturating_sub(keep);
    for old in &backups[..surplus] {
        fs::remove_file(old).map_err(Error::io("remove", old))?;
    }
    Ok(())
}

fn describe(database: &Path) -> Result<Contents, Error> {
    let connection = sqlite::open_reader(database)?;
    let applied = load::applied(&connection, database)?;
    let empty = || Error::Backup {
        path: database.to_owned(),
        problem: String::from("there is nothing in it: this controller belongs to no cluster yet"),
    };
    let Position { term, index } = applied.position.ok_or_else(empty)?;
    let counters = load::counters(&connection, database)?;
    let count = |select: &str| {
        let counted = connection.query_row(select, [], |row| row.get::<_, i64>(0));
        counted.map(|count| count as u64).map_err(Error::sqlite("read", database))
    };
    Ok(Contents {
        cluster_id: applied.cluster_id.ok_or_else(empty)?,
        applied_term: term,
        applied_index: index,
        state_hash: blake3::Hash::from_bytes(applied.hash).to_hex().to_string(),
        feature_level: counters.feature_level,
        jobs_submitted: counters.jobs_submitted,
        active_tasks: count(
            "SELECT count(*) FROM tasks WHERE archived = 0 AND worker IS NOT NULL",
        )?,
        workers: count("SELECT count(*) FROM workers WHERE archived = 0")?,
    })
}

fn send(header: &Header, database: &Path, out: &mut Hashing<impl Write>) -> io::Result<()> {
    out.write_all(MAGIC)?;
    let text = serde_json::to_vec(header)?;
    out.write_all(&(text.len() as u32).to_le_bytes())?;
    out.write_all(&text)?;
    let mut cutter = Cutter::open(database)?;
    while let Some(piece) = cutter.cut()? {
        out.write_all(&(piece.len() as u32).to_le_bytes())?;
        out.write_all(&piece)?;
    }
    let (length, hash) = cutter.end();
    out.write_all(&0_u32.to_le_bytes())?;
    out.write_all(&length.to_le_bytes())?;
    out.write_all(&hash)?;
    let whole = out.hash();
    out.inner.write_all(&whole)?;
    out.inner.flush()
}

fn receive(source: &mut Hashing<impl Read>, database: &Path) -> io::Result<Header> {
    let unsound = |problem: &str| io::Error::new(io::ErrorKind::InvalidData, problem);
    let mut magic = [0; MAGIC.len()];
    source.read_exact(&mut magic)?;
    if magic != MAGIC {
        return Err(unsound("it is no backup of DRIGS, or of a newer one"));
    }
    let header = source.block(MOST_HEADER)?;
    let header: Header =
        serde_json::from_slice(&header).map_err(|_| unsound("its header is damaged"))?;
    let mut joiner = Joiner::create(database)?;
    loop {
        let piece = source.block(MOST_PIECE)?;
        if piece.is_empty() {
            break;
        }
        joiner.add(&piece).map_err(|fault| match fault.raw_os_error() {
            Some(_) => fault,
            None => unsound("a piece of it is damaged"),
        })?;
    }
    let (mut length, mut hash) = ([0; 8], [0; 32]);
    source.read_exact(&mut length)?;
    source.read_exact(&mut hash)?;
    let whole = source.hash();
    let mut said = [0; 32];
    source.inner.read_exact(&mut said)?;
    let ends = source.inner.read(&mut [0])? == 0;
    if whole != said || !ends {
        return Err(unsound("its hash does not match"));
    }
    joiner
        .finish(u64::from_le_bytes(length), &hash)
        .map_err(|_| unsound("the hash of its database does not match"))?;
    Ok(header)
}

/// Hashes what passes through.
struct Hashing<T> {
    inner: T,
    hasher: blake3::Hasher,
}

impl<T> Hashing<T> {
    fn new(inner: T) -> Self {
        Hashing { inner, hasher: blake3::Hasher::new() }
    }

    fn hash(&self) -> [u8; 32] {
        *self.hasher.finalize().as_bytes()
    }
}

impl<T: Write> Hashing<T> {
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.hasher.update(bytes);
        self.inner.write_all(bytes)
    }
}

impl<T: Read> Hashing<T> {
    fn read_exact(&mut self, bytes: &mut [u8]) -> io::Result<()> {
        self.inner.read_exact(bytes)?;
        self.hasher.update(bytes);
        Ok(())
    }

    fn block(&mut self, most: usize) -> io::Result<Vec<u8>> {
        let mut length = [0; 4];
        self.read_exact(&mut length)?;
        let length = u32::from_le_bytes(length) as usize;
        if length > most {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a length in it is damaged"));
        }
        let mut block = vec![0; length];
        self.read_exact(&mut block)?;
        Ok(block)
    }
}

/// A file that does not outlive its use.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        for ending in ["", "-wal", "-shm", "-journal"] {
            let mut name = self.0.as_os_str().to_owned();
            name.push(ending);
            let _ = fs::remove_file(PathBuf::from(name));
        }
    }
}

fn with_ending(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(ending);
    PathBuf::from(name)
}

fn parent(path: &Path) -> &Path {
    path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."))
}
