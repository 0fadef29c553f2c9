//! The shim: one small process per attempt, parent of all that the job starts. It outlives the agent, keeps the time
//! limit and the limit of lost contact by itself, and writes down how the attempt ended. It has one thread and no async
//! runtime, and is forked by the launcher.

pub mod output;
mod start;
mod stop;
mod tree;

use std::{fs::File, io, os::unix::net::UnixDatagram, time::Duration};

use rustix::{
    process::{Signal, getpid, set_child_subreaper, setpgid},
    thread::set_name,
};

use self::{
    output::Output,
    start::{Main, StartError},
    stop::{Ladder, Rung},
};
use crate::{
    model::{AttemptId, LostAfter, Millis, Timestamp},
    worker::{
        attempt_dir::{
            AttemptDir, Claim, DataDir, Ended, Exit, Launch, StopCause, Stopped, Tree, Unsynced,
            write_line,
        },
        clock::{BootTime, wall_clock},
        contact::last_contact,
        launcher,
        process::Process,
        sys::{self, Reaped, SingleThreaded, Usage, WaitStatus},
    },
};

/// What is stopped for want of contact gets no more time than this: another copy may be about to start elsewhere.
const LOST_CONTACT_GRACE: Millis = LostAfter::GRACE;
/// The agent may be busy; it looks by itself each second anyway.
const NOTIFY_PATIENCE: Duration = Duration::from_millis(200);
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

struct Shim {
    data: DataDir,
    dir: AttemptDir,
    boot_id: String,
    launch: Launch,
    main: Main,
    output: Output,
    started: BootTime,
    started_at: Timestamp,
    usage: Usage,
    /// How the main process ended, once it did.
    exit: Option<Exit>,
    stopped: Option<Stopped>,
    timed_out: bool,
    lost_contact: bool,
    ladder: Option<Ladder>,
}

/// Runs one attempt to its end, in a process just forked by the launcher, whose working directory is the data directory.
///
/// # Errors
/// The attempt could not even be claimed, or nothing more can be recorded of it.
pub fn run(
    proof: &SingleThreaded,
    data: DataDir,
    attempt: AttemptId,
    boot_id: &str,
) -> io::Result<()> {
    detach()?;
    let dir = data.attempt(attempt);
    let launch = dir.prepared()?.launch;
    let claim = Claim { boot_id: boot_id.to_owned(), shim: Some(Process::current()?) };
    let Some(record) = dir.claim(&claim)? else { return Ok(()) };

    match Shim::start(proof, &data, &dir, launch, boot_id) {
        Ok(shim) => shim.supervise(record),
        Err(error) => {
            dir.write_exit(&Exit::at_once(error.into_ended(), wall_clock()))?;
            notify(&data, attempt);
            Ok(())
        }
    }
}

/// Leaves all that was the launcher's but its session. A session of its own would be a scheduling group of its own to
/// kernels with autogroups, which costs more than all the rest here, and under load many milliseconds of waiting.
fn detach() -> io::Result<()> {
    sys::block_signals();
    for signal in launcher::IGNORED {
        sys::reset_signal(signal);
    }
    sys::close_from(3);
    setpgid(None, None)?;
    set_child_subreaper(Some(getpid()))?;
    Ok(set_name(c"drigs-shim")?)
}

/// Tells the agent, if there is one, to look at this attempt.
fn notify(data: &DataDir, attempt: AttemptId) {
    let send = || {
        let socket = UnixDatagram::unbound()?;
        socket.set_write_timeout(Some(NOTIFY_PATIENCE))?;
        socket.send_to(attempt.to_string().as_bytes(), data.root().join("agent.sock"))
    };
    let _ = send();
}

