//! What a controller answers, from a cluster of one without workers.

use std::time::Duration;

use tokio::{sync::watch, time::Instant};

use crate::controller::{clock::Clock, hub::Sessions, local::Local};
use crate::model::{IdempotencyKey, JobId, JobSpec, UserName};
use crate::raft::{self, Raft};
use crate::rpc::api::{Api as _, Consistency, JobFilter};
use crate::state::{Command, SubmitJob, Target};

const DEADLINE: Duration = Duration::from_secs(60);

struct One {
    local: Local,
    _dir: tempfile::TempDir,
}

impl One {
    async fn start() -> One {
        let dir = tempfile::tempdir().unwrap();
        let peers = [(1, String::from("127.0.0.1:1"))].into();
        let raft = Raft::open(raft::Config::new(1, dir.path().into(), peers, None)).await.unwrap();
        let deadline = Instant::now() + DEADLINE;
        while raft.linearize().await.is_err() {
            assert!(Instant::now() < deadline, "it does not lead");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let (_, terms) = watch::channel(None);
        let sessions = Sessions::new(raft.clone(), terms.clone());
        let local = Local { raft, terms, sessions, clock: Clock::start() };
        One { local, _dir: dir }
    }

    async fn run(&self, command: Command) {
        for outcome in self.local.raft.propose(vec![command]).await.unwrap() {
            outcome.unwrap();
        }
    }

    async fn submit(&self, name: &str) {
        let spec = JobSpec {
            name: name.to_owned(),
            command: vec![String::from("true")],
            ..JobSpec::default()
        };
        let (user, key) = (UserName::from("ada"), IdempotencyKey::new(name.to_owned()));
        self.run(Command::SubmitJob(Box::new(SubmitJob { spec, user, key }))).await;
    }

    async fn cancel(&self, job: u64) {
        let (target, by) = (Target::Job(JobId(job)), UserName::from("ada"));
        self.run(Command::CancelTasks { target, by }).await;
    }

    /// Every job, a page after the other.
    async fn listed(&self, limit: u32) -> Vec<u64> {
        let (mut listed, mut before) = (Vec::new(), None);
        loop {
            let filter = JobFilter { finished: true, limit, before, ..JobFilter::default() };
            let page = self.local.jobs(filter, Consistency::Linearizable).await.unwrap();
            listed.extend(page.jobs.iter().map(|job| job.job_id.0));
            before = page.next;
            if before.is_none() {
                return listed;
            }
        }
    }
}

#[tokio::test]
async fn pages_hold_what_is_in_memory_and_what_has_left_it() {
    let one = One::start().await;
    for job in 1..=9 {
        one.submit(&format!("job-{job}")).await;
    }
    for job in [5, 6, 2, 8, 9, 1] {
        one.cancel(job).await;
    }
    one.run(Command::RetireJobs { jobs: [5, 6, 2, 8].map(JobId).into() }).await;
    let all: Vec<u64> = (1..=9).rev().collect();
    for limit in 1..=10 {
        assert_eq!(one.listed(limit).await, all, "{limit} a page");
    }
}
