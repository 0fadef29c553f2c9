//! A DRIGS cluster of real processes, as `drigs lab` makes it.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    time::Duration,
};

use anyhow::{Context as _, bail, ensure};
use drigs::{
    model::{IdempotencyKey, JobId, JobSpec, UserName},
    rpc::{
        api::{Api, ClusterView, JobFilter, JobView, SubmitRequest, TaskFilter, TaskView},
        api::{Consistency, JobAction, TargetRef},
        client::{Client, ClientConfig},
    },
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use super::{
    process::{Member, Memory},
    wait_until,
};

const PROGRAM: &str = env!("CARGO_BIN_EXE_drigs");
/// How long a call may look for a leader: longer than any election.
const CALL_DEADLINE: Duration = Duration::from_secs(20);
/// How long a cluster may take to have a leader, or a member to catch up.
const CLUSTER_DEADLINE: Duration = Duration::from_secs(60);
/// A member that lacks no more entries than this follows closely.
const CAUGHT_UP: u64 = 100;
/// Jobs that are asked for at one time.
const PAGE: u32 = 10_000;

/// How large a lab is.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub workers: usize,
    /// Of each worker.
    pub cpus: u32,
}

#[derive(Debug)]
pub struct Lab {
    dir: PathBuf,
    addresses: Vec<String>,
    token: String,
    controllers: BTreeMap<u64, Member>,
    workers: Vec<Member>,
    /// Removed after the processes have ended.
    place: TempDir,
}

impl Lab {
    pub async fn start(root: &Path, shape: Shape) -> anyhow::Result<Lab> {
        let place = tempfile::Builder::new()
            .prefix("drigs-")
            .tempdir_in(root)
            .with_context(|| format!("cannot make a directory in {}", root.display()))?;
        let dir = place.path().canonicalize()?.join("lab");
        Starting::begin(&dir, place.path(), shape)?.finish().await?;
        let pids = read_pids(&dir)?;
        let env = fs::read_to_string(dir.join("lab.env")).context("the lab left no lab.env")?;
        let variable = |name: &str| {
            let prefix = format!("export {name}=");
            let value = env.lines().find_map(|line| line.strip_prefix(&prefix));
            value.map(str::to_owned).with_context(|| format!("lab.env does not say {name}"))
        };
        let mut lab = Lab {
            addresses: variable("DRIGS_CONTROLLERS")?.split(',').map(str::to_owned).collect(),
            token: variable("DRIGS_TOKEN")?,
            controllers: BTreeMap::new(),
            workers: Vec::new(),
            dir,
            place,
        };
        for (id, pid) in pids_of(&pids, "controllers")? {
            let member = Member::adopt(pid, lab.dir.join(format!("controller-{id}.log")))?;
            lab.controllers.insert(id.parse()?, member);
        }
        for (name, pid) in pids_of(&pids, "workers")? {
            lab.workers.push(Member::adopt(pid, lab.dir.join(format!("{name}.log")))?);
        }
        Ok(lab)
    }

    /// A connection of its own.
    pub fn client(&self) -> anyhow::Result<Client> {
        Ok(Client::new(ClientConfig {
            controllers: self.addresses.clone(),
            token: Some(self.token.clone()),
            deadline: CALL_DEADLINE,
        })?)
    }

    /// Beside the lab's own files, and removed with them.
    pub fn witness(&self) -> anyhow::Result<Witness> {
        Witness::create(self.place.path().join("witness"))
    }

    pub fn ids(&self) -> Vec<u64> {
        self.controllers.keys().copied().collect()
    }

    pub fn controller(&mut self, id: u64) -> anyhow::Result<&mut Member> {
        self.controllers.get_mut(&id).with_context(|| format!("controller {id} is not ours"))
    }

    pub async fn cluster(&self) -> anyhow::Result<ClusterView> {
        let client = self.client()?;
        let mut view = client.cluster().await;
        wait_until("a leader", CLUSTER_DEADLINE, async || {
            if !matches!(&view, Ok(view) if view.leader.is_some()) {
                view = client.cluster().await;
            }
            matches!(&view, Ok(view) if view.leader.is_some())
        })
        .await?;
        Ok(view?)
    }

