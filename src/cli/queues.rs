//! `drigs queues` and `drigs queue-set`.

use clap::Args;

use crate::cli::{
    Session,
    failure::Failure,
    screen::{Cell, Table},
    spec,
    watch::Watch,
};
use crate::model::Queue;
use crate::rpc::api::{Api, QueueView};

#[derive(Args, Clone, Debug)]
pub struct QueuesArgs {
    #[command(flatten)]
    watch: Watch,
}

#[derive(Args, Clone, Debug)]
pub struct QueueSetArgs {
    name: String,
    /// Queues of higher priority are served first, whatever their jobs' own
    #[arg(long, value_name = "N", value_parser = spec::priority, allow_negative_numbers = true)]
    priority: Option<u32>,
    /// Its share beside other queues under a fair order
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    weight: Option<u32>,
    /// How many GPUs its running tasks may hold together; `none` for no limit
    #[arg(long, value_name = "N", value_parser = max_gpus)]
    max_gpus: Option<MaxGpus>,
    /// Take no new jobs; what it has runs on
    #[arg(long, conflicts_with = "open")]
    close: bool,
    /// Take jobs (again)
    #[arg(long)]
    open: bool,
}

#[derive(Clone, Copy, Debug)]
struct MaxGpus(Option<u32>);

fn max_gpus(text: &str) -> Result<MaxGpus, String> {
    match (text, text.parse()) {
        ("none", _) => Ok(MaxGpus(None)),
        (_, Ok(most)) => Ok(MaxGpus(Some(most))),
        (_, Err(_)) => Err(format!("`{text}` is not a number of GPUs, nor `none`")),
    }
}

pub async fn list(args: QueuesArgs, session: &mut Session<'_, impl Api>) -> Result<(), Failure> {
    args.watch
        .run(session, async |session: &mut Session<'_, _>| {
            let queues = session.api.queues(session.consistency).await?;
            session.screen.show(&queues, |screen| table(&queues).draw(screen))
        })
        .await
}

fn table(queues: &[QueueView]) -> Table {
    let mut table =
        Table::new(["~NAME", "STATE", ">PRIORITY", ">WEIGHT", ">MAX GPUS", ">WAITING", ">ACTIVE"]);
    for view in queues {
        let queue = &view.queue;
        table.row([
            (&view.name).into(),
            Cell::health(if queue.open { "OPEN" } else { "CLOSED" }, "OPEN"),
            queue.priority.into(),
            queue.weight.into(),
            queue.max_gpus.map(|most| most.to_string()).unwrap_or_default().into(),
            view.waiting_jobs.into(),
            view.active_tasks.into(),
        ]);
    }
    table
}

/// What is not said stays as it is.
pub async fn set(args: QueueSetArgs, session: &mut Session<'_, impl Api>) -> Result<(), Failure> {
    let known = session.api.queues(session.consistency).await?;
    let known = known.into_iter().find(|view| view.name == args.name);
    let verb = if known.is_some() { "changed" } else { "created" };
    let old = known.map(|view| view.queue).unwrap_or_default();
    let queue = Queue {
        priority: args.priority.unwrap_or(old.priority),
        weight: args.weight.unwrap_or(old.weight),
        max_gpus: args.max_gpus.map_or(old.max_gpus, |most| most.0),
        open: args.open || (old.open && !args.close),
    };
    session.api.put_queue(args.name.clone(), queue).await?;
    session.screen.note(format!("{verb} queue {}", args.name));
    Ok(())
}
