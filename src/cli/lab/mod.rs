//! `drigs lab`: a whole cluster of real processes on this machine, in a directory of its own.

mod demo;
mod layout;
mod processes;

use std::{path::PathBuf, time::Duration};

use anyhow::{Context as _, bail, ensure};
use clap::{Args, Subcommand};
use tokio::signal::unix::{SignalKind, signal};

use self::{layout::Layout, processes::Processes};
use crate::rpc::{
    api::{Api, Consistency},
    client::{Client, ClientConfig},
};

/// Flags of `drigs lab`.
#[derive(Args, Clone, Debug)]
pub struct LabArgs {
    #[command(subcommand)]
    pub action: Option<LabAction>,
    /// Where the lab lives [default: a temporary directory, removed at the end]
    #[arg(long)]
    pub dir: Option<PathBuf>,
    /// How many controllers
    #[arg(long, default_value_t = 3)]
    pub controllers: usize,
    /// How many workers
    #[arg(long, default_value_t = 3)]
    pub workers: usize,
    /// CPU cores that each worker offers
    #[arg(long, default_value_t = 4)]
    pub cpus: u32,
    /// GPUs that each worker offers
    #[arg(long, default_value = "simulated:2xT4")]
    pub gpus: String,
    /// How long a silent worker is trusted
    #[arg(long, default_value = "20s")]
    pub lease: String,
    /// Return once it serves and leave it running; `drigs lab stop --dir DIR` ends it
    #[arg(long, requires = "dir")]
    pub detach: bool,
    /// Show by itself what DRIGS promises: kill the leader under load, lose nothing, run nothing twice
    #[arg(long, conflicts_with = "detach")]
    pub demo: bool,
}

#[derive(Subcommand, Clone, Debug)]
pub enum LabAction {
    /// End a detached lab and everything it runs
    Stop {
        #[arg(long)]
        dir: PathBuf,
    },
    /// Say which processes of a lab live, and how the cluster is
    Status {
        #[arg(long)]
        dir: PathBuf,
    },
}

/// How long a lab may take to serve.
const START_DEADLINE: Duration = Duration::from_secs(60);

/// Runs `drigs lab`.
///
/// # Errors
/// When it cannot start, or the demo did not show what it should.
pub async fn run(args: LabArgs) -> anyhow::Result<()> {
    match &args.action {
        Some(LabAction::Stop { dir }) => {
            return processes::stop_detached(&Layout::load(dir)?).await;
        }
        Some(LabAction::Status { dir }) => return status(&Layout::load(dir)?).await,
        None => {}
    }
    ensure!((1..=9).contains(&args.controllers), "--controllers {}: 1 to 9", args.controllers);
    ensure!(args.workers <= 64, "--workers {}: 0 to 64", args.workers);
    ensure!(args.workers > 0 || !args.demo, "--workers 0: the demo needs 1 at least");
    let layout = Layout::create(&args)?;
    let mut interrupted = Interrupt::listen()?;
    println!(
        "Starting {} controllers and {} workers in {} …",
        args.controllers,
        args.workers,
        layout.dir.display()
    );
    let mut processes = Processes::start(&layout)?;
    let client = client(&layout)?;
    let ready = tokio::select! {
        ready = wait_until_ready(&client, args.workers, &mut processes) => ready,
        () = interrupted.wait() => Err(anyhow::anyhow!("interrupted")),
    };
    if let Err(error) = ready {
        let error = error.context(processes.last_words());
        processes.stop().await;
        return Err(error);
    }
    processes.record(&layout)?;
    if args.detach {
        print_usage(&layout);
        processes.leave_running();
        return Ok(());
    }
    let outcome = if args.demo {
        tokio::select! {
            outcome = demo::run(&layout, &client, &mut processes) => outcome,
            () = interrupted.wait() => Err(anyhow::anyhow!("interrupted")),
        }
    } else {
        print_usage(&layout);
        println!("\nCtrl-C ends the lab.");
        interrupted.wait().await;
        Ok(())
    };
    println!("\nStopping the lab …");
    processes.stop().await;
    layout.remove_if_temporary();
    outcome
}

fn client(layout: &Layout) -> anyhow::Result<Client> {
    Ok(Client::new(ClientConfig {
        controllers: layout.controllers.iter().map(|it| it.grpc.clone()).collect(),
        token: Some(layout.token.clone()),
        deadline: Duration::from_secs(15),
    })?)
}

async fn wait_until_ready(
    client: &Client,
    workers: usize,
    processes: &mut Processes,
) -> anyhow::Result<()> {
    let deadline = tokio::time::Instant::now() + START_DEADLINE;
    loop {
        if let Some(dead) = processes.first_dead() {
            bail!("{dead} ended while the lab was starting");
        }
        let status = tokio::time::timeout_at(deadline, client.status(Consistency::Linearizable));
        match status.await {
            Ok(Ok(status)) if status.workers_ready as usize >= workers => return Ok(()),
            Ok(Ok(_) | Err(_)) if tokio::time::Instant::now() < deadline => {}
            _ => bail!("the lab does not serve after {} s", START_DEADLINE.as_secs()),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn print_usage(layout: &Layout) {
    let env = layout.env_file();
    println!("The lab serves: {}", layout.url());
    println!();
    println!("  . {}        # so that `drigs` finds it", env.display());
    println!("  drigs submit -G 1 -- nvidia-smi-or-your-program");
    println!("  drigs submit -a 0-9 -- sh -c 'echo task $DRIGS_TASK_ID; sleep 2'");
    println!("  drigs jobs --watch");
    println!("  drigs cluster status");
    println!("  kill -9 <the leader's pid from {}>", layout.pids_file().display());
}

async fn status(layout: &Layout) -> anyhow::Result<()> {
    let mut all = true;
    for (name, pid) in processes::recorded(layout)? {
        let lives = processes::is_ours(pid, layout);
        all &= lives;
        println!("{name:<14} pid {pid:<8} {}", if lives { "running" } else { "gone" });
    }
    let status = client(layout)?.status(Consistency::Linearizable).await?;
    println!(
        "leader: controller {}; {} of {} workers ready; {} tasks queued, {} running",
        status.leader.map_or(String::from("none"), |leader| leader.to_string()),
        status.workers_ready,
        status.workers,
        status.tasks.queued,
        status.tasks.running
    );
    ensure!(all, "some processes are gone");
    Ok(())
}

/// Ctrl-C, or a polite end from outside.
struct Interrupt {
    int: tokio::signal::unix::Signal,
    term: tokio::signal::unix::Signal,
}

impl Interrupt {
    fn listen() -> anyhow::Result<Self> {
        Ok(Interrupt {
            int: signal(SignalKind::interrupt()).context("cannot listen for Ctrl-C")?,
            term: signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?,
        })
    }

    async fn wait(&mut self) {
        tokio::select! {
            _ = self.int.recv() => {}
            _ = self.term.recv() => {}
        }
    }
}
