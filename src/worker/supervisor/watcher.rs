//! Follows the attempts: shims tell when to look, and in case that is missed, each living attempt is looked at every second.

use std::{
    collections::{BTreeMap, VecDeque, btree_map::Entry},
    io,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::{
    net::UnixDatagram,
    sync::mpsc,
    task::{JoinSet, spawn_blocking},
    time::{MissedTickBehavior, interval},
};
use tracing::{error, info, warn};

use super::Event;
use crate::{
    model::AttemptId,
    worker::{
        attempt_dir::{AttemptDir, DataDir, Ended, Exit, Status},
        launcher::{Client, Launcher, Reply},
        strays,
    },
};

const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Requests that the launcher has not answered yet: more would fill the sockets between us both.
const IN_FLIGHT: usize = 256;
/// How many hints are taken at once.
const HINTS: usize = 256;
/// A shim that has not claimed its attempt by then never will: it is made sure of.
const CLAIM_PATIENCE: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub enum Command {
    Launch { wanted: Vec<AttemptId>, failed: BTreeMap<AttemptId, Exit> },
    Look(AttemptId),
    Forget(Vec<AttemptId>),
}

#[derive(Debug)]
pub struct Watcher {
    dir: DataDir,
    boot_id: Arc<str>,
    launcher: Launcher,
    client: Option<Client>,
    /// Still to be asked for, in order.
    wanted: VecDeque<AttemptId>,
    /// Every attempt that has not ended.
    attempts: BTreeMap<AttemptId, Watched>,
    /// Unbounded, because at most three events come of an attempt and the controllers bound the attempts.
    events: mpsc::UnboundedSender<Event>,
    rescues: JoinSet<(AttemptId, io::Result<Exit>)>,
}

#[derive(Debug)]
struct Watched {
    launch: LaunchState,
    told_started: bool,
    being_rescued: bool,
}

#[derive(Clone, Copy, Debug)]
enum LaunchState {
    Wanted,
    Asked,
    Forked { at: Instant },
}

impl Watcher {
    pub fn new(
        dir: DataDir,
        boot_id: Arc<str>,
        launcher: Launcher,
        events: mpsc::UnboundedSender<Event>,
        live: Vec<AttemptId>,
    ) -> Self {
        let found = |attempt| (attempt, Watched::new(LaunchState::Forked { at: Instant::now() }));
        Watcher {
            dir,
            boot_id,
            launcher,
            client: None,
            wanted: VecDeque::new(),
            attempts: live.into_iter().map(found).collect(),
            events,
            rescues: JoinSet::new(),
        }
    }

    /// Until the last sender of commands is gone.
    pub async fn run(mut self, mut commands: mpsc::Receiver<Command>, socket: UnixDatagram) {
        let mut ticks = interval(LOOK_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        self.connect().await;
        loop {
            tokio::select! {
                command = commands.recv() => match command {
                    Some(command) => self.obey(command).await,
                    None => return,
                },
                reply = next_reply(&mut self.client) => self.note_reply(reply).await,
                hints = receive_hints(&socket) => self.look(hints).await,
                Some(rescued) = self.rescues.join_next() => match rescued {
                    Ok((attempt, result)) => self.note_rescue(attempt, result),
                    Err(error) => error!(%error, "a rescue has failed"),
                },
                _ = ticks.tick() => {
                    self.look(self.attempts.keys().copied().collect()).await;
                    self.ask().await;
                }
            }
        }
    }

    async fn obey(&mut self, command: Command) {
        match command {
            Command::Launch { wanted, failed } => {
                for (attempt, exit) in failed {
                    self.tell(Event::Ended { attempt, exit });
                }
                for attempt in wanted {
                    if let Entry::Vacant(place) = self.attempts.entry(attempt) {
                        place.insert(Watched::new(LaunchState::Wanted));
                        self.wanted.push_back(attempt);
                    }
                }
                self.ask().await;
            }
            Command::Look(attempt) => self.look(vec![attempt]).await,
            Command::Forget(attempts) => {
                self.attempts.retain(|attempt, _| !attempts.contains(attempt));
            }
        }
    }

    async fn connect(&mut self) {
        match self.launcher.connect().await {
            Ok(client) => self.client = Some(client),
            Err(error) => error!(%error, "cannot start the launcher; trying again"),
        }
    }

    /// Asks the launcher for as many of the wanted attempts as it may have open.
    async fn ask(&mut self) {
        if self.wanted.is_empty() {
            return;
        }
        if self.client.is_none() {
            self.connect().await;
        }
        let Some(client) = &mut self.client else { return };
        let is_asked = |watched: &&Watched| matches!(watched.launch, LaunchState::Asked);
        let open = self.attempts.values().filter(is_asked).count();
        let count = self.wanted.len().min(IN_FLIGHT.saturating_sub(open));
        let batch: Vec<AttemptId> = self.wanted.drain(..count).collect();
        for attempt in &batch {
            if let Some(watched) = self.attempts.get_mut(attempt) {
                watched.launch = LaunchState::Asked;
            }
        }
        if client.start(&batch).await.is_err() {
            self.lose_launcher();
        }
    }

    /// What it has not answered is asked for again, from the next one. Should a shim have come of it all the same, the
    /// second one finds the attempt claimed.
    fn lose_launcher(&mut self) {
        self.client = None;
        for (attempt, watched) in &mut self.attempts {
            if matches!(watched.launch, LaunchState::Asked) {
                watched.launch = LaunchState::Wanted;
                self.wanted.push_back(*attempt);
            }
        }
    }

    async fn note_reply(&mut self, reply: io::Result<Reply>) {
        let reply = match reply {
            Ok(reply) => reply,
            Err(error) => {
                warn!(%error, "the launcher is gone");
                return self.lose_launcher();
            }
        };
        if let Some(watched) = self.attempts.get_mut(&reply.attempt) {
            watched.launch = LaunchState::Forked { at: Instant::now() };
        }
        if let Err(error) = reply.shim {
            let message = format!("cannot start a supervising process: {error}");
            self.give_up_start(reply.attempt, message, error.raw_os_error()).await;
        }
        if !self.wanted.is_empty() {
            self.ask().await;
        }
    }

    /// Looks at what the disk and the processes say of `attempts`, and tells what is new.
    async fn look(&mut self, mut attempts: Vec<AttemptId>) {
        attempts.retain(|attempt| self.attempts.contains_key(attempt));
        if attempts.is_empty() {
            return;
        }
        let (dir, boot_id) = (self.dir.clone(), self.boot_id.clone());
        let look = move || -> Vec<_> {
            let status = |attempt| (attempt, dir.attempt(attempt).status(&boot_id));
            attempts.into_iter().map(status).collect()
        };
        let seen = spawn_blocking(look).await.unwrap_or_default();
        for (attempt, status) in seen {
            match status {
                Ok(status) => self.note(attempt, status).await,
                Err(error) => warn!(%attempt, %error, "cannot tell how an attempt fares"),
            }
        }
    }

    async fn note(&mut self, attempt: AttemptId, status: Status) {
        // Hints may name an attempt twice, and the first look may have found its end.
        let Some(watched) = self.attempts.get_mut(&attempt) else { return };
        match status {
            Status::Running { shim, main: Some(main) } if !watched.told_started => {
                watched.told_started = true;
                self.tell(Event::Started { attempt, shim, main });
            }
            Status::Running { .. } => {}
            Status::Ended(exit) => self.end(attempt, exit),
            Status::SupervisorLost { .. } if watched.being_rescued => {}
            Status::SupervisorLost { main } => {
                watched.being_rescued = true;
                self.tell(Event::ShimLost { attempt });
                let dir = self.dir.attempt(attempt);
                self.rescues.spawn_blocking(move || (attempt, rescue(&dir, main)));
            }
            Status::Unclaimed => {
                if watched.is_overdue() {
                    let message =
                        "its supervising process ended before it began (see launcher.log)";
                    self.give_up_start(attempt, message.to_owned(), None).await;
                }
            }
            // Voided, but how it ended could not be written then.
            Status::Void => self.conclude(attempt, Ended::NeverStarted).await,
            Status::Rebooted => self.conclude(attempt, Ended::Rebooted).await,
        }
    }

    /// Makes sure that it never starts, unless a shim was quicker.
    async fn give_up_start(&mut self, attempt: AttemptId, message: String, errno: Option<i32>) {
        let (dir, boot_id) = (self.dir.attempt(attempt), self.boot_id.clone());
        match spawn_blocking(move || dir.void(&boot_id)).await.map_err(io::Error::from).flatten() {
            Ok(true) => self.conclude(attempt, Ended::StartFailed { message, errno }).await,
            Ok(false) => {}
            Err(error) => warn!(%attempt, %error, "cannot call off an attempt"),
        }
    }

    async fn conclude(&mut self, attempt: AttemptId, ended: Ended) {
        let dir = self.dir.attempt(attempt);
        let conclude = move || dir.conclude(ended, Vec::new());
        match spawn_blocking(conclude).await.map_err(io::Error::from).flatten() {
            Ok(exit) => self.end(attempt, exit),
            Err(error) => warn!(%attempt, %error, "cannot record how an attempt ended"),
        }
    }

    fn note_rescue(&mut self, attempt: AttemptId, result: io::Result<Exit>) {
        match result {
            Ok(exit) => self.end(attempt, exit),
            Err(error) => {
                warn!(%attempt, %error, "cannot end what is left of an attempt; trying again");
                if let Some(watched) = self.attempts.get_mut(&attempt) {
                    watched.being_rescued = false;
                }
            }
        }
    }

    fn end(&mut self, attempt: AttemptId, exit: Exit) {
        if self.attempts.remove(&attempt).is_some() {
            info!(%attempt, ended = ?exit.ended, tree = ?exit.tree, "attempt ended");
            self.tell(Event::Ended { attempt, exit });
        }
    }

    /// Nobody listens only while the agent ends.
    fn tell(&self, event: Event) {
        let _ = self.events.send(event);
    }
}

impl Watched {
    fn new(launch: LaunchState) -> Self {
        Watched { launch, told_started: false, being_rescued: false }
    }

    fn is_overdue(&self) -> bool {
        match self.launch {
            LaunchState::Wanted | LaunchState::Asked => false,
            LaunchState::Forked { at } => at.elapsed() > CLAIM_PATIENCE,
        }
    }
}

fn rescue(dir: &AttemptDir, main: Option<crate::worker::process::Process>) -> io::Result<Exit> {
    let left = strays::end(&dir.prepared()?, main);
    let left = left.iter().map(|process| process.pid).collect();
    dir.conclude(Ended::SupervisorLost, left)
}

/// Without a launcher there is nothing to hear.
async fn next_reply(client: &mut Option<Client>) -> io::Result<Reply> {
    match client {
        Some(client) => client.next_reply().await,
        None => std::future::pending().await,
    }
}

/// Waits for one hint and takes what else is there. What is no attempt is no hint.
async fn receive_hints(socket: &UnixDatagram) -> Vec<AttemptId> {
    let mut buffer = [0; 64];
    let mut hints = Vec::new();
    let mut received = socket.recv(&mut buffer).await;
    while let Ok(length) = received {
        let hint = std::str::from_utf8(&buffer[..length]).ok();
        hints.extend(hint.and_then(|hint| hint.parse::<AttemptId>().ok()));
        if hints.len() >= HINTS {
            break;
        }
        received = socket.try_recv(&mut buffer);
    }
    hints.sort_unstable();
    hints.dedup();
    hints
}
