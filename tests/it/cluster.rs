//! Disasters with real processes: three controllers, workers, kill -9.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::PathBuf,
    time::{Duration, Instant},
};

use drigs::model::{
    Array, IndexSet, JobId, JobSpec, LostAfter, MilliCpus, Millis, Request, TaskState,
};
use drigs::rpc::api::{Api, WorkerAction};

use crate::lab::{Lab, alive, lines, shell, signal, wait_until};

/// A short lease, so that what takes leases does not take minutes.
const LEASE: Duration = Duration::from_secs(4);

fn lab(workers: &str) -> Lab {
    Lab::start(&["--workers", workers, "--lease", "4s"])
}

/// A job whose every start adds a line with its attempt's name to a file.
fn witnessed(lab: &Lab, name: &str, then: &str) -> (JobSpec, PathBuf) {
    let file = lab.dir.path().join(format!("witness-{name}"));
    let script = format!("echo $DRIGS_ATTEMPT_ID $$ >> '{}'; {then}", file.display());
    (shell(name, &script), file)
}

#[test]
fn an_agent_that_is_killed_finds_its_jobs_again_and_reports_each_end_once() {
    let mut lab = lab("1");
    let (long, long_file) = witnessed(&lab, "long", "sleep 8; exit 3");
    let (short, short_file) = witnessed(&lab, "short", "sleep 1.5");
    let long = lab.submit(long);
    let short = lab.submit(short);
    wait_until("both run", || lines(&long_file).len() + lines(&short_file).len() == 2);

    lab.kill("worker-1");
    // The short one ends while nobody is there to see it.
    let pid: u32 = lines(&short_file)[0].split(' ').nth(1).unwrap().parse().unwrap();
    wait_until("the short job ends", || !alive(pid));
    lab.restart("worker-1");

    lab.wait_for_state(short, TaskState::Completed);
    lab.wait_for_state(long, TaskState::Failed);
    let ended = lab.task(long, 0).ended.unwrap();
    assert_eq!((ended.reason.as_str(), ended.exit_code), ("EXIT", Some(3)));
    for (job, file) in [(long, long_file), (short, short_file)] {
        assert_eq!(lines(&file).len(), 1, "job {job} was started once");
        assert_eq!(lab.task(job, 0).attempt, 1);
    }
}

#[test]
fn a_lost_machines_jobs_run_elsewhere_when_their_time_is_up_and_not_before() {
    let mut lab = lab("2");
    lab.wait(lab.client.act_on_worker(
        String::from("worker-2"),
        WorkerAction::Drain { reason: String::from("so that both start on worker-1") },
    ))
    .unwrap();
    let lost_after = Duration::from_secs(3);
    let (spec, file) = witnessed(&lab, "short-lived", "sleep 1000");
    let moves = lab.submit(JobSpec {
        lost_after: Some(LostAfter::After(Millis(lost_after.as_millis() as u64))),
        ..spec
    });
    let (spec, kept_file) = witnessed(&lab, "kept", "sleep 1000");
    let waits = lab.submit(JobSpec { lost_after: Some(LostAfter::Keep), ..spec });
    wait_until("both run", || lines(&file).len() + lines(&kept_file).len() == 2);
    lab.wait(lab.client.act_on_worker(String::from("worker-2"), WorkerAction::Resume)).unwrap();

    let lost_at = Instant::now();
    kill_machine(&mut lab, "worker-1");
    lab.wait_for_state(waits, TaskState::Recovering);
    let why = lab.drigs(&["explain", &waits.to_string()]);
    let why = String::from_utf8_lossy(&why.stdout).into_owned();
    assert!(why.contains("worker-1") && why.contains("forget"), "explain says:\n{why}");

    wait_until("it runs elsewhere", || lines(&file).len() == 2);
    let took = lost_at.elapsed();
    assert!(took > lost_after + LEASE, "it was started after {took:?}, too soon");
    assert_eq!(lab.task(moves, 0).worker_names, ["worker-2"]);
    assert_eq!(lab.task(moves, 0).attempt, 2);

    assert_eq!(lines(&kept_file).len(), 1, "the other one waits for a word");
    lab.wait(lab.client.act_on_worker(String::from("worker-1"), WorkerAction::Forget)).unwrap();
    wait_until("the other one runs as well", || lines(&kept_file).len() == 2);
    assert_eq!(lines(&file).len(), 2, "and none runs a third time");
}

