//! A worker in a process of its own. It has a slot while a job of it is at work, and stops at the end of its lease.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::{park_timeout, scope};
use std::time::Duration;

use serde_json::{Value, json};

use super::super::super::kill::client::Client;
use super::super::moments::{now, told};
use super::slots::Slots;
use super::{LEASE, TEST};

/// Tells a process that it is a worker, and of which servers and slots.
const SERVERS: &str = "TIDEGATE_TEST_WORKER_SERVERS";
const SLOTS: &str = "TIDEGATE_TEST_WORKER_SLOTS";

/// A lease is extended so often.
const EXTEND: Duration = Duration::from_secs(1);
/// How exactly a job ends.
const STEP: Duration = Duration::from_millis(5);

/// The process of a worker, killed when dropped.
pub(super) struct Worker(Child);

impl Worker {
    pub(super) fn start(servers: &[SocketAddr], slots: &Path) -> Self {
        let servers: Vec<String> = servers.iter().map(ToString::to_string).collect();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", TEST, "--nocapture"])
            .env(SERVERS, servers.join(","))
            .env(SLOTS, slots);
        Self(
            command
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .spawn()
                .unwrap(),
        )
    }

    /// Whether it ended by itself.
    pub(super) fn has_ended(&mut self) -> bool {
        self.0.try_wait().unwrap().is_some()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The servers and slots of this process, if it is a worker.
#[expect(
    clippy::disallowed_methods,
    reason = "this process may be the child of the test, which is told so"
)]
pub(super) fn is_worker() -> Option<(Vec<SocketAddr>, PathBuf)> {
    let servers = std::env::var(SERVERS).ok()?;
    let slots = std::env::var_os(SLOTS)?;
    Some((
        servers
            .split(',')
            .map(|address| address.parse().unwrap())
            .collect(),
        slots.into(),
    ))
}

/// Runs jobs until it is killed.
pub(super) fn work((servers, slots): (Vec<SocketAddr>, PathBuf)) {
    let (servers, slots): (Arc<[_]>, _) = (servers.into(), Slots::of(&slots));
    let name = format!("worker-{}", std::process::id());
    let claim =
        json!({"queues": ["default"], "worker": name, "lease": format!("{LEASE}s"), "wait": "5s"});
    let client = || {
        Client::new(
            Arc::clone(&servers),
            std::process::id() as usize,
            Arc::default(),
        )
    };
    let (mut client, mut keeper) = (client(), client());
    let mut reports: Vec<Value> = Vec::new();
    loop {
        let (status, answer) = client
            .post(
                "/v1/jobs/report",
                &json!({"reports": reports, "claim": claim}),
            )
            .expect("it asks for ever");
        assert_eq!(status, 200, "{answer}");
        let mut answers = answer["reports"].as_array().unwrap().iter();
        reports.retain(|_| answers.next().unwrap()["status"] == 503);
        for job in answer["jobs"].as_array().unwrap() {
            reports.extend(run(job, &slots, &mut keeper));
        }
    }
}

/// Returns a report, or none when the lease is over.
fn run(job: &Value, slots: &Slots, keeper: &mut Client) -> Option<Value> {
    let (ends, done) = (
        AtomicU64::new(told(&job["lease_expires_at"])),
        AtomicBool::new(false),
    );
    scope(|scope| {
        let keeping = scope.spawn(|| keep(&job["lease"], keeper, (&ends, &done)));
        let slot = slots.take(&job.to_string());
        let ready = now() + job["params"]["ms"].as_u64().unwrap() * 1_000;
        while now() < ready.min(ends.load(Relaxed)) {
            park_timeout(STEP);
        }
        drop(slot);
        done.store(true, Relaxed);
        keeping.thread().unpark();
    });
    let in_time = now() < ends.into_inner();
    in_time.then(|| json!({"lease": job["lease"], "outcome": "succeeded"}))
}

/// Extends a lease until the job is done.
fn keep(lease: &Value, keeper: &mut Client, (ends, done): (&AtomicU64, &AtomicBool)) {
    let body = json!({"leases": [lease], "lease": format!("{LEASE}s")}).to_string();
    loop {
        park_timeout(EXTEND);
        if done.load(Relaxed) {
            return;
        }
        if let Some((200, answer)) = keeper.ask_once("POST", "/v1/jobs/extend", "", &body) {
            let lease = &answer["leases"][0];
            match lease["status"].as_u64().unwrap() {
                200 => ends.store(told(&lease["lease_expires_at"]), Relaxed),
                // Nobody knows: it goes on until its end.
                503 => {}
                _ => ends.store(0, Relaxed),
            }
        }
    }
}
