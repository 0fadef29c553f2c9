//! What people get wrong: one line that says what and where, an exit code, and nothing is submitted.

use std::process::{Command, Stdio};

use super::{Person, ended};
use crate::lab::{DRIGS, text};

/// The one line on stderr has all of `words`.
#[track_caller]
fn refused(me: &Person, arguments: &[&str], code: i32, words: &[&str]) {
    let output = me.run(arguments);
    let said = text(&output);
    let shown: Vec<String> = arguments.iter().map(|word| word.chars().take(60).collect()).collect();
    assert_eq!(output.status.code(), Some(code), "{shown:?}: {said}");
    assert!(output.stdout.is_empty(), "{shown:?} writes to stdout: {said}");
    assert_eq!(said.trim_end().lines().count(), 1, "{shown:?} says more than a line:\n{said}");
    assert!(said.starts_with("drigs: ") && said.len() < 500, "{shown:?}: {said}");
    for word in words {
        assert!(said.contains(word), "{shown:?}: `{word}` is missing in: {said}");
    }
}

#[test]
fn wrong_flags() {
    let me = Person::new();
    let cases: &[(&[&str], &[&str])] = &[
        (&["--cpus", "-1", "--", "true"], &["--cpus-per-task: `-1`"]),
        (&["-c", "0", "--", "true"], &["--cpus-per-task", "more than 0"]),
        (&["-c", "1e8", "--", "true"], &["--cpus-per-task", "at most 100000"]),
        (&["--mem", "lots", "--", "true"], &["--mem: `lots`", "16GB"]),
        (&["--mem", "16XB", "--", "true"], &["--mem: `16XB`", "16GB"]),
        (&["-G", "-2", "--", "true"], &["--gpus: `-2`", "a100:2"]),
        (&["-G", "5000", "--", "true"], &["--gpus", "at most 1024"]),
        (&["-t", "soon", "--", "true"], &["--time: `soon`", "30m"]),
        (&["-t", "0", "--", "true"], &["--time", "longer than 0"]),
        (&["--priority", "1000001", "--", "true"], &["--priority", "0 to 1000000"]),
        (&["--retry", "-1", "--", "true"], &["--retry: `-1`"]),
        (&["-J", "", "--", "true"], &["--job-name", "empty"]),
        (&["--", ""], &["program's name is empty"]),
        (&["-e", "A=1\n2", "--", "true"], &["--env", "`A`", "line break"]),
        (&["-a", "5-1", "--", "true"], &["--array: `5-1`", "0-99"]),
        (&["-a", "", "--", "true"], &["--array", "0-99"]),
        (&["-a", "0-1000000", "--", "true"], &["--array", "1000001", "at most 1000000"]),
        (&["-a", "0-999999:2", "--", "true"], &["--array", "500000", "at most 1000 "]),
        (&["-a", "0-9%0", "--", "true"], &["--array", "at least 1"]),
        (&["-d", "afterok:7,afterany:7", "--", "true"], &["--dependency", "job 7 twice"]),
        (&["-d", "afterwards:7", "--", "true"], &["--dependency", "afterok:12"]),
        (&["--no-such-flag", "--", "true"], &["--no-such-flag"]),
        (&["true"], &["no such file", "drigs submit -- true"]),
    ];
    for (arguments, words) in cases {
        refused(&me, &[&["submit"], *arguments].concat(), 2, words);
    }
}

#[test]
fn wrong_files() {
    let me = Person::new();
    let entry = "execution: {entrypoint: 'true'}\n";
    let cases = [
        ("key.yaml", format!("{entry}prioritty: 3\n"), &["key.yaml:2", "`priority`?"][..]),
        ("type.yaml", format!("{entry}priority: high\n"), &["type.yaml:2", "`high`"]),
        ("unit.yaml", format!("{entry}resources: {{memory: 16XB}}\n"), &["unit.yaml:2", "16XB"]),
        ("minus.yaml", format!("{entry}resources: {{gpus: -1}}\n"), &["minus.yaml:2", "`-1`"]),
        ("empty.yaml", String::new(), &["empty.yaml", "entrypoint"]),
        ("torn.yaml", String::from("name: [\n"), &["torn.yaml:1"]),
        ("nul.yaml", String::from("execution: {entrypoint: \"a\\0b\"}\n"), &["NUL"]),
        ("flag.sh", String::from("#!/bin/sh\n#DRIGS --gpuss 1\n"), &["flag.sh:2", "--gpuss"]),
        ("steps.yaml", format!("{entry}array: 0-999999:2\n"), &["steps.yaml:2", "at most 1000 "]),
    ];
    for (name, content, words) in cases {
        me.write(name, &content);
        refused(&me, &["submit", name], 2, words);
    }
    let large = format!("{entry}# {}\n", "x".repeat(10 << 20));
    me.write("large.yaml", &large);
    refused(&me, &["submit", "large.yaml"], 2, &["large.yaml", "1M"]);
    refused(&me, &["submit", "none.yaml"], 2, &["none.yaml", "no such file"]);
}

#[test]
fn what_only_the_cluster_knows() {
    let me = Person::new();
    let cases: &[(&[&str], i32, &[&str])] = &[
        (&["submit", "-p", "no-such", "--", "true"], 2, &["no-such", "queue"]),
        (&["submit", "-d", "999999", "--", "true"], 2, &["999999"]),
        (&["submit", "--strict", "-c", "64", "--", "true"], 2, &["--strict", "64"]),
        (&["inspect", "999999"], 3, &["999999"]),
        (&["logs", "999999"], 3, &["999999"]),
        (&["wait", "999999"], 3, &["999999"]),
        (&["cancel", "999999"], 3, &["999999"]),
        (&["inspect", "seven"], 2, &["seven"]),
        (&["worker", "drain", "no-such"], 3, &["no-such", "worker-1"]),
        (&["--deadline", "1s", "-H", "127.0.0.1:1", "jobs"], 4, &["127.0.0.1:1", "reachable"]),
        (&["-H", "nowhere", "jobs"], 2, &["nowhere", "7070"]),
        (&["--token", "wrong", "jobs"], 5, &["token"]),
        (&["cluster", "remove", "9"], 1, &["9"]),
    ];
    for (arguments, code, words) in cases {
        refused(&me, arguments, *code, words);
    }
}

#[test]
fn a_bare_worker_says_what_is_missing() {
    let bare = |variables: &[(&str, &str)]| {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let mut command = Command::new(DRIGS);
        command.arg("worker").env("DRIGS_DATA_DIR", dir.path().join("worker"));
        command.envs(variables.iter().copied());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        ended(command.spawn().expect("drigs starts"))
    };
    let output = bare(&[]);
    let said = text(&output);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    for word in ["--join", "DRIGS_JOIN", "drigs workers", "drigs worker drain|resume|forget"] {
        assert!(said.contains(word), "`{word}` is missing in: {said}");
    }
    // With the variable alone it is the agent, which then minds what it is given.
    let output = bare(&[("DRIGS_JOIN", "127.0.0.1:1"), ("DRIGS_GPUS", "two")]);
    let said = text(&output);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("--gpus") && said.contains("simulated:2xT4"), "{said}");
}
