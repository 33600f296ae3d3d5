//! What operators do to workflows, jobs and queues.

use serde_json::{Value, json};

use super::{Flows, on_each_store, workflow};
use crate::support::await_that;

fn job(flows: &Flows, id: &str, name: &str) -> Value {
    flows.get(&format!("/v1/workflows/{id}/jobs/{name}"))
}

#[test]
fn a_job_says_why_it_does_not_run() {
    let flows = Flows::start(&[]);
    let mut body = workflow("w", "a b<a late");
    body["start"] = json!("manual");
    body["jobs"][2]["wait"] = json!("1h");
    let id = flows.create(body);
    let reason = |name: &str| job(&flows, &id, name)["why_not_running"]["reason"].clone();
    let act =
        |verb: &str| flows.post(&format!("/v1/workflows/{id}:{verb}"), json!({}))["status"].clone();
    assert_eq!(reason("a"), "not_started");
    assert_eq!(act("start"), "running");
    assert_eq!(
        (reason("a"), reason("late")),
        (json!("no_worker"), json!("until"))
    );
    flows.post(
        "/v1/jobs/claim",
        json!({"queues": ["default"], "handlers": ["other"], "worker": "w-2"}),
    );
    assert_eq!(reason("a"), "no_handler");
    let listed = flows.get(&format!("/v1/workflows/{id}/jobs?limit=1"));
    assert_eq!(
        listed["items"][0]["why_not_running"]["reason"],
        "no_handler"
    );
    assert_eq!(
        job(&flows, &id, "b")["why_not_running"]["jobs"],
        json!(["a"])
    );
    assert_eq!(act("pause"), "paused");
    assert_eq!(reason("a"), "workflow_paused");
    assert!(flows.claim(9).is_empty());
    assert_eq!(act("resume"), "running");
    assert_eq!(
        flows.post("/v1/queues/default:pause", json!({})),
        json!({"name": "default", "paused": true})
    );
    assert_eq!(reason("a"), "queue_paused");
    assert!(flows.claim(9).is_empty());
    assert_eq!(flows.get("/v1/queues")["items"][0]["paused"], true);
    flows.post("/v1/queues/default:resume", json!({}));
    assert_eq!(reason("a"), "in_queue", "somebody has just asked");
    let taken = flows.claim(9).pop().unwrap();
    assert_eq!(reason("a"), Value::Null);
    flows.fail(&taken);
    let blocked = job(&flows, &id, "b");
    assert_eq!(
        (&blocked["blocked"], &blocked["why_not_running"]["reason"]),
        (&json!(true), &json!("blocked_by"))
    );
}

#[test]
fn a_worker_that_waits_for_one_queue_serves_no_other() {
    let flows = Flows::start(&[]);
    std::thread::scope(|scope| {
        let claim = json!({"queues": ["other"], "worker": "w", "wait": "20s"});
        let waiting = scope.spawn(|| flows.post("/v1/jobs/claim", claim));
        await_that("the worker is known", || {
            !flows.get("/v1/workers")["items"]
                .as_array()
                .unwrap()
                .is_empty()
        });
        for _ in 0..3 {
            let id = flows.create(workflow("w", "a"));
            assert_eq!(
                job(&flows, &id, "a")["why_not_running"]["reason"],
                "no_worker"
            );
        }
        flows.create(
            json!({"name": "o", "jobs": [{"name": "a", "handler": "h", "queue": "other"}]}),
        );
        assert_eq!(waiting.join().unwrap()["jobs"].as_array().unwrap().len(), 1);
    });
}

#[test]
fn failed_workflows_are_mended_by_retry_skip_and_mark() {
    on_each_store(|flows| {
        let id = flows.create(workflow("w", "a b<a c<b"));
        let path = format!("/v1/workflows/{id}");
        assert_eq!(flows.fail(&flows.claim(1)[0])["workflow_status"], "failed");
        assert_eq!(
            flows.post(&format!("{path}:retry"), json!({}))["status"],
            "running"
        );
        assert_eq!(flows.fail(&flows.claim(1)[0])["workflow_status"], "failed");
        assert_eq!(
            flows.post(&format!("{path}/jobs/a:retry"), json!({}))["status"],
            "running"
        );
        assert_eq!(flows.fail(&flows.claim(1)[0])["workflow_status"], "failed");
        let marked = flows.post(
            &format!("{path}/jobs/a:mark_succeeded"),
            json!({"output": {"by": "hand"}}),
        );
        assert_eq!(marked["status"], "running");
        let next = flows.claim(1).pop().unwrap();
        assert_eq!(next["inputs"][0]["output"], json!({"by": "hand"}));
        assert_eq!(
            flows.succeed(&next, Value::Null)["workflow_status"],
            "running"
        );
        let skipped = flows.post(&format!("{path}/jobs/c:skip"), json!({}));
        assert_eq!(skipped["status"], "succeeded");
        let again = flows.post(
            &format!("{path}:restart"),
            json!({"jobs": ["b"], "cascade": true}),
        );
        assert_eq!(again["status"], "running");
        assert_eq!(flows.claim(9)[0]["job"], "b");
    });
}

