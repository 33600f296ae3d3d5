//! Many workflows: batches, keys, pages, numbers.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{Flows, on_each_store, problem, workflow};

#[test]
fn a_batch_creates_what_is_right() {
    on_each_store(|flows| {
        let right = [workflow("one", "a b<a"), workflow("two", "a")];
        let created = flows.post("/v1/workflows:batch", json!({"workflows": right}));
        assert!(
            created["items"]
                .as_array()
                .unwrap()
                .iter()
                .all(|item| item["existing"] == false),
            "{created}"
        );
        let wrong = json!([right[0], workflow("w", "a<b"), {"name": "w", "jobs": [{"handler": 1}]}, right[1]]);
        let items = flows.post("/v1/workflows:batch", json!({"workflows": wrong}))["items"].clone();
        assert_eq!(
            (&items[1]["error"]["code"], &items[1]["error"]["path"]),
            (
                &json!("unknown_dependency"),
                &json!("workflows[1].jobs[0].after[0]")
            )
        );
        assert_eq!(items[2]["error"]["path"], "workflows[2].jobs[0].handler");
        let statuses = |items: &Value| {
            items
                .as_array()
                .unwrap()
                .iter()
                .map(|item| item["status"].clone())
                .collect::<Vec<_>>()
        };
        assert_eq!(
            statuses(&items),
            [201, 422, 422, 201].map(|status| json!(status))
        );
        assert!(
            items[0]["id"].is_string() && items[3]["id"].is_string(),
            "{items}"
        );
        assert_eq!(flows.get("/v1/workflows:count")["total"], 4);
        let by_name = flows.get("/v1/workflows:count?by=name");
        assert_eq!(by_name["by_name"]["one"]["running"], 2, "{by_name}");
    });
}

/// All queues were in one answer, which failed when there were many.
#[test]
fn queues_are_listed_in_pages() {
    on_each_store(|flows| {
        let job = |at: usize| json!({"name": format!("j{at}"), "handler": "h", "queue": format!("q/{at:03} ü")});
        flows.create(json!({"name": "wide", "jobs": (0..150).map(job).collect::<Vec<_>>()}));
        let (mut all, mut cursor) = (Vec::new(), String::new());
        loop {
            let page = flows.get(&format!("/v1/queues?limit=70{cursor}"));
            all.extend(page["items"].as_array().unwrap().clone());
            let Some(next) = page["next_cursor"].as_str() else {
                break;
            };
            assert_eq!(all.len() % 70, 0);
            cursor = format!(
                "&cursor={}",
                next.replace('/', "%2F")
                    .replace(' ', "%20")
                    .replace('ü', "%C3%BC")
            );
        }
        let names: Vec<&str> = all
            .iter()
            .map(|queue| queue["name"].as_str().unwrap())
            .collect();
        assert_eq!(
            (names.len(), names[0], names[149]),
            (150, "q/000 ü", "q/149 ü")
        );
        assert!(names.is_sorted() && all.iter().all(|queue| queue["ready"] == 1));
        assert_eq!(
            flows.get("/v1/queues")["items"].as_array().unwrap().len(),
            100
        );
        assert_eq!(
            problem(&flows.ask("GET", "/v1/queues?cursor=%00", &[], "")).1,
            "invalid_cursor"
        );
        assert_eq!(
            problem(&flows.ask("GET", "/v1/queues?limit=0", &[], "")).2,
            "limit"
        );
        assert_eq!(flows.get("/v1/queues?cursor=zzz")["items"], json!([]));
    });
}

/// All names were counted in one call, which took minutes when there were many.
#[test]
fn workflows_are_counted_by_name_in_pages() {
    on_each_store(|flows| {
        let tagged = |at: usize| {
            let mut body = workflow(&format!("w{at:03}"), "a");
            body["tags"] = json!(["t"]);
            body
        };
        flows.post(
            "/v1/workflows:batch",
            json!({"workflows": (0..150).map(tagged).collect::<Vec<_>>()}),
        );
        for filter in ["", "&tag=t"] {
            let (mut names, mut cursor, mut pages) = (Vec::new(), String::new(), 0);
            loop {
                let page = flows.get(&format!(
                    "/v1/workflows:count?by=name&limit=70{filter}{cursor}"
                ));
                assert_eq!(
                    (&page["total"], &page["by_status"]["running"]),
                    (&json!(150), &json!(150))
                );
                names.extend(page["by_name"].as_object().unwrap().keys().cloned());
                pages += 1;
                let Some(next) = page["next_cursor"].as_str() else {
                    break;
                };
                cursor = format!("&cursor={next}");
            }
            assert_eq!((names.len(), pages), (150, 3), "{filter}");
            assert!(names.is_sorted_by(|one, other| one < other));
            let first = flows.get(&format!("/v1/workflows:count?by=name{filter}"));
            assert_eq!(first["by_name"].as_object().unwrap().len(), 100);
        }
        assert_eq!(flows.get("/v1/workflows:count").get("next_cursor"), None);
        assert_eq!(
            problem(&flows.ask("GET", "/v1/workflows:count?by=name&cursor=%00", &[], "")).1,
            "invalid_cursor"
        );
        assert_eq!(
            problem(&flows.ask("GET", "/v1/workflows:count?limit=5", &[], "")).2,
            "limit"
        );
    });
}

