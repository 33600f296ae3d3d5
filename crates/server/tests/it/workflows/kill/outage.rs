//! Servers, or their store, are away for longer than leases last. Workers that live keep their jobs, and jobs of the dead run again.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::park_timeout;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tidegate_pipeline::test_util::RedisServer;

use super::Served;
use super::client::Client;
use crate::support::PATIENCE;

/// How long leases last, how long the outage does, and how many jobs run. By hand: `TIDEGATE_OUTAGE_SECONDS=60`.
#[expect(clippy::disallowed_methods, reason = "tests have no settings")]
fn lengths() -> (u64, u64, usize) {
    let seconds = std::env::var("TIDEGATE_OUTAGE_SECONDS")
        .ok()
        .map(|seconds| seconds.parse().unwrap());
    seconds.map_or((5, 7, 20), |seconds: u64| (seconds / 3, seconds, 100))
}

/// Calls of workers that live through an outage.
struct Workers {
    client: Client,
    /// Length of their leases, in seconds.
    lease: u64,
    /// Jobs in all.
    number: usize,
}

/// Which workflow a job belongs to, and its lease.
struct Leased {
    workflow: String,
    lease: String,
}

impl Leased {
    fn read(job: &Value) -> Self {
        let text = |name: &str| job[name].as_str().unwrap().to_owned();
        let (workflow, lease) = (text("workflow_id"), text("lease"));
        Self { workflow, lease }
    }
}

fn workflows(leases: &[Leased]) -> BTreeSet<String> {
    leases
        .iter()
        .map(|leased| leased.workflow.clone())
        .collect()
}

impl Workers {
    fn post(&mut self, path: &str, body: &Value) -> Value {
        let answer = self.client.ask("POST", path, "", &body.to_string());
        answer.unwrap().1
    }

    /// Creates jobs, of which half are under a limit of how many run at once.
    fn create(&mut self) {
        let limit =
            json!([{"concurrency": self.number, "of": "all", "entries": [["of", "outage"]]}]);
        for at in 0..self.number {
            let mut job = json!({"name": "a", "handler": "h"});
            if at % 4 < 2 {
                job["limits"] = limit.clone();
            }
            self.post("/v1/workflows", &json!({"name": "w", "jobs": [job]}));
        }
    }

    fn claim(&mut self) -> Vec<Leased> {
        let lease = format!("{}s", self.lease);
        let claim =
            json!({"queues": ["default"], "worker": "w", "limit": self.number, "lease": lease});
        let claimed = self.post("/v1/jobs/claim", &claim);
        claimed["jobs"]
            .as_array()
            .unwrap()
            .iter()
            .map(Leased::read)
            .collect()
    }

    /// Extends these leases, of which none may be lost.
    fn extend(&mut self, living: &[Leased]) {
        let leases: Vec<&String> = living.iter().map(|leased| &leased.lease).collect();
        let body = json!({"leases": leases, "lease": format!("{}s", self.lease)});
        let extended = self.post("/v1/jobs/extend", &body);
        // With 503 it is not known yet.
        let kept = |item: &Value| item["status"] == 200 || item["status"] == 503;
        let leases = extended["leases"].as_array().unwrap();
        assert!(leases.iter().all(kept), "{extended}");
    }

    fn succeed(&mut self, living: &[Leased]) {
        let report = |leased: &Leased| json!({"lease": leased.lease, "outcome": "succeeded"});
        let reports: Vec<Value> = living.iter().map(report).collect();
        let reported = self.post("/v1/jobs/report", &json!({"reports": reports}));
        let items = reported["reports"].as_array().unwrap();
        assert!(items.iter().all(|item| item["status"] == 200), "{reported}");
    }
}

/// Half of the workers of these jobs live on, and half of them have died.
fn nobody_who_lives_loses_a_job(api: std::net::SocketAddr, outage: impl FnOnce(Duration)) {
    let (lease, seconds, number) = lengths();
    let client = Client::new(Arc::new([api]), 0, Arc::new(AtomicBool::new(false)));
    let mut workers = Workers {
        client,
        lease,
        number,
    };
    workers.create();
    let mut leases = Vec::new();
    while leases.len() < number {
        leases.extend(workers.claim());
    }
    let (living, dead) = leases.split_at(number / 2);
    outage(Duration::from_secs(seconds));
    let back = Instant::now();
    let longest = PATIENCE + Duration::from_secs(2 * lease);
    let mut again = BTreeSet::new();
    while again.len() < dead.len() {
        let counts = format!("{} of {}", again.len(), dead.len());
        assert!(back.elapsed() < longest, "{counts}");
        workers.extend(living);
        again.extend(workflows(&workers.claim()));
        let alone = again.is_disjoint(&workflows(living));
        assert!(alone, "a job of a worker that lives runs twice");
        park_timeout(Duration::from_millis(200));
    }
    eprintln!(
        "{} jobs of the dead ran again {:?} after the outage; leases of {lease} s",
        dead.len(),
        back.elapsed()
    );
    assert_eq!(again, workflows(dead));
    workers.succeed(living);
}

fn while_the_server_is_away(store: &[(&'static str, String)]) {
    let mut server = Served::start(store);
    nobody_who_lives_loses_a_job(server.api, |span| {
        server.kill();
        park_timeout(span);
        server.start_again();
    });
}

#[test]
fn while_a_server_of_a_file_is_away_nobody_who_lives_loses_a_job() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data").to_str().unwrap().to_owned();
    while_the_server_is_away(&[("TIDEGATE_DATA_DIR", data)]);
}

#[test]
fn while_the_only_server_of_a_redis_is_away_nobody_who_lives_loses_a_job() {
    let redis = super::redis();
    while_the_server_is_away(&[("REDIS_URL", redis.address().to_string())]);
}

#[test]
fn while_redis_is_away_nobody_who_lives_loses_a_job() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let mut redis = runtime.block_on(RedisServer::start_with(&[
        "--appendonly",
        "yes",
        "--appendfsync",
        "always",
    ]));
    let server = Served::start(&[("REDIS_URL", redis.address().to_string())]);
    nobody_who_lives_loses_a_job(server.api, |span| {
        redis.kill();
        park_timeout(span);
        runtime.block_on(redis.restart());
    });
}
