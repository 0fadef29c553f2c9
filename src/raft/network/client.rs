//! How this controller speaks to another one.

use std::{
    collections::BTreeMap,
    future::Future,
    path::PathBuf,
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use futures::{Stream, StreamExt as _, stream};
use openraft::{
    AnyError, BasicNode, OptionalSend,
    base::{BoxFuture, BoxStream},
    errors::{NetworkError, RPCError, ReplicationClosed, StreamingError, Unreachable},
    network::{RPCOption, RaftNetworkFactory, RaftNetworkV2},
    raft::{
        AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, StreamAppendResult,
        TransferLeaderRequest, TransferLeaderResponse, VoteRequest, VoteResponse,
    },
};
use rand::RngExt as _;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{
    Code, Request, Status,
    transport::{Channel, Endpoint},
};

use crate::raft::{
    NodeId,
    dismissal::Dismissal,
    network::Identity,
    types::{Snapshot, Types, Vote},
    wire,
};
use crate::rpc::{
    convert::Malformed,
    proto::{
        JoinRequest, ProbeRequest, ProbeResponse, SnapshotPiece,
        peer_client::PeerClient,
        snapshot_piece::{End, Piece},
    },
};
use crate::store::{self, DataDir, piece::Cutter};

/// Makes the connections that openraft asks for: to each peer one for entries and votes, one for heartbeats and one for
/// snapshots, so that none of them waits behind another.
#[derive(Clone)]
pub struct Network {
    identity: Identity,
    dir: Arc<DataDir>,
    connect_timeout: Duration,
    book: AddressBook,
    dismissal: Dismissal,
}

/// Where each member is reached now. openraft keeps its connections when only an address changes.
#[derive(Clone, Debug, Default)]
pub struct AddressBook(Arc<RwLock<BTreeMap<NodeId, String>>>);

/// One connection to one peer.
#[derive(Clone)]
pub struct Peer {
    id: NodeId,
    client: PeerClient<Channel>,
    network: Network,
    /// Set: goes wherever the member moves.
    follows: Option<String>,
    /// Streams in a row that could not be opened.
    failures: u32,
}

/// Why a peer gave no answer, in one line.
#[derive(Debug, thiserror::Error)]
pub enum PeerError {
    #[error("{0}")]
    Address(String),
    #[error("{}", .0.message())]
    Refused(Status),
    #[error("no answer: {}", .0.message())]
    Unreachable(Status),
}

/// Entries of one message; a batch alone may be larger than what is sent at most at one time.
const MAX_MESSAGE: usize = 256 << 20;
/// Between two tries to reach a peer for entries.
const FIRST_REST: Duration = Duration::from_millis(10);
const LONGEST_REST: Duration = Duration::from_millis(250);
/// Pieces of a snapshot that wait for the network.
const PIECES_AHEAD: usize = 4;

impl Network {
    pub fn new(
        identity: Identity,
        dir: Arc<DataDir>,
        connect_timeout: Duration,
        book: AddressBook,
        dismissal: Dismissal,
    ) -> Self {
        Network { identity, dir, connect_timeout, book, dismissal }
    }

    /// A peer at an address that may turn out to be wrong, or another's.
    ///
    /// # Errors
    /// When it is no address at all.
    pub fn peer(&self, id: NodeId, address: &str) -> Result<Peer, PeerError> {
        let endpoint = Endpoint::from_shared(format!("http://{address}")).map_err(|_| {
            PeerError::Address(format!("`{address}` is not an address (such as host:7070)"))
        })?;
        Ok(Peer {
            id,
            client: self.connect(endpoint),
            network: self.clone(),
            follows: None,
            failures: 0,
        })
    }

    fn connect(&self, endpoint: Endpoint) -> PeerClient<Channel> {
        let channel = endpoint
            .tcp_nodelay(true)
            .connect_timeout(self.connect_timeout)
            .http2_keep_alive_interval(Duration::from_secs(1))
            .keep_alive_timeout(Duration::from_secs(2))
            .keep_alive_while_idle(true)
            .connect_lazy();
        PeerClient::new(channel)
            .max_decoding_message_size(MAX_MESSAGE)
            .max_encoding_message_size(MAX_MESSAGE)
    }
}

impl AddressBook {
    pub fn update(&self, addresses: impl Iterator<Item = (NodeId, String)>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = addresses.collect();
    }

    /// Where the member is, unless it is at `known`.
    fn moved(&self, id: NodeId, known: &str) -> Option<String> {
        let book = self.0.read().unwrap_or_else(PoisonError::into_inner);
        book.get(&id).filter(|address| *address != known).cloned()
    }
}

impl RaftNetworkFactory<Types> for Network {
    type Network = Peer;

    async fn new_client(&mut self, target: NodeId, node: &BasicNode) -> Peer {
        let client = self.connect(endpoint(&node.addr));
        Peer {
            id: target,
            client,
            network: self.clone(),
            follows: Some(node.addr.clone()),
            failures: 0,
        }
    }
}

/// Addresses are checked before they enter the membership; one that is none is never reached.
fn endpoint(address: &str) -> Endpoint {
    let nowhere = Endpoint::from_static("http://0.0.0.0:0");
    Endpoint::from_shared(format!("http://{address}")).unwrap_or(nowhere)
}

impl Peer {
    /// Who is there?
    ///
    /// # Errors
    /// When nobody answers, or another than was asked.
    pub async fn probe(&mut self, patience: Duration) -> Result<ProbeResponse, PeerError> {
        let request = within(patience, self.request(ProbeRequest {}));
        Ok(self.client.probe(request).await.map_err(PeerError::of)?.into_inner())
    }

    /// Lets an empty controller into the cluster.
    ///
    /// # Errors
    /// When it does not answer, is not empty, or belongs to another one.
    pub async fn join(&mut self, cluster_id: &str, patience: Duration) -> Result<(), PeerError> {
        let join = JoinRequest { cluster_id: cluster_id.to_owned() };
        let request = within(patience, self.request(join));
        self.client.join(request).await.map_err(PeerError::of)?;
        Ok(())
    }

    /// Dials anew when the member has moved.
    fn follow(&mut self) {
        let Some(known) = &self.follows else { return };
        if let Some(address) = self.network.book.moved(self.id, known) {
            self.client = self.network.connect(endpoint(&address));
            self.follows = Some(address);
        }
    }

    fn failed(&self, status: Status) -> RPCError<Types> {
        self.network.dismissal.heed(&status);
        failed(status)
    }

    fn request<T>(&self, message: T) -> Request<T> {
        let cluster_id = self.network.dir.cluster_id().unwrap_or_default();
        self.network.identity.address(message, self.id, &cluster_id)
    }

    /// openraft's own pauses are in the stream of entries, which nobody reads while there is no connection: without this
    /// it would try thousands of times a second.
    async fn rest(&mut self) {
        let longest = LONGEST_REST.min(FIRST_REST * 2_u32.saturating_pow(self.failures));
        self.failures = self.failures.saturating_add(1);
        let length = longest.mul_f64(rand::rng().random_range(0.5..1.0));
        tokio::time::sleep(length).await;
    }

    async fn open_append<S>(
        &mut self,
        input: S,
        patience: Duration,
    ) -> Result<
        impl Stream<Item = Result<StreamAppendResult<Types>, RPCError<Types>>> + Send + use<S>,
        RPCError<Types>,
    >
    where
        S: Stream<Item = AppendEntriesRequest<Types>> + Send + 'static,
    {
        self.follow();
        let request = self.request(input.map(|request| wire::encode_append(&request)));
        let opened = tokio::time::timeout(patience, self.client.append(request)).await;
        let opened = opened.map_err(|_| unreachable("no answer in time"))?;
        let answers = opened.map_err(|status| self.failed(status))?;
        Ok(answers.into_inner().map(|answer| {
            answer.map_err(failed).and_then(|it| wire::decode_append_result(it).map_err(malformed))
        }))
    }

    async fn send_snapshot(
        &mut self,
        vote: &Vote,
        snapshot: Snapshot,
    ) -> Result<SnapshotResponse<Types>, StreamingError<Types>> {
        self.follow();
        let header = Piece::Header(wire::encode_header(vote, &snapshot.meta));
        let (sender, pieces) = mpsc::channel(PIECES_AHEAD);
        let file = outgoing(&self.network.dir, self.id);
        let cut = tokio::task::spawn_blocking(move || {
            let cut = cut(snapshot.snapshot, &file, &sender);
            let _ = std::fs::remove_file(&file);
            cut
        });
        let header = stream::iter([SnapshotPiece { piece: Some(header) }]);
        let request = self.request(header.chain(ReceiverStream::new(pieces)));
        let answer = self.client.install_snapshot(request).await;
        if let Ok(Err(error)) = cut.await {
            return Err(StreamingError::Network(NetworkError::from_string(error.to_string())));
        }
        let answer =
            answer.map_err(|status| StreamingError::from(self.failed(status)))?.into_inner();
        let vote =
            wire::decode_vote(answer.vote).map_err(|it| StreamingError::from(malformed(it)))?;
        Ok(SnapshotResponse::new(vote))
    }
}

impl RaftNetworkV2<Types> for Peer {
    type SnapshotData = store::Snapshot;

    async fn append_entries(
        &mut self,
        request: AppendEntriesRequest<Types>,
        option: RPCOption,
    ) -> Result<AppendEntriesResponse<Types>, RPCError<Types>> {
        let patience = option.soft_ttl();
        let answers = self.open_append(stream::iter([request]), patience).await?;
        let mut answers = std::pin::pin!(answers);
        let answer = tokio::time::timeout(patience, answers.next()).await;
        match answer.map_err(|_| unreachable("no answer in time"))? {
            Some(answer) => answer.map(AppendEntriesResponse::from),
            None => Err(unreachable("the peer hung up")),
        }
    }

    fn stream_append<'s, S>(
        &'s mut self,
        input: S,
        option: RPCOption,
    ) -> BoxFuture<
        's,
        Result<BoxStream<'s, Result<StreamAppendResult<Types>, RPCError<Types>>>, RPCError<Types>>,
    >
    where
        S: Stream<Item = AppendEntriesRequest<Types>> + OptionalSend + Unpin + 'static,
    {
        Box::pin(async move {
            // Time for a connection to be made anew, even where heartbeats are close together.
            let patience = option.soft_ttl().max(self.network.connect_timeout);
            match self.open_append(input, patience).await {
                Ok(answers) => {
                    self.failures = 0;
                    let answers: BoxStream<'s, _> = Box::pin(answers);
                    Ok(answers)
                }
                Err(error) => {
                    self.rest().await;
                    Err(error)
                }
            }
        })
    }

    async fn vote(
        &mut self,
        request: VoteRequest<Types>,
        option: RPCOption,
    ) -> Result<VoteResponse<Types>, RPCError<Types>> {
        let request = within(option.soft_ttl(), self.request(wire::encode_vote_request(&request)));
        let answer = self.client.request_vote(request).await;
        let answer = answer.map_err(|status| self.failed(status))?;
        wire::decode_vote_response(answer.into_inner()).map_err(malformed)
    }

    async fn pre_vote(
        &mut self,
        request: VoteRequest<Types>,
        option: RPCOption,
    ) -> Result<VoteResponse<Types>, RPCError<Types>> {
        let request = within(option.soft_ttl(), self.request(wire::encode_vote_request(&request)));
        let answer = self.client.request_pre_vote(request).await;
        let answer = answer.map_err(|status| self.failed(status))?;
        wire::decode_vote_response(answer.into_inner()).map_err(malformed)
    }

    async fn full_snapshot(
        &mut self,
        vote: Vote,
        snapshot: Snapshot,
        cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        _option: RPCOption,
    ) -> Result<SnapshotResponse<Types>, StreamingError<Types>> {
        tokio::select! {
            closed = cancel => Err(StreamingError::Closed(closed)),
            sent = self.send_snapshot(&vote, snapshot) => sent,
        }
    }

    async fn transfer_leader(
        &mut self,
        request: TransferLeaderRequest<Types>,
        option: RPCOption,
    ) -> Result<TransferLeaderResponse<Types>, RPCError<Types>> {
        self.follow();
        let request = within(option.soft_ttl(), self.request(wire::encode_hand_over(&request)));
        let answer = self.client.hand_over(request).await;
        let answer = answer.map_err(|status| self.failed(status))?.into_inner();
        match answer.refusal {
            None => Ok(Ok(())),
            Some(refusal) => Err(unreachable(&refusal)),
        }
    }
}

