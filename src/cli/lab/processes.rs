//! The lab's processes: started as an operator would, ended without leaving anything behind.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    os::unix::process::CommandExt,
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};

use crate::cli::lab::layout::{ControllerPlace, Layout};

/// The processes of a lab that this process started.
pub struct Processes {
    layout: Layout,
    running: BTreeMap<String, Child>,
}

/// `pids.json`.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Pids {
    controllers: BTreeMap<u64, u32>,
    workers: BTreeMap<String, u32>,
}

/// How long a process may take to end by itself.
const STOP_DEADLINE: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Lines of a dead process's log that are shown.
const LAST_WORDS: usize = 5;

impl Processes {
    pub fn start(layout: &Layout) -> anyhow::Result<Processes> {
        let mut processes = Processes { layout: layout.clone(), running: BTreeMap::new() };
        for place in &layout.controllers {
            processes.start_controller(place)?;
        }
        for name in &layout.workers {
            processes.start_worker(name)?;
        }
        Ok(processes)
    }

    pub fn start_controller(&mut self, place: &ControllerPlace) -> anyhow::Result<()> {
        let name = controller_name(place.id);
        let mut command = self.command(&name, "controller")?;
        command
            .args(["--id", &place.id.to_string()])
            .args(["--peers", &self.layout.peers()])
            .args(["--listen", &place.grpc])
            .args(["--http", &place.http])
            .args(["--lease", &self.layout.lease]);
        self.spawn(name, command)
    }

    fn start_worker(&mut self, name: &str) -> anyhow::Result<()> {
        let mut command = self.command(name, "worker")?;
        command
            .args(["--join", &self.layout.addresses()])
            .args(["--name", name])
            .args(["--cpus", &self.layout.cpus.to_string()])
            .args(["--gpus", &self.layout.gpus]);
        self.spawn(name.to_owned(), command)
    }