    /// Starts one that has ended, with the words it was first started with.
    pub fn start_again(&mut self, id: u64) -> anyhow::Result<()> {
        let member = self.controller(id)?;
        member.start_again()?;
        let pid = member.pid();
        // So that `drigs lab stop` finds it.
        let mut pids = read_pids(&self.dir)?;
        pids["controllers"][id.to_string()] = pid.into();
        fs::write(self.dir.join("pids.json"), pids.to_string()).context("cannot write pids.json")
    }

    pub async fn wait_until_caught_up(&self, id: u64) -> anyhow::Result<()> {
        let client = self.client()?;
        let what = format!("controller {id} catches up");
        wait_until(&what, CLUSTER_DEADLINE, async || {
            let Ok(view) = client.cluster().await else { return false };
            let member = view.members.iter().find(|member| member.id == id);
            member.and_then(|member| member.lag).is_some_and(|lag| lag < CAUGHT_UP)
        })
        .await
    }

    pub fn memory_of_controllers(&self) -> anyhow::Result<Vec<Memory>> {
        self.controllers.values().map(Member::memory).collect()
    }

    pub fn memory_of_workers(&self) -> anyhow::Result<Vec<Memory>> {
        self.workers.iter().map(Member::memory).collect()
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let stopped = Command::new(PROGRAM)
            .args(["lab", "stop", "--dir"])
            .arg(&self.dir)
            .stdin(Stdio::null())
            .output();
        match stopped {
            Ok(output) if output.status.success() => {}
            Ok(output) => {
                let said = String::from_utf8_lossy(&output.stderr);
                eprintln!("the lab in {} did not stop in order:\n{said}", self.dir.display());
            }
            Err(error) => eprintln!("cannot run {PROGRAM}: {error}"),
        }
        // Those that were down are not the lab's any more, and after a failure none of them may stay.
        for member in self.controllers.values_mut().chain(&mut self.workers) {
            member.kill();
        }
    }
}

/// `drigs lab --detach` while it starts: ended politely when nobody waits for it any more, since it then ends what it
/// has started.
#[derive(Debug)]
struct Starting {
    child: Child,
    log: PathBuf,
}

impl Starting {
    fn begin(dir: &Path, place: &Path, shape: Shape) -> anyhow::Result<Starting> {
        let log = place.join("start.log");
        let output = fs::File::create(&log).context("cannot write the lab's log")?;
        let child = Command::new(PROGRAM)
            .args(["lab", "--detach", "--controllers", "3", "--gpus", "none"])
            .args(["--workers", &shape.workers.to_string()])
            .args(["--cpus", &shape.cpus.to_string()])
            .arg("--dir")
            .arg(dir)
            .env_remove("DRIGS_TOKEN")
            .stdin(Stdio::null())
            .stdout(output.try_clone().context("cannot share the log file")?)
            .stderr(output)
            .spawn()
            .with_context(|| format!("cannot start {PROGRAM}"))?;
        Ok(Starting { child, log })
    }

    async fn finish(mut self) -> anyhow::Result<()> {
        let mut ended: Option<ExitStatus> = None;
        wait_until("the lab serves", 2 * CLUSTER_DEADLINE, async || {
            ended = self.child.try_wait().ok().flatten();
            ended.is_some()
        })
        .await?;
        if !ended.is_some_and(|status| status.success()) {
            let said = fs::read_to_string(&self.log).unwrap_or_default();
            bail!("the lab did not start:\n{said}");
        }
        Ok(())
    }
}

impl Drop for Starting {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
                // It may have ended just now.
                let _ = kill_process(pid, Signal::TERM);
            }
            // It ends within its own deadlines.
            let _ = self.child.wait();
        }
    }
}

fn read_pids(dir: &Path) -> anyhow::Result<Value> {
    let text = fs::read_to_string(dir.join("pids.json")).context("the lab left no pids.json")?;
    serde_json::from_str(&text).context("pids.json is damaged")
}

