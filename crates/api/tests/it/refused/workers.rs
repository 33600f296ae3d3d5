//! Claims and reports that are refused.

use serde_json::{Value, json};

use super::check;
use crate::support::{Flows, workflow};

#[test]
fn a_wrong_claim_is_refused_by_name_alone_and_in_a_report() {
    let flows = Flows::start();
    for (name, value) in [
        ("queues", json!([])),
        ("worker", json!("")),
        ("limit", json!(0)),
        ("limit", json!(1_001)),
        ("lease", json!("4s")),
        ("lease", json!("61m")),
        ("wait", json!("61s")),
        ("color", json!(1)),
    ] {
        let mut claim = json!({"queues": ["q"], "worker": "w"});
        claim[name] = value;
        let expected = format!("422 invalid_field '{name}'");
        check(&flows, "POST /v1/jobs/claim", &claim.to_string(), &expected);
        let report = json!({"reports": [], "claim": claim}).to_string();
        let expected = format!("422 invalid_field 'claim.{name}'");
        check(&flows, "POST /v1/jobs/report", &report, &expected);
    }
}

/// Places of what is wrong in a report, and its members beside the lease.
const REPORTS: &str = r#"reports[0].lease {"lease":"nonsense","outcome":"succeeded"}
reports[0].error {"outcome":"failed"}
reports[0].output {"outcome":"failed","error":{"kind":"k","message":"m"},"output":1}
reports[0].retry {"outcome":"succeeded","retry":"never"}
reports[0].pause {"outcome":"succeeded","pause":"1s"}"#;

#[test]
fn a_wrong_report_is_refused_with_its_place() {
    let flows = Flows::start();
    flows.create(workflow("w", "a"));
    let job = flows.claim();
    for case in REPORTS.lines() {
        let (place, members) = case.split_once(' ').unwrap();
        let mut report = json!({"lease": job["lease"]});
        let members: Value = serde_json::from_str(members).unwrap();
        for (name, value) in members.as_object().unwrap() {
            report[name] = value.clone();
        }
        let answer = flows.post("/v1/jobs/report", json!({"reports": [report]}));
        let refused = &answer["reports"][0];
        assert_eq!(refused["status"], 422, "{case}");
        assert_eq!(refused["error"]["path"], place, "{case}");
    }
    let right = json!({"lease": job["lease"], "outcome": "succeeded"});
    let unknown = json!({"reports": [{"lease": job["lease"], "outcome": "won"}, right]});
    let answer = flows.post("/v1/jobs/report", unknown);
    assert_eq!(answer["reports"][0]["error"]["path"], "reports[0].outcome");
    let taken = &answer["reports"][1];
    assert_eq!(taken["job_state"], "succeeded", "nothing before it counted");
    assert_eq!(taken["already"], false, "nothing before it counted");
}

#[test]
fn a_number_without_a_unit_is_told_what_to_write() {
    let flows = Flows::start();
    for value in [json!(5), json!(-5), json!(0.5)] {
        let answer = flows.ask(
            "POST",
            "/v1/jobs/claim",
            &[],
            &json!({"queues": ["q"], "worker": "w", "wait": value}).to_string(),
        );
        let detail = serde_json::from_str::<Value>(&answer.body).unwrap()["detail"]
            .as_str()
            .unwrap()
            .to_owned();
        assert!(
            detail.contains(&format!("the number {value} has no unit"))
                && detail.contains("\"30s\""),
            "{detail}"
        );
    }
}

#[test]
fn names_that_no_queue_has_are_refused_to_workers() {
    let flows = Flows::start();
    let long = "x".repeat(201);
    for (place, claim) in [
        ("queues[1]", json!({"queues": ["a", long], "worker": "w"})),
        ("queues[0]", json!({"queues": ["a\u{0}"], "worker": "w"})),
        ("queues[0]", json!({"queues": [""], "worker": "w"})),
        ("worker", json!({"queues": ["a"], "worker": "\u{1b}[31m"})),
    ] {
        let expected = format!("422 invalid_field '{place}'");
        check(&flows, "POST /v1/jobs/claim", &claim.to_string(), &expected);
    }
}

#[test]
fn a_list_is_no_object() {
    let flows = Flows::start();
    let bulk = r#"{"action":"cancel","filter":["running"]}"#;
    let claim = r#"{"reports":[],"claim":[["q"],"w"]}"#;
    check(
        &flows,
        "POST /v1/workflows:bulk",
        bulk,
        "422 invalid_field 'filter'",
    );
    check(
        &flows,
        "POST /v1/workflows:bulk",
        r#"["cancel",{}]"#,
        "422 invalid_field ''",
    );
    check(
        &flows,
        "POST /v1/jobs/claim",
        r#"[["q"],"w"]"#,
        "422 invalid_field ''",
    );
    check(
        &flows,
        "POST /v1/jobs/report",
        claim,
        "422 invalid_field 'claim'",
    );
    check(
        &flows,
        "POST /v1/jobs/extend",
        r#"[["x"]]"#,
        "422 invalid_field ''",
    );
    let batch = flows.post(
        "/v1/workflows:batch",
        json!({"workflows": [["w", [["h"]]]]}),
    );
    assert_eq!(batch["items"][0]["status"], 422, "{batch}");
    flows.create(workflow("w", "a"));
    let lease = &flows.claim()["lease"];
    let report = json!({"lease": lease, "outcome": "failed", "error": ["kind", "message"]});
    let answer = flows.post(
        "/v1/jobs/report",
        json!({"reports": [report, [lease, "succeeded"]]}),
    );
    let places = [0, 1].map(|at| answer["reports"][at]["error"]["path"].clone());
    assert_eq!(
        places,
        [json!("reports[0].error"), json!("reports[1]")],
        "{answer}"
    );
}
