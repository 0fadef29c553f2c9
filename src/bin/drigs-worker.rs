//! `drigs-worker`: the agent of one machine.

use clap::Parser;
use drigs::worker::WorkerArgs;

/// A DRIGS worker: joins a cluster and runs what it orders on this machine.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    #[command(flatten)]
    worker: WorkerArgs,
}

fn main() -> std::process::ExitCode {
    drigs::worker::launcher::run_if_asked();
    drigs::role::worker(Arguments::parse().worker)
}
