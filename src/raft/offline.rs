//! What is done with a data directory while no controller uses it: another beginning for a history that can not go on as
//! it was.
//!
//! Both a restoration and a recovery add two entries to a log: who the only member is, and that a generation begins. Their
//! term is higher than any that the history can have had elsewhere, so that whoever obeyed an earlier leader obeys the
//! next one here, and none of the others again.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::{Arc, mpsc},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use openraft::{BasicNode, EntryPayload};
use uuid::Uuid;

use crate::model::{Timestamp, lineage};
use crate::raft::{
    NodeId,
    types::{Encoded, Entry, Membership},
    wire,
};
use crate::rpc::{
    convert,
    offline::{BackupView, LostMember, RecoveredView, RestoreRequest, RestoredView, SurvivorView},
};
use crate::state::Command;
use crate::store::{
    DataDir, Error, LogContents, LogDb, Position, Recovery, StateDb, Vote,
    backup::{self, Header, Origin},
};

/// The newest entries that are looked through for the last time and the last membership.
const TAIL: usize = 64 << 20;
/// How long the disk may take for two entries.
const PATIENCE: Duration = Duration::from_secs(60);

/// Backs up what the stopped controller has applied.
///
/// # Errors
/// When a controller uses the directory, it is no controller's, or the disk refuses.
pub fn backup(data_dir: &Path, target: &Path) -> anyhow::Result<BackupView> {
    let dir = open(data_dir)?;
    let log = Log::open(&dir)?;
    let (db, loaded) = StateDb::open(&dir)?;
    let node_id = node_id(data_dir)?;
    let header = backup::save(db.snapshots().take()?, target, origin(node_id))?;
    let applied = loaded.applied.position.map_or(0, |applied| applied.index);
    let beyond = log.contents.last.map_or(0, |last| last.index.saturating_sub(applied));
    db.close()?;
    log.close();
    dir.close(true)?;
    let view = view(target, header)?;
    Ok(BackupView { entries_beyond: beyond, ..view })
}

/// Checks all of the backup.
///
/// # Errors
/// Says what is wrong with it.
pub fn inspect(file: &Path) -> anyhow::Result<BackupView> {
    let scratch = std::env::temp_dir().join(format!("drigs-inspect-{}", Uuid::new_v4()));
    let header = backup::inspect(file, &scratch)?;
    view(file, header)
}

/// Makes the data directory of the only controller of a new cluster. It appears as a whole, or not at all.
///
/// # Errors
/// When the directory is not empty, the backup is not sound, or the disk refuses.
pub fn restore(request: &RestoreRequest) -> anyhow::Result<RestoredView> {
    let RestoreRequest { file, data_dir, id, address, adopt_workers } = request;
    if fs::read_dir(data_dir).is_ok_and(|mut entries| entries.next().is_some()) {
        anyhow::bail!(
            "the data directory {} is not empty: a restored cluster begins in an empty one",
            data_dir.display()
        );
    }
    let mut draft = data_dir.as_os_str().to_owned();
    draft.push(".restoring");
    let draft = PathBuf::from(draft);
    match fs::remove_dir_all(&draft) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
        _ => {}
    }
    let made = build(&draft, file, *id, address, *adopt_workers);
    let (cluster_id, header) = match made {
        Ok(made) => made,
        Err(error) => {
            // What is left of it is of no use, and would only be in the way.
            let _ = fs::remove_dir_all(&draft);
            return Err(error);
        }
    };
    if data_dir.exists() {
        fs::remove_dir(data_dir)?;
    }
    fs::rename(&draft, data_dir)?;
    let parent = data_dir.parent().filter(|dir| !dir.as_os_str().is_empty());
    fs::File::open(parent.unwrap_or(Path::new("."))).and_then(|dir| dir.sync_all())?;
    Ok(RestoredView {
        cluster_id,
        controller: *id,
        address: address.clone(),
        data_dir: data_dir.display().to_string(),
        backup: view(file, header)?,
    })
}

