//! A cluster of real processes for tests: `drigs lab --detach`, and what a disaster needs.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    time::{Duration, Instant},
};

use drigs::model::{IdempotencyKey, JobId, JobSpec, TaskState, UserName};
use drigs::rpc::api::{
    Api, ApiError, Consistency, JobDetail, SubmitRequest, TaskFilter, TaskView, WorkerView,
};
use drigs::rpc::client::{Client, ClientConfig};
use serde::Deserialize;
use tempfile::TempDir;

pub const DRIGS: &str = env!("CARGO_BIN_EXE_drigs");
/// Long enough for a loaded machine; nothing waits for it when all is well.
pub const DEADLINE: Duration = Duration::from_secs(60);

pub struct Lab {
    pub dir: TempDir,
    pub client: Client,
    pub controllers: String,
    pub token: String,
    /// What to start a process with again, by name.
    commands: BTreeMap<String, Vec<String>>,
    runtime: tokio::runtime::Runtime,
    /// Processes that the test itself started.
    restarted: BTreeMap<String, std::process::Child>,
}

#[derive(Deserialize)]
struct Pids {
    controllers: BTreeMap<u64, u32>,
    workers: BTreeMap<String, u32>,
}

impl Lab {
    /// `flags` as for `drigs lab`.
    pub fn start(flags: &[&str]) -> Lab {
        Lab::start_with(flags, &[])
    }

    /// The same, with variables for all of its processes.
    pub fn start_with(flags: &[&str], env: &[(&str, &str)]) -> Lab {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let place = dir.path().join("lab");
        let output = Command::new(DRIGS)
            .args(["lab", "--detach", "--dir"])
            .arg(&place)
            .args(flags)
            .envs(env.iter().copied())
            .stdin(Stdio::null())
            .output()
            .expect("drigs starts");
        assert!(output.status.success(), "the lab did not start:\n{}", text(&output));
        let env = fs::read_to_string(place.join("lab.env")).expect("lab.env");
        let value = |key: &str| {
            let line = env.lines().find(|line| line.contains(key)).expect("lab.env names it");
            line.split_once('=').expect("KEY=VALUE").1.to_owned()
        };
        let (controllers, token) = (value("DRIGS_CONTROLLERS"), value("DRIGS_TOKEN"));
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        let client = {
            let _guard = runtime.enter();
            Client::new(ClientConfig {
                controllers: controllers.split(',').map(str::to_owned).collect(),
                token: Some(token.clone()),
                deadline: Duration::from_secs(20),
            })
            .expect("the lab's addresses are addresses")
        };
        let mut lab = Lab {
            dir,
            client,
            controllers,
            token,
            commands: BTreeMap::new(),
            runtime,
            restarted: BTreeMap::new(),
        };
        for (name, pid) in lab.recorded() {
            lab.commands.insert(name, command_line(pid));
        }
        lab
    }

    pub fn place(&self) -> PathBuf {
        self.dir.path().join("lab")
    }

    fn recorded(&self) -> BTreeMap<String, u32> {
        let json = fs::read_to_string(self.place().join("pids.json")).expect("pids.json");
        let pids: Pids = serde_json::from_str(&json).expect("pids.json is JSON");
        let controllers =
            pids.controllers.into_iter().map(|(id, pid)| (format!("controller-{id}"), pid));
        controllers.chain(pids.workers).collect()
    }

    /// The living process of this name, whether the lab or the test started it.
    pub fn pid(&self, name: &str) -> u32 {
        match self.restarted.get(name) {
            Some(child) => child.id(),
            None => self.recorded()[name],
        }
    }

    pub fn kill(&mut self, name: &str) {
        let pid = self.pid(name);
        signal(pid, "KILL");
        if let Some(mut child) = self.restarted.remove(name) {
            child.wait().expect("it was started here");
        }
        wait_until("it is gone", || !alive(pid));
    }

    /// Starts a killed process again, as it was started first.
    pub fn restart(&mut self, name: &str) {
        let child = self.spawn(name, &[]);
        self.restarted.insert(name.to_owned(), child);
    }

