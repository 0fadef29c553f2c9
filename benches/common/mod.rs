//! What the benchmarks share: clusters of real processes that leave nothing behind, and figures side by side.

#![allow(dead_code, reason = "each benchmark is a program of its own and uses a part of this")]

pub mod etcd;
pub mod lab;
pub mod load;
pub mod process;
pub mod spread;
pub mod table;

use std::{
    future::Future,
    path::{Path, PathBuf},
    pin::pin,
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use tokio::signal::unix::{SignalKind, signal};

/// Flags that every benchmark has.
#[derive(clap::Args, Debug)]
pub struct Harness {
    /// What `cargo bench` adds; without it this is a test
    #[arg(long, hide = true)]
    bench: bool,
    /// A small input: shows that the program works, not how fast
    #[arg(long)]
    test: bool,
    /// Where the clusters keep their data; the disk is part of what is measured
    #[arg(long, default_value = env!("CARGO_TARGET_TMPDIR"))]
    dir: PathBuf,
    /// Measure DRIGS without its peer
    #[arg(long)]
    alone: bool,
}

impl Harness {
    /// `full` when measuring, `small` in a test.
    pub fn pick<T>(&self, full: T, small: T) -> T {
        if self.test || !self.bench { small } else { full }
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Whether there is a peer to measure beside.
    pub fn has_etcd(&self) -> bool {
        !self.alone && etcd::is_installed()
    }
}

/// Runs a benchmark to its end, or until it is told to end. Either way what it started is ended with it.
pub fn run(benchmark: impl Future<Output = anyhow::Result<()>>) -> ExitCode {
    let outcome = runtime().and_then(|runtime| runtime.block_on(until_interrupted(benchmark)));
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("FAILED: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")
}

async fn until_interrupted(
    benchmark: impl Future<Output = anyhow::Result<()>>,
) -> anyhow::Result<()> {
    let mut int = signal(SignalKind::interrupt())?;
    let mut term = signal(SignalKind::terminate())?;
    let benchmark = pin!(benchmark);
    tokio::select! {
        outcome = benchmark => outcome,
        _ = int.recv() => bail!("interrupted"),
        _ = term.recv() => bail!("told to end"),
    }
}

/// Asks until the answer is yes.
pub async fn wait_until(
    what: &str,
    within: Duration,
    mut ask: impl AsyncFnMut() -> bool,
) -> anyhow::Result<()> {
    let deadline = Instant::now() + within;
    while !ask().await {
        if Instant::now() > deadline {
            bail!("{what}: not within {} s", within.as_secs());
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(())
}
