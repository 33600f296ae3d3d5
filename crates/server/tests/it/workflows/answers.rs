//! What is refused, and in which words.

use std::net::SocketAddr;

use serde_json::{Value, json};
use tidegate_pipeline::test_util::RedisServer;

use super::{Flows, ask, problem, redis, workflow};
use crate::operate::process::Process;

#[track_caller]
fn check(
    flows: &Flows,
    (method, path, body): (&str, &str, &str),
    status: u16,
    code: &str,
    place: Option<&str>,
) {
    let (found, word, at) = problem(&flows.ask(method, path, &[], body));
    assert_eq!(
        (found, word.as_str(), at.as_str()),
        (status, code, place),
        "{method} {path} {body}"
    );
}

const NOBODY: &str = "01M7Z85C8H08RJZ5Q5JGPKMY04";

#[test]
fn what_is_not_there_is_named() {
    let flows = Flows::start(&[]);
    let id = flows.create(workflow("w", "a"));
    let none = format!("/v1/workflows/{NOBODY}");
    for (method, path) in [
        ("GET", none.clone()),
        ("GET", format!("{none}?wait=1s")),
        ("DELETE", none.clone()),
        ("POST", format!("{none}:cancel")),
        ("GET", format!("{none}/jobs")),
        ("GET", format!("{none}/graph.svg")),
        ("GET", format!("{none}/events")),
        ("GET", "/v1/workflows/short".to_owned()),
        ("GET", "/v1/workflows:byKey?key=never".to_owned()),
    ] {
        check(&flows, (method, &path, ""), 404, "workflow_not_found", None);
    }
    check(
        &flows,
        ("GET", &format!("/v1/workflows/{id}/jobs/b"), ""),
        404,
        "job_not_found",
        None,
    );
    check(
        &flows,
        ("POST", &format!("/v1/workflows/{id}/jobs/b:skip"), ""),
        404,
        "job_not_found",
        None,
    );
    check(
        &flows,
        ("POST", "/v1/queues/none:resume", ""),
        404,
        "queue_not_found",
        None,
    );
    check(&flows, ("GET", "/v1/nothing", ""), 404, "not_found", None);
    let put = flows.ask("PUT", "/v1/workflows", &[], "");
    assert_eq!(problem(&put).1, "method_not_allowed");
    assert_eq!(put.header("allow"), Some("POST, GET"));
}

