//! What a controller serves, on one port: the API for clients and the hub for workers, beside whatever services of its
//! own it mounts with them.

use std::{convert::Infallible, future::Future, io, net::SocketAddr, sync::Arc, time::Duration};

use axum::response::IntoResponse;
use futures::stream::BoxStream;
use tokio::net::TcpListener;
use tonic::{
    body::Body,
    codegen::{Service, http},
    server::NamedService,
    service::Routes,
};

use crate::rpc::{
    api::{Answer, Api, ApiError, LogChunk},
    auth::Auth,
    session::{ControllerMessage, WorkerMessage},
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

/// What one port serves: `Services::default().api(..).hub(..).add(peer_service)`.
#[derive(Clone, Debug, Default)]
pub struct Services {
    routes: Routes,
}

impl Services {
    /// Serves clients. `local` answers what another controller has already passed on, so that two controllers that take
    /// each other for the leader do not send a call round and round.
    pub fn api(self, api: Arc<dyn Api>, local: Arc<dyn Api>, auth: Auth) -> Services {
        let _ = (api, local, auth);
        todo!()
    }

    /// Serves workers.
    pub fn hub(self, hub: Arc<dyn Hub>, auth: Auth) -> Services {
        let _ = (hub, auth);
        todo!()
    }

    /// Mounts a generated service of another room, such as the one for peers.
    pub fn add<S>(self, service: S) -> Services
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
    let _ = (listener, services, shutdown, drain);
    todo!()
}
