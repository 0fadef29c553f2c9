//! The worker's end of its session: one stream to one controller, and a stream for each log that is asked for.

use std::{fmt, future::Future, time::Duration};

use futures::{
    Stream, StreamExt,
    future::{self, BoxFuture},
    stream::{self, BoxStream},
};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{
    Request, Status,
    metadata::{Ascii, MetadataValue},
    transport::Channel,
};

use crate::rpc::{
    api::{ApiError, ErrorKind, LogChunk},
    convert::{self, Decoder, Failure},
    proto::{self, log_upload},
    session::{ControllerMessage, WorkerMessage},
    transport::{self, MESSAGE_LIMIT, until_error},
};

/// A connection to one controller. Clones share it.
#[derive(Clone)]
pub struct HubClient {
    address: String,
    bearer: Option<MetadataValue<Ascii>>,
    stub: proto::hub_client::HubClient<Channel>,
}

/// Dropping either half ends the session.
pub struct Session {
    /// A small queue: a full one means that the controller does not keep up.
    pub outbound: mpsc::Sender<WorkerMessage>,
    /// Ends when the controller ends the session; an error (the connection broke, or the controller said something that
    /// makes no sense) is its last item.
    pub inbound: BoxStream<'static, Result<ControllerMessage, ApiError>>,
}

const OUTBOUND: usize = 16;
/// Resolving the name, connecting and greeting, all together.
const DIAL_TIMEOUT: Duration = Duration::from_secs(2);
/// A controller opens a session before it looks at it.
const OPEN_TIMEOUT: Duration = Duration::from_secs(3);

impl HubClient {
    /// Connects to `address` (`host:port`), within two seconds.
    ///
    /// # Errors
    /// `Unavailable` when nobody answers there, `Invalid` when it is not an address or the token cannot be one.
    pub async fn dial(address: &str, token: Option<&str>) -> Result<HubClient, ApiError> {
        let endpoint = transport::endpoint(address)?;
        let bearer = token.map(transport::bearer).transpose()?;
        let connecting =
            async { endpoint.connect().await.map_err(|error| Status::from_error(Box::new(error))) };
        let channel = within(DIAL_TIMEOUT, address, connecting).await?;
        let stub =
            proto::hub_client::HubClient::new(channel).max_decoding_message_size(MESSAGE_LIMIT);
        Ok(HubClient { address: address.to_owned(), bearer, stub })
    }

    pub fn address(&self) -> &str {
        &self.address
    }

    /// Opens the session; the first message must be `Hello`.
    ///
    /// # Errors
    /// `Denied` when the token is not the cluster's, `Unavailable` when the connection broke.
    pub async fn session(&self) -> Result<Session, ApiError> {
        let (outbound, messages) = mpsc::channel::<WorkerMessage>(OUTBOUND);
        let messages = ReceiverStream::new(messages).map(proto::WorkerMessage::from);
        let mut stub = self.stub.clone();
        let opening = stub.session(self.request(messages));
        let opened = within(OPEN_TIMEOUT, &self.address, opening).await?;
        let (address, mut decoder) = (self.address.clone(), Decoder::default());
        let decoded = opened.into_inner().filter_map(move |message| {
            let message = message.map_err(|status| broken(&address, &status));
            let decoded = message.and_then(|message| {
                decoder.decode(message).map_err(|fault| {
                    let message = format!("controller {address} makes no sense: {fault}");
                    ApiError::new(ErrorKind::Internal, message)
                })
            });
            future::ready(decoded.transpose())
        });
        Ok(Session { outbound, inbound: until_error(decoded).boxed() })
    }

    /// Sends the output that `OpenLog` asked for, until `chunks` ends or the controller wants no more. An error among the
    /// chunks is passed on to whoever asked.
    ///
    /// # Errors
    /// The connection broke, or the controller does not know this stream (any more).
    pub fn upload_log(
        &self,
        stream: u64,
        chunks: impl Stream<Item = Result<LogChunk, ApiError>> + Send + 'static,
    ) -> BoxFuture<'static, Result<(), ApiError>> {
        let first = proto::LogUpload { kind: Some(log_upload::Kind::Stream(stream)) };
        let rest = until_error(chunks).map(convert::upload_out);
        let upload = self.request(stream::once(future::ready(first)).chain(rest));
        let (address, mut stub) = (self.address.clone(), self.stub.clone());
        Box::pin(async move {
            let sent = stub.upload_log(upload).await;
            sent.map(drop).map_err(|status| broken(&address, &status))
        })
    }

    fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        if let Some(bearer) = &self.bearer {
            request.metadata_mut().insert("authorization", bearer.clone());
        }
        request
    }
}

async fn within<T>(
    limit: Duration,
    address: &str,
    call: impl Future<Output = Result<T, Status>>,
) -> Result<T, ApiError> {
    match tokio::time::timeout(limit, call).await {
        Ok(answer) => answer.map_err(|status| broken(address, &status)),
        Err(_) => Err(ApiError::new(
            ErrorKind::Unavailable,
            format!("controller {address} did not answer within {limit:?}"),
        )),
    }
}

fn broken(address: &str, status: &Status) -> ApiError {
    match convert::from_status(status) {
        Failure::Answered(error) => error,
        Failure::Broken(reason) => {
            ApiError::new(ErrorKind::Unavailable, format!("controller {address}: {reason}"))
        }
    }
}

impl fmt::Debug for HubClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HubClient").field("address", &self.address).finish_non_exhaustive()
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").finish_non_exhaustive()
    }
}
