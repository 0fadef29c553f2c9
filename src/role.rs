//! What a program becomes after its flags are read: a controller, a worker, or both in one process.

use std::process::ExitCode;

use anyhow::Context as _;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::controller::{self, ControllerArgs};
use crate::telemetry;
use crate::worker::{self, WorkerArgs};

/// Wrong flags, as everywhere.
const USAGE: u8 = 2;

/// Runs a controller until it is told to end.
pub fn controller(args: ControllerArgs) -> ExitCode {
    telemetry::init(args.log_format);
    let config = match args.check() {
        Ok(config) => config,
        Err(error) => return usage("drigs-controller", &error),
    };
    until_told("drigs-controller", |shutdown| controller::run(config, shutdown))
}

/// Runs a worker until it is told to end. What it started runs on.
pub fn worker(args: WorkerArgs) -> ExitCode {
    telemetry::init(args.log_format);
    if let Some(action) = args.action.clone() {
        return until_told("drigs-worker", |_| worker::act(action));
    }
    let config = match args.check() {
        Ok(config) => config,
        Err(error) => return usage("drigs-worker", &error),
    };
    until_told("drigs-worker", |shutdown| worker::run(config, shutdown))
}

/// One controller and one worker: a single machine's scheduler.
pub fn server(controller: ControllerArgs, worker: WorkerArgs) -> ExitCode {
    telemetry::init(controller.log_format);
    let checked = controller.check().and_then(|controller| Ok((controller, worker.check()?)));
    let (controller, worker) = match checked {
        Ok(checked) => checked,
        Err(error) => return usage("drigs server", &error),
    };
    until_told("drigs server", |shutdown| async move {
        let both = tokio::try_join!(
            controller::run(controller, shutdown.clone()),
            worker::run(worker, shutdown)
        );
        both.map(|_| ())
    })
}

fn usage(program: &str, error: &anyhow::Error) -> ExitCode {
    eprintln!("{program}: {error:#}");
    ExitCode::from(USAGE)
}

fn until_told<F>(program: &str, role: impl FnOnce(CancellationToken) -> F) -> ExitCode
where
    F: Future<Output = anyhow::Result<()>>,
{
    let outcome = runtime().and_then(|runtime| {
        runtime.block_on(async {
            let shutdown = CancellationToken::new();
            let told = tokio::spawn(cancel_when_told(shutdown.clone()));
            let outcome = role(shutdown).await;
            told.abort();
            outcome
        })
    });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{program}: {error:#}");
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

async fn cancel_when_told(shutdown: CancellationToken) -> anyhow::Result<()> {
    let mut term = signal(SignalKind::terminate())?;
    let mut int = signal(SignalKind::interrupt())?;
    tokio::select! {
        _ = term.recv() => {}
        _ = int.recv() => {}
    }
    info!("told to end");
    shutdown.cancel();
    Ok(())
}
