//! How this controller answers its peers.

use std::{path::Path, pin::Pin, sync::Arc, time::Duration};

use futures::{Stream, StreamExt as _};
use tonic::{Request, Response, Status, Streaming};

use crate::model::lineage::Kinship;
use crate::raft::{
    NodeId,
    dismissal::{Dismissal, Verdict},
    failure_detector::FailureDetector,
    log_storage::LogStorage,
    network::{Identity, kinship, sender},
    state_machine::StateMachine,
    types::{Core, Snapshot},
    wire,
};
use crate::rpc::{
    convert::Malformed,
    proto::{
        self, AppendRequest, AppendResponse, HandOverRequest, HandOverResponse, JoinRequest,
        JoinResponse, ProbeRequest, ProbeResponse, SnapshotPiece, VoteRequest, VoteResponse,
        peer_server::Peer, snapshot_piece::Piece,
    },
};
use crate::state::FEATURE_LEVEL;
use crate::store::{self, DataDir, piece::Joiner};

#[derive(Clone)]
pub struct PeerService {
    pub identity: Identity,
    pub dir: Arc<DataDir>,
    pub log: LogStorage,
    pub state_machine: StateMachine,
    pub core: Core,
    pub dismissal: Dismissal,
    pub failure_detector: FailureDetector,
}

/// How long a sender may take from one piece of a snapshot to the next.
const PIECE_PATIENCE: Duration = Duration::from_secs(60);

type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

impl PeerService {
    /// Takes the message of a member of the same cluster.
    fn admit<T>(&self, request: Request<T>) -> Result<T, Status> {
        let metadata = request.metadata();
        self.identity.check(metadata)?;
        let own = self.dir.cluster_id();
        let (kinship, theirs) = kinship(metadata, own.as_deref())?;
        let (sender, own) = (sender(metadata), own.unwrap_or_default());
        match kinship {
            Kinship::Same if self.state_machine.shared().was_removed(sender) => {
                return Err(Verdict::Removed.refuse(sender, &own));
            }
            Kinship::Same => {}
            Kinship::Older => return Err(Verdict::LeftBehind(own.clone()).refuse(sender, &own)),
            Kinship::Newer => {
                self.dismissal.carry_out(&Verdict::LeftBehind(theirs.to_owned()));
                return Err(Status::unavailable("this controller was left behind and ends"));
            }
            Kinship::Rival => {
                return Err(Status::failed_precondition(format!(
                    "cluster {own} was recovered twice, the other time as {theirs}: keep one of the two, and start the controllers of the other with empty directories"
                )));
            }
            Kinship::Stranger => {
                return Err(Status::failed_precondition(format!(
                    "this controller belongs to cluster {own}, the caller to cluster {theirs}"
                )));
            }
        }
        Ok(request.into_inner())
    }

    fn voters(&self) -> Vec<NodeId> {
        self.core.voter_ids().collect()
    }

    fn is_empty(&self) -> bool {
        self.log.is_empty() && self.state_machine.shared().stored().applied.is_none()
    }

    async fn receive(
        &self,
        pieces: &mut Streaming<SnapshotPiece>,
        file: &Path,
    ) -> Result<(), Status> {
        let mut joiner = Joiner::create(file)?;
        loop {
            let message = tokio::time::timeout(PIECE_PATIENCE, pieces.message()).await;
            let message =
                message.map_err(|_| Status::deadline_exceeded("the sender stalled"))??;
            let piece = message.and_then(|message| message.piece);
            match piece.ok_or_else(|| Status::data_loss("the snapshot is not complete"))? {
                Piece::Header(_) => return Err(Status::invalid_argument("a second header")),
                Piece::Data(data) => {
                    joiner = blocking(move || {
                        joiner.add(&data)?;
                        Ok(joiner)
                    })
                    .await?;
                }
                Piece::End(end) => {
                    return blocking(move || joiner.finish(end.length, &end.hash)).await;
                }
            }
        }
    }

    async fn install(
        &self,
        pieces: &mut Streaming<SnapshotPiece>,
        file: &Path,
    ) -> Result<proto::SnapshotResponse, Status> {
        let Some(Piece::Header(header)) = pieces.message().await?.and_then(|first| first.piece)
        else {
            return Err(Status::invalid_argument("a snapshot begins with its header"));
        };
        let (vote, meta) = wire::decode_header(header).map_err(invalid)?;
        self.receive(pieces, file).await?;
        let path = file.to_owned();
        let snapshot = blocking(move || Ok(store::Snapshot::received(path)?)).await?;
        if snapshot.applied().cluster_id != self.dir.cluster_id() {
            return Err(Status::failed_precondition("the snapshot is another cluster's"));
        }
        if snapshot.applied().position.map(wire::from_position) != meta.last_log_id {
            return Err(Status::invalid_argument("the snapshot is not the one that was announced"));
        }
        let installed = self.core.install_full_snapshot(vote, Snapshot { meta, snapshot }).await;
        let answer = installed.map_err(stopped)?;
        Ok(proto::SnapshotResponse { vote: Some(wire::encode_vote(&answer.vote)) })
    }
}