#[test]
fn a_worker_that_nobody_hears_ends_its_job_before_it_starts_elsewhere() {
    let lab = lab("2");
    let beats = lab.dir.path().join("beats");
    let script = format!(
        "while true; do echo $DRIGS_ATTEMPT_ID $(date +%s%N) >> '{}'; sleep 0.05; done",
        beats.display()
    );
    let spec = JobSpec {
        lost_after: Some(LostAfter::After(Millis::from_secs(3))),
        ..shell("beats", &script)
    };
    let job = lab.submit(spec);
    wait_until("it beats", || !lines(&beats).is_empty());
    let first = lab.task(job, 0).worker_names[0].clone();
    // The agent is as good as cut off; its shims and the job are not.
    signal(lab.pid(&first), "STOP");
    wait_until("it beats elsewhere", || beats_by_attempt(&beats).len() == 2);
    let beats = beats_by_attempt(&beats);
    let ends: Vec<u128> = beats.values().map(|times| *times.last().unwrap()).collect();
    let starts: Vec<u128> = beats.values().map(|times| times[0]).collect();
    assert!(
        ends[0] < starts[1],
        "the first ended at {}, the second began at {}",
        ends[0],
        starts[1]
    );

    signal(lab.pid(&first), "CONT");
    let row = || lab.worker(&first);
    wait_until("the worker is back", || row().status == "READY");
    assert_eq!(lab.task(job, 0).attempt, 2, "and did not bring the old attempt back");
}

#[test]
fn an_outage_of_all_controllers_loses_nothing_and_touches_no_job() {
    let mut lab = Lab::start(&["--workers", "2", "--cpus", "8", "--lease", "4s"]);
    let running: Vec<(JobId, PathBuf)> = (0..8)
        .map(|number| {
            let (spec, file) = witnessed(&lab, &format!("running-{number}"), "sleep 600");
            (lab.submit(JobSpec { request: half_a_core(), ..spec }), file)
        })
        .collect();
    wait_until("all run", || running.iter().all(|(_, file)| lines(file).len() == 1));
    let queued: Vec<JobId> = (0..200)
        .map(|number| {
            lab.submit(JobSpec { held: true, ..shell(&format!("queued-{number}"), "true") })
        })
        .collect();

    for controller in ["controller-1", "controller-2", "controller-3"] {
        lab.kill(controller);
    }
    for controller in ["controller-1", "controller-2", "controller-3"] {
        lab.restart(controller);
    }
    let after = lab.submit(shell("after", "true"));
    lab.wait_for_state(after, TaskState::Completed);
    for job in queued {
        assert_eq!(lab.job(job).job.status, TaskState::Pending, "job {job} is where it was");
    }
    for (job, file) in running {
        lab.wait_for_state(job, TaskState::Running);
        let pid = lines(&file)[0].split(' ').nth(1).unwrap().parse().unwrap();
        assert!(alive(pid), "the process of job {job} lives");
        assert_eq!((lines(&file).len(), lab.task(job, 0).attempt), (1, 1));
    }
}

