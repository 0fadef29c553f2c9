//! Members of a cluster as processes: ended by signal, and started again with the words they were first started with.

use std::{
    ffi::OsString,
    fs::{self, File},
    os::unix::{ffi::OsStringExt as _, process::CommandExt as _},
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::{Context as _, ensure};
use rustix::process::{Pid, Signal, kill_process};

use super::wait_until;

/// How long a process may take to end.
const END_DEADLINE: Duration = Duration::from_secs(20);

#[derive(Debug)]
pub struct Member {
    pid: u32,
    words: Vec<OsString>,
    log: PathBuf,
    /// When this process started it, and so has to reap it.
    child: Option<Child>,
}

/// What a process takes of the machine's memory, in MiB.
#[derive(Clone, Copy, Debug, Default)]
pub struct Memory {
    pub rss: f64,
    /// What it shares with others counts by its part.
    pub pss: f64,
}

impl Member {
    /// A process that another one started.
    pub fn adopt(pid: u32, log: PathBuf) -> anyhow::Result<Member> {
        let words = words(pid);
        ensure!(!words.is_empty(), "process {pid} is gone");
        Ok(Member { pid, words, log, child: None })
    }

    pub fn start(words: Vec<OsString>, log: PathBuf) -> anyhow::Result<Member> {
        let mut member = Member { pid: 0, words, log, child: None };
        member.start_again()?;
        Ok(member)
    }

    /// With the same words, after it has ended.
    pub fn start_again(&mut self) -> anyhow::Result<()> {
        ensure!(!self.is_alive(), "process {} still runs", self.pid);
        let log = File::options()
            .create(true)
            .append(true)
            .open(&self.log)
            .with_context(|| format!("cannot write {}", self.log.display()))?;
        let (program, arguments) = self.words.split_first().context("a program has a name")?;
        let child = Command::new(program)
            .args(arguments)
            .env_remove("DRIGS_TOKEN")
            .stdin(Stdio::null())
            .stdout(log.try_clone().context("cannot share the log file")?)
            .stderr(log)
            // A Ctrl-C at the terminal is for the benchmark, which ends its processes in order.
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        self.pid = child.id();
        self.child = Some(child);
        Ok(())
    }

    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Neither gone, nor a zombie, nor another process that was given its number.
    pub fn is_alive(&self) -> bool {
        self.pid != 0 && words(self.pid) == self.words
    }

    pub fn signal(&self, signal: Signal) {
        if self.is_alive()
            && let Some(pid) = i32::try_from(self.pid).ok().and_then(Pid::from_raw)
        {
            // It may have ended just now.
            let _ = kill_process(pid, signal);
        }
    }

    pub async fn wait_until_gone(&mut self) -> anyhow::Result<()> {
        let what = format!("the end of process {}", self.pid);
        wait_until(&what, END_DEADLINE, async || !self.is_alive()).await?;
        self.reap();
        Ok(())
    }

    /// For when there is no time to be polite.
    pub fn kill(&mut self) {
        self.signal(Signal::KILL);
        self.reap();
    }

    fn reap(&mut self) {
        if let Some(mut child) = self.child.take() {
            // It is dead or dying, so this ends.
            let _ = child.wait();
        }
    }

    pub fn memory(&self) -> anyhow::Result<Memory> {
        let path = format!("/proc/{}/smaps_rollup", self.pid);
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
        let mib = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            let kib = line.and_then(|it| it.trim().trim_end_matches(" kB").parse::<f64>().ok());
            kib.map(|kib| kib / 1024.0).with_context(|| format!("{path} does not say {name}"))
        };
        Ok(Memory { rss: mib("Rss:")?, pss: mib("Pss:")? })
    }
}

/// A process's command line; empty when it is gone or a zombie.
pub fn words(pid: u32) -> Vec<OsString> {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let line = line.strip_suffix(&[0]).unwrap_or(&line);
    if line.is_empty() {
        return Vec::new();
    }
    line.split(|byte| *byte == 0).map(|word| OsString::from_vec(word.to_vec())).collect()
}
