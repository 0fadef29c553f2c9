//! Lines to commands. A line that makes no sense is a mistake in the test.

use std::{collections::BTreeMap, str::FromStr};

use uuid::Uuid;

use super::World;
use crate::{
    model::{
        Array, AttemptId, Backend, Bytes, Dependency, DependencyKind, Distribution, EndReason,
        Ending, Epoch, Gpu, GpuGrant, GpuHealth, GpuUuid, IdempotencyKey, JobId, JobSpec, Layout,
        LostAfter, MilliCpus, Millis, Placement, Queue, QueueName, RetryCause, Slice, TaskId,
        Timestamp, UserName, WorkerId, WorkerName,
    },
    state::{Command, RegisterWorker, State, SubmitJob, Target},
};

pub(super) enum Line {
    /// Scenery needs no mention when it is accepted.
    Command {
        command: Command,
        scenery: bool,
    },
    Time(Timestamp),
    Show,
}

/// The words of one line, taken from the front.
struct Words<'a> {
    line: &'a str,
    rest: std::iter::Peekable<std::str::SplitWhitespace<'a>>,
}

impl<'a> Words<'a> {
    fn next(&mut self) -> &'a str {
        self.rest.next().unwrap_or_else(|| panic!("`{}` breaks off", self.line))
    }

    fn parse<T: FromStr>(&mut self) -> T {
        let word = self.next();
        word.parse().unwrap_or_else(|_| panic!("`{word}` in `{}` makes no sense", self.line))
    }

    fn take(&mut self, word: &str) -> bool {
        self.rest.next_if(|next| *next == word).is_some()
    }

    fn bytes(&mut self) -> Bytes {
        Bytes::parse(self.next(), Bytes(1 << 20)).expect("an amount of memory")
    }

    fn millis(&mut self) -> Millis {
        Millis::parse(self.next(), Millis(1000)).expect("a length of time")
    }

    fn cpus(&mut self) -> MilliCpus {
        MilliCpus((self.parse::<f64>() * 1000.0) as u64)
    }

    fn worker(&mut self, state: &State) -> WorkerId {
        let name = self.next();
        match state.worker_named(name) {
            Some((id, _)) => id,
            None => name.parse().unwrap_or_else(|_| panic!("no worker {name}: `{}`", self.line)),
        }
    }
}

