//! Applies what is committed: to the state in memory, and then to `state.db`.
//!
//! One thread does it, so that neither SQLite nor a long batch ever holds up the runtime that carries heartbeats.

use std::{
    collections::BTreeSet,
    io,
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

use crossbeam_channel::{Receiver, Sender, bounded};
use futures::{Stream, StreamExt as _};
use openraft::{
    EntryPayload, OptionalSend,
    storage::{EntryResponder, RaftSnapshotBuilder, RaftStateMachine},
};
use tokio::sync::oneshot;

use crate::raft::{
    Fatal, NodeId,
    types::{Encoded, Entry, LogId, Outcomes, Snapshot, SnapshotMeta, StoredMembership, Types},
    wire,
};
use crate::rpc::convert::{self, Malformed};
use crate::state::State;
use crate::store::{self, Applied, DataDir, Loaded, Progress, Rows, Snapshots, StateDb};

/// openraft's handle on the thread that applies.
#[derive(Clone, Debug)]
pub struct StateMachine {
    jobs: Sender<Job>,
    shared: Arc<Shared>,
    snapshots: Snapshots,
    dir: Arc<DataDir>,
}

/// What others may see of it.
#[derive(Debug)]
pub struct Shared {
    state: RwLock<State>,
    /// Where in the log the rows in the store stand.
    stored: Mutex<Stored>,
    pub progress: Progress,
    /// Numbers the files that come in.
    incoming: AtomicU64,
}

#[derive(Clone, Debug, Default)]
pub struct Stored {
    pub applied: Option<LogId>,
    pub membership: StoredMembership,
    pub members_ever: BTreeSet<NodeId>,
    pub hash: [u8; 32],
}

enum Job {
    Apply(Vec<Entry>, oneshot::Sender<io::Result<Vec<Outcomes>>>),
    Install(PathBuf, oneshot::Sender<io::Result<()>>),
    Close(oneshot::Sender<io::Result<()>>),
}

/// Jobs that may wait. openraft waits for each before it sends the next.
const BACKLOG: usize = 16;
/// Entries that become one transaction of the store.
const MOST_AT_ONCE: usize = 256;

impl StateMachine {
    /// Loads the state, and starts the thread. `fatal` is told of the error that ends it.
    pub fn open(
        dir: Arc<DataDir>,
        fatal: Arc<dyn Fn(Fatal) + Send + Sync>,
    ) -> Result<(StateMachine, store::History), store::Error> {
        let (db, loaded) = StateDb::open(&dir)?;
        let stored = Stored::of(&loaded.applied)?;
        let index = stored.applied.map_or(0, |applied| applied.index);
        let shared = Arc::new(Shared {
            state: RwLock::new(loaded.state),
            stored: Mutex::new(stored),
            progress: Progress::new(index),
            incoming: AtomicU64::new(0),
        });
        let snapshots = db.snapshots();
        let history = store::History::new(&db, shared.progress.clone());
        let (jobs, inbox) = bounded(BACKLOG);
        let applier =
            Applier { db, applied: loaded.applied, shared: shared.clone(), dir: dir.clone() };
        thread::Builder::new()
            .name(String::from("apply"))
            .spawn(move || applier.run(&inbox, &*fatal))
            .map_err(|source| store::Error::Io {
                doing: "start a thread for",
                path: dir.state(),
                source,
            })?;
        Ok((StateMachine { jobs, shared, snapshots, dir }, history))
    }

    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// The state as it is in the store; it stays as it is for as long as the snapshot lives.
    pub fn snapshot(&self) -> Result<store::Snapshot, store::Error> {
        self.snapshots.take()
    }

    /// Writes back everything, and lets go of the files.
    pub async fn close(&self) -> io::Result<()> {
        self.call(Job::Close).await
    }

    /// Where a file that comes in may be written.
    pub fn incoming(&self) -> PathBuf {
        let number = self.shared.incoming.fetch_add(1, Ordering::Relaxed);
        self.dir.path().join(format!("incoming-{number}.db"))
    }

    async fn call<T>(
        &self,
        job: impl FnOnce(oneshot::Sender<io::Result<T>>) -> Job,
    ) -> io::Result<T> {
        let gone = || io::Error::other("the thread that applies is gone");
        let (sender, answer) = oneshot::channel();
        self.jobs.send(job(sender)).map_err(|_| gone())?;
        answer.await.map_err(|_| gone())?
    }
}

impl Shared {
    pub fn state(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn stored(&self) -> MutexGuard<'_, Stored> {
        self.stored.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether `id` was a member and, by all that is committed here, is none any more. It never will be again.
    pub fn was_removed(&self, id: NodeId) -> bool {
        let stored = self.stored();
        let is_member = stored.membership.membership().get_node(&id).is_some();
        !is_member && stored.members_ever.contains(&id)
    }

    fn replace(&self, state: State) {
        *self.state.write().unwrap_or_else(PoisonError::into_inner) = state;
    }
}

impl Stored {
    fn of(applied: &Applied) -> Result<Self, store::Error> {
        let membership = wire::decode_stored_membership(&applied.membership).map_err(|fault| {
            store::Error::Corrupt {
                path: "state.db".into(),
                record: format!("the membership: {fault}"),
            }
        })?;
        let mut members_ever = applied.members_ever.clone();
        members_ever.extend(membership.membership().nodes().map(|(id, _)| *id));
        Ok(Stored {
            applied: applied.position.map(wire::from_position),
            membership,
            members_ever,
            hash: applied.hash,
        })
    }
}

struct Applier {
    db: StateDb,
    applied: Applied,
    shared: Arc<Shared>,
    dir: Arc<DataDir>,
}

impl Applier {
    fn run(mut self, inbox: &Receiver<Job>, fatal: &(dyn Fn(Fatal) + Send + Sync)) {
        while let Ok(job) = inbox.recv() {
            let goes_on = match job {
                Job::Apply(entries, answer) => reply(answer, self.apply(&entries), fatal),
                Job::Install(file, answer) => reply(answer, self.install(&file), fatal),
                Job::Close(answer) => {
                    reply(answer, self.db.close(), fatal);
                    return;
                }
            };
            if !goes_on {
                return;
            }
        }
    }

    /// In memory entry by entry, in the store as one transaction.
    fn apply(&mut self, entries: &[Entry]) -> Result<Vec<Outcomes>, store::Error> {
        let mut rows = Rows::default();
        let mut outcomes = Vec::with_capacity(entries.len());
        for entry in entries {
            let (done, changed) = self.apply_entry(entry)?;
            outcomes.push(done);
            rows.extend(changed);
        }
        let counters = self.shared.state().counters.clone();
        self.applied.cluster_id = self.dir.cluster_id();
        self.db.write(&rows, &counters, &self.applied)?;
        self.publish()?;
        Ok(outcomes)
    }

    fn apply_entry(&mut self, entry: &Entry) -> Result<(Outcomes, Rows), store::Error> {
        let index = entry.log_id.index;
        let (batch, encoded) = match &entry.payload {
            EntryPayload::Normal(Encoded(bytes)) => {
                // Its checksum was right, so it is not damaged: another version wrote it.
                let newer =
                    |why: Malformed| store::Error::NewerEntry { index, why: why.to_string() };
                let batch = convert::decode_batch(bytes).map_err(newer)?;
                (Some(batch), &bytes[..])
            }
            EntryPayload::Membership(membership) => {
                let stored = StoredMembership::new(Some(entry.log_id), membership.clone());
                self.applied.membership = wire::encode_stored_membership(&stored);
                self.applied.members_ever.extend(membership.nodes().map(|(id, _)| *id));
                (None, &[][..])
            }
            EntryPayload::Blank => (None, &[][..]),
        };
        self.shared.progress.in_memory(index);
        let mut state = self.shared.state.write().unwrap_or_else(PoisonError::into_inner);
        let level = state.counters.feature_level;
        let outcomes = batch.map_or_else(Vec::new, |batch| state.apply_batch(batch));
        let changes = state.take_changes();
        let rows = Rows::of(&state, changes);
        let restart = state.counters.feature_level != level;
        drop(state);
        // Versions may write the same row differently. Once all members understand the same, their hashes start anew.
        let before = if restart { [0; 32] } else { self.applied.hash };
        self.applied.hash = next_hash(before, index, encoded, &rows);
        self.applied.position = Some(wire::position(entry.log_id));
        Ok((Outcomes(outcomes), rows))
    }

    fn install(&mut self, file: &std::path::Path) -> Result<(), store::Error> {
        let Loaded { state, applied } = self.db.install(file, self.dir.cluster_id().as_deref())?;
        let index = applied.position.map_or(0, |position| position.index);
        self.applied = applied;
        self.shared.progress.in_memory(index);
        self.shared.replace(state);
        self.publish()
    }

    /// Tells everyone that the store has it.
    fn publish(&self) -> Result<(), store::Error> {
        let stored = Stored::of(&self.applied)?;
        let index = stored.applied.map_or(0, |applied| applied.index);
        *self.shared.stored() = stored;
        self.shared.progress.stored(index);
        Ok(())
    }
}

/// Answers. An error is fatal, and told first: the core would only say that it stopped. Says whether there was none.
fn reply<T>(
    answer: oneshot::Sender<io::Result<T>>,
    result: Result<T, store::Error>,
    fatal: &(dyn Fn(Fatal) + Send + Sync),
) -> bool {
    if let Err(error) = &result {
        let exit_code = match error {
            // The disk is as good as it was.
            store::Error::NewerEntry { .. }
            | store::Error::Newer { .. }
            | store::Error::NewerState { .. } => Fatal::IDENTITY,
            _ => Fatal::STORAGE,
        };
        fatal(Fatal { exit_code, message: error.to_string() });
    }
    let goes_on = result.is_ok();
    // Nobody waits any more only when the core is gone.
    let _ = answer.send(result.map_err(io::Error::from));
    goes_on
}

/// Of everything up to and with this entry. Two replicas that differ here have applied differently.
fn next_hash(before: [u8; 32], index: u64, encoded: &[u8], rows: &Rows) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&before);
    hasher.update(&index.to_le_bytes());
    hasher.update(&(encoded.len() as u64).to_le_bytes());
    hasher.update(encoded);
    rows.hash_into(&mut hasher);
    *hasher.finalize().as_bytes()
}

