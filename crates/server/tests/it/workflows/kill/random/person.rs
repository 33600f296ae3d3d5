//! A client that does whatever comes to its mind.

use std::sync::Arc;
use std::time::Instant;

use fastrand::Rng;
use serde_json::{Value, json};

use super::super::client::Client;
use super::ledger::Ledger;

pub(super) const QUEUES: [&str; 3] = ["swift", "slow", "rare"];
/// Leases that a client remembers, some of them long after their end.
const REMEMBERED: usize = 40;
/// The shortest lease that there is, so that many end during a test.
pub(super) const LEASE: &str = "5s";

/// A client that does whatever comes to its mind.
pub(super) struct Person {
    pub(super) number: u64,
    pub(super) rng: Rng,
    pub(super) client: Client,
    pub(super) ledger: Arc<Ledger>,
    /// Jobs that it has, or had.
    pub(super) jobs: Vec<Value>,
    /// Workflows that it knows of, and the names of their jobs.
    pub(super) workflows: Vec<(String, Vec<String>)>,
    pub(super) made: u64,
}

impl Person {
    pub(super) fn new(number: u64, rng: Rng, client: Client, ledger: Arc<Ledger>) -> Self {
        Self {
            number,
            rng,
            client,
            ledger,
            jobs: Vec::new(),
            workflows: Vec::new(),
            made: 0,
        }
    }

    pub(super) fn live(mut self) {
        while !self.client.is_over() {
            self.do_something();
        }
    }

    /// Asks once; sometimes it goes away before the answer.
    pub(super) fn ask(
        &mut self,
        method: &str,
        path: &str,
        headers: &str,
        body: &Value,
    ) -> Option<(u16, Value)> {
        let body = if body.is_null() {
            String::new()
        } else {
            body.to_string()
        };
        if self.rng.u8(..40) == 0 {
            self.client.ask_and_leave(method, path, headers, &body);
            return None;
        }
        let (status, answer) = self.client.ask_once(method, path, headers, &body)?;
        let expected = matches!(status, 200 | 201 | 204 | 404 | 409 | 503);
        assert!(expected, "{method} {path} {body}: {status} {answer}");
        // What is refused for now may have been done all the same.
        (status != 503).then_some((status, answer))
    }

    pub(super) fn claim(&mut self) -> Value {
        let rng = &mut self.rng;
        let mut queues = QUEUES.to_vec();
        rng.shuffle(&mut queues);
        queues.truncate(rng.usize(1..=3));
        let limit = [1, 1, 2, 10, 100][rng.usize(..5)];
        let wait = ["0s", "50ms", "300ms"][rng.usize(..3)];
        json!({"queues": queues, "worker": format!("w{}", self.number), "limit": limit, "wait": wait, "lease": LEASE})
    }

    /// Remembers the jobs of an answer.
    pub(super) fn take(&mut self, answer: &Value, asked: Instant) {
        for job in answer["jobs"].as_array().into_iter().flatten() {
            self.ledger.hold(job, asked);
            self.jobs.push(job.clone());
        }
        while self.jobs.len() > REMEMBERED {
            self.jobs.remove(self.rng.usize(..REMEMBERED / 2));
        }
    }

    pub(super) fn some_job(&mut self) -> Option<Value> {
        (!self.jobs.is_empty()).then(|| self.jobs[self.rng.usize(..self.jobs.len())].clone())
    }
}
