//! The gRPC health service.

use std::sync::Arc;

use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use tonic::codegen::tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse, health_server};

use crate::supervise::Supervisor;
use crate::supervise::health::{Health, HealthParts};
use crate::telemetry::metrics::{Method, Shard};

/// Service name of the server's health. The empty service name is healthy until the server begins
/// to stop, independent of its parts.
const SERVICE: &str = "ratelimit";

/// Subject of a health check. The service name is not kept, since a watch may last for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Subject {
    /// Whether the process answers.
    Process,
    RateLimits,
    Unknown,
}

impl Subject {
    fn from_request(request: &HealthCheckRequest) -> Self {
        match request.service.as_str() {
            "" => Self::Process,
            SERVICE => Self::RateLimits,
            _ => Self::Unknown,
        }
    }

    fn status(self, parts: HealthParts) -> ServingStatus {
        let serving = match self {
            Self::Process => parts.is_not_stopping(),
            Self::RateLimits => parts.serving(),
            Self::Unknown => return ServingStatus::ServiceUnknown,
        };
        if serving {
            ServingStatus::Serving
        } else {
            ServingStatus::NotServing
        }
    }
}

/// The gRPC health service.
#[derive(Debug)]
pub(crate) struct HealthService {
    pub(crate) health: Health,
    pub(crate) supervisor: Supervisor,
    pub(crate) metrics: Arc<Shard>,
}

fn answer(status: ServingStatus) -> HealthCheckResponse {
    HealthCheckResponse {
        status: status as i32,
    }
}

#[tonic::async_trait]
impl health_server::Health for HealthService {
    async fn check(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        let _counted = self.metrics.time(Method::Check);
        let subject = Subject::from_request(request.get_ref());
        match subject.status(*self.health.watch().borrow()) {
            ServingStatus::ServiceUnknown => Err(Status::not_found("unknown service")),
            status => Ok(Response::new(answer(status))),
        }
    }

    type WatchStream = ReceiverStream<Result<HealthCheckResponse, Status>>;

    async fn watch(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let (sender, receiver) = mpsc::channel(1);
        let watcher = Watcher {
            subject: Subject::from_request(request.get_ref()),
            parts: self.health.watch(),
            drain: self.supervisor.drain.clone(),
            last_sent: None,
            sender,
        };
        self.supervisor.tasks.spawn(watcher.run());
        Ok(Response::new(ReceiverStream::new(receiver)))
    }
}

/// Sends one client each status of its subject, until the client leaves or the server drains.
struct Watcher {
    subject: Subject,
    parts: watch::Receiver<HealthParts>,
    /// Ends the stream when the server drains, so that it does not delay the end.
    drain: CancellationToken,
    last_sent: Option<ServingStatus>,
    sender: mpsc::Sender<Result<HealthCheckResponse, Status>>,
}

impl Watcher {
    async fn run(mut self) {
        let drain = self.drain.clone();
        tokio::select! {
            biased;
            () = drain.cancelled() => self.send_last(),
            () = self.send_changes() => {}
        }
    }

    /// Sends the last status. The health changed before the drain, and the client may not have
    /// received it yet.
    fn send_last(&mut self) {
        let now = self.status();
        if self.last_sent != Some(now) {
            // If the channel is full, the client has an unread status and misses the last one.
            let _unread = self.sender.try_send(Ok(answer(now)));
        }
    }

    async fn send_changes(&mut self) {
        loop {
            let now = self.status();
            // For a client that does not read, the send waits with one status until the connection
            // ends.
            if self.last_sent.replace(now) != Some(now)
                && self.sender.send(Ok(answer(now))).await.is_err()
            {
                return;
            }
            tokio::select! {
                biased;
                changed = self.parts.changed() => if changed.is_err() { return },
                () = self.sender.closed() => return,
            }
        }
    }

    fn status(&mut self) -> ServingStatus {
        self.subject.status(*self.parts.borrow_and_update())
    }
}
