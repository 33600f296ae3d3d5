//! Servers for tests: workflows in memory, and a clock that tests move. It is the clock of a process, so each has one of its own.

use serde_json::{Value, json};

use super::{Flows, ask, found, problem, workflow};
use crate::operate::process::Process;
use crate::support::{Limits, post as ask_json, variables};

const MEMORY: [(&str, &str); 2] = [
    ("TIDEGATE_HTTP_ADDR", "127.0.0.1:0"),
    ("TIDEGATE_STORE_URL", "memory"),
];
const CLOCK: (&str, &str) = ("TIDEGATE_TEST_CLOCK", "true");

struct Tested(Process);

impl Tested {
    fn start(more: &[(&str, &str)]) -> Self {
        Self(Process::start(&[&MEMORY[..], &[CLOCK], more].concat()))
    }

    #[track_caller]
    fn post(&self, path: &str, body: Value) -> Value {
        found(ask(
            self.0.address("API"),
            "POST",
            path,
            &[],
            &body.to_string(),
        ))
    }

    #[track_caller]
    fn advance(&self, by: Value) -> Value {
        self.post("/v1/test/clock:advance", by)
    }

    #[track_caller]
    fn create(&self, body: Value) -> String {
        self.post("/v1/workflows", body)["id"]
            .as_str()
            .unwrap()
            .to_owned()
    }

    /// The jobs that are there now.
    #[track_caller]
    fn claim(&self) -> Vec<Value> {
        let body = json!({"queues": ["default"], "worker": "w", "lease": "30s", "limit": 16});
        self.post("/v1/jobs/claim", body)["jobs"]
            .as_array()
            .unwrap()
            .clone()
    }

    #[track_caller]
    fn report(&self, job: &Value, outcome: Value) {
        let mut report = json!({"lease": job["lease"]});
        report
            .as_object_mut()
            .unwrap()
            .extend(outcome.as_object().unwrap().clone());
        assert_eq!(
            self.post("/v1/jobs/report", json!({"reports": [report]}))["reports"][0]["status"],
            200
        );
    }

    #[track_caller]
    fn shown(&self, id: &str) -> Value {
        found(ask(
            self.0.address("API"),
            "GET",
            &format!("/v1/workflows/{id}?view=jobs"),
            &[],
            "",
        ))
    }
}

fn one_job(more: Value) -> Value {
    let mut job = json!({"name": "a", "handler": "h"});
    job.as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    json!({"name": "w", "jobs": [job]})
}

#[test]
fn waits_and_retries_are_over_when_the_answer_comes() {
    let server = Tested::start(&[]);
    assert!(
        server
            .0
            .banner
            .contains("memory of this process, lost when it ends; tests move its clock")
    );
    let nothing = server.advance(json!({"to_next": true}));
    assert_eq!(
        (&nothing["advanced_ms"], &nothing["next"]),
        (&json!(0), &Value::Null)
    );

    let id = server.create(one_job(
        json!({"wait": "3h", "retries": 5, "backoff": "1h"}),
    ));
    assert!(server.claim().is_empty());
    for attempt in 1..=5 {
        let moved = server.advance(json!({"to_next": true}));
        let hours = moved["advanced_ms"].as_f64().unwrap() / 3_600_000.0;
        assert!(hours > if attempt == 1 { 2.9 } else { 0.3 }, "{moved}");
        let jobs = server.claim();
        assert_eq!((jobs.len(), &jobs[0]["attempt"]), (1, &json!(attempt)));
        let outcome = if attempt < 5 {
            json!({"outcome": "failed", "error": {"kind": "E", "message": "no"}})
        } else {
            json!({"outcome": "succeeded"})
        };
        server.report(&jobs[0], outcome);
    }
    assert_eq!(server.shown(&id)["status"], "succeeded");
    // What has ended is removed after its time; until then it is there.
    server.advance(json!({"by": "6d23h"}));
    server.shown(&id);
    server.advance(json!({"by": "2h"}));
    let gone = ask(
        server.0.address("API"),
        "GET",
        &format!("/v1/workflows/{id}"),
        &[],
        "",
    );
    assert_eq!(problem(&gone).1, "workflow_not_found");
}

#[test]
fn a_worker_that_waits_gets_what_became_ready() {
    let server = Tested::start(&[]);
    server.create(one_job(json!({"wait": "1d"})));
    let api = server.0.address("API");
    let waiting = std::thread::spawn(move || {
        let body = json!({"queues": ["default"], "worker": "w", "wait": "60s"});
        found(ask(api, "POST", "/v1/jobs/claim", &[], &body.to_string()))
    });
    let waits =
        || found(ask(api, "GET", "/v1/queues", &[], ""))["items"][0]["waiting_workers"] == 1;
    crate::support::await_that("the worker waits", waits);
    server.advance(json!({"to_next": true}));
    assert_eq!(waiting.join().unwrap()["jobs"].as_array().unwrap().len(), 1);
}

