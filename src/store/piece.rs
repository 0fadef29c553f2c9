//! A snapshot on its way: a file cut into pieces, each compressed by itself, and a hash of the whole at the end.

use std::{
    fs::File,
    io::{self, Read as _, Write as _},
    path::Path,
};

use bytes::Bytes;

/// What a piece holds at most, uncompressed.
pub const PIECE: usize = 1 << 20;
/// Fast rather than small: the database compresses several times over at any level.
const LEVEL: i32 = 1;

/// Reads a file piece by piece.
#[derive(Debug)]
pub struct Cutter {
    file: File,
    hasher: blake3::Hasher,
    length: u64,
}

impl Cutter {
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Cutter { file: File::open(path)?, hasher: blake3::Hasher::new(), length: 0 })
    }

    /// `None` at the end.
    pub fn cut(&mut self) -> io::Result<Option<Bytes>> {
        let mut raw = Vec::with_capacity(PIECE);
        (&mut self.file).take(PIECE as u64).read_to_end(&mut raw)?;
        if raw.is_empty() {
            return Ok(None);
        }
        self.hasher.update(&raw);
        self.length += raw.len() as u64;
        Ok(Some(zstd::bulk::compress(&raw, LEVEL)?.into()))
    }

    pub fn end(&self) -> (u64, [u8; 32]) {
        (self.length, *self.hasher.finalize().as_bytes())
    }
}

/// Puts the pieces together.
#[derive(Debug)]
pub struct Joiner {
    file: File,
    hasher: blake3::Hasher,
    length: u64,
}

impl Joiner {
    pub fn create(path: &Path) -> io::Result<Self> {
        Ok(Joiner { file: File::create(path)?, hasher: blake3::Hasher::new(), length: 0 })
    }

    pub fn add(&mut self, piece: &[u8]) -> io::Result<()> {
        let raw = zstd::bulk::decompress(piece, PIECE)?;
        self.hasher.update(&raw);
        self.length += raw.len() as u64;
        self.file.write_all(&raw)
    }

    /// Durable, and just what was sent.
    pub fn finish(self, length: u64, hash: &[u8]) -> io::Result<()> {
        if self.length != length || self.hasher.finalize().as_bytes() != hash {
            return Err(io::Error::other("the snapshot was damaged on its way"));
        }
        self.file.sync_all()
    }
}
