//! From a [`Launch`] to a running process.

use std::{
    ffi::{CStr, CString},
    fs::{self, File, OpenOptions},
    io::{self, ErrorKind, PipeReader, PipeWriter, Read, Write},
    os::{fd::AsFd, unix::ffi::OsStrExt},
    path::Path,
    time::Duration,
};

use rustix::{
    fs::Mode,
    process::{
        Pid, Signal, WaitOptions, chdir, getpid, getppid, set_parent_process_death_signal, setpgid,
        umask, waitpid,
    },
};

use crate::worker::{
    attempt_dir::{Ended, Launch},
    process::Process,
    sys::{self, Fork, SingleThreaded},
};

/// How long a start may take before the supervision begins without knowing how it went (a working directory on a
/// filesystem that hangs).
const START_PATIENCE: Duration = Duration::from_secs(10);
const SHELL_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// The job's main process.
#[derive(Debug)]
pub struct Main {
    pub process: Process,
    /// Says what went wrong before the program was there; closed by a successful exec.
    trouble: PipeReader,
}

/// Why a job could not be started, for the one who wrote it.
#[derive(Debug)]
pub struct StartError {
    message: String,
    errno: Option<i32>,
}

/// The steps in the new process that can fail.
#[derive(Clone, Copy, Debug)]
enum Step {
    Prepare = 1,
    WorkingDir = 2,
    Exec = 3,
}

/// Starts the job with its output in `output`.
///
/// # Errors
/// It cannot be started as it was asked for.
pub fn start(proof: &SingleThreaded, launch: &Launch, output: &File) -> Result<Main, StartError> {
    let program = Program::new(launch)?;
    let (trouble, report) = io::pipe().map_err(StartError::from)?;
    let no_input = File::open("/dev/null").map_err(StartError::from)?;
    let shim = getpid();
    match proof.fork().map_err(StartError::from)? {
        Fork::Child => {
            let prepared = prepare(launch, shim, &no_input, output);
            become_job(&program, prepared, report)
        }
        Fork::Parent(pid) => {
            drop(report);
            let process = Process::with_pid(pid.as_raw_nonzero().get())
                .ok_or_else(|| io::Error::other("/proc cannot be read"))?;
            let mut main = Main { process, trouble };
            if sys::wait_readable(main.trouble.as_fd(), START_PATIENCE).unwrap_or(true) {
                main.check_start(launch).inspect_err(|_| take_note_of(pid))?;
            }
            Ok(main)
        }
    }
}

impl Main {
    /// Blocks until the program runs or could not be run.
    ///
    /// # Errors
    /// It could not.
    pub fn check_start(&mut self, launch: &Launch) -> Result<(), StartError> {
        let mut report = [0; 8];
        match self.trouble.read_exact(&mut report) {
            Ok(()) => Err(StartError::reported(report, launch)),
            Err(_) => Ok(()),
        }
    }
}

impl StartError {
    pub fn into_ended(self) -> Ended {
        Ended::StartFailed { message: self.message, errno: self.errno }
    }

    fn new(message: impl Into<String>) -> Self {
        StartError { message: message.into(), errno: None }
    }

    fn reported(report: [u8; 8], launch: &Launch) -> Self {
        let [step, _, _, _, errno @ ..] = report;
        let errno = i32::from_le_bytes(errno);
        let error = io::Error::from_raw_os_error(errno);
        let (command, dir) = (&launch.argv[0], &launch.working_dir);
        let message = if step == Step::WorkingDir as u8 {
            format!("cannot enter the working directory `{dir}`: {}", plain(&error))
        } else if step == Step::Exec as u8 {
            explain_exec(command, &error, launch)
        } else {
            format!("cannot prepare a process for `{command}`: {}", plain(&error))
        };
        StartError { message, errno: Some(errno) }
    }
}

impl From<io::Error> for StartError {
    fn from(error: io::Error) -> Self {
        StartError {
            message: format!("cannot start a process: {}", plain(&error)),
            errno: error.raw_os_error(),
        }
    }
}

fn explain_exec(command: &str, error: &io::Error, launch: &Launch) -> String {
    match error.kind() {
        ErrorKind::NotFound if command.contains('/') && exists(command, launch) => format!(
            "cannot run `{command}`: the interpreter in its first line, or its loader, was not found"
        ),
        ErrorKind::NotFound if command.contains('/') => format!("`{command}` was not found"),
        ErrorKind::NotFound => {
            format!("command `{command}` was not found in PATH={}", search_path(launch))
        }
        ErrorKind::PermissionDenied => {
            format!("cannot run `{command}`: permission denied (is it executable?)")
        }
        _ if error.raw_os_error() == Some(libc::ENOEXEC) => format!(
            "cannot run `{command}`: neither a program for this machine nor a script that begins with `#!`"
        ),
        ErrorKind::ArgumentListTooLong => {
            format!("cannot run `{command}`: arguments and environment are too long")
        }
        _ => format!("cannot run `{command}`: {}", plain(error)),
    }
}

fn exists(command: &str, launch: &Launch) -> bool {
    fs::exists(Path::new(&launch.working_dir).join(command)).unwrap_or(false)
}

