//! How fast submissions become durable, beside a three-node etcd's puts of about the same size; how fast an array is
//! taken; and how fast short tasks run.

mod common;

use std::{
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use clap::Parser;
use common::{
    Harness,
    etcd::{Etcd, EtcdClient},
    lab::{self, Lab, Shape},
    load::{Load, closed_loop},
    process::Memory,
    spread::{Spread, ms, ratio},
    table::{self, Figures},
};
use drigs::{
    model::{Array, IndexSet, JobSpec, TaskState},
    rpc::{api::Api, client::Client},
};

/// Submissions per second, and what comes after them.
#[derive(Parser, Debug)]
struct Options {
    #[command(flatten)]
    harness: Harness,
    /// How long each load runs [default: 10; 1 in a test]
    #[arg(long)]
    seconds: Option<u64>,
    /// How often both are measured, in turns; the median counts [default: 3; 1 in a test]
    #[arg(long)]
    rounds: Option<usize>,
    /// Only the submissions, not the tasks
    #[arg(long)]
    submissions_only: bool,
    /// Only the tasks, not the submissions
    #[arg(long)]
    tasks_only: bool,
}

const FEW: usize = 1;
const MANY: usize = 256;
/// Over how many connections the clients of one load share; the same for both clusters.
const CONNECTIONS: usize = 16;
const PUT_BYTES: usize = 256;
/// What a submission's environment holds, so that the whole of it is about as large as the peer's put.
const PADDING: usize = 150;
const PUT_PATIENCE: Duration = Duration::from_secs(20);
const TASKS_DEADLINE: Duration = Duration::from_secs(300);

fn main() -> ExitCode {
    common::run(measure(Options::parse()))
}

async fn measure(options: Options) -> anyhow::Result<()> {
    table::print_machine(options.harness.dir())?;
    if !options.tasks_only {
        compare_submissions(&options).await?;
    }
    if !options.submissions_only {
        measure_tasks(&options.harness).await?;
    }
    Ok(())
}

/// One kind of load on one cluster, in every round.
#[derive(Debug, Default)]
struct Runs(Vec<Load>);

impl Runs {
    /// The one in the middle by speed.
    fn median(&self) -> Option<&Load> {
        let mut runs: Vec<&Load> = self.0.iter().collect();
        runs.sort_by(|a, b| a.per_second.total_cmp(&b.per_second));
        runs.get(runs.len() / 2).copied()
    }
}

#[derive(Debug, Default)]
struct Side {
    few: Runs,
    many: Runs,
    memory: Vec<Memory>,
    writes: f64,
}

async fn compare_submissions(options: &Options) -> anyhow::Result<()> {
    let rounds = options.rounds.unwrap_or(options.harness.pick(3, 1));
    let length = Duration::from_secs(options.seconds.unwrap_or(options.harness.pick(10, 1)));
    let has_etcd = options.harness.has_etcd();
    let (mut held, mut queued, mut etcd) = (Side::default(), Side::default(), Side::default());
    for round in 1..=rounds {
        // Each cluster is alone on the machine while it is measured.
        submit_to_lab(&options.harness, length, true, &mut held).await?;
        submit_to_lab(&options.harness, length, false, &mut queued).await?;
        if has_etcd {
            put_to_etcd(&options.harness, length, &mut etcd).await?;
        }
        println!("round {round} of {rounds} done");
    }
    print_submissions(&held, &queued, has_etcd.then_some(&etcd));
    print_memory(&held, &queued, has_etcd.then_some(&etcd));
    Ok(())
}

async fn submit_to_lab(
    harness: &Harness,
    length: Duration,
    held: bool,
    side: &mut Side,
) -> anyhow::Result<()> {
    let lab = Lab::start(harness.dir(), Shape { workers: 1, cpus: 1 }).await?;
    let clients: Vec<Client> =
        (0..CONNECTIONS).map(|_| lab.client()).collect::<anyhow::Result<_>>()?;
    if !held {
        occupy(&clients[0]).await?;
    }
    let mut writes = 0.0;
    for (count, runs) in [(FEW, &mut side.few), (MANY, &mut side.many)] {
        let clients = clients.clone();
        let load = closed_loop(count, length, move |client, number| {
            let connection = clients[client % CONNECTIONS].clone();
            let mut spec = padded(format!("load-{count}-client-{client}-{number}"));
            spec.held = held;
            async move { lab::submit(&connection, spec).await.map(|_| ()) }
        })
        .await?;
        writes += load.latency.len() as f64;
        runs.0.push(load);
    }
    side.memory = lab.memory_of_controllers()?;
    side.writes = writes;
    Ok(())
}

async fn put_to_etcd(harness: &Harness, length: Duration, side: &mut Side) -> anyhow::Result<()> {
    let etcd = Etcd::start(harness.dir()).await?;
    // The leader takes puts fastest.
    let leader = etcd.leader().await?;
    let clients: Vec<EtcdClient> = (0..CONNECTIONS)
        .map(|_| etcd.client(leader, PUT_PATIENCE))
        .collect::<anyhow::Result<_>>()?;
    let mut writes = 0.0;
    for (count, runs) in [(FEW, &mut side.few), (MANY, &mut side.many)] {
        let clients = clients.clone();
        let load = closed_loop(count, length, move |client, number| {
            let connection = clients[client % CONNECTIONS].clone();
            async move {
                let key = format!("load-{count}-client-{client}-{number}");
                Ok(connection.put(&key, bytes::Bytes::from_static(&[b'v'; PUT_BYTES])).await?)
            }
        })
        .await?;
        writes += load.latency.len() as f64;
        runs.0.push(load);
    }
    side.memory = etcd.memory()?;
    side.writes = writes;
    Ok(())
}

/// Takes the lab's only CPU, so that what is submitted after it stays in the queue.
async fn occupy(client: &Client) -> anyhow::Result<()> {
    let spec = JobSpec {
        name: String::from("occupant"),
        command: vec![String::from("sleep"), String::from("86400")],
        priority: JobSpec::MAX_PRIORITY,
        ..JobSpec::default()
    };
    let job = lab::submit(client, spec).await?;
    common::wait_until("the occupant runs", Duration::from_secs(30), async || {
        let task = lab::only_task(client, job).await;
        task.is_ok_and(|task| task.status == TaskState::Running)
    })
    .await
}

fn padded(name: String) -> JobSpec {
    let env = [(String::from("PADDING"), "v".repeat(PADDING))].into();
    JobSpec { name, env, ..JobSpec::default() }
}

fn print_submissions(held: &Side, queued: &Side, etcd: Option<&Side>) {
    let headings = ["", "per second", "p50 ms", "p99 ms", "max ms", "of etcd's rate"];
    let mut figures = Figures::new(headings);
    type Pick = fn(&Side) -> &Runs;
    let picks: [(usize, Pick); 2] = [(FEW, |side| &side.few), (MANY, |side| &side.many)];
    for (clients, of) in picks {
        let peer = etcd.and_then(|etcd| of(etcd).median());
        let sides =
            [("drigs, held", Some(held)), ("drigs, queued", Some(queued)), ("etcd puts", etcd)];
        for (name, side) in sides {
            let Some(load) = side.and_then(|side| of(side).median()) else { continue };
            let of_peer =
                peer.map_or(String::from("-"), |peer| ratio(load.per_second, peer.per_second));
            let latency = &load.latency;
            let cells = [
                format!("{:.0}", load.per_second),
                ms(latency.median()),
                ms(latency.p99()),
                ms(latency.max()),
                of_peer,
            ];
            figures.row(&format!("{clients} clients: {name}"), cells);
        }
    }
    figures.print("Durable submissions beside puts of 256 bytes (medians by speed)");
}

fn print_memory(held: &Side, queued: &Side, etcd: Option<&Side>) {
    let mut figures = Figures::new(["", "entries", "RSS MiB of each", "PSS MiB of each"]);
    let sides = [
        ("drigs controllers, held jobs", Some(held)),
        ("drigs controllers, queued jobs", Some(queued)),
        ("etcd members", etcd),
    ];
    for (name, side) in sides {
        let Some(side) = side else { continue };
        let list = |pick: fn(&Memory) -> f64| {
            let all: Vec<String> =
                side.memory.iter().map(|it| format!("{:.0}", pick(it))).collect();
            all.join(" / ")
        };
        let cells = [format!("{:.0}", side.writes), list(|it| it.rss), list(|it| it.pss)];
        figures.row(name, cells);
    }
    figures.print("Memory after the last round");
}

/// Tasks of `true` on one worker with two CPUs.
async fn measure_tasks(harness: &Harness) -> anyhow::Result<()> {
    let lab = Lab::start(harness.dir(), Shape { workers: 1, cpus: 2 }).await?;
    let client = lab.client()?;
    let idle_memory = lab.memory_of_controllers()?;
    let worker_memory = lab.memory_of_workers()?;
    let (acknowledged, finished) = one_by_one(&client, harness.pick(200, 10)).await?;
    let mut figures = Figures::new([""].into_iter().chain(Spread::HEADINGS));
    figures.row("submit to acknowledged", acknowledged.cells());
    figures.row("submit to finished", finished.cells());
    figures
        .print("One `true` at a time on an idle worker (HyperQueue, not replicated: 9.5 ms p50)");

    let tasks = harness.pick(1_000, 20);
    let rounds = harness.pick(3, 1);
    for round in 1..=rounds {
        let took = array_of_true(&client, &format!("array-{round}"), tasks).await?;
        println!(
            "{tasks} tasks of `true` on one worker with 2 CPUs: {:.2} s, {:.0} tasks/s \
             (quoted: HyperQueue 850 to 910 without replication, Slurm 45 tuned)",
            took.as_secs_f64(),
            f64::from(tasks) / took.as_secs_f64()
        );
    }
    let took = huge_array(&client).await?;
    println!("an array of {} tasks: acknowledged after {} ms", JobSpec::MAX_TASKS, ms(took));
    for (name, memory) in [("controller", idle_memory), ("worker", worker_memory)] {
        let all: Vec<String> =
            memory.iter().map(|it| format!("RSS {:.1} PSS {:.1}", it.rss, it.pss)).collect();
        println!("memory of an idle {name}, MiB: {}", all.join("; "));
    }
    Ok(())
}

async fn one_by_one(client: &Client, jobs: usize) -> anyhow::Result<(Spread, Spread)> {
    let (mut acknowledged, mut finished) = (Vec::new(), Vec::new());
    for number in 0..jobs {
        let asked = Instant::now();
        let spec = JobSpec { name: format!("one-{number}"), ..JobSpec::default() };
        let job = lab::submit(client, spec).await?;
        acknowledged.push(asked.elapsed());
        lab::wait_until_over(client, &[job], TASKS_DEADLINE).await?;
        finished.push(asked.elapsed());
    }
    Ok((acknowledged.into_iter().collect(), finished.into_iter().collect()))
}

async fn array_of_true(client: &Client, name: &str, tasks: u32) -> anyhow::Result<Duration> {
    let asked = Instant::now();
    let job = lab::submit(client, array(name, tasks)).await?;
    lab::wait_until_over(client, &[job], TASKS_DEADLINE).await?;
    let took = asked.elapsed();
    let answer = client.wait(vec![job], Duration::ZERO).await?;
    let view = answer.jobs.first().context("the array is not known")?;
    ensure!(
        view.tasks.completed == u64::from(tasks),
        "{} of {tasks} tasks completed",
        view.tasks.completed
    );
    Ok(took)
}

async fn huge_array(client: &Client) -> anyhow::Result<Duration> {
    let asked = Instant::now();
    let tasks = u32::try_from(JobSpec::MAX_TASKS).context("too many tasks")?;
    let job = lab::submit(client, array("huge", tasks)).await?;
    let took = asked.elapsed();
    lab::cancel(client, job).await?;
    Ok(took)
}

fn array(name: &str, tasks: u32) -> JobSpec {
    let indices = IndexSet::from_range(0, tasks - 1);
    let array = Some(Array { indices, max_running: None });
    JobSpec { name: name.to_owned(), array, ..JobSpec::default() }
}
