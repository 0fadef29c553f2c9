//! Backups, and clusters made from them, with real processes.

use std::fs;

use drigs::model::{JobSpec, TaskState};
use drigs::rpc::api::Api;

use crate::lab::{Lab, alive, lines, shell, text, wait_until};

#[test]
fn any_controller_is_backed_up_while_it_works() {
    let mut lab = Lab::start(&["--workers", "1"]);
    for number in 0..5 {
        lab.submit(JobSpec { held: true, ..shell(&format!("job-{number}"), "true") });
    }
    let cluster = lab.wait(lab.client.cluster()).unwrap().cluster_id;
    for id in 1..=3 {
        let file = lab.dir.path().join(format!("from-{id}.drigs")).display().to_string();
        let address = lab.address(&format!("controller-{id}"));
        // Followers may be an entry behind.
        wait_until("it has all of them", || {
            let made = lab.done(&["-H", &address, "-o", "json", "cluster", "backup", &file]);
            made.contains("\"jobs_submitted\": 5")
        });
        let shown = lab.done(&["cluster", "inspect-backup", &file]);
        assert!(shown.contains("sound") && shown.contains(&cluster), "{shown}");
        assert!(shown.contains(&format!("by controller {id}")), "{shown}");
        assert!(!fs::exists(format!("{file}.part")).unwrap());
    }
    let piped = lab.drigs(&["cluster", "backup", "-"]);
    assert!(piped.status.success(), "{}", String::from_utf8_lossy(&piped.stderr));
    let file = lab.dir.path().join("piped.drigs");
    fs::write(&file, &piped.stdout).unwrap();
    lab.done(&["cluster", "verify", &file.display().to_string()]);

    let mut bytes = piped.stdout;
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&file, &bytes).unwrap();
    let damaged = lab.drigs(&["cluster", "verify", &file.display().to_string()]);
    assert_eq!(damaged.status.code(), Some(1));
    assert!(text(&damaged).contains("is not a sound backup"), "{}", text(&damaged));

    // Of a stopped one, and not of one that runs.
    let dir = lab.place().join("controller-2").display().to_string();
    let file = lab.dir.path().join("offline.drigs").display().to_string();
    let busy = lab.drigs(&["cluster", "backup", "--data-dir", &dir, &file]);
    assert!(!busy.status.success() && text(&busy).contains("in use"), "{}", text(&busy));
    lab.kill("controller-2");
    let made = lab.done(&["cluster", "backup", "--data-dir", &dir, &file]);
    assert!(made.contains("sound"), "{made}");
    lab.restart("controller-2");
}

#[test]
fn a_restored_cluster_runs_nothing_twice_that_may_still_run() {
    let mut lab = Lab::start(&["--workers", "1", "--cpus", "2", "--lease", "4s"]);
    let witness = |lab: &Lab, name: &str, then: &str| {
        let file = lab.dir.path().join(name);
        (shell(name, &format!("echo $DRIGS_ATTEMPT_ID $$ >> '{}'; {then}", file.display())), file)
    };
    let (runs, runs_file) = witness(&lab, "runs", "sleep 600");
    let runs = lab.submit(runs);
    lab.wait_for_state(runs, TaskState::Running);
    let (waits, waits_file) = witness(&lab, "waits", "sleep 600");
    let waits = lab.submit(JobSpec { held: true, ..waits });
    let backup = lab.dir.path().join("b.drigs").display().to_string();
    lab.done(&["cluster", "backup", &backup]);

    // What happens after the backup is what the restored cluster does not know.
    lab.done(&["release", &waits.to_string()]);
    wait_until("it runs", || lines(&waits_file).len() == 1);
    let pid = |file: &std::path::Path, line: usize| -> u32 {
        lines(file)[line].split(' ').nth(1).unwrap().parse().unwrap()
    };
    let future = pid(&waits_file, 0);
    for name in ["controller-1", "controller-2", "controller-3"] {
        lab.kill(name);
    }

    let dir = lab.dir.path().join("restored").display().to_string();
    let peers = format!("1={}", lab.address("controller-1"));
    let arguments =
        ["cluster", "restore", &backup, "--data-dir", &dir, "--id", "1", "--peers", &peers];
    let said = lab.done(&[&arguments[..], &["--adopt-workers"]].concat());
    assert!(said.contains("can not know") && said.contains("RECOVERING"), "{said}");
    let again = lab.drigs(&arguments);
    assert!(text(&again).contains("is not empty"), "{}", text(&again));

    lab.change_command(
        "controller-1",
        "restored",
        &[("--data-dir", dir.as_str()), ("--peers", &peers)],
    );
    lab.restart("restored");
    // The worker comes over. What the backup knows of goes on; what it does not know of is stopped.
    lab.wait_for_state(runs, TaskState::Running);
    assert!(alive(pid(&runs_file, 0)));
    assert_eq!((lines(&runs_file).len(), lab.task(runs, 0).attempt), (1, 1));
    wait_until("what nobody knows of is stopped", || !alive(future));
    assert_eq!(lab.job(waits).job.status, TaskState::Pending, "it is held, as it was then");
    lab.done(&["release", &waits.to_string()]);
    wait_until("it runs again", || lines(&waits_file).len() == 2);
    assert!(lab.task(waits, 0).attempt > 1000, "its number may have been used");
    assert!(!alive(future));
}

#[test]
fn snapshots_are_kept_by_count() {
    let mut lab = Lab::start(&["--workers", "0"]);
    lab.kill("controller-1");
    let flags = [("--keep-snapshots", "2"), ("--snapshot-every", "1s")];
    lab.change_command("controller-1", "controller-1", &flags);
    lab.restart("controller-1");
    let dir = lab.place().join("controller-1/snapshots");
    let names = || {
        let entries = fs::read_dir(&dir).into_iter().flatten().flatten();
        let mut names: Vec<String> =
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.retain(|name| name.ends_with(".drigs"));
        names.sort();
        names
    };
    let mut seen = std::collections::BTreeSet::new();
    wait_until("four were taken", || {
        lab.submit(JobSpec { held: true, ..shell("one", "true") });
        seen.extend(names());
        assert!(names().len() <= 3, "one more at most, while it is taken");
        seen.len() >= 4
    });
    wait_until("two are left", || names().len() == 2);
    let newest = dir.join(names().pop().unwrap()).display().to_string();
    lab.done(&["cluster", "verify", &newest]);
}
