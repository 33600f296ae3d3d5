//! Serves one gRPC connection, from accept to GOAWAY.

mod wake_flag;

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

use self::wake_flag::SelectivePoll;
use crate::net::authority::AuthorityRewriter;
use crate::net::bounds::socket::{CountPolls, GuardedSocket};
use crate::net::bounds::{
    CloseReason, ConnActivity, ConnState, ConnectionMemory, ConnectionSlot, MemoryBudget,
    ResetCounter,
};
use crate::rls::grpc::Services;
use crate::settings::ConnectionAge;
use crate::supervise::Supervisor;

/// Maximum of concurrent calls of one connection. Envoy opens another connection before it needs
/// more.
const MAX_STREAMS: u32 = 1024;
/// Flow-control window of a connection in bytes: a thousand small messages, or a large one.
const CONNECTION_WINDOW_BYTES: u32 = 1 << 20;
/// Flow-control window of a stream in bytes: larger than nearly all messages, so that they arrive
/// without a wait.
const STREAM_WINDOW_BYTES: u32 = 256 * 1024;
/// Maximum of bytes of the headers of a call. Envoy's own headers take less than one KiB, but it
/// adds client headers for traces: up to 60 KiB by default. Refusing calls for their headers would
/// be a way around every limit.
const MAX_HEADER_BYTES: u32 = 256 * 1024;
/// Maximum of calls at a time that were reset before they began; with more, the connection ends. A
/// stall of this process leaves as many as the socket holds, and a poll reads a part of them. That
/// is some hundred calls, or some thousand without headers and messages, which no real client
/// sends.
const MAX_PENDING_RESETS: usize = 4096;
/// Maximum of frames that broke a rule, such as parts of a refused message; with more, the
/// connection ends.
const MAX_LOCAL_RESETS: usize = 1024;
/// Bytes of an answer that may wait to be written.
const MAX_SEND_BUFFER_BYTES: usize = 64 * 1024;

/// Time that an evicted connection may stay open after GOAWAY: its calls end, and new connections
/// wait for it.
const EVICTED_GRACE: Duration = Duration::from_millis(100);
/// Time that a connection without a request may stay open after GOAWAY. hyper would wait without a
/// bound for the HTTP/2 preface.
const NO_REQUEST_GRACE: Duration = Duration::from_secs(1);
/// Time that a peer has for the preface, which is the first thing that a client sends.
const PREFACE_TIMEOUT: Duration = Duration::from_secs(10);
/// Time that a peer has for its first call. Clients connect early; a slower one connects again.
const FIRST_CALL_TIMEOUT: Duration = Duration::from_secs(300);
/// Interval of the checks of a connection. It is idle if it had no call since the last check.
const IDLE_CHECK_INTERVAL: Duration = Duration::from_secs(10);
/// Consecutive checks with slow reads after which the connection ends. A check is slow if fewer
/// answers were read than were unread before. Clients wait a second at most for an answer.
const MAX_SLOW_CHECKS: u32 = 2;

/// The bounds that a connection holds until it ends.
pub(crate) struct ConnectionGuards {
    pub(crate) slot: ConnectionSlot,
    pub(crate) budget: Arc<MemoryBudget>,
}

/// Counts of a connection, whose calls run on one thread.
struct CallMeter {
    conn_state: Arc<ConnState>,
    memory: Arc<ConnectionMemory>,
    calls: AtomicU32,
}

impl CallMeter {
    fn on_call(&self) {
        let calls = self.calls.load(Relaxed);
        self.calls.store(calls.wrapping_add(1), Relaxed);
        self.conn_state.set_activity(ConnActivity::Busy);
    }

    fn has_had_call(&self) -> bool {
        self.conn_state.activity() != ConnActivity::NoRequest
    }
}

