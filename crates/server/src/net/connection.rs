//! One gRPC connection, from accept to GOAWAY.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use hyper::rt::Executor;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, interval_at, sleep};
use tracing::debug;

use super::authority::AuthorityRewriter;
use super::bounds::socket::{GuardedSocket, InTurns};
use super::bounds::{
    Budget, Closed, ConnActivity, ConnState, ConnectionMemory, ConnectionSlot, Resets,
};
use super::wake_flag::SelectivePoll;
use crate::rls::grpc::Services;
use crate::settings::ConnectionAge;
use crate::supervise::Supervisor;

/// The most calls of one connection at a time. Envoy opens another connection before it needs more.
const MAX_STREAMS: u32 = 1024;
/// Room for the bodies of calls that arrive together: a thousand small ones, or a large one.
const CONNECTION_WINDOW: u32 = 1 << 20;
/// Larger than nearly all messages, so that they arrive without waiting for more window.
const STREAM_WINDOW: u32 = 256 * 1024;
/// The most bytes of the headers of a call, which is what a connection may hold in any case. Envoy's own take less than one KiB, but it passes
/// on what its clients send to be traced: as much as it takes of them, 60 KiB unless it is told otherwise. A call that is refused for it would
/// be a way around every limit.
const HEADERS: u32 = 256 * 1024;
/// Calls that were reset before they began, at a time; then the connection ends. Callers that gave up while this process did not run leave as
/// many as its socket holds, of which a turn reads a part: some hundred calls, or some thousand without headers and messages, which no real client sends.
const RESET_BEFORE: usize = 4096;
/// Frames that broke a rule, such as parts of a message that was refused before; then the connection ends.
const RESET_BY_US: usize = 1024;
/// Bytes of an answer that wait to be written.
const SEND_BUFFER: usize = 64 * 1024;

/// How long a connection whose place is needed may stay open after GOAWAY: calls end, and newcomers wait for it.
const EVICTED_GRACE: Duration = Duration::from_millis(100);
/// How long one without a request may. hyper would wait without a bound for a peer that has not sent the HTTP/2 preface.
const NO_REQUEST_GRACE: Duration = Duration::from_secs(1);
/// How long a peer may take to send the preface, which is the first thing that a client does.
const PREFACE: Duration = Duration::from_secs(10);
/// How long it may take to its first call. Clients connect early; one that comes late connects again.
const FIRST_CALL: Duration = Duration::from_secs(300);
/// How often a connection is looked at: without a call since the last look it is idle.
const IDLE_CHECK_INTERVAL: Duration = Duration::from_secs(10);
/// Looks in a row after which fewer answers were taken than had waited before; then the connection ends. Clients wait a second at
/// most for an answer.
const UNREAD_LOOKS: u32 = 2;

/// What a connection takes of the server.
pub(crate) struct ConnectionGuards {
    pub(crate) place: ConnectionSlot,
    pub(crate) budget: Arc<Budget>,
}

/// What is counted of a connection. Its calls run on one thread.
struct CallMeter {
    seat: Arc<ConnState>,
    tab: Arc<ConnectionMemory>,
    calls: AtomicU32,
}

impl CallMeter {
    fn call(&self) {
        let calls = self.calls.load(Relaxed);
        self.calls.store(calls.wrapping_add(1), Relaxed);
        self.seat.set(ConnActivity::Busy);
    }

    fn has_been_asked(&self) -> bool {
        self.seat.standing() != ConnActivity::NoRequest
    }
}

/// Serves one connection until the peer closes it, its age is reached, it breaks a bound, or the server drains.
pub(crate) async fn serve<I>(
    io: I,
    services: Services,
    age: ConnectionAge,
    hold: ConnectionGuards,
    supervisor: Supervisor,
) where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let seat = hold.place.seat.clone();
    let meter = CallMeter {
        seat: seat.clone(),
        tab: ConnectionMemory::new(hold.budget),
        calls: AtomicU32::new(0),
    };
    let service = service_fn(|request| {
        meter.call();
        services.answer(request, &meter.tab, &meter.seat)
    });
    let io = AuthorityRewriter::new(
        GuardedSocket::new(io, seat.clone()),
        Resets::new(seat.clone()),
    );
    let connection = builder().serve_connection(TokioIo::new(io), service);
    tokio::pin!(connection);
    let end = tokio::select! {
        biased;
        ended = InTurns { seat: &seat, connection: connection.as_mut() } => return log(ended),
        end = SelectivePoll::new(end(&meter, age, &supervisor)) => end,
    };
    match end {
        End::Broken(reason) => return debug!(reason, "a gRPC connection is closed"),
        End::InTheWay if !meter.has_been_asked() => return,
        End::InTheWay | End::Due => {}
    }
    // GOAWAY: calls in flight finish, and the peer sends new ones elsewhere.
    connection.as_mut().graceful_shutdown();
    tokio::select! {
        ended = InTurns { seat: &seat, connection: connection.as_mut() } => log(ended),
        reason = broken(&meter) => debug!(reason, "a gRPC connection is closed"),
        () = supervisor.stop.cancelled() => {}
        () = elapsed(age.grace) => {}
        () = sleep(EVICTED_GRACE), if end == End::InTheWay => {}
        () = sleep(NO_REQUEST_GRACE), if !meter.has_been_asked() => {}
    }
}