    /// The same command with more flags.
    pub fn spawn(&self, name: &str, more: &[&str]) -> std::process::Child {
        let command = &self.commands[name];
        let log = fs::File::options()
            .append(true)
            .create(true)
            .open(self.place().join(format!("{name}.log")))
            .expect("the log opens");
        Command::new(&command[0])
            .args(&command[1..])
            .args(more)
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("the log is shared"))
            .stderr(log)
            .spawn()
            .expect("it starts again")
    }

    /// Starts one more controller, with an empty directory, and says where it listens.
    pub fn start_controller(&mut self, id: u64) -> String {
        let listen = free_address();
        let name = format!("controller-{id}");
        let dir = self.place().join(&name).display().to_string();
        let members = self.flag("controller-1", "--peers");
        let peers = format!("{members},{id}={listen}");
        let (number, http) = (id.to_string(), free_address());
        let flags = [
            ("--data-dir", dir.as_str()),
            ("--id", &number),
            ("--peers", &peers),
            ("--listen", &listen),
            ("--http", &http),
        ];
        self.change_command("controller-1", &name, &flags);
        self.restart(&name);
        listen
    }

    /// `name` is started from now on as `like` is, with other values of these flags.
    pub fn change_command(&mut self, like: &str, name: &str, flags: &[(&str, &str)]) {
        let mut command = self.commands[like].clone();
        for (flag, value) in flags {
            match command.iter().position(|word| word == flag) {
                Some(place) => command[place + 1] = (*value).to_owned(),
                None => command.extend([(*flag).to_owned(), (*value).to_owned()]),
            }
        }
        self.commands.insert(name.to_owned(), command);
    }

    /// Where `name` was told to listen.
    pub fn address(&self, name: &str) -> String {
        self.flag(name, "--listen")
    }

    fn flag(&self, name: &str, flag: &str) -> String {
        let mut words = self.commands[name].iter().skip_while(|word| *word != flag);
        words.nth(1).unwrap_or_else(|| panic!("{name} has {flag}")).clone()
    }

    /// What `name` has written to its log so far.
    pub fn log(&self, name: &str) -> String {
        fs::read_to_string(self.place().join(format!("{name}.log"))).unwrap_or_default()
    }

    /// Runs `drigs`, which must succeed, and returns what it prints.
    #[track_caller]
    pub fn done(&self, arguments: &[&str]) -> String {
        let output = self.drigs(arguments);
        assert!(output.status.success(), "drigs {}: {}", arguments.join(" "), text(&output));
        text(&output)
    }

    /// Starts `drigs` as a person would, and does not wait for it.
    pub fn begin(&self, arguments: &[&str]) -> std::process::Child {
        Command::new(DRIGS)
            .args(arguments)
            .env("DRIGS_CONTROLLERS", &self.controllers)
            .env("DRIGS_TOKEN", &self.token)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("drigs starts")
    }

    /// The command line by which `name` was started.
    pub fn command(&self, name: &str) -> Vec<String> {
        self.commands[name].clone()
    }

    pub fn wait<T>(&self, question: impl Future<Output = T>) -> T {
        self.runtime.block_on(question)
    }

    pub fn submit(&self, spec: JobSpec) -> JobId {
        self.try_submit(spec).expect("the submission is taken")
    }

    pub fn try_submit(&self, spec: JobSpec) -> Result<JobId, ApiError> {
        let key = format!("{:x}", rand::random::<u128>());
        let request = SubmitRequest {
            spec,
            user: UserName::from("test"),
            key: IdempotencyKey::new(key),
            strict: false,
            dry_run: false,
        };
        let submitted = self.wait(self.client.submit(request))?;
        Ok(submitted.job_id.expect("no dry run"))
    }

    pub fn job(&self, id: JobId) -> JobDetail {
        self.wait(self.client.job(id, Consistency::Linearizable)).expect("the job is known")
    }

    pub fn task(&self, job: JobId, index: u32) -> TaskView {
        let filter =
            TaskFilter { job, index: Some(index), states: Vec::new(), limit: 1, after: None };
        let page = self.wait(self.client.tasks(filter, Consistency::Linearizable));
        page.expect("the tasks are listed").tasks.remove(0)
    }

    pub fn worker(&self, name: &str) -> WorkerView {
        let all = self.wait(self.client.workers(Consistency::Linearizable));
        let all = all.expect("the workers are listed");
        all.into_iter().find(|worker| worker.name == name).expect("the worker is listed")
    }

    pub fn wait_for_state(&self, job: JobId, state: TaskState) {
        wait_until(&format!("job {job} is {state}"), || self.job(job).job.status == state);
    }

    pub fn leader(&self) -> u64 {
        let mut leader = None;
        wait_until("there is a leader", || {
            leader = self.wait(self.client.cluster()).ok().and_then(|view| view.leader);
            leader.is_some()
        });
        leader.expect("waited for")
    }

    /// Runs `drigs` as a person would.
    pub fn drigs(&self, arguments: &[&str]) -> Output {
        Command::new(DRIGS)
            .args(arguments)
            .env("DRIGS_CONTROLLERS", &self.controllers)
            .env("DRIGS_TOKEN", &self.token)
            .stdin(Stdio::null())
            .output()
            .expect("drigs starts")
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        for (_, mut child) in std::mem::take(&mut self.restarted) {
            // It may be gone already; either way nothing of it shall stay.
            let _ = child.kill();
            let _ = child.wait();
        }
        let stopped = Command::new(DRIGS)
            .args(["lab", "stop", "--dir"])
            .arg(self.place())
            .stdin(Stdio::null())
            .output();
        if let Ok(output) = stopped
            && !output.status.success()
        {
            eprintln!("the lab did not stop:\n{}", text(&output));
        }
    }
}

