//! The system calls that neither the standard library nor rustix wraps. The worker's only unsafe code.
#![expect(unsafe_code, reason = "every function here is one system call, made safe")]

use std::{
    convert::Infallible,
    ffi::{CStr, CString},
    io, mem,
    os::fd::{AsRawFd, BorrowedFd, RawFd},
    os::unix::net::UnixStream,
    ptr,
    time::Duration,
};

use rustix::process::{Pid, Signal};

/// Proof that this process has one thread, without which a forked child may find locks held for ever.
#[derive(Debug)]
pub struct SingleThreaded(());

#[derive(Debug)]
pub enum Fork {
    Parent(Pid),
    Child,
}

/// What a call to [`reap`] found.
#[derive(Debug)]
pub enum Reaped {
    Child {
        pid: i32,
        status: WaitStatus,
        usage: Usage,
    },
    /// There are children, but none has ended.
    NoneEnded,
    NoChildren,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitStatus {
    Exited(i32),
    Signaled(i32),
}

/// What an ended child, and the children that it waited for, have used.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    pub cpu: Duration,
    pub max_rss_bytes: u64,
}

impl SingleThreaded {
    /// # Errors
    /// `/proc` cannot be read, or the process has more threads than one.
    pub fn prove() -> io::Result<Self> {
        match std::fs::read_dir("/proc/self/task")?.count() {
            1 => Ok(SingleThreaded(())),
            threads => Err(io::Error::other(format!("cannot fork with {threads} threads running"))),
        }
    }

    /// # Errors
    /// As `fork(2)`: out of processes or memory.
    pub fn fork(&self) -> io::Result<Fork> {
        // SAFETY: no other thread exists, so the child may do whatever the parent may.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => Ok(Fork::Child),
            pid => Ok(Fork::Parent(Pid::from_raw(pid).expect("fork returns a child's pid"))),
        }
    }
}

/// Ends the process without running destructors or flushing what the parent still holds.
pub fn exit_now(code: i32) -> ! {
    // SAFETY: _exit takes any code and does not return.
    unsafe { libc::_exit(code) }
}

/// Becomes another program; returns only if that failed.
///
/// # Errors
/// As `execve(2)`.
pub fn exec(program: &CStr, argv: &[CString], env: &[CString]) -> io::Result<Infallible> {
    let pointers = |strings: &[CString]| -> Vec<*const libc::c_char> {
        strings.iter().map(|string| string.as_ptr()).chain([ptr::null()]).collect()
    };
    let (argv, env) = (pointers(argv), pointers(env));
    // SAFETY: both arrays end in a null pointer and outlive the call, as do the strings they point to.
    unsafe { libc::execve(program.as_ptr(), argv.as_ptr(), env.as_ptr()) };
    Err(io::Error::last_os_error())
}

/// Closes every descriptor from `first` up. Only for a process that has just begun: no value may own one of them.
pub fn close_from(first: RawFd) {
    // SAFETY: closing descriptors touches no memory; that nothing owns them is the caller's duty above.
    let closed = unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, 0) };
    if closed == 0 {
        return;
    }
    let open = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let numbers: Vec<RawFd> =
        open.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    for number in numbers.into_iter().filter(|number| *number >= first) {
        // SAFETY: as above; one that is closed already only gives EBADF.
        unsafe { libc::close(number) };
    }
}

/// Makes `descriptor` this process's `number` (0, 1 or 2).
///
/// # Errors
/// As `dup2(2)`.
pub fn duplicate_onto(descriptor: BorrowedFd<'_>, number: RawFd) -> io::Result<()> {
    // SAFETY: dup2 touches no memory, and nothing in this program owns the standard descriptors.
    check(unsafe { libc::dup2(descriptor.as_raw_fd(), number) }).map(drop)
}

/// Waits until `descriptor` can be read (or its other side is gone); `false` when that took too long.
///
/// # Errors
/// As `poll(2)`, but an interruption counts as waiting too long.
pub fn wait_readable(descriptor: BorrowedFd<'_>, timeout: Duration) -> io::Result<bool> {
    let mut poll = libc::pollfd { fd: descriptor.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let millis = timeout.as_millis().try_into().unwrap_or(i32::MAX);
    // SAFETY: the one entry lives on this stack frame for the whole call.
    match check(unsafe { libc::poll(&raw mut poll, 1, millis) }) {
        Ok(ready) => Ok(ready > 0),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(false),
        Err(error) => Err(error),
    }
}

/// The user that the other side of a connection ran as when it connected.
///
/// # Errors
/// As `getsockopt(2)`.
pub fn peer_uid(stream: &UnixStream) -> io::Result<u32> {
    let mut peer = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the buffer is a ucred and `length` says so.
    check(unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &raw mut length,
        )
    })?;
    Ok(peer.uid)
}

