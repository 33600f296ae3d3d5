//! Health of the server, for `/healthcheck` and the gRPC health service.

use std::sync::Arc;

use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use tonic::codegen::tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse, health_server};

use crate::supervise::Supervisor;
use crate::telemetry::metrics::{Method, Shard};

/// Service name of the server's health. The empty service name is healthy until the server begins
/// to stop, independent of its parts.
const SERVICE: &str = "ratelimit";

/// Health of the parts of the server. Clones share one state.
#[derive(Debug, Clone)]
pub(crate) struct Health {
    parts: Arc<watch::Sender<HealthParts>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HealthParts {
    store: PartHealth,
    configuration: PartHealth,
    process: PartHealth,
    /// Number of parts of the process that ended unexpectedly and are being restarted.
    unhealthy: usize,
    /// Number of configuration files that cannot be read and keep their last content. They do not
    /// make the server unhealthy.
    kept_files: usize,
}

/// A part of the process is being restarted. The drop reports that it runs again.
#[derive(Debug)]
pub(crate) struct UnhealthyGuard(Health);

impl Drop for UnhealthyGuard {
    fn drop(&mut self) {
        self.0.parts.send_modify(|parts| parts.unhealthy -= 1);
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PartHealth {
    Healthy,
    Unhealthy,
}

impl HealthParts {
    /// Reasons why the server is unhealthy, one per line.
    fn reasons(self) -> String {
        let is_unhealthy = |part| part == PartHealth::Unhealthy;
        let reasons = [
            (is_unhealthy(self.process), "the server is about to end"),
            (
                is_unhealthy(self.store),
                "redis does not answer PING (REDIS_HEALTH_CHECK_ACTIVE_CONNECTION)",
            ),
            (
                is_unhealthy(self.configuration),
                "no limits are loaded (HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED)",
            ),
            (self.unhealthy > 0, "a part of the server is started again"),
        ];
        reasons
            .into_iter()
            .filter(|(applies, _)| *applies)
            .map(|(_, reason)| format!("not healthy: {reason}\n"))
            .collect()
    }

    pub(crate) fn serving(self) -> bool {
        self.reasons().is_empty()
    }
}

impl Health {
    /// Creates the health with these parts. The process is healthy until it stops.
    pub(crate) fn new(store: PartHealth, configuration: PartHealth) -> Self {
        let parts = HealthParts {
            store,
            configuration,
            process: PartHealth::Healthy,
            unhealthy: 0,
            kept_files: 0,
        };
        Self {
            parts: Arc::new(watch::Sender::new(parts)),
        }
    }

    pub(crate) fn serving(&self) -> bool {
        self.parts.borrow().serving()
    }

    /// Subscribes to changes of health.
    pub(crate) fn watch(&self) -> watch::Receiver<HealthParts> {
        self.parts.subscribe()
    }

    /// Sets the health of the store. Returns whether it changed.
    pub(crate) fn set_store(&self, part: PartHealth) -> bool {
        self.parts
            .send_if_modified(|parts| std::mem::replace(&mut parts.store, part) != part)
    }

    pub(crate) fn set_configuration(&self, part: PartHealth) {
        self.parts
            .send_if_modified(|parts| std::mem::replace(&mut parts.configuration, part) != part);
    }

    /// Body of `/healthcheck` for a healthy server: `OK` as in the reference, and further lines for
    /// problems that do not stop it.
    ///
    /// # Errors
    /// The server is unhealthy; the text has the reasons.
    pub(crate) fn report(&self) -> Result<String, String> {
        let parts = *self.parts.borrow();
        match parts.kept_files {
            _ if !parts.serving() => Err(parts.reasons()),
            0 => Ok("OK".to_owned()),
            files => Ok(format!(
                "OK\nconfiguration files that cannot be read and keep their last text: {files}\n"
            )),
        }
    }

    pub(crate) fn set_kept_files(&self, files: usize) {
        self.parts
            .send_if_modified(|parts| std::mem::replace(&mut parts.kept_files, files) != files);
    }

    /// Marks the server as unhealthy until the guard is dropped, while a part of the process
    /// restarts.
    pub(crate) fn mark_unhealthy(&self) -> UnhealthyGuard {
        self.parts.send_modify(|parts| parts.unhealthy += 1);
        UnhealthyGuard(self.clone())
    }

    /// Marks the process as unhealthy, because it begins to stop.
    pub(crate) fn stopping(&self) {
        self.parts
            .send_modify(|parts| parts.process = PartHealth::Unhealthy);
    }
}

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
            // The process has not begun to stop.
            Self::Process => parts.process == PartHealth::Healthy,
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
        match subject.status(*self.health.parts.borrow()) {
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
