//! Limits with their use, who waits for them and who has their places.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{Flows, claimed, found, on_one_and_on_two};
use crate::cli::tidegate;
use crate::support::await_that;

fn create(flows: &Flows, queue: &str, tenant: &str, number: usize) {
    let limits = json!([
        {"domain": "vendor", "entries": [["tenant", "$.tenant"]]},
        {"concurrency": 2, "of": "queue", "entries": [["tenant", "$.tenant"]]},
    ]);
    let job = |at| json!({"name": format!("{tenant} {at}"), "handler": "call", "queue": queue, "limits": limits});
    let free = json!({"name": "free", "handler": "another", "queue": queue, "priority": 9});
    let jobs: Vec<Value> = (0..number).map(job).chain([free]).collect();
    flows.create(json!({"name": "calls", "globals": {"tenant": tenant}, "jobs": jobs}));
}

fn listed(flows: &Flows, query: &str) -> Value {
    found(flows.ask("GET", &format!("/v1/limits{query}"), &[], ""))
}

#[test]
fn limits_are_listed_with_their_use_waiters_and_holders() {
    on_one_and_on_two(|servers| {
        let (flows, other) = (&servers[0], servers.last().unwrap());
        assert_eq!(listed(flows, ""), json!({"items": [], "next_cursor": null}));
        for (queue, tenant, number) in [
            ("default", "acme", 5),
            ("default", "bell", 3),
            ("mail", "acme", 4),
        ] {
            create(flows, queue, tenant, number);
        }
        let mut all = Vec::new();
        await_that("places of the first queue are taken", || {
            all.extend(servers.iter().flat_map(claimed));
            all.len() >= 2 + 2 + 2
        });
        for flows in servers {
            let page = listed(flows, "");
            let items = page["items"].as_array().unwrap();
            let outline: Vec<Value> = items
                .iter()
                .map(|item| {
                    json!([
                        item["queue"],
                        item["handler"],
                        item["waiting"],
                        item["limits"][0]["entries"][0][1]
                    ])
                })
                .collect();
            assert_eq!(
                outline,
                [
                    json!(["default", "call", 3, "acme"]),
                    json!(["default", "call", 1, "bell"]),
                    json!(["mail", "call", 4, "acme"])
                ],
                "{page}"
            );
            let [rate, places] = [&items[0]["limits"][0], &items[0]["limits"][1]];
            assert_eq!(
                (&rate["use"]["used"], &rate["use"]["requests_per_unit"]),
                (&json!(2), &json!(10)),
                "{rate}"
            );
            assert_eq!(
                (&places["running"], &places["concurrency"], &places["of"]),
                (&json!(2), &json!(2), &json!("queue"))
            );
            assert_eq!(places["holders"].as_array().unwrap().len(), 2, "{places}");
            assert!(
                places["holders"][0]["job"]
                    .as_str()
                    .unwrap()
                    .starts_with("acme "),
                "{places}"
            );
            assert_eq!(items[0]["full"]["index"], 1, "{page}");
            assert_eq!(items[2]["full"], Value::Null, "nobody asks for this queue");
            assert!(
                items.iter().all(|item| item["oldest_ready_at"].is_string()),
                "{page}"
            );
        }
        let mail = listed(other, "?queue=mail");
        assert_eq!(
            (
                mail["items"].as_array().unwrap().len(),
                &mail["items"][0]["queue"]
            ),
            (1, &json!("mail"))
        );
        let (mut cursor, mut pages) = (String::new(), Vec::new());
        loop {
            let page = listed(other, &format!("?limit=1{cursor}"));
            pages.extend(page["items"].as_array().unwrap().clone());
            let Some(next) = page["next_cursor"].as_str() else {
                break;
            };
            cursor = format!("&cursor={next}");
        }
        assert_eq!(pages.len(), 3, "{pages:?}");
        for wrong in [
            "?cursor=0",
            "?cursor=zz",
            "?limit=101",
            "?limit=0",
            "?other=1",
        ] {
            let answer = other.ask("GET", &format!("/v1/limits{wrong}"), &[], "");
            assert!(
                [400, 422].contains(&answer.status),
                "{wrong}: {}",
                answer.body
            );
        }
        the_command_line_shows_them(other);
    });
}

fn the_command_line_shows_them(flows: &Flows) {
    let text = tidegate(flows, &["limit", "list", "-o", "table"]).out;
    assert!(
        text.contains("2 of 10 per hour") && text.contains("2 jobs at work"),
        "{text}"
    );
    let names = tidegate(flows, &["limit", "list", "-o", "name"]).out;
    assert!(
        names.starts_with("default  call  1 unit of vendor  tenant=acme  "),
        "{names}"
    );
    assert_eq!(names.lines().collect::<BTreeSet<_>>().len(), 3, "{names}");
}
