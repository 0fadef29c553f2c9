//! A controller that remembers what it was asked and answers with the samples.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::{FutureExt, StreamExt, stream};
use tokio::{net::TcpListener, task::JoinHandle};
use tokio_util::sync::CancellationToken;

use super::samples;
use crate::model::{Explanation, JobId, Queue, UserName};
use crate::rpc::{
    api::{
        Answer, Api, ApiError, BackupStream, ClusterView, Consistency, ErrorKind, GpuView,
        JobAction, JobDetail, JobFilter, JobPage, LogChunk, LogRequest, LogStream, MemberAction,
        QueueView, StatusView, SubmitRequest, Submitted, TargetRef, TaskFilter, TaskPage,
        WaitAnswer, WorkerAction, WorkerView,
    },
    auth::Auth,
    client::{Client, ClientConfig},
    server::{Services, serve},
};

#[derive(Default)]
pub struct Fake {
    /// What every call is answered with instead, while it is set.
    pub refusal: Mutex<Option<ApiError>>,
    /// Never answers.
    pub hangs: bool,
    /// How long each answer takes.
    pub pause: Duration,
    /// What `wait` says before it says that all is done.
    pub waits_left: AtomicUsize,
    /// What `logs` streams, one list per call.
    pub logs: Mutex<Vec<Vec<Result<LogChunk, ApiError>>>>,
    pub asked: Mutex<Vec<String>>,
}

impl Fake {
    pub fn refusing(kind: ErrorKind, message: &str) -> Fake {
        Fake { refusal: Mutex::new(Some(ApiError::new(kind, message))), ..Fake::default() }
    }

    pub fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }

    fn answer<T: Send + 'static>(&self, question: String, answer: T) -> Answer<T> {
        self.asked.lock().unwrap().push(question);
        if self.hangs {
            return std::future::pending().boxed();
        }
        let answer = match self.refusal.lock().unwrap().clone() {
            Some(error) => Err(error),
            None => Ok(answer),
        };
        let pause = self.pause;
        async move {
            tokio::time::sleep(pause).await;
            answer
        }
        .boxed()
    }
}

impl Api for Fake {
    fn submit(&self, request: SubmitRequest) -> Answer<Submitted> {
        self.answer(format!("{request:?}"), samples::submitted())
    }

    fn jobs(&self, filter: JobFilter, consistency: Consistency) -> Answer<JobPage> {
        self.answer(format!("{filter:?} {consistency:?}"), samples::page())
    }

    fn job(&self, id: JobId, consistency: Consistency) -> Answer<JobDetail> {
        self.answer(format!("{id:?} {consistency:?}"), samples::detail())
    }

    fn tasks(&self, filter: TaskFilter, consistency: Consistency) -> Answer<TaskPage> {
        self.answer(format!("{filter:?} {consistency:?}"), samples::task_page())
    }

    fn explain(&self, target: TargetRef, consistency: Consistency) -> Answer<Explanation> {
        self.answer(format!("{target:?} {consistency:?}"), samples::explanation())
    }

    fn act(&self, target: TargetRef, action: JobAction, by: UserName) -> Answer<()> {
        self.answer(format!("{target:?} {action:?} {by:?}"), ())
    }

    fn wait(&self, jobs: Vec<JobId>, patience: Duration) -> Answer<WaitAnswer> {
        let left = self.waits_left.load(Ordering::SeqCst);
        self.waits_left.store(left.saturating_sub(1), Ordering::SeqCst);
        let answer = WaitAnswer { done: left == 0, ..samples::wait_answer() };
        self.answer(format!("{jobs:?} within {} s", patience.as_secs_f64().ceil()), answer)
    }

    fn logs(&self, request: LogRequest) -> Answer<LogStream> {
        let mut logs = self.logs.lock().unwrap();
        let chunks = if logs.is_empty() { Vec::new() } else { logs.remove(0) };
        drop(logs);
        self.answer(format!("{request:?}"), stream::iter(chunks).boxed())
    }

    fn workers(&self, consistency: Consistency) -> Answer<Vec<WorkerView>> {
        self.answer(format!("workers {consistency:?}"), vec![samples::worker()])
    }

    fn act_on_worker(&self, worker: String, action: WorkerAction) -> Answer<()> {
        self.answer(format!("{worker} {action:?}"), ())
    }

    fn gpus(&self, consistency: Consistency) -> Answer<Vec<GpuView>> {
        self.answer(format!("gpus {consistency:?}"), vec![samples::gpu_view()])
    }

    fn queues(&self, consistency: Consistency) -> Answer<Vec<QueueView>> {
        self.answer(format!("queues {consistency:?}"), vec![samples::queue_view()])
    }

    fn put_queue(&self, name: String, queue: Queue) -> Answer<()> {
        self.answer(format!("{name} {queue:?}"), ())
    }

    fn status(&self, consistency: Consistency) -> Answer<StatusView> {
        self.answer(format!("status {consistency:?}"), samples::status())
    }

    fn cluster(&self) -> Answer<ClusterView> {
        self.answer("cluster".into(), samples::cluster())
    }

    fn backup(&self) -> Answer<BackupStream> {
        let chunks = ["a ", "backup"].map(|text| Ok(bytes::Bytes::from(text)));
        self.answer(String::from("backup"), stream::iter(chunks).boxed())
    }

    fn act_on_members(&self, action: MemberAction) -> Answer<()> {
        self.answer(format!("{action:?}"), ())
    }
}

/// A server on loopback, until it is dropped or stopped.
pub struct Running {
    pub address: String,
    pub shutdown: CancellationToken,
    pub task: JoinHandle<std::io::Result<()>>,
}

pub const TOKEN: &str = "open sesame";

pub async fn run(api: Arc<Fake>) -> Running {
    start(any_port().await, services(api)).await
}

pub fn services(api: Arc<Fake>) -> Services {
    Services::default().api(api.clone(), api, auth())
}

pub fn auth() -> Auth {
    Auth { token: Some(TOKEN.into()) }
}

pub async fn any_port() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").await.unwrap()
}

/// An address at which nobody listens.
pub async fn dead_address() -> String {
    any_port().await.local_addr().unwrap().to_string()
}

pub async fn start(listener: TcpListener, services: Services) -> Running {
    start_with_drain(listener, services, Duration::from_millis(200)).await
}

pub async fn start_with_drain(
    listener: TcpListener,
    services: Services,
    drain: Duration,
) -> Running {
    let address = listener.local_addr().unwrap().to_string();
    let shutdown = CancellationToken::new();
    let stop = shutdown.clone().cancelled_owned();
    let task = tokio::spawn(serve(listener, services, stop, drain));
    Running { address, shutdown, task }
}

impl Running {
    /// As if the process were killed; returns once the port is free.
    pub async fn kill(self) {
        self.task.abort();
        let _ = self.task.await;
    }

    pub fn socket(&self) -> SocketAddr {
        self.address.parse().unwrap()
    }
}

/// With more time than a busy machine needs.
pub fn client(addresses: &[&str]) -> Client {
    client_within(addresses, Duration::from_secs(60))
}

pub fn client_within(addresses: &[&str], deadline: Duration) -> Client {
    let controllers = addresses.iter().map(|it| (*it).to_owned()).collect();
    Client::new(ClientConfig { controllers, token: Some(TOKEN.into()), deadline }).unwrap()
}
