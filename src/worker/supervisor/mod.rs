//! The agent's view of its attempts: start them, stop them, hear how they end. All of it may be repeated without harm,
//! and nothing is lost when the agent dies in between: what it needs is on the disk.

mod watcher;

use std::{
    collections::BTreeMap,
    fs::{self, File, OpenOptions},
    io::{self, ErrorKind},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use rustix::{
    fs::{FlockOperation, flock},
    process::Signal,
};
use tokio::{
    net::UnixDatagram,
    sync::mpsc,
    task::{JoinHandle, spawn_blocking},
};

use self::watcher::{Command, Watcher};
use crate::{
    model::AttemptId,
    worker::{
        attempt_dir::{
            DataDir, Ended, Exit, Found, FoundState, Intent, Launch, Status, StopCause, Stopped,
            scan,
        },
        clock::{boot_id, wall_clock},
        launcher::Launcher,
        process::{Process, Stat},
    },
};

/// Commands wait for the watcher only while it starts a launcher.
const COMMANDS: usize = 64;

#[derive(Debug)]
pub struct Supervisor {
    dir: DataDir,
    boot_id: Arc<str>,
    commands: mpsc::Sender<Command>,
    watcher: JoinHandle<()>,
    /// Held for as long as the agent lives.
    _lock: File,
}

/// What happened to attempts, each told once to one life of the agent. A quick attempt may be told as ended only.
#[derive(Debug)]
pub struct Events(mpsc::UnboundedReceiver<Event>);

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    Started {
        attempt: AttemptId,
        shim: Process,
        main: Process,
    },
    /// Nothing of it runs any more, or what does cannot be killed.
    Ended {
        attempt: AttemptId,
        exit: Exit,
    },
    /// Its shim was killed; what is left of it is being ended, and `Ended` follows.
    ShimLost {
        attempt: AttemptId,
    },
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("another worker already uses {}", .0.display())]
    InUse(PathBuf),
    #[error("attempt {0} is not on this worker")]
    NotFound(AttemptId),
    #[error("attempt {0} is not running")]
    NotRunning(AttemptId),
    #[error("{0} is not the number of a signal")]
    NoSignal(i32),
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl Supervisor {
    /// Takes the data directory (made if there is none) and finds what ran before. Each attempt found running, or
    /// having lost its shim, will be told of by events as well.
    ///
    /// # Errors
    /// Another agent has the directory, or it cannot be used.
    pub async fn open(root: &Path) -> Result<(Supervisor, Events, Vec<Found>), Error> {
        Supervisor::open_with(root, Path::new("/proc/self/exe")).await
    }

    /// As [`open`](Self::open), with another program to become the launcher.
    ///
    /// # Errors
    /// As for `open`.
    pub async fn open_with(
        root: &Path,
        program: &Path,
    ) -> Result<(Supervisor, Events, Vec<Found>), Error> {
        let dir = DataDir::create(root)?;
        let lock = lock(&dir)?;
        let boot_id: Arc<str> = boot_id()?.into();
        let socket = bind(&dir)?;
        let launcher = Launcher::new(dir.clone(), program.to_owned())?;
        let found = blocking({
            let (dir, boot_id) = (dir.clone(), boot_id.clone());
            move || scan(&dir, &boot_id)
        })
        .await?;

        let (events, told) = mpsc::unbounded_channel();
        let (commands, orders) = mpsc::channel(COMMANDS);
        let live = found.iter().filter_map(|found| match found.state {
            FoundState::Running { .. } | FoundState::SupervisorLost { .. } => Some(found.attempt),
            FoundState::NeverStarted | FoundState::Ended(_) => None,
        });
        let watcher = Watcher::new(dir.clone(), boot_id.clone(), launcher, events, live.collect());
        let watcher = tokio::spawn(watcher.run(orders, socket));
        let supervisor = Supervisor { dir, boot_id, commands, watcher, _lock: lock };
        Ok((supervisor, Events(told), found))
    }

    pub fn dir(&self) -> &DataDir {
        &self.dir
    }

    /// Starts attempts. What cannot be started is told as ended; what was started before is left as it is.
    ///
    /// # Errors
    /// The supervisor has ended.
    pub async fn start(&self, launches: Vec<Launch>) -> Result<(), Error> {
        let (dir, boot_id) = (self.dir.clone(), self.boot_id.clone());
        let (wanted, failed) = blocking(move || Ok(prepare(&dir, &boot_id, launches))).await?;
        self.command(Command::Launch { wanted, failed }).await
    }

    /// Stops an attempt as `intent` says. May be repeated, and with less grace: never with more.
    ///
    /// # Errors
    /// It is not here, or its shim cannot be told.
    pub async fn stop(&self, attempt: AttemptId, intent: Intent) -> Result<(), Error> {
        let (dir, boot_id) = (self.dir.clone(), self.boot_id.clone());
        blocking(move || Ok(stop(&dir, &boot_id, attempt, &intent))).await??;
        self.command(Command::Look(attempt)).await
    }

    /// Sends a signal to the main process of an attempt and its group, as to ask for a checkpoint.
    ///
    /// # Errors
    /// It is not running, or there is no such signal.
    pub async fn signal(&self, attempt: AttemptId, signal: i32) -> Result<(), Error> {
        let known = Signal::from_named_raw(signal).ok_or(Error::NoSignal(signal))?;
        let (dir, boot_id) = (self.dir.clone(), self.boot_id.clone());
        blocking(move || Ok(signal_group(&dir, &boot_id, attempt, known))).await?
    }

    /// The controllers have settled these attempts: they will not be found again, only their output stays for a while.
    ///
    /// # Errors
    /// One cannot be put aside; asking again for all of them is safe.
    pub fn forget(
        &self,
        attempts: Vec<AttemptId>,
    ) -> impl Future<Output = Result<(), Error>> + Send + 'static {
        let (dir, commands) = (self.dir.clone(), self.commands.clone());
        async move {
            let settled = attempts.clone();
            blocking(move || settled.into_iter().try_for_each(|attempt| dir.settle(attempt)))
                .await?;
            send(&commands, Command::Forget(attempts)).await
        }
    }

    /// Ends the watch, not the attempts.
    pub async fn close(self) {
        let Supervisor { commands, watcher, .. } = self;
        drop(commands);
        // It can only have panicked, which was reported where it happened.
        let _ = watcher.await;
    }

    async fn command(&self, command: Command) -> Result<(), Error> {
        send(&self.commands, command).await
    }
}

