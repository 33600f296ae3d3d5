//! Serves one gRPC connection, from accept to GOAWAY.

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

/// Maximum of concurrent calls of one connection. Envoy opens another connection before it needs
/// more.
const MAX_STREAMS: u32 = 1024;
/// Flow-control window of a connection in bytes: a thousand small messages, or a large one.
const CONNECTION_WINDOW: u32 = 1 << 20;
/// Flow-control window of a stream in bytes: larger than nearly all messages, so that they arrive
/// without a wait.
const STREAM_WINDOW: u32 = 256 * 1024;
/// Maximum of bytes of the headers of a call. Envoy's own headers take less than one KiB, but it
/// adds client headers for traces: up to 60 KiB by default. Refusing calls for their headers would
/// be a way around every limit.
const HEADERS: u32 = 256 * 1024;
/// Maximum of calls at a time that were reset before they began; with more, the connection ends. A
/// stall of this process leaves as many as the socket holds, and a poll reads a part of them. That
/// is some hundred calls, or some thousand without headers and messages, which no real client
/// sends.
const RESET_BEFORE: usize = 4096;
/// Maximum of frames that broke a rule, such as parts of a refused message; with more, the
/// connection ends.
const RESET_BY_US: usize = 1024;
/// Bytes of an answer that may wait to be written.
const SEND_BUFFER: usize = 64 * 1024;

/// Time that an evicted connection may stay open after GOAWAY: its calls end, and new connections
/// wait for it.
const EVICTED_GRACE: Duration = Duration::from_millis(100);
/// Time that a connection without a request may stay open after GOAWAY. hyper would wait without a
/// bound for the HTTP/2 preface.
const NO_REQUEST_GRACE: Duration = Duration::from_secs(1);
/// Time that a peer has for the preface, which is the first thing that a client sends.
const PREFACE: Duration = Duration::from_secs(10);
/// Time that a peer has for its first call. Clients connect early; a slower one connects again.
const FIRST_CALL: Duration = Duration::from_secs(300);
/// Interval of the checks of a connection. It is idle if it had no call since the last check.
const IDLE_CHECK_INTERVAL: Duration = Duration::from_secs(10);
/// Consecutive checks with slow reads after which the connection ends. A check is slow if fewer
/// answers were read than were unread before. Clients wait a second at most for an answer.
const UNREAD_LOOKS: u32 = 2;

/// The bounds that a connection holds until it ends.
pub(crate) struct ConnectionGuards {
    pub(crate) place: ConnectionSlot,
    pub(crate) budget: Arc<Budget>,
}

/// Counts of a connection, whose calls run on one thread.
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
    // After GOAWAY, calls in progress finish, and the peer sends new ones to another connection.
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

/// The reason why the server ends a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// It broke a bound.
    Broken(&'static str),
    /// It was evicted.
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

/// Returns if the peer has sent no call for [`FIRST_CALL_TIMEOUT`] since it connected.
async fn never_asked(meter: &CallMeter) {
    sleep(FIRST_CALL).await;
    if meter.has_been_asked() {
        std::future::pending::<()>().await;
    }
    meter.seat.count(Closed::Silent);
}

/// Returns the reason if the connection breaks a bound. Until then, records whether the connection
/// is idle.
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
        // If the peer had read the answers that were unread at the last check, that many would have
        // ended.
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
        // Port scans and vanished peers are common, and an operator can do nothing about them.
        debug!(%error, "a gRPC connection ended");
    }
}

async fn elapsed(time: Option<Duration>) {
    match time {
        Some(time) => sleep(time).await,
        None => std::future::pending().await,
    }
}

/// Varies a time by up to ten per cent, so that connections that began together do not end
/// together.
fn jittered(time: Duration) -> Duration {
    time.mul_f64(0.9 + 0.2 * fastrand::f64())
}

/// Runs calls on the core of their connection, which waits for them. The core's runtime owns calls
/// that outlive their connection, and ends them.
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
