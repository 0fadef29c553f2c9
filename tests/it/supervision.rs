//! Real processes under the real launcher and shims.

use std::{
    collections::BTreeMap,
    env,
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use drigs::{
    model::{AttemptId, EndReason, JobId, Millis, TaskId},
    worker::{
        attempt_dir::{
            AttemptDir, Ended, Exit, Found, FoundState, Held, Intent, Launch, Retention, StopCause,
            Tree, prune,
        },
        clock::{BootTime, boot_id},
        contact::Contact,
        process::Process,
        shim::output,
        supervisor::{Error, Event, Events, Supervisor},
    },
};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::time::timeout;

const WORKER: &str = env!("CARGO_BIN_EXE_drigs-worker");
const PATIENCE: Duration = Duration::from_secs(30);
/// When set, the test binary is an agent: see [`agent_process`].
const AGENT_DIR: &str = "DRIGS_TEST_AGENT_DIR";

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

fn ended_at_all(found: &[Found], job: u64) -> Option<&Exit> {
    found.iter().find(|found| found.attempt == attempt(job)).map(|found| match &found.state {
        FoundState::Ended(exit) => exit,
        other => panic!("expected an end, found {other:?}"),
    })
}

#[tokio::test]
async fn an_exit_code_a_signal_and_what_was_printed_are_kept() {
    let root = TempDir::new().unwrap();
    let mut agent = Agent::open(root.path()).await;

    let exit = agent.run(shell(1, "echo one; echo two >&2; echo three; exit 7")).await;
    assert_eq!((exit.ended, exit.stopped, exit.tree), (Ended::Exit(7), None, Tree::Empty));
    assert_eq!(agent.output(1), "one\ntwo\nthree\n");
    let chunk = output::read(&agent.dir(1), 4, 4).unwrap();
    assert_eq!((chunk.bytes.as_slice(), chunk.end, chunk.complete), (&b"two\n"[..], 14, false));
    assert!(output::read(&agent.dir(1), 8, 99).unwrap().complete);

    let exit = agent.run(shell(2, "kill -9 $$")).await;
    assert_eq!((exit.ended, exit.stopped), (Ended::Signal(9), None));
}

#[tokio::test]
async fn a_job_that_cannot_start_says_why() {
    let root = TempDir::new().unwrap();
    let script = root.path().join("script");
    fs::write(&script, "echo hello").unwrap();
    let script = script.to_str().unwrap();
    let mut agent = Agent::open(root.path()).await;
    let mut failure = async |launch| match agent.run(launch).await.ended {
        Ended::StartFailed { message, .. } => message.replace(script, "SCRIPT"),
        other => panic!("started: {other:?}"),
    };

    assert_eq!(
        failure(launch(1, &["no-such-command"])).await,
        "command `no-such-command` was not found in PATH=/usr/bin:/bin"
    );
    assert_eq!(failure(launch(2, &["/no/such"])).await, "`/no/such` was not found");
    assert_eq!(
        failure(launch(3, &[script])).await,
        "cannot run `SCRIPT`: permission denied (is it executable?)"
    );
    assert_eq!(failure(launch(4, &[])).await, "the command is empty");
    assert_eq!(failure(launch(5, &["echo", "a\0b"])).await, "an argument contains a NUL character");
    let nowhere = Launch { working_dir: "/no/where".to_owned(), ..launch(6, &["true"]) };
    assert_eq!(
        failure(nowhere).await,
        "cannot enter the working directory `/no/where`: no such file or directory"
    );
    fs::set_permissions(script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    assert_eq!(
        failure(launch(7, &[script])).await,
        "cannot run `SCRIPT`: neither a program for this machine nor a script that begins with `#!`"
    );
    let long = "x".repeat(100 << 10);
    let many: Vec<&str> = ["true"].into_iter().chain([long.as_str(); 100]).collect();
    assert_eq!(
        failure(launch(8, &many)).await,
        "cannot run `true`: arguments and environment are too long"
    );
}

#[tokio::test]
async fn a_job_gets_its_own_environment_and_nothing_of_ours() {
    let root = TempDir::new().unwrap();
    let mut agent = Agent::open(root.path()).await;
    let mut wanted =
        launch(1, &["sh", "-c", "env | sort | grep -v '^_='; pwd; umask; ulimit -c >&2"]);
    wanted.env.insert("GREETING".to_owned(), "hello\nworld".to_owned());
    wanted.working_dir = "/usr".to_owned();
    wanted.umask = 0o027;
    let nonce = wanted.nonce.clone();
    agent.run(wanted).await;
    let printed = agent.output(1);
    let expected = format!("GREETING=hello\nPATH=/usr/bin:/bin\nPWD=/usr\n");
    let mut lines: Vec<&str> = printed.lines().filter(|line| !line.contains(&nonce)).collect();
    lines.retain(|line| !line.starts_with("world"));
    assert!(lines.join("\n").starts_with(expected.trim_end()), "{printed}");
    assert!(lines.contains(&"/usr") && lines.contains(&"0027"), "{printed}");
}

#[tokio::test]
async fn a_stop_ends_the_whole_tree_whatever_it_tries() {
    let root = TempDir::new().unwrap();
    let mut agent = Agent::open(root.path()).await;
    let stubborn = shell(
        1,
        "trap '' TERM INT HUP
         (setsid sh -c 'trap \"\" TERM; sleep 1000 & sleep 1000' &)
         setsid sleep 1000 &
         env -i sleep 1000 &
         echo ready; sleep 1000 & wait; wait; sleep 1000",
    );
    agent.start(stubborn.clone()).await;
    let (shim, _) = agent.started(1).await;
    wait_until("all have begun", || processes_of(&stubborn).len() >= 5);

    agent.stop(1, intent(600)).await;
    let exit = agent.ended(1).await;
    assert_eq!(exit.tree, Tree::Empty);
    assert_eq!(exit.ended, Ended::Signal(9));
    assert_eq!(exit.stopped.unwrap().cause, StopCause::Intent(EndReason::User));
    assert_eq!(processes_of(&stubborn), Vec::<i32>::new());
    wait_until("the shim has gone", || !shim.is_alive());
}

#[tokio::test]
async fn a_polite_job_may_clean_up_and_a_more_urgent_stop_is_heard() {
    let root = TempDir::new().unwrap();
    let mut agent = Agent::open(root.path()).await;
    let polite = "trap 'echo bye; exit 3' TERM; echo ready; while :; do sleep 0.01; done";
    agent.start(shell(1, polite)).await;
    agent.started(1).await;
    wait_until("the trap is set", || agent.output(1).contains("ready"));
    agent.stop(1, intent(20_000)).await;
    let exit = agent.ended(1).await;
    // The shell may also print that its sleep, which is of its group, was terminated.
    assert_eq!((&exit.ended, agent.output(1).ends_with("bye\n")), (&Ended::Exit(3), true));
    assert_eq!(exit.to_ending().reason, EndReason::User);

    let deaf = "trap '' TERM; echo ready; while :; do sleep 0.01; done";
    agent.start(shell(2, deaf)).await;
    agent.started(2).await;
    wait_until("the trap is set", || agent.output(2).contains("ready"));
    agent.stop(2, intent(600_000)).await;
    agent.stop(2, intent(100)).await;
    assert_eq!(agent.ended(2).await.ended, Ended::Signal(9));
}

#[tokio::test]
async fn what_the_main_process_leaves_behind_is_ended() {
    let root = TempDir::new().unwrap();
    let mut agent = Agent::open(root.path()).await;
    let careless = shell(1, "trap '' TERM; setsid sleep 1000 & (sleep 1000 &) ; exit 4");
    let exit = agent.run(careless.clone()).await;
    assert_eq!((exit.ended, exit.stopped, exit.tree), (Ended::Exit(4), None, Tree::Empty));
    assert_eq!(processes_of(&careless), Vec::<i32>::new());
}

#[tokio::test]
async fn a_signal_reaches_the_job() {
    let root = TempDir::new().unwrap();
    let mut agent = Agent::open(root.path()).await;
    agent
        .start(shell(
            1,
            "trap 'echo checkpoint; exit 0' USR1; echo ready; while :; do sleep 0.01; done",
        ))
        .await;
    agent.started(1).await;
    wait_until("the trap is set", || agent.output(1).contains("ready"));
    agent.supervisor.signal(attempt(1), 10).await.unwrap();
    let exit = agent.ended(1).await;
    assert_eq!((exit.ended, exit.stopped), (Ended::Exit(0), None));
    assert!(agent.output(1).ends_with("checkpoint\n"));
    assert!(matches!(agent.supervisor.signal(attempt(1), 10).await, Err(Error::NotRunning(_))));
    assert!(matches!(agent.supervisor.signal(attempt(1), 1000).await, Err(Error::NoSignal(1000))));
    assert!(matches!(agent.supervisor.stop(attempt(9), intent(1)).await, Err(Error::NotFound(_))));
}

#[tokio::test]
async fn the_time_limit_holds() {
    let root = TempDir::new().unwrap();
    let mut agent = Agent::open(root.path()).await;
    let began = Instant::now();
    let limited = Launch { time_limit: Some(Millis(300)), ..shell(1, "sleep 1000") };
    let exit = agent.run(limited).await;
    assert_eq!(exit.stopped.as_ref().unwrap().cause, StopCause::Timeout);
    assert_eq!(exit.to_ending().reason, EndReason::Timeout);
    assert!(exit.ran_for >= Millis(300) && began.elapsed() < Duration::from_secs(10));
}

#[tokio::test]
async fn a_start_asked_for_twice_runs_once() {
    let root = TempDir::new().unwrap();
    let mut agent = Agent::open(root.path()).await;
    let once = shell(1, "echo run");
    agent.supervisor.start(vec![once.clone(), once.clone()]).await.unwrap();
    agent.ended(1).await;
    agent.start(once).await;
    agent.ended(1).await;
    assert_eq!(agent.output(1), "run\n");
}

#[tokio::test]
async fn many_start_at_once() {
    let root = TempDir::new().unwrap();
    let mut agent = Agent::open(root.path()).await;
    let began = Instant::now();
    agent.supervisor.start((1..=200).map(|job| shell(job, "echo $$")).collect()).await.unwrap();
    let mut ended = BTreeMap::new();
    while ended.len() < 200 {
        if let Event::Ended { attempt, exit } = agent.next().await {
            assert_eq!(exit.ended, Ended::Exit(0));
            assert!(ended.insert(attempt, exit).is_none(), "told twice: {attempt}");
        }
    }
    println!("200 attempts in {:?}", began.elapsed());
}

#[tokio::test]
async fn a_data_directory_may_lie_deep_but_belongs_to_one_agent() {
    let root = TempDir::new().unwrap();
    let deep = root.path().join("d".repeat(100)).join("e".repeat(100));
    let mut agent = Agent::open(&deep).await;
    assert_eq!(agent.run(shell(1, "exit 0")).await.ended, Ended::Exit(0));
    let second = Supervisor::open_with(&deep, Path::new(WORKER)).await;
    assert!(matches!(second, Err(Error::InUse(_))));
}

#[tokio::test]
async fn settled_attempts_are_not_found_again_and_leave_in_time() {
    let root = TempDir::new().unwrap();
    let mut agent = Agent::open(root.path()).await;
    for job in 1..=3 {
        agent.run(shell(job, "echo done")).await;
    }
    agent.supervisor.forget(attempt(1)).await.unwrap();
    agent.supervisor.forget(attempt(2)).await.unwrap();
    agent.supervisor.forget(attempt(2)).await.unwrap();
    assert_eq!(agent.output(1), "done\n");
    agent.supervisor.close().await;

    let agent = Agent::open(root.path()).await;
    let found: Vec<AttemptId> = agent.found.iter().map(|found| found.attempt).collect();
    assert_eq!(found, [attempt(3)]);
    let retention = Retention { count: 1, ..Retention::default() };
    assert_eq!(prune(agent.supervisor.dir(), &retention).unwrap(), 1);
    assert_eq!(prune(agent.supervisor.dir(), &retention).unwrap(), 0);
}

#[tokio::test]
async fn a_flood_of_output_is_kept_to_the_limit() {
    let root = TempDir::new().unwrap();
    let mut agent = Agent::open(root.path()).await;
    let limit = 1 << 20;
    let flood =
        "i=0; while [ $i -lt 3000 ]; do i=$((i+1)); printf '%8191s\\n' line-$i; done; echo end";
    let exit = agent.run(Launch { log_limit: limit, ..shell(1, flood) }).await;
    assert_eq!(exit.ended, Ended::Exit(0));
    let dir = agent.dir(1);
    let on_disk =
        std::os::unix::fs::MetadataExt::blocks(&fs::metadata(dir.output()).unwrap()) * 512;
    assert!(on_disk <= limit + 8192, "{on_disk} bytes are kept");
    let chunk = output::read(&dir, 0, 100 << 20).unwrap();
    assert_eq!(chunk.end, 3000 * 8192 + 4);
    assert_eq!((chunk.offset, chunk.complete), (chunk.dropped_before, true));
    assert!(chunk.bytes.len() as u64 >= limit / 2);
    assert!(!chunk.bytes.contains(&0) && chunk.bytes.ends_with(b"line-3000\nend\n"));
}

#[tokio::test]
async fn jobs_outlive_their_launcher_and_the_next_start_gets_a_new_one() {
    let root = TempDir::new().unwrap();
    let mut agent = Agent::open(root.path()).await;
    agent.start(shell(1, "sleep 1000")).await;
    agent.started(1).await;
    for launcher in launchers(root.path()) {
        kill(launcher);
    }
    wait_until("the launcher is gone", || launchers(root.path()).is_empty());
    assert_eq!(agent.run(shell(2, "exit 5")).await.ended, Ended::Exit(5));
    agent.stop(1, intent(100)).await;
    assert_eq!(agent.ended(1).await.ended, Ended::Signal(15));
}

#[tokio::test]
async fn an_upgraded_agent_gets_a_launcher_of_its_own_and_the_old_one_ends() {
    let root = TempDir::new().unwrap();
    let mut agent = Agent::open(root.path()).await;
    agent.start(shell(1, "sleep 1000")).await;
    agent.started(1).await;
    agent.supervisor.close().await;
    let before = launchers(root.path());

    let upgraded = root.path().join("drigs-worker-2");
    fs::copy(WORKER, &upgraded).unwrap();
    let (supervisor, events, found) = Supervisor::open_with(root.path(), &upgraded).await.unwrap();
    let mut agent = Agent { supervisor, events, found };
    assert_eq!(agent.run(shell(2, "exit 5")).await.ended, Ended::Exit(5));
    assert!(before[0].is_alive(), "it waits for its last shim");
    agent.stop(1, intent(100)).await;
    assert_eq!(agent.ended(1).await.ended, Ended::Signal(15));
    wait_until("the old launcher has ended", || !before[0].is_alive());
}

/// The launchers of this directory, not their shims, which look alike but for their names.
fn launchers(root: &Path) -> Vec<Process> {
    let root = root.canonicalize().unwrap();
    let cwd_and_name = |pid: i32| -> io::Result<(PathBuf, String)> {
        let name = fs::read_to_string(format!("/proc/{pid}/comm"))?;
        Ok((fs::read_link(format!("/proc/{pid}/cwd"))?, name))
    };
    let pids = fs::read_dir("/proc").unwrap().flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let is_launcher = |pid: &i32| {
        cwd_and_name(*pid).is_ok_and(|(cwd, name)| cwd == root && name == "drigs-launcher\n")
    };
    pids.filter(is_launcher).filter_map(Process::with_pid).collect()
}

#[tokio::test]
async fn a_killed_shim_takes_its_job_along_and_is_reported() {
    let root = TempDir::new().unwrap();
    let mut agent = Agent::open(root.path()).await;
    let job = shell(1, "setsid sh -c 'trap \"\" TERM; sleep 1000; sleep 1000' & sleep 1000");
    agent.start(job.clone()).await;
    let (shim, main) = agent.started(1).await;
    wait_until("all have begun", || processes_of(&job).len() >= 3);
    kill(shim);
    assert_eq!(agent.next().await, Event::ShimLost { attempt: attempt(1) });
    let exit = agent.ended(1).await;
    assert_eq!((exit.ended.clone(), &exit.tree), (Ended::SupervisorLost, &Tree::Empty));
    assert_eq!(exit.to_ending().reason, EndReason::SupervisorLost);
    assert_eq!(processes_of(&job), Vec::<i32>::new());
    assert!(!main.is_alive());
    assert_eq!(agent.dir(1).exit(), Some(exit));
}

/// Not a test by itself: an agent in a process of its own, to be killed. It starts what `launches` lists and waits.
#[tokio::test]
async fn agent_process() {
    let Some(root) = env::var_os(AGENT_DIR).map(PathBuf::from) else { return };
    let launches = fs::read_to_string(root.join("launches")).unwrap();
    let mut agent = Agent::open(&root).await;
    let launches: Vec<Launch> =
        launches.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    agent.supervisor.start(launches).await.unwrap();
    while agent.events.next().await.is_some() {}
}

fn spawn_agent(root: &Path, launches: &[Launch]) -> Child {
    let lines: Vec<String> =
        launches.iter().map(|launch| serde_json::to_string(launch).unwrap()).collect();
    fs::write(root.join("launches"), lines.join("\n")).unwrap();
    Command::new(env::current_exe().unwrap())
        .args(["--exact", "supervision::agent_process"])
        .env(AGENT_DIR, root)
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

#[tokio::test]
async fn an_agent_killed_while_jobs_run_and_end_finds_all_of_them_once() {
    let root = TempDir::new().unwrap();
    let gate = root.path().join("gate");
    let ends_later =
        shell(1, &format!("while [ ! -e {} ]; do sleep 0.01; done; exit 6", gate.display()));
    let runs_on = shell(2, "sleep 1000");
    let mut process = spawn_agent(root.path(), &[ends_later.clone(), runs_on.clone()]);
    wait_until("both run", || {
        !processes_of(&ends_later).is_empty() && !processes_of(&runs_on).is_empty()
    });
    process.kill().unwrap();
    process.wait().unwrap();
    File::create(&gate).unwrap();
    wait_until("the first has ended", || processes_of(&ends_later).is_empty());
    wait_until("and its end is recorded", || root.path().join("attempts/1.0.1/exit.json").exists());

    let mut agent = Agent::open(root.path()).await;
    assert_eq!(ended_at_all(&agent.found, 1).unwrap().ended, Ended::Exit(6));
    assert!(matches!(agent.found[1].state, FoundState::Running { main: Some(_), .. }));
    assert_eq!(agent.found[1].launch.as_ref(), Some(&runs_on));
    agent.started(2).await;
    agent.stop(2, intent(100)).await;
    assert_eq!(agent.ended(2).await.ended, Ended::Signal(15));

    agent.supervisor.forget(attempt(1)).await.unwrap();
    agent.supervisor.forget(attempt(2)).await.unwrap();
    agent.supervisor.close().await;
    assert_eq!(Agent::open(root.path()).await.found.len(), 0);
}

#[tokio::test]
async fn without_agent_and_contact_the_shim_ends_its_job_in_time() {
    let root = TempDir::new().unwrap();
    let lost = Launch {
        lost_after: Some(Millis(1500)),
        grace: Millis(60_000),
        ..shell(1, "trap '' TERM; while :; do sleep 0.01; done")
    };
    let kept = shell(2, "sleep 1000");
    let mut process = spawn_agent(root.path(), &[lost.clone(), kept.clone()]);
    wait_until("both run", || !processes_of(&lost).is_empty() && !processes_of(&kept).is_empty());
    let mut contact =
        Contact::open(&drigs::worker::attempt_dir::DataDir::at(root.path()), &boot_id().unwrap())
            .unwrap();
    let last = BootTime::now();
    contact.record(last).unwrap();
    process.kill().unwrap();
    process.wait().unwrap();

    wait_until("the job is gone", || processes_of(&lost).is_empty());
    let gone_after = BootTime::now().since(last);
    // lost_after, the grace of 2 s, and the time of a busy machine.
    assert!((1500..15_000).contains(&gone_after.0), "gone after {gone_after:?}");
    assert!(!processes_of(&kept).is_empty(), "the other one may stay for ever");

    wait_until("its end is recorded", || root.path().join("attempts/1.0.1/exit.json").exists());
    let mut agent = Agent::open(root.path()).await;
    let exit = ended_at_all(&agent.found, 1).unwrap().clone();
    assert_eq!(exit.stopped.as_ref().unwrap().cause, StopCause::LostContact);
    assert_eq!(exit.to_ending().reason, EndReason::NodeLost);
    agent.stop(2, intent(100)).await;
    agent.ended(2).await;
}

#[tokio::test]
async fn contact_keeps_a_job_alive() {
    let root = TempDir::new().unwrap();
    let mut agent = Agent::open(root.path()).await;
    let mut contact = Contact::open(agent.supervisor.dir(), &boot_id().unwrap()).unwrap();
    let job = Launch { lost_after: Some(Millis(400)), ..shell(1, "sleep 1.5") };
    agent.start(job).await;
    let exit = loop {
        contact.record(BootTime::now()).unwrap();
        if let Ok(Some(Event::Ended { exit, .. })) =
            timeout(Duration::from_millis(50), agent.events.next()).await
        {
            break exit;
        }
    };
    assert_eq!((exit.ended, exit.stopped), (Ended::Exit(0), None));
}

#[tokio::test]
async fn a_start_cut_short_by_the_agents_death_never_happens() {
    let root = TempDir::new().unwrap();
    let agent = Agent::open(root.path()).await;
    let boot_id = boot_id().unwrap();
    assert!(agent.supervisor.dir().attempt(attempt(1)).create(shell(1, "true"), &boot_id).unwrap());
    agent.supervisor.close().await;

    let mut agent = Agent::open(root.path()).await;
    assert_eq!(agent.found[0].state, FoundState::NeverStarted);
    agent.supervisor.forget(attempt(1)).await.unwrap();
    assert_eq!(agent.run(shell(1, "exit 5")).await.ended, Ended::Exit(5));
}

#[tokio::test]
async fn after_a_reboot_nothing_is_taken_for_running() {
    let root = TempDir::new().unwrap();
    let agent = Agent::open(root.path()).await;
    let dir = agent.supervisor.dir().attempt(attempt(1));
    assert!(dir.create(shell(1, "true"), "another-boot").unwrap());
    agent.supervisor.close().await;
    for _ in 0..2 {
        let agent = Agent::open(root.path()).await;
        assert_eq!(ended_at_all(&agent.found, 1).unwrap().ended, Ended::Rebooted);
        agent.supervisor.close().await;
    }
}
