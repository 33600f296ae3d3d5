//! What is refused, and in which words.

mod definitions;
mod items;
mod workers;

use serde_json::{Value, json};

use crate::support::{Flows, MAX_BODY, problem, workflow};

/// Sends a request, METHOD PATH, whose answer must be a problem: its status, its code and, if it has one, its place.
#[track_caller]
fn check(flows: &Flows, request: &str, body: &str, expected: &str) {
    let (method, path) = request.split_once(' ').unwrap();
    let answer = flows.ask(method, path, &[], body);
    let problem = problem(&answer);
    let code = problem["code"].as_str().unwrap();
    let place = problem["path"].as_str().map(|place| format!(" '{place}'"));
    let found = format!("{} {code}{}", answer.status, place.unwrap_or_default());
    assert_eq!(found, expected, "{request} {body}");
}

const NOBODY: &str = "01M7Z85C8H08RJZ5Q5JGPKMY04";

#[test]
fn what_is_not_there_is_named() {
    let flows = Flows::start();
    let id = flows.create(workflow("w", "a"));
    let none = format!("/v1/workflows/{NOBODY}");
    for request in [
        format!("GET {none}"),
        format!("GET {none}?wait=1s"),
        format!("DELETE {none}"),
        format!("POST {none}:cancel"),
        format!("GET {none}/jobs"),
        format!("GET {none}/graph.svg"),
        format!("GET {none}/events"),
        "GET /v1/workflows/short".to_owned(),
        "GET /v1/workflows:byKey?key=never".to_owned(),
    ] {
        check(&flows, &request, "", "404 workflow_not_found");
    }
    check(
        &flows,
        &format!("GET /v1/workflows/{id}/jobs/b"),
        "",
        "404 job_not_found",
    );
    check(
        &flows,
        &format!("POST /v1/workflows/{id}/jobs/b:skip"),
        "",
        "404 job_not_found",
    );
    check(
        &flows,
        "POST /v1/queues/none:resume",
        "",
        "404 queue_not_found",
    );
    check(&flows, "GET /v1/nothing", "", "404 not_found");
    let put = flows.ask("PUT", "/v1/workflows", &[], "");
    assert_eq!(problem(&put)["code"], "method_not_allowed");
    assert_eq!(put.header("allow"), Some("POST, GET"));
}

/// Names of parameters, and paths in which they are refused.
const PARAMETERS: &str = "\
limit /v1/workflows?limit=0
limit /v1/workflows?limit=1001
offset /v1/workflows?offset=3
status /v1/workflows?status=done
created_after /v1/workflows?created_after=yesterday
created_after /v1/workflows?created_after=2026-02-30T00:00:00Z
order /v1/workflows?order=up
name /v1/workflows?name=a&name=b
by /v1/workflows:count?by=tag
view /v1/workflows/{id}?view=all
id_prefix /v1/workflows?id_prefix=01M
id_prefix /v1/workflows?id_prefix=order
verbose /v1/version?verbose=1
format /v1/openapi.json?format=yaml
limit /v1/queues?limit=1001
offset /v1/queues?offset=1
from /v1/workflows/{id}/events?from=1
key /v1/workflows:byKey
wait /v1/workflows/{id}?wait=2h
wait /v1/workflows/{id}?wait=5
state /v1/workflows/{id}/jobs?state=lost
width /v1/workflows/{id}/graph.txt?width=3";

#[test]
fn parameters_are_refused_by_name() {
    let flows = Flows::start();
    let id = flows.create(workflow("w", "a"));
    for case in PARAMETERS.lines() {
        let (name, path) = case.split_once(' ').unwrap();
        let request = format!("GET {}", path.replace("{id}", &id));
        check(&flows, &request, "", &format!("422 invalid_field '{name}'"));
    }
    let jobs = format!("GET /v1/workflows/{id}/jobs?cursor=x");
    check(
        &flows,
        "GET /v1/workflows?cursor=x",
        "",
        "400 invalid_cursor",
    );
    check(&flows, &jobs, "", "400 invalid_cursor");
}

#[test]
fn a_dry_run_is_refused_where_there_is_none() {
    let flows = Flows::start();
    let id = flows.create(workflow("w", "a"));
    for request in [
        format!("DELETE /v1/workflows/{id}?dry_run=true"),
        format!("POST /v1/workflows/{id}:cancel?dry_run=true"),
        format!("POST /v1/workflows/{id}/jobs/a:skip?dry_run=true"),
        "POST /v1/workflows:bulk?dry_run=true".to_owned(),
        "POST /v1/jobs/claim?dry_run=true".to_owned(),
    ] {
        check(&flows, &request, "", "422 invalid_field 'dry_run'");
    }
    let status = &flows.get(&format!("/v1/workflows/{id}"))["status"];
    assert_eq!(status, "running", "nothing was done");
}