impl PeerError {
    fn of(status: Status) -> Self {
        match status.code() {
            Code::FailedPrecondition | Code::Unauthenticated | Code::PermissionDenied => {
                PeerError::Refused(status)
            }
            _ => PeerError::Unreachable(status),
        }
    }
}

/// Copies the snapshot to a file of its own, so that the database is not held up by a slow network.
fn cut(
    snapshot: store::Snapshot,
    file: &std::path::Path,
    sender: &mpsc::Sender<SnapshotPiece>,
) -> anyhow::Result<()> {
    snapshot.write_to(file)?;
    let mut cutter = Cutter::open(file)?;
    while let Some(data) = cutter.cut()? {
        sender.blocking_send(SnapshotPiece { piece: Some(Piece::Data(data)) })?;
    }
    let (length, hash) = cutter.end();
    let end = End { length, hash: hash.to_vec().into() };
    sender.blocking_send(SnapshotPiece { piece: Some(Piece::End(end)) })?;
    Ok(())
}

fn outgoing(dir: &DataDir, to: NodeId) -> PathBuf {
    dir.path().join(format!("incoming-for-{to}-{}.db", uuid::Uuid::new_v4()))
}

fn within<T>(patience: Duration, mut request: Request<T>) -> Request<T> {
    request.set_timeout(patience);
    request
}

