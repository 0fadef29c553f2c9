//! The controller's flags, checked.

use std::{collections::BTreeMap, net::SocketAddr, path::PathBuf};

use anyhow::{Context as _, bail, ensure};
use clap::Args;

use crate::controller::lease::Lease;
use crate::model::Millis;
use crate::telemetry::LogFormat;

/// Flags of `drigs-controller`.
#[derive(Args, Clone, Debug)]
pub struct ControllerArgs {
    /// This controller's number in --peers
    #[arg(long, env = "DRIGS_ID", default_value_t = 1)]
    pub id: u64,
    /// All controllers of a new cluster, the same on each: 1=host:7070,2=host:7070,3=host:7070. One that is to be added
    /// names the present ones and itself. A started cluster keeps its own list
    #[arg(long, env = "DRIGS_PEERS")]
    pub peers: Option<String>,
    /// Where the log and the state are kept
    #[arg(long, env = "DRIGS_DATA_DIR", default_value = "drigs-data/controller")]
    pub data_dir: PathBuf,
    /// Where clients, workers and peers connect (gRPC)
    #[arg(long, env = "DRIGS_LISTEN", default_value = "127.0.0.1:7070")]
    pub listen: SocketAddr,
    /// Where /metrics and /v1/health are served
    #[arg(long, env = "DRIGS_HTTP", default_value = "127.0.0.1:8000")]
    pub http: SocketAddr,
    /// The secret that everyone who connects must present
    #[arg(long, env = "DRIGS_TOKEN", hide_env_values = true, conflicts_with = "token_file")]
    pub token: Option<String>,
    /// A file with that secret
    #[arg(long, env = "DRIGS_TOKEN_FILE")]
    pub token_file: Option<PathBuf>,
    /// Accept anyone who can reach the port
    #[arg(long, env = "DRIGS_INSECURE", value_parser = clap::builder::BoolishValueParser::new())]
    pub insecure: bool,
    /// How long a silent worker is trusted; every other lease follows from it
    #[arg(long, env = "DRIGS_LEASE", default_value = "20s", value_parser = parse_length)]
    pub lease: Millis,
    /// How often the leader shows the others that it lives
    #[arg(long, env = "DRIGS_HEARTBEAT", default_value = "60ms", value_parser = parse_length)]
    pub heartbeat: Millis,
    /// How long a follower waits at least before it stands for election
    #[arg(long, env = "DRIGS_ELECTION_MIN", default_value = "200ms", value_parser = parse_length)]
    pub election_min: Millis,
    /// … and at most
    #[arg(long, env = "DRIGS_ELECTION_MAX", default_value = "400ms", value_parser = parse_length)]
    pub election_max: Millis,
    /// How many snapshots of the state are kept in DATA_DIR/snapshots, as backups; 0 for none
    #[arg(long, env = "DRIGS_KEEP_SNAPSHOTS", value_name = "N", default_value_t = 3)]
    pub keep_snapshots: usize,
    /// How often one is taken
    #[arg(long, env = "DRIGS_SNAPSHOT_EVERY", value_name = "TIME", default_value = "1h", value_parser = parse_length)]
    pub snapshot_every: Millis,
    /// How log lines look
    #[arg(long, env = "DRIGS_LOG_FORMAT", value_enum, default_value_t)]
    pub log_format: LogFormat,
}

/// What a controller needs to know before it starts.
#[derive(Clone, Debug)]
pub struct Config {
    pub id: u64,
    pub peers: BTreeMap<u64, String>,
    pub data_dir: PathBuf,
    pub listen: SocketAddr,
    pub http: SocketAddr,
    pub token: Option<String>,
    pub lease: Lease,
    pub heartbeat: Millis,
    pub election_min: Millis,
    pub election_max: Millis,
    pub keep_snapshots: usize,
    pub snapshot_every: Millis,
}

impl ControllerArgs {
    /// # Errors
    /// Says which flag is wrong and what would be right.
    pub fn check(self) -> anyhow::Result<Config> {
        let token = self.read_token()?;
        ensure!(
            token.is_some() || self.insecure || self.listen.ip().is_loopback(),
            "--listen {} is reachable from other machines: give a --token-file, or say --insecure to let anyone in",
            self.listen
        );
        ensure!(
            self.lease >= Millis::from_secs(1) && self.lease <= Millis::from_hours(1),
            "--lease {} is out of range: 1s to 1h",
            self.lease
        );
        ensure!(
            self.heartbeat.0 >= 10
                && self.election_min.0 >= 2 * self.heartbeat.0
                && self.election_max > self.election_min,
            "timings do not fit: --heartbeat (at least 10ms) x 2 <= --election-min < --election-max"
        );
        ensure!(
            self.election_max.0 * 4 <= self.lease.0,
            "--election-max {} is too long for --lease {}: at most a quarter of it",
            self.election_max,
            self.lease
        );
        ensure!(
            self.snapshot_every >= Millis::from_secs(1) && self.keep_snapshots <= 10_000,
            "--snapshot-every {} and --keep-snapshots {} are out of range: at least 1s, at most 10000",
            self.snapshot_every,
            self.keep_snapshots
        );
        let peers = match &self.peers {
            Some(text) => parse_peers(text).with_context(|| format!("--peers {text}"))?,
            None => BTreeMap::from([(self.id, self.listen.to_string())]),
        };
        ensure!(
            peers.contains_key(&self.id),
            "--id {} is not among --peers {}",
            self.id,
            self.peers.as_deref().unwrap_or_default()
        );
        Ok(Config {
            id: self.id,
            peers,
            data_dir: self.data_dir,
            listen: self.listen,
            http: self.http,
            token,
            lease: Lease { length: self.lease },
            heartbeat: self.heartbeat,
            election_min: self.election_min,
            election_max: self.election_max,
            keep_snapshots: self.keep_snapshots,
            snapshot_every: self.snapshot_every,
        })
    }

    fn read_token(&self) -> anyhow::Result<Option<String>> {
        let Some(path) = &self.token_file else { return Ok(self.token.clone()) };
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read --token-file {}", path.display()))?;
        let token = text.trim();
        ensure!(!token.is_empty(), "--token-file {} is empty", path.display());
        Ok(Some(token.to_owned()))
    }
}

/// Reads `1=host:7070,2=host:7070`.
fn parse_peers(text: &str) -> anyhow::Result<BTreeMap<u64, String>> {
    let mut peers = BTreeMap::new();
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let Some((id, address)) = part.split_once('=') else {
            bail!("`{part}` is not ID=HOST:PORT");
        };
        let id: u64 = id.parse().with_context(|| format!("`{id}` is not a controller's number"))?;
        ensure!(id > 0, "a controller's number is 1 or more");
        let port = address.rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok());
        ensure!(port.is_some(), "`{address}` has no port: write HOST:PORT");
        ensure!(peers.insert(id, address.to_owned()).is_none(), "controller {id} is named twice");
    }
    ensure!(!peers.is_empty(), "names no controller");
    Ok(peers)
}

fn parse_length(text: &str) -> Result<Millis, String> {
    Millis::parse(text, Millis::from_secs(1)).map_err(|fault| fault.to_string())
}
