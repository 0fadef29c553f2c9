//! Any controller answers: what only the leader can say is asked of the leader, over and over until there is one or the
//! client's patience ends. So a client sees a change of leaders as a slow answer, not as an error.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use rand::RngExt;
use tokio::{sync::watch, time::Instant};

use crate::controller::local::Local;
use crate::model::{Explanation, JobId, Queue, UserName};
use crate::raft::Leadership;
use crate::rpc::{
    api::{
        Answer, Api, ApiError, BackupStream, ClusterView, Consistency, ErrorKind, GpuView,
        JobAction, JobDetail, JobFilter, JobPage, LogRequest, LogStream, MemberAction, QueueView,
        StatusView, SubmitRequest, Submitted, TargetRef, TaskFilter, TaskPage, WaitAnswer,
        WorkerAction, WorkerView,
    },
    client::{Client, ClientConfig},
};

/// What clients of this controller talk to.
#[derive(Clone, Debug)]
pub struct Front {
    local: Local,
    token: Option<String>,
    /// The leader last forwarded to, and the way there.
    leader: Arc<Mutex<Option<(String, Client)>>>,
}

/// How long a request may look for a leader. Less than a client waits for one controller, so that it hears why.
const PATIENCE: Duration = Duration::from_secs(3);
/// How long one forwarded try may take before the leader is looked for again.
const TRY: Duration = Duration::from_secs(5);

impl Front {
    pub fn new(local: Local, token: Option<String>) -> Self {
        Front { local, token, leader: Arc::default() }
    }

    /// Lets the leader answer. Everything asked through here may be asked twice: reads change nothing, submissions
    /// carry a key, and the rest sets what is already set.
    fn ask<T, F>(&self, ask: F) -> Answer<T>
    where
        T: Send + 'static,
        F: Fn(&dyn Api) -> Answer<T> + Send + Sync + 'static,
    {
        self.ask_patiently(Duration::ZERO, ask)
    }

    /// For what takes its time by nature: `more` is added to what the leader may take to answer.
    fn ask_patiently<T, F>(&self, more: Duration, ask: F) -> Answer<T>
    where
        T: Send + 'static,
        F: Fn(&dyn Api) -> Answer<T> + Send + Sync + 'static,
    {
        let this = self.clone();
        Box::pin(async move {
            let deadline = Instant::now() + PATIENCE;
            let mut leadership = this.local.raft.leadership();
            loop {
                let now = leadership.borrow_and_update().clone();
                let answer = match (now.is_me, now.leader_address) {
                    (true, _) => ask(&this.local).await,
                    (false, Some(address)) => match this.client(&address) {
                        Ok(client) => tokio::select! {
                            answer = tokio::time::timeout_at(deadline + more, ask(&client)) => {
                                answer.unwrap_or_else(|_| Err(ApiError::new(
                                    ErrorKind::Unavailable,
                                    format!("the leader at {address} does not answer"),
                                )))
                            }
                            () = deposed(&mut leadership, &address) => Err(ApiError::new(
                                ErrorKind::Unavailable,
                                format!("{address} lost its leadership before it answered"),
                            )),
                        },
                        Err(error) => Err(error),
                    },
                    (false, None) => Err(ApiError::new(
                        ErrorKind::Unavailable,
                        "no leader: fewer than half of the controllers reach each other",
                    )),
                };
                match answer {
                    Err(error) if error.kind == ErrorKind::Unavailable => {
                        if Instant::now() >= deadline {
                            return Err(error);
                        }
                    }
                    answer => return answer,
                }
                let pause = Duration::from_millis(rand::rng().random_range(5..30));
                // A change of leaders is worth another try at once; otherwise the pause is.
                let _ = tokio::time::timeout(pause, leadership.changed()).await;
            }
        })
    }

    fn client(&self, address: &str) -> Result<Client, ApiError> {
        let mut known = self.leader.lock().unwrap_or_else(PoisonError::into_inner);
        match &*known {
            Some((leader, client)) if leader == address => Ok(client.clone()),
            _ => {
                let client = Client::passing_on(ClientConfig {
                    controllers: vec![address.to_owned()],
                    token: self.token.clone(),
                    deadline: TRY,
                })?;
                *known = Some((address.to_owned(), client.clone()));
                Ok(client)
            }
        }
    }
}

