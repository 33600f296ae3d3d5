//! Limits that are paused, scaled, checked and looked at over the API.

use serde_json::{Value, json};
use tidegate_pipeline::test_util::RedisServer;

use super::super::{Flows, found, problem, redis};
use super::{RULES, claimed, jobs, of, on_one_and_on_two, passes};
use crate::support::{Answer, Limits, await_that};

const PATH: &str = "/v1/limits/overrides";
const ACME: &str = "?domain=vendor&entries=%5B%5B%22tenant%22%2C%22acme%22%5D%5D";

fn put(flows: &Flows, body: &Value) -> Answer {
    flows.ask("PUT", PATH, &[], &body.to_string())
}

fn remove(flows: &Flows, query: &str) -> Answer {
    flows.ask("DELETE", &format!("{PATH}{query}"), &[], "")
}

/// What a request of a tenant would be answered, and the answer for its only descriptor.
fn checked(flows: &Flows, tenant: &str, hits: u32) -> (String, Value) {
    let descriptor = json!({"entries": [{"key": "tenant", "value": tenant}]});
    let body = json!({"domain": "vendor", "descriptors": [descriptor], "hits_addend": hits});
    let mut answer = flows.post("/v1/limits/check", body);
    (
        answer["code"].as_str().unwrap().to_owned(),
        answer["descriptors"][0].take(),
    )
}

fn is_open(flows: &Flows, tenant: &str) -> bool {
    checked(flows, tenant, 1).0 == "ok"
}

/// Three servers on one Redis.
fn three(limits: &Limits, redis: &RedisServer) -> [Flows; 3] {
    let url = redis.address().to_string();
    let settings = [
        ("RUNTIME_ROOT", limits.root()),
        ("REDIS_URL", url.as_str()),
        ("REDIS_SOCKET_TYPE", "tcp"),
    ];
    [(); 3].map(|()| Flows::start(&settings))
}

/// Claims at all servers until this many jobs of a tenant are claimed; returns all that were.
fn claim_all(servers: &[Flows], tenant: &str, jobs: usize) -> Vec<String> {
    let mut all = Vec::new();
    await_that("the jobs of the key are claimed", || {
        all.extend(servers.iter().flat_map(claimed));
        of(&all, tenant) == jobs
    });
    all
}

#[test]
fn a_key_that_is_paused_at_one_server_is_paused_at_all_until_it_is_resumed() {
    let (limits, redis) = (Limits::new(RULES), redis());
    let servers = three(&limits, &redis);
    let paused = json!({"domain": "vendor", "entries": [["tenant", "acme"]], "pause": true, "gateway": true, "for": "10m",
        "reason": "they are down"});
    let shown = found(put(&servers[0], &paused));
    let decided = json!([shown["effect"], shown["by"], shown["gateway"]]);
    assert_eq!(decided, json!(["paused", "anonymous", true]));
    let at_once = "it holds at once where it was decided";
    assert!(!passes(&servers[0], "tenant", "acme"), "{at_once}");
    await_that("all servers know", || {
        servers.iter().all(|flows| !is_open(flows, "acme"))
    });
    for flows in &servers {
        assert!(!passes(flows, "tenant", "acme") && passes(flows, "tenant", "bell"));
    }
    servers[0].create(jobs("tenant", "acme", 2));
    servers[1].create(jobs("tenant", "bell", 1));
    let mut all = claim_all(&servers, "bell", 1);
    all.extend(servers.iter().flat_map(claimed));
    assert_eq!(of(&all, "acme"), 0);

    servers.into_iter().for_each(|flows| flows.server.stop());
    let servers = three(&limits, &redis);
    for flows in &servers {
        assert_eq!(flows.get(PATH), json!({"items": [shown], "unreadable": 0}));
        let first = "what was paused stays so from the first request on";
        assert!(!passes(flows, "tenant", "acme"), "{first}");
    }
    assert_eq!(servers.iter().flat_map(claimed).count(), 0);
    assert_eq!(remove(&servers[2], ACME).status, 204);
    assert!(is_open(&servers[2], "acme"));
    await_that("all servers know", || {
        servers.iter().all(|flows| is_open(flows, "acme"))
    });
    claim_all(&servers, "acme", 2);
    assert_eq!(problem(&remove(&servers[2], ACME)).1, "override_not_found");
    assert_eq!(servers[0].get(PATH)["items"], json!([]));
}