pub(super) fn line(line: &str, world: &World) -> Line {
    let state = &world.state;
    let mut words = Words { line, rest: line.split_whitespace().peekable() };
    let verb = words.next();
    if let Some(length) = verb.strip_prefix('+') {
        return Line::Time(world.now + Millis::parse(length, Millis(1000)).expect("a time"));
    }
    let scenery = matches!(verb, "worker" | "job" | "queue");
    let command = match verb {
        "show" => return Line::Show,
        "at" => {
            let clock = Millis::parse(words.next(), Millis(1000)).expect("a time of day");
            return Line::Time(Timestamp(clock.0));
        }
        "worker" => worker(&mut words, state),
        "job" => job(&mut words, state),
        "queue" => queue(&mut words),
        "place" => place(&mut words, state),
        "start" => {
            let attempt = words.parse();
            let (worker, epoch) = part(&mut words, state, attempt);
            Command::StartPart { attempt, worker, epoch }
        }
        "end" => {
            let attempt = words.parse();
            let (worker, epoch) = part(&mut words, state, attempt);
            Command::EndPart { attempt, worker, epoch, ending: ending(&mut words) }
        }
        "silence" => {
            let worker = words.worker(state);
            Command::SilenceWorker { worker, epoch: epoch(&mut words, state, worker) }
        }
        "back" => {
            let worker = words.worker(state);
            Command::ReconnectWorker { worker, epoch: epoch(&mut words, state, worker) }
        }
        "gpus" => {
            let worker = words.worker(state);
            let row = state.workers.get(&worker);
            let gpus = match words.take("sick") {
                true => sicken(&mut words, row.expect("it has GPUs").gpus.clone()),
                false => {
                    let name = row.map_or("none", |row| row.name.as_str()).to_owned();
                    gpus(&mut words, &name)
                }
            };
            Command::UpdateGpus { worker, epoch: epoch(&mut words, state, worker), gpus }
        }
        "giveup" => {
            let attempt = words.parse();
            let (worker, _) = part(&mut words, state, attempt);
            Command::GiveUpAttempt { attempt, worker }
        }
        "recall" => Command::RecallAttempt { attempt: words.parse() },
        "forget" => Command::ForgetWorker { worker: words.worker(state) },
        "drain" => Command::DrainWorker {
            worker: words.worker(state),
            reason: words.rest.by_ref().collect::<Vec<_>>().join(" "),
        },
        "resume" => Command::ResumeWorker { worker: words.worker(state) },
        "hold" => Command::HoldJob { job: words.parse(), by: UserName::from("ann") },
        "release" => Command::ReleaseJob { job: words.parse() },
        "cancel" => Command::CancelTasks { target: target(&mut words), by: UserName::from("ann") },
        "requeue" => Command::RequeueTasks { target: target(&mut words) },
        "prio" => Command::SetPriority { job: words.parse(), priority: words.parse() },
        "retire" => Command::RetireJobs {
            jobs: words.rest.by_ref().map(|id| id.parse().expect("a job")).collect(),
        },
        "anew" => Command::BeginGeneration { adopted: None },
        "settle" => {
            let worker = words.worker(state);
            Command::SettleWorker { worker, epoch: epoch(&mut words, state, worker) }
        }
        "level" => Command::RaiseFeatureLevel { level: words.parse() },
        _ => panic!("`{line}` is no command"),
    };
    assert_eq!(words.rest.next(), None, "`{line}` says too much");
    Line::Command { command, scenery }
}

fn worker(words: &mut Words, state: &State) -> Command {
    let name = words.next();
    let known = state.worker_named(name).map(|(_, worker)| worker);
    let mut registration = RegisterWorker {
        uuid: Uuid::from_u128(name.bytes().fold(0, |sum, byte| sum << 8 | u128::from(byte))),
        name: WorkerName::from(name),
        epoch: known.map_or(Epoch(1), |worker| worker.epoch),
        address: format!("{name}:7071"),
        version: String::from("0.2.0"),
        cpus: MilliCpus::from_cores(8),
        memory: Bytes::from_gib(16),
        gpus: Vec::new(),
        labels: BTreeMap::new(),
        backends: [Backend::Native].into(),
        ephemeral: false,
    };
    while words.rest.peek().is_some() {
        match words.next() {
            "cpus" => registration.cpus = words.cpus(),
            "mem" => registration.memory = words.bytes(),
            "gpus" => registration.gpus.extend(gpus(words, name)),
            "label" => registration.labels.extend([label(words)]),
            "docker" => drop(registration.backends.insert(Backend::Docker)),
            "ephemeral" => registration.ephemeral = true,
            "epoch" => registration.epoch = Epoch(words.parse()),
            "uuid" => registration.uuid = Uuid::from_u128(words.parse()),
            word => panic!("`{word}` is nothing of a worker"),
        }
    }
    Command::RegisterWorker(registration)
}

/// `2xA100:80G`, and after it `of NAME` for the GPUs of that worker.
fn gpus(words: &mut Words, name: &str) -> Vec<Gpu> {
    let text = words.next();
    let name = if words.take("of") { words.next() } else { name };
    let (count, kind) = text.split_once('x').expect("such as 2xA100:80G");
    let (model, memory) = kind.split_once(':').expect("such as 2xA100:80G");
    let capability = match model {
        "H100" => "9.0",
        "A100" => "8.0",
        _ => "7.5",
    };
    (0..count.parse().expect("a number"))
        .map(|index| Gpu {
            uuid: GpuUuid::from(format!("GPU-{name}-{model}-{index}").as_str()),
            index,
            model: format!("NVIDIA {model}"),
            memory: Bytes::parse(memory, Bytes(1)).expect("an amount of memory"),
            compute_capability: capability.parse().ok(),
            health: GpuHealth::Healthy,
        })
        .collect()
}