#[tonic::async_trait]
impl Peer for PeerService {
    async fn probe(
        &self,
        request: Request<ProbeRequest>,
    ) -> Result<Response<ProbeResponse>, Status> {
        self.identity.check(request.metadata())?;
        let own = self.dir.cluster_id();
        if let Ok((Kinship::Newer, theirs)) = kinship(request.metadata(), own.as_deref()) {
            self.dismissal.carry_out(&Verdict::LeftBehind(theirs.to_owned()));
        }
        Ok(Response::new(ProbeResponse {
            id: self.identity.id,
            cluster_id: self.dir.cluster_id().unwrap_or_default(),
            empty: self.is_empty(),
            voters: self.voters(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            feature_level: FEATURE_LEVEL,
            sender_removed: self.state_machine.shared().was_removed(sender(request.metadata())),
        }))
    }

    async fn join(&self, request: Request<JoinRequest>) -> Result<Response<JoinResponse>, Status> {
        self.identity.check(request.metadata())?;
        let JoinRequest { cluster_id } = request.into_inner();
        if self.dir.cluster_id().as_deref() != Some(&cluster_id) && !self.is_empty() {
            return Err(Status::failed_precondition("this controller is not empty"));
        }
        let dir = self.dir.clone();
        let joined = tokio::task::spawn_blocking(move || dir.join(&cluster_id)).await;
        joined
            .map_err(|_| Status::unavailable("this controller is shutting down"))?
            .map_err(|error| Status::failed_precondition(error.to_string()))?;
        Ok(Response::new(JoinResponse {}))
    }

    async fn request_vote(
        &self,
        request: Request<VoteRequest>,
    ) -> Result<Response<VoteResponse>, Status> {
        let vote = wire::decode_vote_request(self.admit(request)?).map_err(invalid)?;
        let answer = self.core.vote(vote).await.map_err(stopped)?;
        Ok(Response::new(wire::encode_vote_response(&answer)))
    }

    async fn request_pre_vote(
        &self,
        request: Request<VoteRequest>,
    ) -> Result<Response<VoteResponse>, Status> {
        let vote = wire::decode_vote_request(self.admit(request)?).map_err(invalid)?;
        let answer = self.core.pre_vote(vote).await.map_err(stopped)?;
        Ok(Response::new(wire::encode_vote_response(&answer)))
    }

    type AppendStream = Answers<AppendResponse>;

    async fn append(
        &self,
        request: Request<Streaming<AppendRequest>>,
    ) -> Result<Response<Self::AppendStream>, Status> {
        let (leader, failures) = (sender(request.metadata()), self.failure_detector.clone());
        let requests = self.admit(request)?;
        // A broken or malformed message ends the stream: what comes after it must not be taken out of order.
        let entries = requests
            .inspect(move |request| {
                if request.is_err() {
                    failures.suspect(leader);
                }
            })
            .map(|request| wire::decode_append(request.ok()?).ok())
            .take_while(|request| std::future::ready(request.is_some()))
            .filter_map(std::future::ready);
        let answers = self
            .core
            .stream_append(entries)
            .map(|answer| answer.map(wire::encode_append_result).map_err(stopped));
        Ok(Response::new(Box::pin(answers)))
    }

    async fn install_snapshot(
        &self,
        request: Request<Streaming<SnapshotPiece>>,
    ) -> Result<Response<proto::SnapshotResponse>, Status> {
        let mut pieces = self.admit(request)?;
        let file = self.state_machine.incoming();
        let installed = self.install(&mut pieces, &file).await;
        // What was installed has been moved away; what is left is of no use.
        let _ = std::fs::remove_file(&file);
        installed.map(Response::new)
    }

    async fn hand_over(
        &self,
        request: Request<HandOverRequest>,
    ) -> Result<Response<HandOverResponse>, Status> {
        let hand_over = wire::decode_hand_over(self.admit(request)?).map_err(invalid)?;
        let answer = self.core.handle_transfer_leader(hand_over).await.map_err(stopped)?;
        let refusal = answer.err().map(|refusal| refusal.to_string());
        Ok(Response::new(HandOverResponse { refusal }))
    }
}

fn invalid(fault: Malformed) -> Status {
    Status::invalid_argument(fault.to_string())
}

fn stopped(error: impl std::fmt::Display) -> Status {
    Status::unavailable(error.to_string())
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> std::io::Result<T> + Send + 'static,
) -> Result<T, Status> {
    let done = tokio::task::spawn_blocking(work).await;
    Ok(done.map_err(|_| Status::unavailable("this controller is shutting down"))??)
}
