//! The HTTP port: health and metrics.

use std::sync::Arc;

use axum::{
    Json, Router,
    extract::State,
    http::{StatusCode, header},
    response::IntoResponse,
    routing::get,
};
use serde::Serialize;

use crate::controller::{local::Local, metrics, metrics::Metrics, views};

/// What the handlers answer from.
#[derive(Clone, Debug)]
pub struct Site {
    pub local: Local,
    pub metrics: Arc<Metrics>,
}

/// `GET /v1/health`.
#[derive(Debug, Serialize)]
struct Health {
    /// `ok`, or `no leader`.
    status: &'static str,
    version: &'static str,
    id: u64,
    leader: Option<u64>,
    applied: Option<u64>,
}

pub fn router(site: Site) -> Router {
    Router::new()
        .route("/v1/health", get(health))
        .route("/metrics", get(render_metrics))
        .with_state(site)
}

/// 200 while this controller knows a leader, 503 otherwise.
async fn health(State(site): State<Site>) -> impl IntoResponse {
    let status = site.local.raft.status();
    let leader = site.local.raft.leadership().borrow().leader;
    let (code, word) = match leader {
        Some(_) => (StatusCode::OK, "ok"),
        None => (StatusCode::SERVICE_UNAVAILABLE, "no leader"),
    };
    let health = Health {
        status: word,
        version: env!("CARGO_PKG_VERSION"),
        id: status.id,
        leader,
        applied: status.applied,
    };
    (code, Json(health))
}

async fn render_metrics(State(site): State<Site>) -> impl IntoResponse {
    let now = site.local.clock.now();
    let (status, gpus) =
        site.local.raft.read(|state| (views::status(state, now), views::gpus(state)));
    let text = metrics::render(&site.metrics, &status, &gpus, &site.local.raft);
    ([(header::CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")], text)
}
