//! Problems of single items of a request that has many.

use serde_json::{Value, json};

use super::NOBODY;
use crate::support::{Flows, workflow};

/// Path and detail of the problems of a batch's items.
const OF_A_BATCH: [[&str; 2]; 4] = [
    ["workflows[1].jobs[0].after[0]", "there is no job 'b'"],
    [
        "workflows[2].jobs[1].name",
        "'a' is also the name of an earlier job: give each job a name of its own",
    ],
    [
        "workflows[3].name",
        "a name must have 1 to 200 bytes and no control characters, and not be '.' or '..', but this is empty",
    ],
    [
        "workflows[4].name",
        "invalid type: integer `7`, expected a string",
    ],
];

/// Problems of the items of an answer to a request with the id order-17, which they all have.
fn problems_of_items(flows: &Flows, path: &str, body: &Value) -> Vec<Value> {
    let headers = [("x-request-id", "order-17")];
    let answer = flows.ask("POST", path, &headers, &body.to_string());
    let answer: Value = serde_json::from_str(&answer.body).unwrap();
    let lists = ["items", "reports", "leases"].map(|name| answer[name].as_array());
    let items = lists.into_iter().flatten().flatten();
    let problems: Vec<Value> = items
        .map(|item| item["error"].clone())
        .filter(|error| !error.is_null())
        .collect();
    for problem in &problems {
        assert_eq!(problem["request_id"], "order-17", "{problem}");
    }
    problems
}

/// A client may pass on one item without the others: its problem has the id of the request and one path, from the request's root.
#[test]
fn a_problem_of_an_item_is_whole_by_itself() {
    let flows = Flows::start();
    let mut twice = workflow("w", "a a");
    twice["jobs"][1]["queue"] = json!("q");
    let batch = json!({"workflows": [
        workflow("w", "a"), workflow("w", "a<b"), twice, workflow("", "a"), {"name": 7},
    ]});
    let problems = problems_of_items(&flows, "/v1/workflows:batch", &batch);
    let found: Vec<_> = problems
        .iter()
        .map(|problem| [&problem["path"], &problem["detail"]].map(|text| text.as_str().unwrap()))
        .collect();
    assert_eq!(found, OF_A_BATCH);
    let lost = format!("{NOBODY}-0-7066ddda7b6a22e8");
    let reports = json!({"reports": [{"lease": lost, "outcome": "succeeded"}]});
    assert_eq!(
        problems_of_items(&flows, "/v1/jobs/report", &reports).len(),
        1
    );
    let leases = json!({"leases": [lost]});
    assert_eq!(
        problems_of_items(&flows, "/v1/jobs/extend", &leases).len(),
        1
    );
}
