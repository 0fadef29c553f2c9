//! Runs a job as plain processes of this machine.

use std::{collections::BTreeMap, env};

use super::{Rank, Work};
use crate::worker::{
    attempt_dir::{Held, Launch},
    strays::NONCE,
};

/// What a job may see of the agent's own environment, beside `LC_*`. Everything else stays behind: secrets, what would
/// change how programs load (`LD_PRELOAD`, `PYTHONHOME`), and what an outer scheduler or launcher has set
/// (`CUDA_*`, `NCCL_*`, `SLURM_*`, `RANK`, …).
const INHERITED: [&str; 9] =
    ["PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TZ", "TERM", "TMPDIR"];
const UMASK: u32 = 0o022;
/// Where the client stood. A job that names no working directory starts there, where that exists.
const SUBMIT_DIR: &str = "DRIGS_SUBMIT_DIR";

/// What the shim is to do for `work`, with the agent's own environment and a nonce made now.
pub fn launch(work: &Work) -> Launch {
    let nonce = uuid::Uuid::new_v4().simple().to_string();
    launch_with(work, env::vars_os().filter_map(to_utf8), nonce)
}

fn to_utf8((name, value): (std::ffi::OsString, std::ffi::OsString)) -> Option<(String, String)> {
    Some((name.into_string().ok()?, value.into_string().ok()?))
}

fn launch_with(
    work: &Work,
    inherited: impl Iterator<Item = (String, String)>,
    nonce: String,
) -> Launch {
    let env = environment(work, inherited, &nonce);
    let home = || env.get("HOME").map_or("/", String::as_str).to_owned();
    let submitted_from = work.env.get(SUBMIT_DIR).filter(|_| work.working_dir.is_none());
    Launch {
        attempt: work.attempt,
        nonce,
        argv: work.argv.clone(),
        working_dir: work.working_dir.clone().unwrap_or_else(home),
        preferred_dir: submitted_from.cloned(),
        env,
        umask: UMASK,
        time_limit: work.limits.time,
        lost_after: work.limits.lost_after,
        stop_signal: work.limits.stop_signal,
        grace: work.limits.grace,
        lost_grace: work.limits.lost_grace,
        held: Held { epoch: work.epoch, cpus: work.cpus, memory: work.memory },
        log_limit: work.limits.log.0,
    }
}

/// The whole environment of a job. Pure, and in this order: later ones win.
fn environment(
    work: &Work,
    inherited: impl Iterator<Item = (String, String)>,
    nonce: &str,
) -> BTreeMap<String, String> {
    let mut env: BTreeMap<String, String> =
        inherited.filter(|(name, _)| may_be_inherited(name)).collect();
    env.insert("OMP_NUM_THREADS".to_owned(), (work.cpus.0 / 1000).max(1).to_string());
    let is_own = |name: &str| !name.starts_with("DRIGS_") || name == SUBMIT_DIR;
    let own = work.env.iter().filter(|(name, _)| is_own(name));
    env.extend(own.map(|(name, value)| (name.clone(), value.clone())));
    env.extend(identity(work, nonce));
    env.extend(gpus(&work.gpus));
    env.extend(work.rank.iter().flat_map(rank));
    env
}

fn may_be_inherited(name: &str) -> bool {
    INHERITED.contains(&name) || name.starts_with("LC_")
}

fn identity(work: &Work, nonce: &str) -> [(String, String); 7] {
    let attempt = work.attempt;
    [
        ("DRIGS_JOB_ID", attempt.task.job.to_string()),
        ("DRIGS_TASK_ID", attempt.task.index.to_string()),
        ("DRIGS_ATTEMPT", attempt.number.to_string()),
        ("DRIGS_ATTEMPT_ID", attempt.to_string()),
        // An attempt holds one allocation, which goes by its name.
        ("DRIGS_ALLOCATION_ID", attempt.to_string()),
        ("DRIGS_WORKER_ID", work.worker.clone()),
        (NONCE, nonce.to_owned()),
    ]
    .map(named)
}

/// Empty means none to CUDA; unset would mean all. The container runtime's word for none is `void`.
fn gpus(uuids: &[String]) -> [(String, String); 3] {
    let list = uuids.join(",");
    let for_containers = if uuids.is_empty() { "void".to_owned() } else { list.clone() };
    [
        ("CUDA_DEVICE_ORDER", "PCI_BUS_ID".to_owned()),
        ("CUDA_VISIBLE_DEVICES", list),
        ("NVIDIA_VISIBLE_DEVICES", for_containers),
    ]
    .map(named)
}

fn rank(rank: &Rank) -> [(String, String); 8] {
    [
        ("RANK", rank.rank.to_string()),
        ("LOCAL_RANK", rank.local_rank.to_string()),
        ("WORLD_SIZE", rank.world_size.to_string()),
        ("LOCAL_WORLD_SIZE", rank.local_world_size.to_string()),
        ("GROUP_RANK", rank.group_rank.to_string()),
        ("MASTER_ADDR", rank.master_addr.clone()),
        ("MASTER_PORT", rank.master_port.to_string()),
        ("TORCHELASTIC_RUN_ID", rank.run_id.clone()),
    ]
    .map(named)
}

