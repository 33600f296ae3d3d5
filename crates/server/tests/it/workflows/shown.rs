//! Calls that documents show can be made as they are shown.

use std::fs::read_to_string;

use serde_json::Value;

use super::Flows;
use crate::support::repository;

/// The calls of a document's shell blocks that send something: path and body.
fn calls(text: &str) -> Vec<(&str, &str)> {
    let mut calls = Vec::new();
    for block in text.split("```sh\n").skip(1).filter_map(|rest| rest.split("```").next()) {
        for call in block.split("curl -s localhost:7070").skip(1) {
            let (path, rest) = call.split_once(' ').unwrap();
            if let Some(body) = rest.strip_prefix("-d '") {
                calls.push((path, body.split('\'').next().unwrap()));
            }
        }
    }
    calls
}

/// Makes the calls of a document in their order; `more` are those of them that create, claim or report.
fn check(document: &str, more: &[&str]) {
    let text = read_to_string(repository().join(document)).unwrap();
    let flows = Flows::start(&[]);
    let calls = calls(&text);
    let paths: Vec<&str> = calls.iter().map(|(path, _)| *path).collect();
    assert_eq!(paths, more, "{document}");
    let mut lease = Value::Null;
    for (path, body) in calls {
        let mut body: Value = serde_json::from_str(body).unwrap_or_else(|error| panic!("{document}: {body}: {error}"));
        // The lease that is shown is that of another day.
        for report in body.get_mut("reports").and_then(Value::as_array_mut).into_iter().flatten() {
            report["lease"] = lease.clone();
        }
        let answer = flows.post(path, body);
        assert!(answer["reports"][0]["error"].is_null(), "{document}: {answer}");
        if let Some(job) = answer["jobs"].get(0) {
            lease = job["lease"].clone();
        }
    }
}

#[test]
fn calls_in_documents_do_what_they_say() {
    let life = ["/v1/workflows", "/v1/jobs/claim", "/v1/jobs/report"];
    check("README.md", &life);
    check("docs/http-api.md", &life);
    check("docs/workflows.md", &life[..1]);
}
