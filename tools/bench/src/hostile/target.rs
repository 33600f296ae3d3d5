//! Where attackers go, and what they get.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, bail};
use serde::{Deserialize, Serialize};

use crate::figures::micros;
use crate::machine::{Address, Server};
use crate::workflow::Api;

/// Where to attack, and how hard.
#[derive(Clone)]
pub(super) struct Target {
    pub(super) grpc: SocketAddr,
    pub(super) http: SocketAddr,
    pub(super) debug: SocketAddr,
    pub(super) api: SocketAddr,
    /// The path of a large workflow, if it was made.
    pub(super) workflow: String,
    pub(super) scale: f64,
    pub(super) gains: Arc<Gains>,
}

impl Target {
    pub(super) fn new(server: &Server, scale: f64) -> anyhow::Result<Self> {
        let Address::Tcp { port, .. } = server.grpc() else {
            bail!("the server has no port")
        };
        Ok(Self {
            grpc: ([127, 0, 0, 1], port).into(),
            http: server.http(),
            debug: server.debug(),
            api: server.api(),
            workflow: String::new(),
            scale,
            gains: Arc::default(),
        })
    }

    pub(super) fn number(&self, number: usize) -> usize {
        scaled(number, self.scale)
    }

    /// Makes a workflow of 7 MiB.
    pub(super) async fn make_workflow(&mut self) -> anyhow::Result<()> {
        let text = "x".repeat(240 * 1024);
        let job =
            |at: usize| format!(r#"{{"name":"j{at}","handler":"H","params":{{"x":"{text}"}}}}"#);
        let jobs: Vec<String> = (0..30).map(job).collect();
        let body = format!(r#"{{"name":"large","jobs":[{}]}}"#, jobs.join(","));
        let answer = Api::connect(self.api)
            .await?
            .post("/v1/workflows", body)
            .await?;
        let answer: serde_json::Value = serde_json::from_slice(&answer)?;
        let id = answer["id"].as_str().context("a workflow has an id")?;
        self.workflow = format!("/v1/workflows/{id}?view=full");
        Ok(())
    }
}

/// The part of an attack's size that is used, at least 1.
pub(super) fn scaled(number: usize, scale: f64) -> usize {
    ((number as f64 * scale) as usize).max(1)
}

/// What attackers got so far.
#[derive(Default)]
pub(super) struct Gains(Mutex<Got>);

/// What attackers got.
#[derive(Clone, Default, Serialize, Deserialize)]
pub(super) struct Got {
    /// How often, by what: connections, calls, and how these ended.
    counts: BTreeMap<String, u64>,
    /// The longest that an attacker waited for an answer.
    slowest_ms: f64,
    /// Of the limits that were used up before a flood, those still enforced after it.
    pub(super) enforced_percent: Option<f64>,
}

impl Gains {
    pub(super) fn count(&self, what: &str) {
        let mut got = self.lock();
        match got.counts.get_mut(what) {
            Some(count) => *count += 1,
            None => drop(got.counts.insert(what.to_owned(), 1)),
        }
    }

    /// Counts an answer that says `what`.
    pub(super) fn answered(&self, what: &str, took: Duration) {
        self.count(what);
        let mut got = self.lock();
        got.slowest_ms = got.slowest_ms.max(micros(took) / 1_000.0);
    }

    pub(super) fn enforced(&self, share: f64) {
        self.lock().enforced_percent = Some(share * 100.0);
    }

    pub(super) fn take(&self) -> Got {
        std::mem::take(&mut *self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, Got> {
        // Each change is complete or has not begun.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Display for Got {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts: Vec<String> = self
            .counts
            .iter()
            .map(|(what, count)| format!("{count} {what}"))
            .collect();
        if self.slowest_ms > 0.0 {
            parts.push(format!("slowest answer {:.1} ms", self.slowest_ms));
        }
        formatter.write_str(&parts.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_attackers_got_is_said_in_a_line() {
        let gains = Gains::default();
        gains.count("calls");
        gains.count("calls");
        gains.answered("INVALID_ARGUMENT", Duration::from_micros(1_500));
        gains.answered("OK", Duration::from_micros(500));
        assert_eq!(
            gains.take().to_string(),
            "1 INVALID_ARGUMENT, 1 OK, 2 calls, slowest answer 1.5 ms"
        );
        assert_eq!(gains.take().to_string(), "");
    }
}
