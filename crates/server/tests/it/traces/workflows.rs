//! One trace from the call of the gateway, over the creation of a workflow, to each attempt of its jobs.

mod unreported;

use serde_json::{Value, json};

use super::calls::traced;
use super::collector::{Answer, Collector, Protocol};
use super::messages::{Span, pairs};
use crate::support::http_with;
use crate::workflows::{Flows, found, problem, redis, workflow};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const CALLER: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
const OTHER: &str = "00-11111111111111111111111111111111-2222222222222222-01";
const CREATION: &str = "create workflows";
const ATTEMPT: &str = "job attempt";
/// Bytes of params and globals of a job.
const MOST_PARAMS: usize = 256 * 1024;

/// The `traceparent` of a span.
fn traceparent(span: &Span) -> String {
    format!("00-{}-{}-01", hex(&span.trace_id), hex(&span.span_id))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn named<'s>(spans: &'s [Span], name: &str) -> Vec<&'s Span> {
    spans.iter().filter(|span| span.name == name).collect()
}

/// What `$trace` of a workflow says; null if it has none.
#[track_caller]
fn kept(flows: &Flows, id: &Value) -> Value {
    flows.get(&format!("/v1/workflows/{}?view=jobs", id.as_str().unwrap()))["globals"]["$trace"]
        .clone()
}

#[track_caller]
fn create(flows: &Flows, headers: &[(&str, &str)], body: &Value) -> Value {
    found(flows.ask("POST", "/v1/workflows", headers, &body.to_string()))
}

/// Waits for one job.
#[track_caller]
fn claimed(flows: &Flows) -> Value {
    let jobs = flows.post(
        "/v1/jobs/claim",
        json!({"queues": ["default"], "worker": "w-1", "wait": "20s"}),
    );
    jobs["jobs"][0].clone()
}

#[track_caller]
fn report(flows: &Flows, job: &Value, mut report: Value) {
    report["lease"] = job["lease"].clone();
    assert_eq!(
        flows.post("/v1/jobs/report", json!({"reports": [report]}))["reports"][0]["status"],
        200
    );
}

/// Attempts of a workflow, of which the first failed.
struct Attempts {
    id: String,
    failed: Value,
    again: Value,
    added: Value,
}

/// Runs a workflow that the caller creates. Its jobs are claimed at one server, and reported at another.
fn run_report(first: &Flows, last: &Flows, caller: &[(&str, &str)]) -> Attempts {
    let mut two = workflow("report", "fetch add<fetch");
    two["jobs"][0]["retries"] = json!(1);
    two["jobs"][0]["backoff"] = json!("0s");
    let created = create(first, caller, &two);
    let failed = claimed(first);
    let error = json!({"kind": "ConnectionError", "message": "the vendor does not answer"});
    report(last, &failed, json!({"outcome": "failed", "error": error}));
    let again = claimed(first);
    report(last, &again, json!({"outcome": "succeeded", "output": 7}));
    // A report that is repeated is no other attempt.
    report(last, &again, json!({"outcome": "succeeded", "output": 7}));
    let added = claimed(first);
    report(last, &added, json!({"outcome": "succeeded"}));
    let id = created["id"].as_str().unwrap().to_owned();
    Attempts {
        id,
        failed,
        again,
        added,
    }
}

/// Jobs are claimed at the first of these servers, and reported at the last. There are so many spans in `all`.
fn all_is_in_one_trace(stores: &[Vec<(&str, &str)>], all: usize) {
    let collector = Collector::start(Protocol::Http, Answer::Take);
    let url = collector.url();
    let start = |store: &Vec<_>| Flows::start(&[&traced(&url), &store[..]].concat());
    let servers: Vec<Flows> = stores.iter().map(start).collect();
    let first = servers.first().unwrap();
    let caller = [
        ("host", "test"),
        ("traceparent", CALLER),
        ("tracestate", "vendor=1"),
    ];
    let request =
        r#"{"domain":"sample","descriptors":[{"entries":[{"key":"client","value":"me"}]}]}"#;
    let http = first.server.http();
    let answer = http_with(http, "POST", "/json", &caller, request.as_bytes());
    assert_eq!(answer.status, 200);
    let attempts = run_report(first, servers.last().unwrap(), &caller[1..]);
    servers.into_iter().for_each(|flows| flows.server.stop());

    let spans = collector.spans(all);
    assert!(spans.len() == all && collector.has_nothing(), "{spans:?}");
    for span in &spans {
        assert_eq!(hex(&span.trace_id), TRACE, "{span:?}");
        assert_eq!(span.trace_state, "vendor=1", "{span:?}");
        assert!(span.start <= span.end, "{span:?}");
    }
    let call = named(&spans, "/json")[0];
    assert_eq!(hex(&call.parent_span_id), "b7ad6b7169203331");
    let creation = the_creation(&spans, &attempts.id);
    assert_eq!(named(&spans, ATTEMPT).len(), 3);
    for (job, name, attempt, outcome) in [
        (&attempts.failed, "fetch", 1, "failed"),
        (&attempts.again, "fetch", 2, "succeeded"),
        (&attempts.added, "add", 1, "succeeded"),
    ] {
        is_shown(
            &spans,
            (creation, &attempts.id),
            job,
            (name, attempt, outcome),
        );
    }
}