/// A job that runs `script` in a shell.
pub fn shell(name: &str, script: &str) -> JobSpec {
    JobSpec {
        name: name.to_owned(),
        command: vec![String::from("/bin/sh"), String::from("-c"), script.to_owned()],
        ..JobSpec::default()
    }
}

/// # Panics
/// When it does not hold in time.
#[track_caller]
pub fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !holds() {
        assert!(Instant::now() < deadline, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The lines of a file that may not be there yet.
pub fn lines(path: &Path) -> Vec<String> {
    fs::read_to_string(path).unwrap_or_default().lines().map(str::to_owned).collect()
}

pub fn signal(pid: u32, name: &str) {
    let pid = rustix::process::Pid::from_raw(pid as i32).expect("a pid");
    let signal = match name {
        "KILL" => rustix::process::Signal::KILL,
        "TERM" => rustix::process::Signal::TERM,
        "INT" => rustix::process::Signal::INT,
        "STOP" => rustix::process::Signal::STOP,
        "CONT" => rustix::process::Signal::CONT,
        _ => panic!("no signal {name}"),
    };
    // It may be gone already.
    let _ = rustix::process::kill_process(pid, signal);
}

/// Whether anything of the process is left but what its parent has to collect. Its first thread may be a zombie while
/// others still hold its files and locks.
pub fn alive(pid: u32) -> bool {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let stats = threads.filter_map(|thread| fs::read_to_string(thread.path().join("stat")).ok());
    let state =
        |stat: String| stat.rsplit_once(')').and_then(|it| it.1.trim_start().chars().next());
    stats.filter_map(state).any(|state| !matches!(state, 'Z' | 'X'))
}

fn command_line(pid: u32) -> Vec<String> {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).expect("it runs");
    let words = bytes.split(|byte| *byte == 0).filter(|word| !word.is_empty());
    words.map(|word| String::from_utf8_lossy(word).into_owned()).collect()
}

fn free_address() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("it is bound").to_string()
}

/// Waits for a process that ends by itself, and returns its exit code.
#[track_caller]
pub fn exit_code(mut child: std::process::Child) -> Option<i32> {
    let mut ended = None;
    wait_until("it ends by itself", || {
        ended = child.try_wait().expect("it was started here");
        ended.is_some()
    });
    ended.and_then(|status| status.code())
}

pub fn text(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}
