//! Full load for a long time, without any fault: nobody may lose the leadership.

mod common;

use std::{
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::ensure;
use clap::Parser;
use common::{
    Harness,
    lab::{self, Lab, Shape},
    load::{Load, closed_loop},
    table::{self, Figures},
};
use drigs::{
    model::{Array, IndexSet, JobSpec},
    rpc::{
        api::{Api, Consistency},
        client::Client,
    },
};

/// Loads a cluster as much as it takes and watches its leadership.
#[derive(Parser, Debug)]
struct Options {
    #[command(flatten)]
    harness: Harness,
    /// How long, in seconds [default: 600; 5 in a test]
    #[arg(long)]
    seconds: Option<u64>,
}

const WORKERS: usize = 2;
const CPUS: u32 = 2;
/// Clients that submit small arrays and wait for their end: these fill the workers.
const RUNNERS: usize = 8;
const TASKS: u32 = 20;
/// Clients that submit and cancel at once: these fill the log.
const CHURNERS: usize = 16;
/// Clients that read.
const READERS: usize = 4;
const TASKS_DEADLINE: Duration = Duration::from_secs(300);
const LOOK_EVERY: Duration = Duration::from_millis(500);

fn main() -> ExitCode {
    common::run(endure(Options::parse()))
}

async fn endure(options: Options) -> anyhow::Result<()> {
    let harness = &options.harness;
    table::print_machine(harness.dir())?;
    let length = Duration::from_secs(options.seconds.unwrap_or(harness.pick(600, 5)));
    let lab = Lab::start(harness.dir(), Shape { workers: WORKERS, cpus: CPUS }).await?;
    let before = lab.cluster().await?;
    let (run, churn, read, changes) = tokio::try_join!(
        run_arrays(lab.client()?, length),
        churn(lab.client()?, length),
        read(lab.client()?, length),
        watch_leader(&lab, length),
    )?;
    let after = lab.cluster().await?;
    print(&run, &churn, &read);
    let memory = lab.memory_of_controllers()?;
    let rss: Vec<String> = memory.iter().map(|it| format!("{:.0}", it.rss)).collect();
    println!("controllers' RSS at the end, MiB: {}", rss.join(" / "));
    println!(
        "{} s of load: {} changes of leader, {} terms begun",
        length.as_secs(),
        changes,
        after.term - before.term
    );
    ensure!(
        changes == 0 && after.term == before.term,
        "the leadership changed without a fault: term {} became {}",
        before.term,
        after.term
    );
    Ok(())
}

fn print(run: &Load, churn: &Load, read: &Load) {
    let mut figures = Figures::new(["", "per second", "p50 ms", "p99 ms", "max ms"]);
    let rows = [
        (format!("arrays of {TASKS} tasks run ({RUNNERS} clients)"), run),
        (format!("submitted and cancelled ({CHURNERS} clients)"), churn),
        (format!("status read, linearizable ({READERS} clients)"), read),
    ];
    for (what, load) in rows {
        let [_, _, median, p99, max] = load.latency.cells();
        figures.row(&what, [format!("{:.1}", load.per_second), median, p99, max]);
    }
    figures.print("Load without a fault");
}

async fn run_arrays(client: Client, length: Duration) -> anyhow::Result<Load> {
    closed_loop(RUNNERS, length, move |runner, number| {
        let client = client.clone();
        let indices = IndexSet::from_range(0, TASKS - 1);
        let spec = JobSpec {
            name: format!("run-{runner}-{number}"),
            array: Some(Array { indices, max_running: None }),
            ..JobSpec::default()
        };
        async move {
            let job = lab::submit(&client, spec).await?;
            lab::wait_until_over(&client, &[job], TASKS_DEADLINE).await
        }
    })
    .await
}

async fn churn(client: Client, length: Duration) -> anyhow::Result<Load> {
    closed_loop(CHURNERS, length, move |churner, number| {
        let client = client.clone();
        let name = format!("churn-{churner}-{number}");
        async move {
            let spec = JobSpec { name, held: true, ..JobSpec::default() };
            let job = lab::submit(&client, spec).await?;
            lab::cancel(&client, job).await
        }
    })
    .await
}

async fn read(client: Client, length: Duration) -> anyhow::Result<Load> {
    closed_loop(READERS, length, move |_, _| {
        let client = client.clone();
        async move {
            client.status(Consistency::Linearizable).await?;
            Ok(())
        }
    })
    .await
}

/// Counts how often another leader is seen, or none.
async fn watch_leader(lab: &Lab, length: Duration) -> anyhow::Result<u64> {
    let mut changes = 0;
    let client = lab.client()?;
    let deadline = Instant::now() + length;
    let mut last = lab.cluster().await?.leader;
    while Instant::now() < deadline {
        tokio::time::sleep(LOOK_EVERY).await;
        let leader = client.cluster().await?.leader;
        if leader != last {
            changes += 1;
            println!("leader {last:?} became {leader:?}");
            last = leader;
        }
    }
    Ok(changes)
}
