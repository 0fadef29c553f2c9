//! The cluster at a glance, and its controllers.

use crate::model::{Bytes, MilliCpus};
use crate::rpc::{
    api::{ClusterView, MemberAction, MemberView, StatusView},
    convert::{Malformed, all, required},
    proto::{
        self,
        act_on_members_request::{Action, Add, Move, TransferLeader},
    },
};

impl From<StatusView> for proto::StatusView {
    fn from(status: StatusView) -> Self {
        proto::StatusView {
            cluster_id: status.cluster_id,
            leader: status.leader,
            version: status.version,
            controllers: status.controllers,
            controllers_reachable: status.controllers_reachable,
            workers: status.workers,
            workers_ready: status.workers_ready,
            milli_cpus: status.cpus.0,
            milli_cpus_used: status.cpus_used.0,
            memory_bytes: status.memory.0,
            memory_used_bytes: status.memory_used.0,
            gpus: status.gpus,
            gpus_used: status.gpus_used,
            jobs_submitted: status.jobs_submitted,
            tasks: Some(status.tasks.into()),
        }
    }
}

impl TryFrom<proto::StatusView> for StatusView {
    type Error = Malformed;

    fn try_from(status: proto::StatusView) -> Result<Self, Malformed> {
        Ok(StatusView {
            cluster_id: status.cluster_id,
            leader: status.leader,
            version: status.version,
            controllers: status.controllers,
            controllers_reachable: status.controllers_reachable,
            workers: status.workers,
            workers_ready: status.workers_ready,
            cpus: MilliCpus(status.milli_cpus),
            cpus_used: MilliCpus(status.milli_cpus_used),
            memory: Bytes(status.memory_bytes),
            memory_used: Bytes(status.memory_used_bytes),
            gpus: status.gpus,
            gpus_used: status.gpus_used,
            jobs_submitted: status.jobs_submitted,
            tasks: required(status.tasks, "status.tasks")?,
        })
    }
}

impl From<ClusterView> for proto::ClusterView {
    fn from(cluster: ClusterView) -> Self {
        proto::ClusterView {
            cluster_id: cluster.cluster_id,
            answered_by: cluster.answered_by,
            leader: cluster.leader,
            term: cluster.term,
            generation: cluster.generation,
            last_log: cluster.last_log,
            members: cluster.members.into_iter().map(Into::into).collect(),
        }
    }
}

impl TryFrom<proto::ClusterView> for ClusterView {
    type Error = Malformed;

    fn try_from(cluster: proto::ClusterView) -> Result<Self, Malformed> {
        Ok(ClusterView {
            cluster_id: cluster.cluster_id,
            answered_by: cluster.answered_by,
            leader: cluster.leader,
            term: cluster.term,
            generation: cluster.generation,
            last_log: cluster.last_log,
            members: all(cluster.members)?,
        })
    }
}

impl From<MemberView> for proto::MemberView {
    fn from(member: MemberView) -> Self {
        let MemberView { id, address, role, reachable, matched, lag, applied, state_hash, version } =
            member;
        proto::MemberView {
            id,
            address,
            role,
            reachable,
            matched,
            lag,
            applied,
            state_hash,
            version,
        }
    }
}

impl TryFrom<proto::MemberView> for MemberView {
    type Error = Malformed;

    fn try_from(member: proto::MemberView) -> Result<Self, Malformed> {
        let proto::MemberView {
            id,
            address,
            role,
            reachable,
            matched,
            lag,
            applied,
            state_hash,
            version,
        } = member;
        Ok(MemberView { id, address, role, reachable, matched, lag, applied, state_hash, version })
    }
}

impl From<MemberAction> for proto::ActOnMembersRequest {
    fn from(action: MemberAction) -> Self {
        let action = match action {
            MemberAction::Add { id, address } => Action::Add(Add { id, address }),
            MemberAction::Promote { id } => Action::Promote(id),
            MemberAction::Move { id, address } => Action::Move(Move { id, address }),
            MemberAction::Remove { id } => Action::Remove(id),
            MemberAction::TransferLeader { to } => Action::TransferLeader(TransferLeader { to }),
        };
        proto::ActOnMembersRequest { action: Some(action) }
    }
}

impl TryFrom<proto::ActOnMembersRequest> for MemberAction {
    type Error = Malformed;

    fn try_from(request: proto::ActOnMembersRequest) -> Result<Self, Malformed> {
        match request.action.ok_or(Malformed::Missing("action"))? {
            Action::Add(Add { address, .. }) if address.is_empty() => {
                Err(Malformed::Missing("add.address"))
            }
            Action::Add(Add { id, address }) => Ok(MemberAction::Add { id, address }),
            Action::Promote(id) => Ok(MemberAction::Promote { id }),
            Action::Move(Move { address, .. }) if address.is_empty() => {
                Err(Malformed::Missing("move.address"))
            }
            Action::Move(Move { id, address }) => Ok(MemberAction::Move { id, address }),
            Action::Remove(id) => Ok(MemberAction::Remove { id }),
            Action::TransferLeader(TransferLeader { to }) => {
                Ok(MemberAction::TransferLeader { to })
            }
        }
    }
}
