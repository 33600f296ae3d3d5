//! Workflows by a text.

use serde_json::{Value, json};

use super::{Flows, on_each_store, problem, workflow};
use crate::support::Limits;

/// Ids of a page.
fn ids(page: &Value) -> Vec<String> {
    let items = page["items"].as_array().unwrap().iter();
    items
        .map(|item| item["id"].as_str().unwrap().to_owned())
        .collect()
}

/// Creates workflows of one name.
fn many(flows: &Flows, name: &str, number: usize) {
    for batch in (0..number).collect::<Vec<_>>().chunks(500) {
        let all: Vec<Value> = batch.iter().map(|_| workflow(name, "a")).collect();
        flows.post("/v1/workflows:batch", json!({"workflows": all}));
    }
}

/// Workflows with a text in the name, a tag, the key and the error, in this order.
fn one_of_each(flows: &Flows) -> [String; 4] {
    let mut tagged = workflow("tagged", "a");
    tagged["tags"] = json!(["Blue", "red"]);
    let mut keyed = workflow("keyed", "a");
    keyed["idempotency_key"] = json!("order/17");
    let named = flows.create(workflow("Nightly-Report", "a"));
    let [tagged, keyed] = [tagged, keyed].map(|body| flows.create(body));
    let failed = flows.create(workflow("failed", "charge"));
    for job in flows.claim(10) {
        let error = json!({"kind": "CardDeclined", "message": "limit of Acme reached"});
        let failure =
            json!({"lease": job["lease"], "outcome": "failed", "error": error, "retry": "never"});
        if job["job"] == "charge" {
            flows.post("/v1/jobs/report", json!({"reports": [failure]}));
        }
    }
    [named, tagged, keyed, failed]
}

#[test]
fn workflows_are_found_by_name_tag_key_error_and_id() {
    on_each_store(|flows| {
        let [named, tagged, keyed, failed] = one_of_each(flows);
        let check = |query: &str, expected: &[&String]| {
            let page = flows.get(&format!("/v1/workflows?{query}"));
            assert_eq!(
                ids(&page),
                expected.iter().map(|id| (*id).clone()).collect::<Vec<_>>(),
                "{query}"
            );
            assert_eq!(
                (&page["older"], &page["next_cursor"]),
                (&json!(false), &Value::Null),
                "{query}"
            );
            let query = query.replace("&order=oldest", "");
            let count = flows.get(&format!("/v1/workflows:count?{query}"));
            assert_eq!(
                (&count["total"], &count["older"]),
                (&json!(expected.len()), &json!(false)),
                "{query}"
            );
        };
        check("q=report", &[&named]);
        check("q=NIGHTLY", &[&named]);
        check("q=blu", &[&tagged]);
        check("q=Blue", &[&tagged]);
        check("q=order/17", &[&keyed]);
        check("q=order/1", &[]);
        check("q=charge", &[&failed]);
        check("q=carddecl", &[&failed]);
        check("q=of+acme", &[&failed]);
        check("q=fa", &[&failed]);
        check("q=ed", &[&failed, &keyed, &tagged]);
        check("q=ed&order=oldest", &[&tagged, &keyed, &failed]);
        check("q=ed&status=running", &[&keyed, &tagged]);
        check("q=ed&tag=red", &[&tagged]);
        check("q=red", &[&tagged]);
        check("q=red&name=tagged", &[&tagged]);
        check("q=ed&name=keyed", &[&keyed]);
        check(&format!("q={tagged}"), &[&tagged]);
        check(&format!("q={}", tagged.to_lowercase()), &[&tagged]);
        check(&format!("q={tagged}&status=failed"), &[]);
        check("q=nowhere", &[]);
        check(&format!("q=ed&ids={keyed},{named}"), &[&keyed]);
        check("q=ed&range=1h", &[&failed, &keyed, &tagged]);
        check("q=report&created_before=2001-01-01T00:00:00Z", &[]);
    });
}

#[test]
fn a_text_or_a_cursor_that_cannot_be_read_is_refused() {
    on_each_store(|flows| {
        let [_, tagged, ..] = one_of_each(flows);
        for query in [
            "q=%00",
            "q=a&range=1",
            "ids=1",
            &format!("q={}", "a".repeat(201)),
        ] {
            let path = format!("/v1/workflows?{query}");
            assert_eq!(
                problem(&flows.ask("GET", &path, &[], "")).1,
                "invalid_field",
                "{query}"
            );
        }
        for cursor in [&tagged, "start"] {
            let path = format!("/v1/workflows?q=a&cursor={cursor}");
            assert_eq!(
                problem(&flows.ask("GET", &path, &[], "")).1,
                "invalid_cursor"
            );
        }
    });
}

