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
                item["workflows"].clone(),
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

/// Fails all ready jobs with an error of the kind.
fn fail_ready(flows: &Flows, kind: &str) {
    loop {
        let leases = flows.claim(100);
        if leases.is_empty() {
            return;
        }
        let report = |lease: &Value| {
            let error = json!({"kind": kind, "message": "no"});
            json!({"lease": lease["lease"], "outcome": "failed", "error": error, "retry": "never"})
        };
        let reports: Vec<Value> = leases.iter().map(report).collect();
        flows.post("/v1/jobs/report", json!({"reports": reports}));
    }
}

#[test]
fn failures_of_large_workflows_are_counted_or_named_as_unread() {
    on_each_store(|flows| {
        let params = |bytes: usize| json!({"text": "x".repeat(bytes)});
        let of = |bytes: usize| {
            let job = |name: &str| json!({"name": name, "handler": "h", "params": params(bytes)});
            json!({"name": "large", "jobs": [job("a"), job("b")]})
        };
        for _ in 0..40 {
            flows.create(of(20_000));
        }
        flows.create(of(100_000));
        fail_ready(flows, "Timeout");
        for _ in 0..2 {
            let found = flows.get("/v1/failures");
            let group = &found["items"][0];
            let counts = [&group["jobs"], &group["workflows"]];
            assert_eq!(counts, [&json!(80), &json!(40)]);
            let rest = ["groups", "workflows", "more", "unread", "unread_jobs"];
            let rest = rest.map(|name| found[name].clone());
            assert_eq!(
                rest,
                [json!(1), json!(41), json!(false), json!(1), json!(0)]
            );
        }
    });
}

#[test]
fn a_group_of_failures_is_a_filter() {
    on_each_store(|flows| {
        let declined = [
            fail(flows, "charge", "CardDeclined"),
            fail(flows, "charge", "CardDeclined"),
        ];
        let refund = fail(flows, "refund", "CardDeclined");
        fail(flows, "charge", "Timeout");
        let ids = |query: &str| -> Vec<String> {
            let path = format!("/v1/workflows?status=failed&order=oldest&{query}");
            let page = flows.get(&path);
            assert_eq!(page["next_cursor"], Value::Null);
            let items = page["items"].as_array().unwrap().iter();
            items
                .map(|item| item["id"].as_str().unwrap().to_owned())
                .collect()
        };
        assert_eq!(ids("error=CardDeclined&handler=charge"), declined);
        assert_eq!(ids("error=CardDeclined").len(), 3);
        assert_eq!(ids("handler=refund"), std::slice::from_ref(&refund));
        assert_eq!(ids("error=CardDeclined&name=refund"), [refund]);
        assert_eq!(ids("error=Other"), [""; 0]);
        let count = flows.get("/v1/workflows:count?status=failed&error=CardDeclined");
        assert_eq!(count["by_status"], json!({"failed": 3}));
        let act = |action: &str, cursor: Value| {
            let filter = json!({"status": "failed", "error": "CardDeclined", "handler": "charge"});
            let body = json!({"action": action, "filter": filter, "limit": 1, "cursor": cursor});
            flows.post("/v1/workflows:bulk", body)
        };
        let first = act("retry", Value::Null);
        let numbers = |page: &Value| ["matched", "done", "more"].map(|name| page[name].clone());
        assert_eq!(numbers(&first), [json!(1), json!(1), json!(true)]);
        let second = act("retry", first["next_cursor"].clone());
        assert_eq!(numbers(&second)[..2], [json!(1), json!(1)]);
        assert_eq!(ids("error=CardDeclined").len(), 1);
        for id in declined {
            assert_eq!(
                flows.get(&format!("/v1/workflows/{id}"))["status"],
                "running"
            );
        }
        fail_ready(flows, "CardDeclined");
        act("delete", Value::Null);
        assert_eq!(ids("error=CardDeclined&handler=charge").len(), 1);
        for (filter, path) in [
            (json!({"error": "Timeout"}), "filter.status"),
            (
                json!({"handler": "charge", "status": ["failed", "running"]}),
                "filter.status",
            ),
        ] {
            let body = json!({"action": "retry", "filter": filter});
            let (status, _, at) = flows.refused("/v1/workflows:bulk", body);
            assert_eq!((status, at), (422, json!(path)));
        }
        for path in ["", ":count"].map(|verb| format!("/v1/workflows{verb}?error=Timeout")) {
            assert_eq!(problem(&flows.ask("GET", &path, &[], "")).0, 422, "{path}");
        }
    });
}

#[test]
fn a_page_of_a_group_may_be_empty_and_leads_to_the_next() {
    on_each_store(|flows| {
        let other = json!({"name": "other", "jobs": [{"name": "job", "handler": "h"}]});
        for _ in 0..11 {
            flows.post(
                "/v1/workflows:batch",
                json!({"workflows": vec![&other; 100]}),
            );
        }
        fail_ready(flows, "Timeout");
        fail(flows, "charge", "CardDeclined");
        let found = flows.get("/v1/failures");
        assert_eq!(
            [&found["workflows"], &found["more"]],
            [&json!(1000), &json!(true)]
        );
        let filter = "status=failed&error=CardDeclined&order=oldest";
        let first = flows.get(&format!("/v1/workflows?{filter}"));
        assert_eq!(first["items"], json!([]));
        let cursor = first["next_cursor"].as_str().unwrap();
        let second = flows.get(&format!("/v1/workflows?{filter}&cursor={cursor}"));
        assert_eq!(second["items"][0]["name"], "charge");
        assert_eq!(second["next_cursor"], Value::Null);
        let count = "/v1/workflows:count?status=failed&error=CardDeclined";
        let first = flows.get(count);
        assert_eq!(
            [&first["total"], &first["next_cursor"]],
            [&json!(0), &json!(cursor)]
        );
        let second = flows.get(&format!("{count}&cursor={cursor}"));
        assert_eq!(
            [&second["total"], &second["next_cursor"]],
            [&json!(1), &Value::Null]
        );
        let filter = json!({"status": "failed", "error": "CardDeclined"});
        let body = json!({"action": "retry", "filter": filter});
        let bulk = |cursor: Value| {
            let mut body = body.clone();
            body["cursor"] = cursor;
            flows.post("/v1/workflows:bulk", body)
        };
        let first = bulk(Value::Null);
        assert_eq!(
            [&first["matched"], &first["more"]],
            [&json!(0), &json!(true)]
        );
        assert_eq!(bulk(first["next_cursor"].clone())["done"], 1);
    });
}
