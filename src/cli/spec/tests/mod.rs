mod mistakes;

use expect_test::{Expect, expect};
use serde_json::Value;

use crate::cli::spec::{Draft, Fault, Place, SpecFlags, Surroundings, read_file, read_script};
use crate::model::{JobSpec, Timestamp};
use crate::rpc::json;

fn around() -> Surroundings {
    Surroundings {
        // 2026-01-31 12:00:00 UTC.
        now: Timestamp(1_769_860_800_000),
        time_zone: jiff::tz::TimeZone::UTC,
        directory: String::from("/home/ada"),
    }
}

fn environment(name: &str) -> Option<String> {
    (name == "HF_HOME").then(|| String::from("/data/hf"))
}

/// What of a spec differs from one of which nothing was said, a line each.
fn shown(spec: Result<JobSpec, Fault>) -> String {
    let spec = match spec {
        Ok(spec) => json::shown(&spec),
        Err(fault) => return fault.to_string(),
    };
    let mut plain = Draft { command: Some(vec!["true".into()]), ..Draft::default() };
    plain.name = Some("job".into());
    let plain = json::shown(&plain.finish(&around()).unwrap());
    let mut lines = String::new();
    differences("", &plain, &spec, &mut lines);
    lines
}

fn differences(path: &str, plain: &Value, value: &Value, lines: &mut String) {
    match (plain, value) {
        (Value::Object(plain), Value::Object(value)) => {
            for (key, value) in value {
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                differences(&path, plain.get(key).unwrap_or(&Value::Null), value, lines);
            }
        }
        _ if plain == value => {}
        _ => lines.push_str(&format!("{path} = {value}\n")),
    }
}

fn flags(line: &str, expected: Expect) {
    let words = shlex::split(line).unwrap();
    let (flags, command) = match words.iter().position(|word| word == "--") {
        Some(place) => (&words[..place], words[place + 1..].to_vec()),
        None => (&words[..], vec![String::from("true")]),
    };
    let spec = SpecFlags::from_directive(flags, &Place::new("line"))
        .and_then(|flags| flags.into_draft(&environment, Place::new))
        .and_then(|draft| Draft { command: Some(command), ..draft }.finish(&around()));
    expected.assert_eq(&shown(spec));
}

fn file(text: &str, expected: Expect) {
    let spec = read_file("job.yaml", text).and_then(|draft| draft.finish(&around()));
    expected.assert_eq(&shown(spec));
}

fn script(text: &str, expected: Expect) {
    let args = ["a b".to_owned(), "--lr=1".to_owned()];
    let read = read_script("bin/job.sh", text, &args, &environment);
    let (spec, warnings) = match read {
        Ok(script) => (script.draft.finish(&around()), script.warnings),
        Err(fault) => (Err(fault), Vec::new()),
    };
    let warnings: String = warnings.iter().map(|warning| format!("! {warning}\n")).collect();
    expected.assert_eq(&(shown(spec) + &warnings));
}

