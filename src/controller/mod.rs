//! A controller: replicates the state, answers people and workers, and, while it leads, decides.

// Pure, like the core: they decide, and leave the acting to others.
#[deny(clippy::disallowed_methods, clippy::disallowed_types)]
pub mod lease;
#[deny(clippy::disallowed_methods, clippy::disallowed_types)]
pub mod reconcile;

mod clock;
mod config;
mod front;
mod http;
mod hub;
mod leader;
mod local;
mod logs;
mod metrics;
mod offline;
mod snapshots;
mod upgrade;
mod views;

#[cfg(test)]
mod tests;

use std::{sync::Arc, time::Duration};

use anyhow::Context as _;
use tokio::{net::TcpListener, sync::watch};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

pub use self::config::{Config, ControllerArgs};
pub use self::offline::Tools as OfflineTools;
use self::{
    clock::Clock,
    front::Front,
    http::Site,
    hub::{Hub, Sessions},
    local::Local,
    metrics::Metrics,
};
use crate::raft::{self, Raft};
use crate::rpc::{auth::Auth, server};

/// How long a leader that shuts down waits for another to take over.
const HAND_OVER: Duration = Duration::from_secs(2);
/// How long requests under way may take to end at shutdown.
const DRAIN: Duration = Duration::from_millis(800);
/// How long everything that serves may take to end, with those requests.
const END: Duration = Duration::from_millis(1500);

/// Runs a controller until `shutdown`, then hands over what it leads and ends.
///
/// # Errors
/// When it cannot start: the data directory is another's, a port is taken, …
pub async fn run(config: Config, shutdown: CancellationToken) -> anyhow::Result<()> {
    let listener = bind(config.listen).await?;
    let http = bind(config.http).await?;
    let clock = Clock::start();
    let raft = Raft::open(raft_config(&config, clock.clone())).await?;
    let metrics = Arc::new(Metrics::default());
    let (terms_sender, terms) = watch::channel(None);
    let stopping = CancellationToken::new();

    let sessions = Sessions::new(raft.clone(), terms.clone());
    let local = Local {
        raft: raft.clone(),
        terms: terms.clone(),
        sessions: sessions.clone(),
        clock: clock.clone(),
    };
    let front = Front::new(local.clone(), config.token.clone());
    let auth = Auth { token: config.token.clone() };
    let services = server::Services::default()
        .api(Arc::new(front), Arc::new(local.clone()), auth.clone())
        .hub(Arc::new(Hub(sessions)), auth)
        .merge(raft.peer_service());
    let serving =
        tokio::spawn(server::serve(listener, services, stopping.clone().cancelled_owned(), DRAIN));
    let site = Site { local, metrics: metrics.clone() };
    let web = axum::serve(http, http::router(site))
        .with_graceful_shutdown(stopping.clone().cancelled_owned());
    let web = tokio::spawn(web.into_future());
    let leading = tokio::spawn(leader::run(
        raft.clone(),
        config.lease,
        clock,
        metrics.clone(),
        terms_sender,
        stopping.clone(),
    ));
    let counting = tokio::spawn(count_leader_changes(raft.clone(), metrics, stopping.clone()));
    let upgrading = tokio::spawn(upgrade::run(raft.clone(), terms, stopping.clone()));
    let keeping = tokio::spawn(snapshots::keep(
        raft.clone(),
        config.data_dir.join("snapshots"),
        config.snapshot_every.to_duration(),
        config.keep_snapshots,
        stopping.clone(),
    ));
    info!(id = config.id, listen = %config.listen, http = %config.http, "controller serves");

    shutdown.cancelled().await;
    if raft.leadership().borrow().is_me
        && let Err(error) = tokio::time::timeout(HAND_OVER, raft.transfer_leadership(None))
            .await
            .map_err(anyhow::Error::from)
            .and_then(|done| Ok(done?))
    {
        warn!(%error, "nobody took over the leadership");
    }
    stopping.cancel();
    let tasks = [
        serving.abort_handle(),
        leading.abort_handle(),
        web.abort_handle(),
        counting.abort_handle(),
        keeping.abort_handle(),
        upgrading.abort_handle(),
    ];
    let ended = async { tokio::join!(serving, leading, web, counting, keeping, upgrading) };
    if tokio::time::timeout(END, ended).await.is_err() {
        info!("some requests did not end in time and are cut off");
        tasks.iter().for_each(tokio::task::AbortHandle::abort);
    }
    raft.shutdown().await.context("the log was not closed in order")
}

async fn bind(address: std::net::SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address)
        .await
        .with_context(|| format!("cannot listen on {address}: is another controller running here?"))
}

fn raft_config(config: &Config, clock: Clock) -> raft::Config {
    raft::Config {
        heartbeat: config.heartbeat.to_duration(),
        election_min: config.election_min.to_duration(),
        election_max: config.election_max.to_duration(),
        clock: Arc::new(move || clock.now()),
        ..raft::Config::new(
            config.id,
            config.data_dir.clone(),
            config.peers.clone(),
            config.token.clone(),
        )
    }
}

async fn count_leader_changes(raft: Raft, metrics: Arc<Metrics>, stopping: CancellationToken) {
    let mut leadership = raft.leadership();
    let mut last = None;
    loop {
        let leader = leadership.borrow_and_update().leader;
        if leader.is_some() && leader != last {
            metrics.leader_changes.inc();
            info!(leader, "leader changed");
            last = leader;
        }
        tokio::select! {
            changed = leadership.changed() => if changed.is_err() { return },
            () = stopping.cancelled() => return,
        }
    }
}
