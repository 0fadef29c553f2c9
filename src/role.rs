//! What a program becomes after its flags are read: a controller, a worker, or both in one process.

use std::{net::SocketAddr, path::PathBuf, process::ExitCode};

use anyhow::Context as _;
use clap::Args;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::controller::{self, ControllerArgs};
use crate::model::Millis;
use crate::telemetry::{self, LogFormat};
use crate::worker::{self, WorkerArgs};

/// Flags of `drigs server`: what one machine needs to say.
#[derive(Args, Clone, Debug)]
pub struct ServerArgs {
    /// Where everything is kept
    #[arg(long, env = "DRIGS_DATA_DIR", default_value = "drigs-data")]
    pub data_dir: PathBuf,
    /// Where clients connect (gRPC)
    #[arg(long, env = "DRIGS_LISTEN", default_value = "127.0.0.1:7070")]
    pub listen: SocketAddr,
    /// Where /metrics and /v1/health are served
    #[arg(long, env = "DRIGS_HTTP", default_value = "127.0.0.1:8000")]
    pub http: SocketAddr,
    /// The secret that clients must present
    #[arg(long, env = "DRIGS_TOKEN", hide_env_values = true, conflicts_with = "token_file")]
    pub token: Option<String>,
    /// A file with that secret
    #[arg(long, env = "DRIGS_TOKEN_FILE")]
    pub token_file: Option<PathBuf>,
    /// Accept anyone who can reach the port
    #[arg(long)]
    pub insecure: bool,
    /// CPU cores to offer [default: those of the machine]
    #[arg(long)]
    pub cpus: Option<u32>,
    /// Memory to offer, such as 60G [default: that of the machine]
    #[arg(long)]
    pub memory: Option<String>,
    /// GPUs to offer: none, or simulated:SPEC such as simulated:2xT4
    #[arg(long, default_value = "none")]
    pub gpus: String,
    /// How log lines look
    #[arg(long, value_enum, default_value_t)]
    pub log_format: LogFormat,
}

impl ServerArgs {
    fn split(self) -> (ControllerArgs, WorkerArgs) {
        let controller = ControllerArgs {
            id: 1,
            peers: None,
            data_dir: self.data_dir.join("controller"),
            listen: self.listen,
            http: self.http,
            token: self.token.clone(),
            token_file: self.token_file.clone(),
            insecure: self.insecure,
            lease: Millis::from_secs(20),
            heartbeat: Millis(60),
            election_min: Millis(200),
            election_max: Millis(400),
            log_format: self.log_format,
        };
        // A server that listens everywhere is still reached from here by the loopback address.
        let joins = match self.listen.ip().is_unspecified() {
            true => format!("127.0.0.1:{}", self.listen.port()),
            false => self.listen.to_string(),
        };
        let worker = WorkerArgs {
            action: None,
            join: joins,
            data_dir: self.data_dir.join("worker"),
            name: None,
            token: self.token,
            token_file: self.token_file,
            cpus: self.cpus,
            memory: self.memory,
            gpus: self.gpus,
            labels: Vec::new(),
            ephemeral: false,
            log_limit: String::from("64M"),
            log_format: self.log_format,
        };
        (controller, worker)
    }
}

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
pub fn server(args: ServerArgs) -> ExitCode {
    telemetry::init(args.log_format);
    let (controller, worker) = args.split();
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