fn build(
    draft: &Path,
    file: &Path,
    id: NodeId,
    address: &str,
    adopt_workers: bool,
) -> anyhow::Result<(String, Header)> {
    let dir = DataDir::open(draft, id)?;
    let database = draft.join("state-1.db");
    let header = backup::unpack(file, &database)?;
    let cluster_id = Uuid::new_v4().to_string();
    backup::rename_cluster(&database, &cluster_id)?;
    let (db, _) = StateDb::open(&dir)?;
    db.close()?;
    let log = Log::open(&dir)?;
    let contents = &header.contents;
    let end = Position { term: contents.applied_term, index: contents.applied_index };
    log.wait(|db, done| db.purge(end, done))?;
    let adopted = adopt_workers.then(|| contents.cluster_id.clone());
    log.begin_anew(id, address, end, lineage::first_term_after(end.term), adopted)?;
    log.close();
    dir.join(&cluster_id)?;
    dir.close(true)?;
    Ok((cluster_id, header))
}

/// What there is to recover from.
///
/// # Errors
/// When a controller uses the directory, it is no controller's, or damaged.
pub fn survey(data_dir: &Path) -> anyhow::Result<SurvivorView> {
    let dir = open_for_recovery(data_dir)?;
    let log = Log::open(&dir)?;
    let survivor = log.survey(&dir, node_id(data_dir)?);
    log.close();
    dir.close(false)?;
    survivor
}

/// Makes the controller the only one of its cluster, in a new generation.
///
/// # Errors
/// When `cluster_id` is not what was surveyed, or the disk refuses; then it can be asked for again.
pub fn recover(data_dir: &Path, cluster_id: &str) -> anyhow::Result<RecoveredView> {
    let dir = open_for_recovery(data_dir)?;
    let id = node_id(data_dir)?;
    let log = Log::open(&dir)?;
    let survivor = log.survey(&dir, id)?;
    anyhow::ensure!(
        survivor.cluster_id == cluster_id,
        "{} belongs to cluster {}, not to {cluster_id}",
        data_dir.display(),
        survivor.cluster_id
    );
    let end = Position { term: survivor.last_term, index: survivor.last_index };
    let recovery = match dir.recovering() {
        Some(begun) => begun,
        None => {
            let voted = log.contents.head.vote.map_or(0, |vote| vote.term);
            let recovery = Recovery {
                cluster_id: lineage::next_generation(cluster_id, rand::random()),
                term: lineage::first_term_after(end.term.max(voted)),
            };
            dir.begin_recovery(&recovery)?;
            recovery
        }
    };
    if !log.entries.iter().any(|entry| entry.log_id.leader_id.term >= recovery.term) {
        log.begin_anew(id, &survivor.address, end, recovery.term, None)?;
    }
    log.close();
    dir.end_recovery()?;
    dir.close(false)?;
    let generation = lineage::generation(&recovery.cluster_id);
    Ok(RecoveredView { cluster_id: recovery.cluster_id, generation, survivor })
}

/// The log of a stopped controller.
struct Log {
    db: LogDb,
    contents: LogContents,
    entries: Vec<Entry>,
}

impl Log {
    fn open(dir: &DataDir) -> anyhow::Result<Log> {
        let (db, contents) = LogDb::open(&dir.log(), TAIL, Arc::new(|_: &Error| ()))?;
        let entries: Result<Vec<Entry>, _> = contents.tail.iter().map(wire::from_record).collect();
        let entries = entries.map_err(|fault| anyhow::anyhow!("the log is damaged: {fault}"))?;
        Ok(Log { db, contents, entries })
    }

    fn close(&self) {
        self.db.close();
    }

    fn wait(&self, write: impl FnOnce(&LogDb, crate::store::Done)) -> anyhow::Result<()> {
        let (sender, done) = mpsc::channel();
        write(&self.db, Box::new(move |result| drop(sender.send(result))));
        Ok(done.recv_timeout(PATIENCE)??)
    }

