//! Whether the server can do its work, for `/healthcheck` and gRPC's health service.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use tokio::sync::{mpsc, watch};
use tonic::codegen::tokio_stream::Stream;
use tonic::{Request, Response, Status};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse, health_server};

use crate::operate::metrics::{Method, Shard};
use crate::supervise::Life;

/// The service that follows our health; the empty name is always served.
const SERVICE: &str = "ratelimit";

/// What health is made of. A clone is the same.
#[derive(Debug, Clone)]
pub(crate) struct Health {
    parts: Arc<watch::Sender<Parts>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Parts {
    store: Part,
    configuration: Part,
    process: Part,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    Healthy,
    Unhealthy,
}

impl Parts {
    fn serving(self) -> bool {
        [self.store, self.configuration, self.process].iter().all(|part| *part == Part::Healthy)
    }
}

impl Health {
    /// Health with these parts; the process is healthy until it stops.
    pub(crate) fn new(store: Part, configuration: Part) -> Self {
        let parts = Parts { store, configuration, process: Part::Healthy };
        Self { parts: Arc::new(watch::Sender::new(parts)) }
    }

    pub(crate) fn serving(&self) -> bool {
        self.parts.borrow().serving()
    }

    pub(crate) fn set_store(&self, part: Part) {
        self.parts.send_if_modified(|parts| std::mem::replace(&mut parts.store, part) != part);
    }

    pub(crate) fn set_configuration(&self, part: Part) {
        self.parts.send_if_modified(|parts| std::mem::replace(&mut parts.configuration, part) != part);
    }

    /// The process is about to end.
    pub(crate) fn stopping(&self) {
        self.parts.send_modify(|parts| parts.process = Part::Unhealthy);
    }
}

/// gRPC's health service.
#[derive(Debug)]
pub(crate) struct HealthService {
    pub(crate) health: Health,
    pub(crate) life: Life,
    pub(crate) metrics: Arc<Shard>,
}

fn answer(status: ServingStatus) -> HealthCheckResponse {
    HealthCheckResponse { status: status as i32 }
}

fn status(serving: bool) -> ServingStatus {
    if serving { ServingStatus::Serving } else { ServingStatus::NotServing }
}

#[tonic::async_trait]
impl health_server::Health for HealthService {
    async fn check(&self, request: Request<HealthCheckRequest>) -> Result<Response<HealthCheckResponse>, Status> {
        let started = Instant::now();
        let answer = match request.get_ref().service.as_str() {
            "" => Ok(Response::new(answer(ServingStatus::Serving))),
            SERVICE => Ok(Response::new(answer(status(self.health.serving())))),
            _ => Err(Status::not_found("unknown service")),
        };
        self.metrics.call(Method::Check, started.elapsed());
        answer
    }

    type WatchStream = Updates;

    async fn watch(&self, request: Request<HealthCheckRequest>) -> Result<Response<Updates>, Status> {
        let (sender, receiver) = mpsc::channel(1);
        let mut parts = self.health.parts.subscribe();
        let drain = self.life.drain.clone();
        let service = request.into_inner().service;
        self.life.tasks.spawn(async move {
            let mut told = None;
            loop {
                // A stream that is not read ends with its connection; until then only the latest status waits.
                let now = match service.as_str() {
                    "" => ServingStatus::Serving,
                    SERVICE => status(parts.borrow_and_update().serving()),
                    _ => ServingStatus::ServiceUnknown,
                };
                if told.replace(now) != Some(now) {
                    tokio::select! {
                        sent = sender.send(Ok(answer(now))) => if sent.is_err() { return },
                        () = drain.cancelled() => return,
                    }
                }
                tokio::select! {
                    biased;
                    changed = parts.changed() => if changed.is_err() { return },
                    () = sender.closed() => return,
                    () = drain.cancelled() => return, // an open stream must not hold up the end
                }
            }
        });
        Ok(Response::new(Updates { receiver }))
    }
}

/// Statuses of one watcher.
#[derive(Debug)]
pub(crate) struct Updates {
    receiver: mpsc::Receiver<Result<HealthCheckResponse, Status>>,
}

impl Stream for Updates {
    type Item = Result<HealthCheckResponse, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.receiver.poll_recv(context)
    }
}
