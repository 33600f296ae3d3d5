//! Queries one server on a separate connection, and limits log lines about failed queries.

use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::time::timeout;
use tracing::warn;

use crate::batch::Batch;
use crate::config::Address;
use crate::link::handshake;
use crate::link::{ClientContext, Login};
use crate::outcome::Outcome;

/// Maximum wait for one answer, whatever `connect_timeout` is: other servers can be queried, and
/// calls wait for this.
pub(crate) const QUERY_TIMEOUT: Duration = Duration::from_secs(1);

/// Queries a server of the client.
///
/// # Errors
/// The errors of [`query_with_login`].
pub(crate) async fn query_server(
    address: &Address,
    context: &ClientContext,
    commands: &Batch,
) -> Result<Vec<Outcome>, String> {
    query_with_login(
        address,
        context,
        &Login::for_config(&context.config)?,
        commands,
    )
    .await
}

/// Queries one server on a new connection, so that no caller's reply waits behind a long list, and
/// no busy or stuck connection delays the answer. Returns one outcome per command; error replies
/// are outcomes, too.
///
/// # Errors
/// There was no answer within [`QUERY_TIMEOUT`] or the connect timeout. The text has no secrets.
pub(crate) async fn query_with_login(
    address: &Address,
    context: &ClientContext,
    login: &Login,
    commands: &Batch,
) -> Result<Vec<Outcome>, String> {
    within_query_timeout(handshake::run_commands(address, context, login, commands)).await
}

/// Bounds the time of a query to one server.
pub(crate) async fn within_query_timeout<T>(
    attempt: impl Future<Output = Result<T, String>>,
) -> Result<T, String> {
    timeout(QUERY_TIMEOUT, attempt)
        .await
        .unwrap_or_else(|_| Err(format!("no answer within {QUERY_TIMEOUT:?}")))
}

/// Logs that a server did not name the owners of slots: once a minute for each server.
pub(crate) fn warn_no_owners(address: &Address, error: &str) {
    if let Some(attempts) = QUERY_FAILURE_LOG.count(&address.to_string(), Instant::now()) {
        warn!(node = %address, attempts, error, "cannot learn from this server who owns what");
    }
}

/// Logs that a sentinel did not name the primary: once a minute for each sentinel.
pub(crate) fn warn_no_primary(sentinel: &Address, error: &str) {
    if let Some(attempts) = QUERY_FAILURE_LOG.count(&sentinel.to_string(), Instant::now()) {
        warn!(%sentinel, attempts, error, "a sentinel does not say where the primary is");
    }
}

/// Failures of queries as the text of an error: the first [`MAX_LISTED_FAILURES`] of them.
#[derive(Debug, Default)]
pub(crate) struct QueryFailures(Vec<String>);

/// Maximum number of failures in the text of an error. Usual deployments have three sentinels.
const MAX_LISTED_FAILURES: usize = 3;

impl QueryFailures {
    pub(crate) fn add(&mut self, server: &dyn Display, reason: &str) {
        if self.0.len() < MAX_LISTED_FAILURES {
            self.0.push(format!("{server}: {reason}"));
        }
    }
}

impl Display for QueryFailures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("no server has answered");
        }
        f.write_str(&self.0.join("; "))
    }
}

/// Minimum interval between two log lines about one subject.
const LOG_INTERVAL: Duration = Duration::from_secs(60);
/// Number of subjects from which old ones are removed.
const MAX_SUBJECTS: usize = 1_000;

/// Log limit for servers that did not answer, for all clients of the process.
static QUERY_FAILURE_LOG: LogThrottle = LogThrottle::new();

/// Limits log lines to one in [`LOG_INTERVAL`] for each subject. Keeps the time of its last line
/// and the number of events since.
pub(crate) struct LogThrottle(Mutex<BTreeMap<String, (Instant, u64)>>);

impl LogThrottle {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(BTreeMap::new()))
    }

    /// Counts an event. Returns the number of events to log if a line is due now.
    pub(crate) fn count(&self, subject: &str, now: Instant) -> Option<u64> {
        let mut subjects = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if subjects.len() >= MAX_SUBJECTS {
            subjects.retain(|_, (logged, _)| now.saturating_duration_since(*logged) < LOG_INTERVAL);
        }
        match subjects.get_mut(subject) {
            Some((logged, since)) => {
                *since += 1;
                let due = now.saturating_duration_since(*logged) >= LOG_INTERVAL;
                due.then(|| {
                    *logged = now;
                    std::mem::take(since)
                })
            }
            None => {
                subjects.insert(subject.to_owned(), (now, 0));
                Some(1)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_does_not_answer_is_logged_once_a_minute() {
        let silent = LogThrottle::new();
        let start = Instant::now();
        let at = |node: &str, seconds| silent.count(node, start + Duration::from_secs(seconds));
        assert_eq!(
            [at("a:1", 0), at("b:1", 1), at("a:1", 1), at("a:1", 59)],
            [Some(1), Some(1), None, None]
        );
        assert_eq!(
            [at("a:1", 60), at("a:1", 61), at("b:1", 62)],
            [Some(3), None, Some(1)]
        );
    }
}
