//! One question, asked until somebody answers it.

use std::{future::Future, time::Duration};

use tokio::time::Instant;
use tonic::{
    Request, Response, Status,
    metadata::{Ascii, MetadataValue},
};

use crate::model::JobId;
use crate::rpc::{
    api::{ApiError, ErrorKind, WaitAnswer},
    client::{
        route::{Line, Route, Stub},
        tries::{Miss, Tries},
    },
    convert::{self, Failure, Malformed},
    proto,
    transport::PASSED_ON,
};

/// What all clones of a client share.
pub(super) struct Asker {
    pub(super) route: Route,
    pub(super) bearer: Option<MetadataValue<Ascii>>,
    pub(super) deadline: Duration,
    pub(super) passing_on: bool,
}

/// A server gives a call up only after its client has.
const SERVER_GRACE: Duration = Duration::from_millis(100);
/// The trait's own limit.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// A controller may answer a wait early; it is not asked again faster than this.
const WAIT_PACE: Duration = Duration::from_millis(100);

impl Asker {
    /// `patience` is how long a controller may think about it, beside the time that any call takes.
    pub(super) async fn ask<Q, P, A, F>(
        &self,
        question: &Q,
        patience: Duration,
        method: impl Fn(Stub, Request<Q>) -> F,
    ) -> Result<A, ApiError>
    where
        Q: Clone,
        A: TryFrom<P, Error = Malformed>,
        F: Future<Output = Result<Response<P>, Status>>,
    {
        let mut tries = Tries::new(self.deadline + patience);
        let (line, answer) = self.call(question, patience, &mut tries, method).await?;
        A::try_from(answer).map_err(|fault| nonsense(&line, &fault))
    }

    /// The answer as it came, and over which line.
    pub(super) async fn call<Q, P, F>(
        &self,
        question: &Q,
        patience: Duration,
        tries: &mut Tries,
        method: impl Fn(Stub, Request<Q>) -> F,
    ) -> Result<(Line, P), ApiError>
    where
        Q: Clone,
        F: Future<Output = Result<Response<P>, Status>>,
    {
        loop {
            let miss = match self.call_once(question, patience, tries, &method).await {
                Ok(answer) => return Ok(answer),
                Err(miss) => miss,
            };
            if self.passing_on {
                return Err(miss.into_error());
            }
            tries.after(miss).await?;
        }
    }

    async fn call_once<Q, P, F>(
        &self,
        question: &Q,
        patience: Duration,
        tries: &Tries,
        method: impl Fn(Stub, Request<Q>) -> F,
    ) -> Result<(Line, P), Miss>
    where
        Q: Clone,
        F: Future<Output = Result<Response<P>, Status>>,
    {
        let line = self.route.line().await?;
        let mut request = self.request(question.clone());
        request.set_timeout(tries.left() + SERVER_GRACE);
        let calling = method(line.stub.clone(), request);
        tokio::pin!(calling);
        let limit = self.try_limit() + patience;
        loop {
            let limit = limit.min(tries.left());
            match tokio::time::timeout(limit, &mut calling).await {
                Ok(Ok(answer)) => {
                    line.heard();
                    return Ok((line, answer.into_inner()));
                }
                Ok(Err(status)) => return Err(self.missed(&line, &status)),
                // It has much to do, and asking once more elsewhere would only make more of it.
                Err(_) if line.was_heard_within(limit) && !tries.left().is_zero() => {}
                Err(_) => {
                    self.route.leave(&line);
                    return Err(Miss::broken(&line, format!("no answer within {limit:.1?}")));
                }
            }
        }
    }

    fn request<Q>(&self, question: Q) -> Request<Q> {
        let mut request = Request::new(question);
        if let Some(bearer) = &self.bearer {
            request.metadata_mut().insert("authorization", bearer.clone());
        }
        if self.passing_on {
            request.metadata_mut().insert(PASSED_ON, MetadataValue::from_static("1"));
        }
        request
    }

    /// A controller that hangs must not use up the whole deadline while another would answer.
    fn try_limit(&self) -> Duration {
        if self.passing_on { self.deadline } else { self.deadline / 3 }
    }

    /// What a failure over this line means.
    pub(super) fn missed(&self, line: &Line, status: &Status) -> Miss {
        let miss = match convert::from_status(status) {
            Failure::Answered(error) => {
                line.heard();
                Miss::answered(line, error)
            }
            Failure::Broken(reason) => Miss::broken(line, reason),
        };
        if miss.asks_for_another() {
            self.route.leave(line);
        }
        miss
    }

    /// Asks again, perhaps another controller, until the jobs are over or `patience` ends.
    pub(super) async fn wait(
        &self,
        jobs: Vec<JobId>,
        patience: Duration,
    ) -> Result<WaitAnswer, ApiError> {
        let end = Instant::now() + patience.min(LONGEST_WAIT);
        loop {
            let asked = Instant::now();
            let left = end.saturating_duration_since(asked);
            let question = proto::WaitRequest::from((jobs.clone(), left));
            let method = |mut stub: Stub, it| async move { stub.wait(it).await };
            let answer: WaitAnswer = self.ask(&question, left, method).await?;
            if answer.done || self.passing_on || Instant::now() >= end {
                return Ok(answer);
            }
            tokio::time::sleep_until(end.min(asked + WAIT_PACE)).await;
        }
    }
}

pub(super) fn nonsense(line: &Line, fault: &Malformed) -> ApiError {
    let message = format!("the answer of {} makes no sense: {fault}", line.address);
    ApiError::new(ErrorKind::Internal, message)
}
