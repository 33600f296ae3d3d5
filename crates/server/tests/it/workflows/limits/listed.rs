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

/// Calls of two tenants in two queues; the places of the first queue are taken.
fn fill(servers: &[Flows]) {
    create(&servers[0], "default", "acme", 5);
    create(&servers[0], "default", "bell", 3);
    create(&servers[0], "mail", "acme", 4);
    let mut all = Vec::new();
    await_that("places of the first queue are taken", || {
        all.extend(servers.iter().flat_map(claimed));
        all.len() >= 2 + 2 + 2
    });
}

#[test]
fn limits_are_listed_with_their_use_waiters_and_holders() {
    on_one_and_on_two(|servers| {
        let empty = listed(&servers[0], "");
        assert_eq!(empty, json!({"items": [], "next_cursor": null}));
        fill(servers);
        servers.iter().for_each(check_list);
        the_command_line_shows_them(servers.last().unwrap());
    });
}

fn check_list(flows: &Flows) {
    let page = listed(flows, "");
    let items = page["items"].as_array().unwrap();
    let outline = |item: &Value| {
        let tenant = &item["limits"][0]["entries"][0][1];
        json!([item["queue"], item["handler"], item["waiting"], tenant])
    };
    let expected = json!([
        ["default", "call", 3, "acme"],
        ["default", "call", 1, "bell"],
        ["mail", "call", 4, "acme"],
    ]);
    assert_eq!(items.iter().map(outline).collect::<Value>(), expected);
    let [rate, places] = [&items[0]["limits"][0], &items[0]["limits"][1]];
    assert_eq!(rate["rule"], "vendor.tenant", "{rate}");
    assert_eq!(places["rule"], Value::Null, "{places}");
    assert_eq!(rate["use"]["used"], 2, "{rate}");
    assert_eq!(rate["use"]["requests_per_unit"], 10, "{rate}");
    let most = json!([places["running"], places["concurrency"], places["of"]]);
    assert_eq!(most, json!([2, 2, "queue"]));
    assert_eq!(places["holders"].as_array().unwrap().len(), 2, "{places}");
    let holder = places["holders"][0]["job"].as_str().unwrap();
    assert!(holder.starts_with("acme "), "{places}");
    assert_eq!(items[0]["full"]["index"], 1, "{page}");
    assert_eq!(items[2]["full"], Value::Null, "nobody asks for this queue");
    let since = |item: &Value| item["oldest_ready_at"].is_string();
    assert!(items.iter().all(since), "{page}");
}

#[test]
fn a_paused_limit_is_listed_with_its_author_and_reason() {
    on_one_and_on_two(|servers| {
        let flows = &servers[0];
        let pause = json!({"rule": "vendor.tenant", "pause": true, "reason": "they are down"});
        let path = "/v1/limits/overrides";
        found(flows.ask("PUT", path, &[], &pause.to_string()));
        create(flows, "default", "acme", 2);
        await_that("jobs wait for the paused limit", || {
            claimed(flows);
            let page = listed(flows, "");
            let full = &page["items"][0]["full"];
            full["index"] == 0 && full["paused"]["reason"] == "they are down"
        });
        let page = listed(flows, "");
        let paused = &page["items"][0]["full"]["paused"];
        let decided = json!([paused["by"], paused["until"], paused["rule"]]);
        assert_eq!(
            decided,
            json!(["anonymous", null, "vendor.tenant"]),
            "{page}"
        );
        let job = ["job", "show", "name:calls", "acme 0"];
        let shown: Value = serde_json::from_str(&tidegate(flows, &job).out).unwrap();
        let why = &shown["why_not_running"];
        let paused = json!({"by": "anonymous", "reason": "they are down"});
        assert_eq!(why["paused"], paused, "{shown}");
        let text = tidegate(flows, &[&job[..], &["-o", "table"]].concat()).out;
        assert!(
            text.contains("; paused by anonymous: they are down\n"),
            "{text}"
        );
    });
}

#[test]
fn limits_are_listed_by_queue_and_in_pages() {
    on_one_and_on_two(|servers| {
        fill(servers);
        let flows = servers.last().unwrap();
        let mail = listed(flows, "?queue=mail");
        assert_eq!(mail["items"].as_array().unwrap().len(), 1);
        assert_eq!(mail["items"][0]["queue"], "mail");
        let (mut cursor, mut items) = (String::new(), 0);
        loop {
            let page = listed(flows, &format!("?limit=1{cursor}"));
            items += page["items"].as_array().unwrap().len();
            let Some(next) = page["next_cursor"].as_str() else {
                break;
            };
            cursor = format!("&cursor={next}");
        }
        assert_eq!(items, 3);
        for wrong in ["cursor=0", "cursor=zz", "limit=101", "limit=0", "other=1"] {
            let answer = flows.ask("GET", &format!("/v1/limits?{wrong}"), &[], "");
            let refused = [400, 422].contains(&answer.status);
            assert!(refused, "{wrong}: {answer:?}");
        }
    });
}

fn the_command_line_shows_them(flows: &Flows) {
    let text = tidegate(flows, &["limit", "waiting", "-o", "table"]).out;
    assert!(
        text.contains("2 of 10 per hour") && text.contains("2 jobs at work"),
        "{text}"
    );
    let names = tidegate(flows, &["limit", "waiting", "-o", "name"]).out;
    assert!(
        names.starts_with("default  call  1 unit of vendor  tenant=acme  "),
        "{names}"
    );
    assert_eq!(names.lines().collect::<BTreeSet<_>>().len(), 3, "{names}");
}