#[test]
fn a_killed_leader_loses_no_acknowledged_submission_and_starts_none_twice() {
    let mut lab = lab("3");
    let witness = lab.dir.path().join("witness");
    fs::create_dir(&witness).unwrap();
    let mut acknowledged = BTreeSet::new();
    for round in 0..3 {
        for number in 0..20 {
            let file = witness.join(format!("{round}-{number}"));
            let script = format!("echo $DRIGS_ATTEMPT_ID >> '{}'", file.display());
            acknowledged.insert(lab.submit(shell("one", &script)));
            if number == 10 {
                let leader = format!("controller-{}", lab.leader());
                lab.kill(&leader);
                lab.restart(&leader);
            }
        }
    }
    assert_eq!(acknowledged.len(), 60, "each has a job of its own");
    for job in &acknowledged {
        lab.wait_for_state(*job, TaskState::Completed);
    }
    let files: Vec<_> =
        fs::read_dir(&witness).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(files.len(), 60, "all ran");
    assert!(files.iter().all(|file| lines(file).len() == 1), "and none twice");
}

#[test]
fn a_leader_that_is_asked_to_end_hands_over_and_no_client_sees_an_error() {
    let mut lab = lab("1");
    for _ in 0..3 {
        let leader = format!("controller-{}", lab.leader());
        signal(lab.pid(&leader), "TERM");
        for _ in 0..10 {
            lab.submit(shell("during", "true"));
        }
        wait_until("it ends", || !alive(lab.pid(&leader)));
        lab.kill(&leader);
        lab.restart(&leader);
        wait_until("all three are members again", || {
            let view = lab.wait(lab.client.cluster()).unwrap();
            view.members.iter().all(|member| member.lag.is_none_or(|lag| lag < 50))
        });
    }
}

#[test]
fn a_long_array_is_one_row_and_a_short_one_runs_each_task_once() {
    let lab = lab("2");
    let array =
        |first, last| Some(Array { indices: IndexSet::from_range(first, last), max_running: None });
    let huge =
        lab.submit(JobSpec { array: array(0, 999_999), held: true, ..shell("huge", "true") });
    assert_eq!(lab.job(huge).job.tasks.pending, 1_000_000);

    let (spec, file) = witnessed(&lab, "short", "true");
    let short = lab.submit(JobSpec { array: array(0, 299), ..spec });
    lab.wait_for_state(short, TaskState::Completed);
    let tasks: BTreeSet<String> = lines(&file).into_iter().collect();
    assert_eq!((tasks.len(), lines(&file).len()), (300, 300), "each task ran once");
}

fn half_a_core() -> Request {
    Request { cpus: MilliCpus(500), ..Request::default() }
}

/// Kills the agent, its launcher and shims, and all that they started, as a power cut would.
fn kill_machine(lab: &mut Lab, name: &str) {
    let dir = lab.place().join(name);
    lab.kill(name);
    let mut doomed: BTreeSet<u32> = BTreeSet::new();
    loop {
        let more: Vec<u32> = processes()
            .filter(|(pid, parent, cwd)| {
                !doomed.contains(pid) && (cwd.starts_with(&dir) || doomed.contains(parent))
            })
            .map(|(pid, _, _)| pid)
            .collect();
        if more.is_empty() {
            break;
        }
        doomed.extend(more);
    }
    doomed.iter().for_each(|pid| signal(*pid, "KILL"));
}

/// Every process: its pid, its parent's, and where it is at home.
fn processes() -> impl Iterator<Item = (u32, u32, PathBuf)> {
    fs::read_dir("/proc").unwrap().filter_map(|entry| {
        let path = entry.ok()?.path();
        let pid = path.file_name()?.to_str()?.parse().ok()?;
        let stat = fs::read_to_string(path.join("stat")).ok()?;
        let parent = stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()?;
        Some((pid, parent, fs::read_link(path.join("cwd")).unwrap_or_default()))
    })
}

/// When each attempt beat.
fn beats_by_attempt(file: &std::path::Path) -> BTreeMap<String, Vec<u128>> {
    let mut beats: BTreeMap<String, Vec<u128>> = BTreeMap::new();
    for line in lines(file) {
        if let Some((attempt, time)) = line.split_once(' ') {
            beats.entry(attempt.to_owned()).or_default().push(time.parse().unwrap());
        }
    }
    beats
}

/// Controllers that stand still, as if cut off: no connection breaks, and nobody answers.
struct Stopped(Vec<u32>);

