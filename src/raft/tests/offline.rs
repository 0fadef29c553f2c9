//! Backups, restorations and recoveries.

use std::{fs, path::Path};

use openraft::EntryPayload;

use crate::raft::{
    Fatal, Raft, offline,
    tests::harness::{Cluster, eventually},
    types::{Encoded, Entry},
    wire,
};
use crate::rpc::offline::RestoreRequest;
use crate::store::{DataDir, LogDb, Recovery};

async fn save(raft: &Raft, file: &Path) {
    let (mut chunks, mut bytes) = (raft.backup(), Vec::new());
    while let Some(chunk) = chunks.recv().await {
        bytes.extend_from_slice(&chunk.unwrap());
    }
    fs::write(file, bytes).unwrap();
}

fn request(file: &Path, into: &Cluster) -> RestoreRequest {
    RestoreRequest {
        file: file.to_owned(),
        data_dir: into.path(1),
        id: 1,
        address: into.peers[&1].clone(),
        adopt_workers: true,
    }
}

#[tokio::test]
async fn a_restored_cluster_is_another_one_with_the_same_jobs() {
    let cluster = Cluster::started(3).await;
    let jobs = cluster.submit(20).await;
    cluster.agree().await;
    let follower = cluster.follower().await;
    let file = cluster.dir.path().join("backup");
    save(cluster.raft(follower), &file).await;
    let view = offline::inspect(&file).unwrap();
    assert_eq!((view.jobs_submitted, view.controller), (20, follower));
    assert_eq!(view.state_hash, cluster.raft(follower).status().state_hash);

    let mut other = Cluster::new(1);
    let restored = offline::restore(&request(&file, &other)).unwrap();
    let again = offline::restore(&request(&file, &other)).unwrap_err().to_string();
    assert!(again.contains("is not empty"), "{again}");
    other.start(1).await;
    let later = other.submit(1).await;
    let raft = other.raft(1);
    assert_eq!(raft.cluster_id(), restored.cluster_id);
    assert!(raft.adopts(&view.cluster_id) && !raft.adopts("another"));
    assert!(raft.status().term > 1 << 40, "an earlier leader could have had this term");
    raft.read(|state| assert!(jobs.iter().all(|job| state.jobs.contains(job))));
    assert!(later[0].0 > 1_000_000, "job {} might be another one's number", later[0]);

    let address = other.reserve(2);
    other.peers.insert(2, address.clone());
    other.start(2).await;
    other.add(2, &address).await;
    other.agree().await;
    other.stop(1).await;
    other.start(1).await;
    other.submit(3).await;
    other.agree().await;
}

#[tokio::test]
async fn no_damaged_backup_passes() {
    let cluster = Cluster::started(1).await;
    cluster.submit(3).await;
    let file = cluster.dir.path().join("backup");
    save(cluster.raft(1), &file).await;
    let sound = fs::read(&file).unwrap();
    offline::inspect(&file).unwrap();
    for place in (0..sound.len()).step_by(97).chain(sound.len() - 64..sound.len()) {
        let mut bytes = sound.clone();
        bytes[place] ^= 0x10;
        fs::write(&file, bytes).unwrap();
        let why = offline::inspect(&file).unwrap_err().to_string();
        assert!(why.contains("is not a sound backup"), "byte {place}: {why}");
    }
    for length in [0, 5, 40, sound.len() / 2, sound.len() - 1] {
        fs::write(&file, &sound[..length]).unwrap();
        let why = offline::inspect(&file).unwrap_err().to_string();
        assert!(why.contains("is not a sound backup"), "cut to {length}: {why}");
    }
    fs::write(&file, [&sound[..], b"x"].concat()).unwrap();
    assert!(offline::inspect(&file).is_err());
    let mut other = Cluster::new(1);
    assert!(offline::restore(&request(&file, &other)).is_err());
    assert!(!other.path(1).exists(), "nothing is left of it");
    fs::write(&file, &sound).unwrap();
    offline::restore(&request(&file, &other)).unwrap();
    other.start(1).await;
    other.leader().await;
}

#[tokio::test]
async fn one_that_is_left_goes_on_and_the_others_are_told() {
    let mut cluster = Cluster::started(3).await;
    let jobs = cluster.submit(10).await;
    cluster.agree().await;
    let old = cluster.raft(1).cluster_id();
    cluster.stop(1).await;
    // The other two go on, which nobody knows of.
    cluster.leader().await;
    let term = cluster.raft(2).status().term;

    let survivor = offline::survey(&cluster.path(1)).unwrap();
    assert_eq!((survivor.controller, survivor.others.len()), (1, 2));
    assert!(survivor.last_written_at.is_some());
    let wrong = offline::recover(&cluster.path(1), "another").unwrap_err().to_string();
    assert!(wrong.contains(&old), "{wrong}");
    let recovered = offline::recover(&cluster.path(1), &old).unwrap();
    assert_eq!((recovered.generation, &recovered.survivor), (2, &survivor));

    cluster.start(1).await;
    for zombie in [2, 3] {
        cluster.dismissed(zombie, "was recovered without controller").await;
        cluster.stop(zombie).await;
        let again = cluster.try_start(zombie).await.unwrap_err().to_string();
        assert!(again.contains("was recovered without controller"), "{again}");
    }
    assert_eq!(cluster.leader().await, 1);
    let raft = cluster.raft(1);
    assert_eq!(raft.cluster_id(), recovered.cluster_id);
    assert!(raft.status().term > term.max(1 << 40));
    raft.read(|state| assert!(jobs.iter().all(|job| state.jobs.contains(job))));
    assert_eq!(raft.status().members.len(), 1);

    for id in [4, 5] {
        let address = cluster.reserve(id);
        cluster.peers.insert(id, address.clone());
        cluster.start(id).await;
        cluster.add(id, &address).await;
    }
    cluster.submit(5).await;
    cluster.agree().await;
}

