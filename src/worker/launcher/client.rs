//! The agent's side of the launcher.

use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::{fs::OpenOptionsExt, process::CommandExt},
    path::PathBuf,
    process::{Command, Stdio},
    time::Duration,
};

use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines},
    net::{
        UnixStream,
        unix::{OwnedReadHalf, OwnedWriteHalf},
    },
    task::spawn_blocking,
    time::timeout,
};

use super::{ARGUMENT, SOCKET, build_of};
use crate::{model::AttemptId, worker::attempt_dir::DataDir};

/// A launcher that is still busy with what an earlier agent asked for greets late.
const GREETING_PATIENCE: Duration = Duration::from_secs(5);
const LOG: &str = "launcher.log";
const LOG_LIMIT: u64 = 1 << 20;

/// Where the launcher of a data directory is, and what it is started from.
#[derive(Clone, Debug)]
pub struct Launcher {
    dir: DataDir,
    program: PathBuf,
    build: String,
}

#[derive(Debug)]
pub struct Client {
    build: String,
    replies: Lines<BufReader<OwnedReadHalf>>,
    requests: OwnedWriteHalf,
}

/// Whether an attempt's shim was forked, and which process it is.
#[derive(Debug)]
pub struct Reply {
    pub attempt: AttemptId,
    pub shim: Result<i32, io::Error>,
}

impl Launcher {
    /// `program` must call [`run_if_asked`](super::run_if_asked) first of all.
    ///
    /// # Errors
    /// There is no such program.
    pub fn new(dir: DataDir, program: PathBuf) -> io::Result<Launcher> {
        let build = build_of(&program)?;
        Ok(Launcher { dir, program, build })
    }

    /// Finds the launcher of this very build, or starts one and sends an older one into retirement.
    ///
    /// # Errors
    /// None could be started or reached.
    pub async fn connect(&self) -> io::Result<Client> {
        if let Ok(mut client) = self.greet().await {
            if client.build == self.build {
                return Ok(client);
            }
            // If it does not hear this, it ends later by itself: its socket leads to the new one soon.
            let _ = client.requests.write_all(b"retire\n").await;
        }
        self.spawn().await?;
        let client = self.greet().await?;
        if client.build == self.build {
            Ok(client)
        } else {
            Err(io::Error::other("another build's launcher has taken over the data directory"))
        }
    }

    async fn greet(&self) -> io::Result<Client> {
        let greeting = async {
            let path = self.dir.socket(SOCKET)?;
            let stream = UnixStream::connect(&path).await?;
            let (replies, requests) = stream.into_split();
            let mut replies = BufReader::new(replies).lines();
            let build = replies.next_line().await?.ok_or(io::ErrorKind::UnexpectedEof)?;
            Ok(Client { build, replies, requests })
        };
        timeout(GREETING_PATIENCE, greeting).await?
    }

    /// Returns once it listens.
    async fn spawn(&self) -> io::Result<()> {
        let mut command = Command::new(&self.program);
        command
            .arg0("drigs-launcher")
            .arg(ARGUMENT)
            .arg(self.dir.root())
            .env_clear()
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(self.open_log()?);
        let status = spawn_blocking(move || command.status()).await??;
        if status.success() {
            Ok(())
        } else {
            let log = self.dir.root().join(LOG);
            Err(io::Error::other(format!("the launcher ended ({status}); see {}", log.display())))
        }
    }

    fn open_log(&self) -> io::Result<File> {
        let path = self.dir.root().join(LOG);
        let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
        if file.metadata()?.len() > LOG_LIMIT {
            file.set_len(0)?;
        }
        Ok(file)
    }
}

impl Client {
    /// # Errors
    /// The launcher is gone; how much it has heard is not known.
    pub async fn start(&mut self, attempts: &[AttemptId]) -> io::Result<()> {
        let lines: String = attempts.iter().map(|attempt| format!("start {attempt}\n")).collect();
        self.requests.write_all(lines.as_bytes()).await
    }

    /// May be dropped and called again: no reply is lost by it.
    ///
    /// # Errors
    /// The launcher is gone.
    pub async fn next_reply(&mut self) -> io::Result<Reply> {
        let line = self.replies.next_line().await?.ok_or(io::ErrorKind::UnexpectedEof)?;
        Reply::parse(&line).ok_or_else(|| io::Error::other("the launcher speaks another language"))
    }
}

impl Reply {
    fn parse(line: &str) -> Option<Reply> {
        let (attempt, answer) = line.split_once(' ')?;
        let shim = match answer.strip_prefix("error ") {
            Some(errno) => Err(io::Error::from_raw_os_error(errno.parse().ok()?)),
            None => Ok(answer.parse().ok()?),
        };
        Some(Reply { attempt: attempt.parse().ok()?, shim })
    }
}
