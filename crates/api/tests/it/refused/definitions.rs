//! Definitions that are refused, with the place of the mistake.

use serde_json::{Value, json};

use super::check;
use crate::support::{Flows, workflow};

/// Code, place and body of definitions that are refused.
const DEFINITIONS: &str = r#"invalid_field '' []
invalid_field 'name' {}
invalid_field 'name' {"name":"w","name":"w","jobs":[]}
invalid_definition 'jobs' {"name":"w","jobs":[]}
invalid_field 'jobs[0].handler' {"name":"w","jobs":[{}]}
invalid_definition 'jobs[0].name' {"name":"w","jobs":[{"handler":""}]}
invalid_field 'job' {"name":"w","job":[]}
invalid_field 'start' {"name":"w","jobs":[{"handler":"a"}],"start":"later"}
invalid_field 'retention' {"name":"w","jobs":[{"handler":"a"}],"retention":"1y"}
invalid_field 'retention' {"name":"w","jobs":[{"handler":"a"}],"retention":86400000}
invalid_field 'globals' {"name":"w","jobs":[{"handler":"a"}],"globals":[1]}
invalid_field 'jobs[0]' {"name":"w","jobs":[["a","h"]]}"#;

/// Code, place and members of a second job that are refused.
const JOBS: &str = r#"unknown_dependency 'jobs[1].after[0]' {"after":"c"}
graph_cycle 'jobs' {"after":["b"]}
duplicate_job_name 'jobs[1].name' {"name":"a"}
invalid_field 'jobs[1].wait' {"wait":"soon"}
invalid_field 'jobs[1].wait' {"wait":-1}
invalid_field 'jobs[1].timeout' {"timeout":5}
invalid_field 'jobs[1].timeout' {"timeout":"5"}
invalid_field 'jobs[1].backoff' {"backoff":1.5}
invalid_field 'jobs[1].params' {"params":[1]}
invalid_field 'jobs[1].priority' {"priority":256}
invalid_field 'jobs[1].rule' {"rule":"some"}
invalid_field 'jobs[1].after[0]' {"after":[1]}
invalid_field 'jobs[1].params' {"params":1}
invalid_field 'jobs[1].limits' {"limits":{"domain":"d"}}
invalid_field 'jobs[1].limits[0].of' {"limits":[{"domain":"d","of":"all"}]}
invalid_definition 'jobs[1].limits[0].entries' {"limits":[{"domain":"d"}]}"#;

/// The first two words of a line, and the rest of it.
fn words(case: &str) -> [&str; 3] {
    let (code, rest) = case.split_once(' ').unwrap();
    let (place, body) = rest.split_once(' ').unwrap();
    [code, place, body]
}

#[test]
fn definitions_are_refused_with_the_place() {
    let flows = Flows::start();
    for case in DEFINITIONS.lines() {
        let [code, place, body] = words(case);
        let expected = format!("422 {code} {place}");
        check(&flows, "POST /v1/workflows", body, &expected);
    }
    let tags: Vec<String> = (0..17).map(|tag| format!("t{tag}")).collect();
    let tagged = json!({"name": "w", "jobs": [{"handler": "a"}], "tags": tags}).to_string();
    check(
        &flows,
        "POST /v1/workflows",
        &tagged,
        "422 invalid_definition 'tags'",
    );
    assert_eq!(flows.get("/v1/workflows:count")["total"], 0);
}

#[test]
fn a_job_is_refused_with_its_place_in_the_definition() {
    let flows = Flows::start();
    for case in JOBS.lines() {
        let [code, place, members] = words(case);
        let mut body = workflow("w", "a b");
        let members: Value = serde_json::from_str(members).unwrap();
        for (name, value) in members.as_object().unwrap() {
            body["jobs"][1][name] = value.clone();
        }
        let expected = format!("422 {code} {place}");
        check(&flows, "POST /v1/workflows", &body.to_string(), &expected);
    }
    assert_eq!(flows.get("/v1/workflows:count")["total"], 0);
}

#[test]
fn a_definition_that_is_not_json_is_refused_as_a_whole() {
    let flows = Flows::start();
    for body in ["{", "", r#"{"name":"w","jobs":[{"handler":"a"}]} 1"#] {
        check(&flows, "POST /v1/workflows", body, "400 invalid_json");
    }
    assert_eq!(flows.get("/v1/workflows:count")["total"], 0);
}

#[test]
fn a_definition_with_too_many_tags_is_told_how_many_it_has() {
    let flows = Flows::start();
    let tags: Vec<String> = (0..17).map(|tag| tag.to_string()).collect();
    let tagged = json!({"name": "w", "jobs": [{"handler": "a"}], "tags": tags}).to_string();
    let answer = flows.ask("POST", "/v1/workflows", &[], &tagged);
    let detail = "\"there are 17 tags, more than 16\"";
    assert!(answer.body.contains(detail), "{answer:?}");
}

#[test]
fn every_text_that_json_allows_reaches_the_worker() {
    // Half of a surrogate pair is JSON and no Unicode: a claim of it once ended the connection.
    let flows = Flows::start();
    let body = r#"{"name":"w","globals":{"\ud800":1},"jobs":[{"handler":"a","params":{"x":2}}]}"#;
    assert_eq!(flows.ask("POST", "/v1/workflows", &[], body).status, 201);
    let claimed = flows.ask(
        "POST",
        "/v1/jobs/claim",
        &[],
        r#"{"queues":["default"],"worker":"w"}"#,
    );
    assert!(
        claimed.body.contains(r#""params":{"\ud800":1,"x":2}"#),
        "{claimed:?}"
    );
}

#[test]
fn json_that_a_worker_could_not_read_is_refused() {
    let flows = Flows::start();
    let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    let params = |depth| {
        format!(
            r#"{{"name":"w","jobs":[{{"handler":"a","params":{{"x":{}}}}}]}}"#,
            nested(depth)
        )
    };
    check(
        &flows,
        "POST /v1/workflows",
        &params(100),
        "422 invalid_field 'jobs[0].params'",
    );
    check(
        &flows,
        "POST /v1/workflows",
        &params(100_000),
        "422 invalid_field 'jobs[0].params'",
    );
    assert_eq!(
        flows.ask("POST", "/v1/workflows", &[], &params(99)).status,
        201
    );
    let job = flows.claim();
    let report = |depth| {
        format!(
            r#"{{"reports":[{{"lease":{},"outcome":"succeeded","output":{}}}]}}"#,
            job["lease"],
            nested(depth)
        )
    };
    let answer = flows.ask("POST", "/v1/jobs/report", &[], &report(101)).body;
    assert!(answer.contains("reports[0].output"), "{answer}");
    let answer = flows.ask("POST", "/v1/jobs/report", &[], &report(100)).body;
    assert!(answer.contains("succeeded"), "{answer}");
}
