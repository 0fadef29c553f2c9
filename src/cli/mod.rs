//! `drigs`: what people type. A file per noun; `spec` reads what they submit, `screen` shows what they asked for.

pub mod lab;

mod act;
mod cluster;
mod completions;
mod connect;
mod explain;
mod failure;
mod gpus;
mod inspect;
mod jobs;
mod logs;
mod queues;
mod screen;
mod spec;
mod status;
mod submit;
mod target;
mod wait;
mod watch;
mod workers;

use std::{
    ffi::OsString,
    io::{self, IsTerminal, Write as _},
    process::ExitCode,
};

use clap::{CommandFactory as _, Parser, Subcommand};

use self::{
    connect::Global,
    failure::{Failure, code},
    screen::Screen,
};
use crate::model::{Timestamp, UserName};
use crate::rpc::{
    api::{Api, Consistency},
    offline::Offline,
};

/// Runs GPU jobs on the machines of a cluster that outlives its controllers.
#[derive(Debug, Parser)]
#[command(
    name = "drigs",
    version,
    propagate_version = true,
    disable_help_subcommand = true,
    max_term_width = 100,
    after_help = EXAMPLES
)]
struct Arguments {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Programs (each has its own --help):
  drigs lab          A whole cluster on this machine, to try things out
  drigs server       One controller and one worker, for a single machine
  drigs controller   A controller of a cluster
  drigs worker --join HOST:PORT
                     The agent of one machine

Examples:
  drigs submit -G 1 -t 4h -- python train.py
  drigs submit job.yaml --wait
  drigs jobs --watch
  drigs explain 12             why it waits, and what would end the wait
  drigs logs -f 12
  drigs workers";

#[derive(Debug, Subcommand)]
enum Command {
    /// Submit a command, a script or a file
    Submit(Box<submit::SubmitArgs>),
    /// List jobs: those that are not over, unless asked otherwise
    #[command(visible_alias = "queue")]
    Jobs(jobs::JobsArgs),
    /// Show everything about a job
    Inspect(inspect::InspectArgs),
    /// Say why a job waits, or how it ended
    #[command(visible_alias = "diagnose")]
    Explain(explain::ExplainArgs),
    /// Show what a job writes
    Logs(logs::LogsArgs),
    /// Wait until jobs are over; ends with their exit code
    Wait(wait::WaitArgs),
    /// End jobs or tasks
    Cancel(act::CancelArgs),
    /// Keep jobs from starting
    Hold(act::Targets),
    /// Let held jobs start
    Release(act::Targets),
    /// Run jobs or tasks again from the start
    Requeue(act::Targets),
    /// Change a job that is not over
    Update(act::UpdateArgs),
    /// List the machines that run jobs
    Workers(workers::WorkersArgs),
    /// Take a machine out of service, or back in
    Worker(workers::WorkerArgs),
    /// List GPUs, and who holds them
    Gpus(gpus::GpusArgs),
    /// List queues
    Queues(queues::QueuesArgs),
    /// Create or change a queue
    QueueSet(queues::QueueSetArgs),
    /// Show the cluster at a glance
    Status(status::StatusArgs),
    /// Look after the controllers
    Cluster(cluster::ClusterArgs),
    /// Print a script that completes `drigs` in a shell
    Completions(completions::CompletionsArgs),
}

/// What every command works with.
struct Session<'a, A> {
    api: A,
    screen: Screen<'a>,
    user: UserName,
    consistency: Consistency,
    /// For what is done with files.
    offline: &'a dyn Offline,
}

/// Runs `drigs` with these words; the first one is the program's own name. `roles` are what else it understands.
pub fn main(
    words: impl IntoIterator<Item = OsString>,
    offline: &dyn Offline,
    roles: &clap::Command,
) -> ExitCode {
    let words = words.into_iter().collect();
    let words = submit::script_arguments_apart(words, Arguments::command());
    let arguments = match Arguments::try_parse_from(words) {
        Ok(arguments) => arguments,
        Err(error) => return refuse(&error),
    };
    match run(arguments, offline, roles) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if !failure.message.is_empty() {
                let _ = writeln!(io::stderr(), "drigs: {}", failure.message);
            }
            ExitCode::from(failure.code)
        }
    }
}

/// Runs `drigs lab`.
pub fn run_lab(args: lab::LabArgs) -> ExitCode {
    let ended = tokio::runtime::Runtime::new()
        .map_err(anyhow::Error::from)
        .and_then(|runtime| runtime.block_on(lab::run(args)));
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "drigs: {error:#}");
            ExitCode::from(code::FAILED)
        }
    }
}

/// Help was asked for, or the words make no sense.
fn refuse(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    use clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand as Lost;
    let _ = match error.kind() {
        Lost => error.print(),
        _ => writeln!(io::stderr(), "drigs: {}", spec::condensed(error)),
    };
    ExitCode::from(code::USAGE)
}

fn run(arguments: Arguments, offline: &dyn Offline, roles: &clap::Command) -> Result<(), Failure> {
    if let Command::Completions(args) = arguments.command {
        return completions::run(&args, roles, &mut io::stdout());
    }
    let connection = arguments.global.connect()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::new(code::FAILED, format!("cannot start: {error}")))?;
    let (mut out, mut err) = (io::stdout(), io::stderr());
    let on_terminal = out.is_terminal();
    let screen = Screen {
        out: &mut out,
        err: &mut err,
        format: connection.format,
        header: !connection.no_header,
        width: on_terminal.then(|| comfy_table::Table::new().width()).flatten(),
        colours: on_terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()),
        time_zone: jiff::tz::TimeZone::system(),
        clock: &now,
        clear: false,
    };
    let consistency = connection.consistency;
    // The client's connections belong to the runtime, so it is made inside.
    runtime.block_on(async {
        let api = connection.client()?;
        let session = Session { api, screen, user: connection.user, consistency, offline };
        carry_out(arguments.command, session).await
    })
}

async fn carry_out(command: Command, mut session: Session<'_, impl Api>) -> Result<(), Failure> {
    let session = &mut session;
    match command {
        Command::Submit(args) => submit::run(*args, session).await,
        Command::Jobs(args) => jobs::run(args, session).await,
        Command::Inspect(args) => inspect::run(args, session).await,
        Command::Explain(args) => explain::run(args, session).await,
        Command::Logs(args) => logs::run(args, session).await,
        Command::Wait(args) => wait::run(args, session).await,
        Command::Cancel(args) => act::cancel(args, session).await,
        Command::Hold(args) => act::hold(args, session).await,
        Command::Release(args) => act::release(args, session).await,
        Command::Requeue(args) => act::requeue(args, session).await,
        Command::Update(args) => act::update(args, session).await,
        Command::Workers(args) => workers::list(args, session).await,
        Command::Worker(args) => workers::act(args, session).await,
        Command::Gpus(args) => gpus::run(args, session).await,
        Command::Queues(args) => queues::list(args, session).await,
        Command::QueueSet(args) => queues::set(args, session).await,
        Command::Status(args) => status::run(args, session).await,
        Command::Cluster(args) => cluster::run(args, session).await,
        Command::Completions(_) => unreachable!("needs no session"),
    }
}

fn now() -> Timestamp {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    Timestamp(since.map_or(0, |since| since.as_millis() as u64))
}

#[cfg(test)]
mod tests;