#[test]
fn times_and_ids_filter_lists_counts_and_actions() {
    on_each_store(|flows| {
        let names = ["v", "w", "v", "v"].into_iter();
        let all: Vec<String> = names
            .map(|name| flows.create(workflow(name, "a")))
            .collect();
        let chosen = format!("ids={},{},{}", all[2], all[0], all[2]);
        let page = flows.get(&format!("/v1/workflows?{chosen}&limit=1"));
        assert_eq!(ids(&page), [all[2].clone()]);
        let next = page["next_cursor"].as_str().unwrap();
        let page = flows.get(&format!("/v1/workflows?{chosen}&cursor={next}"));
        assert_eq!(
            (ids(&page), &page["next_cursor"]),
            (vec![all[0].clone()], &Value::Null)
        );
        let count =
            |query: &str| flows.get(&format!("/v1/workflows:count?{query}"))["total"].clone();
        assert_eq!(count(&chosen), 2);
        assert_eq!(count(&format!("ids={},{}", all[0], all[1])), 2, "two names");
        assert_eq!(count(&format!("{chosen}&status=failed")), 0);
        assert_eq!(count("range=1h"), 4);
        assert_eq!(count("range=1us"), 0);
        let bulk = |filter: Value| {
            flows.post(
                "/v1/workflows:bulk",
                json!({"action": "cancel", "filter": filter}),
            )["done"]
                .clone()
        };
        assert_eq!(bulk(json!({"range": "1us"})), 0);
        assert_eq!(
            bulk(json!({"range": "1h", "status": "running", "ids": [all[0], all[3]]})),
            2
        );
        assert_eq!(
            bulk(json!({"range": "1h", "status": "running", "ids": all})),
            2
        );
        for filter in [
            json!({"ids": []}),
            json!({"q": ""}),
            json!({"q": " \u{2003} "}),
        ] {
            let empty = json!({"action": "cancel", "filter": filter});
            let refused = flows.refused("/v1/workflows:bulk", empty);
            assert_eq!(refused.1, "invalid_field", "{filter}");
        }
    });
}

/// Each page of a text that is in the names of some and in the tags of others.
#[test]
fn pages_of_a_search_have_each_match_once() {
    on_each_store(|flows| {
        let mut expected = Vec::new();
        for number in 0..60 {
            let name = ["other", "order", "plain"][number % 3];
            let mut body = workflow(name, "a");
            let tag = ["eu-orders", "orders", "none"][number % 3];
            body["tags"] = json!([tag]);
            let id = flows.create(body);
            if number % 3 < 2 {
                expected.push(id);
            }
        }
        for order in ["oldest", "newest"] {
            for limit in [1, 7, 40, 100] {
                let (mut found, mut cursor) = (Vec::new(), String::new());
                loop {
                    let path = format!(
                        "/v1/workflows?q=ORDER&order={order}&limit={limit}&cursor={cursor}"
                    );
                    let page = flows.get(&path);
                    found.extend(ids(&page));
                    let Some(next) = page["next_cursor"].as_str() else {
                        break;
                    };
                    cursor = next.to_owned();
                }
                assert_eq!(found, expected, "{order} {limit}");
            }
            expected.reverse();
        }
        let bulk = |limit: usize| json!({"action": "cancel", "filter": {"q": "order", "status": "running"}, "limit": limit});
        let some = flows.post("/v1/workflows:bulk", bulk(15));
        assert_eq!((&some["done"], &some["more"]), (&json!(15), &json!(true)));
        let rest = flows.post("/v1/workflows:bulk", bulk(1_000));
        assert_eq!((&rest["done"], &rest["more"]), (&json!(25), &json!(false)));
        assert_eq!(flows.get("/v1/workflows:count?status=running")["total"], 20);
    });
}

/// All pages of a query; `between` is called after the first.
fn pages(flows: &Flows, query: &str, between: impl FnOnce()) -> Vec<String> {
    let (mut found, mut cursor, mut between) = (Vec::new(), String::new(), Some(between));
    loop {
        let page = flows.get(&format!("/v1/workflows?{query}&cursor={cursor}"));
        found.extend(ids(&page));
        if let Some(between) = between.take() {
            between();
        }
        let Some(next) = page["next_cursor"].as_str() else {
            return found;
        };
        cursor = next.to_owned();
    }
}

#[test]
fn names_that_appear_between_pages_move_no_match() {
    on_each_store(|flows| {
        let mut expected: Vec<String> = (0..120)
            .map(|at| flows.create(workflow(&format!("etl-{:02}", at % 40), "a")))
            .collect();
        let new = ["etl", "etl!a", "etl!b", "an-etl"];
        let found = pages(flows, "q=etl&limit=10", || {
            new.iter()
                .for_each(|name| drop(flows.create(workflow(name, "a"))));
        });
        let mut old: Vec<String> = found
            .iter()
            .filter(|id| expected.contains(id))
            .cloned()
            .collect();
        old.sort();
        expected.sort();
        assert_eq!(old, expected);
    });
}

