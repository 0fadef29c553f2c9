//! `drigs`: what people type, and every role in one program.

use std::{ffi::OsString, process::ExitCode};

use clap::Parser;
use drigs::{
    cli::{self, lab::LabArgs},
    controller::ControllerArgs,
    role::{self, ServerArgs},
    worker,
    worker::WorkerArgs,
};

/// The words that make this program something other than a client.
#[derive(Parser)]
#[command(name = "drigs", version, disable_help_subcommand = true)]
enum Role {
    /// A controller of a cluster
    Controller(ControllerArgs),
    /// The agent of one machine
    Worker(WorkerArgs),
    /// One controller and one worker, for a single machine
    Server(ServerArgs),
    /// A whole cluster on this machine, to try things out
    Lab(LabArgs),
}

fn main() -> ExitCode {
    worker::launcher::run_if_asked();
    let words: Vec<OsString> = std::env::args_os().collect();
    if !is_role(&words) {
        return cli::main(words);
    }
    match Role::parse_from(words) {
        Role::Controller(args) => role::controller(args),
        Role::Worker(args) => role::worker(args),
        Role::Server(args) => role::server(args),
        Role::Lab(args) => cli::run_lab(args),
    }
}

/// `drigs worker drain NAME` asks the cluster; `drigs worker --join …` is the agent itself.
fn is_role(words: &[OsString]) -> bool {
    let word = |place: usize| words.get(place).and_then(|word| word.to_str()).unwrap_or_default();
    match word(1) {
        "controller" | "server" | "lab" => true,
        "worker" => word(2) == "stop-all" || (word(2).starts_with("--") && word(2) != "--help"),
        _ => false,
    }
}
