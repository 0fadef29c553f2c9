//! Asks the cluster: whichever controller answers, for as long as the deadline allows.

use std::{fmt, sync::Arc, time::Duration};

use crate::model::{Explanation, JobId, Queue, UserName};
use crate::rpc::api::{
    Answer, Api, ApiError, ClusterView, Consistency, GpuView, JobAction, JobDetail, JobFilter,
    JobPage, LogRequest, LogStream, MemberAction, QueueView, StatusView, SubmitRequest, Submitted,
    TargetRef, TaskFilter, TaskPage, WaitAnswer, WorkerAction, WorkerView,
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
#[derive(Clone, Debug)]
pub struct Client {
    config: Arc<ClientConfig>,
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
        Ok(Client { config: Arc::new(config) })
    }

    /// For a controller that passes a call on to the leader: the leader answers itself, or not at all.
    ///
    /// # Errors
    /// As [`Client::new`].
    pub fn passing_on(config: ClientConfig) -> Result<Client, ApiError> {
        Client::new(config)
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

impl Api for Client {
    fn submit(&self, _: SubmitRequest) -> Answer<Submitted> {
        todo!()
    }

    fn jobs(&self, _: JobFilter, _: Consistency) -> Answer<JobPage> {
        todo!()
    }

    fn job(&self, _: JobId, _: Consistency) -> Answer<JobDetail> {
        todo!()
    }

    fn tasks(&self, _: TaskFilter, _: Consistency) -> Answer<TaskPage> {
        todo!()
    }

    fn explain(&self, _: TargetRef, _: Consistency) -> Answer<Explanation> {
        todo!()
    }

    fn act(&self, _: TargetRef, _: JobAction, _: UserName) -> Answer<()> {
        todo!()
    }

    fn wait(&self, _: Vec<JobId>, _: Duration) -> Answer<WaitAnswer> {
        todo!()
    }

    fn logs(&self, _: LogRequest) -> Answer<LogStream> {
        todo!()
    }

    fn workers(&self, _: Consistency) -> Answer<Vec<WorkerView>> {
        todo!()
    }

    fn act_on_worker(&self, _: String, _: WorkerAction) -> Answer<()> {
        todo!()
    }

    fn gpus(&self, _: Consistency) -> Answer<Vec<GpuView>> {
        todo!()
    }

    fn queues(&self, _: Consistency) -> Answer<Vec<QueueView>> {
        todo!()
    }

    fn put_queue(&self, _: String, _: Queue) -> Answer<()> {
        todo!()
    }

    fn status(&self, _: Consistency) -> Answer<StatusView> {
        todo!()
    }

    fn cluster(&self) -> Answer<ClusterView> {
        todo!()
    }

    fn act_on_members(&self, _: MemberAction) -> Answer<()> {
        todo!()
    }
}