/// Each has a definition of some kB, and one read of them takes a part of these.
#[test]
fn errors_of_many_larger_workflows_are_found() {
    on_each_store(|flows| {
        let text = "x".repeat(20_000);
        let large = json!({"name": "large", "jobs": [
            {"name": "a", "handler": "Handler"},
            {"name": "b", "handler": "Handler", "after": "a", "params": {"text": text}},
        ]});
        for _ in 0..80 {
            flows.create(large.clone());
        }
        let error = json!({"kind": "Zebra", "message": "no"});
        for job in flows.claim(100) {
            let failed = json!({"lease": job["lease"], "outcome": "failed", "error": error, "retry": "never"});
            flows.post("/v1/jobs/report", json!({"reports": [failed]}));
        }
        for limit in [7, 100, 1_000] {
            let found = pages(flows, &format!("q=zebra&limit={limit}"), || {});
            assert_eq!(found.len(), 80, "{limit}");
        }
        let count = flows.get("/v1/workflows:count?q=zebra");
        assert_eq!(
            (&count["total"], &count["older"]),
            (&json!(80), &json!(false))
        );
        let retry = json!({"action": "retry", "filter": {"q": "zebra", "status": "failed"}});
        assert_eq!(flows.post("/v1/workflows:bulk", retry)["done"], 80);
    });
}

#[test]
fn limits_are_found_with_their_domain_and_entries() {
    let limits = Limits::new(
        "domain: shop\ndescriptors:\n  - key: plan\n    value: very free\n    descriptors:\n      - key: user\n        rate_limit: {unit: day, requests_per_unit: 1}\n",
    );
    let flows = Flows::start(&[("RUNTIME_ROOT", limits.root())]);
    for text in ["plan%3Dvery+free+user", "SHOP.plan", "free"] {
        let found = flows.get(&format!("/v1/search?q={text}"));
        let limit = json!({
            "kind": "limit", "name": "plan=very free user", "path": "shop.plan_very free.user",
            "domain": "shop", "entries": [["plan", "very free"], ["user", ""]],
        });
        assert_eq!(found["items"], json!([limit]), "{text}");
    }
}

#[test]
fn a_search_goes_on_behind_the_newest_ten_thousand() {
    on_each_store(|flows| {
        let [named, tagged, keyed, failed] = one_of_each(flows);
        many(flows, "other", 10_100);
        let page = |query: &str| flows.get(&format!("/v1/workflows?{query}"));
        for (text, id) in [("report", &named), ("Blue", &tagged), ("order/17", &keyed)] {
            assert_eq!(
                ids(&page(&format!("q={text}"))),
                std::slice::from_ref(id),
                "{text} is in the index"
            );
            assert_eq!(
                flows.get(&format!("/v1/workflows:count?q={text}"))["total"],
                1
            );
        }
        for (text, id) in [("blu", &tagged), ("acme", &failed)] {
            let first = page(&format!("q={text}"));
            let shown = (&first["items"], &first["searched"], &first["older"]);
            assert_eq!(shown, (&json!([]), &json!(10_000), &json!(true)), "{text}");
            let next = first["next_cursor"].as_str().unwrap();
            let second = page(&format!("q={text}&cursor={next}"));
            assert_eq!(
                (ids(&second), &second["older"]),
                (vec![id.clone()], &json!(false)),
                "{text}"
            );
            assert_eq!(second["next_cursor"], Value::Null);
        }
        let count = flows.get("/v1/workflows:count?q=other");
        assert_eq!(
            (&count["total"], &count["older"]),
            (&json!(10_100), &json!(true))
        );
    });
}

#[test]
fn everything_is_found_by_a_text() {
    on_each_store(|flows| {
        let [named, tagged, keyed, failed] = one_of_each(flows);
        let search = |text: &str| flows.get(&format!("/v1/search?q={text}"));
        let first = |text: &str| search(text)["items"][0].clone();
        assert_eq!(
            first("nightly-report"),
            json!({"kind": "name", "name": "Nightly-Report"})
        );
        let of = |id: &str, name: &str, status: &str| json!({"kind": "workflow", "name": name, "id": id, "status": status});
        assert_eq!(
            search("nightly")["items"][1],
            of(&named, "Nightly-Report", "running")
        );
        assert_eq!(first("order/17"), of(&keyed, "keyed", "running"));
        assert_eq!(
            first(&failed.to_lowercase()),
            of(&failed, "failed", "failed")
        );
        assert_eq!(
            search("acme")["items"],
            json!([of(&failed, "failed", "failed")])
        );
        let blue = json!([{"kind": "tag", "name": "Blue"}, of(&tagged, "tagged", "running")]);
        assert_eq!(search("blu"), json!({"items": blue, "more": false}));
        assert_eq!(first("defaul"), json!({"kind": "queue", "name": "default"}));
        assert_eq!(
            first("handle"),
            json!({"kind": "handler", "name": "Handler"})
        );
        assert_eq!(search("nowhere"), json!({"items": [], "more": false}));
        for path in ["/v1/search", "/v1/search?q=+", "/v1/search?q=a&x=1"] {
            assert_eq!(problem(&flows.ask("GET", path, &[], "")).0, 422, "{path}");
        }
        for number in 0..30 {
            flows.create(workflow(&format!("many-{number}"), "a"));
        }
        let many = search("many");
        let items = many["items"].as_array().unwrap();
        assert_eq!(
            (items.len(), &many["more"]),
            (16, &json!(true)),
            "eight names, eight workflows"
        );
    });
}
