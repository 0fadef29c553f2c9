//! Output that goes on where it was when the way to it breaks.

use std::{sync::Arc, time::Duration};

use futures::StreamExt;
use tokio::time::Instant;
use tonic::Streaming;

use crate::rpc::{
    api::{ApiError, LogChunk, LogRequest, LogStream},
    client::{
        asker::{self, Asker},
        route::{Line, Stub},
        tries::{Miss, Tries},
    },
    proto,
};

pub(super) struct LogReader {
    asker: Arc<Asker>,
    /// What to ask for when the stream breaks: everything after what came.
    rest: LogRequest,
    line: Line,
    chunks: Streaming<proto::LogChunk>,
    opened_at: Instant,
    /// Whether anything came since it was opened.
    sound: bool,
    tries: Tries,
}

impl LogReader {
    /// # Errors
    /// Nobody has the output, or nobody could be asked.
    pub(super) async fn open(
        asker: Arc<Asker>,
        request: LogRequest,
    ) -> Result<LogReader, ApiError> {
        let mut tries = Tries::new(asker.deadline);
        let (line, chunks) = read(&asker, &request, &mut tries).await?;
        let opened_at = Instant::now();
        Ok(LogReader { asker, rest: request, line, chunks, opened_at, sound: false, tries })
    }

    pub(super) fn into_stream(self) -> LogStream {
        futures::stream::unfold(Some(self), |reader| async {
            let mut reader = reader?;
            match reader.next().await? {
                Ok(chunk) => Some((Ok(chunk), Some(reader))),
                Err(error) => Some((Err(error), None)),
            }
        })
        .fuse()
        .boxed()
    }

    async fn next(&mut self) -> Option<Result<LogChunk, ApiError>> {
        loop {
            let miss = match self.chunks.message().await {
                Ok(Some(chunk)) => match LogChunk::try_from(chunk) {
                    Ok(chunk) => match self.take(chunk) {
                        Some(chunk) => return Some(Ok(chunk)),
                        None => continue,
                    },
                    Err(fault) => return Some(Err(asker::nonsense(&self.line, &fault))),
                },
                Ok(None) => return None,
                Err(status) => self.asker.missed(&self.line, &status),
            };
            if let Err(error) = self.reopen(miss).await {
                return Some(Err(error));
            }
        }
    }

    /// Moves on past `chunk`, without what came before a break already; `None` when that is all of it.
    fn take(&mut self, mut chunk: LogChunk) -> Option<LogChunk> {
        self.sound = true;
        let length = chunk.bytes.len() as u64;
        let is_resumed = self.rest.attempt == Some(chunk.attempt.number);
        let known = if is_resumed { self.rest.from.saturating_sub(chunk.offset) } else { 0 };
        if known > 0 && known >= length {
            return None;
        }
        // What came once is not asked for again, and a later attempt's output is not taken for this one's.
        self.rest.attempt = Some(chunk.attempt.number);
        self.rest.from = chunk.offset + length;
        self.rest.tail = None;
        let known = usize::try_from(known).expect("less than the chunk's length");
        chunk.bytes.drain(..known);
        chunk.offset += known as u64;
        Some(chunk)
    }

    async fn reopen(&mut self, miss: Miss) -> Result<(), ApiError> {
        // A stream that was sound for a while is a new beginning; one that breaks at once, again and again, is not.
        if self.sound || self.opened_at.elapsed() > self.asker.deadline {
            self.tries = Tries::new(self.asker.deadline);
        }
        if self.asker.passing_on {
            return Err(miss.into_error());
        }
        self.tries.after(miss).await?;
        let (line, chunks) = read(&self.asker, &self.rest, &mut self.tries).await?;
        self.line = line;
        self.chunks = chunks;
        self.opened_at = Instant::now();
        self.sound = false;
        Ok(())
    }
}

async fn read(
    asker: &Asker,
    request: &LogRequest,
    tries: &mut Tries,
) -> Result<(Line, Streaming<proto::LogChunk>), ApiError> {
    let question = proto::LogRequest::from(request.clone());
    let method = |mut stub: Stub, it| async move { stub.read_log(it).await };
    asker.call(&question, Duration::ZERO, tries, method).await
}
