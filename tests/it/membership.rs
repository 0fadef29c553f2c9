//! Controllers that come, go, move and are lost, with real processes.

use drigs::model::{JobId, TaskState};
use drigs::rpc::api::{Api, ClusterView};

use crate::lab::{Lab, alive, exit_code, lines, shell, text, wait_until};

/// What a controller ends with that must not take part.
const IDENTITY: Option<i32> = Some(78);

fn view(lab: &Lab) -> ClusterView {
    lab.wait(lab.client.cluster()).expect("a controller answers")
}

fn voters(lab: &Lab) -> Vec<u64> {
    let members = view(lab).members.into_iter().filter(|member| member.role != "LEARNER");
    members.map(|member| member.id).collect()
}

/// A job that runs until the end of the test, and its main process.
fn long_job(lab: &Lab, name: &str) -> (JobId, u32) {
    let file = lab.dir.path().join(format!("pid-{name}"));
    let job = lab.submit(shell(name, &format!("echo $$ >> '{}'; sleep 600", file.display())));
    wait_until("it runs", || lines(&file).len() == 1);
    lab.wait_for_state(job, TaskState::Running);
    (job, lines(&file)[0].parse().expect("a pid"))
}

#[track_caller]
fn runs_on(lab: &Lab, (job, pid): (JobId, u32)) {
    lab.wait_for_state(job, TaskState::Running);
    assert!(alive(pid), "the process of job {job} lives");
    assert_eq!(lab.task(job, 0).attempt, 1);
}

#[test]
fn the_leader_is_replaced_and_nobody_sees_an_error() {
    let mut lab = Lab::start(&["--workers", "1", "--lease", "4s"]);
    let running = long_job(&lab, "long");
    let old = lab.leader();
    let name = format!("controller-{old}");
    let pid = lab.pid(&name);
    let address = lab.start_controller(4);

    let newcomer = format!("4={address}");
    let mut replacing = lab.begin(&["cluster", "replace", &old.to_string(), &newcomer]);
    let mut submitted = 0;
    while replacing.try_wait().expect("it was started here").is_none() || submitted < 20 {
        lab.submit(shell("meanwhile", "true"));
        submitted += 1;
    }
    let replaced = replacing.wait_with_output().expect("it was started here");
    assert!(replaced.status.success(), "{}", text(&replaced));
    let said = text(&replaced);
    assert!(said.contains("it votes") && said.contains("removed controller"), "{said}");

    let mut expected: Vec<u64> = (1..=4).filter(|id| *id != old).collect();
    expected.sort_unstable();
    assert_eq!(voters(&lab), expected);
    runs_on(&lab, running);

    wait_until("the old one ends by itself", || !alive(pid));
    let why = format!("controller {old} was removed from cluster");
    assert!(lab.log(&name).contains(&why), "{}", lab.log(&name));
    let before = view(&lab);
    assert_eq!(exit_code(lab.spawn(&name, &[])), IDENTITY, "{}", lab.log(&name));
    let after = view(&lab);
    assert_eq!((before.leader, before.term), (after.leader, after.term), "it disturbed the others");

    let again = lab.drigs(&["cluster", "add", &old.to_string(), &lab.address(&name)]);
    assert!(!again.status.success() && text(&again).contains("numbers are not used again"));
}

#[test]
fn what_would_lose_the_quorum_is_refused_in_one_line() {
    let mut lab = Lab::start(&["--workers", "0"]);
    lab.kill("controller-3");
    wait_until("the leader misses it", || {
        let members = view(&lab).members;
        members.iter().any(|member| member.id == 3 && member.reachable == Some(false))
    });
    let refused = |arguments: &[&str], why: &str| {
        let output = lab.drigs(arguments);
        let said = text(&output);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(why) && said.lines().count() == 1, "{said}");
    };
    refused(&["cluster", "remove", "2"], "no majority");
    refused(&["cluster", "add", "4", "127.0.0.1:1"], "can not be let in");
    refused(&["cluster", "remove", "9"], "there is no controller 9");
    lab.done(&["cluster", "remove", "3"]);
    assert_eq!(voters(&lab), [1, 2]);
}

#[test]
fn a_lost_majority_is_recovered_from_and_the_lost_ones_do_no_harm() {
    let mut lab = Lab::start(&["--workers", "2", "--cpus", "4", "--lease", "4s"]);
    let running = [long_job(&lab, "one"), long_job(&lab, "two")];
    let held = lab.submit(drigs::model::JobSpec { held: true, ..shell("held", "true") });
    wait_until("all three have it", || {
        view(&lab).members.iter().all(|member| member.lag == Some(0))
    });
    let cluster = view(&lab).cluster_id;
    for name in ["controller-2", "controller-3", "controller-1"] {
        lab.kill(name);
    }
    let dir = lab.place().join("controller-1").display().to_string();
    let refused = lab.drigs(&["cluster", "recover", "--data-dir", &dir]);
    assert_eq!(refused.status.code(), Some(2), "{}", text(&refused));
    assert!(text(&refused).contains(&format!("--confirm {cluster}")), "{}", text(&refused));
    let said = lab.done(&["cluster", "recover", "--data-dir", &dir, "--confirm", &cluster]);
    assert!(said.contains("generation 2") && said.contains("can not know"), "{said}");

    lab.restart("controller-1");
    wait_until("it leads alone", || view(&lab).leader == Some(1) && voters(&lab) == [1]);
    for job in running {
        runs_on(&lab, job);
    }
    assert_eq!(lab.job(held).job.status, TaskState::Pending);
    let later = lab.submit(shell("later", "true"));
    assert!(later.0 > 1_000_000, "job {later} might be another one's number");
    lab.wait_for_state(later, TaskState::Completed);
    lab.done(&["release", &held.to_string()]);
    lab.wait_for_state(held, TaskState::Completed);

    for id in [4, 5] {
        let address = lab.start_controller(id);
        lab.done(&["cluster", "add", &id.to_string(), &address]);
    }
    assert_eq!(voters(&lab), [1, 4, 5]);
    let before = view(&lab);
    // Both at one time: they are a majority of what they remember.
    let zombies = ["controller-2", "controller-3"].map(|name| (name, lab.spawn(name, &[])));
    for (name, zombie) in zombies {
        assert_eq!(exit_code(zombie), IDENTITY, "{name}: {}", lab.log(name));
        assert!(lab.log(name).contains("was recovered without controller"), "{}", lab.log(name));
    }
    let after = view(&lab);
    assert_eq!((before.leader, before.term), (after.leader, after.term), "they caused an election");
    for job in running {
        runs_on(&lab, job);
    }
}