#[test]
fn what_is_not_said_is_settled() {
    let spec =
        Draft { command: Some(vec!["python".into(), "src/train.py".into()]), ..Draft::default() };
    let text =
        serde_json::to_string_pretty(&json::shown(&spec.finish(&around()).unwrap())).unwrap();
    expect![[r#"
        {
          "array": null,
          "backend": "native",
          "begin": null,
          "checkpoint": null,
          "command": [
            "python",
            "src/train.py"
          ],
          "container": null,
          "dependencies": [],
          "distribution": null,
          "env": {
            "DRIGS_SUBMIT_DIR": "/home/ada"
          },
          "held": false,
          "labels": {},
          "layout": "single",
          "lost_after": null,
          "name": "train.py",
          "priority": 0,
          "queue": "default",
          "request": {
            "cpus": 1,
            "gpus": {
              "count": 0,
              "memory": null,
              "min_compute_capability": null,
              "model": null,
              "sharing": false,
              "topology_aware": false
            },
            "memory": 0
          },
          "retry": {
            "max": 0,
            "on": []
          },
          "stop": {
            "grace": "30s",
            "signal": 15
          },
          "time_limit": null,
          "working_dir": null
        }"#]]
    .assert_eq(&text);
}

#[test]
fn flags_for_resources() {
    flags(
        "-c 0.5 --mem 512 -- python train.py",
        expect![[r#"
        command = ["python","train.py"]
        name = "train.py"
        request.cpus = 0.5
        request.memory = 536870912
    "#]],
    );
    flags(
        "-G 2 --gpu-mem 24G",
        expect![[r#"
        name = "true"
        request.gpus.count = 2
        request.gpus.memory = 25769803776
    "#]],
    );
    flags(
        "-G a100:2",
        expect![[r#"
        name = "true"
        request.gpus.count = 2
        request.gpus.model = "a100"
    "#]],
    );
    flags(
        "-G A100:80GB:2 --gpu-sharing",
        expect![[r#"
        name = "true"
        request.gpus.count = 2
        request.gpus.memory = 85899345920
        request.gpus.model = "A100"
        request.gpus.sharing = true
    "#]],
    );
    flags(
        "-G 4090:2",
        expect![[r#"
        name = "true"
        request.gpus.count = 2
        request.gpus.model = "4090"
    "#]],
    );
    flags(
        "-G A100",
        expect![[r#"
        name = "true"
        request.gpus.count = 1
        request.gpus.model = "A100"
    "#]],
    );
    flags(
        "--gpu-mem 16GB --min-compute-capability 8.0",
        expect![[r#"
        name = "true"
        request.gpus.count = 1
        request.gpus.memory = 17179869184
        request.gpus.min_compute_capability = "8.0"
    "#]],
    );
    flags(
        "-N 2 -G 8",
        expect![[r#"
        layout = {"nodes":2}
        name = "true"
        request.gpus.count = 4
    "#]],
    );
    flags(
        "-N 2 --gpus-per-node h100:4",
        expect![[r#"
        layout = {"nodes":2}
        name = "true"
        request.gpus.count = 4
        request.gpus.model = "h100"
    "#]],
    );
    flags(
        "-N any -G 8",
        expect![[r#"
        layout = "anywhere"
        name = "true"
        request.gpus.count = 8
    "#]],
    );
    flags(
        "-N 1",
        expect![[r#"
        name = "true"
    "#]],
    );
    flags(
        "-G 2:",
        expect!["line: --gpus: `2:` is not a GPU request (such as 2, a100:2 or A100:80GB:2)"],
    );
    flags(
        "-G :2",
        expect!["line: --gpus: `:2` is not a GPU request (such as 2, a100:2 or A100:80GB:2)"],
    );
    flags(
        "-G -2",
        expect!["line: --gpus: `-2` is not a GPU request (such as 2, a100:2 or A100:80GB:2)"],
    );
    flags("-G 4000", expect!["--gpus: is 4000; at most 1024"]);
    flags("-N 0", expect!["--nodes: must be at least 1"]);
    flags(
        "-N 2 -G 3",
        expect![
            "--gpus: 3 GPUs do not divide over 2 nodes; say how many each gives (gpus per node)"
        ],
    );
    flags(
        "-N 2 -G 6 --gpus-per-node 2",
        expect![
            "--gpus-per-node: 2 on each of 2 nodes is not the 6 asked for in all; leave one out"
        ],
    );
    flags(
        "-N any --gpus-per-node 2",
        expect![
            "--gpus-per-node: does not go with nodes `any`, which takes GPUs wherever they are; say how many in all"
        ],
    );
    flags(
        "-G 1 --gpu-sharing",
        expect!["--gpu-sharing: needs `gpu_memory`, which says how much of the GPU is taken"],
    );
    flags("-G 0 --gpu-mem 1G", expect!["--gpu-mem: is asked for, but `gpus` is 0"]);
    flags(
        "--mem 9999999T",
        expect!["line: --mem: `9999999T` is not an amount of memory (such as 512M, 16GB or 1.5T)"],
    );
    flags(
        "-c nan",
        expect!["line: --cpus-per-task: `nan` is not a number of CPUs (such as 4 or 0.5)"],
    );
}

#[test]
fn flags_for_the_job() {
    flags(
        "-J sweep -p night --priority 7 -a 0-99%4 -d afterok:12:13,afterany:14 --hold -l zone=a",
        expect![[r#"
            array = {"indices":"0-99","max_running":4}
            dependencies = [{"job":12,"kind":"afterok"},{"job":13,"kind":"afterok"},{"job":14,"kind":"afterany"}]
            held = true
            labels.zone = "a"
            name = "sweep"
            priority = 7
            queue = "night"
        "#]],
    );
    flags(
        "--begin now+1h",
        expect![[r#"
        begin = "2026-01-31T13:00:00.000Z"
        name = "true"
    "#]],
    );
    flags(
        "--begin 16:00",
        expect![[r#"
        begin = "2026-01-31T16:00:00.000Z"
        name = "true"
    "#]],
    );
    flags(
        "--begin 11:00",
        expect![[r#"
        begin = "2026-02-01T11:00:00.000Z"
        name = "true"
    "#]],
    );
    flags(
        "--begin 2026-03-01T08:00",
        expect![[r#"
        begin = "2026-03-01T08:00:00.000Z"
        name = "true"
    "#]],
    );
    flags(
        "--begin 2026-03-01T08:00+02:00",
        expect![[r#"
        begin = "2026-03-01T06:00:00.000Z"
        name = "true"
    "#]],
    );
    flags(
        "--begin 'next week'",
        expect![
            "line: --begin: `next week` is not a time (such as now+1h, 16:00, 2026-01-31T16:00 or 2026-01-31T16:00Z)"
        ],
    );
    flags(
        "-d 12",
        expect![[r#"
        dependencies = [{"job":12,"kind":"afterok"}]
        name = "true"
    "#]],
    );
    flags("-d afterok", expect!["line: --dependency: `afterok` names no job (such as afterok:12)"]);
    flags(
        "-d singleton",
        expect![
            "line: --dependency: `singleton` is not a dependency (such as afterok:12:13, afterany:14 or afternotok:15)"
        ],
    );
    flags(
        "-d afterok:12+5",
        expect![
            "line: --dependency: `12+5` in `afterok:12+5` is not a job id (a number such as 12)"
        ],
    );
    flags(
        "-d afterok:12,afterok:12",
        expect!["--dependency: names job 12 twice; one condition each"],
    );
    flags("-a 1-3%0", expect!["--array: lets 0 tasks run at a time; at least 1"]);
    flags(
        "-a 0-9%x",
        expect!["line: --array: `0-9%x` is not an array of tasks (such as 0-99, 1,5,9 or 0-99%4)"],
    );
    flags("-l zone", expect!["line: --label: `zone` is not NAME=VALUE"]);
    flags("-J 'a\nb'", expect!["--job-name: the job's name has a line break in it"]);
    flags(
        "-p 'a b'",
        expect![
            "--queue: the name `a b` has ' ' in it; letters, digits, `-`, `_` and `.` are fine"
        ],
    );
}

#[test]
fn flags_for_running_and_ending() {
    flags(
        "-e A=1 -e B= -e HF_HOME --export C=2,HF_HOME -C data",
        expect![[r#"
        env.A = "1"
        env.B = ""
        env.C = "2"
        env.HF_HOME = "/data/hf"
        name = "true"
        working_dir = "/home/ada/data"
    "#]],
    );
    flags(
        "-C ../bob/./x",
        expect![[r#"
        name = "true"
        working_dir = "/home/bob/x"
    "#]],
    );
    flags(
        "--container cuda:12 --volume /data:/data",
        expect![[r#"
        backend = "docker"
        container = {"image":"cuda:12","volumes":{"/data":"/data"}}
        name = "true"
    "#]],
    );
    flags(
        "-t 90 --retry 3 --retry-on failure,oom,exit:75 --signal USR1 --grace 30s",
        expect![[r#"
            name = "true"
            retry.max = 3
            retry.on = ["failure",{"exit_code":75},"out_of_memory"]
            stop.signal = 10
            time_limit = "5400s"
        "#]],
    );
    flags(
        "-t 1-12:00 --signal sigint --lost-after 5m",
        expect![[r#"
        lost_after = {"after":"300s"}
        name = "true"
        stop.signal = 2
        time_limit = "129600s"
    "#]],
    );
    flags(
        "--lost-after keep",
        expect![[r#"
        lost_after = "keep"
        name = "true"
    "#]],
    );
    flags(
        "--on-disconnect stop",
        expect![[r#"
        lost_after = {"after":"20s"}
        name = "true"
    "#]],
    );
    flags("--volume /data:/data", expect!["--volume: is for containers, but no image is named"]);
    flags("--volume data", expect!["line: --volume: `data` is not HOST-PATH:CONTAINER-PATH"]);
    flags(
        "--container cuda --volume data:/data",
        expect!["--volume: `data` is not an absolute path"],
    );
    flags("-e NOT_SET", expect!["--env: `NOT_SET` is not set here; give it a value (NOT_SET=…)"]);
    flags("-e =1", expect!["--env: `=1` has no name before its `=`"]);
    flags("-e 'A B=1'", expect![[r#"--env: the name "A B" has ' ' in it"#]]);
    flags(
        "--export ALL",
        expect![
            "--export: `ALL` would carry every secret of this shell along; name what the job needs"
        ],
    );
    flags("--retry 1000", expect!["--retry: is 1000; at most 100"]);
    flags(
        "--retry-on exit:0",
        expect!["line: --retry-on: `0` in `exit:0` is not an exit code of 1 to 255"],
    );
    flags(
        "--retry-on never",
        expect![
            "line: --retry-on: `never` is not a cause to retry: failure, signal, oom, timeout, start-failed or exit:CODE"
        ],
    );
    flags("-t 0", expect!["--time: must be longer than 0"]);
    flags("--lost-after 0", expect!["--lost-after: must be at least 1s"]);
}

/// Every key of the original DRIGS, with its aliases.
#[test]
fn files_of_the_original() {
    file(
        "\
name: bert
resources:
  gpus: 2
  gpu_memory: 16GB
  cpus: 8
  memory: 32GB
  topology_aware: true
  min_compute_capability: 8.0
execution:
  backend: PYTORCH
  entrypoint: python train.py --name 'a b'
  args: [--lr, 1e-3, --amp, yes]
  env: {OMP: 08, DEBUG: true, NAME: \"x y\", E: 1e3}
  working_dir: /work
distribution:
  mode: ddp
  world_size: 2
  master_addr: 10.0.0.1
  master_port: 29500
runtime:
  container: nvcr.io/nvidia/pytorch:24.01
  volumes: {/data: /mnt}
checkpoint:
  enabled: true
  interval: 60
  checkpoint_dir: /ckpt
",
        expect![[r#"
            backend = "distributed"
            checkpoint = {"dir":"/ckpt","interval":"60s"}
            command = ["python","train.py","--name","a b","--lr","1e-3","--amp","yes"]
            container = {"image":"nvcr.io/nvidia/pytorch:24.01","volumes":{"/data":"/mnt"}}
            distribution = {"master_addr":"10.0.0.1","master_port":29500,"mode":"ddp","world_size":2}
            env.DEBUG = "true"
            env.E = "1e3"
            env.NAME = "x y"
            env.OMP = "08"
            name = "bert"
            request.cpus = 8
            request.gpus.count = 2
            request.gpus.memory = 17179869184
            request.gpus.min_compute_capability = "8.0"
            request.gpus.topology_aware = true
            request.memory = 34359738368
            working_dir = "/work"
        "#]],
    );
    file(
        r#"{
  "name": "bert",
  "resources": {"gpus": 1, "gpu_memory_bytes": 17179869184, "memory_bytes": 1024, "topology_aware": false},
  "execution": {"entrypoint": ["python", "train.py"], "working_dir": null},
  "distribution": {"mode": "single", "world_size": 1},
  "runtime": {"container_image": "cuda", "volumes": {}},
  "checkpoint": {"enabled": false, "interval_seconds": 300}
}"#,
        expect![[r#"
            backend = "docker"
            command = ["python","train.py"]
            container = {"image":"cuda","volumes":{}}
            name = "bert"
            request.gpus.count = 1
            request.gpus.memory = 17179869184
            request.memory = 1024
        "#]],
    );
    file(
        "execution: {entrypoint: ls}\nresources: {gpus: 0, gpu_memory_bytes: 0, memory_bytes: 0}",
        expect![[r#"
            command = ["ls"]
            name = "ls"
        "#]],
    );
}

#[test]
fn files_with_the_newer_keys() {
    file(
        "\
execution: {entrypoint: [./run]}
queue: night
priority: 3
nodes: 2
gpus_per_node: 4
gpu: A100:80GB
labels: {zone: a}
time_limit: 4h
retry: {max: 2, on: [oom, exit:75]}
stop: {signal: USR1, grace: 1m}
array: 0-9%2
depends_on: [12, afterany:13]
begin: 2026-02-01
hold: true
lost_after: keep
",
        expect![[r#"
            array = {"indices":"0-9","max_running":2}
            begin = "2026-02-01T00:00:00.000Z"
            command = ["./run"]
            dependencies = [{"job":12,"kind":"afterok"},{"job":13,"kind":"afterany"}]
            held = true
            labels.zone = "a"
            layout = {"nodes":2}
            lost_after = "keep"
            name = "run"
            priority = 3
            queue = "night"
            request.gpus.count = 4
            request.gpus.memory = 85899345920
            request.gpus.model = "A100"
            retry.max = 2
            retry.on = [{"exit_code":75},"out_of_memory"]
            stop.grace = "60s"
            stop.signal = 10
            time_limit = "14400s"
        "#]],
    );
    file(
        "execution: {entrypoint: ls}\nretry: 3\narray: 5\ndepends_on: 7",
        expect![[r#"
        array = {"indices":"5","max_running":null}
        command = ["ls"]
        dependencies = [{"job":7,"kind":"afterok"}]
        name = "ls"
        retry.max = 3
    "#]],
    );
    file(
        "execution: {entrypoint: ls}\non_disconnect: stop\ngpu: T4\ngpu_sharing: false",
        expect![[r#"
            command = ["ls"]
            lost_after = {"after":"20s"}
            name = "ls"
            request.gpus.count = 1
            request.gpus.model = "T4"
        "#]],
    );
}