impl Stopped {
    fn all_but(lab: &Lab, leader: u64) -> Stopped {
        let others = (1..=3).filter(|id| *id != leader);
        let pids: Vec<u32> = others.map(|id| lab.pid(&format!("controller-{id}"))).collect();
        pids.iter().for_each(|pid| signal(*pid, "STOP"));
        Stopped(pids)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        self.0.iter().for_each(|pid| signal(*pid, "CONT"));
    }
}

#[test]
fn an_isolated_leader_says_so_and_ends_when_told() {
    let lab = Lab::start(&["--workers", "1", "--cpus", "1", "--lease", "4s"]);
    // Something to decide, so that the leader's own loop waits for a quorum too.
    let runs = lab.submit(shell("runs", "sleep 3"));
    lab.wait_for_state(runs, TaskState::Running);
    lab.submit(shell("waits", "true"));
    let leader = lab.leader();
    let _stopped = Stopped::all_but(&lab, leader);
    let leader = format!("controller-{leader}");
    let address = address_of(&lab, &leader);
    let all = lab.controllers.clone();
    for (ask, among) in
        [(&["jobs"][..], &address), (&["submit", "--", "true"], &address), (&["jobs"], &all)]
    {
        let began = Instant::now();
        let words = [&["-H", among.as_str(), "--deadline", "12s"], ask].concat();
        let output = lab.drigs(&words);
        let said = crate::lab::text(&output);
        assert_eq!(output.status.code(), Some(4), "{ask:?}: {said}");
        assert!(
            said.contains("no quorum: the leader cannot reach the other controllers"),
            "{ask:?}: {said}"
        );
        assert_eq!(said.lines().count(), 1, "{ask:?}: {said}");
        assert!(began.elapsed() < Duration::from_secs(14), "{ask:?} took {:?}", began.elapsed());
    }
    let stale = lab.drigs(&["-H", &address, "--stale", "jobs"]);
    assert!(stale.status.success(), "what it knows, it still says");

    let began = Instant::now();
    let pid = lab.pid(&leader);
    signal(pid, "TERM");
    wait_until("it ends", || !alive(pid));
    assert!(began.elapsed() < Duration::from_secs(8), "it took {:?}", began.elapsed());
}

#[test]
fn all_controllers_end_at_once() {
    let lab = Lab::start(&["--workers", "1", "--cpus", "1", "--lease", "4s"]);
    let job = lab.submit(shell("runs", "sleep 1000"));
    lab.wait_for_state(job, TaskState::Running);
    let mut follower = std::process::Command::new(crate::lab::DRIGS)
        .args(["-H", &lab.controllers, "logs", "-f", &job.to_string()])
        .env("DRIGS_TOKEN", &lab.token)
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let pids: Vec<u32> = (1..=3).map(|id| lab.pid(&format!("controller-{id}"))).collect();
    let began = Instant::now();
    pids.iter().for_each(|pid| signal(*pid, "TERM"));
    wait_until("they end", || pids.iter().all(|pid| !alive(*pid)));
    let took = began.elapsed();
    follower.kill().unwrap();
    follower.wait().unwrap();
    assert!(took < Duration::from_secs(8), "it took {took:?}");
}

/// Where a controller of the lab listens.
fn address_of(lab: &Lab, name: &str) -> String {
    let words = lab.command(name);
    let place = words.iter().position(|word| word == "--listen").expect("the lab says where");
    words[place + 1].clone()
}

#[test]
fn a_leader_whose_process_is_gone_is_not_waited_for() {
    // Longer than anybody here waits for anything.
    let env = [("DRIGS_ELECTION_MIN", "5m"), ("DRIGS_ELECTION_MAX", "10m")];
    let mut lab = Lab::start_with(&["--workers", "0", "--lease", "1h"], &env);
    let gone = lab.leader();
    lab.kill(&format!("controller-{gone}"));
    let held = JobSpec { held: true, ..shell("after", "true") };
    lab.submit(held);
    assert_ne!(lab.leader(), gone);
}