async fn send(commands: &mpsc::Sender<Command>, command: Command) -> Result<(), Error> {
    let sent = commands.send(command).await;
    sent.map_err(|_| Error::Io(io::Error::other("the supervisor has ended")))
}

impl Events {
    /// `None` once the supervisor was closed. May be dropped and called again: no event is lost by it.
    pub async fn next(&mut self) -> Option<Event> {
        self.0.recv().await
    }
}

fn lock(dir: &DataDir) -> Result<File, Error> {
    let path = dir.root().join("agent.lock");
    let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(Error::InUse(dir.root().to_owned())),
        Err(error) => Err(Error::Io(error.into())),
    }
}

/// Under the lock no other agent can own what is there.
fn bind(dir: &DataDir) -> io::Result<UnixDatagram> {
    let path = dir.socket("agent.sock")?;
    match fs::remove_file(&path) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    UnixDatagram::bind(&path)
}

/// Writes down what to launch; and what cannot be written down, how that ends.
fn prepare(
    dir: &DataDir,
    boot_id: &str,
    launches: Vec<Launch>,
) -> (Vec<AttemptId>, BTreeMap<AttemptId, Exit>) {
    let (mut wanted, mut failed) = (Vec::new(), BTreeMap::new());
    for launch in launches {
        let attempt = launch.attempt;
        match dir.attempt(attempt).create(launch, boot_id) {
            Ok(_) => wanted.push(attempt),
            Err(error) => {
                let message = format!("cannot write to {}: {error}", dir.attempts().display());
                let ended = Ended::StartFailed { message, errno: error.raw_os_error() };
                failed.insert(attempt, Exit::at_once(ended, wall_clock()));
            }
        }
    }
    (wanted, failed)
}

fn stop(dir: &DataDir, boot_id: &str, attempt: AttemptId, intent: &Intent) -> Result<(), Error> {
    let attempt_dir = dir.attempt(attempt);
    // Written first: a shim that claims the attempt just now looks for it after that.
    match attempt_dir.write_intent(intent) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Err(Error::NotFound(attempt)),
        other => other?,
    }
    match attempt_dir.status(boot_id)? {
        Status::Running { shim, .. } => Ok(shim.signal(Signal::TERM)?),
        Status::Unclaimed if attempt_dir.void(boot_id)? => {
            let mut exit = Exit::at_once(Ended::NeverStarted, wall_clock());
            let cause = StopCause::Intent(intent.reason);
            exit.stopped = Some(Stopped { cause, by: intent.by.clone() });
            Ok(attempt_dir.write_exit(&exit)?)
        }
        Status::Unclaimed
        | Status::Void
        | Status::SupervisorLost { .. }
        | Status::Rebooted
        | Status::Ended(_) => Ok(()),
    }
}

fn signal_group(
    dir: &DataDir,
    boot_id: &str,
    attempt: AttemptId,
    signal: Signal,
) -> Result<(), Error> {
    let Status::Running { main: Some(main), .. } = dir.attempt(attempt).status(boot_id)? else {
        return Err(Error::NotRunning(attempt));
    };
    for stat in Stat::read_all().into_iter().filter(|stat| stat.group == main.pid) {
        stat.process.signal(signal)?;
    }
    Ok(())
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    spawn_blocking(work).await?
}