#[tokio::test]
async fn one_that_was_left_behind_does_not_even_start() {
    let mut cluster = Cluster::started(3).await;
    cluster.submit(3).await;
    let old = cluster.raft(1).cluster_id();
    for id in 1..=3 {
        cluster.stop(id).await;
    }
    offline::recover(&cluster.path(1), &old).unwrap();
    cluster.start(1).await;
    cluster.leader().await;
    let term = cluster.raft(1).status().term;
    for zombie in [2, 3] {
        let refused = cluster.try_start(zombie).await.unwrap_err().to_string();
        assert!(refused.contains("was recovered without controller"), "{refused}");
    }
    assert_eq!(cluster.raft(1).status().term, term);
}

#[tokio::test]
async fn a_recovery_that_broke_off_is_gone_on_with() {
    let mut cluster = Cluster::started(1).await;
    let jobs = cluster.submit(3).await;
    let old = cluster.raft(1).cluster_id();
    cluster.stop(1).await;
    let before = offline::survey(&cluster.path(1)).unwrap();
    let begun = Recovery { cluster_id: format!("{old}-g2-00000001"), term: 1 << 40 };
    let dir = DataDir::open(&cluster.path(1), 1).unwrap();
    dir.begin_recovery(&begun).unwrap();
    drop(dir);
    let refused = cluster.try_start(1).await.unwrap_err().to_string();
    assert!(refused.contains("cluster recover"), "{refused}");
    let survey = offline::survey(&cluster.path(1)).unwrap();
    assert_eq!(survey.last_index, before.last_index);
    assert!(survey.begun);
    let recovered = offline::recover(&cluster.path(1), &old).unwrap();
    assert_eq!(recovered.cluster_id, begun.cluster_id);
    cluster.start(1).await;
    cluster.submit(1).await;
    cluster.raft(1).read(|state| assert!(jobs.iter().all(|job| state.jobs.contains(job))));
    cluster.stop(1).await;
    // And once more: a generation follows the other.
    let third = offline::recover(&cluster.path(1), &begun.cluster_id).unwrap();
    assert_eq!(third.generation, 3);
    cluster.start(1).await;
    cluster.submit(1).await;
    assert!(cluster.raft(1).status().term > 2 << 40);
}

#[tokio::test]
async fn backups_are_kept_by_count() {
    let cluster = Cluster::started(1).await;
    let dir = cluster.dir.path().join("snapshots");
    let raft = cluster.raft(1);
    let mut last = None;
    for _ in 0..5 {
        cluster.submit(1).await;
        eventually("it is stored", || raft.status().applied == raft.status().last_log).await;
        last = raft.keep_backup(dir.clone(), 2).await.unwrap();
    }
    assert_eq!(raft.keep_backup(dir.clone(), 2).await.unwrap(), None, "nothing has changed");
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 2);
    offline::inspect(&last.unwrap()).unwrap();
}

#[tokio::test]
async fn what_a_newer_version_wrote_stops_the_replica_and_is_never_skipped() {
    let mut cluster = Cluster::started(1).await;
    cluster.submit(3).await;
    cluster.stop(1).await;
    let survivor = offline::survey(&cluster.path(1)).unwrap();
    // A command of a kind that nobody knows, and a submission behind it.
    let unknown = EntryPayload::Normal(Encoded(vec![0x12, 0x03, 0xBA, 0x3E, 0x00].into()));
    let behind = crate::rpc::convert::encode_commands(&[crate::raft::tests::harness::submission()]);
    let behind = EntryPayload::Normal(Encoded(behind.into()));
    let entries = [unknown, behind].into_iter().zip(survivor.last_index + 1..);
    let records = entries.map(|(payload, index)| {
        let log_id = wire::log_id(survivor.last_term, index);
        wire::record(&Entry { log_id, payload })
    });
    let log = cluster.path(1).join("log.db");
    let (log, _) = LogDb::open(&log, 1 << 20, std::sync::Arc::new(|_: &_| ())).unwrap();
    log.append(records.collect(), Box::new(|written| written.unwrap()));
    log.close();

    cluster.start(1).await;
    let fatals = cluster.nodes[&1].fatals.clone();
    eventually("it stops", || !fatals.lock().unwrap().is_empty()).await;
    let fatal = fatals.lock().unwrap()[0].clone();
    assert_eq!(fatal.exit_code, Fatal::IDENTITY, "{}", fatal.message);
    let entry = format!("entry {} of the log is of a newer DRIGS", survivor.last_index + 1);
    assert!(fatal.message.contains(&entry), "{}", fatal.message);
    cluster.raft(1).read(|state| assert_eq!(state.jobs.len(), 3, "it went on beyond it"));
}
