//! openraft's own suite on our storage.

use std::sync::Arc;

use openraft::testing::log::{StoreBuilder, Suite};
use tempfile::TempDir;

use crate::raft::{log_storage::LogStorage, state_machine::StateMachine, types::Types};
use crate::store::DataDir;

struct Builder;

impl StoreBuilder<Types, LogStorage, StateMachine, TempDir> for Builder {
    async fn build(
        &self,
    ) -> Result<(TempDir, LogStorage, StateMachine), openraft::StorageError<Types>> {
        let temporary = tempfile::tempdir().unwrap();
        let dir = Arc::new(DataDir::open(temporary.path(), 0).unwrap());
        let log = LogStorage::open(&dir.log(), Arc::new(|error| panic!("{error}"))).unwrap();
        let (state_machine, _) =
            StateMachine::open(dir, Arc::new(|fatal| panic!("{}", fatal.message))).unwrap();
        Ok((temporary, log, state_machine))
    }
}

#[tokio::test]
async fn openrafts_suite_passes() {
    Suite::test_all(Builder).await.unwrap();
}
