//! Wrong starts of controllers and workers: each says one clear line, has its exit code, and loses nothing.

use std::{
    fs,
    path::Path,
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

use drigs::model::{Epoch, TaskState, WorkerName};
use drigs::rpc::{
    hub_client::HubClient,
    session::{ControllerMessage, Hello, WorkerMessage},
};
use drigs::state::RegisterWorker;
use futures::StreamExt;
use uuid::Uuid;

use crate::lab::{DEADLINE, DRIGS, Lab, shell, text, wait_until};

/// Runs a process that is meant to end by itself, and says how it did.
fn outcome(arguments: &[&str]) -> Output {
    let child = Command::new(DRIGS)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("drigs starts");
    ended(child)
}

fn ended(mut child: Child) -> Output {
    let deadline = Instant::now() + DEADLINE;
    while child.try_wait().expect("it is ours").is_none() {
        if Instant::now() > deadline {
            child.kill().expect("it is ours");
            let output = child.wait_with_output().expect("it is ours");
            panic!("it did not end by itself:\n{}", text(&output));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    child.wait_with_output().expect("it is ours")
}

/// The last line on stderr that is not a log line.
#[track_caller]
fn check(output: &Output, code: i32, says: &[&str]) {
    let shown = text(output);
    let line = shown.lines().rfind(|line| line.starts_with("drigs")).unwrap_or_default();
    for word in says {
        assert!(line.contains(word), "`{word}` is missing in the one line of:\n{shown}");
    }
    assert_eq!(output.status.code(), Some(code), "{shown}");
}

fn controller<'a>(id: &'a str, peers: &'a str, dir: &'a Path) -> Vec<&'a str> {
    let dir = dir.to_str().expect("UTF-8");
    let listen = peers.split(',').find_map(|it| it.strip_prefix(id)?.strip_prefix('='));
    let listen = listen.unwrap_or("127.0.0.1:0");
    vec![
        "controller",
        "--id",
        id,
        "--peers",
        peers,
        "--data-dir",
        dir,
        "--listen",
        listen,
        "--http",
        "127.0.0.1:0",
    ]
}

#[test]
fn wrong_flags_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().to_str().unwrap();
    let cases: &[(&[&str], &[&str])] = &[
        (&["--peers", "1=a:7070,1=b:7070"], &["--peers", "named twice"]),
        (&["--peers", "nonsense"], &["`nonsense` is not ID=HOST:PORT"]),
        (&["--peers", "1=host"], &["has no port"]),
        (&["--id", "9", "--peers", "1=a:7070"], &["--id 9 is not among"]),
        (&["--listen", "0.0.0.0:0"], &["reachable from other machines", "--token-file"]),
        (&["--lease", "10ms"], &["--lease 10ms is out of range"]),
        (&["--election-max", "100ms"], &["timings do not fit"]),
        (&["--token-file", "/does/not/exist"], &["/does/not/exist"]),
    ];
    for (flags, says) in cases {
        let mut arguments = vec!["controller", "--data-dir", dir];
        arguments.extend_from_slice(flags);
        check(&outcome(&arguments), 2, says);
    }
    let cases: &[(&[&str], &[&str])] = &[
        (&["--gpus", "two"], &["--gpus", "simulated:2xT4"]),
        (&["--gpus", "simulated:0xT4"], &["out of range"]),
        (&["--name", "a b"], &["--name", "is not a name"]),
        (&["--label", "rack"], &["not KEY=VALUE"]),
        (&["--memory", "lots"], &["--memory", "amount of memory"]),
        (&["--cpus", "0"], &["--cpus 0 is out of range"]),
        (&["--join", ","], &["--join names no controller"]),
    ];
    for (flags, says) in cases {
        let mut arguments = vec!["worker", "--data-dir", dir];
        arguments.extend_from_slice(flags);
        check(&outcome(&arguments), 2, says);
    }
}

#[test]
fn nobody_there_is_said_with_what_was_tried() {
    let output = outcome(&["-H", "127.0.0.1:1", "jobs"]);
    check(&output, 4, &["127.0.0.1:1", "DRIGS_CONTROLLERS"]);
}