fn sicken(words: &mut Words, mut gpus: Vec<Gpu>) -> Vec<Gpu> {
    for index in words.next().split(',') {
        let index: usize = index.parse().expect("the place of a GPU");
        gpus[index].health = GpuHealth::Quarantined { reason: String::from("Xid 79") };
    }
    gpus
}

fn job(words: &mut Words, state: &State) -> Command {
    let name = words.next();
    let mut spec = JobSpec { name: name.to_owned(), ..JobSpec::default() };
    let mut user = UserName::from("ann");
    let mut key = format!("key-{}", state.counters.jobs_submitted + 1);
    while words.rest.peek().is_some() {
        match words.next() {
            "user" => user = UserName::from(words.next()),
            "key" => key = words.next().to_owned(),
            word => describe(&mut spec, word, words),
        }
    }
    let key = IdempotencyKey::new(key);
    Command::SubmitJob(Box::new(SubmitJob { spec, user, key }))
}

fn describe(spec: &mut JobSpec, word: &str, words: &mut Words) {
    let request = &mut spec.request;
    match word {
        "array" => spec.array = Some(array(words.next())),
        "cpus" => request.cpus = words.cpus(),
        "mem" => request.memory = words.bytes(),
        "gpus" => request.gpus.count = words.parse(),
        "vram" => request.gpus.memory = Some(words.bytes()),
        "shared" => request.gpus.sharing = true,
        "model" => request.gpus.model = Some(words.next().to_owned()),
        "cc" => request.gpus.min_compute_capability = Some(words.parse()),
        "prio" => spec.priority = words.parse(),
        "queue" => spec.queue = QueueName::from(words.next()),
        "nodes" => spec.layout = Layout::Nodes(words.parse()),
        "anywhere" => spec.layout = Layout::Anywhere,
        "world" => {
            spec.distribution = Some(Distribution {
                mode: String::from("torchrun"),
                world_size: words.parse(),
                master_addr: None,
                master_port: None,
            });
        }
        "docker" => spec.backend = Backend::Docker,
        "limit" => spec.time_limit = Some(words.millis()),
        "grace" => spec.stop.grace = words.millis(),
        "retry" => spec.retry.max = words.parse(),
        "on" => drop(spec.retry.on.insert(cause(words.next()))),
        "begin" => spec.begin = Some(Timestamp(words.millis().0)),
        "held" => spec.held = true,
        "label" => spec.labels.extend([label(words)]),
        "lost" if words.take("keep") => spec.lost_after = Some(LostAfter::Keep),
        "lost" => spec.lost_after = Some(LostAfter::After(words.millis())),
        "after" => {
            let kind = match words.next() {
                "ok" => DependencyKind::AfterOk,
                "any" => DependencyKind::AfterAny,
                "notok" => DependencyKind::AfterNotOk,
                kind => panic!("`after {kind}` makes no sense"),
            };
            spec.dependencies.push(Dependency { kind, job: words.parse() });
        }
        word => panic!("`{word}` is nothing of a job"),
    }
}

fn array(text: &str) -> Array {
    let (indices, most) = match text.split_once('%') {
        Some((indices, most)) => (indices, Some(most.parse().expect("a number"))),
        None => (text, None),
    };
    Array { indices: indices.parse().expect("a set of indices"), max_running: most }
}

fn cause(word: &str) -> RetryCause {
    match word {
        "failure" => RetryCause::Failure,
        "signal" => RetryCause::Signal,
        "oom" => RetryCause::OutOfMemory,
        "timeout" => RetryCause::Timeout,
        "start" => RetryCause::StartFailed,
        code => RetryCause::ExitCode(code.parse().expect("a cause or an exit code")),
    }
}

