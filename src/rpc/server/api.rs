//! Calls of clients, translated for whoever implements [`Api`].

use std::sync::Arc;

use futures::{StreamExt, stream::BoxStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::{Request, Response, Status};

use crate::model::{JobId, Queue, UserName};
use crate::rpc::{
    api::{
        Answer, Api, ApiError, ErrorKind, JobAction, JobFilter, LogRequest, MemberAction,
        SubmitRequest, TargetRef, TaskFilter, WorkerAction,
    },
    convert::{self, Malformed},
    proto::{self, controller_server::Controller},
    transport::PASSED_ON,
};

pub(super) struct ApiService {
    api: Arc<dyn Api>,
    local: Arc<dyn Api>,
    calls: Arc<Semaphore>,
    /// Waiting for jobs and following logs costs little and lasts long, and must not keep others out.
    long_calls: Arc<Semaphore>,
}

const MOST_CALLS: usize = 4096;
const MOST_LONG_CALLS: usize = 8192;

impl ApiService {
    pub(super) fn new(api: Arc<dyn Api>, local: Arc<dyn Api>) -> Self {
        ApiService {
            api,
            local,
            calls: Arc::new(Semaphore::new(MOST_CALLS)),
            long_calls: Arc::new(Semaphore::new(MOST_LONG_CALLS)),
        }
    }

    async fn answer<Q, M, A, R>(
        &self,
        call: Request<Q>,
        ask: impl FnOnce(&dyn Api, M) -> Answer<A>,
    ) -> Result<Response<R>, Status>
    where
        M: TryFrom<Q, Error = Malformed>,
        R: From<A>,
    {
        let _permit = enter(&self.calls)?;
        self.ask(call, ask).await.map(|answer| Response::new(answer.into()))
    }

    async fn ask<Q, M, A>(
        &self,
        call: Request<Q>,
        ask: impl FnOnce(&dyn Api, M) -> Answer<A>,
    ) -> Result<A, Status>
    where
        M: TryFrom<Q, Error = Malformed>,
    {
        let passed_on = call.metadata().contains_key(PASSED_ON);
        let api = if passed_on { &self.local } else { &self.api };
        let question = M::try_from(call.into_inner()).map_err(|fault| status(fault.into()))?;
        let answer = ask(&**api, question);
        answer.await.map_err(status)
    }
}

fn enter(door: &Arc<Semaphore>) -> Result<OwnedSemaphorePermit, Status> {
    door.clone().try_acquire_owned().map_err(|_| {
        let message = "this controller has as many calls under way as it takes";
        status(ApiError::new(ErrorKind::Overloaded, message))
    })
}

fn status(error: ApiError) -> Status {
    convert::to_status(&error)
}

#[tonic::async_trait]
impl Controller for ApiService {
    type ReadLogStream = BoxStream<'static, Result<proto::LogChunk, Status>>;
    type BackupStream = BoxStream<'static, Result<proto::BackupChunk, Status>>;

    async fn submit(
        &self,
        call: Request<proto::SubmitRequest>,
    ) -> Result<Response<proto::Submitted>, Status> {
        self.answer(call, |api, request: SubmitRequest| api.submit(request)).await
    }

    async fn list_jobs(
        &self,
        call: Request<proto::ListJobsRequest>,
    ) -> Result<Response<proto::JobPage>, Status> {
        self.answer(call, |api, (filter, consistency): (JobFilter, _)| {
            api.jobs(filter, consistency)
        })
        .await
    }

    async fn get_job(
        &self,
        call: Request<proto::GetJobRequest>,
    ) -> Result<Response<proto::JobDetail>, Status> {
        self.answer(call, |api, (id, consistency): (JobId, _)| api.job(id, consistency)).await
    }

    async fn list_tasks(
        &self,
        call: Request<proto::ListTasksRequest>,
    ) -> Result<Response<proto::TaskPage>, Status> {
        self.answer(call, |api, (filter, consistency): (TaskFilter, _)| {
            api.tasks(filter, consistency)
        })
        .await
    }

    async fn explain(
        &self,
        call: Request<proto::ExplainRequest>,
    ) -> Result<Response<proto::Explanation>, Status> {
        self.answer(call, |api, (target, consistency): (TargetRef, _)| {
            api.explain(target, consistency)
        })
        .await
    }

    async fn act_on_job(
        &self,
        call: Request<proto::ActOnJobRequest>,
    ) -> Result<Response<proto::Nothing>, Status> {
        self.answer(call, |api, (target, action, by): (TargetRef, JobAction, UserName)| {
            api.act(target, action, by)
        })
        .await
    }

    async fn wait(
        &self,
        call: Request<proto::WaitRequest>,
    ) -> Result<Response<proto::WaitAnswer>, Status> {
        let _permit = enter(&self.long_calls)?;
        let answer =
            self.ask(call, |api, (jobs, patience): (Vec<JobId>, _)| api.wait(jobs, patience));
        answer.await.map(|answer| Response::new(answer.into()))
    }

    async fn read_log(
        &self,
        call: Request<proto::LogRequest>,
    ) -> Result<Response<Self::ReadLogStream>, Status> {
        let permit = enter(&self.long_calls)?;
        let chunks = self.ask(call, |api, request: LogRequest| api.logs(request)).await?;
        let chunks = chunks.map(move |chunk| {
            let _held_while_it_lasts = &permit;
            chunk.map(Into::into).map_err(status)
        });
        Ok(Response::new(chunks.boxed()))
    }

    async fn list_workers(
        &self,
        call: Request<proto::ListRequest>,
    ) -> Result<Response<proto::WorkerList>, Status> {
        self.answer(call, |api, consistency| api.workers(consistency)).await
    }

    async fn act_on_worker(
        &self,
        call: Request<proto::ActOnWorkerRequest>,
    ) -> Result<Response<proto::Nothing>, Status> {
        self.answer(call, |api, (worker, action): (String, WorkerAction)| {
            api.act_on_worker(worker, action)
        })
        .await
    }

    async fn list_gpus(
        &self,
        call: Request<proto::ListRequest>,
    ) -> Result<Response<proto::GpuList>, Status> {
        self.answer(call, |api, consistency| api.gpus(consistency)).await
    }

    async fn list_queues(
        &self,
        call: Request<proto::ListRequest>,
    ) -> Result<Response<proto::QueueList>, Status> {
        self.answer(call, |api, consistency| api.queues(consistency)).await
    }

    async fn put_queue(
        &self,
        call: Request<proto::PutQueueRequest>,
    ) -> Result<Response<proto::Nothing>, Status> {
        self.answer(call, |api, (name, queue): (String, Queue)| api.put_queue(name, queue)).await
    }

    async fn get_status(
        &self,
        call: Request<proto::ListRequest>,
    ) -> Result<Response<proto::StatusView>, Status> {
        self.answer(call, |api, consistency| api.status(consistency)).await
    }

    async fn get_cluster(
        &self,
        call: Request<proto::Nothing>,
    ) -> Result<Response<proto::ClusterView>, Status> {
        self.answer(call, |api, ()| api.cluster()).await
    }

    async fn act_on_members(
        &self,
        call: Request<proto::ActOnMembersRequest>,
    ) -> Result<Response<proto::Nothing>, Status> {
        self.answer(call, |api, action: MemberAction| api.act_on_members(action)).await
    }

    async fn backup(
        &self,
        call: Request<proto::Nothing>,
    ) -> Result<Response<Self::BackupStream>, Status> {
        let permit = enter(&self.long_calls)?;
        let chunks = self.ask(call, |api, ()| api.backup()).await?;
        let chunks = chunks.map(move |chunk| {
            let _held_while_it_lasts = &permit;
            chunk.map(|data| proto::BackupChunk { data }).map_err(status)
        });
        Ok(Response::new(chunks.boxed()))
    }
}
