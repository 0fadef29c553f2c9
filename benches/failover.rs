//! How long nobody's submission is acknowledged when the leader dies, beside a three-node etcd's puts; and that nothing
//! is lost, doubled or disturbed by it.

mod common;

use std::{
    collections::BTreeMap,
    process::ExitCode,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use clap::Parser;
use common::{
    Harness,
    etcd::{Etcd, EtcdClient},
    lab::{self, Lab, Shape, Witness},
    spread::Spread,
    table::{self, Figures},
    wait_until,
};
use drigs::{
    model::{JobId, JobSpec, MilliCpus, Request, TaskState},
    rpc::{
        api::{Api, SubmitRequest},
        client::Client,
    },
};
use rand::RngExt;
use rustix::process::Signal;
use tokio::{sync::watch, task::JoinSet};

/// Kills the leader under submitting clients, over and over.
#[derive(Parser, Debug)]
struct Options {
    #[command(flatten)]
    harness: Harness,
    /// How often the leader is killed [default: 50; 2 in a test]
    #[arg(long)]
    kills: Option<usize>,
    /// Ask the leader to end (SIGTERM) instead: then no client may see an error
    #[arg(long)]
    sigterm: bool,
    /// Clients that write all the time
    #[arg(long, default_value_t = 8)]
    clients: u64,
    /// How long each client pauses between an acknowledgement and its next write, in milliseconds
    #[arg(long, default_value_t = 40)]
    pause: u64,
}

/// Kills of one cluster in a row, before it is the other one's turn: so both see the same machine.
const TURN: usize = 10;
const LONG_JOBS: usize = 8;
const WORKERS: usize = 2;
/// Of each worker: the long jobs and some short ones beside them.
const CPUS: u32 = 8;
const PUT_BYTES: usize = 256;
/// An etcd member that lost its leader may keep a put for seven seconds; a client with any sense asks another one.
const PUT_PATIENCE: Duration = Duration::from_millis(250);
/// How long a client goes on with one write.
const WRITE_DEADLINE: Duration = Duration::from_secs(60);
/// How long the jobs of one turn may take to end.
const DRAIN_DEADLINE: Duration = Duration::from_secs(600);

fn main() -> ExitCode {
    common::run(compare(Options::parse()))
}

async fn compare(options: Options) -> anyhow::Result<()> {
    let root = options.harness.dir();
    table::print_machine(root)?;
    let kills = options.kills.unwrap_or(options.harness.pick(50, 2));
    let plan = Plan {
        signal: if options.sigterm { Signal::TERM } else { Signal::KILL },
        clients: options.clients,
        pause: Duration::from_millis(options.pause),
        settle_ms: options.harness.pick(800, 200),
    };
    let mut drigs =
        Drigs::start(Lab::start(root, Shape { workers: WORKERS, cpus: CPUS }).await?).await?;
    let mut etcd = match options.harness.has_etcd() {
        true => Some(Etcd::start(root).await?),
        false => None,
    };
    let (mut ours, mut theirs) = (Outcome::default(), Outcome::default());
    for first in (0..kills).step_by(TURN) {
        let turn = TURN.min(kills - first);
        ours.add(plan.carry_out(&mut drigs, first, turn).await?);
        drigs.wait_until_drained(&ours).await?;
        if let Some(etcd) = &mut etcd {
            theirs.add(plan.carry_out(etcd, first, turn).await?);
        }
        println!("{} of {kills} leaders ended", first + turn);
    }
    print_comparison(&plan, &ours, etcd.is_some().then_some(&theirs));
    let verdict = drigs.check(&ours).await?;
    println!("{verdict}");
    if options.sigterm {
        ensure!(ours.errors.is_empty(), "clients saw {} errors", ours.errors.len());
    }
    Ok(())
}

fn print_comparison(plan: &Plan, ours: &Outcome, theirs: Option<&Outcome>) {
    let mut figures = Figures::new([""].into_iter().chain(Spread::HEADINGS));
    type Measure = (&'static str, fn(&Outcome) -> Spread);
    let measures: [Measure; 3] = [
        ("nobody acknowledged", Outcome::gaps),
        ("longest wait of each client", Outcome::waits),
        ("nobody acknowledged while it rejoins", Outcome::rejoin_gaps),
    ];
    for (what, of) in measures {
        let mine = of(ours);
        figures.row(&format!("{what}: drigs"), mine.cells());
        if let Some(theirs) = theirs {
            let theirs = of(theirs);
            figures.row(&format!("{what}: etcd"), theirs.cells());
            figures.row("drigs / etcd", mine.ratios(&theirs));
        }
    }
    let how =
        if plan.signal == Signal::KILL { "killed (SIGKILL)" } else { "asked to end (SIGTERM)" };
    figures.print(&format!("The leader is {how} under {} clients", plan.clients));
    for (name, outcome) in [("drigs", Some(ours)), ("etcd", theirs)] {
        let Some(outcome) = outcome else { continue };
        let first = outcome.errors.first().map(|error| format!(", first: {error}"));
        println!(
            "{name}: {} writes acknowledged, {} errors seen by clients{}",
            outcome.acknowledged.len(),
            outcome.errors.len(),
            first.unwrap_or_default()
        );
    }
}

/// What is done to a cluster, whichever it is.
struct Plan {
    signal: Signal,
    clients: u64,
    pause: Duration,
    /// How long the load runs undisturbed between two ends, at least; at most twice as long.
    settle_ms: u64,
}

/// What such a plan needs of a cluster.
trait Cluster {
    type Client: Writer;
    fn connect(&self, client: u64) -> anyhow::Result<Self::Client>;
    async fn leader(&self) -> anyhow::Result<u64>;
    /// Returns at once; the end comes when it comes.
    fn end(&mut self, id: u64, signal: Signal) -> anyhow::Result<()>;
    async fn start_again(&mut self, id: u64) -> anyhow::Result<()>;
}

/// One client of it.
trait Writer: Send + Sync + 'static {
    /// One try; the same name again writes the same thing again, and not a second one.
    fn write(&self, name: &str) -> impl Future<Output = anyhow::Result<Option<JobId>>> + Send;
    /// After a failure.
    fn turn_elsewhere(&self);
}

#[derive(Debug)]
struct Acknowledged {
    client: u64,
    name: String,
    job: Option<JobId>,
    asked: Instant,
    at: Instant,
}

/// One end of a leader and what came after it.
#[derive(Clone, Copy, Debug)]
struct Round {
    ended: Instant,
    restarted: Instant,
    over: Instant,
}

#[derive(Debug, Default)]
struct Outcome {
    acknowledged: Vec<Acknowledged>,
    rounds: Vec<Round>,
    errors: Vec<String>,
}

impl Plan {
    async fn carry_out<C: Cluster>(
        &self,
        cluster: &mut C,
        first: usize,
        ends: usize,
    ) -> anyhow::Result<Outcome> {
        let journal = Arc::new(Journal::default());
        let (stop, stopped) = watch::channel(false);
        let mut writers = JoinSet::new();
        for client in 0..self.clients {
            let writer = cluster.connect(client)?;
            let names = format!("turn-{first}-client-{client}");
            writers.spawn(write_until(
                writer,
                client,
                names,
                self.pause,
                journal.clone(),
                stopped.clone(),
            ));
        }
        let mut rounds = Vec::new();
        for _ in 0..ends {
            self.settle().await;
            rounds.push(self.end_leader(cluster, &journal).await?);
        }
        self.settle().await;
        stop.send_replace(true);
        while let Some(writer) = writers.join_next().await {
            writer.context("a client panicked")??;
        }
        // The next end is the last moment that belongs to a round.
        let ended: Vec<Instant> = rounds.iter().map(|round| round.ended).skip(1).collect();
        let overs = ended.into_iter().chain([Instant::now()]);
        let rounds = rounds.into_iter().zip(overs).map(|(round, over)| Round { over, ..round });
        Ok(journal.finish(rounds.collect()))
    }

    async fn settle(&self) {
        let length = rand::rng().random_range(self.settle_ms..=2 * self.settle_ms);
        tokio::time::sleep(Duration::from_millis(length)).await;
    }

    async fn end_leader<C: Cluster>(
        &self,
        cluster: &mut C,
        journal: &Journal,
    ) -> anyhow::Result<Round> {
        let leader = cluster.leader().await?;
        let ended = Instant::now();
        cluster.end(leader, self.signal)?;
        // What the dead one had still acknowledged comes at once; every client asks again after its pause.
        let quiet = ended + self.pause + Duration::from_millis(20);
        let flows = async || journal.last_asked().is_some_and(|asked| asked > quiet);
        wait_until("writes go on after the leader's end", WRITE_DEADLINE, flows).await?;
        let restarted = Instant::now();
        cluster.start_again(leader).await?;
        Ok(Round { ended, restarted, over: restarted })
    }
}

/// What the clients of a turn write down.
#[derive(Debug, Default)]
struct Journal(Mutex<Outcome>);

impl Journal {
    fn note(&self, acknowledged: Acknowledged) {
        self.lock().acknowledged.push(acknowledged);
    }

    fn note_error(&self, error: String) {
        self.lock().errors.push(error);
    }

    /// When the write was asked for that was acknowledged last.
    fn last_asked(&self) -> Option<Instant> {
        self.lock().acknowledged.last().map(|last| last.asked)
    }

    fn finish(&self, rounds: Vec<Round>) -> Outcome {
        let mut outcome = std::mem::take(&mut *self.lock());
        outcome.acknowledged.sort_by_key(|it| it.at);
        outcome.rounds = rounds;
        outcome
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Outcome> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn write_until<W: Writer>(
    writer: W,
    client: u64,
    names: String,
    pause: Duration,
    journal: Arc<Journal>,
    stopped: watch::Receiver<bool>,
) -> anyhow::Result<()> {
    let mut number = 0;
    while !*stopped.borrow() {
        number += 1;
        let name = format!("{names}-{number}");
        let asked = Instant::now();
        let job = loop {
            match writer.write(&name).await {
                Ok(job) => break job,
                Err(error) => {
                    let waited = asked.elapsed();
                    ensure!(waited < WRITE_DEADLINE, "{name} is not taken: {error:#}");
                    journal
                        .note_error(format!("{name}, after {} ms: {error:#}", waited.as_millis()));
                    writer.turn_elsewhere();
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            }
        };
        journal.note(Acknowledged { client, name, job, asked, at: Instant::now() });
        tokio::time::sleep(pause).await;
    }
    Ok(())
}

impl Outcome {
    fn add(&mut self, other: Outcome) {
        self.acknowledged.extend(other.acknowledged);
        self.rounds.extend(other.rounds);
        self.errors.extend(other.errors);
    }

    /// The longest time after each end in which no client was acknowledged anything.
    fn gaps(&self) -> Spread {
        self.rounds.iter().map(|it| self.longest_silence(it.ended, it.restarted)).collect()
    }

    /// The same after each restart: what the return of a member costs.
    fn rejoin_gaps(&self) -> Spread {
        self.rounds.iter().map(|it| self.longest_silence(it.restarted, it.over)).collect()
    }

    fn longest_silence(&self, from: Instant, to: Instant) -> Duration {
        let first = self.acknowledged.partition_point(|it| it.at < from);
        let times = self.acknowledged[first..].iter().map(|it| it.at).take_while(|at| *at <= to);
        let mut longest = Duration::ZERO;
        let mut last = from;
        for at in times {
            longest = longest.max(at - last);
            last = at;
        }
        longest
    }

    /// For each client, the longest it waited for one acknowledgement in each round.
    fn waits(&self) -> Spread {
        let mut longest: BTreeMap<(usize, u64), Duration> = BTreeMap::new();
        for (number, round) in self.rounds.iter().enumerate() {
            let first = self.acknowledged.partition_point(|it| it.at < round.ended);
            for it in self.acknowledged[first..].iter().take_while(|it| it.at <= round.over) {
                let wait = longest.entry((number, it.client)).or_default();
                *wait = (*wait).max(it.at - it.asked);
            }
        }
        longest.into_values().collect()
    }
}

/// DRIGS with jobs of its own that must not notice.
struct Drigs {
    lab: Lab,
    client: Client,
    witness: Witness,
    /// Where each long job was at the beginning.
    long_jobs: BTreeMap<String, (JobId, lab::Start)>,
}

struct DrigsClient {
    client: Client,
    witness: Witness,
}

impl Drigs {
    async fn start(lab: Lab) -> anyhow::Result<Drigs> {
        let (client, witness) = (lab.client()?, lab.witness()?);
        let mut jobs = BTreeMap::new();
        for number in 0..LONG_JOBS {
            let name = format!("long-{number}");
            let spec = JobSpec {
                command: witness.command("long", &name, "sleep 86400"),
                priority: JobSpec::MAX_PRIORITY,
                name: name.clone(),
                ..JobSpec::default()
            };
            jobs.insert(name, lab::submit(&client, spec).await?);
        }
        let all_started = async || witness.read().is_ok_and(|starts| starts.len() == LONG_JOBS);
        wait_until("the long jobs start", Duration::from_secs(30), all_started).await?;
        let starts = witness.read()?;
        let long_jobs = jobs
            .into_iter()
            .filter_map(|(name, job)| {
                let start = starts.get(&name)?.first()?.clone();
                Some((name, (job, start)))
            })
            .collect();
        Ok(Drigs { lab, client, witness, long_jobs })
    }

    /// The short jobs of a turn must not be the load of the other cluster's turn.
    async fn wait_until_drained(&self, outcome: &Outcome) -> anyhow::Result<()> {
        let jobs: Vec<JobId> = outcome.acknowledged.iter().filter_map(|it| it.job).collect();
        match jobs.last() {
            Some(last) => lab::wait_until_over(&self.client, &[*last], DRAIN_DEADLINE).await,
            None => Ok(()),
        }
    }

    /// Compares what was acknowledged with what there is, and with what really ran.
    async fn check(&self, outcome: &Outcome) -> anyhow::Result<String> {
        let acknowledged: Vec<(&str, JobId)> = outcome
            .acknowledged
            .iter()
            .map(|it| Ok((it.name.as_str(), it.job.context("no job for a submission")?)))
            .collect::<anyhow::Result<_>>()?;
        let jobs: Vec<JobId> = acknowledged.iter().map(|(_, job)| *job).collect();
        lab::wait_until_over(&self.client, &jobs, DRAIN_DEADLINE).await?;

        let mut known: BTreeMap<String, Vec<(JobId, TaskState)>> = BTreeMap::new();
        for job in lab::all_jobs(&self.client).await? {
            known.entry(job.name).or_default().push((job.job_id, job.status));
        }
        let starts = self.witness.read()?;
        let mut faults = Vec::new();
        for (name, job) in &acknowledged {
            match known.get(*name).map(Vec::as_slice) {
                Some([(it, TaskState::Completed)]) if it == job => {}
                other => faults.push(format!("{name} (job {job}) is known as {other:?}")),
            }
        }
        for (name, starts) in &starts {
            if starts.len() != 1 {
                faults.push(format!("{name} was started {} times: {starts:?}", starts.len()));
            }
        }
        let not_started = acknowledged.iter().filter(|(name, _)| !starts.contains_key(*name));
        faults.extend(not_started.map(|(name, job)| format!("{name} (job {job}) never ran")));
        faults.extend(self.disturbed_long_jobs().await?);
        let first: Vec<&String> = faults.iter().take(10).collect();
        ensure!(faults.is_empty(), "{} faults, such as {first:#?}", faults.len());
        Ok(format!(
            "checked: {} acknowledged submissions, each known once and started once (0 lost, 0 doubled); \
             {LONG_JOBS} long jobs untouched through {} ends of leaders",
            acknowledged.len(),
            outcome.rounds.len()
        ))
    }

    async fn disturbed_long_jobs(&self) -> anyhow::Result<Vec<String>> {
        let mut faults = Vec::new();
        for (name, (job, start)) in &self.long_jobs {
            let task = lab::only_task(&self.client, *job).await?;
            let attempt = format!("{job}.0.{}", task.attempt);
            if task.status != TaskState::Running || attempt != start.attempt {
                faults.push(format!("{name} is {:?} as attempt {attempt}", task.status));
            }
            let words = common::process::words(start.pid);
            if words.first().is_none_or(|word| word != "sleep") {
                faults.push(format!("the process of {name} is gone"));
            }
        }
        Ok(faults)
    }
}

impl Cluster for Drigs {
    type Client = DrigsClient;

    fn connect(&self, _: u64) -> anyhow::Result<DrigsClient> {
        Ok(DrigsClient { client: self.lab.client()?, witness: self.witness.clone() })
    }

    async fn leader(&self) -> anyhow::Result<u64> {
        self.lab.cluster().await?.leader.context("no leader")
    }

    fn end(&mut self, id: u64, signal: Signal) -> anyhow::Result<()> {
        self.lab.controller(id)?.signal(signal);
        Ok(())
    }

    async fn start_again(&mut self, id: u64) -> anyhow::Result<()> {
        self.lab.controller(id)?.wait_until_gone().await?;
        self.lab.start_again(id)?;
        self.lab.wait_until_caught_up(id).await
    }
}

impl DrigsClient {
    /// A short job on a tenth of a core, so that they do not queue up.
    fn submission(&self, name: &str) -> SubmitRequest {
        lab::submission(JobSpec {
            name: name.to_owned(),
            command: self.witness.command(&file_of(name), name, "true"),
            request: Request { cpus: MilliCpus(100), ..Request::default() },
            ..JobSpec::default()
        })
    }
}

/// One witness file per turn and client.
fn file_of(name: &str) -> String {
    name.rsplit_once('-').map_or(name, |(client, _)| client).to_owned()
}

impl Writer for DrigsClient {
    async fn write(&self, name: &str) -> anyhow::Result<Option<JobId>> {
        let submitted = self.client.submit(self.submission(name)).await?;
        Ok(Some(submitted.job_id.context("acknowledged without a job")?))
    }

    /// The client does that by itself.
    fn turn_elsewhere(&self) {}
}

impl Cluster for Etcd {
    type Client = EtcdClient;

    /// Spread over the members, as clients with a list of them are.
    fn connect(&self, client: u64) -> anyhow::Result<EtcdClient> {
        let ids = self.ids();
        self.client(ids[client as usize % ids.len()], PUT_PATIENCE)
    }

    async fn leader(&self) -> anyhow::Result<u64> {
        Etcd::leader(self).await
    }

    fn end(&mut self, id: u64, signal: Signal) -> anyhow::Result<()> {
        self.member(id)?.signal(signal);
        Ok(())
    }

    async fn start_again(&mut self, id: u64) -> anyhow::Result<()> {
        self.member(id)?.wait_until_gone().await?;
        self.member(id)?.start_again()?;
        self.wait_until_caught_up(id).await
    }
}

impl Writer for EtcdClient {
    async fn write(&self, name: &str) -> anyhow::Result<Option<JobId>> {
        self.put(name, bytes::Bytes::from_static(&[b'v'; PUT_BYTES])).await?;
        Ok(None)
    }

    fn turn_elsewhere(&self) {
        self.turn_to_next();
    }
}