#[test]
fn states_that_do_not_allow_it_are_conflicts() {
    let flows = Flows::start();
    let id = flows.create(workflow("w", "a"));
    check(
        &flows,
        &format!("POST /v1/workflows/{id}:start"),
        "",
        "409 already_started",
    );
    check(
        &flows,
        &format!("POST /v1/workflows/{id}:pause"),
        "{\"for\":1}",
        "422 invalid_field 'for'",
    );
    check(
        &flows,
        &format!("DELETE /v1/workflows/{id}"),
        "",
        "409 state_conflict",
    );
    check(
        &flows,
        &format!("POST /v1/workflows/{id}/jobs/a:retry"),
        "",
        "409 state_conflict",
    );
    let late = flows.claim();
    flows.post(&format!("/v1/workflows/{id}:cancel"), json!({}));
    assert_eq!(
        flows.succeed(&late, Value::Null)["error"]["code"],
        "lease_lost"
    );
    check(
        &flows,
        &format!("POST /v1/workflows/{id}:pause"),
        "",
        "409 state_conflict",
    );
}

#[test]
fn what_is_too_large_is_refused_before_it_is_kept() {
    let flows = Flows::start();
    let big = "x".repeat(MAX_BODY + 1);
    check(&flows, "POST /v1/workflows", &big, "413 payload_too_large");
    let mut body = workflow("w", "a");
    body["globals"] = json!({"g": "x".repeat(200_000)});
    let id = flows.create(body.clone());
    body["jobs"][0]["params"] = json!({"p": "x".repeat(70_000)});
    check(
        &flows,
        "POST /v1/workflows",
        &body.to_string(),
        "413 payload_too_large 'jobs[0].params'",
    );
    let job = flows.claim();
    let answer = flows.succeed(&job, json!("x".repeat(1024 * 1024)));
    assert_eq!(
        (&answer["error"]["code"], &answer["error"]["path"]),
        (&json!("payload_too_large"), &json!("reports[0].output"))
    );
    assert_eq!(
        flows.succeed(&job, json!("x".repeat(1024 * 1024 - 2)))["job_state"],
        "succeeded"
    );
    assert_eq!(
        flows.get(&format!("/v1/workflows/{id}"))["status"],
        "succeeded"
    );
    let many: Vec<Value> = (0..1_001).map(|_| workflow("w", "a")).collect();
    let many = json!({"workflows": many}).to_string();
    let expected = "413 payload_too_large 'workflows'";
    check(&flows, "POST /v1/workflows:batch", &many, expected);
}

#[test]
fn every_answer_has_the_id_of_its_request() {
    let flows = Flows::start();
    let id = flows.create(workflow("w", "a"));
    let taken = [("x-request-id", "order/17;try=2")];
    for (method, path, status) in [
        ("GET", "/v1/workflows".to_owned(), 200),
        ("GET", format!("/v1/workflows/{NOBODY}"), 404),
        ("GET", format!("/v1/workflows/{id}/graph.svg"), 200),
        ("GET", "/healthz".to_owned(), 200),
        ("GET", "/nothing".to_owned(), 404),
    ] {
        for (headers, wanted) in [
            (&taken[..], Some("order/17;try=2")),
            (&[("x-request-id", "a b")], None),
            (&[], None),
        ] {
            let answer = flows.ask(method, &path, headers, "");
            let found = answer.header("x-request-id").unwrap();
            assert_eq!(answer.status, status);
            assert!(
                wanted.map_or(found.len() == 16, |wanted| found == wanted),
                "{path}: {found}"
            );
            let problem: Value = serde_json::from_str(&answer.body).unwrap_or_default();
            assert_eq!(
                problem["request_id"].as_str(),
                (status == 404).then_some(found),
                "{path}"
            );
        }
    }
}

#[test]
fn an_unknown_action_is_not_a_wrong_method() {
    let flows = Flows::start();
    let id = flows.create(workflow("w", "a"));
    let answer = flows.ask("POST", &format!("/v1/workflows/{id}:nope"), &[], "");
    assert_eq!(problem(&answer)["code"], "not_found");
    assert!(
        answer
            .body
            .contains("there is no action :nope here; the actions are :start, :cancel,"),
        "{answer:?}"
    );
    check(
        &flows,
        &format!("POST /v1/workflows/{id}"),
        "",
        "405 method_not_allowed",
    );
}

#[test]
fn wrong_values_are_told_in_the_words_of_the_reader() {
    let flows = Flows::start();
    for (path, body, detail) in [
        (
            "/v1/workflows",
            r#"{"name":"w","jobs":[{"handler":"a","priority":300}]}"#,
            "invalid value: integer `300`, expected u8",
        ),
        (
            "/v1/workflows",
            r#"{"name":"w","jobs":{}}"#,
            "invalid type: map, expected a sequence",
        ),
        (
            "/v1/jobs/report",
            r#"{"reports":[{"lease":"x","outcome":"failed","error":"no"}]}"#,
            r#"invalid type: string "no", expected an object"#,
        ),
        (
            "/v1/jobs/report",
            r#"{"reports":[{"lease":"x","outcome":"succeded"}]}"#,
            "unknown variant `succeded`, expected one of `succeeded`, `failed`, `given_back`, `not_begun`, `throttled`, `crashed`",
        ),
        (
            "/v1/jobs/claim",
            "not",
            "the body is not JSON: expected ident at line 1 column 2",
        ),
    ] {
        let answer: Value = serde_json::from_str(&flows.ask("POST", path, &[], body).body).unwrap();
        // A report that cannot be read is told in its item.
        let problem = if path.ends_with("report") {
            &answer["reports"][0]["error"]
        } else {
            &answer
        };
        assert_eq!(problem["detail"], detail, "{body}");
    }
}
