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

/// Half of the workers of these jobs live on, and half of them have died; some jobs are under a limit of how many run at once.
fn nobody_who_lives_loses_a_job(api: std::net::SocketAddr, outage: impl FnOnce(Duration)) {
    let (lease, seconds, number) = lengths();
    let mut client = Client::new(Arc::new([api]), 0, Arc::new(AtomicBool::new(false)));
    let mut post =
        |path: &str, body: Value| client.ask("POST", path, "", &body.to_string()).unwrap().1;
    for at in 0..number {
        let mut job = json!({"name": "a", "handler": "h"});
        if at % 4 < 2 {
            job["limits"] =
                json!([{"concurrency": number, "of": "all", "entries": [["of", "outage"]]}]);
        }
        post("/v1/workflows", json!({"name": "w", "jobs": [job]}));
    }
    let claim = json!({"queues": ["default"], "worker": "w", "limit": number, "lease": format!("{lease}s")});
    let mut leases: Vec<(String, String)> = Vec::new();
    while leases.len() < number {
        let claimed = post("/v1/jobs/claim", claim.clone());
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let jobs = claimed["jobs"].as_array().unwrap();
        leases.extend(
            jobs.iter()
                .map(|job| (text(&job["workflow_id"]), text(&job["lease"]))),
        );
    }
    let (living, dead) = leases.split_at(number / 2);
    outage(Duration::from_secs(seconds));
    let back = Instant::now();
    let ids = |leases: &[(String, String)]| {
        leases
            .iter()
            .map(|(id, _)| id.clone())
            .collect::<BTreeSet<_>>()
    };
    let mut extend = || {
        let each: Vec<&String> = living.iter().map(|(_, lease)| lease).collect();
        let body = json!({"leases": each, "lease": format!("{lease}s")});
        let extended = post("/v1/jobs/extend", body);
        // With 503 it is not known yet.
        let kept = |item: &Value| item["status"] == 200 || item["status"] == 503;
        assert!(
            extended["leases"].as_array().unwrap().iter().all(kept),
            "{extended}"
        );
        let again = post("/v1/jobs/claim", claim.clone());
        let found = again["jobs"].as_array().unwrap().iter();
        found
            .map(|job| job["workflow_id"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    let mut again = BTreeSet::new();
    while again.len() < dead.len() {
        assert!(
            back.elapsed() < PATIENCE + Duration::from_secs(2 * lease),
            "{} of {}",
            again.len(),
            dead.len()
        );
        again.extend(extend());
        assert!(
            again.is_disjoint(&ids(living)),
            "a job of a worker that lives runs twice"
        );
        park_timeout(Duration::from_millis(200));
    }
    eprintln!(
        "{} jobs of the dead ran again {:?} after the outage; leases of {lease} s",
        dead.len(),
        back.elapsed()
    );
    assert_eq!(again, ids(dead));
    let reports: Vec<Value> = living
        .iter()
        .map(|(_, lease)| json!({"lease": lease, "outcome": "succeeded"}))
        .collect();
    let reported = post("/v1/jobs/report", json!({"reports": reports}));
    assert!(
        reported["reports"]
            .as_array()
            .unwrap()
            .iter()
            .all(|item| item["status"] == 200),
        "{reported}"
    );
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
