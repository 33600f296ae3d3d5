//! One limit over requests and jobs.

mod configuration;
mod gateway;
mod listed;
mod moments;
mod overrides;
mod places;
mod refusals;
mod series;
mod warnings;

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};

use super::{Flows, found, redis};
use crate::support::{Limits, await_that, post};

const RULES: &str = "\
domain: vendor
descriptors:
  - key: tenant
    rate_limit: { unit: hour, requests_per_unit: 10 }
  - key: fast
    rate_limit: { unit: second, requests_per_unit: 5 }
  - key: vendor
    pause_when_throttled: true
    rate_limit: { unlimited: true }
  - key: watched
    shadow_mode: true
    rate_limit: { unit: hour, requests_per_unit: 1 }
";

/// So many jobs of a tenant.
fn jobs(key: &str, tenant: &str, number: usize) -> Value {
    let limits = json!([{"domain": "vendor", "entries": [[key, "$.tenant"]]}]);
    let job = |at| json!({"name": format!("{tenant} {at}"), "handler": "call", "limits": limits});
    json!({"name": "calls", "globals": {"tenant": tenant}, "jobs": (0..number).map(job).collect::<Vec<_>>()})
}

/// Whether a request of a tenant may pass.
fn passes(flows: &Flows, key: &str, tenant: &str) -> bool {
    let body =
        json!({"domain": "vendor", "descriptors": [{"entries": [{"key": key, "value": tenant}]}]});
    post(flows.server.http(), "/json", &body.to_string()).status == 200
}

fn claimed(flows: &Flows) -> Vec<String> {
    let claim = json!({"queues": ["default"], "worker": "w", "limit": 100});
    let jobs = flows.post("/v1/jobs/claim", claim)["jobs"].clone();
    jobs.as_array()
        .unwrap()
        .iter()
        .map(|job| job["job"].as_str().unwrap().to_owned())
        .collect()
}

fn of(claimed: &[String], tenant: &str) -> usize {
    claimed
        .iter()
        .filter(|name| name.starts_with(tenant))
        .count()
}

/// A server with the rules in memory, and two on one Redis.
fn on_one_and_on_two(test: impl Fn(&[Flows])) {
    let limits = Limits::new(RULES);
    let root = ("RUNTIME_ROOT", limits.root());
    test(&[Flows::start(&[root])]);
    let redis = redis();
    let url = redis.address().to_string();
    let on_redis = || Flows::start(&[root, ("REDIS_URL", &url), ("REDIS_SOCKET_TYPE", "tcp")]);
    test(&[on_redis(), on_redis()]);
}

#[test]
fn requests_and_jobs_use_the_same_units() {
    on_one_and_on_two(|servers| {
        let (flows, other) = (&servers[0], servers.last().unwrap());
        let id = flows.create(jobs("tenant", "acme", 20));
        flows.create(jobs("tenant", "bell", 3));
        flows.create(jobs("watched", "eve", 3));
        for _ in 0..4 {
            assert!(passes(other, "tenant", "acme"));
        }
        let mut all = Vec::new();
        await_that("all jobs are claimed for which there is room", || {
            all.extend(servers.iter().flat_map(claimed));
            of(&all, "acme") >= 6 && of(&all, "bell") == 3 && of(&all, "eve") == 3
        });
        for _ in 0..3 {
            all.extend(servers.iter().flat_map(claimed));
        }
        assert_eq!(of(&all, "acme"), 6, "four of ten were requests");
        assert_eq!(all.len(), 12);
        assert!(!passes(flows, "tenant", "acme") && passes(other, "tenant", "bell"));
        check_waiting(servers, &id);
        // A job that ends does not give its unit back.
        let within = "ratelimit.service.rate_limit.vendor.tenant.within_limit";
        let units = servers.iter().map(|flows| flows.server.stat(within));
        assert_eq!(units.sum::<u64>(), 4 + 6 + 3 + 1);
    });
}

