//! Who may take part, and who may not.

use std::time::Duration;

use crate::raft::{
    Fatal, MemberError, OpenError,
    tests::harness::{Cluster, eventually, wipe},
};
use crate::store;

#[tokio::test]
async fn a_controller_is_added_and_another_removed() {
    let mut cluster = Cluster::started(3).await;
    cluster.submit(10).await;
    let address = cluster.reserve(4);
    cluster.peers.insert(4, address.clone());
    cluster.start(4).await;
    let leader = cluster.leader().await;
    cluster.add(4, &address).await;
    cluster.agree().await;
    assert_eq!(cluster.raft(4).cluster_id(), cluster.raft(leader).cluster_id());
    let leader = cluster.leader().await;
    cluster.raft(leader).add_learner(4, address).await.expect("asked again, it stays as it is");

    let gone = cluster.follower().await;
    cluster.raft(leader).remove_member(gone).await.unwrap();
    cluster.raft(leader).remove_member(gone).await.expect("asked again, it stays as it is");
    cluster.dismissed(gone, "was removed").await;
    cluster.stop(gone).await;
    cluster.submit(10).await;
    let leader = cluster.leader().await;
    let members = cluster.raft(leader).status().members;
    assert!(members.iter().all(|member| member.id != gone && member.voter));
    assert_eq!(members.len(), 3);
    cluster.agree().await;
}

#[tokio::test]
async fn who_was_removed_stays_away_and_its_number_too() {
    let mut cluster = Cluster::started(3).await;
    cluster.submit(5).await;
    let gone = cluster.follower().await;
    // It hears nothing of its removal.
    cluster.stop(gone).await;
    let leader = cluster.leader().await;
    eventually("the leader misses it", || {
        let members = cluster.raft(leader).status().members;
        members.iter().any(|member| member.id == gone && member.reachable == Some(false))
    })
    .await;
    cluster.raft(leader).remove_member(gone).await.unwrap();
    let term = cluster.raft(leader).status().term;
    for _ in 0..2 {
        let refused = cluster.try_start(gone).await.unwrap_err().to_string();
        assert!(refused.contains(&format!("controller {gone} was removed")), "{refused}");
    }
    let now = cluster.raft(leader).status();
    assert_eq!((now.leader, now.term), (Some(leader), term), "it disturbed the others");

    wipe(&cluster.path(gone));
    cluster.start(gone).await;
    cluster.dismissed(gone, "numbers are not used again").await;
    let address = cluster.peers[&gone].clone();
    let refused = cluster.raft(leader).add_learner(gone, address).await.unwrap_err().to_string();
    assert!(refused.contains("numbers are not used again"), "{refused}");
}

#[tokio::test]
async fn one_change_at_a_time_and_none_that_costs_the_quorum() {
    let mut cluster = Cluster::started(1).await;
    let refused = cluster.raft(1).remove_member(1).await.unwrap_err().to_string();
    assert!(refused.contains("only one that votes"), "{refused}");
    let (second, third) = (cluster.reserve(2), cluster.reserve(3));
    cluster.peers.extend([(2, second.clone()), (3, third.clone())]);
    cluster.start(2).await;
    cluster.start(3).await;
    cluster.raft(1).add_learner(2, second.clone()).await.unwrap();
    let refused = cluster.raft(1).add_learner(3, third.clone()).await.unwrap_err().to_string();
    assert!(refused.contains("one at a time"), "{refused}");
    let refused = cluster.raft(1).add_learner(2, third.clone()).await.unwrap_err().to_string();
    assert!(refused.contains("cluster move"), "{refused}");
    cluster.add(2, &second).await;
    cluster.add(3, &third).await;
    cluster.agree().await;
}

#[tokio::test]
async fn a_member_moves_to_another_address() {
    let mut cluster = Cluster::started(3).await;
    cluster.submit(5).await;
    let moves = cluster.follower().await;
    cluster.stop(moves).await;
    let old = cluster.peers[&moves].clone();
    let new = cluster.reserve(moves);
    cluster.peers.insert(moves, new.clone());
    let leader = cluster.leader().await;
    let refused = cluster.raft(leader).move_member(moves, new.clone()).await.unwrap_err();
    assert!(refused.to_string().contains("is not at"), "{refused}");
    cluster.start(moves).await;
    let other = cluster.peers[&leader].clone();
    let refused = cluster.raft(leader).move_member(moves, other).await.unwrap_err();
    assert!(refused.to_string().contains("looks for controller"), "{refused}");
    cluster.raft(leader).move_member(moves, new.clone()).await.unwrap();
    cluster.submit(5).await;
    cluster.agree().await;
    let addresses = cluster.raft(moves).member_addresses();
    assert!(addresses.contains(&new) && !addresses.contains(&old), "{addresses:?}");
}