impl Shim {
    fn start(
        proof: &SingleThreaded,
        data: &DataDir,
        dir: &AttemptDir,
        launch: Launch,
        boot_id: &str,
    ) -> Result<Shim, StartError> {
        let output = Output::create(dir, launch.log_limit)?;
        let (started, started_at) = (BootTime::now(), wall_clock());
        let main = start::start(proof, &launch, output.file())?;
        Ok(Shim {
            data: data.clone(),
            dir: dir.clone(),
            boot_id: boot_id.to_owned(),
            launch,
            main,
            output,
            started,
            started_at,
            usage: Usage::default(),
            exit: None,
            stopped: None,
            timed_out: false,
            lost_contact: false,
            ladder: None,
        })
    }

    fn supervise(mut self, mut record: File) -> io::Result<()> {
        write_line(&mut record, &self.main.process)?;
        drop(record);
        notify(&self.data, self.launch.attempt);
        // An agent that wanted to stop it before the claim was there could signal nobody.
        self.obey_intent(None);
        loop {
            let has_children = self.reap();
            let now = BootTime::now();
            let next_look = self.output.keep_to_limit(now);
            if !has_children {
                return self.finish(Tree::Empty);
            }
            self.check_limits(now);
            if self.climb_ladder(now) == Some(Rung::GiveUp) {
                return self.finish(Tree::Unkillable(pids_alive()));
            }
            let signal = sys::wait_signal(self.wait_at_most(next_look));
            if matches!(signal.and_then(Signal::from_named_raw), Some(Signal::TERM | Signal::INT)) {
                self.obey_intent(Some(StopCause::Shutdown));
            }
        }
    }

    /// Takes note of all children that have ended; `false` when none is left.
    fn reap(&mut self) -> bool {
        let mut main_ended_now = false;
        let has_children = loop {
            match sys::reap() {
                Reaped::Child { pid, status, usage } => {
                    self.usage.cpu += usage.cpu;
                    self.usage.max_rss_bytes = self.usage.max_rss_bytes.max(usage.max_rss_bytes);
                    if pid == self.main.process.pid && self.exit.is_none() {
                        main_ended_now = true;
                        let ended = self.main_ended(status);
                        self.exit = Some(self.describe_end(ended));
                    }
                }
                Reaped::NoneEnded => break true,
                Reaped::NoChildren => break false,
            }
        };
        if main_ended_now && has_children {
            self.drain();
        }
        has_children
    }

    fn main_ended(&mut self, status: WaitStatus) -> Ended {
        match status {
            WaitStatus::Exited(code) => match self.main.check_start(&self.launch) {
                Ok(()) => Ended::Exit(code),
                Err(error) => error.into_ended(),
            },
            WaitStatus::Signaled(signal) => Ended::Signal(signal),
        }
    }

    fn describe_end(&self, ended: Ended) -> Exit {
        let mut exit = Exit::at_once(ended, wall_clock());
        exit.started_at = self.started_at;
        exit.ran_for = BootTime::now().since(self.started);
        exit.stopped = self.stopped.clone();
        exit
    }

    /// The main process has ended before others of its tree: records that, and sees to the others.
    fn drain(&mut self) {
        // Not the last word, so a failure costs nothing yet.
        let _ = self.publish_exit(Tree::Draining(pids_alive())).and_then(Unsynced::sync);
        let now = BootTime::now();
        match &mut self.ladder {
            Some(ladder) => ladder.main_ended(now),
            None => self.ladder = Some(Ladder::for_leftovers(now)),
        }
    }

    fn finish(mut self, tree: Tree) -> io::Result<()> {
        if self.exit.is_none() {
            self.exit = Some(self.describe_end(Ended::Stuck));
        }
        let written = self.write_last_word(tree)?;
        // The room it leaves is free, whether or not the record has reached the disk; and once the controllers have
        // committed how it ended, the record is not needed any more.
        notify(&self.data, self.launch.attempt);
        written.sync()
    }