#[test]
fn a_pause_is_for_jobs_alone_unless_it_says_more() {
    let limits = Limits::new(RULES);
    let flows = Flows::start(&[("RUNTIME_ROOT", limits.root())]);
    assert_eq!(
        put(&flows, &json!({"rule": "vendor.tenant", "pause": true})).status,
        200
    );
    flows.create(jobs("tenant", "acme", 1));
    flows.create(jobs("fast", "bell", 1));
    let mut all = Vec::new();
    await_that("the job of the other limit is claimed", || {
        all.extend(claimed(&flows));
        of(&all, "bell") == 1
    });
    all.extend(claimed(&flows));
    assert_eq!(of(&all, "acme"), 0);
    assert!(passes(&flows, "tenant", "acme"));
    // Each kind is replaced and removed for itself.
    assert_eq!(
        put(&flows, &json!({"rule": "vendor.tenant", "scale": 0.5})).status,
        200
    );
    assert_eq!(flows.get(PATH)["items"].as_array().unwrap().len(), 2);
    let (code, status) = checked(&flows, "acme", 5);
    assert_eq!(
        (&*code, &status["limit"]["requests_per_unit"]),
        ("over_limit", &json!(5)),
        "one of five is taken"
    );
    assert_eq!(
        remove(&flows, "?rule=vendor.tenant&effect=scaled").status,
        204
    );
    assert_eq!(
        checked(&flows, "acme", 5).1["limit"]["requests_per_unit"],
        10
    );
    assert_eq!(remove(&flows, "?rule=vendor.tenant").status, 204);
    await_that("the job is claimed", || of(&claimed(&flows), "acme") == 1);
}

#[test]
fn a_check_charges_nothing_and_says_what_is_left() {
    on_one_and_on_two(|servers| {
        let flows = servers.last().unwrap();
        for _ in 0..30 {
            assert!(is_open(flows, "carol"));
        }
        assert!(passes(&servers[0], "tenant", "carol"));
        let (code, status) = checked(flows, "carol", 3);
        assert_eq!((&*code, &status["remaining"]), ("ok", &json!(6)));
        assert_eq!(
            status["limit"],
            json!({"name": "", "requests_per_unit": 10, "unit": "hour"})
        );
        assert!(
            (1_000..=3_600_000).contains(&status["reset_ms"].as_u64().unwrap()),
            "{status}"
        );
        assert_eq!(checked(flows, "carol", 10).0, "over_limit");
        for _ in 1..10 {
            assert!(passes(flows, "tenant", "carol"), "nine are left");
        }
        assert_eq!(checked(flows, "carol", 1).0, "over_limit");
        let status = checked(flows, "carol", 1).1;
        let place = json!([
            status["rule"],
            status["file"],
            status["line"],
            status["used"]
        ]);
        let expected = json!(["vendor.tenant", "config/limits.yaml", 3, 10]);
        assert_eq!(place, expected, "{status}");
        let unknown = json!({"domain": "vendor", "descriptors": [{"entries": [{"key": "other", "value": "x"}]}]});
        let answer = flows.post("/v1/limits/check", unknown);
        assert_eq!(
            (&answer["code"], &answer["descriptors"][0]["limit"]),
            (&json!("ok"), &Value::Null)
        );
    });
}

#[test]
fn a_check_says_what_is_paused_and_what_may_be_meant() {
    let limits = Limits::new(RULES);
    let flows = Flows::start(&[("RUNTIME_ROOT", limits.root())]);
    let pauses = [
        json!({"rule": "vendor.tenant", "pause": true, "reason": "all"}),
        json!({"domain": "vendor", "entries": [["tenant", "acme"]], "pause": true, "gateway": true, "reason": "one"}),
    ];
    for pause in &pauses {
        found(put(&flows, pause));
    }
    for (tenant, code, reason) in [("acme", "over_limit", "one"), ("bell", "ok", "all")] {
        let (answered, status) = checked(&flows, tenant, 1);
        let paused = &status["paused"];
        let shown = json!([answered, paused["reason"], paused["by"], paused["until"]]);
        assert_eq!(shown, json!([code, reason, "anonymous", null]), "{status}");
    }
    let hint = |domain: &str, key: &str| {
        let descriptor = json!({"entries": [{"key": key, "value": "x"}]});
        let body = json!({"domain": domain, "descriptors": vec![descriptor; 70]});
        let answer = flows.post("/v1/limits/check", body);
        assert_eq!(answer["descriptors"].as_array().unwrap().len(), 70);
        assert_eq!(answer["descriptors"][8]["hint"], Value::Null);
        answer["descriptors"][0]["hint"].clone()
    };
    assert_eq!(
        hint("vendr", "tenant"),
        "no domain 'vendr'; did you mean 'vendor'?"
    );
    assert_eq!(
        hint("vendor", "tenat"),
        "no key 'tenat' here; did you mean 'tenant'?"
    );
    assert_eq!(hint("vendor", "tenant"), Value::Null);
}

