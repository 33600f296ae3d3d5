//! Warnings about rate limits that the configuration of the server has no rule for.

use serde_json::{Value, json};

use super::super::{Flows, found};
use super::{RULES, jobs};
use crate::support::Limits;

/// A workflow of one job with a limit of this domain.
fn limited_by(domain: &str) -> Value {
    let limits = json!([{"domain": domain, "entries": [["tenant", "acme"]]}]);
    json!({"name": "w", "jobs": [{"name": "j", "handler": "h", "limits": limits}]})
}

fn warning() -> Value {
    json!([{
        "code": "no_rate_limit",
        "domain": "vendr",
        "job": "j",
        "text": "no rule of this server has the domain 'vendr', so this limits nothing",
    }])
}

fn with_rules() -> (Limits, Flows) {
    let limits = Limits::new(RULES);
    let flows = Flows::start(&[("RUNTIME_ROOT", limits.root())]);
    (limits, flows)
}

#[test]
fn a_creation_warns_of_an_unknown_domain() {
    let (_limits, flows) = with_rules();
    let create = || {
        let body = limited_by("vendr").to_string();
        found(flows.ask(
            "POST",
            "/v1/workflows",
            &[("idempotency-key", "once")],
            &body,
        ))
    };
    for existing in [false, true] {
        let created = create();
        assert_eq!(
            [&created["existing"], &created["warnings"]],
            [&json!(existing), &warning()]
        );
    }
    // The built-in sample of a server without files has no such domain either.
    let without_files = Flows::start(&[]).post("/v1/workflows", limited_by("vendr"));
    assert_eq!(without_files["warnings"], warning());
}

#[test]
fn a_creation_does_not_warn_of_a_known_domain() {
    let (_limits, flows) = with_rules();
    let created = flows.post("/v1/workflows", limited_by("vendor"));
    assert!(created.get("warnings").is_none(), "{created}");
    // Which values of a domain have a limit is for the author of the rules to say.
    let other_key = flows.post("/v1/workflows", jobs("unlimited", "acme", 1));
    assert!(other_key.get("warnings").is_none(), "{other_key}");
}

#[test]
fn a_batch_warns_for_each_workflow() {
    let (_limits, flows) = with_rules();
    let workflows = json!([
        limited_by("vendor"),
        limited_by("vendr"),
        {"name": "w", "jobs": []},
        limited_by("vendr"),
    ]);
    let answer = flows.post("/v1/workflows:batch", json!({"workflows": workflows}));
    let warnings: Vec<Option<&Value>> = answer["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| item.get("warnings"))
        .collect();
    assert_eq!(
        warnings,
        [None, Some(&warning()), None, Some(&warning())],
        "{answer}"
    );
}