    /// How a job ended is known to nobody else, so a full disk is waited out, for as long as the directory is there.
    fn write_last_word(&mut self, tree: Tree) -> io::Result<Unsynced> {
        let mut pause = FIRST_PAUSE;
        loop {
            match self.publish_exit(tree.clone()) {
                Err(error) if self.dir.path().exists() => {
                    eprintln!("cannot record the end of {}: {error}", self.launch.attempt);
                }
                other => return other,
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    fn publish_exit(&mut self, tree: Tree) -> io::Result<Unsynced> {
        let exit = self.exit.as_mut().expect("written only once the main process's end is known");
        exit.cpu_time = Millis(u64::try_from(self.usage.cpu.as_millis()).unwrap_or(u64::MAX));
        exit.max_rss_bytes = self.usage.max_rss_bytes;
        exit.tree = tree;
        self.dir.publish_exit(exit)
    }

    /// Each limit is passed once. Lost contact also shortens a stop that is under way.
    fn check_limits(&mut self, now: BootTime) {
        if self.time_limit_at().is_some_and(|limit| now >= limit) {
            self.timed_out = true;
            self.stop(StopCause::Timeout, "its time limit", self.launch.grace);
        }
        if self.contact_lost_at().is_some_and(|limit| now >= limit) {
            self.lost_contact = true;
            let grace = self.launch.lost_grace.min(LOST_CONTACT_GRACE);
            self.stop(StopCause::LostContact, "the worker's loss of contact", grace);
        }
    }

    fn time_limit_at(&self) -> Option<BootTime> {
        let limit = self.launch.time_limit.filter(|_| !self.timed_out)?;
        Some(self.started + limit)
    }

    fn contact_lost_at(&self) -> Option<BootTime> {
        let lost_after = self.launch.lost_after.filter(|_| !self.lost_contact)?;
        Some(last_contact(&self.data, &self.boot_id).unwrap_or(self.started) + lost_after)
    }

    /// Does what the agent has written down; without that, `otherwise` is why to stop.
    fn obey_intent(&mut self, otherwise: Option<StopCause>) {
        match (self.dir.intent(), otherwise) {
            (Some(intent), _) => {
                self.stop(StopCause::Intent(intent.reason), &intent.by, intent.grace);
            }
            (None, Some(cause)) => self.stop(cause, "a signal to its shim", self.launch.grace),
            (None, None) => {}
        }
    }

    /// The first cause stays the cause; a later one can only shorten the time left.
    fn stop(&mut self, cause: StopCause, by: &str, grace: Millis) {
        let now = BootTime::now();
        if self.exit.is_none() {
            self.stopped.get_or_insert_with(|| Stopped { cause, by: by.to_owned() });
        }
        match &mut self.ladder {
            Some(ladder) => ladder.hurry(now, grace),
            None => self.ladder = Some(Ladder::new(now, grace)),
        }
    }

    fn climb_ladder(&mut self, now: BootTime) -> Option<Rung> {
        let signal = Signal::from_named_raw(self.launch.stop_signal).unwrap_or(Signal::TERM);
        let rung = self.ladder.as_mut()?.climb(now)?;
        match rung {
            Rung::AskMain => tree::ask_group(self.main.process, signal),
            Rung::AskTree if self.exit.is_none() => tree::ask(signal),
            Rung::AskTree => tree::ask(Signal::TERM),
            Rung::KillTree => tree::kill(),
            Rung::GiveUp => {}
        }
        Some(rung)
    }

    /// Until the next thing that comes by time alone.
    fn wait_at_most(&self, next_look: Duration) -> Duration {
        let now = BootTime::now();
        let limits = [self.time_limit_at(), self.contact_lost_at()];
        let rung = self.ladder.as_ref().map(Ladder::due);
        let next =
            limits.into_iter().flatten().chain(rung).map(|at| at.since(now).to_duration()).min();
        next.map_or(next_look, |next| next.min(next_look))
    }
}

fn pids_alive() -> Vec<i32> {
    tree::alive().iter().map(|process| process.pid).collect()
}
