//! openraft's types ⇄ protobuf, for peers and for the disk.

use std::collections::BTreeMap;

use openraft::{
    BasicNode, EntryPayload,
    raft::{
        AppendEntriesRequest, StreamAppendError, StreamAppendResult, TransferLeaderRequest,
        VoteRequest, VoteResponse,
    },
    vote::RaftLeaderId as _,
};
use prost::Message as _;

use crate::raft::types::{
    CommittedLeader, Encoded, Entry, LogId, Membership, SnapshotMeta, StoredMembership, Types, Vote,
};
use crate::rpc::{
    convert::Malformed,
    proto::{
        self, append_response::Answer, log_entry::Payload, membership::Voters,
        snapshot_piece::Header,
    },
};
use crate::store;

type LeaderId = openraft::impls::leader_id_std::LeaderId<u64, u64>;

pub fn log_id(term: u64, index: u64) -> LogId {
    LogId { leader_id: CommittedLeader::new(term), index }
}

pub fn position(id: LogId) -> store::Position {
    store::Position { term: id.leader_id.term, index: id.index }
}

pub fn from_position(position: store::Position) -> LogId {
    log_id(position.term, position.index)
}

pub fn stored_vote(vote: &Vote) -> store::Vote {
    store::Vote {
        term: vote.leader_id.term,
        node: vote.leader_id.voted_for,
        committed: vote.committed,
    }
}

pub fn from_stored_vote(vote: store::Vote) -> Vote {
    Vote { leader_id: LeaderId::new(vote.term, vote.node), committed: vote.committed }
}

/// An entry as it is kept.
pub fn record(entry: &Entry) -> store::Record {
    let body = encode_entry(entry).encode_to_vec().into();
    store::Record { index: entry.log_id.index, term: entry.log_id.leader_id.term, body }
}

pub fn from_record(record: &store::Record) -> Result<Entry, Malformed> {
    decode_entry(proto::LogEntry::decode(record.body.clone())?)
}

pub fn encode_stored_membership(membership: &StoredMembership) -> Vec<u8> {
    stored_membership(membership).encode_to_vec()
}

pub fn decode_stored_membership(bytes: &[u8]) -> Result<StoredMembership, Malformed> {
    from_stored_membership(proto::StoredMembership::decode(bytes)?)
}

pub fn encode_log_id(id: LogId) -> proto::LogId {
    proto::LogId { term: id.leader_id.term, index: id.index }
}

pub fn decode_log_id(id: proto::LogId) -> LogId {
    log_id(id.term, id.index)
}

pub fn encode_vote(vote: &Vote) -> proto::Vote {
    let store::Vote { term, node, committed } = stored_vote(vote);
    proto::Vote { term, node, committed }
}

pub fn decode_vote(vote: Option<proto::Vote>) -> Result<Vote, Malformed> {
    let proto::Vote { term, node, committed } = vote.ok_or(Malformed::Missing("vote"))?;
    Ok(from_stored_vote(store::Vote { term, node, committed }))
}

pub fn encode_vote_request(request: &VoteRequest<Types>) -> proto::VoteRequest {
    proto::VoteRequest {
        vote: Some(encode_vote(&request.vote)),
        last_log: request.last_log_id.map(encode_log_id),
        leadership_transfer: request.leadership_transfer,
    }
}

pub fn decode_vote_request(request: proto::VoteRequest) -> Result<VoteRequest<Types>, Malformed> {
    Ok(VoteRequest {
        vote: decode_vote(request.vote)?,
        last_log_id: request.last_log.map(decode_log_id),
        leadership_transfer: request.leadership_transfer,
    })
}

pub fn encode_vote_response(response: &VoteResponse<Types>) -> proto::VoteResponse {
    proto::VoteResponse {
        vote: Some(encode_vote(&response.vote)),
        granted: response.vote_granted,
        last_log: response.last_log_id.map(encode_log_id),
    }
}

pub fn decode_vote_response(
    response: proto::VoteResponse,
) -> Result<VoteResponse<Types>, Malformed> {
    Ok(VoteResponse {
        vote: decode_vote(response.vote)?,
        vote_granted: response.granted,
        last_log_id: response.last_log.map(decode_log_id),
    })
}

pub fn encode_append(request: &AppendEntriesRequest<Types>) -> proto::AppendRequest {
    proto::AppendRequest {
        vote: Some(encode_vote(&request.vote)),
        prev_log: request.prev_log_id.map(encode_log_id),
        entries: request.entries.iter().map(encode_entry).collect(),
        committed: request.leader_commit.map(encode_log_id),
    }
}

pub fn decode_append(
    request: proto::AppendRequest,
) -> Result<AppendEntriesRequest<Types>, Malformed> {
    Ok(AppendEntriesRequest {
        vote: decode_vote(request.vote)?,
        prev_log_id: request.prev_log.map(decode_log_id),
        entries: request.entries.into_iter().map(decode_entry).collect::<Result<_, _>>()?,
        leader_commit: request.committed.map(decode_log_id),
    })
}

