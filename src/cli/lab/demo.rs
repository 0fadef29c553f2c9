//! `drigs lab --demo`: shows, and checks, that a cluster outlives its leader.

use std::{
    collections::BTreeMap,
    fs,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail, ensure};
use tokio::sync::watch;

use crate::cli::lab::{layout::Layout, processes::Processes};
use crate::model::{
    Array, GpuRequest, IdempotencyKey, IndexSet, JobId, JobSpec, Request, TaskState, UserName,
};
use crate::rpc::{
    api::{Api, Consistency, LogRequest, SubmitRequest, TaskFilter, TaskView},
    client::Client,
};
use futures::StreamExt;

const ARRAY_TASKS: u32 = 40;
/// The long job prints this many lines, five a second.
const TICKS: u32 = 40;
/// Clients that submit all the time while the leader dies.
const SUBMITTERS: usize = 4;
/// How long anything here may take.
const DEADLINE: Duration = Duration::from_secs(60);

/// The whole tour.
pub async fn run(
    layout: &Layout,
    client: &Client,
    processes: &mut Processes,
) -> anyhow::Result<()> {
    let demo = Demo { client: client.clone(), witness: layout.dir.join("witness") };
    fs::create_dir_all(&demo.witness).context("cannot make the witness directory")?;

    say("An array of 40 tasks and a long job that prints are submitted.");
    let array = demo.submit("array", demo.array()).await?;
    let long = demo.submit("long", demo.long_job()).await?;
    demo.wait_for_ticks(long, 3).await?;
    let before = demo.only_task(long).await?;
    say(&format!("Job {long} prints on {}: tick 3 of {TICKS}.", before.worker_names.join(", ")));

    let (stop, stopped) = watch::channel(false);
    let submitters: Vec<_> = (0..SUBMITTERS)
        .map(|number| tokio::spawn(submit_until(demo.clone(), number, stopped.clone())))
        .collect();
    tokio::time::sleep(Duration::from_millis(500)).await;
    let leader = demo.leader().await?;
    let pid = processes.controller_pid(leader).context("the leader is not of this lab")?;
    say(&format!(
        "{SUBMITTERS} clients submit all the time. The leader, controller {leader} (pid {pid}), is killed with SIGKILL."
    ));
    processes.kill_controller(leader)?;
    let killed = Instant::now();
    tokio::time::sleep(Duration::from_millis(2500)).await;
    stop.send_replace(true);
    let mut acknowledged = Vec::new();
    for submitter in submitters {
        acknowledged.extend(submitter.await.context("a submitting client panicked")??);
    }
    let gap = gap_around(killed, &acknowledged)?;
    let new_leader = demo.leader().await?;
    say(&format!(
        "Controller {new_leader} leads now. Submissions were acknowledged again after {} ms.",
        gap.as_millis()
    ));

    let ticks = demo.ticks(long).await?;
    demo.wait_for_ticks(long, (ticks + 2).min(TICKS as usize)).await?;
    say(&format!("The long job never noticed: it printed tick {ticks} and goes on."));
    let place = layout.controllers.iter().find(|it| it.id == leader).context("no such place")?;
    processes.start_controller(place)?;
    say(&format!("Controller {leader} is started again and catches up."));

    let jobs: Vec<JobId> =
        [array, long].into_iter().chain(acknowledged.iter().map(|it| it.job)).collect();
    demo.wait_until_over(&jobs).await?;
    let after = demo.only_task(long).await?;
    ensure!(after.attempt == before.attempt, "the long job was started a second time");
    ensure!(demo.ticks(long).await? == TICKS as usize, "the long job's output is not whole");
    let tasks = demo.check_witnesses(array, &acknowledged)?;
    demo.wait_for_member(leader).await?;
    say(&format!(
        "Checked: {} acknowledged submissions, {tasks} tasks: none lost, none run twice; gap {} ms.",
        jobs.len(),
        gap.as_millis()
    ));
    println!("\nDEMO PASSED");
    Ok(())
}

fn say(line: &str) {
    println!("• {line}");
}

#[derive(Clone)]
struct Demo {
    client: Client,
    /// Every task writes its name here when it starts: what really ran, whatever anybody believes.
    witness: PathBuf,
}

/// A submission that a controller acknowledged, and when.
struct Acknowledged {
    job: JobId,
    name: String,
    at: Instant,
}

impl Demo {
    /// Appends one line per start: `>>` of so few bytes is atomic.
    fn witness_script(&self, name: &str, then: &str) -> Vec<String> {
        let file = self.witness.join(name);
        let script = format!("echo $DRIGS_ATTEMPT_ID >> '{}'; {then}", file.display());
        vec![String::from("/bin/sh"), String::from("-c"), script]
    }

    fn array(&self) -> JobSpec {
        JobSpec {
            name: String::from("array"),
            command: self.witness_script("array", "sleep 0.2"),
            array: Some(Array {
                indices: IndexSet::from_range(0, ARRAY_TASKS - 1),
                max_running: None,
            }),
            ..JobSpec::default()
        }
    }

    fn long_job(&self) -> JobSpec {
        let ticks = format!("for i in $(seq 1 {TICKS}); do echo tick $i; sleep 0.2; done");
        JobSpec {
            name: String::from("long"),
            command: self.witness_script("long", &ticks),
            request: Request {
                gpus: GpuRequest { count: 1, ..GpuRequest::default() },
                ..Request::default()
            },
            priority: 10,
            ..JobSpec::default()
        }
    }

