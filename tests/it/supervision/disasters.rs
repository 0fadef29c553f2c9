//! What happens to jobs when what runs them is killed, upgraded or restarted.

use std::{
    env,
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use drigs::{
    model::{EndReason, Millis},
    worker::{
        attempt_dir::{DataDir, Ended, Exit, Found, FoundState, Launch, StopCause, Tree},
        clock::{BootTime, boot_id},
        contact::Contact,
        process::Process,
        supervisor::{Event, Supervisor},
    },
};
use tempfile::TempDir;
use tokio::time::timeout;

use super::{Agent, WORKER, attempt, intent, kill, processes_of, shell, wait_until};

/// When set, the test binary is an agent: see [`agent_process`].
const AGENT_DIR: &str = "DRIGS_TEST_AGENT_DIR";

fn ended_at_all(found: &[Found], job: u64) -> Option<&Exit> {
    found.iter().find(|found| found.attempt == attempt(job)).map(|found| match &found.state {
        FoundState::Ended(exit) => exit,
        other => panic!("expected an end, found {other:?}"),
    })
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
        .args(["--exact", "supervision::disasters::agent_process"])
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

    agent.supervisor.forget(vec![attempt(1)]).await.unwrap();
    agent.supervisor.forget(vec![attempt(2)]).await.unwrap();
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
    let mut contact = Contact::open(&DataDir::at(root.path()), &boot_id().unwrap()).unwrap();
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
    agent.supervisor.forget(vec![attempt(1)]).await.unwrap();
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
