//! Workers: claim, report, extend, wait.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{Flows, on_each_store, redis, workflow};
use crate::support::await_that;

fn names(jobs: &Value) -> Vec<&str> {
    let mut names: Vec<&str> = jobs
        .as_array()
        .unwrap()
        .iter()
        .map(|job| job["job"].as_str().unwrap())
        .collect();
    names.sort_unstable();
    names
}

#[test]
fn a_diamond_runs_to_its_end_and_is_handed_over() {
    on_each_store(|flows| {
        let mut body = workflow("diamond", "d<b,c b<a c<a a");
        body["globals"] = json!({"region": "eu", "size": 1});
        body["jobs"][3]["params"] = json!({"size": 2});
        let id = flows.create(body);
        let first = flows.claim(9);
        assert_eq!(
            (first.len(), &first[0]["job"], &first[0]["attempt"]),
            (1, &json!("a"), &json!(1))
        );
        assert_eq!(first[0]["params"], json!({"region": "eu", "size": 2}));
        assert_eq!(
            (&first[0]["workflow_id"], &first[0]["workflow_name"]),
            (&json!(id), &json!("diamond"))
        );
        let claim = json!({"queues": ["default"], "worker": "w", "limit": 9});
        let report = |job: &Value, output: Value| json!({"lease": job["lease"], "outcome": "succeeded", "output": output});
        let both = json!({"reports": [report(&first[0], json!([1]))], "claim": claim});
        let answer = flows.post("/v1/jobs/report", both);
        assert_eq!(
            answer["reports"],
            json!([{"status": 200, "job_state": "succeeded", "workflow_status": "running", "already": false}])
        );
        assert_eq!(names(&answer["jobs"]), ["b", "c"]);
        let second = answer["jobs"].as_array().unwrap();
        assert_eq!(
            second[0]["inputs"],
            json!([{"job": "a", "handler": "Handler", "output": [1]}])
        );
        let reports: Vec<Value> = second.iter().map(|job| report(job, Value::Null)).collect();
        let answer = flows.post(
            "/v1/jobs/report",
            json!({"reports": reports, "claim": claim}),
        );
        assert_eq!(
            (names(&answer["jobs"]), &answer["jobs"][0]["inputs"]),
            (vec!["d"], &json!([]))
        );
        let last = &answer["jobs"][0];
        assert_eq!(
            flows.succeed(last, json!("end"))["workflow_status"],
            "succeeded"
        );
        assert_eq!(flows.succeed(last, json!("end"))["already"], true);
        let shown = flows.get(&format!("/v1/workflows/{id}?view=full"));
        assert_eq!(
            (&shown["status"], &shown["job_counts"]["succeeded"]),
            (&json!("succeeded"), &json!(4))
        );
        assert_eq!(shown["jobs"][0]["output"], "end");
        assert!(
            shown["finished_at"].is_string() && shown["expires_at"].is_string(),
            "{shown}"
        );
    });
}

#[test]
fn json_text_passes_through_untouched() {
    let flows = Flows::start(&[]);
    let body = r#"{"name":"n","jobs":[{"handler":"a","params":{"x": 1.10, "big":123456789012345678901234567890,"x2":"\u00e9"}},{"handler":"b","after":"a"}]}"#;
    assert_eq!(flows.ask("POST", "/v1/workflows", &[], body).status, 201);
    let claim = r#"{"queues":["default"],"worker":"w"}"#;
    let claimed = flows.ask("POST", "/v1/jobs/claim", &[], claim).body;
    assert!(
        claimed.contains(
            r#""params":{"x": 1.10, "big":123456789012345678901234567890,"x2":"\u00e9"}"#
        ),
        "{claimed}"
    );
    let lease = serde_json::from_str::<Value>(&claimed).unwrap()["jobs"][0]["lease"].clone();
    let report = format!(
        r#"{{"reports":[{{"lease":{lease},"outcome":"succeeded","output": [1e400, 0.10]}}],"claim":{claim}}}"#
    );
    let answer = flows.ask("POST", "/v1/jobs/report", &[], &report).body;
    assert!(answer.contains(r#""output":[1e400, 0.10]"#), "{answer}");
}

#[test]
fn a_waiting_worker_has_the_job_as_soon_as_it_is_there() {
    on_each_store(|flows| {
        flows.create(workflow("first", "a"));
        assert_eq!(flows.claim(1).len(), 1, "now the queue is known");
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                let claim = json!({"queues": ["other", "default"], "worker": "w", "wait": "20s"});
                flows.post("/v1/jobs/claim", claim)
            });
            await_that("the worker waits", || {
                waiting_workers(flows, "default") == 1
            });
            let asked = Instant::now();
            let id = flows.create(workflow("second", "a"));
            let claimed = waiting.join().unwrap();
            assert_eq!(claimed["jobs"][0]["workflow_id"], json!(id), "{claimed}");
            assert!(
                asked.elapsed() < Duration::from_secs(5),
                "{:?}",
                asked.elapsed()
            );
        });
    });
}

