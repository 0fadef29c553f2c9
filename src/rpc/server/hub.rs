//! Streams of workers, translated for whoever implements [`Hub`].

use std::sync::Arc;

use futures::{StreamExt, stream, stream::BoxStream};
use tonic::{Request, Response, Status, Streaming};

use crate::rpc::{
    api::{ApiError, ErrorKind},
    convert::{self, Encoder, Failure, Malformed},
    proto::{self, log_upload::Kind},
    server::Hub,
    transport::until_error,
};

pub(super) struct HubService {
    hub: Arc<dyn Hub>,
}

impl HubService {
    pub(super) fn new(hub: Arc<dyn Hub>) -> Self {
        HubService { hub }
    }
}

#[tonic::async_trait]
impl proto::hub_server::Hub for HubService {
    type SessionStream = BoxStream<'static, Result<proto::ControllerMessage, Status>>;

    async fn session(
        &self,
        call: Request<Streaming<proto::WorkerMessage>>,
    ) -> Result<Response<Self::SessionStream>, Status> {
        let peer = call.remote_addr();
        let inbound = call.into_inner().map(|message| {
            let message = message.map_err(|status| broken(&status))?;
            Ok(message.try_into()?)
        });
        let outbound = self.hub.session(until_error(inbound).boxed(), peer);
        let mut encoder = Encoder::default();
        let encoded = outbound.flat_map(move |message| stream::iter(encoder.encode(message)));
        Ok(Response::new(encoded.map(Ok).boxed()))
    }

    async fn upload_log(
        &self,
        call: Request<Streaming<proto::LogUpload>>,
    ) -> Result<Response<proto::Nothing>, Status> {
        let mut messages = call.into_inner();
        let first = messages.message().await?.and_then(|message| message.kind);
        let Some(Kind::Stream(stream)) = first else {
            let fault = Malformed::Missing("log_upload.stream");
            return Err(convert::to_status(&fault.into()));
        };
        let chunks = messages
            .map(|message| message.map_err(|status| broken(&status)).and_then(convert::upload_in));
        let taken = self.hub.log_upload(stream, until_error(chunks).boxed()).await;
        taken.map(|()| Response::new(proto::Nothing {})).map_err(|error| convert::to_status(&error))
    }
}

fn broken(status: &Status) -> ApiError {
    match convert::from_status(status) {
        Failure::Answered(error) => error,
        Failure::Broken(reason) => {
            ApiError::new(ErrorKind::Unavailable, format!("the connection broke: {reason}"))
        }
    }
}
