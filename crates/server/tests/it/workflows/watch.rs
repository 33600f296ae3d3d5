//! Waiting for the end, streams of events, pictures, metrics.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Instant;

use serde_json::{Value, json};

use super::{Flows, on_each_store, redis, workflow};
use crate::support::{PATIENCE, await_that, get};

/// Reads events one by one.
pub(super) struct Events(BufReader<TcpStream>);

impl Events {
    pub(super) fn of(api: SocketAddr, id: &str) -> Self {
        Self::after(api, id, "")
    }

    /// The same with more headers.
    fn after(api: SocketAddr, id: &str, headers: &str) -> Self {
        Self::asked(api, &format!("/v1/workflows/{id}/events"), headers)
    }

    /// Of another stream.
    pub(super) fn of_path(api: SocketAddr, path: &str) -> Self {
        Self::asked(api, path, "")
    }

    fn asked(api: SocketAddr, path: &str, headers: &str) -> Self {
        let mut stream = TcpStream::connect(api).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nhost: {api}\r\n{headers}\r\n"
        )
        .unwrap();
        Self(BufReader::new(stream))
    }

    /// Name and data of the next event; none at the end of the stream.
    pub(super) fn next(&mut self) -> Option<(String, Value)> {
        let mut event = String::new();
        loop {
            let mut line = String::new();
            if self.0.read_line(&mut line).unwrap() == 0 {
                return None;
            }
            if let Some(name) = line.strip_prefix("event: ") {
                name.trim_end().clone_into(&mut event);
            }
            if let Some(data) = line.strip_prefix("data: ") {
                return Some((event, serde_json::from_str(data).unwrap()));
            }
        }
    }

    /// The first event that is as wanted.
    fn until(&mut self, name: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        loop {
            let (event, data) = self.next().expect("the stream goes on");
            if event == name && wanted(&data) {
                return data;
            }
        }
    }
}

#[test]
fn a_stream_tells_what_happens_until_the_end() {
    on_each_store(|flows| {
        let id = flows.create(workflow("w", "a b<a"));
        let mut events = Events::of(flows.api(), &id);
        let (name, first) = events.next().unwrap();
        assert_eq!(
            (name.as_str(), &first["id"], &first["job_counts"]["ready"]),
            ("workflow", &json!(id), &json!(1))
        );
        let job = flows.claim(1).pop().unwrap();
        assert_eq!(
            events.until("job", |job| job["state"] == "running"),
            json!({"name": "a", "state": "running", "index": 0})
        );
        flows.succeed(&job, Value::Null);
        flows.post(&format!("/v1/workflows/{id}:cancel"), json!({}));
        assert_eq!(
            events.until("workflow", |workflow| workflow["status"] == "cancelled")["job_counts"]["cancelled"],
            1
        );
        flows.ask("DELETE", &format!("/v1/workflows/{id}"), &[], "");
        assert_eq!(events.until("removed", |_| true)["id"], json!(id));
    });
}

#[test]
fn a_reader_that_comes_back_hears_what_it_missed() {
    on_each_store(|flows| {
        let id = flows.create(workflow("w", "a b c<a"));
        let first = |headers: &str| {
            let mut events = Events::after(flows.api(), &id, headers);
            std::iter::from_fn(|| {
                let (name, data) = events.next().unwrap();
                (name == "job").then(|| {
                    format!(
                        "{} {}",
                        data["name"].as_str().unwrap(),
                        data["state"].as_str().unwrap()
                    )
                })
            })
            .collect::<Vec<_>>()
        };
        assert_eq!(
            first(""),
            [] as [&str; 0],
            "who comes for the first time reads the workflow"
        );
        assert_eq!(
            first("last-event-id: 1\r\n"),
            [] as [&str; 0],
            "nothing was missed"
        );
        flows.post(&format!("/v1/workflows/{id}/jobs/a:skip"), json!({}));
        assert_eq!(
            first("last-event-id: 1\r\n"),
            ["a skipped", "b ready", "c skipped"]
        );
        assert_eq!(first("last-event-id: 2\r\n"), [] as [&str; 0]);
    });
}

/// The jobs were missing when the workflow changed while the reader was coming back.
#[test]
fn a_reader_that_comes_back_during_a_change_hears_of_its_jobs() {
    let flows = Flows::start(&[]);
    for round in 0..150 {
        let id = flows.create(workflow("w", "a"));
        let heard = std::thread::scope(|scope| {
            let change = scope.spawn(|| {
                // The change meets the read at another moment in each round.
                (0..round % 50 * 20).for_each(|_| std::thread::yield_now());
                flows.post(&format!("/v1/workflows/{id}:cancel"), json!({}))
            });
            let mut events = Events::after(flows.api(), &id, "last-event-id: 1\r\n");
            let mut jobs = 0;
            while let Some((name, data)) = events.next() {
                jobs += usize::from(name == "job");
                if data["status"] == "cancelled" {
                    break;
                }
            }
            change.join().unwrap();
            jobs
        });
        assert_eq!(heard, 1, "in round {round}");
    }
}

