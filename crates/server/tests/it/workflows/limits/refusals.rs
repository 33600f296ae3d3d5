//! Keys that were refused.

use serde_json::{Value, json};

use super::{RULES, claimed, jobs, passes};
use crate::support::Limits;
use crate::workflows::{Flows, problem};

#[test]
fn refusals_are_counted_for_each_key_and_caller() {
    let limits = Limits::new(RULES);
    let flows = Flows::start(&[("RUNTIME_ROOT", limits.root())]);
    assert_eq!(flows.get("/v1/limits/refusals")["items"], json!([]));
    let passed = (0..14).filter(|_| passes(&flows, "tenant", "acme")).count();
    assert_eq!(passed, 10);
    for _ in 0..3 {
        passes(&flows, "watched", "x");
    }
    flows.create(jobs("tenant", "acme", 1));
    assert!(claimed(&flows).is_empty());
    let found = flows.get("/v1/limits/refusals?range=15m&rule=vendor.tenant");
    let items = found["items"].as_array().unwrap();
    assert_eq!((items.len(), &found["keys"]), (2, &json!(2)), "{found}");
    let by = |caller: &str| items.iter().find(|item| item["caller"] == caller).unwrap();
    let request = by("request");
    let total = |item: &Value| {
        let points = item["points"].as_array().unwrap();
        points.iter().filter_map(Value::as_u64).sum::<u64>()
    };
    assert_eq!((&request["count"], total(request)), (&json!(4), 4));
    assert_eq!(request["entries"], json!([["tenant", "acme"]]));
    assert_eq!(request["share"], json!(0.286));
    assert_eq!(request["line"], 3);
    let file = request["file"].as_str().unwrap();
    assert!(file.ends_with(".yaml"), "{file}");
    let job = by("job");
    assert!(total(job) >= 1 && job["share"].is_null(), "{job}");
    // In shadow mode, nothing is refused.
    assert_eq!(
        flows.get("/v1/limits/refusals?rule=vendor.watched")["keys"],
        0
    );
    for query in ["range=1", "rule=a&rule=b", "limit=1"] {
        let path = format!("/v1/limits/refusals?{query}");
        let (status, code, _) = problem(&flows.ask("GET", &path, &[], ""));
        assert_eq!((status, code.as_str()), (422, "invalid_field"), "{query}");
    }
}
