//! How jobs start, run, are stopped and end.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::Path,
    time::{Duration, Instant},
};

use drigs::{
    model::{AttemptId, EndReason, Millis},
    worker::{
        attempt_dir::{Ended, Launch, Retention, StopCause, Tree, prune},
        shim::output,
        supervisor::{Error, Event, Supervisor},
    },
};
use tempfile::TempDir;

use super::{Agent, WORKER, attempt, intent, launch, processes_of, shell, wait_until};

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
    fs::set_permissions(script, fs::Permissions::from_mode(0o755)).unwrap();
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
    let mut wanted = launch(1, &["sh", "-c", "env | sort | grep -v '^_='; pwd; umask"]);
    wanted.env.insert("GREETING".to_owned(), "hello\nworld".to_owned());
    wanted.working_dir = "/usr".to_owned();
    wanted.umask = 0o027;
    let nonce = wanted.nonce.clone();
    agent.run(wanted).await;
    let printed = agent.output(1);
    let mut lines: Vec<&str> = printed.lines().filter(|line| !line.contains(&nonce)).collect();
    lines.retain(|line| !line.starts_with("world"));
    assert_eq!(lines[..3], ["GREETING=hello", "PATH=/usr/bin:/bin", "PWD=/usr"], "{printed}");
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
    agent.supervisor.forget(vec![attempt(1)]).await.unwrap();
    agent.supervisor.forget(vec![attempt(2)]).await.unwrap();
    agent.supervisor.forget(vec![attempt(2)]).await.unwrap();
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
    let on_disk = fs::metadata(dir.output()).unwrap().blocks() * 512;
    assert!(on_disk <= limit + 8192, "{on_disk} bytes are kept");
    let chunk = output::read(&dir, 0, 100 << 20).unwrap();
    assert_eq!(chunk.end, 3000 * 8192 + 4);
    assert_eq!((chunk.offset, chunk.complete), (chunk.dropped_before, true));
    assert!(chunk.bytes.len() as u64 >= limit / 2);
    assert!(!chunk.bytes.contains(&0) && chunk.bytes.ends_with(b"line-3000\nend\n"));
}