impl RaftStateMachine<Types> for StateMachine {
    type SnapshotData = store::Snapshot;
    type SnapshotBuilder = Self;

    async fn applied_state(&mut self) -> Result<(Option<LogId>, StoredMembership), io::Error> {
        let stored = self.shared.stored();
        Ok((stored.applied, stored.membership.clone()))
    }

    async fn apply<S>(&mut self, entries: S) -> Result<(), io::Error>
    where
        S: Stream<Item = Result<EntryResponder<Types>, io::Error>> + Unpin + OptionalSend,
    {
        let mut chunks = entries.ready_chunks(MOST_AT_ONCE);
        while let Some(chunk) = chunks.next().await {
            let mut entries = Vec::with_capacity(chunk.len());
            let mut waiting = Vec::with_capacity(chunk.len());
            for item in chunk {
                let (entry, responder) = item?;
                entries.push(entry);
                waiting.push(responder);
            }
            let outcomes = self.call(|answer| Job::Apply(entries, answer)).await?;
            for (responder, outcomes) in waiting.into_iter().zip(outcomes) {
                if let Some(responder) = responder {
                    responder.send(outcomes);
                }
            }
        }
        Ok(())
    }

    async fn get_snapshot_builder(&mut self) -> Self {
        self.clone()
    }

