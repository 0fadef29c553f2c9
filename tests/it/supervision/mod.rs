//! Real processes under the real launcher and shims.

mod disasters;
mod jobs;

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    time::{Duration, Instant},
};

use drigs::{
    model::{AttemptId, EndReason, JobId, Millis, TaskId},
    worker::{
        attempt_dir::{AttemptDir, Exit, Found, Held, Intent, Launch},
        clock::BootTime,
        process::Process,
        shim::output,
        supervisor::{Event, Events, Supervisor},
    },
};
use rustix::process::{Pid, Signal, kill_process};
use tokio::time::timeout;

const WORKER: &str = env!("CARGO_BIN_EXE_drigs-worker");
const PATIENCE: Duration = Duration::from_secs(30);

fn attempt(job: u64) -> AttemptId {
    AttemptId { task: TaskId { job: JobId(job), index: 0 }, number: 1 }
}

fn launch(job: u64, argv: &[&str]) -> Launch {
    let nonce = format!("{}-{job}-{}", std::process::id(), BootTime::now().0);
    let env = BTreeMap::from([
        ("PATH".to_owned(), "/usr/bin:/bin".to_owned()),
        ("DRIGS_ATTEMPT_NONCE".to_owned(), nonce.clone()),
    ]);
    Launch {
        attempt: attempt(job),
        nonce,
        argv: argv.iter().map(|word| (*word).to_owned()).collect(),
        env,
        working_dir: "/".to_owned(),
        preferred_dir: None,
        umask: 0o022,
        time_limit: None,
        lost_after: None,
        stop_signal: 15,
        grace: Millis(500),
        lost_grace: Millis(2000),
        held: Held::default(),
        log_limit: 1 << 20,
    }
}

fn shell(job: u64, script: &str) -> Launch {
    launch(job, &["sh", "-c", script])
}

fn intent(grace: u64) -> Intent {
    Intent { reason: EndReason::User, by: "the test".to_owned(), grace: Millis(grace) }
}

struct Agent {
    supervisor: Supervisor,
    events: Events,
    found: Vec<Found>,
}

impl Agent {
    async fn open(root: &Path) -> Agent {
        let opened = Supervisor::open_with(root, Path::new(WORKER)).await;
        let (supervisor, events, found) = opened.expect("the directory is free");
        Agent { supervisor, events, found }
    }

    async fn start(&self, launch: Launch) {
        self.supervisor.start(vec![launch]).await.expect("the supervisor runs");
    }

    async fn stop(&self, job: u64, intent: Intent) {
        self.supervisor.stop(attempt(job), intent).await.expect("the attempt is here");
    }

    async fn next(&mut self) -> Event {
        let event = timeout(PATIENCE, self.events.next()).await.expect("an event comes in time");
        event.expect("the supervisor runs")
    }

    async fn started(&mut self, job: u64) -> (Process, Process) {
        loop {
            match self.next().await {
                Event::Started { attempt: id, shim, main } if id == attempt(job) => {
                    return (shim, main);
                }
                Event::Started { .. } => {}
                other => panic!("expected a start, got {other:?}"),
            }
        }
    }

    async fn ended(&mut self, job: u64) -> Exit {
        loop {
            match self.next().await {
                Event::Ended { attempt: id, exit } if id == attempt(job) => return exit,
                _ => {}
            }
        }
    }

    async fn run(&mut self, launch: Launch) -> Exit {
        let job = launch.attempt.task.job.0;
        self.start(launch).await;
        self.ended(job).await
    }

    fn dir(&self, job: u64) -> AttemptDir {
        self.supervisor.dir().find(attempt(job)).expect("the attempt left a directory")
    }

    fn output(&self, job: u64) -> String {
        let chunk = output::read(&self.dir(job), 0, 1 << 20).expect("output can be read");
        String::from_utf8(chunk.bytes).expect("the job printed text")
    }
}

/// The living processes that carry this attempt's nonce.
fn processes_of(launch: &Launch) -> Vec<i32> {
    let marker = format!("DRIGS_ATTEMPT_NONCE={}", launch.nonce);
    let pids = fs::read_dir("/proc").unwrap().flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let is_marked = |pid: &i32| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|entry| entry == marker.as_bytes())
    };
    pids.filter(is_marked).collect()
}

fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let began = Instant::now();
    while !condition() {
        assert!(began.elapsed() < PATIENCE, "{what}: not so after {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn kill(process: Process) {
    kill_process(Pid::from_raw(process.pid).unwrap(), Signal::KILL).unwrap();
}
