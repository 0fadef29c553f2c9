//! Where a lab keeps what, and on which ports its processes listen.

use std::{
    fs,
    io::Write,
    net::{Ipv4Addr, TcpListener},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, ensure};
use serde::{Deserialize, Serialize};

use crate::cli::lab::LabArgs;

/// `lab.json`: everything that a later `stop` or `status` needs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Layout {
    pub dir: PathBuf,
    pub temporary: bool,
    pub token: String,
    pub controllers: Vec<ControllerPlace>,
    pub workers: Vec<String>,
    pub cpus: u32,
    pub gpus: String,
    pub lease: String,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ControllerPlace {
    pub id: u64,
    pub grpc: String,
    pub http: String,
}

const FILE: &str = "lab.json";
const FIRST_PORT: u16 = 10_000;
/// How many ports may be taken before the kernel is asked for any.
const TRIES: usize = 100;

impl Layout {
    /// Makes the directory, or takes an earlier lab's and goes on with it.
    pub fn create(args: &LabArgs) -> anyhow::Result<Layout> {
        let dir = match &args.dir {
            Some(dir) => dir.clone(),
            None => {
                std::env::temp_dir().join(format!("drigs-lab-{}", uuid::Uuid::new_v4().simple()))
            }
        };
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true).mode(0o700);
        builder.create(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
        let dir = dir.canonicalize().with_context(|| format!("cannot find {}", dir.display()))?;
        if dir.join(FILE).exists() {
            return Layout::load(&dir);
        }
        let is_empty = fs::read_dir(&dir)?.next().is_none();
        ensure!(is_empty, "{} is neither empty nor a lab's directory", dir.display());
        let layout = Layout {
            temporary: args.dir.is_none(),
            token: uuid::Uuid::new_v4().simple().to_string(),
            controllers: places(args.controllers)?,
            workers: (1..=args.workers).map(|number| format!("worker-{number}")).collect(),
            cpus: args.cpus,
            gpus: args.gpus.clone(),
            lease: args.lease.clone(),
            dir,
        };
        layout.save()?;
        Ok(layout)
    }

    pub fn load(dir: &Path) -> anyhow::Result<Layout> {
        let path = dir.join(FILE);
        let text = fs::read_to_string(&path)
            .with_context(|| format!("{} is not a lab's directory", dir.display()))?;
        serde_json::from_str(&text).with_context(|| format!("{} is damaged", path.display()))
    }

    fn save(&self) -> anyhow::Result<()> {
        self.write(&self.dir.join(FILE), &serde_json::to_string_pretty(self)?)?;
        self.write(&self.token_file(), &self.token)?;
        let env = format!(
            "export DRIGS_CONTROLLERS={}\nexport DRIGS_URL={}\nexport DRIGS_TOKEN={}\n",
            self.addresses(),
            self.url(),
            self.token
        );
        self.write(&self.env_file(), &env)
    }

    /// For the owner's eyes only: the token is in all of them.
    pub fn write(&self, path: &Path, text: &str) -> anyhow::Result<()> {
        let mut options = fs::OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        options
            .open(path)
            .and_then(|mut file| file.write_all(text.as_bytes()))
            .with_context(|| format!("cannot write {}", path.display()))
    }

    pub fn token_file(&self) -> PathBuf {
        self.dir.join("token")
    }

    pub fn env_file(&self) -> PathBuf {
        self.dir.join("lab.env")
    }

    pub fn pids_file(&self) -> PathBuf {
        self.dir.join("pids.json")
    }

    pub fn log_file(&self, name: &str) -> PathBuf {
        self.dir.join(format!("{name}.log"))
    }

    pub fn data_dir(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Every controller, as `--join` and `DRIGS_CONTROLLERS` want them.
    pub fn addresses(&self) -> String {
        let all: Vec<&str> = self.controllers.iter().map(|it| it.grpc.as_str()).collect();
        all.join(",")
    }

    /// As `--peers` wants them.
    pub fn peers(&self) -> String {
        let all: Vec<String> =
            self.controllers.iter().map(|it| format!("{}={}", it.id, it.grpc)).collect();
        all.join(",")
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.controllers[0].http)
    }

    pub fn remove_if_temporary(&self) {
        if self.temporary
            && let Err(error) = fs::remove_dir_all(&self.dir)
        {
            eprintln!("drigs: {} stays: {error}", self.dir.display());
        }
    }
}

/// Addresses that are free now. All are held until all are found, so that none is found twice.
fn places(count: usize) -> anyhow::Result<Vec<ControllerPlace>> {
    let held: Vec<(TcpListener, TcpListener)> =
        (0..count).map(|_| Ok((bind()?, bind()?))).collect::<anyhow::Result<_>>()?;
    (1..)
        .zip(&held)
        .map(|(id, (grpc, http))| {
            Ok(ControllerPlace {
                id,
                grpc: grpc.local_addr()?.to_string(),
                http: http.local_addr()?.to_string(),
            })
        })
        .collect()
}

/// A port outside the ephemeral range: while its controller is down, the kernel must not lend it to somebody's
/// outgoing connection.
fn bind() -> anyhow::Result<TcpListener> {
    let below = first_ephemeral_port().max(FIRST_PORT + 1);
    (0..TRIES)
        .find_map(|_| {
            let port = rand::random_range(FIRST_PORT..below);
            TcpListener::bind((Ipv4Addr::LOCALHOST, port)).ok()
        })
        .map_or_else(|| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)), Ok)
        .context("no free port on 127.0.0.1")
}

/// `ip(7)`, `ip_local_port_range`; its default where it cannot be read.
fn first_ephemeral_port() -> u16 {
    fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range")
        .ok()
        .and_then(|range| range.split_whitespace().next()?.parse().ok())
        .unwrap_or(32_768)
}