#[test]
fn whoever_waits_for_the_end_is_told_at_once() {
    let flows = Flows::start(&[]);
    let id = flows.create(workflow("w", "a"));
    let path = format!("/v1/workflows/{id}");
    assert_eq!(
        flows.get(&format!("{path}?wait=10ms"))["status"],
        "running",
        "ten milliseconds pass"
    );
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| flows.get(&format!("{path}?wait=15s&view=jobs")));
        flows.succeed(&flows.claim(1)[0], Value::Null);
        let shown = waiting.join().unwrap();
        assert_eq!(
            (&shown["status"], &shown["jobs"][0]["state"]),
            (&json!("succeeded"), &json!("succeeded"))
        );
    });
}

#[test]
fn graphs_are_drawn_in_five_forms() {
    let flows = Flows::start(&[]);
    let id = flows.create(workflow("w", "a b<a c<a"));
    let graph = |form: &str| flows.ask("GET", &format!("/v1/workflows/{id}/graph.{form}"), &[], "");
    for (form, kind, part) in [
        ("svg", "image/svg+xml", "<svg"),
        ("dot", "text/vnd.graphviz; charset=utf-8", "digraph"),
        ("mmd", "text/vnd.mermaid; charset=utf-8", "flowchart"),
        ("txt", "text/plain; charset=utf-8", "a"),
    ] {
        let answer = graph(form);
        assert_eq!(
            (answer.status, answer.header("content-type")),
            (200, Some(kind))
        );
        assert!(answer.body.contains(part), "{}", answer.body);
    }
    let layout: Value = serde_json::from_str(&graph("json").body).unwrap();
    assert_eq!(layout["nodes"].as_array().unwrap().len(), 3);
    assert_eq!(layout["nodes"][0]["state"], "ready");
    let numbers =
        |name: &str| -> Vec<u64> { serde_json::from_value(layout["edges"][name].clone()).unwrap() };
    let (ends, lengths, points) = (numbers("ends"), numbers("lengths"), numbers("points"));
    assert!(ends == [0, 1, 0, 2] && lengths.len() == 2, "{layout}");
    let mut rest = &points[..];
    for (ends, length) in ends.chunks(2).zip(lengths) {
        let line;
        (line, rest) = rest.split_at(2 * length as usize);
        let at = |end: u64, name: &str| layout["nodes"][end as usize][name].as_u64().unwrap();
        assert_eq!(line[0], at(ends[0], "x") + at(ends[0], "width"), "{layout}");
        assert_eq!(line[line.len() - 2], at(ends[1], "x"), "{layout}");
    }
    assert!(rest.is_empty(), "{layout}");
    let ascii = flows
        .ask(
            "GET",
            &format!("/v1/workflows/{id}/graph.txt?ascii=true"),
            &[],
            "",
        )
        .body;
    assert!(ascii.is_ascii(), "{ascii}");
}

#[test]
fn claims_do_not_wait_for_pictures() {
    const JOBS: usize = 3_000;
    const PICTURES: usize = 24;
    let flows = Flows::start(&[]);
    let job = |at: usize| {
        let after: Vec<String> = [at / 2, at / 3]
            .iter()
            .filter(|&&to| to < at)
            .map(|to| format!("j{to}"))
            .collect();
        json!({"name": format!("j{at}"), "handler": "Handler", "queue": "far", "after": after})
    };
    let large =
        flows.create(json!({"name": "large", "jobs": (0..JOBS).map(job).collect::<Vec<_>>()}));
    let all: Vec<String> = (0..40).map(|at| format!("k{at}")).collect();
    flows.create(workflow("small", &all.join(" ")));
    let begin = Instant::now();
    let (pictures, slowest) = std::thread::scope(|scope| {
        let ask = || flows.ask("GET", &format!("/v1/workflows/{large}/graph.svg"), &[], "");
        let pictures: Vec<_> = (0..PICTURES).map(|_| scope.spawn(ask)).collect();
        let claim = || {
            let begin = Instant::now();
            assert_eq!(flows.claim(1).len(), 1);
            begin.elapsed()
        };
        let slowest = (0..20).map(|_| claim()).max().unwrap();
        let drawn = pictures.into_iter().map(|picture| picture.join().unwrap());
        assert!(
            drawn
                .map(|answer| answer.status)
                .all(|status| status == 200)
        );
        (begin.elapsed(), slowest)
    });
    // Drawn where claims are served, the first claim would wait for about all of them.
    assert!(
        slowest < pictures / 3,
        "a claim took {slowest:?} of {pictures:?}"
    );
}