fn pids_of(pids: &Value, role: &str) -> anyhow::Result<Vec<(String, u32)>> {
    let of_role = pids[role].as_object().with_context(|| format!("pids.json has no {role}"))?;
    of_role
        .iter()
        .map(|(name, pid)| {
            let pid = pid.as_u64().and_then(|pid| u32::try_from(pid).ok());
            Ok((name.clone(), pid.with_context(|| format!("pids.json: {name} has no pid"))?))
        })
        .collect()
}

/// Files to which jobs append a line when they start: what really ran, whatever anybody believes.
#[derive(Clone, Debug)]
pub struct Witness {
    dir: PathBuf,
}

impl Witness {
    fn create(dir: PathBuf) -> anyhow::Result<Witness> {
        fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
        Ok(Witness { dir })
    }

    /// A job that writes `NAME ATTEMPT PID` to `file`, then becomes `then`. So short an append is atomic.
    pub fn command(&self, file: &str, name: &str, then: &str) -> Vec<String> {
        let file = self.dir.join(file);
        let line = format!("echo {name} $DRIGS_ATTEMPT_ID $$ >> '{}'", file.display());
        vec![String::from("/bin/sh"), String::from("-c"), format!("{line}; exec {then}")]
    }

    /// Everything that was written, by name.
    pub fn read(&self) -> anyhow::Result<BTreeMap<String, Vec<Start>>> {
        let mut starts: BTreeMap<String, Vec<Start>> = BTreeMap::new();
        for entry in fs::read_dir(&self.dir)? {
            for line in fs::read_to_string(entry?.path())?.lines() {
                let words: Vec<&str> = line.split(' ').collect();
                let [name, attempt, pid] = words[..] else {
                    bail!("a witness says `{line}`: two jobs wrote at one time");
                };
                let start = Start { attempt: attempt.to_owned(), pid: pid.parse()? };
                starts.entry(name.to_owned()).or_default().push(start);
            }
        }
        Ok(starts)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Start {
    pub attempt: String,
    pub pid: u32,
}

/// Submits under a key of its own, and again with the same key when that fails: the number of failures is told too.
pub async fn submit(client: &Client, spec: JobSpec) -> anyhow::Result<JobId> {
    let submitted = client.submit(submission(spec)).await?;
    submitted.job_id.context("a submission was acknowledged without a job")
}

/// The name is the key, too.
pub fn submission(spec: JobSpec) -> SubmitRequest {
    SubmitRequest {
        key: IdempotencyKey::new(spec.name.clone()),
        user: UserName::from("bench"),
        strict: false,
        dry_run: false,
        spec,
    }
}

/// Every job there ever was.
pub async fn all_jobs(client: &Client) -> anyhow::Result<Vec<JobView>> {
    let mut jobs = Vec::new();
    let mut before = None;
    loop {
        let filter = JobFilter { finished: true, limit: PAGE, before, ..JobFilter::default() };
        let page = client.jobs(filter, Consistency::Linearizable).await?;
        jobs.extend(page.jobs);
        match page.next {
            Some(next) if before != Some(next) => before = Some(next),
            _ => return Ok(jobs),
        }
    }
}

pub async fn only_task(client: &Client, job: JobId) -> anyhow::Result<TaskView> {
    let filter = TaskFilter { job, index: Some(0), states: Vec::new(), limit: 1, after: None };
    let page = client.tasks(filter, Consistency::Linearizable).await?;
    page.tasks.into_iter().next().with_context(|| format!("job {job} has no task"))
}

pub async fn wait_until_over(
    client: &Client,
    jobs: &[JobId],
    within: Duration,
) -> anyhow::Result<()> {
    let deadline = std::time::Instant::now() + within;
    for job in jobs {
        while !client.wait(vec![*job], Duration::from_secs(5)).await?.done {
            ensure!(
                std::time::Instant::now() < deadline,
                "job {job} is not over within {} s",
                within.as_secs()
            );
        }
    }
    Ok(())
}

pub async fn cancel(client: &Client, job: JobId) -> anyhow::Result<()> {
    Ok(client.act(TargetRef::Job(job), JobAction::Cancel, UserName::from("bench")).await?)
}