fn waiting_workers(flows: &Flows, queue: &str) -> u64 {
    let queues = flows.get("/v1/queues");
    let queue = queues["items"]
        .as_array()
        .unwrap()
        .iter()
        .find(|item| item["name"] == queue);
    queue.map_or(0, |queue| queue["waiting_workers"].as_u64().unwrap())
}

#[test]
fn what_one_server_creates_a_worker_of_another_gets() {
    let redis = redis();
    let (one, other) = (&Flows::on(&redis), &Flows::on(&redis));
    std::thread::scope(|scope| {
        let claim = json!({"queues": ["default"], "worker": "w", "wait": "20s"});
        let waiting = scope.spawn(|| other.post("/v1/jobs/claim", claim));
        let id = one.create(workflow("far", "a"));
        let claimed = waiting.join().unwrap();
        assert_eq!(claimed["jobs"][0]["workflow_id"], json!(id));
        // The end is told by the server that did not take the report, too.
        let path = format!("/v1/workflows/{id}?wait=20s");
        let shown = scope.spawn(move || one.get(&path));
        assert_eq!(
            other.succeed(&claimed["jobs"][0], Value::Null)["workflow_status"],
            "succeeded"
        );
        assert_eq!(shown.join().unwrap()["status"], "succeeded");
    });
}

#[test]
fn failures_are_kept_and_tried_again() {
    on_each_store(|flows| {
        let mut body = workflow("shaky", "a");
        body["jobs"][0]["retries"] = json!(2);
        let id = flows.create(body);
        let job = flows.claim(1).pop().unwrap();
        let error = json!({"kind": "IOError", "message": "gone", "trace": "x".repeat(20_000)});
        let report = json!({"lease": job["lease"], "outcome": "failed", "error": error, "retry_after": "1ms"});
        let answer = flows.post("/v1/jobs/report", json!({"reports": [report]}));
        assert_eq!(answer["reports"][0]["job_state"], "scheduled", "{answer}");
        let claim = json!({"queues": ["default"], "worker": "v", "wait": "10s"});
        let again = flows.post("/v1/jobs/claim", claim)["jobs"][0].clone();
        assert_eq!(again["attempt"], 2, "{again}");
        assert_eq!(flows.fail(&again)["workflow_status"], "failed");
        let shown = flows.get(&format!("/v1/workflows/{id}/jobs/a"));
        let errors = shown["errors"].as_array().unwrap();
        assert_eq!(errors.len(), 2, "{shown}");
        assert_eq!(
            (&errors[0]["kind"], &errors[1]["worker"]),
            (&json!("IOError"), &json!("v"))
        );
        assert_eq!(errors[0]["trace"].as_str().unwrap().len(), 16 * 1024);
    });
}

