//! Workers that drain, streams for them, and the list of all.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;

use serde_json::{Value, json};

use super::{Flows, on_each_store, redis, workflow};
use crate::support::{PATIENCE, await_that};

fn claim(flows: &Flows, worker: &str, wait: &str) -> Value {
    flows.post(
        "/v1/jobs/claim",
        json!({"queues": ["default"], "worker": worker, "wait": wait}),
    )
}

/// Name and data of each event of a worker.
struct Events(BufReader<TcpStream>);

impl Events {
    fn of(flows: &Flows, worker: &str) -> Self {
        Self::at(flows, &format!("/v1/workers/{worker}/events"))
    }

    fn at(flows: &Flows, target: &str) -> Self {
        let api = flows.api();
        let mut stream = TcpStream::connect(api).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        write!(stream, "GET {target} HTTP/1.1\r\nhost: {api}\r\n\r\n").unwrap();
        Self(BufReader::new(stream))
    }

    fn next(&mut self) -> (String, Value) {
        let mut event = String::new();
        loop {
            let mut line = String::new();
            assert!(self.0.read_line(&mut line).unwrap() > 0, "the stream ends");
            if let Some(name) = line.strip_prefix("event: ") {
                name.trim_end().clone_into(&mut event);
            }
            if let Some(data) = line.strip_prefix("data: ") {
                return (event, serde_json::from_str(data).unwrap());
            }
        }
    }

    #[track_caller]
    fn expect(&mut self, event: &str, data: &Value) {
        let (name, got) = self.next();
        assert_eq!((name.as_str(), &got), (event, data));
    }
}

#[test]
fn a_worker_that_drains_gets_no_jobs_and_others_do() {
    on_each_store(|flows| {
        flows.create(workflow("w", "a b"));
        let had = claim(flows, "w", "0s");
        std::thread::scope(|scope| {
            flows.create(
                json!({"name": "other", "jobs": [{"name": "x", "handler": "h", "queue": "far"}]}),
            );
            let waiting = scope.spawn(|| {
                flows.post(
                    "/v1/jobs/claim",
                    json!({"queues": ["none"], "worker": "w", "wait": "60s"}),
                )
            });
            await_that("it waits", || {
                flows.get("/v1/workers")["items"][0]["queues"] == json!(["none"])
            });
            assert_eq!(
                flows.post("/v1/workers/w:drain", json!({})),
                json!({"name": "w", "draining": true})
            );
            assert_eq!(waiting.join().unwrap(), json!({"jobs": [], "drain": true}));
        });
        assert_eq!(claim(flows, "w", "0s"), json!({"jobs": [], "drain": true}));
        let report = json!({"lease": had["jobs"][0]["lease"], "outcome": "succeeded"});
        let both = json!({"reports": [report], "claim": {"queues": ["default"], "worker": "w", "wait": "60s"}});
        let answer = flows.post("/v1/jobs/report", both);
        assert_eq!(
            (&answer["reports"][0]["status"], &answer["jobs"]),
            (&json!(200), &json!([]))
        );
        assert_eq!(answer["drain"], true);
        assert_eq!(claim(flows, "v", "0s")["jobs"].as_array().unwrap().len(), 1);
        flows.post("/v1/workers/w:undrain", json!({}));
        flows.create(workflow("w", "a"));
        let again = claim(flows, "w", "0s");
        assert_eq!(
            (again["jobs"].as_array().unwrap().len(), again.get("drain")),
            (1, None)
        );
        assert_eq!(
            flows.refused("/v1/workers/%07:drain", json!({})).1,
            "invalid_field"
        );
    });
}

#[test]
fn a_stream_tells_a_worker_what_it_lost() {
    on_each_store(|flows| {
        let run = |job: &str| {
            let id = flows.create(workflow("w", job));
            (id, claim(flows, "w", "10s")["jobs"][0]["lease"].clone())
        };
        let ((id, cancelled), (kept, ended)) = (run("a"), run("b"));
        let mut events = Events::of(flows, "w");
        events.expect("drain", &json!({"drain": false}));
        flows.post(&format!("/v1/workflows/{id}:cancel"), json!({}));
        events.expect(
            "lease_lost",
            &json!({"lease": cancelled, "workflow_id": id, "reason": "cancelled"}),
        );
        // An end that it has reported itself is no news.
        flows.post(
            "/v1/jobs/report",
            json!({"reports": [{"lease": ended, "outcome": "succeeded"}]}),
        );
        flows.post(
            &format!("/v1/workflows/{kept}:restart"),
            json!({"jobs": ["b"]}),
        );
        flows.post("/v1/workers/w:drain", json!({}));
        events.expect("drain", &json!({"drain": true}));
        flows.post("/v1/workers/w:undrain", json!({}));
        events.expect("drain", &json!({"drain": false}));
    });
}

/// What a server shows of this worker.
fn shown(flows: &Flows, name: &str) -> Value {
    let workers = flows.get("/v1/workers");
    let mut items = workers["items"].as_array().unwrap().iter();
    let item = items.find(|item| item["name"] == name);
    item.cloned().unwrap_or_default()
}

/// The lease of a job that the worker w claims as soon as it is there.
fn leased(flows: &Flows) -> Value {
    let mut lease = Value::Null;
    await_that("the job is there", || {
        lease = claim(flows, "w", "10s")["jobs"][0]["lease"].take();
        lease.is_string()
    });
    lease
}