    async fn submit(&self, key: &str, spec: JobSpec) -> anyhow::Result<JobId> {
        let request = SubmitRequest {
            spec,
            user: UserName::from("demo"),
            key: IdempotencyKey::new(format!("demo-{key}")),
            strict: false,
            dry_run: false,
        };
        let submitted = self.client.submit(request).await?;
        submitted.job_id.context("a submission was acknowledged without a job")
    }

    async fn leader(&self) -> anyhow::Result<u64> {
        let deadline = Instant::now() + DEADLINE;
        loop {
            if let Ok(cluster) = self.client.cluster().await
                && let Some(leader) = cluster.leader
            {
                return Ok(leader);
            }
            ensure!(Instant::now() < deadline, "no leader");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn only_task(&self, job: JobId) -> anyhow::Result<TaskView> {
        let filter = TaskFilter { job, index: Some(0), states: Vec::new(), limit: 1, after: None };
        let page = self.client.tasks(filter, Consistency::Linearizable).await?;
        page.tasks.into_iter().next().context("the job has no task")
    }

    /// How many lines the job has printed.
    async fn ticks(&self, job: JobId) -> anyhow::Result<usize> {
        let request = LogRequest {
            task: crate::model::TaskId { job, index: 0 },
            attempt: None,
            node: 0,
            follow: false,
            tail: None,
            from: 0,
        };
        let mut stream = self.client.logs(request).await?;
        let mut text = Vec::new();
        while let Some(chunk) = stream.next().await {
            text.extend_from_slice(&chunk?.bytes);
        }
        Ok(String::from_utf8_lossy(&text).matches("tick ").count())
    }

    async fn wait_for_ticks(&self, job: JobId, wanted: usize) -> anyhow::Result<()> {
        let deadline = Instant::now() + DEADLINE;
        loop {
            match self.ticks(job).await {
                Ok(ticks) if ticks >= wanted => return Ok(()),
                Ok(_) | Err(_) if Instant::now() < deadline => {}
                Ok(ticks) => bail!("job {job} printed {ticks} lines only"),
                Err(error) => return Err(error.context("the output cannot be read")),
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    async fn wait_until_over(&self, jobs: &[JobId]) -> anyhow::Result<()> {
        let deadline = Instant::now() + DEADLINE;
        for job in jobs {
            loop {
                let answer = self.client.wait(vec![*job], Duration::from_secs(2)).await?;
                if answer.done {
                    let status = answer.jobs.first().map(|job| job.status);
                    ensure!(status == Some(TaskState::Completed), "job {job} ended as {status:?}");
                    break;
                }
                ensure!(Instant::now() < deadline, "job {job} is not over in time");
            }
        }
        Ok(())
    }

    async fn wait_for_member(&self, id: u64) -> anyhow::Result<()> {
        let deadline = Instant::now() + DEADLINE;
        loop {
            let cluster = self.client.cluster().await?;
            let member = cluster.members.iter().find(|member| member.id == id);
            if member.and_then(|member| member.lag).is_some_and(|lag| lag < 100) {
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "controller {id} does not catch up");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Compares what really ran with what was promised. Answers how many tasks that were.
    fn check_witnesses(&self, array: JobId, acknowledged: &[Acknowledged]) -> anyhow::Result<u64> {
        let mut starts: BTreeMap<String, u32> = BTreeMap::new();
        let mut files: BTreeMap<String, u32> = BTreeMap::new();
        for entry in fs::read_dir(&self.witness)? {
            let entry = entry?;
            let text = fs::read_to_string(entry.path())?;
            files.insert(
                entry.file_name().to_string_lossy().into_owned(),
                text.lines().count() as u32,
            );
            for attempt in text.lines() {
                let task = attempt.rsplit_once('.').map_or(attempt, |(task, _)| task);
                *starts.entry(task.to_owned()).or_default() += 1;
            }
        }
        for (task, times) in &starts {
            ensure!(*times == 1, "task {task} was started {times} times");
        }
        let of_array = format!("{array}.");
        let array_tasks = starts.keys().filter(|task| task.starts_with(&of_array)).count();
        ensure!(array_tasks == ARRAY_TASKS as usize, "{array_tasks} tasks of the array ran");
        for submission in acknowledged {
            let times = files.get(&submission.name).copied().unwrap_or(0);
            ensure!(times == 1, "job {} was acknowledged and ran {times} times", submission.job);
        }
        let jobs: std::collections::BTreeSet<JobId> =
            acknowledged.iter().map(|it| it.job).collect();
        ensure!(jobs.len() == acknowledged.len(), "two submissions were given one job");
        Ok(starts.len() as u64)
    }
}

/// One client: submits small jobs, one after the other.
async fn submit_until(
    demo: Demo,
    number: usize,
    stopped: watch::Receiver<bool>,
) -> anyhow::Result<Vec<Acknowledged>> {
    let demo = Arc::new(demo);
    let mut acknowledged = Vec::new();
    while !*stopped.borrow() {
        let name = format!("client-{number}-{}", acknowledged.len());
        let spec = JobSpec {
            name: name.clone(),
            command: demo.witness_script(&name, "true"),
            ..JobSpec::default()
        };
        let job = demo.submit(&name, spec).await?;
        acknowledged.push(Acknowledged { job, name, at: Instant::now() });
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(acknowledged)
}

/// From the kill to the first acknowledgement that a new leader gave. What the old one had still acknowledged comes
/// within a moment of the kill; an election takes longer than that.
fn gap_around(killed: Instant, acknowledged: &[Acknowledged]) -> anyhow::Result<Duration> {
    let later = acknowledged.iter().filter(|it| it.at > killed + Duration::from_millis(20));
    let first = later.map(|it| it.at).min();
    first.map(|at| at - killed).context("nothing was acknowledged after the kill")
}
