//! Output on its way from a worker to whoever reads it. It passes through here and stays nowhere.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use futures::{StreamExt, stream::BoxStream};
use tokio::sync::mpsc;

use crate::rpc::api::{ApiError, ErrorKind, LogChunk};

/// Log streams that were asked for and that a worker dials.
#[derive(Debug, Default)]
pub struct LogBroker {
    next: AtomicU64,
    waiting: Mutex<BTreeMap<u64, mpsc::Sender<Result<LogChunk, ApiError>>>>,
}

/// Chunks that may wait for a slow reader; then the worker waits.
const CHUNKS: usize = 16;

impl LogBroker {
    /// A number for a worker to dial with, and where its chunks come out.
    pub fn expect(&self) -> (u64, mpsc::Receiver<Result<LogChunk, ApiError>>) {
        let (sender, receiver) = mpsc::channel(CHUNKS);
        let stream = self.next.fetch_add(1, Ordering::Relaxed) + 1;
        self.lock().insert(stream, sender);
        (stream, receiver)
    }

    /// Nobody waits for `stream` any more.
    pub fn forget(&self, stream: u64) {
        self.lock().remove(&stream);
    }

    /// Hands the chunks on until either side has enough.
    ///
    /// # Errors
    /// When nobody asked for `stream`, or whoever did has gone.
    pub async fn relay(
        &self,
        stream: u64,
        mut chunks: BoxStream<'static, Result<LogChunk, ApiError>>,
    ) -> Result<(), ApiError> {
        let gone = || ApiError::new(ErrorKind::NotFound, "nobody reads this log stream any more");
        let reader = self.lock().remove(&stream).ok_or_else(gone)?;
        loop {
            tokio::select! {
                chunk = chunks.next() => match chunk {
                    Some(chunk) => reader.send(chunk).await.map_err(|_| gone())?,
                    None => return Ok(()),
                },
                () = reader.closed() => return Err(gone()),
            }
        }
    }

    fn lock(
        &self,
    ) -> std::sync::MutexGuard<'_, BTreeMap<u64, mpsc::Sender<Result<LogChunk, ApiError>>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
