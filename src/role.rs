//! What a program becomes after its flags are read: a controller, a worker, or both in one process.

use std::{net::SocketAddr, path::PathBuf, process::ExitCode, time::Duration};

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
    #[arg(long, env = "DRIGS_INSECURE", value_parser = clap::builder::BoolishValueParser::new())]
    pub insecure: bool,
    /// CPU cores to offer [default: those of the machine]
    #[arg(long, env = "DRIGS_CPUS")]
    pub cpus: Option<u32>,
    /// Memory to offer, such as 60G [default: that of the machine]
    #[arg(long, env = "DRIGS_MEMORY")]
    pub memory: Option<String>,
    /// GPUs to offer: none, or simulated:SPEC such as simulated:2xT4
    #[arg(long, env = "DRIGS_GPUS", default_value = "none")]
    pub gpus: String,
    /// How log lines look
    #[arg(long, env = "DRIGS_LOG_FORMAT", value_enum, default_value_t)]
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
            keep_snapshots: 3,
            snapshot_every: Millis::from_hours(1),
            log_format: self.log_format,
        };
        // A server that listens everywhere is still reached from here by the loopback address.
        let joins = match self.listen.ip().is_unspecified() {
            true => format!("127.0.0.1:{}", self.listen.port()),
            false => self.listen.to_string(),
        };
        let worker = WorkerArgs {
            action: None,
            join: Some(joins),
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
/// How long a role that has ended waits for what it left to threads.
const LAST_WORK: Duration = Duration::from_millis(200);

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
        let outcome = runtime.block_on(async {
            let shutdown = CancellationToken::new();
            let told = tokio::spawn(cancel_when_told(shutdown.clone()));
            let outcome = role(shutdown).await;
            told.abort();
            outcome
        });
        // Whatever still reads or writes a file has had its time; nothing that counts is left to it.
        runtime.shutdown_timeout(LAST_WORK);
        outcome
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

#[cfg(test)]
mod tests {
    use clap::Command;

    use super::*;

    const OPERATIONS: &str = include_str!("../docs/OPERATIONS.md");

    #[track_caller]
    fn check<A: Args>(role: &str) {
        let command = A::augment_args(Command::new("drigs"));
        let flags: Vec<&str> = command.get_arguments().filter_map(|it| it.get_long()).collect();
        assert!(flags.len() > 5);
        for flag in command.get_arguments() {
            let long = flag.get_long().expect("roles have no other arguments");
            let variable = format!("DRIGS_{}", long.to_uppercase().replace('-', "_"));
            let known = flag.get_env().and_then(|name| name.to_str());
            assert_eq!(known, Some(variable.as_str()), "{role} --{long}");
            let row = format!("| `--{long}` | `{variable}` |");
            let row = OPERATIONS.lines().find(|line| line.starts_with(&row));
            let row = row.unwrap_or_else(|| panic!("no row for --{long} in OPERATIONS.md"));
            assert!(row.contains(role), "the row of --{long} does not name the {role}");
        }
    }

    #[test]
    fn every_flag_of_a_role_has_its_variable_and_its_row() {
        check::<ControllerArgs>("controller");
        check::<WorkerArgs>("worker");
        check::<ServerArgs>("server");
    }
}
