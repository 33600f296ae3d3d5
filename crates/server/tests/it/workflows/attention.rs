//! Pages of the jobs of a workflow: in the order of attention, and with filters.

use serde_json::{Value, json};

use super::{Flows, on_each_store, problem};

/// All jobs, in the order of attention.
const ALL: [&str; 10] = [
    "failed", "holder", "running", "retrying", "limited", "ready", "delayed", "waiting", "blocked",
    "Done",
];

/// Creates a workflow with a job for each state, named after it.
fn create_with_all_states(flows: &Flows) -> String {
    let limits = json!([{"concurrency": 1, "of": "queue"}]);
    let id = flows.create(json!({"name": "w", "jobs": [
        {"name": "Done", "handler": "done", "queue": "done"},
        {"name": "blocked", "handler": "later", "queue": "later", "after": ["failed"]},
        {"name": "waiting", "handler": "later", "queue": "later", "after": ["running"]},
        {"name": "delayed", "handler": "later", "queue": "later", "wait": "1h"},
        {"name": "ready", "handler": "later", "queue": "later"},
        {"name": "limited", "handler": "limited", "queue": "limited", "limits": limits},
        {"name": "holder", "handler": "limited", "queue": "limited", "limits": limits, "priority": 9},
        {"name": "retrying", "handler": "retried", "queue": "retried", "retries": 3, "backoff": "1h"},
        {"name": "running", "handler": "running", "queue": "running"},
        {"name": "failed", "handler": "failed", "queue": "failed"},
    ]}));
    let claim = |queue: &str| {
        let claim = json!({"queues": [queue], "worker": "w", "limit": 1});
        flows.post("/v1/jobs/claim", claim)["jobs"][0].clone()
    };
    flows.succeed(&claim("done"), json!(1));
    flows.fail(&claim("failed"));
    claim("running");
    claim("limited");
    let error = json!({"kind": "Late", "message": "m"});
    let report = json!({"lease": claim("retried")["lease"], "outcome": "failed", "error": error});
    flows.post("/v1/jobs/report", json!({"reports": [report]}));
    id
}

fn names(page: &Value) -> Vec<String> {
    let name = |job: &Value| job["name"].as_str().unwrap().to_owned();
    page["items"].as_array().unwrap().iter().map(name).collect()
}

/// What failed or ran was on any page of a workflow of many jobs.
#[test]
fn jobs_that_need_attention_come_first() {
    on_each_store(|flows| {
        let id = create_with_all_states(flows);
        let page = |query: &str| flows.get(&format!("/v1/workflows/{id}/jobs?{query}"));
        let first = page("order=attention");
        assert_eq!(names(&first), ALL);
        let error = json!({"kind": "ValueError", "message": "no such thing"});
        assert_eq!(first["items"][0]["error"], error);
        assert_eq!(first["items"][3].get("error"), None, "it has not failed");
        assert_eq!(page("")["items"][9]["error"], error);
        let (mut seen, mut cursor) = (Vec::new(), String::new());
        loop {
            let page = page(&format!("order=attention&limit=3&cursor={cursor}"));
            seen.extend(names(&page));
            let Some(next) = page["next_cursor"].as_str() else {
                break;
            };
            cursor = next.to_owned();
        }
        assert_eq!(seen, ALL);
    });
}

#[test]
fn jobs_are_found_by_state_name_and_handler() {
    let flows = Flows::start(&[]);
    let id = create_with_all_states(&flows);
    let path = |query: &str| format!("/v1/workflows/{id}/jobs?{query}");
    for (query, expected) in [
        ("state=limited", &["limited"][..]),
        ("state=ready", &["ready", "limited"][..]),
        ("state=blocked,retrying", &["blocked", "retrying"][..]),
        ("state=waiting", &["blocked", "waiting"][..]),
        ("state=scheduled", &["delayed", "retrying"][..]),
        ("q=ed&handler=later", &["blocked", "delayed"][..]),
        ("q=DONE", &["Done"][..]),
        ("q=none", &[][..]),
        (
            "handler=limited&order=attention",
            &["holder", "limited"][..],
        ),
    ] {
        assert_eq!(names(&flows.get(&path(query))), expected, "{query}");
    }
    for (query, code, at) in [
        ("order=newest", "invalid_field", json!("order")),
        ("state=done", "invalid_field", json!("state")),
        ("cursor=1.2", "invalid_cursor", json!(null)),
        ("order=attention&cursor=2", "invalid_cursor", json!(null)),
        ("order=attention&cursor=2.-1", "invalid_cursor", json!(null)),
    ] {
        let (_, found, path) = problem(&flows.ask("GET", &path(query), &[], ""));
        assert_eq!((found.as_str(), path), (code, at), "{query}");
    }
}
