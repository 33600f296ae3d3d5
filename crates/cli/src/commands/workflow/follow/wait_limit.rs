//! Limits of a wait: a timeout, and an interrupt by Ctrl-C.

use std::time::Duration;

use clap::Args;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{Instant, timeout_at};

use crate::client::address::ServerAddress;
use crate::output::exit::{CommandResult, Exit, Failure};
use crate::output::moment::span_of;

/// Timeout of a wait without a limit.
const UNLIMITED: Duration = Duration::from_secs(100 * 365 * 86_400);
/// Minimum time for the first answers, so that a very short timeout still returns the status of the
/// workflow.
const MIN_FIRST_TIMEOUT: Duration = Duration::from_secs(1);

/// Options of a wait.
#[derive(Debug, Args)]
pub(crate) struct WaitOptions {
    /// Wait this long at most, such as 10m; then the exit code is 3
    #[arg(long, value_name = "SPAN", value_parser = span_of)]
    timeout: Option<Duration>,
}

/// Limits of one command. They start before the first request, because a server may accept a
/// connection and never answer. Futures within them are boxed, because futures of requests are
/// large.
pub(crate) struct WaitLimit {
    start: Instant,
    timeout: Duration,
    interrupt: Signal,
}

impl WaitLimit {
    /// Starts the time. From now on, Ctrl-C ends only futures that run within the limits.
    pub(crate) fn new(options: &WaitOptions) -> Self {
        let interrupt =
            signal(SignalKind::interrupt()).expect("a handler for this signal can be installed");
        Self {
            start: Instant::now(),
            timeout: options.timeout.unwrap_or(UNLIMITED),
            interrupt,
        }
    }

    /// Runs the first requests. `doubt` describes the unknown outcome if `server` does not answer.
    pub(super) async fn first<T>(
        &mut self,
        server: &ServerAddress,
        doubt: &str,
        work: impl Future<Output = CommandResult<T>>,
    ) -> CommandResult<T> {
        let deadline = self.start + self.timeout.max(MIN_FIRST_TIMEOUT);
        let done = self
            .run_until(deadline, work, || {
                format!("{server} had not answered{doubt}")
            })
            .await?;
        done.ok_or_else(|| {
            Failure::new(
                Exit::TimedOut,
                format!("{server} did not answer within --timeout{doubt}"),
            )
        })
    }

    /// Waits for the workflow with this id; returns `None` after the timeout.
    pub(super) async fn wait<T>(
        &mut self,
        id: &str,
        work: impl Future<Output = CommandResult<T>>,
    ) -> CommandResult<Option<T>> {
        let again =
            || format!("workflow {id} continues; `tidegate workflow watch {id}` follows it again");
        self.run_until(self.start + self.timeout, work, again).await
    }

    async fn run_until<T>(
        &mut self,
        deadline: Instant,
        work: impl Future<Output = CommandResult<T>>,
        interrupted: impl Fn() -> String,
    ) -> CommandResult<Option<T>> {
        tokio::select! {
            done = timeout_at(deadline, work) => done.ok().transpose(),
            _ = self.interrupt.recv() => Err(Failure::new(Exit::Interrupted, format!("interrupted: {}", interrupted()))),
        }
    }
}
