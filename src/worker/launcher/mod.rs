//! The launcher: a process of its own that forks a shim for each attempt. A fork of this small, single-threaded process
//! costs a tenth of a millisecond; an exec of the whole program would cost several. It outlives the agent, and shims
//! outlive it.
//!
//! The agent talks to it in lines: `start 12.0.1` is answered by `12.0.1 PID` or `12.0.1 error ERRNO`; `retire` makes it
//! end once its shims have, because a newer program takes over.

mod client;

use std::{
    env,
    ffi::OsStr,
    fs::{self, OpenOptions},
    io::{self, BufRead, BufReader, BufWriter, Write},
    os::{
        fd::AsFd,
        unix::{
            fs::MetadataExt,
            net::{UnixListener, UnixStream},
        },
    },
    path::Path,
    time::{Duration, Instant},
};

use rustix::{
    fs::Mode,
    process::{Signal, WaitOptions, chdir, getuid, setsid, umask, wait},
};

pub(super) use self::client::{Client, Launcher, Reply};
use crate::{
    model::AttemptId,
    worker::{
        attempt_dir::DataDir,
        clock::boot_id,
        shim,
        sys::{self, Fork, SingleThreaded},
    },
};

const ARGUMENT: &str = "__launcher";
const SOCKET: &str = "launcher.sock";
/// Ignoring the last one makes the kernel forget ended shims by itself.
pub(super) const IGNORED: [Signal; 3] = [Signal::HUP, Signal::PIPE, Signal::CHILD];
const IDLE_LIMIT: Duration = Duration::from_secs(60);
const IDLE_LOOK: Duration = Duration::from_secs(1);

/// Becomes the launcher, and does not return, if this program was started as one. Every program that may run jobs calls
/// this first of all, before there is a second thread.
pub fn run_if_asked() {
    let mut arguments = env::args_os().skip(1);
    if arguments.next().as_deref() != Some(OsStr::new(ARGUMENT)) {
        return;
    }
    let dir = arguments.next().unwrap_or_default();
    let code = match run(Path::new(&dir)) {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("the launcher in {} failed: {error}", dir.display());
            1
        }
    };
    sys::exit_now(code)
}

/// Tells one build of the program from another, so that an upgraded agent gets a launcher of its own kind.
fn build_of(program: &Path) -> io::Result<String> {
    let file = fs::metadata(program)?;
    let version = env!("CARGO_PKG_VERSION");
    Ok(format!("{version}-{}-{}-{}.{}", file.dev(), file.ino(), file.mtime(), file.mtime_nsec()))
}

struct Zygote {
    proof: SingleThreaded,
    listener: UnixListener,
    /// Device and inode of the socket's file.
    address: (u64, u64),
    boot_id: String,
    build: String,
}

enum Parting {
    /// The agent has gone; it or another may come back.
    Left,
    Retired,
}

/// Returns in the process that was started once the launcher listens, and in the launcher when it ends.
fn run(dir: &Path) -> io::Result<()> {
    chdir(dir)?;
    sys::close_from(3);
    sys::unblock_signals();
    sys::reset_all_signals();
    IGNORED.into_iter().for_each(sys::ignore_signal);
    umask(Mode::from_bits_truncate(0o077));
    rustix::thread::set_name(c"drigs-launcher")?;
    protect_from_the_oom_killer();

    let listener = listen()?;
    let zygote = Zygote {
        proof: SingleThreaded::prove()?,
        listener,
        address: socket_address()?,
        boot_id: boot_id()?,
        build: build_of(Path::new("/proc/self/exe"))?,
    };
    setsid().ok();
    match zygote.proof.fork()? {
        Fork::Parent(_) => Ok(()),
        Fork::Child => zygote.serve(),
    }
}

/// Takes the place of an older launcher, if there is one: that one's connections live on.
fn listen() -> io::Result<UnixListener> {
    let draft = format!("{SOCKET}.{}", std::process::id());
    let listener = UnixListener::bind(&draft)?;
    fs::rename(draft, SOCKET)?;
    Ok(listener)
}

/// A machine that runs out of memory shall lose a job, not what supervises it. Not allowed everywhere.
fn protect_from_the_oom_killer() {
    if let Ok(mut file) = OpenOptions::new().write(true).open("/proc/self/oom_score_adj") {
        let _ = file.write_all(b"-900");
    }
}

impl Zygote {
    /// One agent after the other: what a dead one has still asked for is done before the next one is greeted, so that
    /// it may trust what it then sees.
    fn serve(self) -> io::Result<()> {
        let mut idle_since = Instant::now();
        loop {
            if sys::wait_readable(self.listener.as_fd(), IDLE_LOOK)? {
                let (stream, _) = self.listener.accept()?;
                if sys::peer_uid(&stream)? != getuid().as_raw() {
                    continue;
                }
                match self.serve_agent(&stream) {
                    Ok(Parting::Retired) => return wait_for_shims(),
                    Ok(Parting::Left) | Err(_) => idle_since = Instant::now(),
                }
            } else if (idle_since.elapsed() > IDLE_LIMIT || !self.is_reachable()) && !has_shims() {
                return Ok(());
            }
        }
    }

    fn serve_agent(&self, stream: &UnixStream) -> io::Result<Parting> {
        let mut requests = BufReader::new(stream);
        let mut replies = BufWriter::new(stream);
        writeln!(replies, "{}", self.build)?;
        let mut line = String::new();
        loop {
            if requests.buffer().is_empty() {
                replies.flush()?;
            }
            line.clear();
            if requests.read_line(&mut line)? == 0 {
                return Ok(Parting::Left);
            }
            match line.trim_end().split_once(' ') {
                Some(("start", attempt)) => {
                    let attempt = attempt.parse().map_err(io::Error::other)?;
                    self.answer(&mut replies, attempt)?;
                }
                None if line == "retire\n" => return Ok(Parting::Retired),
                _ => return Err(io::Error::other("the agent speaks another language")),
            }
        }
    }

    fn answer(&self, replies: &mut impl Write, attempt: AttemptId) -> io::Result<()> {
        match self.proof.fork() {
            Ok(Fork::Child) => self.become_shim(attempt),
            Ok(Fork::Parent(pid)) => writeln!(replies, "{attempt} {}", pid.as_raw_nonzero()),
            Err(error) => {
                writeln!(replies, "{attempt} error {}", error.raw_os_error().unwrap_or(0))
            }
        }
    }

    fn become_shim(&self, attempt: AttemptId) -> ! {
        match shim::run(&self.proof, DataDir::at("."), attempt, &self.boot_id) {
            Ok(()) => sys::exit_now(0),
            Err(error) => {
                eprintln!("the shim of attempt {attempt} failed: {error}");
                sys::exit_now(1)
            }
        }
    }

    /// Whether the path still leads here; not so once another launcher, or nothing, is there.
    fn is_reachable(&self) -> bool {
        socket_address().is_ok_and(|address| address == self.address)
    }
}

fn socket_address() -> io::Result<(u64, u64)> {
    fs::symlink_metadata(SOCKET).map(|file| (file.dev(), file.ino()))
}

fn wait_for_shims() -> io::Result<()> {
    while has_shims() {
        std::thread::sleep(IDLE_LOOK);
    }
    Ok(())
}

/// As ended children are forgotten at once, there is none to be waited for, only "none yet" or "none at all".
fn has_shims() -> bool {
    wait(WaitOptions::NOHANG).is_ok()
}
