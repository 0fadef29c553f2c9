//! When every member understands more, more may be said: the feature level, which only rises.

use std::time::Duration;

use futures::future::join_all;

use crate::raft::{Raft, replica::others};
use crate::state::FEATURE_LEVEL;

const PATIENCE: Duration = Duration::from_secs(1);

impl Raft {
    /// The level that the cluster may be raised to now; `None` when it is there, or a member does not answer.
    pub async fn next_feature_level(&self) -> Option<u32> {
        let present = self.read(|state| state.counters.feature_level);
        if present >= FEATURE_LEVEL {
            return None;
        }
        let metrics = self.metrics();
        let members = others(self.inner.id, metrics.membership_config.membership());
        let asked = members.into_iter().map(|(id, address)| async move {
            let mut peer = self.inner.network.peer(id, &address).ok()?;
            Some(peer.probe(PATIENCE).await.ok()?.feature_level)
        });
        common_level(present, FEATURE_LEVEL, join_all(asked).await)
    }
}

/// What all understand, if that is more than `present`. Who does not answer may be of any version.
fn common_level(
    present: u32,
    own: u32,
    others: impl IntoIterator<Item = Option<u32>>,
) -> Option<u32> {
    let lowest = others.into_iter().try_fold(own, |lowest, level| Some(lowest.min(level?)))?;
    (lowest > present).then_some(lowest)
}

#[cfg(test)]
mod tests {
    use super::common_level;

    #[track_caller]
    fn check(present: u32, others: &[Option<u32>], expected: Option<u32>) {
        assert_eq!(common_level(present, 3, others.iter().copied()), expected);
    }

    #[test]
    fn nothing_is_said_that_one_may_not_understand() {
        check(1, &[Some(3), Some(3)], Some(3));
        check(1, &[Some(2), Some(4)], Some(2));
        check(1, &[Some(3), Some(1)], None);
        // From before levels were announced.
        check(1, &[Some(3), Some(0)], None);
        check(1, &[Some(3), None], None);
        check(3, &[Some(3), Some(3)], None);
    }
}