/// An answer is lost, the job fails once more, and the call is sent again.
#[test]
fn a_retry_with_the_moment_that_was_seen_is_done_once() {
    on_each_store(|flows| {
        let id = flows.create(workflow("w", "a"));
        let path = format!("/v1/workflows/{id}");
        let fail = || flows.fail(&flows.claim(1)[0])["workflow_status"].clone();
        let calls = [
            (format!("{path}:retry"), json!({})),
            (format!("{path}/jobs/a:retry"), json!({})),
            (format!("{path}:restart"), json!({"jobs": ["a"]})),
        ];
        assert_eq!(fail(), "failed");
        for (call, mut body) in calls {
            body["as_of"] = flows.get(&path)["finished_at"].clone();
            assert_eq!(flows.post(&call, body.clone())["already"], false, "{call}");
            assert_eq!(flows.post(&call, body.clone())["already"], true, "{call}");
            assert_eq!(fail(), "failed");
            assert_eq!(flows.post(&call, body)["already"], true, "{call}");
            assert_eq!(flows.get(&path)["status"], "failed", "{call}");
        }
        let finished = flows.get(&path)["finished_at"].as_str().unwrap().to_owned();
        let millis = format!("{}Z", &finished[.."2026-11-21T12:00:00.000".len()]);
        assert_eq!(
            flows.post(&format!("{path}:retry"), json!({"as_of": millis}))["already"],
            false,
            "{finished}"
        );
        assert_eq!(fail(), "failed");
        assert_eq!(
            flows
                .refused(&format!("{path}:retry"), json!({"as_of": "soon"}))
                .2,
            "as_of"
        );
        assert_eq!(
            flows
                .refused(&format!("{path}:cancel"), json!({"as_of": null}))
                .2,
            "as_of"
        );
        let bulk = json!({"action": "cancel", "filter": {}, "as_of": "2026-11-21T12:00:00Z"});
        assert_eq!(flows.refused("/v1/workflows:bulk", bulk).2, "as_of");
    });
}

#[test]
fn a_batch_with_a_key_is_created_once() {
    on_each_store(|flows| {
        let mut own = workflow("w", "c");
        own["idempotency_key"] = json!("own");
        let body = json!({"workflows": [workflow("w", "a"), workflow("w", "b"), own, {"name": 5}]})
            .to_string();
        let batch = |key: &str| {
            let answer = flows.ask(
                "POST",
                "/v1/workflows:batch",
                &[("Idempotency-Key", key)],
                &body,
            );
            let answer: Value = serde_json::from_str(&answer.body).unwrap();
            answer["items"].as_array().unwrap().clone()
        };
        let (first, second) = (batch("key"), batch("key"));
        for at in 0..3 {
            assert_eq!(
                (&first[at]["existing"], &second[at]["existing"]),
                (&json!(false), &json!(true)),
                "{second:?}"
            );
            assert_eq!(first[at]["id"], second[at]["id"]);
        }
        assert_eq!(second[3]["status"], 422);
        let other = batch("other");
        assert_eq!(
            (&other[1]["existing"], &other[2]["existing"]),
            (&json!(false), &json!(true)),
            "{other:?}"
        );
        let empty = flows.ask(
            "POST",
            "/v1/workflows:batch",
            &[("Idempotency-Key", "")],
            &body,
        );
        assert!(
            empty.status == 422 && empty.body.contains("leave the header out"),
            "{}",
            empty.body
        );
    });
}