fn label(words: &mut Words) -> (String, String) {
    let (key, value) = words.next().split_once('=').expect("key=value");
    (key.to_owned(), value.to_owned())
}

fn queue(words: &mut Words) -> Command {
    let name = QueueName::from(words.next());
    let mut queue = Queue::default();
    while words.rest.peek().is_some() {
        match words.next() {
            "prio" => queue.priority = words.parse(),
            "max-gpus" => queue.max_gpus = Some(words.parse()),
            "closed" => queue.open = false,
            word => panic!("`{word}` is nothing of a queue"),
        }
    }
    Command::PutQueue { name, queue }
}

/// `place 1.0 on a gpu 0,1 on b gpu 2 prefetch`: what is not said is as the job asks.
fn place(words: &mut Words, state: &State) -> Command {
    let task: TaskId = words.parse();
    let request = state.jobs.get(&task.job).map(|job| job.spec.request.clone()).unwrap_or_default();
    let mut slices: Vec<Slice> = Vec::new();
    let mut prefetch = false;
    while words.rest.peek().is_some() {
        let word = words.next();
        if word == "on" {
            let worker = words.worker(state);
            slices.push(Slice {
                worker,
                epoch: state.workers.get(&worker).map_or(Epoch(1), |row| row.epoch),
                cpus: request.cpus,
                memory: request.memory,
                gpus: Vec::new(),
                first_rank: slices.len() as u32,
                ranks: 1,
            });
            continue;
        }
        if word == "prefetch" {
            prefetch = true;
            continue;
        }
        let slice = slices.last_mut().expect("`on WORKER` comes first");
        match word {
            "epoch" => slice.epoch = Epoch(words.parse()),
            "cpus" => slice.cpus = words.cpus(),
            "mem" => slice.memory = words.bytes(),
            "gpu" => {
                let worker = state.workers.get(&slice.worker).expect("a known worker");
                let uuid = |place: &str| {
                    worker.gpus[place.parse::<usize>().expect("a place")].uuid.clone()
                };
                let grants = words.next().split(',');
                slice.gpus =
                    grants.map(|place| GpuGrant { gpu: uuid(place), share: None }).collect();
            }
            "share" => {
                let share = Some(words.bytes());
                slice.gpus.iter_mut().for_each(|grant| grant.share = share);
            }
            word => panic!("`{word}` is nothing of a placement"),
        }
    }
    Command::PlaceTask(Placement { task, slices, prefetch })
}

/// `on WORKER` and `epoch N` where they are said; otherwise the attempt's first live part.
fn part(words: &mut Words, state: &State, attempt: AttemptId) -> (WorkerId, Epoch) {
    let live = state.live_attempt(attempt).and_then(|it| it.parts.iter().find(|it| it.is_live()));
    let worker = match words.take("on") {
        true => words.worker(state),
        false => live.map_or(WorkerId(1), |part| part.slice.worker),
    };
    (worker, epoch(words, state, worker))
}

fn epoch(words: &mut Words, state: &State, worker: WorkerId) -> Epoch {
    match words.take("epoch") {
        true => Epoch(words.parse()),
        false => state.workers.get(&worker).map_or(Epoch(1), |worker| worker.epoch),
    }
}

fn ending(words: &mut Words) -> Ending {
    let ending = |reason| Ending::new(reason, Timestamp(0));
    match words.next() {
        "ok" => Ending { exit_code: Some(0), ..ending(EndReason::Success) },
        "exit" => Ending { exit_code: Some(words.parse()), ..ending(EndReason::Exit) },
        "signal" => Ending { signal: Some(words.parse()), ..ending(EndReason::Signal) },
        word => ending(
            serde_json::from_str(&format!("\"{word}\""))
                .unwrap_or_else(|_| panic!("`{word}` is no way to end")),
        ),
    }
}

fn target(words: &mut Words) -> Target {
    let word = words.next();
    match word.contains('.') {
        true => Target::Task(word.parse().expect("a task")),
        false => Target::Job(JobId(word.parse().expect("a job"))),
    }
}