#[test]
fn a_job_given_back_is_ready_again_and_a_lease_can_be_extended() {
    let flows = Flows::start(&[]);
    flows.create(workflow("w", "a"));
    let job = flows.claim(1).pop().unwrap();
    let extend = json!({"leases": [job["lease"], "nonsense"], "lease": "10m"});
    let extended = flows.post("/v1/jobs/extend", extend);
    let until = extended["leases"][0]["lease_expires_at"].as_str().unwrap();
    assert!(
        until > job["lease_expires_at"].as_str().unwrap(),
        "{extended}"
    );
    assert_eq!(extended["leases"][1]["error"]["path"], "leases[1]");
    assert_eq!(
        (
            &extended["leases"][0]["status"],
            &extended["leases"][1]["status"]
        ),
        (&json!(200), &json!(422))
    );
    let report = json!({"lease": job["lease"], "outcome": "given_back"});
    let answer = flows.post("/v1/jobs/report", json!({"reports": [report]}));
    assert_eq!(answer["reports"][0]["job_state"], "ready", "{answer}");
    let extend = || {
        flows.post("/v1/jobs/extend", json!({"leases": [job["lease"]]}))["leases"][0]["error"]
            .clone()
    };
    assert_eq!(extend()["reason"], "reported");
    let again = flows.claim(1).pop().unwrap();
    assert_eq!(again["attempt"], 1, "no attempt was counted");
    assert_eq!((&job["fence"], &again["fence"]), (&json!(1), &json!(2)));
    let lost = extend();
    assert_eq!(
        (&lost["code"], &lost["reason"]),
        (&json!("lease_lost"), &json!("taken_over")),
        "{lost}"
    );
}

#[test]
fn a_job_that_runs_after_failures_gets_them() {
    let flows = Flows::start(&[]);
    let mut body = workflow("w", "a b c<b d<a,b,c");
    body["jobs"][3]["rule"] = json!("all_done");
    flows.create(body);
    let first = flows.claim(9);
    let of = |name: &str| first.iter().find(|job| job["job"] == name).unwrap();
    flows.succeed(of("a"), json!([1]));
    let error = json!({"kind": "IOError", "message": "gone", "trace": "somewhere"});
    let report = json!({"lease": of("b")["lease"], "outcome": "failed", "error": error});
    flows.post("/v1/jobs/report", json!({"reports": [report]}));
    let inputs = flows.claim(1)[0]["inputs"].clone();
    let handler = &of("a")["handler"];
    let expected = json!([
        {"job": "a", "handler": handler, "output": [1], "state": "succeeded"},
        {"job": "b", "handler": handler, "output": null, "state": "failed", "error": {"kind": "IOError", "message": "gone"}},
        {"job": "c", "handler": handler, "output": null, "state": "blocked"},
    ]);
    assert_eq!(inputs, expected);
}

#[test]
fn a_worker_that_leaves_takes_no_job_with_it() {
    let flows = Flows::start(&[]);
    let id = flows.create(workflow("w", "a"));
    flows.post(&format!("/v1/workflows/{id}:pause"), json!({}));
    assert_eq!(waiting_workers(&flows, "default"), 0);
    let api = flows.api();
    let body = r#"{"queues":["default"],"worker":"gone","wait":"60s"}"#;
    let head = format!(
        "POST /v1/jobs/claim HTTP/1.1\r\nhost: {api}\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let next = format!("GET /v1/queues HTTP/1.1\r\nhost: {api}\r\n\r\n");
    // It asks and hangs up, whatever it sent behind its request, and whether at once or later.
    for (together, later) in [
        ("", ""),
        ("\r\n", ""),
        (&next[..], ""),
        ("", &next[..]),
        ("\r\n", &next[..]),
    ] {
        let mut stream = std::net::TcpStream::connect(api).unwrap();
        std::io::Write::write_all(&mut stream, format!("{head}{together}").as_bytes()).unwrap();
        await_that("it waits", || waiting_workers(&flows, "default") == 1);
        std::io::Write::write_all(&mut stream, later.as_bytes()).unwrap();
        drop(stream);
        await_that("it has left", || waiting_workers(&flows, "default") == 0);
    }
    flows.post(&format!("/v1/workflows/{id}:resume"), json!({}));
    assert_eq!(flows.claim(1).len(), 1);
}