fn named((name, value): (&str, String)) -> (String, String) {
    (name.to_owned(), value)
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;
    use crate::{
        model::{AttemptId, Bytes, Epoch, JobId, MilliCpus, Millis, TaskId},
        worker::driver::Limits,
    };

    fn work() -> Work {
        Work {
            attempt: AttemptId { task: TaskId { job: JobId(12), index: 3 }, number: 1 },
            epoch: Epoch(1),
            worker: "w7".to_owned(),
            argv: vec!["python".to_owned(), "train.py".to_owned()],
            env: BTreeMap::new(),
            working_dir: None,
            gpus: Vec::new(),
            cpus: MilliCpus(2500),
            memory: Bytes::from_gib(1),
            limits: Limits {
                time: None,
                lost_after: Some(Millis::from_hours(1)),
                stop_signal: 15,
                grace: Millis::from_secs(30),
                lost_grace: Millis::from_secs(5),
                log: Limits::DEFAULT_LOG,
            },
            rank: None,
        }
    }

    fn check(work: &Work, inherited: &[(&str, &str)], expected: Expect) {
        let inherited = inherited.iter().map(|variable| named((variable.0, variable.1.to_owned())));
        let launch = launch_with(work, inherited, "n0nce".to_owned());
        let mut text = format!("in {}\n", launch.working_dir);
        for (name, value) in &launch.env {
            text.push_str(&format!("{name}={value}\n"));
        }
        expected.assert_eq(&text);
    }

    #[test]
    fn only_harmless_variables_of_the_agent_are_passed_on() {
        let agents = [
            ("PATH", "/bin"),
            ("HOME", "/home/ada"),
            ("LANG", "C.UTF-8"),
            ("LC_TIME", "de_DE.UTF-8"),
            ("LD_PRELOAD", "/tmp/evil.so"),
            ("PYTHONHOME", "/opt/python"),
            ("DRIGS_TOKEN", "secret"),
            ("CUDA_VISIBLE_DEVICES", "0,1"),
            ("NCCL_DEBUG", "INFO"),
            ("SLURM_JOB_ID", "1"),
            ("RANK", "4"),
            ("MASTER_ADDR", "elsewhere"),
            ("TORCHELASTIC_RUN_ID", "outer"),
        ];
        check(
            &work(),
            &agents,
            expect![[r#"
            in /home/ada
            CUDA_DEVICE_ORDER=PCI_BUS_ID
            CUDA_VISIBLE_DEVICES=
            DRIGS_ALLOCATION_ID=12.3.1
            DRIGS_ATTEMPT=1
            DRIGS_ATTEMPT_ID=12.3.1
            DRIGS_ATTEMPT_NONCE=n0nce
            DRIGS_JOB_ID=12
            DRIGS_TASK_ID=3
            DRIGS_WORKER_ID=w7
            HOME=/home/ada
            LANG=C.UTF-8
            LC_TIME=de_DE.UTF-8
            NVIDIA_VISIBLE_DEVICES=void
            OMP_NUM_THREADS=2
            PATH=/bin
        "#]],
        );
    }

    #[test]
    fn a_users_variables_win_over_the_agents_but_not_over_drigs() {
        let own = [
            ("PATH", "/opt/bin"),
            ("OMP_NUM_THREADS", "1"),
            ("DRIGS_JOB_ID", "99"),
            ("DRIGS_ANYTHING", "x"),
            ("CUDA_VISIBLE_DEVICES", "all"),
            ("NCCL_DEBUG", "WARN"),
        ];
        let work = Work {
            env: own.into_iter().map(|(name, value)| named((name, value.to_owned()))).collect(),
            gpus: vec!["GPU-a".to_owned(), "GPU-b".to_owned()],
            working_dir: Some("/data".to_owned()),
            ..work()
        };
        check(
            &work,
            &[("PATH", "/bin"), ("HOME", "/home/ada")],
            expect![[r#"
            in /data
            CUDA_DEVICE_ORDER=PCI_BUS_ID
            CUDA_VISIBLE_DEVICES=GPU-a,GPU-b
            DRIGS_ALLOCATION_ID=12.3.1
            DRIGS_ATTEMPT=1
            DRIGS_ATTEMPT_ID=12.3.1
            DRIGS_ATTEMPT_NONCE=n0nce
            DRIGS_JOB_ID=12
            DRIGS_TASK_ID=3
            DRIGS_WORKER_ID=w7
            HOME=/home/ada
            NCCL_DEBUG=WARN
            NVIDIA_VISIBLE_DEVICES=GPU-a,GPU-b
            OMP_NUM_THREADS=1
            PATH=/opt/bin
        "#]],
        );
    }

    #[test]
    fn a_member_of_a_gang_knows_its_place() {
        let rank = Rank {
            rank: 5,
            local_rank: 1,
            world_size: 8,
            local_world_size: 4,
            group_rank: 1,
            master_addr: "10.0.0.7".to_owned(),
            master_port: 20_001,
            run_id: "12.3.1".to_owned(),
        };
        check(
            &Work { cpus: MilliCpus(500), rank: Some(rank), ..work() },
            &[],
            expect![[r#"
            in /
            CUDA_DEVICE_ORDER=PCI_BUS_ID
            CUDA_VISIBLE_DEVICES=
            DRIGS_ALLOCATION_ID=12.3.1
            DRIGS_ATTEMPT=1
            DRIGS_ATTEMPT_ID=12.3.1
            DRIGS_ATTEMPT_NONCE=n0nce
            DRIGS_JOB_ID=12
            DRIGS_TASK_ID=3
            DRIGS_WORKER_ID=w7
            GROUP_RANK=1
            LOCAL_RANK=1
            LOCAL_WORLD_SIZE=4
            MASTER_ADDR=10.0.0.7
            MASTER_PORT=20001
            NVIDIA_VISIBLE_DEVICES=void
            OMP_NUM_THREADS=1
            RANK=5
            TORCHELASTIC_RUN_ID=12.3.1
            WORLD_SIZE=8
        "#]],
        );
    }
}
