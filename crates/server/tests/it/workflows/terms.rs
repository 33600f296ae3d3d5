//! Limits that queues and handlers give their jobs, and weights of keys, over HTTP.

use serde_json::{Value, json};

use super::{Flows, found, on_each_store, problem, redis, workflow};
use crate::support::await_that;

/// The status and the JSON of an answer.
fn put(flows: &Flows, path: &str, body: &Value) -> Value {
    found(flows.ask("PUT", path, &[], &body.to_string()))
}

fn vendor(tenant: &str) -> Value {
    json!({"domain": "vendor", "hits": 2, "entries": [["tenant", tenant]]})
}

fn running(most: u32) -> Value {
    json!({"concurrency": most, "of": "queue", "entries": []})
}

#[test]
fn queues_and_handlers_give_new_jobs_their_limits() {
    on_each_store(|flows| {
        let [queue, handler] = ["/v1/queues/default/limits", "/v1/handlers/Handler/limits"];
        assert_eq!(flows.get(queue), json!({"name": "default", "limits": []}));
        let before = flows.create(workflow("w", "a"));
        let limits = json!({"limits": [vendor("$.tenant")]});
        assert_eq!(
            put(flows, handler, &limits),
            json!({"name": "Handler", "limits": [vendor("$.tenant")]})
        );
        assert_eq!(
            put(
                flows,
                queue,
                &json!({"limits": [{"concurrency": 3, "of": "queue"}]})
            )["limits"],
            json!([running(3)])
        );
        let mut body = workflow("w", "a");
        let (status, code, path) = flows.refused("/v1/workflows", body.clone());
        assert_eq!(
            (status, &*code, path),
            (422, "invalid_definition", json!("jobs[0]"))
        );
        let batch = flows.post("/v1/workflows:batch", json!({"workflows": [body]}));
        assert_eq!(
            batch["items"][0]["error"]["path"], "workflows[0].jobs[0]",
            "{batch}"
        );
        body["globals"] = json!({"tenant": "acme"});
        body["jobs"][0]["limits"] = json!([{"concurrency": 1, "of": "all"}]);
        let id = flows.create(body);
        let limits = |id: &str| flows.get(&format!("/v1/workflows/{id}/jobs/a"))["limits"].clone();
        let own = json!({"concurrency": 1, "of": "all", "entries": []});
        assert_eq!(
            (limits(&id), limits(&before)),
            (json!([running(3), vendor("acme"), own]), Value::Null)
        );
        for path in [queue, handler] {
            assert_eq!(flows.ask("DELETE", path, &[], "").status, 204);
            assert_eq!(flows.get(path)["limits"], json!([]));
        }
        let after = flows.create(workflow("w", "a"));
        assert_eq!(limits(&after), Value::Null);
        assert_eq!(
            limits(&id)[0],
            running(3),
            "it keeps what it was created with"
        );
    });
}

/// Code, place and limits that are refused.
const LIMITS: &str = r#"invalid_field limits {}
invalid_field limits[0] {"limits":[[]]}
invalid_field limits[0].of {"limits":[{"concurrency":3}]}
invalid_definition limits[0].entries {"limits":[{"domain":"d"}]}"#;

/// Code, place and weights that are refused.
const WEIGHTS: &str = r#"invalid_field limits {"limits":[]}
invalid_field weights[0].weight {"weights":[{"entries":[["k","v"]]}]}
invalid_field weights[0].entries[0] {"weights":[{"entries":[["k"]],"weight":1}]}
invalid_definition weights[0].entries {"weights":[{"entries":[],"weight":1}]}
invalid_definition weights[0].weight {"weights":[{"entries":[["k","v"]],"weight":0}]}"#;

#[test]
fn wrong_limits_and_weights_are_refused_with_their_place() {
    let flows = Flows::start(&[]);
    let check = |path: &str, body: &str, expected: [&str; 2]| {
        let (status, code, place) = problem(&flows.ask("PUT", path, &[], body));
        let [expected_code, expected_place] = expected;
        assert_eq!((status, &*code), (422, expected_code), "{path} {body}");
        assert_eq!(place, expected_place, "{path} {body}");
    };
    let [limits, weights] = ["/v1/handlers/a%2Fb/limits", "/v1/queues/q/weights"];
    for (path, table) in [(limits, LIMITS), (weights, WEIGHTS)] {
        for row in table.lines() {
            let words: Vec<&str> = row.splitn(3, ' ').collect();
            check(path, words[2], [words[0], words[1]]);
        }
    }
    let part = json!({"limits": [vendor("$.a..b")]}).to_string();
    check(
        limits,
        &part,
        ["invalid_definition", "limits[0].entries[0]"],
    );
    let many = json!({"limits": vec![vendor("x"); 5]}).to_string();
    check(limits, &many, ["invalid_definition", "limits"]);
    let long = format!("/v1/queues/{}/limits", "x".repeat(201));
    check(&long, r#"{"limits":[]}"#, ["invalid_definition", "name"]);
    assert_eq!(flows.get(limits), json!({"name": "a/b", "limits": []}));
}

#[test]
fn other_servers_hear_of_limits_and_weights_and_a_restart_keeps_them() {
    let redis = redis();
    let (one, other) = (Flows::on(&redis), Flows::on(&redis));
    // Both have the store open.
    assert_eq!(other.get("/v1/queues/q/weights")["weights"], json!([]));
    let weight = json!({"entries": [["tenant", "gold"]], "weight": 5});
    put(&one, "/v1/queues/q/weights", &json!({"weights": [weight]}));
    put(
        &one,
        "/v1/handlers/h/limits",
        &json!({"limits": [running(2)]}),
    );
    await_that("the other server knows the weights", || {
        other.get("/v1/queues/q/weights")["weights"] == json!([weight])
    });
    await_that("and the limits", || {
        other.get("/v1/handlers/h/limits")["limits"] == json!([running(2)])
    });
    drop(one);
    let late = Flows::on(&redis);
    assert_eq!(
        late.get("/v1/queues/q/weights"),
        json!({"name": "q", "weights": [weight]})
    );
    assert_eq!(
        late.ask("DELETE", "/v1/queues/q/weights", &[], "").status,
        204
    );
    await_that("the other server forgets them", || {
        other.get("/v1/queues/q/weights")["weights"] == json!([])
    });
}
