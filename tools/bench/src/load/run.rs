//! A run: connections and streams that keep a server busy, a warm-up, and a measured span of time.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use bytes::Bytes;
use tokio::task::{JoinSet, LocalSet};
use tokio::time::{sleep, timeout};

use super::body::{Bodies, Shape};
use super::connection;
use crate::figures::{Answer, Tally};
use crate::load::keys::Keys;
use crate::load::pace::Pace;
use crate::machine::Address;
use crate::machine::{Cost, Process};

/// The method of Envoy's rate limit service.
pub(crate) const PATH: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// Longest wait for a first answer beyond the measured time.
const FIRST_ANSWER: Duration = Duration::from_secs(5);

/// What to send, and how.
pub(crate) struct Load {
    pub(crate) address: Address,
    pub(crate) connections: u16,
    /// Calls in flight on each connection, at most.
    pub(crate) streams: u16,
    pub(crate) shape: Shape,
    pub(crate) keys: Keys,
    /// Requests a second over all connections; `None` sends whenever a stream is free.
    pub(crate) rate: Option<f64>,
    /// Stop after as many requests as this, even when time is left. For closed loops.
    pub(crate) requests: Option<u64>,
    pub(crate) warmup: Duration,
    pub(crate) duration: Duration,
}

/// What a run showed. Everything describes the time after the warm-up.
pub(crate) struct Measured {
    pub(crate) tally: Tally,
    pub(crate) elapsed: Duration,
    /// Requests of an open loop that were due at the end and had found no free stream.
    pub(crate) behind: u64,
    pub(crate) own: Cost,
    pub(crate) server: Option<ServerCost>,
}

/// What the run cost the server.
pub(crate) struct ServerCost {
    pub(crate) cost: Cost,
    pub(crate) resident_bytes: u64,
}

/// What the streams of a run share.
pub(crate) struct Run {
    pub(crate) address: Address,
    pub(crate) streams: u16,
    pub(crate) pace: Pace,
    pub(crate) request: http::Request<()>,
    bodies: RefCell<(Bodies, Keys)>,
    tally: RefCell<Tally>,
}

impl Run {
    pub(crate) fn next_body(&self) -> Bytes {
        let (bodies, keys) = &mut *self.bodies.borrow_mut();
        bodies.next(keys)
    }

    pub(crate) fn count(&self, answer: Answer, took: Duration) {
        self.tally.borrow_mut().add(answer, took);
    }
}

impl Load {
    /// Runs the load on the current thread, which must belong to a current-thread runtime. `server` is watched
    /// meanwhile. Calls in flight at the end are dropped and not counted.
    pub(crate) async fn run(self, server: Option<Process>) -> anyhow::Result<Measured> {
        let request = http::Request::post(format!("http://{}{PATH}", self.address.authority()))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(())
            .context("could not build the request")?;
        let pace = match self.rate {
            Some(rate) => Pace::open(rate, Instant::now()),
            None => Pace::closed(self.requests),
        };
        let run = Rc::new(Run {
            bodies: RefCell::new((Bodies::new(&self.shape)?, self.keys)),
            address: self.address,
            streams: self.streams,
            pace,
            request,
            tally: RefCell::new(Tally::new()),
        });
        let local = LocalSet::new();
        let (warmup, duration, connections) = (self.warmup, self.duration, self.connections);
        local
            .run_until(measure(run, connections, warmup, duration, server))
            .await
    }
}

/// The tasks of the connections, and the one that keeps the schedule.
fn start(run: &Rc<Run>, connections: u16) -> (JoinSet<()>, JoinSet<anyhow::Result<()>>) {
    let mut tasks = JoinSet::new();
    for _ in 0..connections {
        tasks.spawn_local(connection::drive(run.clone()));
    }
    let keeper = run.clone();
    let mut schedule = JoinSet::new();
    schedule.spawn_local(async move { keeper.pace.keep().await });
    (tasks, schedule)
}

impl ServerCost {
    fn since(server: Process, before: Cost) -> anyhow::Result<Self> {
        Ok(Self {
            cost: server.cost()? - before,
            resident_bytes: server.resident_bytes()?,
        })
    }
}

/// Waits for the end of the measured time, and on a busy machine a little longer: a short turn may end before its first answer.
async fn over(run: &Run, duration: Duration) {
    sleep(duration).await;
    let first_answer = async {
        while run.tally.borrow().decisions() == 0 {
            sleep(Duration::from_millis(1)).await;
        }
    };
    // A server that answers nothing is told by the empty tally.
    let _ = timeout(FIRST_ANSWER, first_answer).await;
}

async fn measure(
    run: Rc<Run>,
    connections: u16,
    warmup: Duration,
    duration: Duration,
    server: Option<Process>,
) -> anyhow::Result<Measured> {
    let (mut tasks, mut schedule) = start(&run, connections);
    if !warmup.is_zero() {
        sleep(warmup).await;
    }
    // Without a warm-up no task has run yet: a number of requests is then counted in full.
    let server_before = server.map(Process::cost).transpose()?;
    let own_before = Process::own().cost()?;
    *run.tally.borrow_mut() = Tally::new();
    let start = Instant::now();
    tokio::select! {
        () = over(&run, duration) => {}
        // Only a closed loop with a number of requests ends by itself.
        () = async { while tasks.join_next().await.is_some() {} } => {}
    }
    let elapsed = start.elapsed();
    let own = Process::own().cost()? - own_before;
    let server = server
        .zip(server_before)
        .map(|(server, before)| ServerCost::since(server, before))
        .transpose()?;
    let behind = run.pace.behind();
    if let Some(Ok(kept)) = schedule.try_join_next() {
        kept?;
    }
    tasks.shutdown().await;
    schedule.shutdown().await;
    let tally = run.tally.borrow().clone();
    Ok(Measured {
        tally,
        elapsed,
        behind,
        own,
        server,
    })
}