/// Fourteen of twenty jobs of acme wait, and say for what, at each server.
fn check_waiting(servers: &[Flows], id: &str) {
    let (flows, other) = (&servers[0], servers.last().unwrap());
    let jobs = (0..20).map(|at| other.get(&format!("/v1/workflows/{id}/jobs/acme%20{at}")));
    let waiting: Vec<Value> = jobs.filter(|job| job["state"] == "ready").collect();
    assert_eq!(waiting.len(), 14);
    let why = &waiting[0]["why_not_running"];
    assert_eq!(why["reason"], "limit", "{why}");
    assert_eq!(why["limit"]["entries"], json!([["tenant", "acme"]]));
    assert!(why["until"].is_string(), "{why}");
    assert!(
        why["text"].as_str().unwrap().contains("tenant=acme"),
        "{why}"
    );
    let listed = flows.get(&format!("/v1/workflows/{id}/jobs?state=ready"));
    let listed = listed["items"].as_array().unwrap();
    assert_eq!(listed.len(), 14);
    for job in listed {
        let listed = &job["why_not_running"];
        assert_eq!(listed["reason"], why["reason"], "{listed}");
        assert_eq!(listed["limit"], why["limit"], "{listed}");
    }
}

#[test]
fn what_throttles_a_job_keeps_all_jobs_of_its_key_waiting_at_all_servers() {
    on_one_and_on_two(|servers| {
        let (flows, other) = (&servers[0], servers.last().unwrap());
        flows.create(jobs("tenant", "acme", 5));
        let claim = |limit: usize| json!({"queues": ["default"], "worker": "w", "limit": limit});
        let mut job = Value::Null;
        await_that("a job is claimed", || {
            job = flows.post("/v1/jobs/claim", claim(1))["jobs"][0].clone();
            job.is_object()
        });
        let report = |after: Value| json!({"lease": job["lease"], "outcome": "throttled", "retry_after": after});
        let missing = flows.post("/v1/jobs/report", json!({"reports": [report(Value::Null)]}));
        assert_eq!(
            missing["reports"][0]["error"]["path"], "reports[0].retry_after",
            "{missing}"
        );
        let reported = flows.post("/v1/jobs/report", json!({"reports": [report(json!("1h"))]}));
        assert_eq!(reported["reports"][0]["status"], 200, "{reported}");
        let path = |at| {
            format!(
                "/v1/workflows/{}/jobs/acme%20{at}",
                job["workflow_id"].as_str().unwrap()
            )
        };
        let shown = |flows: &Flows, at| found(flows.ask("GET", &path(at), &[], ""));
        await_that("all servers have read it", || {
            servers
                .iter()
                .all(|flows| shown(flows, 1)["why_not_running"]["reason"] == "limit")
        });
        flows.create(jobs("tenant", "bell", 2));
        let mut all = Vec::new();
        await_that("another tenant does not wait", || {
            all.extend(servers.iter().flat_map(claimed));
            of(&all, "bell") == 2
        });
        assert_eq!(of(&all, "acme"), 0, "{all:?}");
        assert_eq!(
            shown(other, 0)["attempt"],
            0,
            "what was throttled does not count"
        );
        assert!(passes(flows, "tenant", "acme"), "requests pass");
    });
}

#[test]
fn what_throttles_a_job_refuses_requests_where_the_rule_says_so() {
    on_one_and_on_two(|servers| {
        let (flows, other) = (&servers[0], servers.last().unwrap());
        flows.create(jobs("vendor", "acme", 2));
        assert!(servers.iter().all(|flows| passes(flows, "vendor", "acme")));
        let mut job = Value::Null;
        await_that("a job is claimed", || {
            let claim = json!({"queues": ["default"], "worker": "w", "limit": 1});
            job = flows.post("/v1/jobs/claim", claim)["jobs"][0].clone();
            job.is_object()
        });
        let report = json!({"lease": job["lease"], "outcome": "throttled", "retry_after": "1h"});
        assert_eq!(
            flows.post("/v1/jobs/report", json!({"reports": [report]}))["reports"][0]["status"],
            200
        );
        await_that("all servers refuse requests", || {
            servers.iter().all(|flows| !passes(flows, "vendor", "acme"))
        });
        assert!(passes(other, "vendor", "bell") && passes(other, "tenant", "acme"));
        assert_eq!(claimed(other), Vec::<String>::new());
        let listed = found(other.ask("GET", "/v1/limits/overrides", &[], ""));
        assert_eq!(listed["items"][0]["gateway"], true, "{listed}");
    });
}