#[test]
fn definitions_are_refused_with_the_place() {
    let flows = Flows::start(&[]);
    let many: Vec<Value> = (0..17).map(|tag| json!(format!("t{tag}"))).collect();
    let job = |more: Value| {
        let mut body = workflow("w", "a b");
        for (name, value) in more.as_object().unwrap() {
            body["jobs"][1][name] = value.clone();
        }
        body.to_string()
    };
    for (body, code, place) in [
        ("[]", "invalid_field", Some("")),
        ("{}", "invalid_field", Some("name")),
        (
            r#"{"name":"w","name":"w","jobs":[]}"#,
            "invalid_field",
            Some("name"),
        ),
        (
            r#"{"name":"w","jobs":[]}"#,
            "invalid_definition",
            Some("jobs"),
        ),
        (
            r#"{"name":"w","jobs":[{}]}"#,
            "invalid_field",
            Some("jobs[0].handler"),
        ),
        (
            r#"{"name":"w","jobs":[{"handler":""}]}"#,
            "invalid_definition",
            Some("jobs[0].name"),
        ),
        (r#"{"name":"w","job":[]}"#, "invalid_field", Some("job")),
        (
            r#"{"name":"w","jobs":[{"handler":"a"}],"start":"later"}"#,
            "invalid_field",
            Some("start"),
        ),
        (
            r#"{"name":"w","jobs":[{"handler":"a"}],"retention":"1y"}"#,
            "invalid_field",
            Some("retention"),
        ),
        (
            r#"{"name":"w","jobs":[{"handler":"a"}],"globals":[1]}"#,
            "invalid_field",
            Some("globals"),
        ),
        (
            &json!({"name": "w", "jobs": [{"handler": "a"}], "tags": many}).to_string(),
            "invalid_definition",
            Some("tags"),
        ),
        (
            &job(json!({"after": "c"})),
            "unknown_dependency",
            Some("jobs[1].after[0]"),
        ),
        (&job(json!({"after": ["b"]})), "graph_cycle", Some("jobs")),
        (
            &job(json!({"name": "a"})),
            "duplicate_job_name",
            Some("jobs[1].name"),
        ),
        (
            &job(json!({"wait": "soon"})),
            "invalid_field",
            Some("jobs[1].wait"),
        ),
        (
            &job(json!({"wait": -1})),
            "invalid_field",
            Some("jobs[1].wait"),
        ),
        (
            &job(json!({"timeout": 5})),
            "invalid_field",
            Some("jobs[1].timeout"),
        ),
        (
            &job(json!({"timeout": "5"})),
            "invalid_field",
            Some("jobs[1].timeout"),
        ),
        (
            &job(json!({"backoff": 1.5})),
            "invalid_field",
            Some("jobs[1].backoff"),
        ),
        (
            &job(json!({"params": [1]})),
            "invalid_field",
            Some("jobs[1].params"),
        ),
        (
            r#"{"name":"w","jobs":[{"handler":"a"}],"retention":86400000}"#,
            "invalid_field",
            Some("retention"),
        ),
        (
            &job(json!({"priority": 256})),
            "invalid_field",
            Some("jobs[1].priority"),
        ),
        (
            &job(json!({"rule": "some"})),
            "invalid_field",
            Some("jobs[1].rule"),
        ),
        (
            &job(json!({"after": [1]})),
            "invalid_field",
            Some("jobs[1].after[0]"),
        ),
        (
            &job(json!({"params": 1})),
            "invalid_field",
            Some("jobs[1].params"),
        ),
        (
            r#"{"name":"w","jobs":[["a","h"]]}"#,
            "invalid_field",
            Some("jobs[0]"),
        ),
        (
            &job(json!({"limits": {"domain": "d"}})),
            "invalid_field",
            Some("jobs[1].limits"),
        ),
        (
            &job(json!({"limits": [{"domain": "d", "of": "all"}]})),
            "invalid_field",
            Some("jobs[1].limits[0].of"),
        ),
        (
            &job(json!({"limits": [{"domain": "d"}]})),
            "invalid_definition",
            Some("jobs[1].limits[0].entries"),
        ),
    ] {
        check(&flows, ("POST", "/v1/workflows", body), 422, code, place);
    }
    for body in ["{", "", r#"{"name":"w","jobs":[{"handler":"a"}]} 1"#] {
        check(
            &flows,
            ("POST", "/v1/workflows", body),
            400,
            "invalid_json",
            None,
        );
    }
    assert_eq!(flows.get("/v1/workflows:count")["total"], 0);
}

#[test]
fn a_list_is_no_object() {
    let flows = Flows::start(&[]);
    for (path, body, place) in [
        (
            "/v1/workflows:bulk",
            r#"{"action":"cancel","filter":["running"]}"#,
            "filter",
        ),
        ("/v1/workflows:bulk", r#"["cancel",{}]"#, ""),
        ("/v1/jobs/claim", r#"[["q"],"w"]"#, ""),
        (
            "/v1/jobs/report",
            r#"{"reports":[],"claim":[["q"],"w"]}"#,
            "claim",
        ),
        ("/v1/jobs/extend", r#"[["x"]]"#, ""),
    ] {
        check(
            &flows,
            ("POST", path, body),
            422,
            "invalid_field",
            Some(place),
        );
    }
    let batch = flows.post(
        "/v1/workflows:batch",
        json!({"workflows": [["w", [["h"]]]]}),
    );
    assert_eq!(batch["items"][0]["status"], 422, "{batch}");
    flows.create(workflow("w", "a"));
    let lease = &flows.claim(1)[0]["lease"];
    let report = json!({"lease": lease, "outcome": "failed", "error": ["kind", "message"]});
    let answer = flows.post(
        "/v1/jobs/report",
        json!({"reports": [report, [lease, "succeeded"]]}),
    );
    let places = [0, 1].map(|at| answer["reports"][at]["error"]["path"].clone());
    assert_eq!(
        places,
        [json!("reports[0].error"), json!("reports[1]")],
        "{answer}"
    );
}

#[test]
fn a_number_without_a_unit_is_told_what_to_write() {
    let flows = Flows::start(&[]);
    for value in [json!(5), json!(-5), json!(0.5)] {
        let answer = flows.ask(
            "POST",
            "/v1/jobs/claim",
            &[],
            &json!({"queues": ["q"], "worker": "w", "wait": value}).to_string(),
        );
        let detail = serde_json::from_str::<Value>(&answer.body).unwrap()["detail"]
            .as_str()
            .unwrap()
            .to_owned();
        assert!(
            detail.contains(&format!("the number {value} has no unit"))
                && detail.contains("\"30s\""),
            "{detail}"
        );
    }
}

#[test]
fn workers_are_told_what_is_wrong_with_their_calls() {
    let flows = Flows::start(&[]);
    let claim = |name: &str, value: Value| {
        let mut body = json!({"queues": ["q"], "worker": "w"});
        body[name] = value;
        body
    };
    for (name, value) in [
        ("queues", json!([])),
        ("worker", json!("")),
        ("limit", json!(0)),
        ("limit", json!(1_001)),
        ("lease", json!("4s")),
        ("lease", json!("61m")),
        ("wait", json!("61s")),
        ("color", json!(1)),
    ] {
        let body = claim(name, value);
        check(
            &flows,
            ("POST", "/v1/jobs/claim", &body.to_string()),
            422,
            "invalid_field",
            Some(name),
        );
        let inside = json!({"reports": [], "claim": body}).to_string();
        check(
            &flows,
            ("POST", "/v1/jobs/report", &inside),
            422,
            "invalid_field",
            Some(&format!("claim.{name}")),
        );
    }
    flows.create(workflow("w", "a"));
    let job = flows.claim(1).pop().unwrap();
    for (more, place) in [
        (
            json!({"lease": "nonsense", "outcome": "succeeded"}),
            "reports[0].lease",
        ),
        (json!({"outcome": "failed"}), "reports[0].error"),
        (
            json!({"outcome": "failed", "error": {"kind": "k", "message": "m"}, "output": 1}),
            "reports[0].output",
        ),
        (
            json!({"outcome": "succeeded", "retry": "never"}),
            "reports[0].retry",
        ),
        (
            json!({"outcome": "succeeded", "pause": "1s"}),
            "reports[0].pause",
        ),
    ] {
        let mut report = json!({"lease": job["lease"]});
        more.as_object()
            .unwrap()
            .iter()
            .for_each(|(name, value)| report[name] = value.clone());
        let answer = flows.post("/v1/jobs/report", json!({"reports": [report]}));
        assert_eq!(
            (
                &answer["reports"][0]["status"],
                &answer["reports"][0]["error"]["path"]
            ),
            (&json!(422), &json!(place))
        );
    }
    let right = json!({"lease": job["lease"], "outcome": "succeeded"});
    let unknown = json!({"reports": [{"lease": job["lease"], "outcome": "won"}, right]});
    let answer = flows.post("/v1/jobs/report", unknown);
    assert_eq!(answer["reports"][0]["error"]["path"], "reports[0].outcome");
    assert_eq!(
        answer["reports"][1]["job_state"], "succeeded",
        "nothing before it counted"
    );
    assert_eq!(
        answer["reports"][1]["already"], false,
        "nothing before it counted"
    );
}

#[test]
fn parameters_are_refused_by_name() {
    let flows = Flows::start(&[]);
    let id = flows.create(workflow("w", "a"));
    for (path, name) in [
        ("/v1/workflows?limit=0", "limit"),
        ("/v1/workflows?limit=1001", "limit"),
        ("/v1/workflows?offset=3", "offset"),
        ("/v1/workflows?status=done", "status"),
        ("/v1/workflows?created_after=yesterday", "created_after"),
        (
            "/v1/workflows?created_after=2026-02-30T00:00:00Z",
            "created_after",
        ),
        ("/v1/workflows?order=up", "order"),
        ("/v1/workflows?name=a&name=b", "name"),
        ("/v1/workflows:count?by=tag", "by"),
        (&format!("/v1/workflows/{id}?view=all"), "view"),
        ("/v1/workflows?id_prefix=01M", "id_prefix"),
        ("/v1/workflows?id_prefix=order", "id_prefix"),
        ("/v1/version?verbose=1", "verbose"),
        ("/v1/openapi.json?format=yaml", "format"),
        ("/v1/queues?limit=1001", "limit"),
        ("/v1/queues?offset=1", "offset"),
        (&format!("/v1/workflows/{id}/events?from=1"), "from"),
        ("/v1/workflows:byKey", "key"),
        (&format!("/v1/workflows/{id}?wait=2h"), "wait"),
        (&format!("/v1/workflows/{id}?wait=5"), "wait"),
        (&format!("/v1/workflows/{id}/jobs?state=lost"), "state"),
        (&format!("/v1/workflows/{id}/graph.txt?width=3"), "width"),
    ] {
        check(&flows, ("GET", path, ""), 422, "invalid_field", Some(name));
    }
    for (method, path) in [
        ("DELETE", format!("/v1/workflows/{id}?dry_run=true")),
        ("POST", format!("/v1/workflows/{id}:cancel?dry_run=true")),
        (
            "POST",
            format!("/v1/workflows/{id}/jobs/a:skip?dry_run=true"),
        ),
        ("POST", "/v1/workflows:bulk?dry_run=true".to_owned()),
        ("POST", "/v1/jobs/claim?dry_run=true".to_owned()),
    ] {
        check(
            &flows,
            (method, &path, ""),
            422,
            "invalid_field",
            Some("dry_run"),
        );
    }
    assert_eq!(
        flows.get(&format!("/v1/workflows/{id}"))["status"],
        "running",
        "nothing was done"
    );
    check(
        &flows,
        ("GET", "/v1/workflows?cursor=x", ""),
        400,
        "invalid_cursor",
        None,
    );
    check(
        &flows,
        ("GET", &format!("/v1/workflows/{id}/jobs?cursor=x"), ""),
        400,
        "invalid_cursor",
        None,
    );
}

#[test]
fn states_that_do_not_allow_it_are_conflicts() {
    let flows = Flows::start(&[]);
    let id = flows.create(workflow("w", "a"));
    check(
        &flows,
        ("POST", &format!("/v1/workflows/{id}:start"), ""),
        409,
        "already_started",
        None,
    );
    check(
        &flows,
        ("POST", &format!("/v1/workflows/{id}:pause"), "{\"for\":1}"),
        422,
        "invalid_field",
        Some("for"),
    );
    check(
        &flows,
        ("DELETE", &format!("/v1/workflows/{id}"), ""),
        409,
        "state_conflict",
        None,
    );
    check(
        &flows,
        ("POST", &format!("/v1/workflows/{id}/jobs/a:retry"), ""),
        409,
        "state_conflict",
        None,
    );
    let late = flows.claim(1).pop().unwrap();
    flows.post(&format!("/v1/workflows/{id}:cancel"), json!({}));
    assert_eq!(
        flows.succeed(&late, Value::Null)["error"]["code"],
        "lease_lost"
    );
    check(
        &flows,
        ("POST", &format!("/v1/workflows/{id}:pause"), ""),
        409,
        "state_conflict",
        None,
    );
}

#[test]
fn what_is_too_large_is_refused_before_it_is_kept() {
    let flows = Flows::start(&[("TIDEGATE_MAX_BODY", "2000000")]);
    let big = "x".repeat(2_000_001);
    check(
        &flows,
        ("POST", "/v1/workflows", &big),
        413,
        "payload_too_large",
        None,
    );
    let mut body = workflow("w", "a");
    body["globals"] = json!({"g": "x".repeat(200_000)});
    let id = flows.create(body.clone());
    body["jobs"][0]["params"] = json!({"p": "x".repeat(70_000)});
    check(
        &flows,
        ("POST", "/v1/workflows", &body.to_string()),
        413,
        "payload_too_large",
        Some("jobs[0].params"),
    );
    let job = flows.claim(1).pop().unwrap();
    let answer = flows.succeed(&job, json!("x".repeat(1024 * 1024)));
    assert_eq!(
        (&answer["error"]["code"], &answer["error"]["path"]),
        (&json!("payload_too_large"), &json!("reports[0].output"))
    );
    assert_eq!(
        flows.succeed(&job, json!("x".repeat(1024 * 1024 - 2)))["job_state"],
        "succeeded"
    );
    assert_eq!(
        flows.get(&format!("/v1/workflows/{id}"))["status"],
        "succeeded"
    );
    let many: Vec<Value> = (0..1_001).map(|_| workflow("w", "a")).collect();
    let (status, code, place) = flows.refused("/v1/workflows:batch", json!({"workflows": many}));
    assert_eq!(
        (status, code.as_str(), place.as_str()),
        (413, "payload_too_large", Some("workflows"))
    );
}

#[test]
fn every_text_that_json_allows_reaches_the_worker() {
    // Half of a surrogate pair is JSON and no Unicode: a claim of it once ended the connection.
    let flows = Flows::start(&[]);
    let body = r#"{"name":"w","globals":{"\ud800":1},"jobs":[{"handler":"a","params":{"x":2}}]}"#;
    assert_eq!(flows.ask("POST", "/v1/workflows", &[], body).status, 201);
    let claimed = flows.ask(
        "POST",
        "/v1/jobs/claim",
        &[],
        r#"{"queues":["default"],"worker":"w"}"#,
    );
    assert!(
        claimed.body.contains(r#""params":{"\ud800":1,"x":2}"#),
        "{claimed:?}"
    );
}

#[test]
fn json_that_a_worker_could_not_read_is_refused() {
    let flows = Flows::start(&[]);
    let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    let params = |depth| {
        format!(
            r#"{{"name":"w","jobs":[{{"handler":"a","params":{{"x":{}}}}}]}}"#,
            nested(depth)
        )
    };
    check(
        &flows,
        ("POST", "/v1/workflows", &params(100)),
        422,
        "invalid_field",
        Some("jobs[0].params"),
    );
    check(
        &flows,
        ("POST", "/v1/workflows", &params(100_000)),
        422,
        "invalid_field",
        Some("jobs[0].params"),
    );
    assert_eq!(
        flows.ask("POST", "/v1/workflows", &[], &params(99)).status,
        201
    );
    let job = flows.claim(1).pop().unwrap();
    let report = |depth| {
        format!(
            r#"{{"reports":[{{"lease":{},"outcome":"succeeded","output":{}}}]}}"#,
            job["lease"],
            nested(depth)
        )
    };
    let answer = flows.ask("POST", "/v1/jobs/report", &[], &report(101)).body;
    assert!(answer.contains("reports[0].output"), "{answer}");
    let answer = flows.ask("POST", "/v1/jobs/report", &[], &report(100)).body;
    assert!(answer.contains("succeeded"), "{answer}");
}

#[test]
fn names_that_no_queue_has_are_refused_to_workers() {
    let flows = Flows::start(&[]);
    for (queues, worker, place) in [
        (json!(["a", "x".repeat(201)]), "w", "queues[1]"),
        (json!(["a\u{0}"]), "w", "queues[0]"),
        (json!([""]), "w", "queues[0]"),
        (json!(["a"]), "\u{1b}[31m", "worker"),
    ] {
        let body = json!({"queues": queues, "worker": worker}).to_string();
        check(
            &flows,
            ("POST", "/v1/jobs/claim", &body),
            422,
            "invalid_field",
            Some(place),
        );
    }
}

#[test]
fn who_sends_too_much_can_read_why() {
    // A client that writes first and reads then must not find the connection reset.
    let flows = Flows::start(&[("TIDEGATE_MAX_BODY", "1000000")]);
    let api = flows.api();
    let mut stream = std::net::TcpStream::connect(api).unwrap();
    let body = vec![b'x'; 7_000_000];
    let head = format!(
        "POST /v1/workflows HTTP/1.1\r\nhost: {api}\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    std::io::Write::write_all(&mut stream, head.as_bytes()).unwrap();
    std::io::Write::write_all(&mut stream, &body).unwrap();
    let mut answer = [0; 12];
    std::io::Read::read_exact(&mut stream, &mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 413");
}

#[test]
fn a_head_is_answered_as_a_get_without_the_body() {
    let flows = Flows::start(&[]);
    let id = flows.create(workflow("w", "a"));
    for (path, status) in [
        (format!("/v1/workflows/{id}"), 200),
        (format!("/v1/workflows/{NOBODY}"), 404),
    ] {
        let answer = flows.ask("HEAD", &path, &[], "");
        assert_eq!(
            (answer.status, answer.body.as_str()),
            (status, ""),
            "{path}"
        );
        assert_ne!(answer.header("content-length"), Some("0"), "{path}");
    }
}

#[test]
fn every_answer_has_the_id_of_its_request() {
    let flows = Flows::start(&[]);
    let id = flows.create(workflow("w", "a"));
    let taken = [("x-request-id", "order/17;try=2")];
    for (method, path, status) in [
        ("GET", "/v1/workflows".to_owned(), 200),
        ("GET", format!("/v1/workflows/{NOBODY}"), 404),
        ("GET", format!("/v1/workflows/{id}/graph.svg"), 200),
        ("GET", "/healthz".to_owned(), 200),
        ("GET", "/nothing".to_owned(), 404),
    ] {
        for (headers, wanted) in [
            (&taken[..], Some("order/17;try=2")),
            (&[("x-request-id", "a b")], None),
            (&[], None),
        ] {
            let answer = flows.ask(method, &path, headers, "");
            let found = answer.header("x-request-id").unwrap();
            assert_eq!(answer.status, status);
            assert!(
                wanted.map_or(found.len() == 16, |wanted| found == wanted),
                "{path}: {found}"
            );
            let problem: Value = serde_json::from_str(&answer.body).unwrap_or_default();
            assert_eq!(
                problem["request_id"].as_str(),
                (status == 404).then_some(found),
                "{path}"
            );
        }
    }
}

/// A process on this Redis that logs as JSON, and where its API is.
fn logging(redis: &RedisServer) -> (Process, SocketAddr) {
    let url = redis.address().to_string();
    let settings = [
        ("TIDEGATE_HTTP_ADDR", "127.0.0.1:0"),
        ("REDIS_URL", &url),
        ("REDIS_SOCKET_TYPE", "tcp"),
    ];
    let process = Process::start(
        &[
            &settings[..],
            &[("LOG_FORMAT", "json"), ("LOG_LEVEL", "info")],
        ]
        .concat(),
    );
    let api = process.address("API");
    (process, api)
}

#[test]
fn the_log_names_the_request_that_was_not_served() {
    let redis = redis();
    let (process, api) = logging(&redis);
    assert_eq!(ask(api, "GET", "/v1/workflows", &[], "").status, 200);
    drop(redis);
    let answer = ask(
        api,
        "GET",
        "/v1/workflows?name=secret",
        &[("x-request-id", "who-asks")],
        "",
    );
    assert_eq!(problem(&answer).1, "store_unavailable");
    process.signal("TERM");
    let log = process.end().1;
    let line = log
        .lines()
        .find(|line| line.contains("who-asks"))
        .unwrap_or_else(|| panic!("{log}"));
    let line: Value = serde_json::from_str(line).unwrap();
    assert_eq!(
        (
            &line["level"],
            &line["method"],
            &line["path"],
            &line["code"]
        ),
        (
            &json!("warning"),
            &json!("GET"),
            &json!("/v1/workflows"),
            &json!("store_unavailable")
        )
    );
}

#[test]
fn the_log_has_one_line_for_all_items_that_were_not_served() {
    let redis = redis();
    let refuse = |writes: u8| {
        assert_eq!(
            redis.raw(&format!("CONFIG SET min-replicas-to-write {writes}")),
            "+OK\r\n"
        )
    };
    let post = |api: SocketAddr, path: &str, id: &str, body: &Value| -> Value {
        let answer = ask(
            api,
            "POST",
            path,
            &[("x-request-id", id)],
            &body.to_string(),
        );
        assert_eq!(answer.status, 200, "{answer:?}");
        serde_json::from_str(&answer.body).unwrap()
    };
    let (first, api) = logging(&redis);
    let three = json!({"workflows": [workflow("w", "a"), workflow("w", "a"), workflow("w", "a")]});
    post(api, "/v1/workflows:batch", "served", &three);
    let claim = json!({"queues": ["default"], "worker": "w", "limit": 2});
    let jobs = post(api, "/v1/jobs/claim", "served", &claim)["jobs"].take();
    first.signal("TERM");
    assert!(
        !first.end().1.contains("\"served\""),
        "what was served is not logged"
    );
    let leases = [&jobs[0]["lease"], &jobs[1]["lease"]];
    let ended = leases.map(|lease| json!({"lease": lease, "outcome": "succeeded"}));
    let wrong = workflow("w", "a<b");
    let calls = [
        (
            "/v1/workflows:bulk",
            json!({"action": "cancel", "filter": {"name": "w"}}),
            3,
        ),
        (
            "/v1/workflows:batch",
            json!({"workflows": [wrong, workflow("w", "a"), workflow("w", "a")]}),
            2,
        ),
        ("/v1/jobs/report", json!({"reports": ended}), 2),
        ("/v1/jobs/extend", json!({"leases": leases}), 2),
        // Mistakes of the client are the client's to log.
        (
            "/v1/workflows:batch",
            json!({"workflows": [wrong, wrong]}),
            0,
        ),
    ];
    // A code has one line a minute, so each call has a server of its own.
    for (path, body, items) in &calls {
        let (process, api) = logging(&redis);
        assert_eq!(ask(api, "GET", "/v1/workflows", &[], "").status, 200);
        // From now on the store answers, but takes no writes.
        refuse(1);
        post(api, path, "the-call", body);
        process.signal("TERM");
        let log = process.end().1;
        refuse(0);
        let lines: Vec<&str> = log
            .lines()
            .filter(|line| line.contains("the-call"))
            .collect();
        assert_eq!(lines.len(), usize::from(*items > 0), "{path}: {log}");
        for line in lines {
            let line: Value = serde_json::from_str(line).unwrap();
            assert_eq!(
                (&line["level"], &line["path"]),
                (&json!("warning"), &json!(path)),
                "{line}"
            );
            assert_eq!(
                (&line["items"], &line["code"]),
                (&json!(items), &json!("store_unavailable")),
                "{line}"
            );
            assert!(
                line["detail"]
                    .as_str()
                    .is_some_and(|detail| detail.contains("NOREPLICAS")),
                "{line}"
            );
        }
    }
}

#[test]
fn a_problem_of_an_item_is_whole_by_itself() {
    // A client may pass on one item without the others: its problem has the id of the request and one path, from the request's root.
    let flows = Flows::start(&[]);
    let mut twice = workflow("w", "a a");
    twice["jobs"][1]["queue"] = json!("q");
    let tagged = json!({"name": "w", "jobs": [{"handler": "a"}], "tags": (0..17).map(|tag| tag.to_string()).collect::<Vec<_>>()});
    let batch = json!({"workflows": [workflow("w", "a"), workflow("w", "a<b"), twice, workflow("", "a"), {"name": 7}]});
    let lost = format!("{NOBODY}-0-7066ddda7b6a22e8");
    let late = json!({"lease": lost, "outcome": "succeeded"});
    for (path, body, items, expected) in [
        (
            "/v1/workflows:batch",
            batch,
            "items",
            &[
                ("workflows[1].jobs[0].after[0]", "there is no job 'b'"),
                (
                    "workflows[2].jobs[1].name",
                    "'a' is also the name of an earlier job: give each job a name of its own",
                ),
                (
                    "workflows[3].name",
                    "a name must have 1 to 200 bytes and no control characters, and not be '.' or '..', but this is empty",
                ),
                (
                    "workflows[4].name",
                    "invalid type: integer `7`, expected a string",
                ),
            ][..],
        ),
        (
            "/v1/jobs/report",
            json!({"reports": [late]}),
            "reports",
            &[("", "")],
        ),
        (
            "/v1/jobs/extend",
            json!({"leases": [lost]}),
            "leases",
            &[("", "")],
        ),
    ] {
        let answer = flows.ask(
            "POST",
            path,
            &[("x-request-id", "order-17")],
            &body.to_string(),
        );
        let answer: Value = serde_json::from_str(&answer.body).unwrap();
        let problems: Vec<&Value> = answer[items]
            .as_array()
            .unwrap()
            .iter()
            .map(|item| &item["error"])
            .filter(|error| !error.is_null())
            .collect();
        assert_eq!(problems.len(), expected.len(), "{answer}");
        for (problem, (place, detail)) in problems.into_iter().zip(expected) {
            assert_eq!(problem["request_id"], "order-17", "{problem}");
            assert!(
                place.is_empty()
                    || (&problem["path"], &problem["detail"]) == (&json!(place), &json!(detail)),
                "{problem}"
            );
        }
    }
    let tags = flows.ask("POST", "/v1/workflows", &[], &tagged.to_string());
    assert!(
        tags.body.contains("\"there are 17 tags, more than 16\""),
        "{tags:?}"
    );
}

#[test]
fn an_unknown_action_is_not_a_wrong_method() {
    let flows = Flows::start(&[]);
    let id = flows.create(workflow("w", "a"));
    let answer = flows.ask("POST", &format!("/v1/workflows/{id}:nope"), &[], "");
    assert_eq!(problem(&answer).1, "not_found");
    assert!(
        answer
            .body
            .contains("there is no action :nope here; the actions are :start, :cancel,"),
        "{answer:?}"
    );
    check(
        &flows,
        ("POST", &format!("/v1/workflows/{id}"), ""),
        405,
        "method_not_allowed",
        None,
    );
}

#[test]
fn wrong_values_are_told_in_the_words_of_the_reader() {
    let flows = Flows::start(&[]);
    for (path, body, detail) in [
        (
            "/v1/workflows",
            r#"{"name":"w","jobs":[{"handler":"a","priority":300}]}"#,
            "invalid value: integer `300`, expected u8",
        ),
        (
            "/v1/workflows",
            r#"{"name":"w","jobs":{}}"#,
            "invalid type: map, expected a sequence",
        ),
        (
            "/v1/jobs/report",
            r#"{"reports":[{"lease":"x","outcome":"failed","error":"no"}]}"#,
            r#"invalid type: string "no", expected an object"#,
        ),
        (
            "/v1/jobs/report",
            r#"{"reports":[{"lease":"x","outcome":"succeded"}]}"#,
            "unknown variant `succeded`, expected one of `succeeded`, `failed`, `given_back`, `not_begun`, `throttled`, `crashed`",
        ),
        (
            "/v1/jobs/claim",
            "not",
            "the body is not JSON: expected ident at line 1 column 2",
        ),
    ] {
        let answer: Value = serde_json::from_str(&flows.ask("POST", path, &[], body).body).unwrap();
        // A report that cannot be read is told in its item.
        let problem = if path.ends_with("report") {
            &answer["reports"][0]["error"]
        } else {
            &answer
        };
        assert_eq!(problem["detail"], detail, "{body}");
    }
}
