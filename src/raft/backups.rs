//! Backups of a replica that goes on working.

use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
    sync::Arc,
};

use bytes::Bytes;
use tokio::sync::mpsc;

use crate::raft::{offline::origin, replica::Replica};
use crate::store::backup;

/// Chunks that wait for a slow reader.
const AHEAD: usize = 4;
const CHUNK: usize = 256 << 10;

/// Sends what is written to it on, in chunks.
struct Sending {
    chunks: mpsc::Sender<io::Result<Bytes>>,
    waiting: Vec<u8>,
}

impl Replica {
    pub fn backup(self: &Arc<Self>) -> mpsc::Receiver<io::Result<Bytes>> {
        let (chunks, receiver) = mpsc::channel(AHEAD);
        let replica = self.clone();
        // Ends with the backup, or when nobody reads it any more.
        tokio::task::spawn_blocking(move || {
            let failed = chunks.clone();
            let mut out = Sending { chunks, waiting: Vec::with_capacity(CHUNK) };
            if let Err(error) = replica.write_backup(&mut out) {
                let _ = failed.blocking_send(Err(io::Error::other(error.to_string())));
            }
        });
        receiver
    }

    fn write_backup(&self, out: &mut Sending) -> anyhow::Result<()> {
        let snapshot = self.state_machine.snapshot()?;
        backup::write(snapshot, &self.state_machine.incoming(), origin(self.id), out)?;
        Ok(())
    }

    pub async fn keep_backup(
        self: &Arc<Self>,
        dir: PathBuf,
        keep: usize,
    ) -> anyhow::Result<Option<PathBuf>> {
        let replica = self.clone();
        tokio::task::spawn_blocking(move || replica.keep_backup_now(&dir, keep)).await?
    }

    fn keep_backup_now(&self, dir: &Path, keep: usize) -> anyhow::Result<Option<PathBuf>> {
        fs::create_dir_all(dir)?;
        backup::keep_newest(dir, keep)?;
        let snapshot = self.state_machine.snapshot()?;
        let Some(position) = snapshot.applied().position else { return Ok(None) };
        let name = format!("{:020}-{:020}.drigs", position.term, position.index);
        let target = dir.join(name);
        if target.exists() {
            return Ok(None);
        }
        backup::save(snapshot, &target, origin(self.id))?;
        backup::keep_newest(dir, keep)?;
        Ok(Some(target))
    }
}

impl Write for Sending {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.waiting.extend_from_slice(bytes);
        if self.waiting.len() >= CHUNK {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        let chunk = std::mem::replace(&mut self.waiting, Vec::with_capacity(CHUNK)).into();
        let gone =
            |_| io::Error::new(io::ErrorKind::BrokenPipe, "nobody reads the backup any more");
        self.chunks.blocking_send(Ok(chunk)).map_err(gone)
    }
}
