//! The worker's flags, checked.

use std::{collections::BTreeMap, path::PathBuf};

use anyhow::{Context as _, ensure};
use clap::{Args, Subcommand};

use crate::model::{Bytes, MilliCpus, WorkerName};
use crate::telemetry::LogFormat;
use crate::worker::{gpu::Inventory, machine};

/// Flags of `drigs-worker`.
#[derive(Args, Clone, Debug)]
pub struct WorkerArgs {
    #[command(subcommand)]
    pub action: Option<WorkerAction>,
    /// Controllers to join, any or all of them: host:7070,host:7070
    #[arg(long, env = "DRIGS_JOIN", value_name = "LIST")]
    pub join: Option<String>,
    /// Where attempts and their output are kept. Belongs to one worker for ever
    #[arg(long, env = "DRIGS_DATA_DIR", default_value = "drigs-data/worker")]
    pub data_dir: PathBuf,
    /// What people call this machine [default: its host name]
    #[arg(long, env = "DRIGS_NAME")]
    pub name: Option<String>,
    /// The cluster's secret
    #[arg(long, env = "DRIGS_TOKEN", hide_env_values = true, conflicts_with = "token_file")]
    pub token: Option<String>,
    /// A file with that secret
    #[arg(long, env = "DRIGS_TOKEN_FILE")]
    pub token_file: Option<PathBuf>,
    /// CPU cores to offer [default: those of the machine]
    #[arg(long, env = "DRIGS_CPUS")]
    pub cpus: Option<u32>,
    /// Memory to offer, such as 60G [default: that of the machine]
    #[arg(long, env = "DRIGS_MEMORY")]
    pub memory: Option<String>,
    /// GPUs to offer: none, or simulated:SPEC such as simulated:2xT4 or simulated:8xA100-80GB
    #[arg(long, env = "DRIGS_GPUS", default_value = "none")]
    pub gpus: String,
    /// A label that jobs can ask for; may be repeated, or hold several: zone=a,disk=nvme
    #[arg(long = "label", env = "DRIGS_LABEL", value_name = "KEY=VALUE", value_delimiter = ',')]
    pub labels: Vec<String>,
    /// This machine comes and goes: its jobs run elsewhere two minutes after it fell silent
    #[arg(long, env = "DRIGS_EPHEMERAL", value_parser = clap::builder::BoolishValueParser::new())]
    pub ephemeral: bool,
    /// How much of each attempt's output is kept
    #[arg(long, env = "DRIGS_LOG_LIMIT", default_value = "64M")]
    pub log_limit: String,
    /// How log lines look
    #[arg(long, env = "DRIGS_LOG_FORMAT", value_enum, default_value_t)]
    pub log_format: LogFormat,
}

/// What can be done with a worker's data directory while no worker runs on it.
#[derive(Subcommand, Clone, Debug)]
pub enum WorkerAction {
    /// End everything that still runs from this data directory
    StopAll {
        #[arg(long, env = "DRIGS_DATA_DIR", default_value = "drigs-data/worker")]
        data_dir: PathBuf,
    },
}

/// What a worker needs to know before it starts.
#[derive(Clone, Debug)]
pub struct Config {
    pub join: Vec<String>,
    pub data_dir: PathBuf,
    pub name: WorkerName,
    pub token: Option<String>,
    pub cpus: MilliCpus,
    pub memory: Bytes,
    pub gpus: Inventory,
    pub labels: BTreeMap<String, String>,
    pub ephemeral: bool,
    pub log_limit: Bytes,
}

/// The longest name of a worker, and of a label's key or value.
const LONGEST_NAME: usize = 128;

impl WorkerArgs {
    /// # Errors
    /// Says which flag is wrong and what would be right.
    pub fn check(self) -> anyhow::Result<Config> {
        let token = self.read_token()?;
        let name = self.name.clone().unwrap_or_else(machine::host_name);
        check_name("--name", &name)?;
        let memory = match &self.memory {
            Some(text) => Bytes::parse(text, Bytes::from_mib(1)).context("--memory")?,
            None => machine::memory()?,
        };
        let cpus = self.cpus.map_or_else(machine::cpus, u64::from);
        ensure!((1..=100_000).contains(&cpus), "--cpus {cpus} is out of range: 1 to 100000");
        Ok(Config {
            token,
            name: WorkerName::new(name),
            cpus: MilliCpus::from_cores(cpus),
            memory,
            gpus: self.gpus.parse::<Inventory>().context("--gpus")?,
            labels: self
                .labels
                .iter()
                .map(|text| parse_label(text))
                .collect::<anyhow::Result<_>>()?,
            ephemeral: self.ephemeral,
            log_limit: Bytes::parse(&self.log_limit, Bytes::from_mib(1)).context("--log-limit")?,
            data_dir: self.data_dir,
            join: parse_join(self.join.as_deref())?,
        })
    }

    fn read_token(&self) -> anyhow::Result<Option<String>> {
        let Some(path) = &self.token_file else { return Ok(self.token.clone()) };
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read --token-file {}", path.display()))?;
        ensure!(!text.trim().is_empty(), "--token-file {} is empty", path.display());
        Ok(Some(text.trim().to_owned()))
    }
}

fn parse_join(text: Option<&str>) -> anyhow::Result<Vec<String>> {
    let text = text.context(
        "a worker joins controllers: --join HOST:PORT,HOST:PORT or DRIGS_JOIN names them \
         (`drigs workers` lists workers, `drigs worker drain|resume|forget NAME` looks after one)",
    )?;
    let names = text.split(',').map(str::trim).filter(|it| !it.is_empty());
    let names: Vec<String> = names.map(str::to_owned).collect();
    ensure!(!names.is_empty(), "--join names no controller: write HOST:PORT,HOST:PORT");
    Ok(names)
}

fn parse_label(text: &str) -> anyhow::Result<(String, String)> {
    let (key, value) =
        text.split_once('=').with_context(|| format!("--label {text} is not KEY=VALUE"))?;
    check_name("--label", key)?;
    ensure!(
        value.len() <= LONGEST_NAME,
        "--label {key}: its value is longer than {LONGEST_NAME} bytes"
    );
    Ok((key.to_owned(), value.to_owned()))
}

fn check_name(flag: &str, name: &str) -> anyhow::Result<()> {
    let fits = (1..=LONGEST_NAME).contains(&name.len());
    let plain = name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
    ensure!(
        fits && plain,
        "{flag} {name:?} is not a name: 1 to {LONGEST_NAME} letters, digits, '-', '_' or '.'"
    );
    Ok(())
}