    async fn install_snapshot(
        &mut self,
        meta: &SnapshotMeta,
        snapshot: store::Snapshot,
    ) -> Result<(), io::Error> {
        let found = snapshot.applied().position.map(wire::from_position);
        if found != meta.last_log_id {
            let message =
                format!("a snapshot at {found:?} was announced as {:?}", meta.last_log_id);
            return Err(io::Error::other(message));
        }
        let file = self.incoming();
        let target = file.clone();
        blocking(move || snapshot.write_to(&target)).await?;
        self.call(|answer| Job::Install(file, answer)).await
    }

    /// The state as it is in the store: it needs no copy until someone is to be sent one.
    async fn get_current_snapshot(&mut self) -> Result<Option<Snapshot>, io::Error> {
        if self.shared.stored().applied.is_none() {
            return Ok(None);
        }
        let snapshots = self.snapshots.clone();
        described(blocking(move || snapshots.take()).await?).map(Some)
    }
}

impl RaftSnapshotBuilder<Types> for StateMachine {
    type SnapshotData = store::Snapshot;

    /// Makes the state durable: that is what lets the log before it go.
    async fn build_snapshot(&mut self) -> Result<Snapshot, io::Error> {
        let snapshots = self.snapshots.clone();
        described(blocking(move || snapshots.take_durable()).await?)
    }
}

fn described(snapshot: store::Snapshot) -> io::Result<Snapshot> {
    let stored = Stored::of(snapshot.applied())?;
    let meta = SnapshotMeta { last_log_id: stored.applied, last_membership: stored.membership };
    Ok(Snapshot { meta, snapshot })
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, store::Error> + Send + 'static,
) -> io::Result<T> {
    Ok(tokio::task::spawn_blocking(work).await.map_err(io::Error::other)??)
}