#[test]
fn a_data_directory_belongs_to_one_process_one_node_and_one_cluster() {
    let mut lab = Lab::start(&["--workers", "1", "--cpus", "2"]);
    let words: Vec<String> = lab.command("controller-1");
    let peers = words[words.iter().position(|it| it == "--peers").unwrap() + 1].clone();
    let dir = lab.place().join("controller-1");
    let pid = lab.pid("controller-1").to_string();

    // A second process on it; the ports differ, so that the directory is what stands in the way.
    let free = "1=127.0.0.1:0";
    check(&outcome(&controller("1", free, &dir)), 1, &["in use", &pid]);
    // A second worker on a worker's.
    let worker_dir = lab.place().join("worker-1");
    let output =
        outcome(&["worker", "--join", "127.0.0.1:1", "--data-dir", worker_dir.to_str().unwrap()]);
    check(&output, 1, &["another worker already uses"]);

    // Another node's.
    lab.kill("controller-1");
    check(&outcome(&controller("2", "2=127.0.0.1:0", &dir)), 1, &["controller 1"]);
    lab.restart("controller-1");

    // A worker of another cluster is turned away, and says so.
    let other = Lab::start(&["--workers", "1", "--controllers", "1"]);
    let theirs = other.place().join("worker-1");
    let mut agent = lab.command("worker-1");
    let copy = lab.dir.path().join("foreign");
    fs::create_dir(&copy).unwrap();
    move_identity(&theirs, &copy);
    replace(&mut agent, "--data-dir", copy.to_str().unwrap());
    replace(&mut agent, "--name", "foreign");
    let agent: Vec<&str> = agent[1..].iter().map(String::as_str).collect();
    check(&outcome(&agent), 1, &["belongs to cluster"]);

    // Nothing was lost by any of it.
    let job = lab.submit(shell("after", "true"));
    lab.wait_for_state(job, TaskState::Completed);
    assert!(peers.starts_with("1="));
}

/// What an operator does who has moved a worker's data directory to another disk.
fn move_identity(from: &Path, to: &Path) {
    let text = fs::read_to_string(from.join("worker.json")).unwrap();
    let mut identity: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert!(identity["home"].is_u64(), "it says where it is at home: {text}");
    identity["home"] = serde_json::Value::Null;
    fs::write(to.join("worker.json"), identity.to_string()).unwrap();
}

#[test]
fn two_agents_with_one_identity_do_not_take_turns() {
    let lab = Lab::start(&["--workers", "1", "--controllers", "1"]);
    let copy = lab.dir.path().join("copy");
    fs::create_dir(&copy).unwrap();
    let original = lab.place().join("worker-1");
    fs::copy(original.join("worker.json"), copy.join("worker.json")).unwrap();
    let mut agent = lab.command("worker-1");
    replace(&mut agent, "--data-dir", copy.to_str().unwrap());
    let agent: Vec<&str> = agent[1..].iter().map(String::as_str).collect();
    check(&outcome(&agent), 1, &["copied from another data directory", "worker.json"]);
    // Somebody who says that it was moved, while the original lives.
    move_identity(&original, &copy);
    check(&outcome(&agent), 1, &["already connected", "worker.json"]);
    let job = lab.submit(shell("after", "true"));
    lab.wait_for_state(job, TaskState::Completed);
}

#[test]
fn a_damaged_file_is_named_and_the_others_go_on() {
    for (file, name) in [("log.db", "log.db"), ("state", "")] {
        let mut lab = Lab::start(&["--workers", "1", "--cpus", "2"]);
        let before = lab.submit(shell("before", "true"));
        lab.wait_for_state(before, TaskState::Completed);
        lab.kill("controller-3");
        let dir = lab.place().join("controller-3");
        let path = find(&dir, file);
        let mut bytes = fs::read(&path).unwrap();
        bytes[..100].fill(0xA5);
        fs::write(&path, bytes).unwrap();
        // A write-ahead log that still holds the damaged page would heal it.
        let real = path.canonicalize().unwrap();
        for suffix in ["-wal", "-shm"] {
            let beside = format!("{}{suffix}", real.display());
            assert!(fs::remove_file(&beside).is_ok() || !Path::new(&beside).exists());
        }
        let output = ended(lab.spawn("controller-3", &[]));
        assert!(!output.status.success(), "it must not start on damaged data");
        let log = fs::read_to_string(lab.place().join("controller-3.log")).unwrap();
        let last = log.lines().rfind(|line| line.starts_with("drigs")).unwrap_or_default();
        assert!(last.contains(name) && last.contains(".db"), "it says: {last}");
        let after = lab.submit(shell("after", "true"));
        lab.wait_for_state(after, TaskState::Completed);
    }
}

