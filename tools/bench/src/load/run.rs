//! A run: connections and streams that keep a server busy, a warm-up, and a measured span of time.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use bytes::Bytes;
use tidegate_pipeline::Address;
use tokio::task::{JoinSet, LocalSet};

use super::body::{BodyFactory, Shape};
use super::connection;
use super::keys::{Distribution, KeyStream};
use super::session::Session;
use crate::figures::Calls;
use crate::machine::{Cost, Process};

/// The method of Envoy's rate limit service.
pub(crate) const PATH: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// A load: its requests, and how they are sent.
pub(crate) struct Load {
    pub(crate) address: Address,
    pub(crate) connections: u16,
    /// Maximum number of calls in flight on each connection.
    pub(crate) streams: u16,
    pub(crate) shape: Shape,
    pub(crate) keys: KeyStream,
    /// Requests a second over all connections; `None` sends whenever a stream is free.
    pub(crate) rate: Option<f64>,
    /// Number of requests after which a closed loop stops, even if time is left.
    pub(crate) requests: Option<u64>,
    pub(crate) warmup: Duration,
    pub(crate) duration: Duration,
}

/// The result of a run after the warm-up.
pub(crate) struct LoadResult {
    pub(crate) calls: Calls,
    pub(crate) own: Cost,
    /// Cost of the run for the server.
    pub(crate) server: Option<Cost>,
}

/// State that the streams of a run share.
pub(crate) struct SharedLoad {
    pub(crate) session: Rc<Session>,
    pub(crate) address: Address,
    pub(crate) streams: u16,
    pub(crate) request: http::Request<()>,
    bodies: RefCell<(BodyFactory, KeyStream)>,
}

impl SharedLoad {
    pub(crate) fn next_body(&self) -> Bytes {
        let (bodies, keys) = &mut *self.bodies.borrow_mut();
        bodies.next(keys)
    }
}

impl Load {
    /// Creates a closed loop of ten connections with twenty streams, which draws from a thousand
    /// keys.
    pub(crate) fn new(address: Address, shape: Shape, duration: Duration) -> Self {
        Self {
            address,
            connections: 10,
            streams: 20,
            shape,
            keys: KeyStream::new(Distribution::Uniform, 1_000, 0.0, 1),
            rate: None,
            requests: None,
            warmup: Duration::ZERO,
            duration,
        }
    }

    /// Runs the load on the current thread, which must belong to a current-thread runtime. The cost
    /// of `server` is measured. Calls in flight at the end are dropped and not counted.
    pub(crate) async fn run(self, server: Option<Process>) -> Result<LoadResult> {
        LocalSet::new().run_until(self.measure(server)).await
    }

    async fn measure(self, server: Option<Process>) -> Result<LoadResult> {
        let session = Session::new(self.rate, self.requests);
        let run = Rc::new(SharedLoad {
            session: session.clone(),
            bodies: RefCell::new((BodyFactory::new(&self.shape)?, self.keys)),
            request: request(&self.address)?,
            address: self.address,
            streams: self.streams,
        });
        let mut tasks = JoinSet::new();
        for _ in 0..self.connections {
            tasks.spawn_local(connection::drive(run.clone()));
        }
        let costs = || {
            let server = server.map(Process::cost).transpose()?;
            anyhow::Ok((server, Process::current().cost()?))
        };
        let span = session
            .measure(tasks, self.warmup, self.duration, costs)
            .await?;
        let (server_before, own_before) = span.before;
        let (server_after, own_after) = span.after;
        let server = server_after.zip(server_before);
        Ok(LoadResult {
            calls: span.calls,
            own: own_after - own_before,
            server: server.map(|(after, before)| after - before),
        })
    }
}

/// Returns the head of all requests.
fn request(address: &Address) -> Result<http::Request<()>> {
    let authority = match address {
        Address::Tcp { .. } => address.to_string(),
        Address::Unix(_) => "localhost".to_owned(),
    };
    http::Request::post(format!("http://{authority}{PATH}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(())
        .context("could not build the request")
}