/// Serves one connection until the peer closes it, its age is reached, it breaks a bound, or the server drains.
pub(crate) async fn serve<I>(
    io: I,
    services: Services,
    age: ConnectionAge,
    guards: ConnectionGuards,
    supervisor: Supervisor,
) where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let conn_state = guards.slot.conn_state.clone();
    let meter = CallMeter {
        conn_state: conn_state.clone(),
        memory: ConnectionMemory::new(guards.budget),
        calls: AtomicU32::new(0),
    };
    let service = service_fn(|request| {
        meter.on_call();
        services.answer(request, &meter.memory, &meter.conn_state)
    });
    let io = AuthorityRewriter::new(
        GuardedSocket::new(io, conn_state.clone()),
        ResetCounter::new(conn_state.clone()),
    );
    let connection = builder().serve_connection(TokioIo::new(io), service);
    tokio::pin!(connection);
    let cause = tokio::select! {
        biased;
        ended = CountPolls { conn_state: &conn_state, connection: connection.as_mut() } => return log(ended),
        end = SelectivePoll::new(until_close_cause(&meter, age, &supervisor)) => end,
    };
    match cause {
        CloseCause::BoundBroken(reason) => return debug!(reason, "a gRPC connection is closed"),
        CloseCause::Evicted if !meter.has_had_call() => return,
        CloseCause::Evicted | CloseCause::Due => {}
    }
    // After GOAWAY, calls in progress finish, and the peer sends new ones to another connection.
    connection.as_mut().graceful_shutdown();
    tokio::select! {
        ended = CountPolls { conn_state: &conn_state, connection: connection.as_mut() } => log(ended),
        reason = until_broken(&meter) => debug!(reason, "a gRPC connection is closed"),
        () = supervisor.stop.cancelled() => {}
        () = sleep_if_some(age.grace) => {}
        () = sleep(EVICTED_GRACE), if cause == CloseCause::Evicted => {}
        () = sleep(NO_REQUEST_GRACE), if !meter.has_had_call() => {}
    }
}

/// The reason why the server ends a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CloseCause {
    /// It broke a bound.
    BoundBroken(&'static str),
    /// It was evicted.
    Evicted,
    /// It is old, it never called, or the server drains.
    Due,
}

async fn until_close_cause(
    meter: &CallMeter,
    age: ConnectionAge,
    supervisor: &Supervisor,
) -> CloseCause {
    tokio::select! {
        reason = until_broken(meter) => CloseCause::BoundBroken(reason),
        () = meter.conn_state.evicted() => CloseCause::Evicted,
        () = supervisor.drain.cancelled() => CloseCause::Due,
        () = sleep_if_some(age.limit.map(jittered)) => CloseCause::Due,
        () = until_first_call_timeout(meter) => CloseCause::Due,
    }
}

fn builder() -> http2::Builder<CoreExecutor> {
    let mut builder = http2::Builder::new(CoreExecutor);
    builder
        .max_concurrent_streams(MAX_STREAMS)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .max_header_list_size(MAX_HEADER_BYTES)
        .max_pending_accept_reset_streams(MAX_PENDING_RESETS)
        .max_local_error_reset_streams(MAX_LOCAL_RESETS)
        .max_send_buf_size(MAX_SEND_BUFFER_BYTES)
        .auto_date_header(false);
    builder
}

/// Returns if the peer has sent no call for [`FIRST_CALL_TIMEOUT`] since it connected.
async fn until_first_call_timeout(meter: &CallMeter) {
    sleep(FIRST_CALL_TIMEOUT).await;
    if meter.has_had_call() {
        std::future::pending::<()>().await;
    }
    meter.conn_state.count_close(CloseReason::NoRequest);
}

/// Returns the reason if the connection breaks a bound. Until then, records whether the connection
/// is idle.
async fn until_broken(meter: &CallMeter) -> &'static str {
    let mut checks = interval_at(Instant::now() + IDLE_CHECK_INTERVAL, IDLE_CHECK_INTERVAL);
    let mut calls = 0;
    let mut ended = 0;
    let mut unread = 0;
    let mut slow_checks = 0;
    sleep(PREFACE_TIMEOUT).await;
    if !meter.conn_state.has_sent_preface() {
        meter.conn_state.count_close(CloseReason::NoRequest);
        return "the peer has not sent the preface of HTTP/2";
    }
    loop {
        checks.tick().await;
        meter.conn_state.begin_check();
        let calls_now = meter.calls.load(Relaxed);
        let ended_now = meter.memory.ended();
        if calls_now == calls && meter.has_had_call() {
            meter.conn_state.set_activity(ConnActivity::Idle);
        }
        // If the peer had read the answers that were unread at the last check, that many would have
        // ended.
        slow_checks = if ended_now.wrapping_sub(ended) < unread {
            slow_checks + 1
        } else {
            0
        };
        if slow_checks >= MAX_SLOW_CHECKS {
            meter.conn_state.count_close(CloseReason::UnreadAnswers);
            return "the peer does not take its answers";
        }
        calls = calls_now;
        ended = ended_now;
        unread = meter.memory.unread();
    }
}

fn log(ended: hyper::Result<()>) {
    if let Err(error) = ended {
        // Port scans and vanished peers are common, and an operator can do nothing about them.
        debug!(%error, "a gRPC connection ended");
    }
}

async fn sleep_if_some(time: Option<Duration>) {
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
struct CoreExecutor;

impl<F> Executor<F> for CoreExecutor
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, call: F) {
        tokio::spawn(call);
    }
}
