//! Calls that documents show can be made as they are shown, and answer with the fields that are shown.

use std::fs::read_to_string;

use serde_json::Value;

use super::{Flows, found};
use crate::support::{Limits, repository};

/// A call in a shell block of a document.
struct Call<'a> {
    method: &'a str,
    path: &'a str,
    body: Option<&'a str>,
    /// The lines of comment after it.
    answer: String,
}

fn calls(text: &str) -> Vec<Call<'_>> {
    let blocks = text
        .split("```sh\n")
        .skip(1)
        .filter_map(|rest| rest.split("```").next());
    blocks
        .flat_map(|block| block.split("curl -s ").skip(1).filter_map(call))
        .collect()
}

fn call(text: &str) -> Option<Call<'_>> {
    let said = ["POST", "PUT"].into_iter().find_map(|method| {
        let rest = text
            .strip_prefix("-X ")?
            .strip_prefix(method)?
            .strip_prefix(' ')?;
        Some((method, rest))
    });
    let rest = said
        .map_or(text, |(_, rest)| rest)
        .trim_start_matches('\'')
        .strip_prefix("localhost:7070")?;
    let (path, rest) = rest.split_at(rest.find([' ', '\'', '\n'])?);
    let body = rest
        .strip_prefix(" -d '")
        .map(|body| body.split('\'').next().unwrap());
    let answer = rest
        .lines()
        .filter_map(|line| line.strip_prefix("# "))
        .collect();
    let method = said.map_or(
        if body.is_some() { "POST" } else { "GET" },
        |(method, _)| method,
    );
    Some(Call {
        method,
        path,
        body,
        answer,
    })
}

/// Makes the calls of a document in their order; `paths` are those that it shows.
fn check(document: &str, paths: &[&str]) {
    let text = read_to_string(repository().join(document)).unwrap();
    let limits = Limits::new(VENDOR);
    let flows = Flows::start(&[("RUNTIME_ROOT", limits.root())]);
    let calls = calls(&text);
    assert_eq!(
        calls.iter().map(|call| call.path).collect::<Vec<_>>(),
        paths,
        "{document}"
    );
    let (mut lease, mut id) = (Value::Null, SHOWN.to_owned());
    for call in calls {
        let body = call
            .body
            .map(|body| with_lease(body, &lease).to_string())
            .unwrap_or_default();
        let answer = found(flows.ask(call.method, &call.path.replace(SHOWN, &id), &[], &body));
        for items in ["items", "reports", "leases", "notes"] {
            assert!(answer[items][0]["error"].is_null(), "{document}: {answer}");
        }
        if let Some(created) = answer["id"].as_str().or(answer["items"][0]["id"].as_str()) {
            id = created.to_owned();
        }
        if let Some(job) = answer["jobs"].get(0) {
            lease = job["lease"].clone();
        }
        let told = answer.to_string();
        for field in call
            .answer
            .split('"')
            .skip(1)
            .zip(call.answer.split('"').skip(2))
        {
            let (name, next) = field;
            assert!(
                !next.starts_with(':') || told.contains(&format!("\"{name}\":")),
                "{document}: no {name} in {told}"
            );
        }
    }
}

/// The rate limit that documents name.
const VENDOR: &str = "domain: vendor\ndescriptors:\n  - {key: tenant, rate_limit: {unit: minute, requests_per_unit: 100}}\n";

/// The id that documents show, which readers replace with that of their workflow.
const SHOWN: &str = "01M7Z85C8H08RJZ5Q5JGPKMY04";

/// A body as it is shown, with the lease of today: the one that is shown is that of another day.
fn with_lease(body: &str, lease: &Value) -> Value {
    let mut body: Value =
        serde_json::from_str(body).unwrap_or_else(|error| panic!("{body}: {error}"));
    for list in ["reports", "notes"] {
        for item in body
            .get_mut(list)
            .and_then(Value::as_array_mut)
            .into_iter()
            .flatten()
        {
            item["lease"] = lease.clone();
        }
    }
    for one in body
        .get_mut("leases")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        *one = lease.clone();
    }
    body
}

#[test]
fn calls_in_documents_do_what_they_say() {
    let life = ["/v1/workflows", "/v1/jobs/claim", "/v1/jobs/report"];
    let looks = [
        "/v1/workflows?status=running&limit=10",
        "/v1/workflows?id_prefix=01M7",
        "/v1/workflows?q=report&range=24h",
        "/v1/workflows:count",
    ];
    check("README.md", &life);
    let one = "/v1/workflows/01M7Z85C8H08RJZ5Q5JGPKMY04";
    let verbs = [
        ":start",
        ":pause",
        ":resume",
        "/jobs/count:skip",
        ":cancel",
        ":retry",
        ":restart",
        ":expire",
    ];
    let acts = verbs.map(|verb| format!("{one}{verb}"));
    let extend = "/v1/jobs/extend";
    let bulk = "/v1/workflows:bulk";
    let many = ["/v1/workflows:batch", bulk, bulk];
    let acts: Vec<&str> = acts.iter().map(String::as_str).collect();
    let limits = [
        "/v1/limits/overrides",
        "/v1/limits/overrides",
        "/v1/limits/check",
    ];
    check(
        "docs/http-api.md",
        &[
            &life[..],
            &looks,
            &[extend, extend],
            &many[..1],
            &acts,
            &many[1..],
            &limits,
        ]
        .concat(),
    );
    let terms = [
        "/v1/handlers/vendor.charge/limits",
        "/v1/queues/default/weights",
    ];
    check(
        "docs/workflows.md",
        &[&life[..1], &life[..1], &terms].concat(),
    );
}