/// Why a connection ends that its peer does not end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// It broke a bound.
    Broken(&'static str),
    /// Its place is needed.
    InTheWay,
    /// It is old, it never called, or the server drains.
    Due,
}

async fn end(meter: &CallMeter, age: ConnectionAge, supervisor: &Supervisor) -> End {
    tokio::select! {
        reason = broken(meter) => End::Broken(reason),
        () = meter.seat.evicted() => End::InTheWay,
        () = supervisor.drain.cancelled() => End::Due,
        () = elapsed(age.limit.map(jittered)) => End::Due,
        () = never_asked(meter) => End::Due,
    }
}

fn builder() -> http2::Builder<Spawn> {
    let mut builder = http2::Builder::new(Spawn);
    builder
        .max_concurrent_streams(MAX_STREAMS)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .initial_stream_window_size(STREAM_WINDOW)
        .max_header_list_size(HEADERS)
        .max_pending_accept_reset_streams(RESET_BEFORE)
        .max_local_error_reset_streams(RESET_BY_US)
        .max_send_buf_size(SEND_BUFFER)
        .auto_date_header(false);
    builder
}

/// Returns when the peer has sent no call for too long since it connected.
async fn never_asked(meter: &CallMeter) {
    sleep(FIRST_CALL).await;
    if meter.has_been_asked() {
        std::future::pending::<()>().await;
    }
    meter.seat.count(Closed::Silent);
}

/// Returns when nothing more is waited for, and why. Until then it notes whether the connection is idle.
async fn broken(meter: &CallMeter) -> &'static str {
    let mut looks = interval_at(Instant::now() + IDLE_CHECK_INTERVAL, IDLE_CHECK_INTERVAL);
    let mut calls = 0;
    let mut ended = 0;
    let mut waiting = 0;
    let mut slow = 0;
    sleep(PREFACE).await;
    if !meter.seat.is_greeted() {
        meter.seat.count(Closed::Silent);
        return "the peer has not sent the preface of HTTP/2";
    }
    loop {
        looks.tick().await;
        meter.seat.begin_check();
        let calls_now = meter.calls.load(Relaxed);
        let ended_now = meter.tab.ended();
        if calls_now == calls && meter.has_been_asked() {
            meter.seat.set(ConnActivity::Idle);
        }
        // Had the peer taken what waited at the last look, so many answers would have ended.
        slow = if ended_now.wrapping_sub(ended) < waiting {
            slow + 1
        } else {
            0
        };
        if slow >= UNREAD_LOOKS {
            meter.seat.count(Closed::Unread);
            return "the peer does not take its answers";
        }
        calls = calls_now;
        ended = ended_now;
        waiting = meter.tab.unread();
    }
}

fn log(ended: hyper::Result<()>) {
    if let Err(error) = ended {
        // Ports are scanned and peers vanish: an operator can do nothing about it.
        debug!(%error, "a gRPC connection ended");
    }
}

async fn elapsed(time: Option<Duration>) {
    match time {
        Some(time) => sleep(time).await,
        None => std::future::pending().await,
    }
}

/// Up to ten per cent more or less, so that connections made together do not end together.
fn jittered(time: Duration) -> Duration {
    time.mul_f64(0.9 + 0.2 * fastrand::f64())
}

/// Runs calls on the core of their connection, which waits for them. Calls that outlive the connection end with the core's
/// runtime, which owns them.
#[derive(Debug, Clone, Copy)]
struct Spawn;

impl<F> Executor<F> for Spawn
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, call: F) {
        tokio::spawn(call);
    }
}