#[tokio::test]
async fn a_leader_that_is_to_go_hands_over_first() {
    let cluster = Cluster::started(3).await;
    let old = cluster.leader().await;
    let answer = cluster.raft(old).remove_member(old).await;
    assert!(matches!(answer, Err(MemberError::NotLeader(_))), "{answer:?}");
    let new = cluster.leader().await;
    assert_ne!(old, new);
    cluster.raft(new).remove_member(old).await.unwrap();
    assert_eq!(cluster.raft(new).status().members.len(), 2);
}

#[tokio::test]
async fn no_quorum_is_given_away() {
    let mut cluster = Cluster::started(3).await;
    let down = cluster.follower().await;
    cluster.stop(down).await;
    let leader = cluster.leader().await;
    let other = *cluster.nodes.keys().find(|id| **id != leader).unwrap();
    eventually("the leader misses it", || {
        let members = cluster.raft(leader).status().members;
        members.iter().any(|member| member.id == down && member.reachable == Some(false))
    })
    .await;
    let answer = cluster.raft(leader).remove_member(other).await.unwrap_err().to_string();
    assert!(answer.contains("no majority"), "{answer}");
    cluster.raft(leader).remove_member(down).await.unwrap();
}

#[tokio::test]
async fn a_newcomer_that_is_not_there_or_not_empty_is_refused() {
    let mut cluster = Cluster::started(1).await;
    let nobody = cluster.reserve(7);
    let answer = cluster.raft(1).add_learner(7, nobody).await.unwrap_err().to_string();
    assert!(answer.contains("no answer"), "{answer}");
    let answer = cluster.raft(1).add_learner(7, String::from("not an address")).await;
    assert!(answer.unwrap_err().to_string().contains("is not an address"));

    let other = Cluster::started(1).await;
    let address = other.peers[&1].clone();
    let answer = cluster.raft(1).add_learner(2, address).await.unwrap_err().to_string();
    assert!(answer.contains("this is controller 1"), "{answer}");
}

#[tokio::test]
async fn nobody_founds_a_cluster_before_all_are_there() {
    let mut cluster = Cluster::new(3);
    cluster.start(1).await;
    cluster.start(2).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(cluster.raft(1).cluster_id(), "");
    assert_eq!(cluster.raft(2).cluster_id(), "");
    cluster.start(3).await;
    cluster.submit(1).await;
    cluster.agree().await;
}

#[tokio::test]
async fn a_wiped_member_does_not_come_back_as_itself() {
    let mut cluster = Cluster::started(3).await;
    cluster.submit(5).await;
    // Also the one that once founded the cluster.
    for id in [3, 1] {
        cluster.stop(id).await;
        wipe(&cluster.path(id));
        cluster.start(id).await;
        let fatals = cluster.nodes[&id].fatals.clone();
        eventually("it is told so", || !fatals.lock().unwrap().is_empty()).await;
        let fatal = fatals.lock().unwrap()[0].clone();
        assert_eq!(fatal.exit_code, Fatal::IDENTITY);
        assert!(fatal.message.contains(&format!("drigs cluster remove {id}")), "{}", fatal.message);
        assert_eq!(cluster.raft(id).status().last_log, None, "it took part nevertheless");
        cluster.stop(id).await;
        if id == 3 {
            let leader = cluster.leader().await;
            cluster.raft(leader).remove_member(3).await.unwrap();
        }
    }
}

#[tokio::test]
async fn one_directory_one_process_one_controller() {
    let mut cluster = Cluster::started(1).await;
    let second = cluster.try_start(1).await.unwrap_err();
    let pid = std::process::id().to_string();
    assert!(
        matches!(&second, OpenError::Store(store::Error::Locked { pid: held, .. }) if *held == pid),
        "{second}"
    );
    cluster.stop(1).await;

    let path = cluster.path(1);
    let address = cluster.reserve(2);
    cluster.peers.insert(2, address);
    std::fs::rename(&path, cluster.path(2)).unwrap();
    let foreign = cluster.try_start(2).await.unwrap_err();
    assert!(matches!(
        foreign,
        OpenError::Store(store::Error::OtherNode { found: 1, expected: 2, .. })
    ));
}

#[tokio::test]
async fn settings_that_do_not_fit_are_refused() {
    let mut cluster = Cluster::new(1);
    cluster.tune = |config| config.election_min = config.heartbeat;
    let wrong = cluster.try_start(1).await.unwrap_err().to_string();
    assert!(wrong.contains("at least twice as long"), "{wrong}");
}
