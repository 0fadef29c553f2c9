//! Clients that each have one request under way at any time.

use std::{
    future::Future,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use tokio::task::JoinSet;

use super::spread::Spread;

/// What a number of clients got done.
#[derive(Clone, Debug)]
pub struct Load {
    pub per_second: f64,
    pub latency: Spread,
}

/// Lets `clients` ask for `length`, one request after the other; `request` is told which client asks, and for which
/// time. The first failure ends it.
pub async fn closed_loop<F, A>(clients: usize, length: Duration, request: F) -> anyhow::Result<Load>
where
    F: Fn(usize, u64) -> A + Clone + Send + 'static,
    A: Future<Output = anyhow::Result<()>> + Send,
{
    let began = Instant::now();
    let mut tasks = JoinSet::new();
    for client in 0..clients {
        let request = request.clone();
        tasks.spawn(async move {
            let mut latencies = Vec::new();
            while began.elapsed() < length {
                let asked = Instant::now();
                request(client, latencies.len() as u64).await?;
                latencies.push(asked.elapsed());
            }
            anyhow::Ok(latencies)
        });
    }
    let mut latencies = Vec::new();
    while let Some(client) = tasks.join_next().await {
        latencies.extend(client.context("a client panicked")??);
    }
    let per_second = latencies.len() as f64 / began.elapsed().as_secs_f64();
    Ok(Load { per_second, latency: latencies.into_iter().collect() })
}
