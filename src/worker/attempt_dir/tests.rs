use std::collections::BTreeMap;

use expect_test::expect;
use tempfile::TempDir;

use super::*;
use crate::model::{EndReason, JobId, Millis, TaskId, Timestamp};

const BOOT: &str = "this-boot";

fn attempt(job: u64) -> AttemptId {
    AttemptId { task: TaskId { job: JobId(job), index: 0 }, number: 1 }
}

fn launch(job: u64) -> Launch {
    Launch {
        attempt: attempt(job),
        nonce: "n0nce".to_owned(),
        argv: vec!["true".to_owned()],
        env: BTreeMap::new(),
        working_dir: "/".to_owned(),
        preferred_dir: None,
        umask: 0o022,
        time_limit: Some(Millis(1000)),
        lost_after: None,
        stop_signal: 15,
        grace: Millis(500),
        lost_grace: Millis(400),
        held: Held::default(),
        log_limit: 1 << 20,
    }
}

fn exit() -> Exit {
    Exit { tree: Tree::Draining(vec![7]), ..Exit::at_once(Ended::Exit(3), Timestamp(5)) }
}

fn prepared() -> (TempDir, DataDir, AttemptDir) {
    let root = TempDir::new().unwrap();
    let dir = DataDir::create(root.path()).unwrap();
    let attempt = dir.attempt(attempt(1));
    assert!(attempt.create(launch(1), BOOT).unwrap());
    (root, dir, attempt)
}

#[test]
fn an_attempt_is_claimed_once() {
    let (_root, _dir, attempt) = prepared();
    let claim = Claim { boot_id: BOOT.to_owned(), shim: Some(Process::current().unwrap()) };
    let mut record = attempt.claim(&claim).unwrap().expect("nobody was quicker");
    assert!(attempt.claim(&claim).unwrap().is_none());
    assert!(!attempt.void(BOOT).unwrap());
    assert!(matches!(attempt.status(BOOT).unwrap(), Status::Running { main: None, .. }));
    write_line(&mut record, &Process { pid: 2, start: 3 }).unwrap();
    let (_, main) = attempt.claimed().unwrap().unwrap();
    assert_eq!(main, Some(Process { pid: 2, start: 3 }));
    assert_eq!(fs::read_dir(attempt.path()).unwrap().count(), 2, "no draft is left");
    assert!(!attempt.create(launch(1), BOOT).unwrap());
}

#[test]
fn a_voided_attempt_cannot_be_claimed() {
    let (_root, dir, attempt) = prepared();
    assert!(attempt.void(BOOT).unwrap());
    let claim = Claim { boot_id: BOOT.to_owned(), shim: Some(Process::current().unwrap()) };
    assert!(attempt.claim(&claim).unwrap().is_none());
    assert_eq!(scan(&dir, BOOT).unwrap()[0].state, FoundState::NeverStarted);
}

#[test]
fn an_end_cut_short_by_a_loss_of_power_is_none_and_a_draining_one_is_not_final() {
    let (_root, dir, attempt) = prepared();
    let dead = Process { pid: i32::MAX, start: 1 };
    attempt.claim(&Claim { boot_id: BOOT.to_owned(), shim: Some(dead) }).unwrap();
    fs::write(attempt.path().join("exit.json"), "{\"ended\":{\"ex").unwrap();
    assert_eq!(attempt.exit(), None);
    assert!(matches!(scan(&dir, BOOT).unwrap()[0].state, FoundState::SupervisorLost { .. }));

    attempt.write_exit(&exit()).unwrap();
    assert!(matches!(scan(&dir, BOOT).unwrap()[0].state, FoundState::SupervisorLost { .. }));
    let concluded = attempt.conclude(Ended::SupervisorLost, Vec::new()).unwrap();
    assert_eq!(concluded, Exit { tree: Tree::Empty, ..exit() }, "what was known is kept");
}

#[test]
fn strange_entries_are_left_alone() {
    let (_root, dir, _) = prepared();
    fs::create_dir(dir.attempts().join("lost+found")).unwrap();
    fs::create_dir(dir.attempts().join("2.0.1")).unwrap();
    let found = scan(&dir, BOOT).unwrap();
    assert_eq!(found.len(), 2);
    assert_eq!((&found[1].launch, &found[1].state), (&None, &FoundState::NeverStarted));
}

/// Old agents' records are read by new ones for as long as jobs run.
#[test]
fn the_records_as_they_are_written() {
    let stopped = Stopped { cause: StopCause::Intent(EndReason::User), by: "ada".to_owned() };
    let records = [
        serde_json::to_string(&Prepared {
            boot_id: BOOT.to_owned(),
            prepared_at: BootTime(9),
            launch: launch(1),
        }),
        serde_json::to_string(&Claim {
            boot_id: BOOT.to_owned(),
            shim: Some(Process { pid: 2, start: 3 }),
        }),
        serde_json::to_string(&Intent {
            reason: EndReason::Preempted,
            by: "the scheduler".to_owned(),
            grace: Millis(7),
        }),
        serde_json::to_string(&Exit { stopped: Some(stopped), ..exit() }),
        serde_json::to_string(&Ended::StartFailed { message: "no".to_owned(), errno: Some(2) }),
    ];
    let text: Vec<String> = records.into_iter().map(Result::unwrap).collect();
    expect![[r#"
        {"boot_id":"this-boot","prepared_at":9,"launch":{"attempt":"1.0.1","nonce":"n0nce","argv":["true"],"env":{},"working_dir":"/","umask":18,"time_limit":1000,"lost_after":null,"stop_signal":15,"grace":500,"lost_grace":400,"log_limit":1048576,"held":{"epoch":0,"cpus":0,"memory":0}}}
        {"boot_id":"this-boot","shim":{"pid":2,"start":3}}
        {"reason":"PREEMPTED","by":"the scheduler","grace":7}
        {"ended":{"exit":3},"stopped":{"cause":{"INTENT":"USER"},"by":"ada"},"started_at":5,"ended_at":5,"ran_for":0,"cpu_time":0,"max_rss_bytes":0,"tree":{"draining":[7]}}
        {"start_failed":{"message":"no","errno":2}}"#]].assert_eq(&text.join("\n"));
}

#[test]
fn the_newest_are_kept_up_to_a_count_a_size_and_an_age() {
    let root = TempDir::new().unwrap();
    let dir = DataDir::create(root.path()).unwrap();
    for job in 1..=4 {
        let attempt_dir = dir.attempt(attempt(job));
        attempt_dir.create(launch(job), BOOT).unwrap();
        fs::write(attempt_dir.output(), vec![1; 100 << 10]).unwrap();
        let age = std::time::Duration::from_secs(10 * job);
        let at = std::time::SystemTime::now() - age;
        File::open(attempt_dir.path()).unwrap().set_modified(at).unwrap();
        dir.settle(attempt(job)).unwrap();
    }
    let kept = || (1..=4).filter(|job| dir.find(attempt(*job)).is_some()).collect::<Vec<_>>();
    let all = Retention::default();
    let check = |retention, expected: &[u64]| {
        prune(&dir, &retention).unwrap();
        assert_eq!(kept(), expected);
    };
    check(all, &[1, 2, 3, 4]);
    check(Retention { count: 3, ..all }, &[1, 2, 3]);
    check(Retention { age: std::time::Duration::from_secs(25), ..all }, &[1, 2]);
    check(Retention { bytes: 150 << 10, ..all }, &[1]);
}
