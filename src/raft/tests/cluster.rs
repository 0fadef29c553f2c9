//! Three replicas and what happens to them.

use std::time::Duration;

use crate::raft::{
    ProposeError,
    failure_detector::FailureDetector,
    tests::harness::{Cluster, eventually, submission, submit},
};

#[tokio::test]
async fn one_controller_is_a_cluster() {
    let mut cluster = Cluster::started(1).await;
    cluster.submit(3).await;
    cluster.stop(1).await;
    cluster.start(1).await;
    let leader = cluster.leader().await;
    cluster.raft(leader).read(|state| assert_eq!(state.jobs.len(), 3));
    assert_eq!(cluster.raft(1).quorum_age(), Some(Duration::ZERO));
}

#[tokio::test]
async fn what_is_acknowledged_is_on_all() {
    let cluster = Cluster::started(3).await;
    let ids = cluster.submit(20).await;
    assert_eq!(ids.len(), 20);
    cluster.agree().await;
    let leader = cluster.leader().await;
    let status = cluster.raft(leader).status();
    assert_eq!(status.members.len(), 3);
    assert!(status.members.iter().all(|member| member.voter && member.reachable == Some(true)));
    assert!(cluster.raft(leader).quorum_age().unwrap() < Duration::from_secs(1));
    let follower = cluster.follower().await;
    assert_eq!(cluster.raft(follower).cluster_id(), status.cluster_id);
    assert_eq!(
        cluster.raft(follower).propose(vec![submission()]).await,
        Err(ProposeError::NotLeader { leader: Some(leader) })
    );
    assert!(cluster.raft(follower).linearize().await.is_err());
}

#[tokio::test]
async fn many_proposers_share_entries_and_get_their_own_outcomes() {
    let cluster = Cluster::started(3).await;
    let raft = cluster.raft(cluster.leader().await);
    let before = raft.status().last_log.unwrap();
    let proposers = (0..500).map(|_| {
        let raft = raft.clone();
        tokio::spawn(async move { submit(&raft).await })
    });
    let mut ids = Vec::new();
    for proposer in proposers.collect::<Vec<_>>() {
        ids.push(proposer.await.unwrap());
    }
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 500, "two proposers were given the same job");
    let entries = raft.status().last_log.unwrap() - before;
    assert!(entries < 250, "{entries} entries for 500 proposals");
    cluster.agree().await;
}

#[tokio::test]
async fn a_lost_leader_is_replaced_and_nothing_acknowledged_is_lost() {
    let mut cluster = Cluster::started(3).await;
    cluster.submit(10).await;
    let old = cluster.leader().await;
    cluster.stop(old).await;
    let new = cluster.leader().await;
    assert_ne!(old, new);
    cluster.submit(10).await;
    cluster.raft(new).read(|state| assert_eq!(state.jobs.len(), 20));
    cluster.start(old).await;
    cluster.agree().await;
}

#[tokio::test]
async fn all_stopped_and_started_again() {
    let mut cluster = Cluster::started(3).await;
    cluster.submit(30).await;
    cluster.agree().await;
    let before = cluster.raft(1).read(Clone::clone);
    for id in 1..=3 {
        cluster.stop(id).await;
    }
    for id in 1..=3 {
        cluster.start(id).await;
        cluster.raft(id).read(|state| assert!(*state == before, "{id} came back as another"));
    }
    cluster.submit(1).await;
    cluster.agree().await;
}

#[tokio::test]
async fn leadership_is_handed_over_at_once() {
    let cluster = Cluster::started(3).await;
    cluster.submit(5).await;
    for _ in 0..3 {
        let old = cluster.leader().await;
        cluster.raft(old).transfer_leadership(None).await.unwrap();
        let new = cluster.leader().await;
        assert_ne!(old, new);
        cluster.submit(5).await;
    }
    let leader = cluster.leader().await;
    let other = cluster.follower().await;
    cluster.raft(leader).transfer_leadership(Some(other)).await.unwrap();
    assert_eq!(cluster.leader().await, other);
    assert!(cluster.raft(other).transfer_leadership(Some(9)).await.is_err());
    assert!(cluster.raft(leader).transfer_leadership(None).await.is_err(), "it leads no more");
    cluster.agree().await;
}

#[tokio::test]
async fn a_deposed_leaders_fence_is_worth_nothing() {
    let cluster = Cluster::started(3).await;
    let old = cluster.leader().await;
    let fence = cluster.raft(old).leadership().borrow().fence.clone().unwrap();
    cluster.raft(old).propose_fenced(fence.clone(), vec![submission()]).await.unwrap();
    cluster.raft(old).transfer_leadership(None).await.unwrap();
    let new = cluster.leader().await;
    let refused = |answer| matches!(answer, Err(ProposeError::NotLeader { .. }));
    for id in [old, new] {
        let answer = cluster.raft(id).propose_fenced(fence.clone(), vec![submission()]).await;
        assert!(refused(answer), "{id} took it");
    }
    // Not even where it was made, in a later leadership.
    cluster.raft(new).transfer_leadership(Some(old)).await.unwrap();
    assert_eq!(cluster.leader().await, old);
    let answer = cluster.raft(old).propose_fenced(fence, vec![submission()]).await;
    assert!(refused(answer), "a later leadership took it");
    cluster.raft(old).read(|state| assert_eq!(state.jobs.len(), 1));
}

#[tokio::test]
async fn without_a_quorum_nothing_is_promised() {
    let mut cluster = Cluster::new(3);
    cluster.tune = |config| config.patience = Duration::from_millis(500);
    for id in 1..=3 {
        cluster.start(id).await;
    }
    let leader = cluster.leader().await;
    for id in (1..=3).filter(|id| *id != leader) {
        cluster.stop(id).await;
    }
    let raft = cluster.raft(leader);
    assert!(raft.propose(vec![submission()]).await.is_err());
    assert!(raft.linearize().await.is_err());
    eventually("the leader knows that it is alone", || {
        raft.quorum_age().is_none_or(|age| age > Duration::from_millis(400))
    })
    .await;
}

#[tokio::test]
async fn a_leader_that_another_voter_hears_goes_on() {
    let cluster = Cluster::started(3).await;
    cluster.submit(3).await;
    cluster.agree().await;
    let before = cluster.raft(cluster.leader().await).status();
    let mistaken = cluster.follower().await;
    let core = cluster.raft(mistaken).inner.core.clone();
    let leader = before.leader.unwrap();
    FailureDetector::new(mistaken, core).stand_after(leader).await.unwrap();
    cluster.submit(3).await;
    let after = cluster.raft(leader).status();
    assert_eq!((after.leader, after.term), (before.leader, before.term));
    cluster.agree().await;
}