/// An error without Rust's `(os error 2)`.
fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    match text.split_once(" (os error") {
        Some((text, _)) => text.to_lowercase(),
        None => text,
    }
}

/// What exec needs, made before the fork.
struct Program {
    /// Where the command may be, in the order of the job's own PATH.
    candidates: Vec<CString>,
    argv: Vec<CString>,
    env: Vec<CString>,
    working_dir: CString,
    preferred_dir: Option<CString>,
}

impl Program {
    fn new(launch: &Launch) -> Result<Program, StartError> {
        let command = launch.argv.first().filter(|command| !command.is_empty());
        let command = command.ok_or_else(|| StartError::new("the command is empty"))?;
        let candidates = if command.contains('/') {
            vec![c_string("the command", command)?]
        } else {
            let places = search_path(launch).split(':').map(|place| Path::new(place).join(command));
            places
                .map(|path| {
                    CString::new(path.as_os_str().as_bytes()).map_err(|_| nul("the command"))
                })
                .collect::<Result<_, _>>()?
        };
        let argv = launch
            .argv
            .iter()
            .map(|word| c_string("an argument", word))
            .collect::<Result<_, _>>()?;
        let env = launch.env.iter().map(|(name, value)| c_string(name, &format!("{name}={value}")));
        Ok(Program {
            candidates,
            argv,
            env: env.collect::<Result<_, _>>()?,
            working_dir: c_string("the working directory", &launch.working_dir)?,
            preferred_dir: launch
                .preferred_dir
                .as_deref()
                .map(|dir| c_string("the working directory", dir))
                .transpose()?,
        })
    }

    fn enter_dir(&self) -> io::Result<()> {
        match &self.preferred_dir {
            Some(dir) if chdir(dir.as_c_str()).is_ok() => Ok(()),
            Some(_) | None => Ok(chdir(self.working_dir.as_c_str())?),
        }
    }

    /// Like `execvp`: goes on where the command is not, and tells of a denial only if it is nowhere else.
    fn exec(&self) -> io::Error {
        let mut denied = None;
        let mut last = io::Error::from_raw_os_error(libc::ENOENT);
        for candidate in &self.candidates {
            last = exec(candidate, self);
            match last.kind() {
                ErrorKind::NotFound | ErrorKind::NotADirectory => {}
                ErrorKind::PermissionDenied => denied = Some(last.raw_os_error()),
                _ => return last,
            }
        }
        denied.flatten().map_or(last, io::Error::from_raw_os_error)
    }
}

fn exec(path: &CStr, program: &Program) -> io::Error {
    match sys::exec(path, &program.argv, &program.env) {
        Ok(never) => match never {},
        Err(error) => error,
    }
}

fn search_path(launch: &Launch) -> &str {
    launch.env.get("PATH").map_or(SHELL_PATH, String::as_str)
}

fn c_string(what: &str, text: &str) -> Result<CString, StartError> {
    CString::new(text).map_err(|_| nul(what))
}

fn nul(what: &str) -> StartError {
    StartError::new(format!("{what} contains a NUL character"))
}

/// Reaps a process that is about to exit, so that none is left to whoever inherits the shim's children.
fn take_note_of(child: Pid) {
    let _ = waitpid(Some(child), WaitOptions::empty());
}

/// In the new process: never returns, and tells `report` if it fails.
fn become_job(program: &Program, prepared: io::Result<()>, mut report: PipeWriter) -> ! {
    let (step, error) = match prepared {
        Err(error) => (Step::Prepare, error),
        Ok(()) => match program.enter_dir() {
            Err(error) => (Step::WorkingDir, error),
            Ok(()) => (Step::Exec, program.exec()),
        },
    };
    let mut message = [step as u8, 0, 0, 0, 0, 0, 0, 0];
    message[4..].copy_from_slice(&error.raw_os_error().unwrap_or(0).to_le_bytes());
    let _ = report.write_all(&message);
    sys::exit_now(127)
}

fn prepare(launch: &Launch, shim: Pid, no_input: &File, output: &File) -> io::Result<()> {
    setpgid(None, None)?;
    die_with(shim)?;
    invite_the_oom_killer();
    sys::duplicate_onto(no_input.as_fd(), 0)?;
    sys::duplicate_onto(output.as_fd(), 1)?;
    sys::duplicate_onto(output.as_fd(), 2)?;
    umask(Mode::from_bits_truncate(launch.umask));
    sys::unblock_signals();
    Ok(())
}

/// A job without its shim would run on with no time limit and no lost contact. That the signal follows the parent's
/// *thread* is no danger: the shim has only one.
fn die_with(shim: Pid) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    if getppid() == Some(shim) { Ok(()) } else { Err(io::Error::other("the shim has died")) }
}

/// When the machine runs out of memory, a job shall go before what supervises it. Not allowed everywhere.
fn invite_the_oom_killer() {
    if let Ok(mut file) = OpenOptions::new().write(true).open("/proc/self/oom_score_adj") {
        let _ = file.write_all(b"500");
    }
}