#[test]
fn a_key_creates_one_workflow() {
    on_each_store(|flows| {
        let body = workflow("w", "a").to_string();
        let create = |key: &str, body: &str| {
            flows.ask("POST", "/v1/workflows", &[("idempotency-key", key)], body)
        };
        let first = create("order/17", &body);
        assert_eq!(first.status, 201);
        let id = serde_json::from_str::<Value>(&first.body).unwrap()["id"].clone();
        assert_eq!(
            first.header("location"),
            Some(&*format!("/v1/workflows/{}", id.as_str().unwrap()))
        );
        let mut with_field = workflow("w", "a");
        with_field["idempotency_key"] = json!("order/17");
        let second = flows.ask("POST", "/v1/workflows", &[], &with_field.to_string());
        assert_eq!(second.status, 200);
        let second: Value = serde_json::from_str(&second.body).unwrap();
        assert_eq!(
            (&second["id"], &second["existing"], &second["status"]),
            (&id, &json!(true), &json!("running"))
        );
        for key in ["order/17", "order%2F17"] {
            assert_eq!(
                flows.get(&format!("/v1/workflows:byKey?key={key}"))["id"],
                id
            );
        }
        let again = flows.post("/v1/workflows:batch", json!({"workflows": [with_field]}));
        assert_eq!(
            again["items"],
            json!([{"status": 200, "id": id, "existing": true}])
        );
        let other = create("order/17", &workflow("w", "b").to_string());
        assert_eq!(problem(&other).1, "idempotency_mismatch");
        assert!(other.body.contains(id.as_str().unwrap()), "{}", other.body);
        assert_eq!(
            problem(&create("order/18", &with_field.to_string())).2,
            "idempotency_key"
        );
        assert_eq!(flows.get("/v1/workflows:count")["total"], 1);
    });
}

