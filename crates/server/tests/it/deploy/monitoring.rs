//! Dashboards of Grafana and rules of Prometheus.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{certificates, deploy, peer, succeed, yaml};
use crate::support::{Limits, Server, ask, await_that, get, repository, request};
use crate::workflows::{Flows, redis, workflow};

const DASHBOARDS: [&str; 2] = ["grafana/limits.json", "grafana/workflows.json"];

/// A limit that only shows what it would refuse.
const SHADOW: &str = "\
domain: shop
descriptors:
  - {key: user, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 1}}
";

fn dashboard(path: &str) -> Value {
    serde_json::from_str(&std::fs::read_to_string(deploy(path)).unwrap()).unwrap()
}

/// Every text under `field`, at any depth.
fn collect(value: &Value, field: &str, found: &mut Vec<String>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| collect(item, field, found)),
        Value::Object(fields) => fields.iter().for_each(|(name, value)| match value {
            Value::String(text) if name == field => found.push(text.clone()),
            _ => collect(value, field, found),
        }),
        _ => {}
    }
}

fn texts(value: &Value, field: &str) -> Vec<String> {
    let mut found = Vec::new();
    collect(value, field, &mut found);
    found
}

/// The metrics that expressions name, and beginnings of names where they name a pattern.
fn metrics(expressions: &[String]) -> BTreeSet<&str> {
    let words = expressions.iter().flat_map(|text| {
        text.split(|letter: char| {
            !(letter.is_ascii_alphanumeric() || letter == '_' || letter == ':')
        })
    });
    let ours = ["ratelimit_", "tidegate_", "process_", "runtime_", "certs_"];
    words
        .filter(|word| ours.iter().any(|start| word.starts_with(start)))
        .collect()
}

/// A server with everything that most have not: memcached, TLS, statsd, a management server. None of its peers is there.
fn unusual() -> (Server, tempfile::TempDir) {
    let certificates = certificates(&["localhost"]);
    let path = |name: &str| certificates.path().join(name).to_str().unwrap().to_owned();
    let (certificate, key) = (path("tls.crt"), path("tls.key"));
    let server = Server::start_bare(&[
        ("BACKEND_TYPE", "memcache"),
        ("MEMCACHE_HOST_PORT", "127.0.0.1:1"),
        ("GRPC_SERVER_USE_TLS", "true"),
        ("GRPC_SERVER_TLS_CERT", &certificate),
        ("GRPC_SERVER_TLS_KEY", &key),
        ("USE_STATSD", "true"),
        ("STATSD_HOST", "127.0.0.1"),
        ("STATSD_PORT", "1"),
        ("CONFIG_TYPE", "GRPC_XDS_SOTW"),
        ("CONFIG_GRPC_XDS_SERVER_URL", "127.0.0.1:1"),
        ("FORCE_START_WITHOUT_INITIAL_CONFIG", "true"),
    ]);
    (server, certificates)
}

/// Pages of a server in memory and of one with Redis, each after some work, and of one with all else.
async fn pages() -> String {
    let (unusual, _certificates) = tokio::task::spawn_blocking(unusual).await.unwrap();
    let others = tokio::task::block_in_place(|| {
        let page = || get(unusual.debug(), "/metrics").body;
        // Certificates are looked at beside the start.
        await_that("certificates are looked at", || {
            page().contains("tidegate_certificates_seconds_left")
        });
        page()
    });
    let start = || {
        let (redis, limits) = (redis(), Limits::new(SHADOW));
        let settings = [
            ("RUNTIME_ROOT", limits.root()),
            ("LOCAL_CACHE_SIZE_IN_BYTES", "65536"),
        ];
        (Flows::start(&settings), Flows::on(&redis), redis, limits)
    };
    let (memory, with_redis, _redis, _limits) = tokio::task::spawn_blocking(start).await.unwrap();
    let channel = memory.server.channel().await;
    for domain in ["shop", "shop", "unknown"] {
        ask(&channel, request(domain, &[&[("user", "ada")]]))
            .await
            .unwrap();
    }
    tokio::task::block_in_place(|| {
        memory.create(workflow("w", "a"));
        memory.succeed(&memory.claim(1)[0], Value::Null);
        let page = |flows: &Flows| get(flows.server.debug(), "/metrics").body;
        await_that("queues are shown", || {
            page(&memory).contains("tidegate_queue_oldest_ready_seconds")
        });
        page(&memory) + &page(&with_redis) + &others
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn every_metric_of_dashboards_and_rules_exists() {
    let page = pages().await;
    let families: BTreeSet<&str> = page
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next())
        .collect();
    let exists = |metric: &str| {
        let family = ["_bucket", "_count", "_sum"]
            .iter()
            .find_map(|suffix| metric.strip_suffix(suffix));
        let is_start =
            metric.ends_with('_') && families.iter().any(|family| family.starts_with(metric));
        families.contains(metric)
            || family.is_some_and(|family| families.contains(family))
            || is_start
    };
    let rules = yaml(&deploy("prometheus/rules.yaml"));
    let mut expressions = texts(&rules[0], "expr");
    for board in DASHBOARDS.map(dashboard) {
        expressions.extend(texts(&board, "expr"));
        expressions.extend(texts(&board, "definition"));
    }
    let metrics = metrics(&expressions);
    assert!(metrics.len() > 50, "{metrics:?}");
    let absent: Vec<_> = metrics.iter().filter(|metric| !exists(metric)).collect();
    assert!(
        absent.is_empty(),
        "no server shows {absent:?}; they show {families:?}"
    );
}

#[test]
fn promtool_accepts_the_rules_and_each_alert_fires() {
    let folder = deploy("prometheus");
    succeed(
        peer("promtool")
            .current_dir(&folder)
            .args(["check", "rules", "rules.yaml"]),
    );
    succeed(
        peer("promtool")
            .current_dir(&folder)
            .args(["test", "rules", "rules_test.yaml"]),
    );
    let (rules, tests) = (
        yaml(&folder.join("rules.yaml")),
        std::fs::read_to_string(folder.join("rules_test.yaml")).unwrap(),
    );
    let advice = std::fs::read_to_string(repository().join("docs/operations.md")).unwrap();
    for alert in texts(&rules[0], "alert") {
        assert!(
            advice.contains(&format!("`{alert}`")),
            "docs/operations.md does not say what to do about {alert}"
        );
        assert!(
            tests.contains(&format!("alertname=\"{alert}\"")),
            "no test lets {alert} fire"
        );
    }
}

/// Panels that lie over each other, or that share an id, are not shown.
#[test]
fn panels_have_places_and_ids_of_their_own() {
    for path in DASHBOARDS {
        let board = dashboard(path);
        let panels = board["panels"].as_array().unwrap();
        let mut taken = BTreeSet::new();
        for panel in panels {
            let place = |side: &str| panel["gridPos"][side].as_u64().unwrap();
            assert!(place("x") + place("w") <= 24, "{path}: {panel}");
            for cell in (place("x")..place("x") + place("w"))
                .flat_map(|x| (place("y")..place("y") + place("h")).map(move |y| (x, y)))
            {
                assert!(
                    taken.insert(cell),
                    "{path}: {} lies over another panel",
                    panel["title"]
                );
            }
        }
        let ids: BTreeSet<u64> = panels
            .iter()
            .map(|panel| panel["id"].as_u64().unwrap())
            .collect();
        assert_eq!(ids.len(), panels.len(), "{path}");
        assert!(
            texts(&board, "uid")
                .iter()
                .all(|uid| uid == "${datasource}" || uid.starts_with("tidegate-")),
            "{path}"
        );
    }
}
