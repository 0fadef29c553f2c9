//! Commands as a person runs them, against a cluster that answers from a script.

mod fake;
mod fleet;

use std::io::{self, Write};

use clap::Parser as _;
use expect_test::{Expect, expect};

use self::fake::{Fake, FakeFiles, NOW};
use super::{Arguments, Session, carry_out, screen::Screen};
use crate::model::UserName;
use crate::rpc::api::{Consistency, ErrorKind};

/// What stdout, stderr and the exit code are, in this order.
fn run_on(fake: &Fake, line: &str) -> String {
    let words = shlex::split(&format!("drigs {line}")).unwrap();
    let arguments = match Arguments::try_parse_from(words) {
        Ok(arguments) => arguments,
        Err(error) => return format!("usage: {}\n", super::spec::condensed(&error)),
    };
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let screen = Screen {
        out: &mut out,
        err: &mut err,
        format: arguments.global.output.unwrap_or_default(),
        header: !arguments.global.no_header,
        width: Some(80),
        colours: false,
        time_zone: jiff::tz::TimeZone::UTC,
        clock: &|| NOW,
        clear: false,
    };
    let (api, user) = (fake.clone(), UserName::from("ada"));
    let consistency = Consistency::Linearizable;
    let session = Session { api, screen, user, consistency, offline: &FakeFiles };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let ended = runtime.block_on(carry_out(arguments.command, session));
    let mut text = String::from_utf8(out).unwrap();
    for line in String::from_utf8(err).unwrap().lines() {
        text += &format!("! {line}\n");
    }
    if let Err(failure) = ended {
        if !failure.message.is_empty() {
            text += &format!("! drigs: {}\n", failure.message);
        }
        text += &format!("exit {}\n", failure.code);
    }
    text
}

fn shows(line: &str, expected: Expect) {
    expected.assert_eq(&run_on(&Fake::default(), line));
}

/// Also what the cluster was asked.
fn asks(line: &str, expected: Expect) {
    let fake = Fake::default();
    let mut text = run_on(&fake, line);
    for asked in fake.asked.lock().unwrap().iter() {
        text += &format!("? {asked}\n");
    }
    expected.assert_eq(&text);
}

#[test]
fn the_words_fit_together() {
    use clap::CommandFactory as _;
    Arguments::command().debug_assert();
}