#[test]
fn pages_neither_miss_nor_repeat_while_others_create() {
    on_each_store(|flows| {
        let batch = |count: usize| {
            let all: Vec<Value> = (0..count).map(|_| workflow("w", "a")).collect();
            let items =
                flows.post("/v1/workflows:batch", json!({"workflows": all}))["items"].clone();
            items
                .as_array()
                .unwrap()
                .iter()
                .map(|item| item["id"].as_str().unwrap().to_owned())
                .collect::<BTreeSet<_>>()
        };
        let wanted = batch(95);
        let mut seen = Vec::new();
        let mut cursor = String::new();
        loop {
            let page = flows.get(&format!("/v1/workflows?limit=10&cursor={cursor}"));
            seen.extend(
                page["items"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(|item| item["id"].as_str().unwrap().to_owned()),
            );
            batch(3);
            match page["next_cursor"].as_str() {
                Some(next) => cursor = next.to_owned(),
                None => break,
            }
        }
        assert!(
            seen.is_sorted_by(|a, b| a > b),
            "the newest come first, and none twice"
        );
        assert_eq!(seen.into_iter().collect::<BTreeSet<_>>(), wanted);
    });
}

/// Ids of an older workflow that runs and has tags, and of a newer one that waits for its start.
fn tagged_and_manual(flows: &Flows) -> [String; 2] {
    let mut tagged = workflow("tagged", "a");
    tagged["tags"] = json!(["blue", "red"]);
    let mut manual = workflow("manual", "a");
    manual["start"] = json!("manual");
    [tagged, manual].map(|body| flows.create(body))
}

#[test]
fn lists_are_filtered_by_status_name_tag_and_time() {
    on_each_store(|flows| {
        let [old, new] = tagged_and_manual(flows);
        let created = flows.get(&format!("/v1/workflows/{new}"))["created_at"].take();
        let created = created.as_str().unwrap().replace(":", "%3A");
        let check = |query: &str, ids: &[&String]| {
            let page = flows.get(&format!("/v1/workflows?{query}"));
            let items = page["items"].as_array().unwrap().iter();
            let found: Vec<&str> = items.map(|item| item["id"].as_str().unwrap()).collect();
            assert_eq!(found, ids, "{query}");
        };
        check("order=oldest", &[&old, &new]);
        check("status=pending,failed", &[&new]);
        check("status=running", &[&old]);
        check("name=tagged", &[&old]);
        check("tag=red", &[&old]);
        check("tag=green", &[]);
        check(&format!("created_after={created}"), &[&new]);
        check("created_before=2001-01-01T00:00:00Z", &[]);
        let before = "created_before=9999-12-31T23:59:59Z&order=oldest";
        check(before, &[&old, &new]);
        check(&format!("id_prefix={new}"), &[&new]);
        let prefix = old[..4].to_lowercase();
        check(&format!("id_prefix={prefix}&order=oldest"), &[&old, &new]);
        let prefix = &old[..4];
        check(&format!("id_prefix={prefix}&name=tagged&tag=red"), &[&old]);
        check(&format!("id_prefix={old}&status=pending"), &[]);
        check("id_prefix=0000", &[]);
        check("id_prefix=dead", &[]);
        check("status=running&tag=blue&name=tagged", &[&old]);
    });
}

#[test]
fn counts_are_filtered_as_lists_are() {
    on_each_store(|flows| {
        let [_, new] = tagged_and_manual(flows);
        let count = |query: &str| flows.get(&format!("/v1/workflows:count?{query}"));
        assert_eq!(count(&format!("id_prefix={new}"))["total"], 1);
        assert_eq!(count("name=manual")["by_status"]["pending"], 1);
        let twice = count("status=running,running");
        assert_eq!(twice["total"], 1);
        assert_eq!(twice["by_status"], json!({"running": 1}));
        assert_eq!(count("tag=blue&name=manual")["total"], 0);
        let by_name = &count("by=name&tag=blue")["by_name"];
        assert_eq!(by_name["tagged"]["running"], 1);
        assert_eq!(by_name["manual"], Value::Null);
    });
}

#[test]
fn a_cursor_is_a_place_in_every_list_of_workflows() {
    on_each_store(|flows| {
        let ids: Vec<String> = (0..6)
            .map(|at| flows.create(workflow(["even", "odd"][at % 2], "a")))
            .collect();
        let page = |query: &str| {
            let page = flows.get(&format!("/v1/workflows?{query}"));
            let found: Vec<String> = page["items"]
                .as_array()
                .unwrap()
                .iter()
                .map(|item| item["id"].as_str().unwrap().to_owned())
                .collect();
            (
                found,
                page["next_cursor"].as_str().unwrap_or_default().to_owned(),
            )
        };
        let (found, cursor) = page("limit=2");
        assert_eq!(found, [ids[5].clone(), ids[4].clone()]);
        assert_eq!(
            page(&format!("name=odd&cursor={cursor}")).0,
            [ids[3].clone(), ids[1].clone()]
        );
        assert_eq!(
            page(&format!("order=oldest&cursor={cursor}")).0,
            [ids[5].clone()]
        );
    });
}

#[test]
fn a_small_page_for_a_name_and_a_tag_looks_past_many_others() {
    on_each_store(|flows| {
        let tagged = |name: &str| {
            let mut body = workflow(name, "a");
            body["tags"] = json!(["x"]);
            body
        };
        let many: Vec<Value> = (0..150).map(|_| tagged("other")).collect();
        flows.post("/v1/workflows:batch", json!({"workflows": many}));
        let ids = [(); 3].map(|()| flows.create(tagged("mine")));
        let (mut found, mut cursor) = (Vec::new(), String::new());
        for _ in 0..3 {
            let page = flows.get(&format!(
                "/v1/workflows?name=mine&tag=x&order=oldest&limit=1&cursor={cursor}"
            ));
            found.extend(
                page["items"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(|item| item["id"].as_str().unwrap().to_owned()),
            );
            cursor = page["next_cursor"].as_str().unwrap_or_default().to_owned();
        }
        assert_eq!((found, cursor), (ids.to_vec(), String::new()));
    });
}

#[test]
fn a_count_tells_a_moment_that_parts_the_counted_from_the_later_ones() {
    on_each_store(|flows| {
        let old = flows.create(workflow("w", "a"));
        let counted = flows.get("/v1/workflows:count?by=name");
        let new = flows.create(workflow("w", "a"));
        let as_of = counted["as_of"].as_str().unwrap();
        let page = flows.get(&format!("/v1/workflows?created_before={as_of}"));
        assert_eq!(
            (&page["items"][0]["id"], &page["items"][1]),
            (&json!(old), &Value::Null)
        );
        let cancel = json!({"action": "cancel", "filter": {"created_before": as_of}});
        assert_eq!(flows.post("/v1/workflows:bulk", cancel)["done"], 1);
        assert_eq!(
            flows.get(&format!("/v1/workflows/{new}"))["status"],
            "running"
        );
    });
}

/// The page asked for the jobs of each workflow to show its error.
#[test]
fn lists_have_the_first_error_and_running_jobs() {
    on_each_store(|flows| {
        // Eight jobs are in one value with the workflow, twenty are not.
        for (number, name) in [(5, "small"), (20, "large")] {
            let names: Vec<String> = (0..number).map(|job| format!("j{job}")).collect();
            let id = flows.create(workflow(name, &names.join(" ")));
            let item = |query: &str| {
                let list = flows.get(&format!("/v1/workflows?{query}"));
                let items = list["items"].as_array().unwrap().clone();
                items.into_iter().find(|item| item["id"] == id).unwrap()
            };
            let fields = |item: &Value| (item.get("error").cloned(), item.get("running").cloned());
            assert_eq!(fields(&item("")), (None, None), "{name}");
            let jobs = flows.claim(number);
            let running = Some(json!(["j0", "j1", "j2"]));
            assert_eq!(fields(&item("")), (None, running), "{name}");
            let job = |name: &str| jobs.iter().find(|job| job["job"] == name).unwrap();
            let error = json!({"kind": "Late", "message": "é".repeat(500)});
            let report = json!({"lease": job("j3")["lease"], "outcome": "failed", "error": error, "retry": "never"});
            flows.post("/v1/jobs/report", json!({"reports": [report]}));
            flows.fail(job("j1"));
            let failed = json!({"job": "j3", "kind": "Late", "message": "é".repeat(200)});
            let running = json!(["j0", "j2", "j4"]);
            let all = (Some(failed), Some(running));
            assert_eq!(fields(&item("")), all, "{name}");
            assert_eq!(fields(&item("limit=100")), all, "{name}");
            assert_eq!(fields(&item("limit=101")), (None, None), "{name}");
            for job in jobs
                .iter()
                .filter(|job| !["j1", "j3"].iter().any(|name| job["job"] == *name))
            {
                flows.succeed(job, json!(null));
            }
            assert_eq!(fields(&item("status=failed")), (all.0, None), "{name}");
        }
    });
}

#[test]
fn jobs_are_listed_by_state_in_pages() {
    let flows = Flows::start(&[]);
    let names: Vec<String> = (0..25).map(|job| format!("j{job}")).collect();
    let id = flows.create(workflow("w", &format!("{} end<j0", names.join(" "))));
    flows.claim(1);
    let mut cursor = String::new();
    let mut seen = Vec::new();
    loop {
        let page = flows.get(&format!(
            "/v1/workflows/{id}/jobs?state=ready,waiting&limit=10&cursor={cursor}"
        ));
        seen.extend(
            page["items"]
                .as_array()
                .unwrap()
                .iter()
                .map(|job| job["index"].as_u64().unwrap()),
        );
        let Some(next) = page["next_cursor"].as_str() else {
            break;
        };
        cursor = next.to_owned();
    }
    assert_eq!(
        (seen.len(), seen.is_sorted(), seen.last()),
        (25, true, Some(&25))
    );
}

/// A page of a thousand jobs with thousands of long names beside them took 2.7 GB, and was refused then.
#[test]
fn a_page_of_jobs_ends_before_it_is_long() {
    const MOST: usize = 8 << 20;
    let flows = Flows::start(&[]);
    let after: Vec<String> = (0..400).map(|job| format!("after{job}")).collect();
    // Two bytes of JSON for each quotation mark.
    let first = |job| json!({"handler": "h", "name": format!("{job:03}{}", "\"".repeat(197)), "before": after});
    let last = |name: &String| json!({"handler": "h", "name": name});
    let jobs: Vec<Value> = (0..100).map(first).chain(after.iter().map(last)).collect();
    let id = flows.create(json!({"name": "w", "jobs": jobs}));
    for state in ["", "state=waiting,ready&"] {
        let (mut cursor, mut seen, mut pages) = (String::new(), Vec::new(), 0);
        loop {
            let path = format!("/v1/workflows/{id}/jobs?{state}limit=1000&cursor={cursor}");
            let answer = flows.ask("GET", &path, &[], "");
            assert!(
                answer.status == 200 && answer.body.len() <= MOST + 1_000,
                "{}",
                answer.body.len()
            );
            let page: Value = serde_json::from_str(&answer.body).unwrap();
            seen.extend(
                page["items"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(|job| job["index"].as_u64().unwrap()),
            );
            pages += 1;
            let Some(next) = page["next_cursor"].as_str() else {
                break;
            };
            cursor = next.to_owned();
        }
        assert!(
            pages > 3 && seen == (0..500).collect::<Vec<_>>(),
            "{pages} pages, {} jobs",
            seen.len()
        );
    }
}