#[test]
fn servers_of_a_store_know_each_others_workers() {
    let redis = redis();
    let (one, other) = (&Flows::on(&redis), &Flows::on(&redis));
    let id = one.create(workflow("w", "a"));
    let lease = leased(one);
    claim(other, "v", "0s");
    await_that("one tells of its worker", || {
        shown(other, "w")["jobs"][0]["workflow_id"] == json!(id)
    });
    let worker = shown(other, "w");
    assert_eq!(worker["running"], 1);
    assert_eq!(worker["jobs"][0]["job"], "a");
    assert_eq!(worker["handlers"], Value::Null);
    let told = worker.to_string().contains(lease.as_str().unwrap());
    assert!(!told, "a lease is a right, and nobody reads it");
    await_that("the other tells of its own", || {
        shown(one, "v")["queues"] == json!(["default"])
    });
    let page = one.get("/v1/workers?limit=1");
    assert_eq!(page["items"][0]["name"], "v");
    assert_eq!(page["next_cursor"], "v");
    let next = one.get("/v1/workers?limit=1&cursor=v");
    assert_eq!(next["items"][0]["name"], "w");
}

#[test]
fn what_another_server_does_is_told_to_the_worker() {
    let redis = redis();
    let (one, other) = (&Flows::on(&redis), &Flows::on(&redis));
    let id = one.create(workflow("w", "a"));
    let lease = leased(one);
    let mut events = Events::of(one, "w");
    events.expect("drain", &json!({"drain": false}));
    await_that("the other knows the worker", || {
        shown(other, "w")["jobs"][0]["workflow_id"] == json!(id)
    });
    other.post("/v1/workers/w:drain", json!({}));
    events.expect("drain", &json!({"drain": true}));
    assert_eq!(claim(one, "w", "0s"), json!({"jobs": [], "drain": true}));
    assert!(shown(one, "w")["draining_since"].is_string());
    other.post(&format!("/v1/workflows/{id}:cancel"), json!({}));
    let lost = json!({"lease": lease, "workflow_id": id, "reason": "cancelled"});
    events.expect("lease_lost", &lost);
    let extended = one.post("/v1/jobs/extend", json!({"leases": [lease], "worker": "w"}));
    assert_eq!(extended["leases"][0]["error"]["reason"], "cancelled");
    assert_eq!(extended["drain"], true);
}

/// A worker that a platform starts anew under the same name, such as `worker-0`, got nothing any more.
#[test]
fn a_drained_worker_that_starts_anew_gets_jobs_on_all_servers() {
    let redis = redis();
    let (one, other) = (&Flows::on(&redis), &Flows::on(&redis));
    let asks = |flows: &Flows, uptime: &str| {
        flows.post(
            "/v1/jobs/claim",
            json!({"queues": ["default"], "worker": "worker-0", "uptime": uptime}),
        )
    };
    asks(one, "1h");
    one.post("/v1/workers/worker-0:drain", json!({}));
    assert_eq!(asks(one, "1h"), json!({"jobs": [], "drain": true}));
    one.create(workflow("w", "a"));
    // The first claim at a server waits until it knows who drains.
    assert_eq!(asks(other, "1h"), json!({"jobs": [], "drain": true}));
    let mut lease = Value::Null;
    await_that("the new process has the job", || {
        let claimed = asks(other, "1ms");
        assert_eq!(claimed["drain"], Value::Null);
        lease = claimed["jobs"][0]["lease"].clone();
        lease.is_string()
    });
    let extend = json!({"leases": [lease], "worker": "worker-0", "uptime": "2ms"});
    assert_eq!(one.post("/v1/jobs/extend", extend)["drain"], Value::Null);
    assert_eq!(
        asks(other, "1h")["drain"],
        true,
        "the old process still drains"
    );
    for (uptime, drain) in [("1ms", false), ("1h", true)] {
        let stream = format!("/v1/workers/worker-0/events?uptime={uptime}");
        Events::at(one, &stream).expect("drain", &json!({"drain": drain}));
    }
    // Drained again, the new one drains, too.
    other.post("/v1/workers/worker-0:drain", json!({}));
    assert_eq!(asks(other, "1s")["drain"], true);
}

/// Workers had a quarter of all streams of a token, so the others of a fleet heard of cancellations late.
#[test]
fn a_fleet_of_workers_takes_no_streams_from_the_page() {
    let flows = Flows::start(&[("TIDEGATE_MAX_EVENT_STREAMS", "4")]);
    let mut streams: Vec<Events> = (0..16)
        .map(|worker| Events::of(&flows, &format!("w{worker}")))
        .collect();
    streams
        .iter_mut()
        .for_each(|events| events.expect("drain", &json!({"drain": false})));
    let id = flows.create(workflow("w", "a"));
    assert_eq!(
        flows.get(&format!("/v1/workflows/{id}"))["status"],
        "running"
    );
}

#[test]
fn a_queue_is_paused_before_its_first_job() {
    let flows = Flows::start(&[]);
    assert_eq!(
        flows.post("/v1/queues/default:pause", json!({})),
        json!({"name": "default", "paused": true})
    );
    flows.create(workflow("w", "a"));
    assert_eq!(claim(&flows, "w", "0s")["jobs"], json!([]));
    flows.post("/v1/queues/default:resume", json!({}));
    assert_eq!(claim(&flows, "w", "0s")["jobs"][0]["job"], "a");
}
