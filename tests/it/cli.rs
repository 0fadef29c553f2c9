//! `drigs` as people and scripts use it: real commands, one real cluster.

mod mistakes;

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _},
    os::unix::process::ExitStatusExt as _,
    path::PathBuf,
    process::{Child, Command, Output, Stdio},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Instant,
};

use serde_json::Value;
use tempfile::TempDir;

use crate::lab::{DEADLINE, DRIGS, Lab, lines, signal, text, wait_until};

/// One cluster for all tests of this file that run at one time; the last of them ends it.
static LAB: Mutex<Weak<Lab>> = Mutex::new(Weak::new());

/// A person with a shell on it, and a directory of their own.
pub struct Person {
    lab: Arc<Lab>,
    dir: TempDir,
}

impl Person {
    pub fn new() -> Person {
        let mut known: MutexGuard<'_, Weak<Lab>> =
            LAB.lock().unwrap_or_else(PoisonError::into_inner);
        let lab = known.upgrade().unwrap_or_else(|| {
            Arc::new(Lab::start(&["--workers", "2", "--cpus", "8", "--lease", "4s"]))
        });
        *known = Arc::downgrade(&lab);
        Person { lab, dir: tempfile::tempdir().expect("a temporary directory") }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn write(&self, name: &str, text: &str) -> String {
        let path = self.path(name);
        fs::write(&path, text).expect("it is written");
        path.display().to_string()
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(DRIGS);
        command
            .args(arguments)
            .current_dir(self.dir.path())
            .env("DRIGS_CONTROLLERS", &self.lab.controllers)
            .env("DRIGS_TOKEN", &self.lab.token)
            .env("DRIGS_CONFIG", "/dev/null")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    pub fn start(&self, arguments: &[&str]) -> Child {
        self.command(arguments).spawn().expect("drigs starts")
    }

    pub fn run(&self, arguments: &[&str]) -> Output {
        ended(self.start(arguments))
    }

    /// What it says when all is well.
    #[track_caller]
    fn says(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(output.status.success(), "{arguments:?}:\n{}", text(&output));
        String::from_utf8(output.stdout).expect("UTF-8")
    }

    /// Submits, and gives the id that `--parsable` prints alone.
    #[track_caller]
    fn submit(&self, arguments: &[&str]) -> String {
        let words: Vec<&str> = ["submit", "--parsable"].iter().chain(arguments).copied().collect();
        let said = self.says(&words);
        let id = said.strip_suffix('\n').expect("one line");
        assert!(id.parse::<u64>().is_ok(), "only the id: {said:?}");
        id.to_owned()
    }

    /// Submits a line for a shell.
    #[track_caller]
    fn shell(&self, script: &str) -> String {
        self.submit(&["--", "sh", "-c", script])
    }

    fn json(&self, arguments: &[&str]) -> Value {
        let words: Vec<&str> = ["-o", "json"].iter().chain(arguments).copied().collect();
        serde_json::from_str(&self.says(&words)).expect("JSON")
    }

    #[track_caller]
    fn wait_for_state(&self, job: &str, state: &str) {
        let status = || self.json(&["inspect", job])["status"] == state;
        wait_until(&format!("job {job} is {state}"), status);
    }
}

/// However it ends, it ends in time.
#[track_caller]
fn ended(child: Child) -> Output {
    let pid = child.id();
    let (sender, done) = std::sync::mpsc::channel();
    std::thread::spawn(move || sender.send(child.wait_with_output()));
    done.recv_timeout(DEADLINE)
        .unwrap_or_else(|_| {
            signal(pid, "KILL");
            panic!("it does not end by itself")
        })
        .expect("it is ours")
}

#[test]
fn a_tour() {
    let me = Person::new();
    let go = me.path("go");
    let script = format!(
        "echo first; while ! [ -e '{}' ]; do sleep 0.05; done; echo last; exit 7",
        go.display()
    );
    let job = me.submit(&["-J", "tour", "--", "sh", "-c", &script]);
    let mut follower = me.start(&["logs", "-f", &job]);
    let mut output = BufReader::new(follower.stdout.take().expect("piped"));
    let mut line = String::new();
    output.read_line(&mut line).expect("it prints");
    assert_eq!(line, "first\n", "what it writes is shown while it runs");

    let listed = me.says(&["jobs", "--name", "tour"]);
    assert!(listed.contains("tour") && listed.contains("RUNNING"), "{listed}");
    let inspected = me.says(&["inspect", &job]);
    assert!(inspected.contains("tour") && inspected.contains("worker-"), "{inspected}");
    let explained = me.says(&["explain", &job]);
    assert!(explained.starts_with(&format!("job {job} is RUNNING\n")), "{explained}");
    assert!(explained.contains("runs on worker-"), "{explained}");
    assert!(me.says(&["status"]).contains("2 of 2 ready"));

    fs::write(&go, "").expect("it is written");
    let waited = me.run(&["wait", &job]);
    assert_eq!(waited.status.code(), Some(7), "{}", text(&waited));
    let mut rest = String::new();
    output.read_to_string(&mut rest).expect("it ends");
    assert_eq!(rest, "last\n");
    assert!(ended(follower).status.success(), "following ends well when the job is over");
    assert_eq!(me.says(&["logs", "-n", "1", &job]), "last\n");
    let explained = me.says(&["explain", &job]);
    assert!(explained.starts_with(&format!("job {job} is FAILED (EXIT)\n")), "{explained}");
}

#[test]
fn what_people_do_to_jobs() {
    let me = Person::new();
    // Held, looked at, let go.
    let held = me.submit(&["--hold", "--", "true"]);
    let explained = me.says(&["explain", &held]);
    assert!(explained.contains("is PENDING (HELD)"), "{explained}");
    assert!(explained.contains(&format!("drigs release {held}")), "{explained}");
    me.says(&["release", &held]);
    assert!(me.run(&["wait", &held]).status.success());

    // Too large for any worker: it waits, says so, and can be held and cancelled.
    let waits = me.submit(&["-c", "64", "--", "true"]);
    let explained = me.says(&["explain", &waits]);
    assert!(explained.contains("INFEASIBLE"), "{explained}");
    me.says(&["hold", &waits]);
    assert!(me.says(&["explain", &waits]).contains("is PENDING (HELD)"));
    me.says(&["cancel", &waits]);
    assert_eq!(me.run(&["wait", &waits]).status.code(), Some(1));
    assert!(me.says(&["explain", &waits]).contains("is CANCELLED"));

    // Run again from the start, and ended while it runs.
    let starts = me.path("starts");
    let again = me.shell(&format!("echo x >> '{}'; sleep 1000", starts.display()));
    wait_until("it runs", || lines(&starts).len() == 1);
    me.says(&["requeue", &again]);
    wait_until("it runs again", || lines(&starts).len() == 2);
    me.wait_for_state(&again, "RUNNING");
    let cancelled = Instant::now();
    me.says(&["cancel", &again]);
    let waited = me.run(&["wait", &again]);
    assert_ne!(waited.status.code(), Some(0), "{}", text(&waited));
    assert!(cancelled.elapsed().as_secs() < 20, "`sleep` ends at SIGTERM");
    assert_eq!(me.json(&["inspect", &again])["status"], "CANCELLED");
}

#[test]
fn submit_and_wait_ends_as_the_job_does() {
    let me = Person::new();
    for (script, code) in [("exit 0", 0), ("exit 3", 3), ("kill -9 $$", 137), ("kill -15 $$", 143)]
    {
        let output = me.run(&["submit", "--wait", "--", "sh", "-c", script]);
        assert_eq!(output.status.code(), Some(code), "{script}: {}", text(&output));
    }
    let output = me.run(&["submit", "--wait", "-t", "1s", "--grace", "1", "--", "sleep", "1000"]);
    assert_ne!(output.status.code(), Some(0), "its time was up");
    assert!(text(&output).contains("TIMEOUT"), "{}", text(&output));
    // Ctrl-C ends the waiting, not the job.
    let job = me.shell("sleep 1000");
    let waiting = me.start(&["wait", &job]);
    me.wait_for_state(&job, "RUNNING");
    // Before it listens for signals one would just kill it; either way a shell is told 130.
    signal(waiting.id(), "INT");
    assert_eq!(shell_code(&ended(waiting)), 130);
    assert_eq!(me.json(&["inspect", &job])["status"], "RUNNING");
    me.says(&["cancel", &job]);
}

/// What `$?` shows.
fn shell_code(output: &Output) -> i32 {
    let status = output.status;
    status.code().unwrap_or_else(|| 128 + status.signal().expect("one of the two"))
}

#[test]
fn answers_for_programs() {
    let me = Person::new();
    let job = me.submit(&["-J", "for-programs", "-a", "0-1", "--", "true"]);
    me.run(&["wait", &job]);
    let cases: &[(&[&str], &[&str])] = &[
        (&["jobs", "-a"], &["job_id", "name", "user", "queue", "status", "reason", "tasks"]),
        (&["inspect", &job], &["job_id", "status", "spec", "task_list"]),
        (&["explain", &job], &["target", "state", "reason", "ended", "lines", "ahead"]),
        (&["workers"], &["worker_id", "name", "status", "cpus", "cpus_used", "gpus", "labels"]),
        (&["gpus"], &["worker", "device_id", "uuid", "model_name", "held_by"]),
        (&["queues"], &["name"]),
        (&["status"], &["cluster_id", "leader", "workers", "workers_ready", "tasks"]),
        (&["cluster", "status"], &["cluster_id", "leader", "term", "members"]),
        (&["wait", &job], &["job_id", "status"]),
        (&["submit", "--dry-run", "--", "true"], &["job_id", "tasks", "warnings"]),
    ];
    for (arguments, keys) in cases {
        let value = me.json(arguments);
        let words: Vec<&str> = arguments.iter().copied().take_while(|it| *it != "--").collect();
        let yaml = me.says(&[&["-o", "yaml"], *arguments].concat());
        let yaml: Value = serde_saphyr::from_str(&yaml).expect("YAML");
        let one = |value: &Value| match value {
            Value::Array(all) => all.first().expect("something is listed").clone(),
            other => other.clone(),
        };
        let (json, yaml) = (one(&value), one(&yaml));
        let names = |value: &Value| -> Vec<String> {
            value.as_object().expect("an object").keys().cloned().collect()
        };
        assert_eq!(names(&json), names(&yaml), "{words:?}");
        for key in *keys {
            assert!(json.get(key).is_some(), "{words:?} has no `{key}`: {json}");
        }
    }
    let shown = &me.json(&["jobs", "-a", "--name", "for-programs"])[0];
    assert_eq!(shown["status"], "COMPLETED");
    assert_eq!(shown["tasks"]["completed"], 2);
    assert!(shown["submitted_at"].as_str().expect("a time").ends_with('Z'), "{shown}");
}

#[test]
fn scripts_say_their_own_flags() {
    let me = Person::new();
    let drigs = me.write(
        "own.sh",
        "#!/bin/sh\n#DRIGS -J own -c 2 --retry 1\n#DRIGS -e COLOUR=blue\necho \"$COLOUR $1 $2\"\n",
    );
    let job = me.submit(&["-c", "1", &drigs, "--wait", "x"]);
    assert!(me.run(&["wait", &job]).status.success());
    assert_eq!(me.says(&["logs", &job]), "blue --wait x\n", "a script's arguments are its own");
    let shown = me.json(&["inspect", &job]);
    assert_eq!((&shown["name"], &shown["cpus"]), (&"own".into(), &1.into()), "flags win");
    assert_eq!(shown["spec"]["retry"]["max"], 1);

    let slurm = me.write(
        "slurm.sh",
        "#!/bin/bash\n#SBATCH --job-name=theirs --cpus-per-task=2\n#SBATCH -t 0:30\necho $SLURM_JOB_ID\n",
    );
    let output = me.run(&["submit", "--wait", &slurm]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let shown = &me.json(&["jobs", "-a", "--name", "theirs"])[0];
    assert_eq!((&shown["cpus"], &shown["time_limit_ms"]), (&2.into(), &30_000.into()));

    let file = me.write(
        "job.yaml",
        "name: from-a-file\nresources: {cpus: 1}\nexecution: {entrypoint: 'echo hello'}\n",
    );
    let job = me.submit(&[&file]);
    assert!(me.run(&["wait", &job]).status.success());
    assert_eq!(me.says(&["logs", &job]), "hello\n");
}

#[test]
fn workers_are_taken_out_and_back_in() {
    let me = Person::new();
    let status = |name: &str| {
        let all = me.json(&["workers"]);
        let all = all.as_array().expect("a list").clone();
        all.into_iter().find(|row| row["name"] == name).map(|row| row["status"].clone())
    };
    // A worker of its own, so that others who use the cluster meanwhile do not miss it.
    let dir = me.path("extra");
    let token = me.write("token", &me.lab.token);
    let start = || {
        Command::new(DRIGS)
            .args(["worker", "--name", "extra", "--cpus", "1", "--label", "only=here"])
            .args(["--join", &me.lab.controllers, "--token-file", &token, "--data-dir"])
            .arg(&dir)
            .env_remove("DRIGS_TOKEN")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("drigs starts")
    };
    let mut agent = start();
    wait_until("it joins", || status("extra") == Some("READY".into()));
    me.says(&["worker", "drain", "extra", "--reason", "new fans"]);
    wait_until("it is drained", || status("extra") == Some("DRAINED".into()));
    assert!(me.says(&["workers", "-o", "wide"]).contains("new fans"));
    let job = me.submit(&["-l", "only=here", "--", "true"]);
    let explained = me.says(&["explain", &job]);
    assert!(explained.contains("extra") || explained.contains("drain"), "{explained}");
    me.says(&["worker", "resume", "extra"]);
    assert!(me.run(&["wait", &job]).status.success(), "it runs there once it may");

    signal(agent.id(), "TERM");
    agent.wait().expect("it is ours");
    wait_until("it is missed", || status("extra") != Some("READY".into()));
    me.says(&["worker", "forget", "extra", "--yes"]);
    assert_eq!(status("extra"), None);
}

#[test]
fn a_watch_ends_with_ctrl_c() {
    let me = Person::new();
    for verb in [&["jobs", "-a"][..], &["workers"], &["status"], &["cluster", "status"]] {
        let mut watch = me.start(&[verb, &["--watch", "0.1"]].concat());
        let mut shown = BufReader::new(watch.stdout.take().expect("piped")).lines();
        let first = shown.next().expect("it shows something").expect("UTF-8");
        // Others use the cluster meanwhile, so only how it begins is the same.
        let begins = first.split_whitespace().next().expect("it begins with a word").to_owned();
        let again = shown.find(|line| line.as_ref().is_ok_and(|line| line.starts_with(&begins)));
        assert!(again.is_some(), "{verb:?} shows it again");
        signal(watch.id(), "INT");
        let output = ended(watch);
        assert_eq!(output.status.code(), Some(130), "{verb:?}: {}", text(&output));
    }
}

#[test]
fn help_completions_and_the_lab() {
    let me = Person::new();
    let verbs = "submit jobs inspect explain logs wait cancel hold release requeue update workers worker gpus queues \
        queue-set status cluster completions lab server controller";
    let deeper =
        ["worker drain", "worker resume", "worker forget", "cluster add", "cluster remove"];
    let more = ["cluster status", "cluster transfer-leader", "lab stop", "lab status"];
    for verb in verbs.split_whitespace().chain(deeper).chain(more) {
        let words: Vec<&str> = verb.split(' ').chain(["--help"]).collect();
        let help = me.says(&words);
        assert!(help.contains("Usage:") && help.contains("--"), "{verb}:\n{help}");
        assert!(help.len() > 100, "{verb}:\n{help}");
    }
    let all = me.says(&["--help"]);
    for verb in verbs.split_whitespace() {
        assert!(all.contains(verb), "{verb} is not in:\n{all}");
    }
    for shell in ["bash", "zsh", "fish"] {
        let script = me.says(&["completions", shell]);
        for word in ["submit", "transfer-leader", "demo", "election-min", "stop-all", "drain"] {
            assert!(script.contains(word), "{shell} does not know {word}");
        }
        let file = me.write(shell, &script);
        // Each shell reads its own; one that is not installed here reads none.
        match Command::new(shell).args(["-n", &file]).output() {
            Ok(output) => assert!(output.status.success(), "{shell}: {}", text(&output)),
            Err(_) => assert_ne!(shell, "bash", "bash is needed to check its completions"),
        }
    }
    let place = me.lab.place().display().to_string();
    let status = me.says(&["lab", "status", "--dir", &place]);
    for word in ["controller-3", "worker-2", "running", "2 of"] {
        assert!(status.contains(word), "`{word}` is missing in:\n{status}");
    }
}

#[test]
fn a_lab_is_stopped_by_name() {
    let lab = Lab::start(&["--workers", "1", "--cpus", "1"]);
    let place = lab.place().display().to_string();
    let pids: Vec<u32> =
        ["controller-1", "controller-2", "controller-3", "worker-1"].map(|it| lab.pid(it)).into();
    let began = Instant::now();
    let stopped = lab.drigs(&["lab", "stop", "--dir", &place]);
    assert!(stopped.status.success(), "{}", text(&stopped));
    assert!(began.elapsed().as_secs() < 30, "it took {:?}", began.elapsed());
    assert!(pids.iter().all(|pid| !crate::lab::alive(*pid)), "nothing is left");
    let again = lab.drigs(&["lab", "status", "--dir", &place]);
    assert_eq!(again.status.code(), Some(1));
    assert!(text(&again).contains("no lab runs in"), "{}", text(&again));
}
