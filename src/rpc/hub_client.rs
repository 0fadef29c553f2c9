//! The worker's end of its session: one stream to one controller, and a stream for each log that is asked for.

use std::fmt;

use futures::{Stream, stream::BoxStream};
use tokio::sync::mpsc;

use crate::rpc::{
    api::{ApiError, LogChunk},
    session::{ControllerMessage, WorkerMessage},
};

/// A connection to one controller. Clones share it.
#[derive(Clone, Debug)]
pub struct HubClient {
    address: String,
}

/// Dropping either half ends the session.
pub struct Session {
    /// A small queue: a full one means that the controller does not keep up.
    pub outbound: mpsc::Sender<WorkerMessage>,
    /// Ends when the controller ends the session; an error (the connection broke, or the controller said something that
    /// makes no sense) is its last item.
    pub inbound: BoxStream<'static, Result<ControllerMessage, ApiError>>,
}

impl HubClient {
    /// Connects to `address` (`host:port`), within a second.
    ///
    /// # Errors
    /// `Unavailable` when nobody answers there, `Invalid` when it is not an address.
    pub async fn dial(address: &str, token: Option<&str>) -> Result<HubClient, ApiError> {
        let _ = token;
        Ok(HubClient { address: address.to_owned() })
    }

    pub fn address(&self) -> &str {
        &self.address
    }

    /// Opens the session; the first message must be `Hello`.
    ///
    /// # Errors
    /// `Denied` when the token is not the cluster's, `Unavailable` when the connection broke.
    pub async fn session(&self) -> Result<Session, ApiError> {
        todo!()
    }

    /// Sends the output that `OpenLog` asked for, until `chunks` ends or the controller wants no more. An error among the
    /// chunks is passed on to whoever asked.
    ///
    /// # Errors
    /// The connection broke, or the controller does not know this stream (any more).
    pub async fn upload_log(
        &self,
        stream: u64,
        chunks: impl Stream<Item = Result<LogChunk, ApiError>> + Send + 'static,
    ) -> Result<(), ApiError> {
        let _ = (stream, chunks);
        todo!()
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").finish_non_exhaustive()
    }
}