#[test]
fn metrics_count_what_happened() {
    let flows = Flows::start(&[]);
    let id = flows.create(workflow("w", "a b"));
    let jobs = flows.claim(2);
    flows.succeed(&jobs[0], Value::Null);
    flows.post(&format!("/v1/workflows/{id}:cancel"), json!({}));
    flows.succeed(&jobs[1], Value::Null);
    let debug = flows.server.debug();
    for (name, value) in [
        ("tidegate.workflows.created", 1),
        ("tidegate.jobs.claimed", 2),
        ("tidegate.jobs.succeeded", 1),
        ("tidegate.leases.lost", 1),
    ] {
        assert_eq!(flows.server.stat(name), value, "{name}");
    }
    let page = get(debug, "/metrics").body;
    assert!(page.contains("tidegate_jobs_claimed 2\n"), "{page}");
    let attempts =
        "tidegate_job_attempt_seconds_count{handler=\"Handler\",outcome=\"succeeded\"} 1\n";
    assert!(
        page.contains(attempts),
        "a report after the lease was lost is no attempt: {page}"
    );
    await_that("queues are sampled", || {
        get(debug, "/metrics")
            .body
            .contains("tidegate_queue_ready_jobs{queue=\"default\"} 0\n")
    });
}

/// Of a workflow with several queues, and of one that is read as a whole because it has more than eight jobs.
#[test]
fn running_jobs_are_counted_by_queue() {
    on_each_store(|flows| {
        let mut small = workflow("w", "a b c");
        small["jobs"][1]["queue"] = json!("mail");
        let mut large = workflow("w", "a b c d e f g h i j<a");
        large["jobs"][1]["queue"] = json!("mail");
        flows.create(small);
        flows.create(large);
        let claim = |queue: &str| {
            let claim = json!({"queues": [queue], "worker": "w", "limit": 1});
            flows.post("/v1/jobs/claim", claim)["jobs"]
                .as_array()
                .unwrap()
                .first()
                .cloned()
        };
        let jobs: Vec<Value> = std::iter::from_fn(|| claim("default")).collect();
        assert_eq!(
            jobs.len(),
            10,
            "two are in the other queue, and one waits for another job"
        );
        flows.succeed(&jobs[0], Value::Null);
        assert_eq!(std::iter::from_fn(|| claim("mail")).count(), 2);
        await_that("running jobs are shown", || {
            let page = get(flows.server.debug(), "/metrics").body;
            let shown = |queue: &str, number: usize| {
                page.contains(&format!(
                    "tidegate_queue_running_jobs{{queue=\"{queue}\"}} {number}\n"
                ))
            };
            shown("default", 9) && shown("mail", 2)
        });
    });
}

#[test]
fn commands_of_workflows_are_counted_as_a_pool_of_their_own() {
    let redis = redis();
    let flows = Flows::on(&redis);
    let page = || get(flows.server.debug(), "/metrics").body;
    let sample = |page: &str, name: &str, more: &str| -> Option<u64> {
        let name = format!("{name}{{pool=\"workflows\"{more}}} ");
        page.lines()
            .find_map(|line| line.strip_prefix(&name))
            .map(|value| value.parse().unwrap())
    };
    assert_eq!(
        sample(&page(), "tidegate_redis_commands", ""),
        None,
        "there is no store yet"
    );
    flows.create(workflow("w", "a"));
    let before = sample(&page(), "tidegate_redis_commands", "").unwrap();
    flows.succeed(&flows.claim(1)[0], Value::Null);
    let page = page();
    assert!(
        sample(&page, "tidegate_redis_commands", "").unwrap() >= before + 2,
        "{page}"
    );
    for (name, more) in [
        ("tidegate_redis_connections", ""),
        ("tidegate_redis_connections_opened_total", ""),
        ("tidegate_redis_writes", ""),
        ("tidegate_redis_replies", ""),
        ("tidegate_redis_outcomes_total", ",outcome=\"reply\""),
    ] {
        assert!(
            sample(&page, name, more).is_some_and(|value| value > 0),
            "{name}\n{page}"
        );
    }
    assert!(flows.server.stat("tidegate.redis.workflows.commands") > before);
}