/// The span of the creation of this workflow, which is a child of the caller's.
fn the_creation<'s>(spans: &'s [Span], id: &str) -> &'s Span {
    let [creation] = named(spans, CREATION)[..] else {
        panic!("{spans:?}")
    };
    assert_eq!(hex(&creation.parent_span_id), "b7ad6b7169203331");
    assert_eq!((creation.kind, creation.flags), (2, 0x301));
    let expected = [
        "http.request.method=POST",
        "http.route=/v1/workflows",
        "http.response.status_code=201",
        &format!("tidegate.workflow.id={id}"),
        "tidegate.workflow.name=report",
        "tidegate.workflow.existing=false",
    ];
    assert_eq!(pairs(&creation.attributes), expected);
    assert_eq!(creation.status, None);
    creation
}

/// An attempt has its span, a child of the creation of the workflow with this id, under the name that the claim gave.
fn is_shown(
    spans: &[Span],
    (creation, id): (&Span, &str),
    job: &Value,
    (name, attempt, outcome): (&str, u8, &str),
) {
    let attempts = named(spans, ATTEMPT);
    assert_eq!(
        job["params"]["$trace"],
        json!({"traceparent": traceparent(creation), "tracestate": "vendor=1"})
    );
    let own = attempts
        .iter()
        .find(|span| job["traceparent"] == traceparent(span));
    let own = own.unwrap_or_else(|| panic!("{job} {attempts:?}"));
    assert_eq!((&own.parent_span_id, own.kind), (&creation.span_id, 4));
    let (said, known) = (
        pairs(&own.attributes),
        [
            "messaging.system=tidegate".to_owned(),
            "messaging.destination.name=default".to_owned(),
            format!("tidegate.workflow.id={id}"),
            "tidegate.workflow.name=report".to_owned(),
            format!("tidegate.job={name}"),
            "tidegate.handler=Handler".to_owned(),
            format!("tidegate.attempt={attempt}"),
            format!("tidegate.outcome={outcome}"),
            "tidegate.worker=w-1".to_owned(),
        ],
    );
    assert_eq!(said[..known.len()], known);
    assert!(
        said[known.len()].starts_with("tidegate.waited_ms="),
        "{said:?}"
    );
    let told = own
        .status
        .as_ref()
        .map(|status| (status.code, &*status.message));
    assert_eq!(
        told,
        (outcome == "failed").then_some((2, "ConnectionError: the vendor does not answer"))
    );
}

#[test]
fn all_is_in_one_trace_on_a_file() {
    all_is_in_one_trace(&[Vec::new()], 7);
}

#[test]
fn all_is_in_one_trace_in_memory() {
    all_is_in_one_trace(&[vec![("TIDEGATE_STORE_URL", "memory")]], 7);
}

#[test]
fn all_is_in_one_trace_on_two_servers_with_one_redis() {
    let redis = redis();
    let url = redis.address().to_string();
    let store = vec![("REDIS_URL", &*url), ("REDIS_SOCKET_TYPE", "tcp")];
    // One more: the call has asked Redis.
    all_is_in_one_trace(&[store.clone(), store], 8);
}

