//! Purged logs, snapshots, damage.

use std::{fs, os::unix::fs::FileExt as _};

use crate::raft::{
    Fatal,
    tests::harness::{Cluster, Node, eventually},
};

/// A cluster that makes its state durable, and its log short, every few entries.
async fn short_log() -> Cluster {
    let mut cluster = Cluster::new(3);
    cluster.tune = |config| {
        config.checkpoint_every = 20;
        config.keep_entries = 5;
        config.longest_log = 60;
    };
    for id in 1..=3 {
        cluster.start(id).await;
    }
    cluster.leader().await;
    cluster
}

/// Submits until every living replica's log begins after `index`: any of them may lead next.
async fn purge_beyond(cluster: &Cluster, index: u64) {
    let kept = |node: &Node| node.raft.status().purged.is_none_or(|purged| purged <= index);
    while cluster.nodes.values().any(kept) {
        cluster.submit(50).await;
    }
}

#[tokio::test]
async fn the_log_is_purged_and_replicas_start_again() {
    let mut cluster = short_log().await;
    purge_beyond(&cluster, 10).await;
    cluster.agree().await;
    let before = cluster.raft(1).read(Clone::clone);
    for id in 1..=3 {
        cluster.stop(id).await;
    }
    for id in 1..=3 {
        cluster.start(id).await;
        cluster.raft(id).read(|state| assert!(*state == before));
        eventually("what was purged is known again", || cluster.raft(id).status().purged.is_some())
            .await;
    }
    cluster.submit(5).await;
    cluster.agree().await;
}

#[tokio::test]
async fn a_follower_that_was_away_too_long_is_sent_a_snapshot() {
    let mut cluster = short_log().await;
    let away = cluster.follower().await;
    cluster.submit(5).await;
    let had = cluster.raft(away).status().last_log.unwrap();
    cluster.stop(away).await;
    purge_beyond(&cluster, had + 10).await;
    cluster.start(away).await;
    cluster.agree().await;
    eventually("a snapshot takes the place of its log", || {
        cluster.raft(away).status().purged > Some(had)
    })
    .await;
    assert_eq!(
        fs::read_link(cluster.path(away).join("state.db")).unwrap().as_os_str(),
        "state-2.db"
    );
    assert!(!cluster.path(away).join("state-1.db").exists(), "the old file was left behind");

    // It lives on, and comes back with what it was sent.
    cluster.submit(5).await;
    cluster.stop(away).await;
    cluster.start(away).await;
    cluster.agree().await;
}

#[tokio::test]
async fn a_newcomer_is_sent_what_the_log_no_longer_holds() {
    let mut cluster = short_log().await;
    purge_beyond(&cluster, 10).await;
    let address = cluster.reserve(4);
    cluster.peers.insert(4, address.clone());
    cluster.start(4).await;
    cluster.add(4, &address).await;
    cluster.agree().await;
}

#[tokio::test]
async fn damage_is_named_when_it_is_found() {
    for (file, what) in [("log.db", "log.db is damaged"), ("state-1.db", "state-1.db is damaged")] {
        let mut cluster = Cluster::started(1).await;
        cluster.submit(200).await;
        cluster.stop(1).await;
        let path = cluster.path(1).join(file);
        let length = fs::metadata(&path).unwrap().len();
        let open = fs::OpenOptions::new().write(true).open(&path).unwrap();
        for page in 2..length / 4096 {
            open.write_all_at(&[0xA5; 2048], page * 4096).unwrap();
        }
        let error = cluster.try_start(1).await.unwrap_err().to_string();
        assert!(error.contains(what), "{error}");
        assert!(error.contains("drigs cluster add"), "{error}");
    }
}

#[tokio::test]
async fn a_file_that_is_gone_or_nothing_of_the_kind_is_named() {
    for file in ["log.db", "state-1.db"] {
        let mut cluster = Cluster::started(1).await;
        cluster.stop(1).await;
        fs::write(cluster.path(1).join(file), "nothing of the kind, but long enough to be read")
            .unwrap();
        let error = cluster.try_start(1).await.unwrap_err().to_string();
        assert!(error.contains("is damaged"), "{error}");
        fs::remove_file(cluster.path(1).join(file)).unwrap();
        let error = cluster.try_start(1).await.unwrap_err().to_string();
        assert!(error.contains("it is gone"), "{error}");
    }
}

#[tokio::test]
async fn a_disk_that_fails_ends_the_replica() {
    let cluster = Cluster::started(1).await;
    cluster.submit(1).await;
    // As if the file were pulled away under it: SQLite can not begin a transaction any more.
    crate::store::sabotage(&cluster.path(1).join("log.db"));
    let proposed = cluster.raft(1).propose(vec![super::harness::submission()]).await;
    assert!(proposed.is_err());
    let fatals = cluster.nodes[&1].fatals.clone();
    eventually("the process is told to end", || !fatals.lock().unwrap().is_empty()).await;
    let fatal = fatals.lock().unwrap()[0].clone();
    assert_eq!(fatal.exit_code, Fatal::STORAGE);
    assert!(fatal.message.contains("log.db"), "{}", fatal.message);
    assert_eq!(fatals.lock().unwrap().len(), 1, "one alarm is enough");
}