#[test]
fn lists_of_jobs() {
    shows(
        "jobs",
        expect![[r#"
        ID  NAME              USER  QUEUE    STATE    TASKS  GPUS  TIME  REASON/WORKER
        16  held              ada   default  PENDING      -     0     -  HELD
        15  a-very-long-nam…  ada   default  QUEUED       -    16     -  RESOURCES
        ! (2 shown, there are more: -n raises the limit)
    "#]],
    );
    shows(
        "jobs -a --no-header",
        expect![[r#"
            16  held                       ada   default  PENDING  -   0  -  HELD
            15  a-very-long-name-of-a-jo…  ada   default  QUEUED   -  16  -  RESOURCES
            ! (2 shown, there are more: -n raises the limit)
        "#]],
    );
    shows(
        "queue -o wide",
        expect![[r#"
            ID  NAME                                           USER  QUEUE    STATE    TASKS  GPUS  TIME  REASON/WORKER  PRIORITY  NODES  CPUS  MEMORY  LIMIT  SUBMITTED
            16  held                                           ada   default  PENDING      -     0     -  HELD                  0      1     1       -      -  10:00:00
            15  a-very-long-name-of-a-job-that-somebody-chose  ada   default  QUEUED       -    16     -  RESOURCES             5      2   1.5     64G     4h  10:00:00
            ! (2 shown, there are more: -n raises the limit)
        "#]],
    );
    shows(
        "jobs -o json -n 1",
        expect![[r#"
        [
          {
            "completed_at": null,
            "cpus": 1,
            "ended": null,
            "gpus": 0,
            "is_array": false,
            "job_id": 16,
            "memory": 0,
            "name": "held",
            "nodes": 1,
            "priority": 0,
            "queue": "default",
            "reason": "HELD",
            "started_at": null,
            "status": "PENDING",
            "submitted_at": "2026-01-31T10:00:00.000Z",
            "tasks": {
              "cancelled": 0,
              "completed": 0,
              "failed": 0,
              "pending": 0,
              "queued": 0,
              "recovering": 0,
              "running": 0,
              "scheduled": 0
            },
            "time_limit_ms": null,
            "user": "ada",
            "workers": []
          },
          {
            "completed_at": null,
            "cpus": 1.5,
            "ended": null,
            "gpus": 8,
            "is_array": false,
            "job_id": 15,
            "memory": 68719476736,
            "name": "a-very-long-name-of-a-job-that-somebody-chose",
            "nodes": 2,
            "priority": 5,
            "queue": "default",
            "reason": "RESOURCES",
            "started_at": null,
            "status": "QUEUED",
            "submitted_at": "2026-01-31T10:00:00.000Z",
            "tasks": {
              "cancelled": 0,
              "completed": 0,
              "failed": 0,
              "pending": 0,
              "queued": 0,
              "recovering": 0,
              "running": 0,
              "scheduled": 0
            },
            "time_limit_ms": 14400000,
            "user": "ada",
            "workers": []
          }
        ]
        ! (2 shown, there are more: -n raises the limit)
    "#]],
    );
    asks(
        "jobs 3 4 -s R,pd -u eve -p night --name x -n 5 --no-header",
        expect![[r#"
            16  held                       ada   default  PENDING  -   0  -  HELD
            15  a-very-long-name-of-a-jo…  ada   default  QUEUED   -  16  -  RESOURCES
            ! (2 shown, there are more: -n raises the limit)
            ? jobs JobFilter { ids: [JobId(3), JobId(4)], states: [Running, Pending], user: Some("eve"), queue: Some("night"), name: Some("x"), finished: false, limit: 5, before: None } Linearizable
        "#]],
    );
    shows(
        "jobs -s gone",
        expect![[r#"
        usage: --state: `gone` is not a state: pending, queued, scheduled, running, recovering, completed, failed or cancelled
    "#]],
    );
    shows(
        "jobs -n 0",
        expect![[r#"
        usage: --limit: 0 is not in 1..=10000
    "#]],
    );
    shows(
        "jobs twelve",
        expect![[r#"
            usage: ID: `twelve` is not a job id (a number such as 12)
        "#]],
    );
}

#[test]
fn one_job() {
    shows(
        "inspect 15",
        expect![[r#"
            Job          15 (a-very-long-name-of-a-job-that-somebody-chose)
            State        QUEUED (RESOURCES; `drigs explain 15` says more)
            User         ada
            Queue        default, priority 5
            Command      python train.py --name 'a b'
            Needs        1 CPU, 8 GPUs
            Limits       4h of time
            Waits for    3
            Submitted    10:00:00 (2h ago)
            Environment  HF_HOME
        "#]],
    );
    shows(
        "inspect 14",
        expect![[r#"
            Job          14 (sweep)
            State        RUNNING
            User         ada
            Queue        default, priority 0
            Command      python train.py --name 'a b'
            Needs        1 CPU, 1 GPU
            Array        0-99, 4 at a time: 4 running, 93 queued, 2 completed, 1 failed
            Waits for    3
            Submitted    10:00:00 (2h ago)
            Started      10:58:59 (1h1m ago)
            Environment  HF_HOME

            TASK  STATE    ATTEMPT  WORKER     STARTED   TIME  GPUS   END
            14.3  RUNNING        1  gpu-box-1  11:58:59  1m1s  GPU-1  -
        "#]],
    );
    shows(
        "inspect 12",
        expect![[r#"
            Job          12 (exits)
            State        FAILED (EXIT 3)
            User         ada
            Queue        default, priority 0
            Command      python train.py --name 'a b'
            Needs        1 CPU
            Waits for    3
            Submitted    10:00:00 (2h ago)
            Started      11:58:20 (1m40s ago)
            Ended        11:59:20 (40s ago)
            Environment  HF_HOME
        "#]],
    );
    shows(
        "inspect 14.3",
        expect![[r#"
        TASK  STATE    ATTEMPT  WORKER     STARTED   TIME  GPUS   END
        14.3  RUNNING        1  gpu-box-1  11:58:59  1m1s  GPU-1  -
    "#]],
    );
    shows(
        "inspect 14_100",
        expect![[r#"
        ! drigs: job 14 has no task 100
        exit 3
    "#]],
    );
    shows(
        "inspect 99",
        expect![[r#"
        ! drigs: no job 99; `drigs jobs -a` lists them
        exit 3
    "#]],
    );
    shows(
        "inspect 14 -o yaml",
        expect![[r#"
        completed_at: null
        cpus: 1
        ended: null
        gpus: 1
        held_by: null
        is_array: true
        job_id: 14
        memory: 0
        name: sweep
        nodes: 1
        priority: 0
        queue: default
        reason: null
        spec:
          array:
            indices: 0-99
            max_running: 4
          backend: native
          begin: null
          checkpoint: null
          command:
          - python
          - train.py
          - --name
          - a b
          container: null
          dependencies: []
          distribution: null
          env:
            HF_HOME: /data
          held: false
          labels: {}
          layout: single
          lost_after: null
          name: job
          priority: 0
          queue: default
          request:
            cpus: 1
            gpus:
              count: 1
              memory: null
              min_compute_capability: null
              model: null
              sharing: false
              topology_aware: false
            memory: 0
          retry:
            max: 0
            "on": []
          stop:
            grace: 30s
            signal: 15
          time_limit: null
          working_dir: null
        started_at: "2026-01-31T10:58:59.000Z"
        status: RUNNING
        submitted_at: "2026-01-31T10:00:00.000Z"
        task_list:
        - attempt: 1
          ended: null
          ended_at: null
          failures: 0
          gpus:
          - GPU-1
          index: 3
          placed_at: "2026-01-31T11:58:58.000Z"
          started_at: "2026-01-31T11:58:59.000Z"
          status: RUNNING
          stopping: false
          task_id: "14.3"
          worker_names:
          - gpu-box-1
        tasks:
          cancelled: 0
          completed: 2
          failed: 1
          pending: 0
          queued: 93
          recovering: 0
          running: 4
          scheduled: 0
        time_limit_ms: null
        user: ada
        waits_for:
        - 3
        workers:
        - gpu-box-1
        - gpu-box-2
        - gpu-box-3
        - gpu-box-4
        - gpu-box-5
    "#]],
    );
    shows(
        "explain 15",
        expect![[r#"
        job 15 is QUEUED (RESOURCES)
          It needs 8 GPUs on each of 2 workers.
          3 of 3 workers have too few free GPUs: job 14 holds 4 of gpu-box-1.
          2 jobs are served before it.
          By known time limits it starts at 12:10:00 (in 10m).
    "#]],
    );
    shows(
        "explain 2",
        expect![[r#"
            job 2 is RECOVERING
              2.0.1 may still run on worker gpu-box-1.
        "#]],
    );
    shows(
        "diagnose 15 -o json",
        expect![[r#"
            {
              "ahead": 2,
              "earliest_start": "2026-01-31T12:10:00.000Z",
              "ended": null,
              "lines": [
                "It needs 8 GPUs on each of 2 workers.",
                "3 of 3 workers have too few free GPUs: job 14 holds 4 of gpu-box-1."
              ],
              "reason": "RESOURCES",
              "state": "QUEUED",
              "target": "15"
            }
        "#]],
    );
}

#[test]
fn submissions() {
    asks(
        "submit -- true",
        expect![[r#"
        submitted job 12
        ? submit ["true"] as ada
    "#]],
    );
    asks(
        "submit --parsable -u eve --strict --key k1 -- true",
        expect![[r#"
        12
        ? submit ["true"] as eve strict key k1
    "#]],
    );
    asks(
        "submit -a 0-9 -o json -- true",
        expect![[r#"
        {
          "job_id": 12,
          "tasks": 10,
          "warnings": []
        }
        ? submit ["true"] as ada
    "#]],
    );
    asks(
        "submit --dry-run -a 0-9 -G 101 -- true",
        expect![[r#"
        this would be taken: 10 tasks in queue default
        ! drigs: warning: no worker has 101 GPUs
        ? submit ["true"] as ada dry
    "#]],
    );
    asks(
        "submit --wait -- sh -c 'exit 3'",
        expect![[r#"
        submitted job 12
        ! job 12 FAILED: EXIT 3
        exit 3
        ? submit ["sh", "-c", "exit 3"] as ada
        ? wait [JobId(12)]
    "#]],
    );
    shows(
        "submit",
        expect![[r#"
        ! drigs: submit: nothing to run: give the command after `--`, a script, or a file with `execution.entrypoint`
        exit 2
    "#]],
    );
    shows(
        "submit --key '' -- true",
        expect![[r#"
        usage: --key: a key is 1 to 200 characters, without line breaks
    "#]],
    );
    shows(
        "submit no-such-program",
        expect![[r#"
        ! drigs: no-such-program: no such file; a command goes after `--`: drigs submit -- no-such-program …
        exit 2
    "#]],
    );
    shows(
        "submit no-such.yaml",
        expect![[r#"
        ! drigs: no-such.yaml: no such file
        exit 2
    "#]],
    );
    expect![[r#"
        ! drigs: the cluster says Unavailable; to ask again without submitting twice, add --key k1
        exit 4
    "#]]
    .assert_eq(&run_on(&Fake::failing([ErrorKind::Unavailable]), "submit --key k1 -- true"));
    expect![[r#"
        ! drigs: the cluster says Invalid
        exit 2
    "#]]
    .assert_eq(&run_on(&Fake::failing([ErrorKind::Invalid]), "submit -- true"));
    expect![[r#"
        ! drigs: the cluster says Denied
        exit 5
    "#]]
    .assert_eq(&run_on(&Fake::failing([ErrorKind::Denied]), "submit -- true"));
}

#[test]
fn waiting_passes_the_jobs_code_on() {
    shows(
        "wait 13",
        expect![[r#"
        ID  NAME  USER  QUEUE    STATE      TASKS  GPUS  TIME  REASON/WORKER
        13  true  ada   default  COMPLETED      -     0    2s  -
    "#]],
    );
    shows(
        "wait 13 12 11",
        expect![[r#"
        ID  NAME   USER  QUEUE    STATE      TASKS  GPUS  TIME  REASON/WORKER
        13  true   ada   default  COMPLETED      -     0    2s  -
        12  exits  ada   default  FAILED         -     0    1m  EXIT 3
        11  dies   ada   default  FAILED         -     0    1m  SIGNAL 9
        exit 3
    "#]],
    );
    shows(
        "wait 11 --no-header",
        expect![[r#"
            11  dies  ada   default  FAILED  -  0  1m  SIGNAL 9
            exit 137
        "#]],
    );
    shows(
        "wait 10 -o json --no-header",
        expect![[r#"
        [
          {
            "completed_at": "2026-01-31T11:59:20.000Z",
            "cpus": 1,
            "ended": {
              "exit_code": null,
              "message": null,
              "reason": "USER",
              "signal": null
            },
            "gpus": 0,
            "is_array": false,
            "job_id": 10,
            "memory": 0,
            "name": "unwanted",
            "nodes": 1,
            "priority": 0,
            "queue": "default",
            "reason": null,
            "started_at": null,
            "status": "CANCELLED",
            "submitted_at": "2026-01-31T10:00:00.000Z",
            "tasks": {
              "cancelled": 0,
              "completed": 0,
              "failed": 0,
              "pending": 0,
              "queued": 0,
              "recovering": 0,
              "running": 0,
              "scheduled": 0
            },
            "time_limit_ms": null,
            "user": "ada",
            "workers": []
          }
        ]
        exit 1
    "#]],
    );
    shows(
        "wait 14 --timeout 0",
        expect![[r#"
        ! drigs: the time is up: job 14 is RUNNING
        exit 1
    "#]],
    );
}

#[test]
fn output_of_jobs() {
    asks(
        "logs 14",
        expect![[r#"
        epoch 1
        epoch 2
        ! (2K before this were dropped to keep within the limit)
        ? job 14
        ? logs LogRequest { task: TaskId { job: JobId(14), index: 0 }, attempt: None, node: 0, follow: false, tail: None, from: 0 }
        ? logs LogRequest { task: TaskId { job: JobId(14), index: 0 }, attempt: Some(2), node: 0, follow: false, tail: None, from: 8 }
    "#]],
    );
    asks(
        "logs -f 14.3 --tail 5 --node 1",
        expect![[r#"
        epoch 1
        epoch 2
        ? tasks 14 Some(3)
        ? logs LogRequest { task: TaskId { job: JobId(14), index: 3 }, attempt: None, node: 1, follow: true, tail: Some(5), from: 0 }
        ? logs LogRequest { task: TaskId { job: JobId(14), index: 3 }, attempt: Some(2), node: 1, follow: true, tail: None, from: 8 }
    "#]],
    );
    shows(
        "logs 99",
        expect![[r#"
        ! drigs: no job 99; `drigs jobs -a` lists them
        exit 3
    "#]],
    );
}

#[test]
fn acting_on_jobs() {
    asks(
        "cancel 3 14.3",
        expect![[r#"
        ! cancelled 3
        ! cancelled 14.3
        ? act Job(JobId(3)) Cancel by ada
        ? act Task(TaskId { job: JobId(14), index: 3 }) Cancel by ada
    "#]],
    );
    asks(
        "cancel -u eve",
        expect![[r#"
        ! cancelled 16
        ! cancelled 15
        ! cancelled 14
        ? jobs JobFilter { ids: [], states: [], user: Some("eve"), queue: None, name: None, finished: false, limit: 1000, before: None } Linearizable
        ? jobs JobFilter { ids: [], states: [], user: Some("eve"), queue: None, name: None, finished: false, limit: 1000, before: Some(JobId(15)) } Linearizable
        ? act Job(JobId(16)) Cancel by ada
        ? act Job(JobId(15)) Cancel by ada
        ? act Job(JobId(14)) Cancel by ada
    "#]],
    );
    shows(
        "cancel",
        expect![[r#"
        usage: the following required arguments were not provided: <ID>...
    "#]],
    );
    shows(
        "cancel 3 -u eve",
        expect![[r#"
        ! drigs: cancel: name jobs, or say which ones by a filter, not both
        exit 2
    "#]],
    );
    shows(
        "cancel -s failed",
        expect![[r#"
        ! drigs: --state: jobs that are FAILED cannot be cancelled
        exit 2
    "#]],
    );
    asks(
        "hold 3",
        expect![[r#"
        ! held 3
        ? act Job(JobId(3)) Hold by ada
    "#]],
    );
    asks(
        "release 3",
        expect![[r#"
        ! released 3
        ? act Job(JobId(3)) Release by ada
    "#]],
    );
    asks(
        "requeue 14_3",
        expect![[r#"
        ! requeued 14.3
        ? act Task(TaskId { job: JobId(14), index: 3 }) Requeue by ada
    "#]],
    );
    asks(
        "update 3 --priority 9",
        expect![[r#"
        ! updated 3
        ? act Job(JobId(3)) SetPriority(9) by ada
    "#]],
    );
    shows(
        "update 3 --priority -1",
        expect![[r#"
        usage: --priority: `-1` is not a priority (0 to 1000000)
    "#]],
    );
    expect![[r#"
        ! drigs: the cluster says Conflict
        ! cancelled 5
        ! drigs: the cluster says NotFound
        exit 3
    "#]]
    .assert_eq(&run_on(&Fake::failing([ErrorKind::Conflict, ErrorKind::NotFound]), "cancel 3 4 5"));
    expect![[r#"
        ! drigs: the cluster says Unavailable
        exit 4
    "#]]
    .assert_eq(&run_on(&Fake::failing([ErrorKind::Unavailable]), "cancel 3 4 5"));
}
