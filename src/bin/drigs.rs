//! `drigs`: what people type, and every role in one program.

use clap::{Parser, Subcommand};
use drigs::{controller::ControllerArgs, worker::WorkerArgs};

#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Controller(ControllerArgs),
    Worker(WorkerArgs),
    Lab(drigs::cli::lab::LabArgs),
}

fn main() -> std::process::ExitCode {
    drigs::worker::launcher::run_if_asked();
    match Arguments::parse().command {
        Command::Controller(args) => drigs::role::controller(args),
        Command::Worker(args) => drigs::role::worker(args),
        Command::Lab(args) => {
            let runtime = tokio::runtime::Runtime::new().unwrap();
            match runtime.block_on(drigs::cli::lab::run(args)) {
                Ok(()) => std::process::ExitCode::SUCCESS,
                Err(error) => {
                    eprintln!("drigs: {error:#}");
                    std::process::ExitCode::FAILURE
                }
            }
        }
    }
}
