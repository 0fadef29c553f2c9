//! `drigs workers`, and `drigs worker drain|resume|forget`.

use std::io::{self, BufRead as _, IsTerminal as _};

use clap::{Args, Subcommand};

use crate::cli::{
    Session,
    failure::{Failure, code},
    screen::{Cell, Screen, Table},
    watch::Watch,
};
use crate::model::Millis;
use crate::rpc::api::{Api, WorkerAction, WorkerView};

#[derive(Args, Clone, Debug)]
pub struct WorkersArgs {
    #[command(flatten)]
    watch: Watch,
}

#[derive(Args, Clone, Debug)]
pub struct WorkerArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Clone, Debug, Subcommand)]
enum Verb {
    /// Let what runs there end, and start nothing new
    Drain {
        /// Its name or id: gpu-box-1, w3
        name: String,
        /// Shown to everyone who asks why
        #[arg(short, long, default_value = "drained by an operator")]
        reason: String,
    },
    /// Start jobs there again
    Resume { name: String },
    /// Assert that a silent machine is gone, so that its jobs may run elsewhere at once
    #[command(long_about = FORGET)]
    Forget {
        name: String,
        /// Do not ask
        #[arg(short, long)]
        yes: bool,
    },
}

const FORGET: &str = "\
Assert that a silent machine is gone, so that its jobs may run elsewhere at once.

A worker that is out of touch may still be running its jobs, so they are not started elsewhere before their \
`--lost-after` has passed. With `forget` you take it upon you that nothing runs there any more: the machine is off, \
or you have ended its jobs. If that is not so, jobs run twice until it comes back and is told to end them.";

pub async fn list(args: WorkersArgs, session: &mut Session<'_, impl Api>) -> Result<(), Failure> {
    args.watch
        .run(session, async |session: &mut Session<'_, _>| {
            let workers = session.api.workers(session.consistency).await?;
            session.screen.show(&workers, |screen| table(&workers, screen).draw(screen))
        })
        .await
}

fn table(workers: &[WorkerView], screen: &Screen<'_>) -> Table {
    let narrow = ["ID", "~NAME", "STATUS", ">CPUS", ">MEMORY", ">GPUS", ">RUNNING", "~REASON"];
    let wide = ["ADDRESS", ">HEARD", "VERSION", "LABELS"];
    let more = if screen.is_wide() { &wide[..] } else { &[] };
    let mut table = Table::new(narrow.into_iter().chain(more.iter().copied()));
    for worker in workers {
        let mut cells: Vec<Cell> = vec![
            (&worker.worker_id).into(),
            (&worker.name).into(),
            Cell::health(&worker.status, "READY"),
            format!("{}/{}", worker.cpus_used, worker.cpus).into(),
            format!("{}/{}", worker.memory_used, worker.memory).into(),
            format!("{}/{}", worker.gpus_used, worker.gpus).into(),
            worker.running.into(),
            worker.reason.as_deref().unwrap_or_default().into(),
        ];
        if screen.is_wide() {
            let heard = worker.heard_ms_ago.map(|ago| format!("{} ago", Millis(ago)));
            let labels = worker.labels.iter().map(|(key, value)| format!("{key}={value}"));
            let labels: Vec<String> = labels.collect();
            cells.extend([
                Cell::from(&worker.address),
                heard.unwrap_or_default().into(),
                (&worker.version).into(),
                labels.join(",").into(),
            ]);
        }
        table.row(cells);
    }
    table
}

pub async fn act(args: WorkerArgs, session: &mut Session<'_, impl Api>) -> Result<(), Failure> {
    let (name, action, done) = match args.verb {
        Verb::Drain { name, reason } => (name, WorkerAction::Drain { reason }, "draining"),
        Verb::Resume { name } => (name, WorkerAction::Resume, "takes jobs again:"),
        Verb::Forget { name, yes } => {
            if !yes && io::stdin().is_terminal() {
                confirm(&name, session)?;
            }
            (name, WorkerAction::Forget, "forgotten:")
        }
    };
    session.api.act_on_worker(name.clone(), action).await?;
    session.screen.note(format!("{done} {name}"));
    Ok(())
}

/// Asks a person; scripts have read what it means.
fn confirm<A>(name: &str, session: &mut Session<'_, A>) -> Result<(), Failure> {
    session.screen.note(format!(
        "This asserts that nothing runs on {name} any more: it is off, or its jobs were ended.\n\
         If that is not so, its jobs run twice until it comes back. Forget it? [y/N]"
    ));
    let mut answer = String::new();
    let _ = io::stdin().lock().read_line(&mut answer);
    match answer.trim().to_ascii_lowercase().as_str() {
        "y" | "yes" => Ok(()),
        _ => Err(Failure::new(code::FAILED, "nothing was done")),
    }
}