/// The second of the clock.
#[expect(
    clippy::disallowed_methods,
    reason = "windows follow the clock of the machine"
)]
fn second() -> u64 {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap()
        .as_secs()
}

#[test]
fn no_window_has_more_than_its_units_whoever_takes_them() {
    const TENANTS: usize = 8;
    on_one_and_on_two(|servers| {
        for tenant in 0..TENANTS {
            servers[0].create(jobs("fast", &format!("t{tenant}"), 400));
        }
        let (taken, stop) = (
            Mutex::new(BTreeMap::<String, u64>::new()),
            AtomicBool::new(false),
        );
        let begin = second();
        std::thread::scope(|scope| {
            for flows in servers {
                for _ in 0..3 {
                    scope.spawn(|| {
                        while !stop.load(Relaxed) {
                            let claim = json!({"queues": ["default"], "worker": "w", "limit": 4, "wait": "1s"});
                            let answer = flows.post("/v1/jobs/claim", claim);
                            let leases: Vec<Value> =
                                answer["jobs"].as_array().unwrap().iter().map(|job| job["lease"].clone()).collect();
                            for job in answer["jobs"].as_array().unwrap() {
                                let name = job["job"].as_str().unwrap().split(' ').next().unwrap().to_owned();
                                *taken.lock().unwrap().entry(name).or_default() += 1;
                            }
                            let report = |lease| json!({"lease": lease, "outcome": "succeeded"});
                            flows.post(
                                "/v1/jobs/report",
                                json!({"reports": leases.into_iter().map(report).collect::<Vec<_>>()}),
                            );
                        }
                    });
                }
                scope.spawn(|| {
                    while !stop.load(Relaxed) {
                        for tenant in (0..TENANTS).map(|tenant| format!("t{tenant}")) {
                            if passes(flows, "fast", &tenant) {
                                *taken.lock().unwrap().entry(tenant).or_default() += 1;
                            }
                        }
                        // Requests leave some units to jobs.
                        std::thread::park_timeout(Duration::from_millis(50));
                    }
                });
            }
            await_that("each tenant has had its units of some windows", || {
                let taken = taken.lock().unwrap();
                taken.len() == TENANTS && taken.values().all(|number| *number >= 5 * 3)
            });
            stop.store(true, Relaxed);
        });
        let windows = second() - begin + 1;
        let taken = taken.into_inner().unwrap();
        for (tenant, number) in taken {
            assert!(
                number <= 5 * windows,
                "{tenant} took {number} in {windows} windows"
            );
        }
    });
}

/// Permits that the store refused were released at once, which let the claim try again at once.
#[test]
fn permits_that_the_store_refuses_are_not_acquired_again_and_again() {
    let redis = redis();
    let flows = Flows::on(&redis);
    let limits = json!([{"concurrency": 3, "of": "queue"}]);
    flows.create(json!({"name": "w", "jobs": [{"handler": "a", "limits": limits}]}));
    assert!(redis.raw("ACL SETUSER default -zadd").contains("OK"));
    let before = redis.commands_processed();
    let claim = json!({"queues": ["default"], "worker": "w", "wait": "2s"});
    assert_eq!(flows.post("/v1/jobs/claim", claim)["jobs"], json!([]));
    let in_two_seconds = redis.commands_processed() - before;
    assert!(in_two_seconds < 500, "{in_two_seconds} commands");
    assert!(redis.raw("ACL SETUSER default +zadd").contains("OK"));
    await_that("the job is claimed", || flows.claim(1).len() == 1);
}