/// Waits until the leader is not the one at `address` any more. From one that was cut off no answer comes, nor an error
/// soon.
async fn deposed(leadership: &mut watch::Receiver<Leadership>, address: &str) {
    let other = |now: &Leadership| now.leader_address.as_deref() != Some(address);
    if leadership.wait_for(other).await.is_err() {
        // This controller shuts down.
        std::future::pending().await
    }
}

impl Api for Front {
    fn submit(&self, request: SubmitRequest) -> Answer<Submitted> {
        self.ask(move |api| api.submit(request.clone()))
    }

    fn jobs(&self, filter: JobFilter, consistency: Consistency) -> Answer<JobPage> {
        match consistency {
            Consistency::Stale => self.local.jobs(filter, consistency),
            Consistency::Linearizable => self.ask(move |api| api.jobs(filter.clone(), consistency)),
        }
    }

    fn job(&self, id: JobId, consistency: Consistency) -> Answer<JobDetail> {
        match consistency {
            Consistency::Stale => self.local.job(id, consistency),
            Consistency::Linearizable => self.ask(move |api| api.job(id, consistency)),
        }
    }

    fn tasks(&self, filter: TaskFilter, consistency: Consistency) -> Answer<TaskPage> {
        match consistency {
            Consistency::Stale => self.local.tasks(filter, consistency),
            Consistency::Linearizable => {
                self.ask(move |api| api.tasks(filter.clone(), consistency))
            }
        }
    }

    fn explain(&self, target: TargetRef, consistency: Consistency) -> Answer<Explanation> {
        match consistency {
            Consistency::Stale => self.local.explain(target, consistency),
            Consistency::Linearizable => self.ask(move |api| api.explain(target, consistency)),
        }
    }

    fn act(&self, target: TargetRef, action: JobAction, by: UserName) -> Answer<()> {
        self.ask(move |api| api.act(target, action, by.clone()))
    }

    fn wait(&self, jobs: Vec<JobId>, patience: Duration) -> Answer<WaitAnswer> {
        // The forwarded call must come back before this side takes the leader for dead.
        let patience = patience.min(TRY / 2);
        self.ask_patiently(TRY, move |api| api.wait(jobs.clone(), patience))
    }

    fn logs(&self, request: LogRequest) -> Answer<LogStream> {
        self.ask_patiently(TRY, move |api| api.logs(request.clone()))
    }

    fn workers(&self, consistency: Consistency) -> Answer<Vec<WorkerView>> {
        match consistency {
            Consistency::Stale => self.local.workers(consistency),
            Consistency::Linearizable => self.ask(move |api| api.workers(consistency)),
        }
    }

    fn act_on_worker(&self, worker: String, action: WorkerAction) -> Answer<()> {
        self.ask(move |api| api.act_on_worker(worker.clone(), action.clone()))
    }

    fn gpus(&self, consistency: Consistency) -> Answer<Vec<GpuView>> {
        match consistency {
            Consistency::Stale => self.local.gpus(consistency),
            Consistency::Linearizable => self.ask(move |api| api.gpus(consistency)),
        }
    }

    fn queues(&self, consistency: Consistency) -> Answer<Vec<QueueView>> {
        match consistency {
            Consistency::Stale => self.local.queues(consistency),
            Consistency::Linearizable => self.ask(move |api| api.queues(consistency)),
        }
    }

    fn put_queue(&self, name: String, queue: Queue) -> Answer<()> {
        self.ask(move |api| api.put_queue(name.clone(), queue.clone()))
    }

    fn status(&self, consistency: Consistency) -> Answer<StatusView> {
        match consistency {
            Consistency::Stale => self.local.status(consistency),
            Consistency::Linearizable => self.ask(move |api| api.status(consistency)),
        }
    }

    /// The leader knows most; without one, this controller says what it knows.
    fn cluster(&self) -> Answer<ClusterView> {
        let leads_or_alone = {
            let now = self.local.raft.leadership().borrow().clone();
            now.is_me || now.leader.is_none()
        };
        match leads_or_alone {
            true => self.local.cluster(),
            false => self.ask(|api| api.cluster()),
        }
    }

    fn act_on_members(&self, action: MemberAction) -> Answer<()> {
        self.ask_patiently(TRY, move |api| api.act_on_members(action.clone()))
    }

    /// Of this controller: any may be asked, and none is held up.
    fn backup(&self) -> Answer<BackupStream> {
        self.local.backup()
    }
}
