//! `drigs-controller`: one of the three or more that replicate the queue.

use clap::Parser;
use drigs::controller::ControllerArgs;

/// A DRIGS controller: replicates jobs and allocations, and leads when elected.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    #[command(flatten)]
    controller: ControllerArgs,
}

fn main() -> std::process::ExitCode {
    drigs::worker::launcher::run_if_asked();
    drigs::role::controller(Arguments::parse().controller)
}