#[test]
fn the_top_names_what_was_granted_and_what_was_refused() {
    let limits = Limits::new(RULES);
    let flows = Flows::start(&[("RUNTIME_ROOT", limits.root())]);
    flows.create(jobs("tenant", "acme", 12));
    let mut all = Vec::new();
    await_that("all units of the key are taken", || {
        all.extend(claimed(&flows));
        of(&all, "acme") == 10
    });
    assert!(!passes(&flows, "tenant", "acme"));
    let key = json!([["tenant", "acme"]]);
    await_that("both callers were refused", || {
        all.extend(claimed(&flows));
        let top = flows.get("/v1/limits/top");
        let refused = |caller: &str| {
            let refusals = top["refusals"].as_array().unwrap();
            refusals.iter().any(|refusal| {
                refusal["caller"] == caller
                    && refusal["entries"] == key
                    && refusal["domain"] == "vendor"
            })
        };
        let hits = top["keys"]
            .as_array()
            .unwrap()
            .iter()
            .find(|each| each["entries"] == key);
        refused("request")
            && refused("job")
            && hits.is_some_and(|each| {
                let rate = each["hits_per_second"].as_f64().unwrap();
                let is_sum = each["hits"].as_u64().unwrap() >= 10;
                is_sum && rate > 0.0 && each["rule"] == "vendor.tenant"
            })
            && (1..=120_000).contains(&top["window_ms"].as_u64().unwrap())
    });
    assert_eq!(all.len(), 10);
}

const TOKEN: (&str, &str) = ("authorization", "Bearer a-secret");

/// A server that knows the token of ada.
fn guarded(limits: &Limits) -> (tempfile::NamedTempFile, Flows) {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "admin ada a-secret\n").unwrap();
    let flows = Flows::start(&[
        ("RUNTIME_ROOT", limits.root()),
        ("TIDEGATE_TOKENS_FILE", file.path().to_str().unwrap()),
    ]);
    (file, flows)
}

#[test]
fn who_decided_is_told() {
    let limits = Limits::new(RULES);
    let (_file, flows) = guarded(&limits);
    let pause = json!({"rule": "vendor.fast", "pause": true, "reason": "why"});
    let shown = found(flows.ask("PUT", PATH, &[TOKEN], &pause.to_string()));
    let decided = json!([shown["by"], shown["until"], shown["reason"]]);
    assert_eq!(decided, json!(["ada", null, "why"]));
    let listed = found(flows.ask("GET", PATH, &[TOKEN], ""));
    assert_eq!(listed["items"], json!([shown]));
}

#[test]
fn a_wrong_override_is_refused_with_its_place() {
    let limits = Limits::new(RULES);
    let (_file, flows) = guarded(&limits);
    let check = |request: &str, body: &Value, expected: Value| {
        let (method, path) = request.split_once(' ').unwrap();
        let body = if body.is_null() {
            String::new()
        } else {
            body.to_string()
        };
        let (status, code, place) = problem(&flows.ask(method, path, &[TOKEN], &body));
        assert_eq!(json!([status, code, place]), expected, "{request} {body}");
    };
    let put = format!("PUT {PATH}");
    let unknown = json!({"rule": "vendor.nope", "pause": true});
    check(&put, &unknown, json!([422, "invalid_field", "rule"]));
    let long = json!({"rule": "vendor.fast", "pause": true, "reason": "x".repeat(1_024)});
    check(&put, &long, json!([422, "invalid_field", ""]));
    let nothing = json!({"pause": true});
    check(&put, &nothing, json!([422, "invalid_field", ""]));
    let large = json!({"reason": "x".repeat(64 * 1024)});
    check(&put, &large, json!([413, "payload_too_large", null]));
    for (domain, place) in [("", "domain"), ("d", "descriptors")] {
        let body = json!({"domain": domain, "descriptors": []});
        let expected = json!([422, "invalid_field", place]);
        check("POST /v1/limits/check", &body, expected);
    }
    for (query, expected) in [
        ("", json!([422, "invalid_field", ""])),
        (
            "?rule=a&effect=nope",
            json!([422, "invalid_field", "effect"]),
        ),
        (
            "?domain=a&entries=x",
            json!([422, "invalid_field", "entries"]),
        ),
        ("?rule=a&more=1", json!([422, "invalid_field", "more"])),
        ("?rule=a", json!([404, "override_not_found", null])),
    ] {
        check(&format!("DELETE {PATH}{query}"), &Value::Null, expected);
    }
}
