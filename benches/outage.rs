//! All controllers die at one time, with jobs queued and running, and come back after a while.

mod common;

use std::{
    collections::{BTreeMap, BTreeSet},
    process::ExitCode,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use clap::Parser;
use common::{
    Harness,
    lab::{self, Lab, Shape, Start, Witness},
    load::closed_loop,
    spread::ms,
    table, wait_until,
};
use drigs::{
    model::{JobId, JobSpec, TaskState},
    rpc::client::Client,
};
use rustix::process::Signal;
use tokio::task::JoinSet;

/// Kills all controllers, and looks at what is left when they return.
#[derive(Parser, Debug)]
struct Options {
    #[command(flatten)]
    harness: Harness,
    /// How long the controllers stay away, in seconds [default: 60; 5 in a test]
    #[arg(long)]
    pause: Option<u64>,
    /// Jobs in the queue [default: 10000; 200 in a test]
    #[arg(long)]
    queued: Option<usize>,
    /// Jobs that run [default: 50; 4 in a test]
    #[arg(long)]
    running: Option<usize>,
}

const WORKERS: usize = 2;
/// Clients that fill the queue.
const CLIENTS: usize = 32;
/// Clients that submit while the controllers die, and until they are back.
const STUBBORN: usize = 4;
/// How long a submission may be tried: longer than any pause.
const SUBMIT_DEADLINE: Duration = Duration::from_secs(300);
const START_DEADLINE: Duration = Duration::from_secs(60);
const DRAIN_DEADLINE: Duration = Duration::from_secs(600);

fn main() -> ExitCode {
    common::run(survive(Options::parse()))
}

async fn survive(options: Options) -> anyhow::Result<()> {
    let harness = &options.harness;
    table::print_machine(harness.dir())?;
    let pause = Duration::from_secs(options.pause.unwrap_or(harness.pick(60, 5)));
    let queued = options.queued.unwrap_or(harness.pick(10_000, 200));
    let running = options.running.unwrap_or(harness.pick(50, 4));
    let cpus = u32::try_from(running.div_ceil(WORKERS)).context("--running is too large")?;
    let mut lab = Lab::start(harness.dir(), Shape { workers: WORKERS, cpus }).await?;
    let (client, witness) = (lab.client()?, lab.witness()?);

    let fill = cpus as usize * WORKERS;
    let long_jobs = start_long_jobs(&client, &witness, fill).await?;
    let mut acknowledged = fill_queue(&lab, &witness, queued).await?;
    println!("{} jobs run and {} are queued", long_jobs.len(), acknowledged.len());

    let stubborn = Stubborn::start(&lab, &witness)?;
    tokio::time::sleep(Duration::from_millis(500)).await;
    for id in lab.ids() {
        lab.controller(id)?.signal(Signal::KILL);
    }
    for id in lab.ids() {
        lab.controller(id)?.wait_until_gone().await?;
    }
    println!("all controllers are killed; {} s without any", pause.as_secs());
    tokio::time::sleep(pause).await;
    let back = Instant::now();
    for id in lab.ids() {
        lab.start_again(id)?;
    }
    let first = stubborn.first_after(back).await?;
    println!("first acknowledgement {} ms after the restart", ms(first));
    acknowledged.extend(stubborn.finish().await?);

    check_nothing_moved(&client, &witness, &long_jobs, &acknowledged).await?;
    println!(
        "checked: {} acknowledged submissions are known, each once; {} running jobs are untouched",
        acknowledged.len(),
        long_jobs.len()
    );
    let took = drain(&client, &witness, &long_jobs, &acknowledged).await?;
    println!(
        "checked: with the running jobs cancelled, all {} queued ones ran, each once, in {:.1} s",
        acknowledged.len(),
        took.as_secs_f64()
    );
    Ok(())
}

type LongJobs = BTreeMap<String, (JobId, Start)>;
type Acknowledged = BTreeMap<String, JobId>;

/// Enough to take every CPU.
async fn start_long_jobs(
    client: &Client,
    witness: &Witness,
    count: usize,
) -> anyhow::Result<LongJobs> {
    let mut jobs = Vec::new();
    for number in 0..count {
        let name = format!("long-{number}");
        let spec = JobSpec {
            command: witness.command("long", &name, "sleep 86400"),
            priority: JobSpec::MAX_PRIORITY,
            name: name.clone(),
            ..JobSpec::default()
        };
        jobs.push((name, lab::submit(client, spec).await?));
    }
    let all_started = async || witness.read().is_ok_and(|starts| starts.len() == count);
    wait_until("the long jobs start", START_DEADLINE, all_started).await?;
    let starts = witness.read()?;
    let with_start = |(name, job): (String, JobId)| {
        let start = starts.get(&name)?.first()?.clone();
        Some((name, (job, start)))
    };
    Ok(jobs.into_iter().filter_map(with_start).collect())
}

fn short_job(witness: &Witness, name: &str) -> JobSpec {
    // A file per client: tens of thousands of them would be a load of their own.
    let file = name.rsplit_once('-').map_or(name, |(client, _)| client);
    let command = witness.command(file, name, "true");
    JobSpec { name: name.to_owned(), command, ..JobSpec::default() }
}

async fn fill_queue(lab: &Lab, witness: &Witness, count: usize) -> anyhow::Result<Acknowledged> {
    let clients: Vec<Client> = (0..CLIENTS).map(|_| lab.client()).collect::<anyhow::Result<_>>()?;
    let acknowledged = Arc::new(Mutex::new(Acknowledged::new()));
    let next = Arc::new(AtomicUsize::new(0));
    let (witness, taken) = (witness.clone(), acknowledged.clone());
    let all_asked = next.clone();
    let mut filling = std::pin::pin!(closed_loop(CLIENTS, DRAIN_DEADLINE, move |client, _| {
        let number = next.fetch_add(1, Ordering::Relaxed);
        let name = format!("queued-{client}-{number}");
        let spec = short_job(&witness, &name);
        let (connection, taken) = (clients[client].clone(), taken.clone());
        async move {
            if number >= count {
                // Its last turn: there is nothing left to ask for.
                return std::future::pending().await;
            }
            let job = lab::submit(&connection, spec).await?;
            taken.lock().unwrap_or_else(PoisonError::into_inner).insert(name, job);
            Ok(())
        }
    }));
    let all_taken = async || {
        all_asked.load(Ordering::Relaxed) >= count
            && acknowledged.lock().unwrap_or_else(PoisonError::into_inner).len() >= count
    };
    tokio::select! {
        filled = &mut filling => { filled?; }
        waited = wait_until("the queue is full", DRAIN_DEADLINE, all_taken) => waited?,
    }
    Ok(std::mem::take(&mut *acknowledged.lock().unwrap_or_else(PoisonError::into_inner)))
}

/// Clients that do not give up while nobody answers.
struct Stubborn {
    tasks: JoinSet<anyhow::Result<()>>,
    taken: Arc<Mutex<Vec<(String, JobId, Instant)>>>,
}

impl Stubborn {
    fn start(lab: &Lab, witness: &Witness) -> anyhow::Result<Stubborn> {
        let taken = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = JoinSet::new();
        for client in 0..STUBBORN {
            let (connection, witness, taken) = (lab.client()?, witness.clone(), taken.clone());
            tasks.spawn(async move {
                for number in 0_u64.. {
                    let name = format!("stubborn-{client}-{number}");
                    let job = submit_stubbornly(&connection, short_job(&witness, &name)).await?;
                    let now = Instant::now();
                    taken.lock().unwrap_or_else(PoisonError::into_inner).push((name, job, now));
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                Ok(())
            });
        }
        Ok(Stubborn { tasks, taken })
    }

    async fn first_after(&self, back: Instant) -> anyhow::Result<Duration> {
        let mut first = None;
        wait_until("submissions are taken again", SUBMIT_DEADLINE, async || {
            let taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
            first = taken.iter().map(|(.., at)| *at).find(|at| *at > back);
            first.is_some()
        })
        .await?;
        Ok(first.context("nothing was taken")? - back)
    }

    /// What they were acknowledged. A submission under way may or may not be taken.
    async fn finish(mut self) -> anyhow::Result<Vec<(String, JobId)>> {
        // Everyone gets a second to be acknowledged once more, so that none of them hangs.
        tokio::time::sleep(Duration::from_secs(1)).await;
        self.tasks.abort_all();
        while let Some(ended) = self.tasks.join_next().await {
            if let Ok(failed) = ended {
                failed?;
            }
        }
        let taken = std::mem::take(&mut *self.taken.lock().unwrap_or_else(PoisonError::into_inner));
        Ok(taken.into_iter().map(|(name, job, _)| (name, job)).collect())
    }
}

/// The same key every time, so that it is taken once.
async fn submit_stubbornly(client: &Client, spec: JobSpec) -> anyhow::Result<JobId> {
    let deadline = Instant::now() + SUBMIT_DEADLINE;
    loop {
        match lab::submit(client, spec.clone()).await {
            Ok(job) => return Ok(job),
            Err(error) => ensure!(Instant::now() < deadline, "{}: {error:#}", spec.name),
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn check_nothing_moved(
    client: &Client,
    witness: &Witness,
    long_jobs: &LongJobs,
    acknowledged: &Acknowledged,
) -> anyhow::Result<()> {
    let mut known: BTreeMap<String, BTreeSet<JobId>> = BTreeMap::new();
    for job in lab::all_jobs(client).await? {
        known.entry(job.name).or_default().insert(job.job_id);
    }
    for (name, job) in acknowledged {
        let found = known.get(name);
        ensure!(
            found.is_some_and(|found| found.len() == 1 && found.contains(job)),
            "{name} was acknowledged as job {job} and is known as {found:?}"
        );
    }
    let starts = witness.read()?;
    for (name, (job, start)) in long_jobs {
        let task = lab::only_task(client, *job).await?;
        ensure!(
            task.status == TaskState::Running
                && start.attempt == format!("{job}.0.{}", task.attempt),
            "{name} is {:?}, attempt {}, and began as {}",
            task.status,
            task.attempt,
            start.attempt
        );
        ensure!(starts.get(name).is_some_and(|it| it.len() == 1), "{name} was started again");
        let words = common::process::words(start.pid);
        ensure!(words.first().is_some_and(|word| word == "sleep"), "the process of {name} is gone");
    }
    Ok(())
}

/// Gives the workers to the queue. Answers how long it took to run it.
async fn drain(
    client: &Client,
    witness: &Witness,
    long_jobs: &LongJobs,
    acknowledged: &Acknowledged,
) -> anyhow::Result<Duration> {
    let began = Instant::now();
    for (job, _) in long_jobs.values() {
        lab::cancel(client, *job).await?;
    }
    let jobs: Vec<JobId> = acknowledged.values().copied().collect();
    lab::wait_until_over(client, &jobs, DRAIN_DEADLINE).await?;
    let took = began.elapsed();
    let starts = witness.read()?;
    for name in acknowledged.keys() {
        let times = starts.get(name).map_or(0, Vec::len);
        ensure!(times == 1, "{name} was started {times} times");
    }
    Ok(took)
}
