//! How a controller learns that it is no member any more: it says so in one line, notes it for later starts, and ends.
//!
//! Peers are the ones who know. They refuse what comes from a former member and say why; and whoever starts again, or
//! hears of no leader for a while, asks them.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures::future::join_all;
use tonic::{Status, metadata::MetadataMap};

use crate::model::lineage::{self, Kinship};
use crate::raft::{Fatal, NodeId, network::Network, watchdog::Alarm};
use crate::store::DataDir;

/// Why it is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Removed,
    /// The cluster was recovered without it, and has this id since.
    LeftBehind(String),
}

/// Carries it out.
#[derive(Clone)]
pub struct Dismissal {
    pub id: NodeId,
    pub dir: Arc<DataDir>,
    pub alarm: Alarm,
}

const VERDICT: &str = "drigs-verdict";
const JUDGE: &str = "drigs-judge";
const REMOVED: &str = "removed";
const LEFT_BEHIND: &str = "left-behind";

impl Verdict {
    /// The answer to a message of the one whom it concerns. `judge` is the cluster that says so.
    pub fn refuse(&self, sender: NodeId, judge: &str) -> Status {
        let (word, why) = match self {
            Verdict::Removed => (REMOVED, format!("controller {sender} was removed from it")),
            Verdict::LeftBehind(_) => (
                LEFT_BEHIND,
                format!(
                    "it was recovered without controller {sender}, which belongs to an earlier generation"
                ),
            ),
        };
        let mut status = Status::failed_precondition(format!("cluster {judge}: {why}"));
        status.metadata_mut().insert(VERDICT, tonic::metadata::MetadataValue::from_static(word));
        // An id that is no header is no id that anyone compares.
        if let Ok(judge) = judge.parse() {
            status.metadata_mut().insert(JUDGE, judge);
        }
        status
    }

    /// What a refusal means for the one who is refused, and belongs to cluster `own`.
    fn of(refusal: &MetadataMap, own: &str) -> Option<Verdict> {
        let text = |key| refusal.get(key).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let judge = text(JUDGE);
        Verdict::by(own, judge, text(VERDICT) == REMOVED)
    }

    /// What a peer's cluster, and whether it holds this controller for removed, mean.
    fn by(own: &str, judge: &str, removed: bool) -> Option<Verdict> {
        match lineage::kinship(own, judge) {
            Kinship::Same => removed.then_some(Verdict::Removed),
            Kinship::Newer => Some(Verdict::LeftBehind(judge.to_owned())),
            Kinship::Older | Kinship::Rival | Kinship::Stranger => None,
        }
    }
}

impl Dismissal {
    pub fn heed(&self, refusal: &Status) {
        let own = self.dir.cluster_id().unwrap_or_default();
        if let Some(verdict) = Verdict::of(refusal.metadata(), &own) {
            self.carry_out(&verdict);
        }
    }

    /// Notes it durably, and ends the process.
    pub fn carry_out(&self, verdict: &Verdict) {
        let mut message = self.describe(verdict);
        if let Err(error) = self.dir.dismiss(&message) {
            message += &format!(" (this could not be noted for the next start: {error})");
        }
        self.alarm.raise(Fatal { exit_code: Fatal::IDENTITY, message });
    }

    pub fn describe(&self, verdict: &Verdict) -> String {
        let (id, dir) = (self.id, self.dir.path().display());
        let own = self.dir.cluster_id().unwrap_or_default();
        match verdict {
            Verdict::Removed => format!(
                "controller {id} was removed from cluster {own} and takes no part in it any more. \
                 To use this machine again, move {dir} away, start it under a number that was never used, and run `drigs cluster add` for that one"
            ),
            Verdict::LeftBehind(newer) => format!(
                "cluster {own} was recovered without controller {id}, as {newer} (generation {}): what this one knows beyond that does not count any more. \
                 Keep {dir} aside until nobody misses anything of it; to use this machine again, start it with an empty directory, under a number that was never used, and run `drigs cluster add` for that one",
                lineage::generation(newer)
            ),
        }
    }
}

/// Asks all of `members` what they hold of this controller; those that do not answer in time say nothing.
pub async fn ask_around(
    network: &Network,
    own: &str,
    members: &BTreeMap<NodeId, String>,
    patience: Duration,
) -> Option<Verdict> {
    let probes = members.iter().map(|(id, address)| async move {
        let mut peer = network.peer(*id, address).ok()?;
        let found = peer.probe(patience).await.ok()?;
        Verdict::by(own, &found.cluster_id, found.sender_removed)
    });
    join_all(probes).await.into_iter().flatten().next()
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: &str = "6f0c7f9e-5a55-4f0e-9f39-7c41f3a1d8aa";

    #[test]
    fn only_the_own_cluster_dismisses() {
        let recovered = lineage::next_generation(OWN, 1);
        let cases = [
            (Verdict::Removed, OWN, OWN, Some(Verdict::Removed)),
            (Verdict::Removed, OWN, "another", None),
            (
                Verdict::LeftBehind(recovered.clone()),
                OWN,
                &recovered,
                Some(Verdict::LeftBehind(recovered.clone())),
            ),
            // Whoever is of a later generation is not sent away by an earlier one.
            (Verdict::Removed, &recovered, OWN, None),
        ];
        for (verdict, own, judge, expected) in cases {
            let refusal = verdict.refuse(2, judge);
            assert_eq!(Verdict::of(refusal.metadata(), own), expected, "{judge} says {verdict:?}");
        }
        assert_eq!(Verdict::of(&MetadataMap::new(), OWN), None);
    }
}