#[test]
fn a_full_disk_ends_a_controller_and_room_brings_it_back() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: mounting a small filesystem takes root");
        return;
    }
    let mut lab = Lab::start(&["--workers", "1", "--cpus", "2"]);
    let victim = format!("controller-{}", lab.leader());
    lab.kill(&victim);
    let dir = lab.place().join(&victim);
    let kept = lab.dir.path().join("kept");
    fs::rename(&dir, &kept).unwrap();
    fs::create_dir(&dir).unwrap();
    let Some(_mount) = Mount::tmpfs(&dir, "12m") else { return };
    copy_all(&kept, &dir);
    lab.restart(&victim);
    let filler = dir.join("filler");
    wait_until("it lives", || lab.wait(drigs::rpc::api::Api::cluster(&lab.client)).is_ok());
    // Ignored: writing until nothing more fits ends in an error.
    let _ = fs::write(&filler, vec![0u8; 12 << 20]);
    let pid = lab.pid(&victim);
    wait_until("it meets the full disk and ends", || {
        lab.submit(shell("more", &format!("true {}", "x".repeat(20_000))));
        !crate::lab::alive(pid)
    });
    let log = fs::read_to_string(lab.place().join(format!("{victim}.log"))).unwrap();
    let last = log.lines().rfind(|line| line.starts_with("drigs")).unwrap_or_default();
    assert!(last.contains("full") || last.contains("space"), "it says: {last}");
    fs::remove_file(&filler).unwrap();
    lab.kill(&victim);
    lab.restart(&victim);
    wait_until("it is back and has caught up", || {
        let view = lab.wait(drigs::rpc::api::Api::cluster(&lab.client));
        view.is_ok_and(|view| view.members.iter().all(|it| it.lag.is_none_or(|lag| lag < 50)))
    });
    lab.kill(&victim);
}

#[test]
fn a_worker_with_a_wrong_clock_works_and_is_pointed_out() {
    let lab = Lab::start(&["--workers", "1", "--controllers", "1"]);
    let address = lab.controllers.clone();
    let token = lab.token.clone();
    let hour = 3_600_000;
    let hello = Hello {
        registration: RegisterWorker {
            uuid: Uuid::new_v4(),
            name: WorkerName::from("late"),
            epoch: Epoch(1),
            address: String::from("late"),
            version: String::from("test"),
            cpus: drigs::model::MilliCpus::from_cores(1),
            memory: drigs::model::Bytes::from_gib(1),
            gpus: Vec::new(),
            labels: std::collections::BTreeMap::new(),
            backends: [drigs::model::Backend::Native].into(),
            ephemeral: false,
        },
        incarnation: Uuid::new_v4(),
        cluster_id: None,
        owed: Vec::new(),
        clock: jiff::Timestamp::now().as_millisecond() as u64 - hour,
    };
    let session = lab.wait(async {
        let hub = HubClient::dial(&address, Some(&token)).await.unwrap();
        let mut session = hub.session().await.unwrap();
        session.outbound.send(WorkerMessage::Hello(Box::new(hello))).await.unwrap();
        let welcome = session.inbound.next().await.unwrap().unwrap();
        assert!(matches!(welcome, ControllerMessage::Welcome(_)), "{welcome:?}");
        session
    });
    let late = lab.worker("late");
    assert_eq!(late.status, "READY");
    let reason = late.reason.unwrap();
    assert!(reason.contains("clock") && reason.contains("behind"), "{reason}");
    drop(session);
}

fn replace(words: &mut [String], flag: &str, value: &str) {
    let place = words.iter().position(|word| word == flag).expect("the flag is there");
    words[place + 1] = value.to_owned();
}

/// The first database below `dir` whose name contains `part`.
fn find(dir: &Path, part: &str) -> std::path::PathBuf {
    let mut names: Vec<_> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    names.sort();
    let fits = |path: &&std::path::PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        name.contains(part) && name.ends_with(".db")
    };
    names.iter().find(fits).unwrap_or_else(|| panic!("no {part} in {names:?}")).clone()
}

/// With links as links.
fn copy_all(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg("-a").arg(from.join(".")).arg(to).status();
    assert!(copied.is_ok_and(|status| status.success()), "{} is copied", from.display());
}

/// A small filesystem for as long as this lives.
struct Mount(std::path::PathBuf);

impl Mount {
    fn tmpfs(path: &Path, size: &str) -> Option<Mount> {
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"])
            .arg(path)
            .status();
        if !mounted.is_ok_and(|status| status.success()) {
            eprintln!("skipped: nothing can be mounted here");
            return None;
        }
        Some(Mount(path.to_owned()))
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // Lazily: whatever still has a file open there is about to end.
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}