/// How many ticks of a process's start time make a second.
pub fn ticks_per_second() -> u64 {
    // SAFETY: sysconf only reads a number.
    let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    u64::try_from(ticks).ok().filter(|ticks| *ticks > 0).unwrap_or(100)
}

/// Holds all signals back, so that they are taken one by one with [`wait_signal`].
pub fn block_signals() {
    set_signal_mask(&every_signal());
}

pub fn unblock_signals() {
    // SAFETY: a sigset_t is plain bits, for which zeroes are valid, and sigemptyset then initialises it.
    let mut none = unsafe { mem::zeroed() };
    // SAFETY: `none` is a valid sigset_t.
    unsafe { libc::sigemptyset(&raw mut none) };
    set_signal_mask(&none);
}

pub fn ignore_signal(signal: Signal) {
    // SAFETY: SIG_IGN runs no code of ours.
    unsafe { libc::signal(signal.as_raw(), libc::SIG_IGN) };
}

/// Undoes what [`ignore_signal`] did; it would survive an exec.
pub fn reset_signal(signal: Signal) {
    reset(signal.as_raw());
}

/// Undoes every `ignore` that this process inherited.
pub fn reset_all_signals() {
    (1..=libc::SIGRTMAX()).for_each(reset);
}

fn reset(signal: i32) {
    // SAFETY: SIG_DFL runs no code of ours; for KILL and STOP the call only fails.
    unsafe { libc::signal(signal, libc::SIG_DFL) };
}

/// The next of the signals held back, by number; `None` when none came in time.
pub fn wait_signal(timeout: Duration) -> Option<i32> {
    let timeout = libc::timespec {
        tv_sec: timeout.as_secs().try_into().unwrap_or(libc::time_t::MAX),
        tv_nsec: timeout.subsec_nanos().into(),
    };
    let signals = every_signal();
    // SAFETY: the set and the time are valid for the whole call, and no details are asked for.
    let signal =
        unsafe { libc::sigtimedwait(&raw const signals, ptr::null_mut(), &raw const timeout) };
    (signal > 0).then_some(signal)
}

/// Takes one ended child, without waiting.
pub fn reap() -> Reaped {
    let mut status = 0;
    // SAFETY: a rusage is plain numbers, for which zeroes are valid.
    let mut usage: libc::rusage = unsafe { mem::zeroed() };
    // SAFETY: both buffers are valid for the whole call.
    let pid = unsafe { libc::wait4(-1, &raw mut status, libc::WNOHANG, &raw mut usage) };
    match pid {
        0 => Reaped::NoneEnded,
        1.. => Reaped::Child { pid, status: read_status(status), usage: read_usage(&usage) },
        _ => Reaped::NoChildren,
    }
}

fn read_status(status: i32) -> WaitStatus {
    if libc::WIFSIGNALED(status) {
        WaitStatus::Signaled(libc::WTERMSIG(status))
    } else {
        WaitStatus::Exited(libc::WEXITSTATUS(status))
    }
}

fn read_usage(usage: &libc::rusage) -> Usage {
    let duration = |time: libc::timeval| {
        Duration::from_secs(time.tv_sec.unsigned_abs())
            + Duration::from_micros(time.tv_usec.unsigned_abs())
    };
    Usage {
        cpu: duration(usage.ru_utime) + duration(usage.ru_stime),
        max_rss_bytes: usage.ru_maxrss.unsigned_abs() * 1024,
    }
}

fn every_signal() -> libc::sigset_t {
    // SAFETY: a sigset_t is plain bits, for which zeroes are valid.
    let mut signals = unsafe { mem::zeroed() };
    // SAFETY: `signals` is a valid sigset_t.
    unsafe { libc::sigfillset(&raw mut signals) };
    signals
}

fn set_signal_mask(mask: &libc::sigset_t) {
    // SAFETY: the mask is valid, and the old one is not asked for.
    unsafe { libc::sigprocmask(libc::SIG_SETMASK, mask, ptr::null_mut()) };
}

fn check(returned: i32) -> io::Result<i32> {
    if returned < 0 { Err(io::Error::last_os_error()) } else { Ok(returned) }
}
