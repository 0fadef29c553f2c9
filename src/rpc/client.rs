//! Asks the cluster: whichever controller answers, for as long as the deadline allows.

mod asker;
mod log_reader;
mod route;
mod tries;

use std::{fmt, future::Future, sync::Arc, time::Duration};

use futures::StreamExt as _;
use prost::Message;
use tonic::{Request, Response, Status};

use self::{
    asker::Asker,
    log_reader::LogReader,
    route::{Route, Stub},
    tries::Tries,
};
use crate::model::{Explanation, JobId, Queue, UserName};
use crate::rpc::{
    api::{
        Answer, Api, ApiError, BackupStream, ClusterView, Consistency, ErrorKind, GpuView,
        JobAction, JobDetail, JobFilter, JobPage, LogRequest, LogStream, MemberAction, QueueView,
        StatusView, SubmitRequest, Submitted, TargetRef, TaskFilter, TaskPage, WaitAnswer,
        WorkerAction, WorkerView,
    },
    convert::{self, Malformed},
    proto,
    transport::{self, MESSAGE_LIMIT},
};

#[derive(Clone)]
pub struct ClientConfig {
    /// `host:port` each; a name may stand for several addresses, and is resolved anew at each reconnect.
    pub controllers: Vec<String>,
    pub token: Option<String>,
    /// How long a call may take in all, with every controller that is tried in it.
    pub deadline: Duration,
}

/// A handle that hundreds of tasks may share: clones ask over the same connection.
#[derive(Clone)]
pub struct Client {
    asker: Arc<Asker>,
}

impl ClientConfig {
    pub const DEFAULT_DEADLINE: Duration = Duration::from_secs(10);
}

impl Client {
    /// Connects to nobody yet.
    ///
    /// # Errors
    /// `Invalid` when no controller is named, one is not `host:port`, or the token cannot be a header.
    pub fn new(config: ClientConfig) -> Result<Client, ApiError> {
        Client::with(config, false)
    }

    /// For a controller that passes a call on to the leader: the leader answers itself, or not at all, and one try is
    /// made, because whoever passes on knows best whom to ask next.
    ///
    /// # Errors
    /// As [`Client::new`].
    pub fn passing_on(config: ClientConfig) -> Result<Client, ApiError> {
        Client::with(config, true)
    }

    fn with(config: ClientConfig, passing_on: bool) -> Result<Client, ApiError> {
        let ClientConfig { controllers, token, deadline } = config;
        let bearer = token.as_deref().map(transport::bearer).transpose()?;
        let route = Route::new(controllers)?;
        Ok(Client { asker: Arc::new(Asker { route, bearer, deadline, passing_on }) })
    }

    /// Asks until there is an answer; the question and the answer are translated on the way.
    fn ask<M, Q, P, A, F>(
        &self,
        question: M,
        method: impl Fn(Stub, Request<Q>) -> F + Send + Sync + 'static,
    ) -> Answer<A>
    where
        Q: From<M> + Message + Clone + Send + Sync + 'static,
        P: Send + 'static,
        A: TryFrom<P, Error = Malformed> + Send + 'static,
        F: Future<Output = Result<Response<P>, Status>> + Send + 'static,
    {
        let asker = self.asker.clone();
        let question = Q::from(question);
        Box::pin(async move {
            check_size(&question)?;
            asker.ask(&question, Duration::ZERO, method).await
        })
    }
}

/// The server would refuse it too, but only after it has travelled.
fn check_size(question: &impl Message) -> Result<(), ApiError> {
    match question.encoded_len() {
        ..=MESSAGE_LIMIT => Ok(()),
        length => Err(ApiError::new(ErrorKind::Invalid, convert::too_large(length, MESSAGE_LIMIT))),
    }
}

impl Api for Client {
    fn submit(&self, request: SubmitRequest) -> Answer<Submitted> {
        self.ask(request, |mut to, it| async move { to.submit(it).await })
    }