#[test]
fn workflows_expire_and_are_removed() {
    on_each_store(|flows| {
        let id = flows.create(workflow("w", "a"));
        let path = format!("/v1/workflows/{id}");
        flows.post(&format!("{path}:cancel"), json!({}));
        flows.post(&format!("{path}:expire"), json!({"after": "never"}));
        assert_eq!(flows.get(&path)["expires_at"], Value::Null);
        flows.post(&format!("{path}:expire"), json!({"after": "20ms"}));
        crate::support::await_that("it is removed", || {
            flows.ask("GET", &path, &[], "").status == 404
        });
        let other = flows.create(workflow("w", "a"));
        flows.post(&format!("/v1/workflows/{other}:cancel"), json!({}));
        assert_eq!(
            flows
                .ask("DELETE", &format!("/v1/workflows/{other}"), &[], "")
                .status,
            204
        );
        assert_eq!(flows.get("/v1/workflows:count")["total"], 0);
    });
}

#[test]
fn one_call_does_the_same_to_many() {
    on_each_store(|flows| {
        let all: Vec<Value> = (0..150)
            .map(|at| workflow(if at % 2 == 0 { "even" } else { "odd" }, "a"))
            .collect();
        flows.post("/v1/workflows:batch", json!({"workflows": all}));
        let bulk = |action: &str, filter: Value, limit: usize| {
            flows.post(
                "/v1/workflows:bulk",
                json!({"action": action, "filter": filter, "limit": limit}),
            )
        };
        let check = |mut found: Value, matched: u64, more: bool| {
            assert_eq!(found["next_cursor"].is_string(), more, "{found}");
            found["next_cursor"].take();
            let expected = json!({"matched": matched, "done": matched, "failed": [], "more": more, "next_cursor": null});
            assert_eq!(found, expected);
        };
        check(
            bulk("cancel", json!({"name": "even", "status": ["running"]}), 50),
            50,
            true,
        );
        check(
            bulk("cancel", json!({"name": "even", "status": ["running"]}), 50),
            25,
            false,
        );
        let refused = bulk("delete", json!({}), 1_000);
        assert_eq!(
            (
                &refused["done"],
                refused["failed"].as_array().unwrap().len()
            ),
            (&json!(75), 75),
            "{refused}"
        );
        assert_eq!(refused["failed"][0]["error"]["code"], "state_conflict");
        assert_eq!(refused["failed"][0]["status"], 409);
        // A program whose list of statuses came out empty does not mean all workflows.
        let empty = json!({"action": "pause", "filter": {"name": "odd", "status": []}});
        let refused = flows.refused("/v1/workflows:bulk", empty);
        assert_eq!(
            refused,
            (422, "invalid_field".to_owned(), json!("filter.status"))
        );
        assert_eq!(flows.get("/v1/workflows:count")["by_status"]["paused"], 0);
        // Those that are paused match again: the cursor passes over them.
        let pause = json!({"action": "pause", "filter": {"name": "odd"}, "limit": 50});
        let first = flows.post("/v1/workflows:bulk", pause.clone());
        let mut next = pause;
        next["cursor"] = first["next_cursor"].clone();
        check(first, 50, true);
        check(flows.post("/v1/workflows:bulk", next.clone()), 25, false);
        next["cursor"] = json!("x");
        assert_eq!(
            flows.refused("/v1/workflows:bulk", next),
            (400, "invalid_cursor".to_owned(), json!("cursor"))
        );
        assert_eq!(flows.get("/v1/workflows:count")["by_status"]["paused"], 75);
    });
}

#[test]
fn one_call_changes_how_long_many_are_kept() {
    on_each_store(|flows| {
        let all = [workflow("w", "a"), workflow("w", "a"), workflow("w", "a")];
        flows.post("/v1/workflows:batch", json!({"workflows": all}));
        let expire =
            json!({"action": "expire", "filter": {"name": "w"}, "after": "forever", "limit": 2});
        let done = flows.post("/v1/workflows:bulk", expire);
        assert_eq!(
            (&done["matched"], &done["done"], &done["more"]),
            (&json!(2), &json!(2), &json!(true)),
            "{done}"
        );
        let items = flows.get("/v1/workflows?order=oldest")["items"].clone();
        let kept = |item: &Value| {
            flows.get(&format!(
                "/v1/workflows/{}?view=jobs",
                item["id"].as_str().unwrap()
            ))["keep_forever"]
                .clone()
        };
        assert_eq!(
            items
                .as_array()
                .unwrap()
                .iter()
                .map(kept)
                .collect::<Vec<_>>(),
            [true, true, false]
        );
        for body in [
            json!({"action": "expire", "filter": {}}),
            json!({"action": "pause", "filter": {}, "after": "1d"}),
        ] {
            assert_eq!(flows.refused("/v1/workflows:bulk", body).2, "after");
        }
    });
}