    fn command(&self, name: &str, role: &str) -> anyhow::Result<Command> {
        let program = std::env::current_exe().context("cannot find this program")?;
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.layout.log_file(name))
            .with_context(|| format!("cannot write the log of {name}"))?;
        let mut command = Command::new(program);
        command
            .arg(role)
            .arg("--data-dir")
            .arg(self.layout.data_dir(name))
            .arg("--token-file")
            .arg(self.layout.token_file())
            .env_remove("DRIGS_TOKEN")
            .stdin(Stdio::null())
            .stdout(log.try_clone().context("cannot share the log file")?)
            .stderr(log)
            // A Ctrl-C at the terminal is for the lab, which ends its processes in order.
            .process_group(0);
        Ok(command)
    }

    fn spawn(&mut self, name: String, mut command: Command) -> anyhow::Result<()> {
        let child = command.spawn().with_context(|| format!("cannot start {name}"))?;
        self.running.insert(name, child);
        Ok(())
    }

    /// The name of a process that ended although nobody asked it to.
    pub fn first_dead(&mut self) -> Option<String> {
        self.running
            .iter_mut()
            .find_map(|(name, child)| (!matches!(child.try_wait(), Ok(None))).then(|| name.clone()))
    }

    /// What the logs of ended processes say last.
    pub fn last_words(&mut self) -> String {
        let mut words = String::from("the lab's processes said last:");
        for (name, child) in &mut self.running {
            if matches!(child.try_wait(), Ok(None)) {
                continue;
            }
            let log = fs::read_to_string(self.layout.log_file(name)).unwrap_or_default();
            let lines: Vec<&str> = log.lines().collect();
            for line in &lines[lines.len().saturating_sub(LAST_WORDS)..] {
                words.push_str(&format!("\n  {name}: {line}"));
            }
        }
        words
    }

    pub fn controller_pid(&self, id: u64) -> Option<u32> {
        self.running.get(&controller_name(id)).map(Child::id)
    }

    /// `kill -9`, and nothing else: the way a machine dies.
    pub fn kill_controller(&mut self, id: u64) -> anyhow::Result<()> {
        let name = controller_name(id);
        let mut child = self.running.remove(&name).with_context(|| format!("no {name}"))?;
        child.kill().with_context(|| format!("cannot kill {name}"))?;
        child.wait().with_context(|| format!("cannot wait for {name}"))?;
        Ok(())
    }

    /// Writes `pids.json`.
    pub fn record(&self, layout: &Layout) -> anyhow::Result<()> {
        let pid = |name: &str| self.running.get(name).map(Child::id);
        let pids = Pids {
            controllers: layout
                .controllers
                .iter()
                .filter_map(|it| Some((it.id, pid(&controller_name(it.id))?)))
                .collect(),
            workers: layout
                .workers
                .iter()
                .filter_map(|name| Some((name.clone(), pid(name)?)))
                .collect(),
        };
        layout.write(&layout.pids_file(), &serde_json::to_string_pretty(&pids)?)
    }

    /// They go on without this process.
    pub fn leave_running(self) {}

    /// Ends the workers with all they run, then the controllers.
    pub async fn stop(mut self) {
        let workers: Vec<String> = self.layout.workers.clone();
        for name in &workers {
            self.end(name).await;
            stop_attempts(&self.layout, name);
        }
        for place in &self.layout.controllers.clone() {
            self.end(&controller_name(place.id)).await;
        }
    }

    async fn end(&mut self, name: &str) {
        let Some(mut child) = self.running.remove(name) else { return };
        terminate(child.id());
        let deadline = Instant::now() + STOP_DEADLINE;
        while matches!(child.try_wait(), Ok(None)) {
            if Instant::now() > deadline {
                eprintln!("drigs: {name} does not end by itself; it is killed");
                // It may have ended just now.
                let _ = child.kill();
                let _ = child.wait();
                return;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}

/// Name and pid of everything that a lab recorded.
pub fn recorded(layout: &Layout) -> anyhow::Result<Vec<(String, u32)>> {
    let text = fs::read_to_string(layout.pids_file())
        .with_context(|| format!("no lab runs in {}", layout.dir.display()))?;
    let pids: Pids = serde_json::from_str(&text).context("pids.json is damaged")?;
    let controllers = pids.controllers.into_iter().map(|(id, pid)| (controller_name(id), pid));
    Ok(pids.workers.into_iter().chain(controllers).collect())
}

/// Whether `pid` is still the process that the lab started: its command line names the lab's directory.
pub fn is_ours(pid: u32, layout: &Layout) -> bool {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let dir = layout.dir.display().to_string();
    String::from_utf8_lossy(&line).contains(&dir)
}

/// Ends a lab that was left running.
pub async fn stop_detached(layout: &Layout) -> anyhow::Result<()> {
    for (name, pid) in recorded(layout)? {
        if is_ours(pid, layout) {
            terminate(pid);
            wait_until_gone(pid, layout, &name).await?;
        }
        if layout.workers.contains(&name) {
            stop_attempts(layout, &name);
        }
    }
    fs::remove_file(layout.pids_file()).context("cannot remove pids.json")?;
    println!("The lab in {} is stopped.", layout.dir.display());
    Ok(())
}

async fn wait_until_gone(pid: u32, layout: &Layout, name: &str) -> anyhow::Result<()> {
    let deadline = Instant::now() + STOP_DEADLINE;
    while is_ours(pid, layout) {
        ensure!(Instant::now() < deadline, "{name} (pid {pid}) does not end");
        tokio::time::sleep(LOOK_EVERY).await;
    }
    Ok(())
}

/// What a worker ran outlives its agent by design, so it is ended by name.
fn stop_attempts(layout: &Layout, name: &str) {
    let dir = layout.data_dir(name);
    if !Path::new(&dir).exists() {
        return;
    }
    let program = std::env::current_exe().ok();
    let ended = program.map(|program| {
        Command::new(program)
            .args(["worker", "stop-all", "--data-dir"])
            .arg(&dir)
            .env("DRIGS_LOG", "warn")
            .stdin(Stdio::null())
            .status()
    });
    if !matches!(&ended, Some(Ok(status)) if status.success()) {
        eprintln!("drigs: some jobs of {name} may still run");
    }
}

fn terminate(pid: u32) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    if let Some(pid) = pid {
        // It may have ended just now.
        let _ = kill_process(pid, Signal::TERM);
    }
}

fn controller_name(id: u64) -> String {
    format!("controller-{id}")
}