    fn jobs(&self, filter: JobFilter, consistency: Consistency) -> Answer<JobPage> {
        self.ask((filter, consistency), |mut to, it| async move { to.list_jobs(it).await })
    }

    fn job(&self, id: JobId, consistency: Consistency) -> Answer<JobDetail> {
        self.ask((id, consistency), |mut to, it| async move { to.get_job(it).await })
    }

    fn tasks(&self, filter: TaskFilter, consistency: Consistency) -> Answer<TaskPage> {
        self.ask((filter, consistency), |mut to, it| async move { to.list_tasks(it).await })
    }

    fn explain(&self, target: TargetRef, consistency: Consistency) -> Answer<Explanation> {
        self.ask((target, consistency), |mut to, it| async move { to.explain(it).await })
    }

    fn act(&self, target: TargetRef, action: JobAction, by: UserName) -> Answer<()> {
        self.ask((target, action, by), |mut to, it| async move { to.act_on_job(it).await })
    }

    fn wait(&self, jobs: Vec<JobId>, patience: Duration) -> Answer<WaitAnswer> {
        let asker = self.asker.clone();
        Box::pin(async move { asker.wait(jobs, patience).await })
    }

    fn logs(&self, request: LogRequest) -> Answer<LogStream> {
        let asker = self.asker.clone();
        Box::pin(async move { Ok(LogReader::open(asker, request).await?.into_stream()) })
    }

    fn workers(&self, consistency: Consistency) -> Answer<Vec<WorkerView>> {
        self.ask(consistency, |mut to, it| async move { to.list_workers(it).await })
    }

    fn act_on_worker(&self, worker: String, action: WorkerAction) -> Answer<()> {
        self.ask((worker, action), |mut to, it| async move { to.act_on_worker(it).await })
    }

    fn gpus(&self, consistency: Consistency) -> Answer<Vec<GpuView>> {
        self.ask(consistency, |mut to, it| async move { to.list_gpus(it).await })
    }

    fn queues(&self, consistency: Consistency) -> Answer<Vec<QueueView>> {
        self.ask(consistency, |mut to, it| async move { to.list_queues(it).await })
    }

    fn put_queue(&self, name: String, queue: Queue) -> Answer<()> {
        self.ask((name, queue), |mut to, it| async move { to.put_queue(it).await })
    }

    fn status(&self, consistency: Consistency) -> Answer<StatusView> {
        self.ask(consistency, |mut to, it| async move { to.get_status(it).await })
    }

    fn cluster(&self) -> Answer<ClusterView> {
        self.ask((), |mut to, it| async move { to.get_cluster(it).await })
    }

    fn act_on_members(&self, action: MemberAction) -> Answer<()> {
        self.ask(action, |mut to, it| async move { to.act_on_members(it).await })
    }

    /// From the first controller that begins one. When it breaks off there is no going on elsewhere: another one's is
    /// another file.
    fn backup(&self) -> Answer<BackupStream> {
        let asker = self.asker.clone();
        Box::pin(async move {
            let mut tries = Tries::new(asker.deadline);
            let method = |mut stub: Stub, it| async move { stub.backup(it).await };
            let question = proto::Nothing {};
            let (line, chunks) = asker.call(&question, Duration::ZERO, &mut tries, method).await?;
            let chunks = chunks.map(move |chunk| {
                let chunk: Result<proto::BackupChunk, Status> = chunk;
                chunk
                    .map(|chunk| chunk.data)
                    .map_err(|status| asker.missed(&line, &status).into_error())
            });
            Ok(transport::until_error(chunks).boxed())
        })
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("route", &self.asker.route).finish_non_exhaustive()
    }
}

/// Secrets stay out of logs.
impl fmt::Debug for ClientConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientConfig")
            .field("controllers", &self.controllers)
            .field("token", &self.token.as_ref().map(|_| "…"))
            .field("deadline", &self.deadline)
            .finish()
    }
}
