//! The peer: three members of etcd with its default timeouts, and a client of it that is as light as ours.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    net::TcpListener,
    path::Path,
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use anyhow::Context as _;
use tempfile::TempDir;
use tonic::{
    Request, Status,
    client::Grpc,
    codegen::http::uri::PathAndQuery,
    transport::{Channel, Endpoint},
};
use tonic_prost::ProstCodec;

use super::{
    process::{Member, Memory},
    wait_until,
};

const MEMBERS: u64 = 3;
const START_DEADLINE: Duration = Duration::from_secs(30);
const STATUS_DEADLINE: Duration = Duration::from_millis(500);
/// A member that lacks no more entries than this follows closely.
const CAUGHT_UP: u64 = 100;

/// The part of `rpc.proto` that is needed.
mod wire {
    #[derive(Clone, PartialEq, prost::Message)]
    pub struct PutRequest {
        #[prost(bytes = "bytes", tag = "1")]
        pub key: bytes::Bytes,
        #[prost(bytes = "bytes", tag = "2")]
        pub value: bytes::Bytes,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct PutResponse {
        #[prost(message, optional, tag = "1")]
        pub header: Option<ResponseHeader>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct ResponseHeader {
        #[prost(uint64, tag = "2")]
        pub member_id: u64,
        #[prost(int64, tag = "3")]
        pub revision: i64,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct StatusRequest {}

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct StatusResponse {
        #[prost(message, optional, tag = "1")]
        pub header: Option<ResponseHeader>,
        #[prost(uint64, tag = "4")]
        pub leader: u64,
        #[prost(uint64, tag = "7")]
        pub applied: u64,
    }
}

pub fn version() -> Option<String> {
    let output = Command::new("etcd").arg("--version").stdin(Stdio::null()).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines().next().map(str::to_owned)
}

pub fn is_installed() -> bool {
    version().is_some()
}

#[derive(Debug)]
pub struct Etcd {
    members: BTreeMap<u64, Node>,
    /// Removed after the processes have ended.
    _place: TempDir,
}

#[derive(Debug)]
struct Node {
    member: Member,
    url: String,
}

impl Etcd {
    pub async fn start(root: &Path) -> anyhow::Result<Etcd> {
        let place = tempfile::Builder::new()
            .prefix("etcd-")
            .tempdir_in(root)
            .with_context(|| format!("cannot make a directory in {}", root.display()))?;
        let urls = free_urls(2 * MEMBERS as usize)?;
        let cluster: Vec<String> =
            (1..=MEMBERS).map(|id| format!("m{id}={}", urls[2 * id as usize - 1])).collect();
        let mut etcd = Etcd { members: BTreeMap::new(), _place: place };
        for id in 1..=MEMBERS {
            let (url, peer) = (&urls[2 * id as usize - 2], &urls[2 * id as usize - 1]);
            let words = words(id, url, peer, &cluster.join(","), etcd._place.path());
            let log = etcd._place.path().join(format!("m{id}.log"));
            let node = Node { member: Member::start(words, log)?, url: url.clone() };
            etcd.members.insert(id, node);
        }
        for id in 1..=MEMBERS {
            etcd.wait_until_caught_up(id).await?;
        }
        Ok(etcd)
    }

    /// Asks the members one after the other, beginning with `first`: its connection is its own.
    pub fn client(&self, first: u64, patience: Duration) -> anyhow::Result<EtcdClient> {
        let rest = self.members.iter().filter(|(id, _)| **id != first);
        let all = self.members.get_key_value(&first).into_iter().chain(rest);
        let channels = all
            .map(|(_, node)| {
                Ok(Endpoint::from_shared(node.url.clone())?.tcp_nodelay(true).connect_lazy())
            })
            .collect::<anyhow::Result<Vec<Channel>>>()?;
        Ok(EtcdClient { channels: Arc::new(channels), at: Arc::default(), patience })
    }

    pub fn ids(&self) -> Vec<u64> {
        self.members.keys().copied().collect()
    }

    pub fn member(&mut self, id: u64) -> anyhow::Result<&mut Member> {
        let node = self.members.get_mut(&id);
        Ok(&mut node.with_context(|| format!("etcd member {id} is not ours"))?.member)
    }

    pub async fn leader(&self) -> anyhow::Result<u64> {
        let mut leader = None;
        wait_until("a leader of etcd", START_DEADLINE, async || {
            for id in self.ids() {
                if let Ok(status) = self.status(id).await
                    && status.header.is_some_and(|header| header.member_id == status.leader)
                {
                    leader = Some(id);
                }
            }
            leader.is_some()
        })
        .await?;
        leader.context("no leader of etcd")
    }

    pub async fn wait_until_caught_up(&self, id: u64) -> anyhow::Result<()> {
        let what = format!("etcd member {id} catches up");
        wait_until(&what, START_DEADLINE, async || {
            let Ok(mine) = self.status(id).await else { return false };
            let mut most = 0;
            for other in self.ids() {
                if let Ok(theirs) = self.status(other).await {
                    most = most.max(theirs.applied);
                }
            }
            mine.leader != 0 && mine.applied + CAUGHT_UP >= most
        })
        .await
    }

    pub fn memory(&self) -> anyhow::Result<Vec<Memory>> {
        self.members.values().map(|node| node.member.memory()).collect()
    }

    async fn status(&self, id: u64) -> anyhow::Result<wire::StatusResponse> {
        let client = self.client(id, STATUS_DEADLINE)?;
        Ok(client.unary("/etcdserverpb.Maintenance/Status", wire::StatusRequest {}).await?)
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        for node in self.members.values_mut() {
            node.member.kill();
        }
    }
}

fn words(id: u64, url: &str, peer: &str, cluster: &str, dir: &Path) -> Vec<OsString> {
    let flags = [
        ("--name", format!("m{id}")),
        ("--data-dir", dir.join(format!("m{id}")).display().to_string()),
        ("--listen-client-urls", url.to_owned()),
        ("--advertise-client-urls", url.to_owned()),
        ("--listen-peer-urls", peer.to_owned()),
        ("--initial-advertise-peer-urls", peer.to_owned()),
        ("--initial-cluster", cluster.to_owned()),
        ("--initial-cluster-token", format!("bench-{}", std::process::id())),
        ("--initial-cluster-state", String::from("new")),
        ("--logger", String::from("zap")),
        ("--log-level", String::from("warn")),
        // The default of 2 GiB is soon full of puts, and then none are taken.
        ("--quota-backend-bytes", String::from("8589934592")),
    ];
    let flags = flags.into_iter().flat_map(|(flag, value)| [flag.into(), value.into()]);
    [OsString::from("etcd")].into_iter().chain(flags).collect()
}

/// All are held until all are found, so that none is found twice.
fn free_urls(count: usize) -> anyhow::Result<Vec<String>> {
    let held: Vec<TcpListener> = (0..count)
        .map(|_| TcpListener::bind("127.0.0.1:0").context("no free port on 127.0.0.1"))
        .collect::<anyhow::Result<_>>()?;
    held.iter().map(|port| Ok(format!("http://{}", port.local_addr()?))).collect()
}

/// Clones ask over the same connections.
#[derive(Clone, Debug)]
pub struct EtcdClient {
    channels: Arc<Vec<Channel>>,
    at: Arc<AtomicUsize>,
    /// How long one try may take.
    patience: Duration,
}

impl EtcdClient {
    /// One try.
    pub async fn put(&self, key: &str, value: bytes::Bytes) -> Result<(), Status> {
        let key = bytes::Bytes::copy_from_slice(key.as_bytes());
        let request = wire::PutRequest { key, value };
        let _: wire::PutResponse = self.unary("/etcdserverpb.KV/Put", request).await?;
        Ok(())
    }

    /// From now on the next member is asked.
    pub fn turn_to_next(&self) {
        self.at.fetch_add(1, Ordering::Relaxed);
    }

    async fn unary<Q, A>(&self, path: &'static str, question: Q) -> Result<A, Status>
    where
        Q: prost::Message + Send + Sync + 'static,
        A: prost::Message + Default + Send + Sync + 'static,
    {
        let at = self.at.load(Ordering::Relaxed) % self.channels.len();
        let call = async {
            let mut grpc = Grpc::new(self.channels[at].clone());
            grpc.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
            let path = PathAndQuery::from_static(path);
            grpc.unary(Request::new(question), path, ProstCodec::default()).await
        };
        let answer = tokio::time::timeout(self.patience, call).await;
        let answer = answer.map_err(|_| Status::deadline_exceeded("no answer in time"))??;
        Ok(answer.into_inner())
    }
}