#[test]
fn leases_end_only_when_the_test_says_how_far_to_go() {
    let server = Tested::start(&[]);
    let running = server.create(one_job(json!({"timeout": "10m"})));
    let held = server.claim();
    let (late, other) = (server.create(one_job(json!({"wait": "20s"}))), 30_000);
    let moved = server.advance(json!({"to_next": true}));
    assert!(moved["advanced_ms"].as_u64().unwrap() <= 20_000, "{moved}");
    assert_eq!(
        moved["next"],
        Value::Null,
        "the lease is no moment to go to"
    );
    let jobs = server.claim();
    assert_eq!(jobs[0]["workflow_id"], late.as_str());
    server.report(&held[0], json!({"outcome": "succeeded"}));
    assert_eq!(server.shown(&running)["status"], "succeeded");

    let moved = server.advance(json!({"by": "31s"}));
    assert!(moved["advanced_ms"].as_u64().unwrap() > other);
    let refused = json!({"reports": [{"lease": jobs[0]["lease"], "outcome": "succeeded"}]});
    assert_eq!(
        server.post("/v1/jobs/report", refused)["reports"][0]["status"],
        409,
        "the lease is over"
    );
}

#[test]
fn windows_of_limits_turn_with_the_clock() {
    let limits = Limits::new(
        "domain: shop\ndescriptors:\n  - key: user\n    rate_limit: {unit: day, requests_per_unit: 1}\n",
    );
    let server = Tested::start(&[("RUNTIME_ROOT", limits.root())]);
    let units = json!([{"domain": "shop", "entries": [["user", "ada"]]}]);
    for _ in 0..2 {
        server.create(one_job(json!({"limits": units})));
    }
    for _ in 0..2 {
        let jobs = server.claim();
        assert_eq!(jobs.len(), 1, "one unit a day");
        server.report(&jobs[0], json!({"outcome": "succeeded"}));
        assert!(server.claim().is_empty());
        server.advance(json!({"to_next": true}));
    }
    let body = r#"{"domain":"shop","descriptors":[{"entries":[{"key":"user","value":"bob"}]}]}"#;
    let http = server.0.address("HTTP");
    let codes = || {
        [
            ask_json(http, "/json", body).status,
            ask_json(http, "/json", body).status,
        ]
    };
    assert_eq!(codes(), [200, 429]);
    server.advance(json!({"by": "24h"}));
    assert_eq!(codes(), [200, 429]);
}

#[test]
fn requests_without_sense_are_refused() {
    let server = Tested::start(&[]);
    for (body, code) in [
        (json!({}), "invalid_field"),
        (json!({"by": "1h", "to_next": true}), "invalid_field"),
        (json!({"by": "-1s"}), "invalid_field"),
        (json!({"by": "36501d"}), "invalid_field"),
        (json!({"hours": 1}), "invalid_field"),
    ] {
        let answer = ask(
            server.0.address("API"),
            "POST",
            "/v1/test/clock:advance",
            &[],
            &body.to_string(),
        );
        assert_eq!(
            (answer.status, problem(&answer).1.as_str()),
            (422, code),
            "{body}"
        );
    }
    let far = |_| {
        ask(
            server.0.address("API"),
            "POST",
            "/v1/test/clock:advance",
            &[],
            r#"{"by": "36500d"}"#,
        )
        .status
    };
    assert_eq!(
        (0..12).map(far).filter(|&status| status == 200).count(),
        10,
        "a thousand years"
    );
    server.create(workflow("w", "a"));
    assert_eq!(server.claim().len(), 1);
}

#[test]
fn without_the_setting_nobody_moves_the_clock() {
    for flows in [Flows::start(&[]), Flows::start(&MEMORY)] {
        let answer = flows.ask("POST", "/v1/test/clock:advance", &[], r#"{"by": "1h"}"#);
        assert_eq!(
            (answer.status, problem(&answer).1.as_str()),
            (404, "not_found")
        );
    }
}

#[test]
fn a_server_whose_state_others_share_has_no_test_clock() {
    let (http, memory) = MEMORY.into();
    for (settings, reason) in [
        (vec![http, CLOCK], "needs workflows in memory"),
        (
            vec![http, ("TIDEGATE_STORE_URL", "127.0.0.1:1"), CLOCK],
            "needs workflows in memory",
        ),
        (
            vec![http, memory, CLOCK, ("REDIS_URL", "127.0.0.1:1")],
            "needs counters in memory",
        ),
        (
            vec![
                http,
                memory,
                CLOCK,
                ("BACKEND_TYPE", "memcache"),
                ("MEMCACHE_HOST_PORT", "127.0.0.1:1"),
            ],
            "needs counters in memory",
        ),
        (
            vec![
                ("TIDEGATE_HTTP_ADDR", "0.0.0.0:0"),
                memory,
                CLOCK,
                ("TIDEGATE_ALLOW_ANONYMOUS", "true"),
            ],
            "needs an address of this machine alone",
        ),
    ] {
        let error =
            tidegate::settings::Settings::parse(&variables(&settings).into_iter().collect())
                .unwrap_err();
        let [problem] = &error.problems[..] else {
            panic!("{error}")
        };
        assert_eq!(problem.variable, CLOCK.0);
        assert!(problem.reason.contains(reason), "{problem:?}");
    }
}

#[test]
fn what_is_in_memory_is_looked_at_through_its_server() {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_tidegate"));
    let shown = command
        .env_clear()
        .envs(variables(&MEMORY))
        .args(["store", "info"])
        .output()
        .unwrap();
    assert_eq!(shown.status.code(), Some(64));
    assert!(
        String::from_utf8(shown.stderr)
            .unwrap()
            .contains("in the memory of the server")
    );
}
