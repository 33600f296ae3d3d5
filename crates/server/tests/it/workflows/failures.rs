//! Failures by handler and kind of error.

use serde_json::{Value, json};

use super::{Flows, on_each_store, problem};

/// Creates a workflow of one job that fails with this kind of error.
fn fail(flows: &Flows, handler: &str, kind: &str) -> String {
    let id = flows.create(json!({"name": handler, "jobs": [{"name": "job", "handler": handler}]}));
    let claim = json!({"queues": ["default"], "worker": "w", "limit": 1});
    let lease = flows.post("/v1/jobs/claim", claim)["jobs"][0]["lease"].clone();
    let error = json!({"kind": kind, "message": format!("m {id}")});
    let report = json!({"lease": lease, "outcome": "failed", "error": error, "retry": "never"});
    flows.post("/v1/jobs/report", json!({"reports": [report]}));
    id
}

#[test]
fn failures_are_grouped_by_handler_and_kind() {
    on_each_store(|flows| {
        assert_eq!(flows.get("/v1/failures")["items"], json!([]));
        fail(flows, "charge", "CardDeclined");
        fail(flows, "refund", "CardDeclined");
        fail(flows, "charge", "Timeout");
        let last = fail(flows, "charge", "CardDeclined");
        let found = flows.get("/v1/failures?range=5m");
        let of = |item: &Value| {
            (
                item["handler"].clone(),
                item["kind"].clone(),
                item["count"].clone(),
            )
        };
        let items = found["items"].as_array().unwrap();
        let shown: Vec<_> = items.iter().map(of).collect();
        let group =
            |handler: &str, kind: &str, count: u64| (json!(handler), json!(kind), json!(count));
        assert_eq!(
            shown,
            [
                group("charge", "CardDeclined", 2),
                group("charge", "Timeout", 1),
                group("refund", "CardDeclined", 1),
            ]
        );
        assert_eq!(items[0]["message"], format!("m {last}"));
        assert_eq!(
            items[0]["sample"],
            json!({"workflow": last, "name": "charge", "job": "job"})
        );
        let points = items[0]["points"].as_array().unwrap();
        let total: u64 = points.iter().filter_map(Value::as_u64).sum();
        assert_eq!(
            (points.len(), total, &found["step_ms"]),
            (24, 2, &json!(12_500))
        );
        let rest = ["groups", "workflows", "more", "unread"].map(|name| found[name].clone());
        assert_eq!(rest, [json!(3), json!(4), json!(false), json!(0)]);
        for query in ["range=2m", "range=5m&range=1h", "q=x"] {
            let path = format!("/v1/failures?{query}");
            let (status, code, _) = problem(&flows.ask("GET", &path, &[], ""));
            assert_eq!((status, code.as_str()), (422, "invalid_field"), "{query}");
        }
    });
}
