//! What a controller serves, on one port: the API for clients and the hub for workers, beside whatever services of its
//! own it mounts with them.

mod api;
mod connection;
mod hub;

use std::{convert::Infallible, future::Future, io, net::SocketAddr, sync::Arc, time::Duration};

use axum::response::IntoResponse;
use futures::stream::BoxStream;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tonic::{
    body::Body,
    codegen::{Service, http},
    server::NamedService,
    service::{Routes, interceptor::InterceptedService},
    transport::Server,
};

use crate::rpc::{
    api::{Answer, Api, ApiError, LogChunk},
    auth::Auth,
    proto::{controller_server::ControllerServer, hub_server::HubServer},
    server::{api::ApiService, hub::HubService},
    session::{ControllerMessage, WorkerMessage},
    transport::{KEEPALIVE_INTERVAL, KEEPALIVE_TIMEOUT, MESSAGE_LIMIT},
};

/// The leader's end of the workers' streams.
pub trait Hub: Send + Sync + 'static {
    /// One session, for as long as both streams last: it is over when either end drops its stream. An error is the last
    /// item of `inbound`: the connection broke, or the worker said something that makes no sense.
    fn session(&self, inbound: Inbound, peer: Option<SocketAddr>) -> Outbound;

    /// The output that an `OpenLog` asked for. Chunks are taken from the worker only as fast as they are polled; answering
    /// (or dropping the stream) tells the worker that no more is wanted.
    fn log_upload(&self, stream: u64, chunks: LogUpload) -> Answer<()>;
}

pub type Inbound = BoxStream<'static, Result<WorkerMessage, ApiError>>;
pub type Outbound = BoxStream<'static, ControllerMessage>;
pub type LogUpload = BoxStream<'static, Result<LogChunk, ApiError>>;

/// What one port serves: `Services::default().api(..).hub(..).merge(peer_service)`.
#[derive(Clone, Debug, Default)]
pub struct Services {
    routes: Routes,
}

/// Streams on one connection; a controller that passes calls on has all of its clients' on one.
const STREAMS: u32 = 16_384;
/// After its connections were cut, a server has nothing left to wait for but its own tasks.
const AFTER_CUT: Duration = Duration::from_secs(1);

impl Services {
    /// Serves clients. `local` answers what another controller has already passed on, so that two controllers that take
    /// each other for the leader do not send a call round and round.
    pub fn api(self, api: Arc<dyn Api>, local: Arc<dyn Api>, auth: Auth) -> Services {
        let service = ControllerServer::new(ApiService::new(api, local))
            .max_decoding_message_size(MESSAGE_LIMIT)
            .max_encoding_message_size(MESSAGE_LIMIT);
        self.mount(InterceptedService::new(service, auth))
    }

    /// Serves workers.
    pub fn hub(self, hub: Arc<dyn Hub>, auth: Auth) -> Services {
        let service = HubServer::new(HubService::new(hub))
            .max_decoding_message_size(MESSAGE_LIMIT)
            .max_encoding_message_size(MESSAGE_LIMIT);
        self.mount(InterceptedService::new(service, auth))
    }

    fn mount<S>(self, service: S) -> Services
    where
        S: Service<http::Request<Body>, Error = Infallible>
            + NamedService
            + Clone
            + Send
            + Sync
            + 'static,
        S::Response: IntoResponse,
        S::Future: Send + 'static,
    {
        Services { routes: self.routes.add_service(service) }
    }

    /// Mounts what another room has put together for itself.
    pub fn merge(self, routes: Routes) -> Services {
        let others = routes.into_axum_router().reset_fallback();
        Services { routes: self.routes.into_axum_router().merge(others).into() }
    }
}

/// Serves on `listener` until `shutdown`, then lets calls in flight finish for at most `drain`, then cuts every
/// connection. Dropping the future cuts them at once.
///
/// # Errors
/// The listener failed.
pub async fn serve(
    listener: TcpListener,
    services: Services,
    shutdown: impl Future<Output = ()> + Send + 'static,
    drain: Duration,
) -> io::Result<()> {
    let cut = CancellationToken::new();
    let _cut_when_dropped = cut.clone().drop_guard();
    let closing = CancellationToken::new();
    let accepted = connection::accept(listener, shutdown, closing.clone(), cut.clone());
    // It is the end of `accepted` that shuts the server down: with tonic's own signal the port would stay open meanwhile,
    // and whoever connects would wait for nothing.
    let serving = Server::builder()
        .http2_keepalive_interval(Some(KEEPALIVE_INTERVAL))
        .http2_keepalive_timeout(Some(KEEPALIVE_TIMEOUT))
        .max_concurrent_streams(STREAMS)
        // Clients give up calls by the hundred when a leader is lost; that is no attack.
        .http2_max_pending_accept_reset_streams(Some(STREAMS as usize))
        .accept_http1(false)
        .add_routes(services.routes.prepare())
        .serve_with_incoming_shutdown(accepted, std::future::pending());
    tokio::pin!(serving);
    let drained = async {
        closing.cancelled().await;
        tokio::time::sleep(drain).await;
    };
    tokio::select! {
        served = &mut serving => return served.map_err(io::Error::other),
        () = drained => cut.cancel(),
    }
    match tokio::time::timeout(AFTER_CUT, serving).await {
        Ok(served) => served.map_err(io::Error::other),
        Err(_) => Ok(()),
    }
}