pub fn encode_append_result(result: StreamAppendResult<Types>) -> proto::AppendResponse {
    let answer = match result {
        Ok(upto) => {
            Answer::Matched(proto::append_response::Matched { upto: upto.map(encode_log_id) })
        }
        Err(StreamAppendError::Conflict(at)) => Answer::Conflict(encode_log_id(at)),
        Err(StreamAppendError::HigherVote(vote)) => Answer::HigherVote(encode_vote(&vote)),
    };
    proto::AppendResponse { answer: Some(answer) }
}

pub fn decode_append_result(
    response: proto::AppendResponse,
) -> Result<StreamAppendResult<Types>, Malformed> {
    Ok(match response.answer.ok_or(Malformed::Missing("answer"))? {
        Answer::Matched(matched) => Ok(matched.upto.map(decode_log_id)),
        Answer::Conflict(at) => Err(StreamAppendError::Conflict(decode_log_id(at))),
        Answer::HigherVote(vote) => Err(StreamAppendError::HigherVote(decode_vote(Some(vote))?)),
    })
}

pub fn encode_header(vote: &Vote, meta: &SnapshotMeta) -> Header {
    Header {
        vote: Some(encode_vote(vote)),
        last_log: meta.last_log_id.map(encode_log_id),
        membership: Some(stored_membership(&meta.last_membership)),
    }
}

pub fn decode_header(header: Header) -> Result<(Vote, SnapshotMeta), Malformed> {
    let membership = header.membership.ok_or(Malformed::Missing("membership"))?;
    let meta = SnapshotMeta {
        last_log_id: header.last_log.map(decode_log_id),
        last_membership: from_stored_membership(membership)?,
    };
    Ok((decode_vote(header.vote)?, meta))
}

pub fn encode_hand_over(request: &TransferLeaderRequest<Types>) -> proto::HandOverRequest {
    proto::HandOverRequest {
        from: Some(encode_vote(request.from_leader())),
        to: *request.to_node_id(),
        last_log: request.last_log_id().copied().map(encode_log_id),
    }
}

pub fn decode_hand_over(
    request: proto::HandOverRequest,
) -> Result<TransferLeaderRequest<Types>, Malformed> {
    let last_log = request.last_log.map(decode_log_id);
    Ok(TransferLeaderRequest::new(decode_vote(request.from)?, request.to, last_log))
}

fn encode_entry(entry: &Entry) -> proto::LogEntry {
    let payload = match &entry.payload {
        EntryPayload::Blank => Payload::Blank(proto::log_entry::Blank {}),
        EntryPayload::Normal(Encoded(batch)) => Payload::Batch(batch.clone()),
        EntryPayload::Membership(membership) => Payload::Membership(encode_membership(membership)),
    };
    proto::LogEntry { id: Some(encode_log_id(entry.log_id)), payload: Some(payload) }
}

fn decode_entry(entry: proto::LogEntry) -> Result<Entry, Malformed> {
    let payload = match entry.payload.ok_or(Malformed::Missing("entry.payload"))? {
        Payload::Blank(proto::log_entry::Blank {}) => EntryPayload::Blank,
        Payload::Batch(batch) => EntryPayload::Normal(Encoded(batch)),
        Payload::Membership(membership) => EntryPayload::Membership(decode_membership(membership)?),
    };
    let id = entry.id.ok_or(Malformed::Missing("entry.id"))?;
    Ok(Entry { log_id: decode_log_id(id), payload })
}

fn encode_membership(membership: &Membership) -> proto::Membership {
    let voters =
        |ids: &std::collections::BTreeSet<u64>| Voters { ids: ids.iter().copied().collect() };
    proto::Membership {
        configs: membership.get_joint_config().iter().map(voters).collect(),
        addresses: membership.nodes().map(|(id, node)| (*id, node.addr.clone())).collect(),
    }
}

fn decode_membership(membership: proto::Membership) -> Result<Membership, Malformed> {
    let configs =
        membership.configs.into_iter().map(|voters| voters.ids.into_iter().collect()).collect();
    let nodes: BTreeMap<u64, BasicNode> =
        membership.addresses.into_iter().map(|(id, addr)| (id, BasicNode { addr })).collect();
    Membership::new(configs, nodes).map_err(|_| Malformed::Invalid {
        field: "membership",
        problem: "without a voter's address",
    })
}

fn stored_membership(membership: &StoredMembership) -> proto::StoredMembership {
    proto::StoredMembership {
        id: membership.log_id().map(encode_log_id),
        membership: Some(encode_membership(membership.membership())),
    }
}

fn from_stored_membership(stored: proto::StoredMembership) -> Result<StoredMembership, Malformed> {
    let Some(id) = stored.id else { return Ok(StoredMembership::default()) };
    let membership = stored.membership.ok_or(Malformed::Missing("membership"))?;
    Ok(StoredMembership::new(Some(decode_log_id(id)), decode_membership(membership)?))
}
