//! `drigs`: what people type, and every role in one program.

use std::{ffi::OsString, process::ExitCode};

use clap::{CommandFactory as _, Parser};
use drigs::{
    cli::{self, lab::LabArgs},
    controller::{self, ControllerArgs},
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
    if !is_role(&words, std::env::var_os("DRIGS_JOIN").is_some()) {
        return cli::main(words, &controller::OfflineTools, &Role::command());
    }
    match Role::parse_from(words) {
        Role::Controller(args) => role::controller(args),
        Role::Worker(args) => role::worker(args),
        Role::Server(args) => role::server(args),
        Role::Lab(args) => cli::run_lab(args),
    }
}

/// `drigs worker drain NAME` asks the cluster; `drigs worker --join …` is the agent itself, as is a bare `drigs worker`: it
/// finds what it needs in its variables, or says what is missing.
fn is_role(words: &[OsString], joins: bool) -> bool {
    let words: Vec<&str> = words.iter().skip(1).filter_map(|word| word.to_str()).collect();
    let Some((role, rest)) = words.split_first() else { return false };
    match *role {
        "controller" | "server" | "lab" => true,
        "worker" => is_agent(rest, joins),
        _ => false,
    }
}

fn is_agent(words: &[&str], joins: bool) -> bool {
    let is_verb = |word: &&str| ["drain", "resume", "forget"].contains(word);
    let is_join = |word: &&str| *word == "--join" || word.starts_with("--join=");
    let Some(first) = words.first() else { return true };
    match *first {
        "stop-all" => true,
        "-h" | "--help" => joins,
        _ if words.iter().any(is_join) => true,
        _ => first.starts_with('-') && !words.iter().any(is_verb),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(line: &str, joins: bool, role: bool) {
        let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        assert_eq!(is_role(&words, joins), role, "{line}");
    }

    #[test]
    fn the_agent_is_told_from_the_cluster() {
        check("drigs jobs", false, false);
        check("drigs lab --demo", false, true);
        check("drigs workers", true, false);
        check("drigs worker", false, true);
        check("drigs worker", true, true);
        check("drigs worker --gpus simulated:2xT4", false, true);
        check("drigs worker --join a:7070 --name drain", false, true);
        check("drigs worker --name drain --join=a:7070", false, true);
        check("drigs worker stop-all", false, true);
        check("drigs worker drain gpu-box-1", true, false);
        check("drigs worker --stale forget w3", true, false);
        check("drigs worker -o json resume w3", false, false);
        check("drigs worker dry w3", true, false);
        check("drigs worker --help", false, false);
    }
}