fn failed(status: Status) -> RPCError<Types> {
    match status.code() {
        Code::Unavailable | Code::FailedPrecondition | Code::Unauthenticated => {
            unreachable(status.message())
        }
        _ => RPCError::Network(NetworkError::from_string(status.message())),
    }
}

fn malformed(fault: Malformed) -> RPCError<Types> {
    RPCError::Network(NetworkError::from_string(fault.to_string()))
}

fn unreachable(why: &str) -> RPCError<Types> {
    RPCError::Unreachable(Unreachable::new(&AnyError::error(why)))
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;
    use tokio::time::Instant;

    use super::*;
    use crate::raft::watchdog::Alarm;

    #[tokio::test]
    async fn a_peer_that_is_gone_is_not_tried_all_the_time() {
        let root = TempDir::new().unwrap();
        let dir = Arc::new(DataDir::open(root.path(), 1).unwrap());
        let network = Network::new(
            Identity { id: 1, token: None },
            dir.clone(),
            Duration::from_secs(1),
            AddressBook::default(),
            Dismissal { id: 1, dir, alarm: Alarm::new(Arc::new(|_| {})) },
        );
        // Nobody listens on port 1.
        let mut peer = network.peer(2, "127.0.0.1:1").unwrap();
        let began = Instant::now();
        for _ in 0..6 {
            let option = RPCOption::new(Duration::from_millis(60));
            assert!(peer.stream_append(stream::empty(), option).await.is_err());
        }
        assert!(began.elapsed() >= Duration::from_millis(250), "{:?}", began.elapsed());
    }
}
