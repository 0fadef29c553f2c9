//! Sends an attempt's output to whoever asked for it, over a stream that this worker dials.

use std::{io, time::Duration};

use futures::Stream;
use tracing::debug;

use crate::model::{AttemptId, TaskId};
use crate::rpc::{
    api::{ApiError, ErrorKind, LogChunk, LogRequest},
    hub_client::HubClient,
};
use crate::worker::{
    attempt_dir::{AttemptDir, DataDir},
    shim::output::{self, Chunk},
};

/// Bytes in one chunk.
const CHUNK: usize = 256 << 10;
/// How often a living output is looked at for more.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How far back the last lines are looked for.
const FARTHEST_TAIL: u64 = 4 << 20;

/// Sends what `request` asks for, as a task of its own: a slow reader holds up nobody.
pub fn send(dir: DataDir, hub: HubClient, stream: u64, request: LogRequest) {
    // Ends with the output, or when the controller closes the stream.
    tokio::spawn(async move {
        if let Err(error) = hub.upload_log(stream, chunks(dir, request)).await {
            debug!(stream, %error, "a log stream ended early");
        }
    });
}

/// Where a reader stands in an output.
#[derive(Clone)]
struct Position {
    dir: DataDir,
    attempt: AttemptId,
    offset: u64,
    follow: bool,
}

fn chunks(
    dir: DataDir,
    request: LogRequest,
) -> impl Stream<Item = Result<LogChunk, ApiError>> + Send + 'static {
    let start = Start { dir, request };
    futures::stream::try_unfold(Progress::New(start), |progress| async move {
        let mut position = match progress {
            Progress::New(start) => blocking(move || start.find()).await??,
            Progress::At(position) => position,
            Progress::Done => return Ok(None),
        };
        loop {
            let looked = position.clone();
            let (chunk, over) = blocking(move || looked.look()).await??;
            if chunk.bytes.is_empty() && !over {
                tokio::time::sleep(LOOK_EVERY).await;
                continue;
            }
            position.offset = chunk.offset + chunk.bytes.len() as u64;
            let sent = LogChunk {
                attempt: position.attempt,
                offset: chunk.offset,
                dropped: chunk.dropped_before,
                bytes: chunk.bytes,
            };
            let next = if over { Progress::Done } else { Progress::At(position) };
            return Ok(Some((sent, next)));
        }
    })
}

impl Position {
    /// What comes next, and whether it is the last. An attempt may be put aside at any moment, so its directory is found
    /// anew each time, and what was read of one that went away meanwhile counts for nothing.
    fn look(&self) -> Result<(Chunk, bool), ApiError> {
        loop {
            let dir = self.dir.find(self.attempt).ok_or_else(|| gone(self.attempt.task))?;
            let chunk = output::read(&dir, self.offset, CHUNK).map_err(|error| internal(&error))?;
            if !dir.path().is_dir() {
                continue;
            }
            let at_end = chunk.offset + chunk.bytes.len() as u64 >= chunk.end;
            // One whose shim died leaves no record of its end, but is put aside all the same.
            let settled = dir.path().starts_with(self.dir.finished());
            let over = chunk.complete || (at_end && (settled || !self.follow));
            return Ok((chunk, over));
        }
    }
}

enum Progress {
    New(Start),
    At(Position),
    Done,
}

struct Start {
    dir: DataDir,
    request: LogRequest,
}

impl Start {
    fn find(self) -> Result<Position, ApiError> {
        let task = self.request.task;
        let number = match self.request.attempt {
            Some(number) => Some(number),
            None => latest(&self.dir, task).map_err(|error| internal(&error))?,
        };
        let attempt = number.map(|number| AttemptId { task, number });
        let found = attempt.and_then(|attempt| Some((attempt, self.dir.find(attempt)?)));
        let Some((attempt, dir)) = found else {
            return Err(gone(task));
        };
        let offset = match (self.request.from, self.request.tail) {
            (0, Some(lines)) => tail(&dir, lines).map_err(|error| internal(&error))?,
            (from, _) => from,
        };
        Ok(Position { dir: self.dir, attempt, offset, follow: self.request.follow })
    }
}

/// The highest attempt of `task` that has a directory here.
fn latest(dir: &DataDir, task: TaskId) -> io::Result<Option<u32>> {
    let mut latest = None;
    for place in [dir.attempts(), dir.finished()] {
        for entry in std::fs::read_dir(place)? {
            let name = entry?.file_name();
            let attempt = name.to_str().and_then(|name| name.parse::<AttemptId>().ok());
            if let Some(attempt) = attempt.filter(|attempt| attempt.task == task) {
                latest = latest.max(Some(attempt.number));
            }
        }
    }
    Ok(latest)
}

/// Where the last `lines` lines begin.
fn tail(dir: &AttemptDir, lines: u64) -> io::Result<u64> {
    let end = output::read(dir, u64::MAX, 0)?.end;
    let from = end.saturating_sub(FARTHEST_TAIL);
    let mut bytes = Vec::new();
    let mut offset = from;
    loop {
        let chunk = output::read(dir, offset, CHUNK)?;
        if chunk.bytes.is_empty() || offset >= end {
            break;
        }
        offset = chunk.offset + chunk.bytes.len() as u64;
        bytes.extend_from_slice(&chunk.bytes);
    }
    let start = offset - bytes.len() as u64;
    let body = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
    let breaks = body.iter().enumerate().rev().filter(|(_, byte)| **byte == b'\n');
    let wanted = usize::try_from(lines).unwrap_or(usize::MAX);
    let cut = match wanted {
        0 => bytes.len(),
        _ => breaks.map(|(at, _)| at + 1).nth(wanted - 1).unwrap_or(0),
    };
    Ok(start + cut as u64)
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, ApiError> {
    tokio::task::spawn_blocking(work).await.map_err(|error| internal(&error))
}

fn gone(task: TaskId) -> ApiError {
    ApiError::new(
        ErrorKind::NotFound,
        format!("the output of {task} is not on this worker any more"),
    )
}

fn internal(error: &dyn std::fmt::Display) -> ApiError {
    ApiError::new(ErrorKind::Internal, format!("the output cannot be read: {error}"))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use futures::StreamExt as _;
    use tempfile::TempDir;

    use super::*;
    use crate::model::JobId;

    /// One that follows must see what was written last before the attempt was put aside, and then the end.
    #[tokio::test]
    async fn a_reader_outlives_the_move_of_what_it_reads() {
        let root = TempDir::new().unwrap();
        let dir = DataDir::create(root.path()).unwrap();
        let task = TaskId { job: JobId(1), index: 0 };
        let attempt = AttemptId { task, number: 1 };
        let living = dir.attempt(attempt);
        fs::create_dir(living.path()).unwrap();
        fs::write(living.output(), "one").unwrap();
        let request =
            LogRequest { task, attempt: None, node: 0, follow: true, tail: None, from: 0 };
        let mut chunks = Box::pin(chunks(dir.clone(), request));
        assert_eq!(chunks.next().await.unwrap().unwrap().bytes, b"one");

        fs::write(living.output(), "one, two").unwrap();
        dir.settle(attempt).unwrap();
        assert_eq!(chunks.next().await.unwrap().unwrap().bytes, b", two");
        let end = tokio::time::timeout(Duration::from_secs(10), chunks.next()).await;
        assert!(end.expect("the stream ends").is_none());
    }
}
