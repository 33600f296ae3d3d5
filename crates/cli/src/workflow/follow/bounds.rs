//! What ends a wait before the workflow ends: the time, or an interrupt.

use std::time::Duration;

use clap::{Args, ValueHint};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{Instant, timeout_at};

use crate::client::address::Target;
use crate::client::exit::{Exit, Failure};
use crate::output::moment::span_of;

/// A wait without end.
const FOR_EVER: Duration = Duration::from_secs(100 * 365 * 86_400);
/// A server gets at least this long for its first answers, so that a very short time still finds out how a workflow is.
const FIRST: Duration = Duration::from_secs(1);

/// How long to wait.
#[derive(Debug, Clone, Args)]
pub(crate) struct WaitOptions {
    /// Wait this long at most, such as 10m; then the exit code is 3
    #[arg(long, value_name = "SPAN", value_parser = span_of, value_hint = ValueHint::Other)]
    timeout: Option<Duration>,
}

/// The bounds of one command. They begin before its first request, because a server may accept a connection and say nothing.
/// What is done within them is boxed, because futures of requests are large.
pub(crate) struct WaitLimit {
    start: Instant,
    timeout: Duration,
    interrupt: Signal,
}

impl WaitLimit {
    /// Begins now. From here on Ctrl-C ends only what is done within the bounds.
    pub(crate) fn new(until: &WaitOptions) -> Self {
        let interrupt =
            signal(SignalKind::interrupt()).expect("a handler for this signal can be installed");
        Self {
            start: Instant::now(),
            timeout: until.timeout.unwrap_or(FOR_EVER),
            interrupt,
        }
    }

    /// The first requests. `doubt` is what is not known when `server` did not answer them.
    pub(super) async fn first<T>(
        &mut self,
        server: &Target,
        doubt: &str,
        work: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        let until = self.start + self.timeout.max(FIRST);
        let done = self
            .done(until, work, || format!("{server} had not answered{doubt}"))
            .await?;
        done.ok_or_else(|| {
            Failure::new(
                Exit::TimedOut,
                format!("{server} did not answer within --timeout{doubt}"),
            )
        })
    }

    /// The wait for the workflow with this id; None when the time is over.
    pub(super) async fn wait<T>(
        &mut self,
        id: &str,
        work: impl Future<Output = Result<T, Failure>>,
    ) -> Result<Option<T>, Failure> {
        let again =
            || format!("workflow {id} continues; `tidegate workflow watch {id}` follows it again");
        self.done(self.start + self.timeout, work, again).await
    }

    async fn done<T>(
        &mut self,
        until: Instant,
        work: impl Future<Output = Result<T, Failure>>,
        interrupted: impl Fn() -> String,
    ) -> Result<Option<T>, Failure> {
        tokio::select! {
            done = timeout_at(until, work) => done.ok().transpose(),
            _ = self.interrupt.recv() => Err(Failure::new(Exit::Interrupted, format!("interrupted: {}", interrupted()))),
        }
    }
}
