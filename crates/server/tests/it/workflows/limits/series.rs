//! Rates of limits over a range.

use std::cell::RefCell;

use serde_json::{Value, json};

use super::{RULES, passes};
use crate::support::{Limits, await_that};
use crate::workflows::{Flows, problem};

#[test]
fn rates_of_limits_are_kept_in_complete_steps() {
    let limits = Limits::new(RULES);
    let flows = Flows::start(&[("RUNTIME_ROOT", limits.root())]);
    let read = || {
        flows.get(
            "/v1/limits/series?range=5m&rule=vendor.watched&rule=vendor.none&rule=vendor.tenant",
        )
    };
    let known = |found: &Value| found["items"].as_array().is_some_and(|all| all.len() == 2);
    await_that("the first reading", || known(&read()));
    let found = read();
    assert_eq!(found["step_ms"], 10_000);
    assert_eq!(
        found["items"][0],
        json!({"rule": "vendor.watched", "hits": [], "near": [], "refused": []})
    );
    for _ in 0..14 {
        passes(&flows, "tenant", "acme");
        passes(&flows, "watched", "x");
    }
    let latest = RefCell::new(Value::Null);
    await_that("the first step", || {
        latest.replace(read());
        latest.borrow()["items"][1]["hits"] != json!([])
    });
    let items = &latest.borrow()["items"];
    let rate = |item: usize, name: &str| items[item][name][0].as_f64().unwrap();
    assert!(
        rate(1, "hits") > rate(1, "refused") && rate(1, "refused") > 0.0,
        "{items}"
    );
    assert!(rate(1, "near") > 0.0, "{items}");
    assert!(
        rate(0, "hits") > 0.0 && rate(0, "refused") == 0.0,
        "{items}"
    );
    let many = "rule=a&".repeat(50);
    assert_eq!(
        flows.get(&format!("/v1/limits/series?{many}range=24h"))["items"],
        json!([])
    );
    for query in [
        "",
        "range=1h",
        "rule=a&range=1",
        "rule=a&limit=1",
        &format!("{many}rule=a"),
    ] {
        let path = format!("/v1/limits/series?{query}");
        let (status, code, _) = problem(&flows.ask("GET", &path, &[], ""));
        assert_eq!((status, code.as_str()), (422, "invalid_field"), "{query}");
    }
}
