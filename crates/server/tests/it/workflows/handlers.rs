//! Workers that run some handlers only.

use serde_json::{Value, json};

use super::on_each_store;
use crate::support::await_that;

/// A workflow of so many jobs of one handler.
fn many(handler: &str, number: usize) -> Value {
    let jobs: Vec<Value> = (0..number)
        .map(|at| json!({"name": format!("{handler} {at}"), "handler": handler}))
        .collect();
    json!({"name": handler, "jobs": jobs})
}

fn claim(handlers: Value, wait: &str) -> Value {
    json!({"queues": ["default"], "handlers": handlers, "worker": "w", "wait": wait, "limit": 9})
}

fn got(answer: &Value) -> Vec<&str> {
    answer["jobs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|job| job["handler"].as_str().unwrap())
        .collect()
}

#[test]
fn a_worker_gets_what_it_can_run_past_all_that_waits_before_it() {
    on_each_store(|flows| {
        flows.create(many("mail", 1_000));
        let charge = || claim(json!(["charge", "charge", "refund"]), "0s");
        assert_eq!(
            got(&flows.post("/v1/jobs/claim", charge())),
            [""; 0],
            "there is none"
        );
        flows.create(many("charge", 1));
        let claimed = flows.post("/v1/jobs/claim", charge());
        assert_eq!(got(&claimed), ["charge"]);
        std::thread::scope(|scope| {
            let report = json!({"lease": claimed["jobs"][0]["lease"], "outcome": "succeeded"});
            let both = json!({"reports": [report], "claim": claim(json!(["refund"]), "20s")});
            let waiting = scope.spawn(|| flows.post("/v1/jobs/report", both));
            let waits = || flows.get("/v1/queues")["items"][0]["waiting_workers"] == 1;
            await_that("the worker waits", waits);
            flows.create(many("refund", 1));
            let answer = waiting.join().unwrap();
            assert_eq!(
                (&answer["reports"][0]["status"], got(&answer)),
                (&json!(200), vec!["refund"])
            );
        });
        assert_eq!(
            got(&flows.post("/v1/jobs/claim", claim(Value::Null, "0s"))),
            ["mail"; 9]
        );
        let wrong = |handlers: Value| flows.refused("/v1/jobs/claim", claim(handlers, "0s"));
        assert_eq!(
            wrong(json!([])),
            (422, "invalid_field".into(), json!("handlers"))
        );
        assert_eq!(
            wrong(json!(["a", ""])),
            (422, "invalid_field".into(), json!("handlers[1]"))
        );
        assert_eq!(
            wrong(vec!["h"; 257].into()),
            (422, "invalid_field".into(), json!("handlers"))
        );
    });
}
