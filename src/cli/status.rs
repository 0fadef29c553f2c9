//! `drigs status`.

use clap::Args;

use crate::cli::{Session, failure::Failure, watch::Watch};
use crate::rpc::api::{Api, StatusView};

#[derive(Args, Clone, Debug)]
pub struct StatusArgs {
    #[command(flatten)]
    watch: Watch,
}

pub async fn run(args: StatusArgs, session: &mut Session<'_, impl Api>) -> Result<(), Failure> {
    args.watch
        .run(session, async |session: &mut Session<'_, _>| {
            let status = session.api.status(session.consistency).await?;
            session.screen.show(&status, |_| text(&status))
        })
        .await
}

fn text(status: &StatusView) -> String {
    let leader = status.leader.map_or_else(
        || String::from("no leader: nothing starts until one is elected"),
        |leader| format!("{leader} leads"),
    );
    let tasks = &status.tasks;
    let mut text = String::new();
    let mut line = |name: &str, value: String| text.push_str(&format!("{name:<12} {value}\n"));
    line("Cluster", format!("{}, version {}", status.cluster_id, status.version));
    line(
        "Controllers",
        format!("{} of {} reachable, {leader}", status.controllers_reachable, status.controllers),
    );
    line("Workers", format!("{} of {} ready", status.workers_ready, status.workers));
    line("CPUs", format!("{} of {} in use", status.cpus_used, status.cpus));
    line("Memory", format!("{} of {} in use", status.memory_used, status.memory));
    line("GPUs", format!("{} of {} in use", status.gpus_used, status.gpus));
    line("Waiting", format!("{} tasks, and {} held or blocked", tasks.queued, tasks.pending));
    line(
        "Running",
        format!(
            "{} tasks, {} starting, {} recovering",
            tasks.running, tasks.scheduled, tasks.recovering
        ),
    );
    line(
        "Over",
        format!(
            "{} completed, {} failed, {} cancelled",
            tasks.completed, tasks.failed, tasks.cancelled
        ),
    );
    line("Submitted", format!("{} jobs so far", status.jobs_submitted));
    text
}