    fn survey(&self, dir: &DataDir, id: NodeId) -> anyhow::Result<SurvivorView> {
        let path = dir.path().display();
        let Some(cluster_id) = dir.cluster_id() else {
            anyhow::bail!("{path} is empty: there is nothing to recover from");
        };
        let (db, loaded) = StateDb::open(dir)?;
        db.close()?;
        let begun = dir.recovering();
        let is_old = |entry: &&Entry| {
            begun.as_ref().is_none_or(|begun| entry.log_id.leader_id.term < begun.term)
        };
        let old: Vec<&Entry> = self.entries.iter().filter(is_old).collect();
        let applied = loaded.applied.position;
        let last = old.last().map(|entry| wire::position(entry.log_id)).or(applied);
        let Some(last) = last.max_by_index(applied) else {
            anyhow::bail!("{path} is empty: there is nothing to recover from");
        };
        let stored = wire::decode_stored_membership(&loaded.applied.membership)
            .map_err(|fault| anyhow::anyhow!("the membership in {path} is damaged: {fault}"))?;
        let newest = old.iter().rev().find_map(|entry| match &entry.payload {
            EntryPayload::Membership(membership) => Some(membership.clone()),
            EntryPayload::Blank | EntryPayload::Normal(_) => None,
        });
        let members = newest.unwrap_or_else(|| stored.membership().clone());
        let Some(own) = members.get_node(&id) else {
            anyhow::bail!(
                "controller {id} was no member of cluster {cluster_id} any more: recover from another one"
            );
        };
        let others = members.nodes().filter(|(it, _)| **it != id);
        Ok(SurvivorView {
            cluster_id,
            controller: id,
            address: own.addr.clone(),
            others: others
                .map(|(id, node)| LostMember { id: *id, address: node.addr.clone() })
                .collect(),
            last_index: last.index,
            last_term: last.term,
            last_written_at: old.iter().rev().find_map(|entry| written_at(entry)),
            known_committed: self.contents.head.committed.max_by_index(applied).map(|it| it.index),
            begun: begun.is_some(),
        })
    }

    /// Behind `end`, in a term that no leader of before can have had.
    fn begin_anew(
        &self,
        id: NodeId,
        address: &str,
        end: Position,
        term: u64,
        adopted: Option<String>,
    ) -> anyhow::Result<()> {
        let node = BasicNode { addr: address.to_owned() };
        let members = Membership::new(vec![[id].into()], BTreeMap::from([(id, node)]))
            .map_err(|fault| anyhow::anyhow!("{fault}"))?;
        let begin = convert::encode_commands(&[Command::BeginGeneration { adopted }]);
        let batch = convert::join_commands(Timestamp(now()), [&begin[..]]);
        let entries = [
            Entry {
                log_id: wire::log_id(term, end.index + 1),
                payload: EntryPayload::Membership(members),
            },
            Entry {
                log_id: wire::log_id(term, end.index + 2),
                payload: EntryPayload::Normal(Encoded(batch)),
            },
        ];
        let vote = Vote { term, node: id, committed: false };
        self.wait(|db, done| db.save_vote(vote, done))?;
        self.wait(|db, done| db.append(entries.iter().map(wire::record).collect(), done))
    }
}

trait Furthest {
    fn max_by_index(self, other: Self) -> Self;
}

impl Furthest for Option<Position> {
    fn max_by_index(self, other: Self) -> Self {
        self.into_iter().chain(other).max_by_key(|position| position.index)
    }
}

fn written_at(entry: &Entry) -> Option<Timestamp> {
    match &entry.payload {
        EntryPayload::Normal(Encoded(bytes)) => {
            convert::decode_batch(bytes).ok().map(|batch| batch.at)
        }
        EntryPayload::Blank | EntryPayload::Membership(_) => None,
    }
}

fn node_id(data_dir: &Path) -> anyhow::Result<NodeId> {
    DataDir::node_id(data_dir)?.ok_or_else(|| {
        anyhow::anyhow!("{} is not the data directory of a controller", data_dir.display())
    })
}

fn open(data_dir: &Path) -> anyhow::Result<DataDir> {
    Ok(DataDir::open(data_dir, node_id(data_dir)?)?)
}

fn open_for_recovery(data_dir: &Path) -> anyhow::Result<DataDir> {
    Ok(DataDir::open_for_recovery(data_dir, node_id(data_dir)?)?)
}

pub(super) fn origin(node_id: NodeId) -> Origin {
    Origin { node_id, version: env!("CARGO_PKG_VERSION").to_owned(), taken_at: now() }
}

fn now() -> u64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX)
}

fn view(file: &Path, header: Header) -> anyhow::Result<BackupView> {
    let Header { contents, node_id, version, taken_at } = header;
    Ok(BackupView {
        file: file.display().to_string(),
        file_bytes: fs::metadata(file)?.len(),
        generation: lineage::generation(&contents.cluster_id),
        cluster_id: contents.cluster_id,
        controller: node_id,
        version,
        taken_at: Timestamp(taken_at),
        applied_index: contents.applied_index,
        applied_term: contents.applied_term,
        state_hash: contents.state_hash,
        feature_level: contents.feature_level,
        jobs_submitted: contents.jobs_submitted,
        active_tasks: contents.active_tasks,
        workers: contents.workers,
        entries_beyond: 0,
    })
}