#[test]
fn without_an_exporter_the_callers_context_is_kept_and_nothing_else_is_said() {
    let flows = Flows::start(&[]);
    let headers = [
        ("traceparent", CALLER),
        ("tracestate", "a=1"),
        ("tracestate", r#"b="\2""#),
    ];
    let created = create(&flows, &headers, &workflow("w", "a"));
    let expected = json!({"traceparent": CALLER, "tracestate": r#"a=1,b="\2""#});
    assert_eq!(kept(&flows, &created["id"]), expected);
    let job = claimed(&flows);
    assert_eq!(
        (&job["params"], job.get("traceparent")),
        (&json!({"$trace": expected}), None)
    );
    flows.succeed(&job, json!(1));

    // Nobody says where they are.
    let created = create(&flows, &[], &workflow("w", "a"));
    let shown = flows.get(&format!(
        "/v1/workflows/{}?view=jobs",
        created["id"].as_str().unwrap()
    ));
    assert_eq!(
        (shown.get("globals"), &claimed(&flows)["params"]),
        (None, &json!({}))
    );
}

#[test]
fn hostile_headers_are_no_context_and_no_error() {
    let long = "0".repeat(20 * 1024);
    let state = "a=1,".repeat(200);
    let flows = Flows::start(&[]);
    for wrong in [
        &*long,
        "00-x",
        "",
        &CALLER.to_uppercase(),
        &CALLER.replace("b7ad6b7169203331", &"0".repeat(16)),
    ] {
        let created = create(
            &flows,
            &[("traceparent", wrong), ("tracestate", "a=1")],
            &workflow("w", "a"),
        );
        assert_eq!(kept(&flows, &created["id"]), Value::Null, "{wrong}");
    }
    let created = create(
        &flows,
        &[("traceparent", CALLER), ("tracestate", &state)],
        &workflow("w", "a"),
    );
    assert_eq!(kept(&flows, &created["id"]), json!({"traceparent": CALLER}));
    // Flags that are not known are not passed on.
    let created = create(
        &flows,
        &[("traceparent", &CALLER.replace("-01", "-ff"))],
        &workflow("w", "a"),
    );
    assert_eq!(kept(&flows, &created["id"]), json!({"traceparent": CALLER}));
}

#[test]
fn a_key_stands_for_the_same_definition_in_every_trace() {
    let flows = Flows::start(&[]);
    let mut body = workflow("w", "a");
    body["globals"] = json!({"day": "monday"});
    let mut own = body.clone();
    own["globals"]["$trace"] = json!({"traceparent": OTHER});
    let create = |trace: Option<&'static str>, body: &Value| {
        let key = [("idempotency-key", "report/monday")];
        let trace: Vec<_> = trace
            .map(|trace| ("traceparent", trace))
            .into_iter()
            .collect();
        create(&flows, &[&key[..], &trace].concat(), body)
    };
    let first = create(Some(CALLER), &body);
    for (trace, body) in [
        (Some(OTHER), &body),
        (None, &body),
        (Some(CALLER), &own),
        (None, &own),
    ] {
        let again = create(trace, body);
        assert_eq!(
            (&again["id"], &again["existing"]),
            (&first["id"], &json!(true))
        );
    }
    assert_eq!(kept(&flows, &first["id"])["traceparent"], CALLER);
    body["globals"]["day"] = json!("tuesday");
    let headers = [
        ("idempotency-key", "report/monday"),
        ("traceparent", CALLER),
    ];
    let refused = flows.ask("POST", "/v1/workflows", &headers, &body.to_string());
    assert_eq!(problem(&refused).0, 409);
}

#[test]
fn a_trace_of_the_definition_counts_and_the_creation_belongs_to_it() {
    let collector = Collector::start(Protocol::Http, Answer::Take);
    let flows = Flows::start(&traced(&collector.url()));
    let mut body = workflow("w", "a");
    body["globals"] = json!({"$trace": {"traceparent": OTHER, "baggage": "user=ada"}});
    let created = create(&flows, &[], &body);
    assert_eq!(kept(&flows, &created["id"]), body["globals"]["$trace"]);
    let job = claimed(&flows);
    flows.succeed(&job, json!(1));
    // What a definition has there may be anything.
    for left in [
        json!(7),
        json!({"traceparent": ["00"]}),
        json!({"traceparent": "00-x"}),
        json!(null),
    ] {
        body["globals"]["$trace"] = left.clone();
        let created = create(&flows, &[], &body);
        assert_eq!(kept(&flows, &created["id"]), left);
        assert_eq!(claimed(&flows).get("traceparent"), None, "{left}");
    }
    flows.server.stop();
    let spans = collector.spans(6);
    assert_eq!(spans.len(), 6);
    let [attempt] = named(&spans, ATTEMPT)[..] else {
        panic!("{spans:?}")
    };
    let creation = named(&spans, CREATION)
        .into_iter()
        .find(|span| span.trace_id == attempt.trace_id)
        .unwrap();
    assert_eq!(traceparent(attempt), job["traceparent"]);
    assert_eq!(
        [creation, attempt].map(|span| hex(&span.parent_span_id)),
        ["2222222222222222"; 2]
    );
}

#[test]
fn the_trace_gives_way_to_params() {
    let flows = Flows::start(&[]);
    let body = |bytes: usize| {
        let around = json!({"a": ""}).to_string().len();
        let params = json!({"a": "x".repeat(bytes - around)});
        json!({"name": "w", "jobs": [{"handler": "a"}, {"handler": "b", "params": params}]})
    };
    let traced = json!({"$trace": {"traceparent": CALLER}}).to_string().len();
    for (bytes, expected) in [
        (MOST_PARAMS, Value::Null),
        (MOST_PARAMS - traced + 1, Value::Null),
    ] {
        let created = create(&flows, &[("traceparent", CALLER)], &body(bytes));
        assert_eq!(kept(&flows, &created["id"]), expected, "{bytes}");
    }
    let created = create(
        &flows,
        &[("traceparent", CALLER)],
        &body(MOST_PARAMS - traced),
    );
    assert_eq!(kept(&flows, &created["id"]), json!({"traceparent": CALLER}));
}

#[test]
fn the_workflows_of_a_batch_have_one_creation() {
    let collector = Collector::start(Protocol::Http, Answer::Take);
    let flows = Flows::start(&traced(&collector.url()));
    let batch = json!({"workflows": [workflow("a", "a"), {"name": 5}, workflow("b", "b")]});
    let answer = found(flows.ask(
        "POST",
        "/v1/workflows:batch",
        &[("traceparent", CALLER)],
        &batch.to_string(),
    ));
    let kept: Vec<Value> = [0, 2]
        .map(|at| kept(&flows, &answer["items"][at]["id"]))
        .into();
    assert_eq!(
        flows
            .ask("POST", "/v1/workflows", &[("traceparent", OTHER)], "{")
            .status,
        400
    );
    flows.server.stop();
    let spans = collector.spans(2);
    let [all, wrong] = named(&spans, CREATION)[..] else {
        panic!("{spans:?}")
    };
    assert_eq!(
        kept,
        [
            json!({"traceparent": traceparent(all)}),
            json!({"traceparent": traceparent(all)})
        ]
    );
    let said = pairs(&all.attributes);
    assert_eq!(
        said[1..3],
        [
            "http.route=/v1/workflows:batch",
            "http.response.status_code=200"
        ]
    );
    assert_eq!(
        said[3..],
        ["tidegate.workflows.asked=3", "tidegate.workflows.created=2"]
    );
    // A mistake of the caller is no failure of the server.
    assert_eq!(
        (&pairs(&wrong.attributes)[2..], &wrong.status),
        (&["http.response.status_code=400".to_owned()][..], &None)
    );
    assert_eq!(hex(&wrong.parent_span_id), "2222222222222222");
}

#[test]
fn what_nobody_samples_has_no_spans_and_says_so_to_workers() {
    let collector = Collector::start(Protocol::Http, Answer::Take);
    let url = collector.url();
    let more = [traced(&url), vec![("TRACING_SAMPLING_RATE", "0")]].concat();
    let flows = Flows::start(&more);
    let not_sampled = CALLER.replace("-01", "-00");
    let created = create(
        &flows,
        &[("traceparent", &not_sampled)],
        &workflow("w", "a"),
    );
    assert_eq!(
        kept(&flows, &created["id"]),
        json!({"traceparent": not_sampled})
    );
    let created = create(&flows, &[], &workflow("w", "a"));
    assert_eq!(kept(&flows, &created["id"]), Value::Null);
    for job in [claimed(&flows), claimed(&flows)] {
        assert_eq!(job.get("traceparent"), None);
        flows.succeed(&job, json!(1));
    }
    flows.server.stop();
    assert!(collector.has_nothing());
}
