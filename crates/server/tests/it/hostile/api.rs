//! Readers of the API that do not read.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use socket2::{Domain, Socket, Type};

use super::{LONG, grown};
use crate::operate::metrics::metric;
use crate::operate::process::Process;
use crate::support::{await_that, get, http};
use crate::workflows::{Flows, found, problem, workflow};

/// A reader with a small buffer that asks and reads nothing.
fn stalled(api: SocketAddr, path: &str) -> TcpStream {
    stalled_with(api, &format!("GET {path} HTTP/1.1\r\nhost: {api}\r\n\r\n"))
}

fn stalled_with(api: SocketAddr, request: &str) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    socket.connect(&api.into()).unwrap();
    let mut stream = TcpStream::from(socket);
    stream.write_all(request.as_bytes()).unwrap();
    stream
}

/// Asks with POST for what must succeed.
fn done(api: SocketAddr, path: &str, body: &serde_json::Value) -> serde_json::Value {
    let host = api.to_string();
    found(crate::support::http_with(
        api,
        "POST",
        path,
        &[("host", &host)],
        body.to_string().as_bytes(),
    ))
}

/// A workflow whose jobs left a MiB each, and its id. As many jobs as `after` says, of another queue, take all of that.
fn large(api: SocketAddr, jobs: usize, after: usize) -> String {
    let names: Vec<String> = (0..jobs).map(|at| format!("j{at}")).collect();
    let sums = (0..after).map(|at| format!("s{at}<{}", names.join(",")));
    let all: Vec<String> = names.iter().cloned().chain(sums).collect();
    let mut body = workflow("w", &all.join(" "));
    for job in body["jobs"].as_array_mut().unwrap().iter_mut().skip(jobs) {
        job["queue"] = "sums".into();
    }
    let id = done(api, "/v1/workflows", &body)["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let output = "x".repeat((1 << 20) - 10);
    loop {
        let claim = json!({"queues": ["default"], "worker": "w", "limit": 4});
        let claimed = done(api, "/v1/jobs/claim", &claim)["jobs"]
            .as_array()
            .unwrap()
            .clone();
        if claimed.is_empty() {
            return id;
        }
        for job in claimed {
            let report =
                json!({"lease": job["lease"], "outcome": "succeeded", "output": {"x": output}});
            done(api, "/v1/jobs/report", &json!({"reports": [report]}));
        }
    }
}

/// Forty readers that read nothing of 60 MiB took 1.7 GB, for ever.
#[test]
fn readers_that_do_not_read_hold_little_and_not_for_long() {
    let data = tempfile::tempdir().unwrap();
    let server = Process::start(&[
        ("TIDEGATE_HTTP_ADDR", "127.0.0.1:0"),
        ("TIDEGATE_DATA_DIR", data.path().to_str().unwrap()),
    ]);
    let api = server.address("API");
    let id = large(api, 24, 0);
    let path = format!("/v1/workflows/{id}?view=full");
    let grown = grown(&server, || {
        let mut readers: Vec<TcpStream> = (0..40).map(|_| stalled(api, &path)).collect();
        assert_eq!(get(api, "/healthz").status, 200);
        // A small answer needs no room.
        await_that("others are answered", || {
            http(api, "GET", "/v1/version", b"").status == 403
        });
        // Some are let in and some are refused. In the end none of them has anything of the server.
        readers.iter_mut().for_each(until_cut);
    });
    assert!(grown < 400, "{grown} MiB");
}

/// Waits until the server gives up on a reader. To read would be to read: a connection that is gone takes no more bytes.
fn until_cut(reader: &mut TcpStream) {
    let begun = Instant::now();
    reader.set_nonblocking(true).unwrap();
    while reader.write(b" ").is_ok_and(|length| length > 0) {
        assert!(begun.elapsed() < LONG, "it stays open");
        std::thread::park_timeout(Duration::from_millis(100));
    }
}

/// The answer to a claim on a connection of its own.
fn claim_from(from: IpAddr, api: SocketAddr, queue: &str) -> String {
    let mut stream = from_address(from, api);
    let body = json!({"queues": [queue], "worker": "w", "lease": "1h"}).to_string();
    let head = format!("POST /v1/jobs/claim HTTP/1.1\r\nhost: {api}\r\nconnection: close\r\n");
    write!(stream, "{head}content-length: {}\r\n\r\n{body}", body.len()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// Answers to claims were outside of every bound: fifty that nobody read held 1.6 GB. Then who arrived together had no bound together:
/// 250 that waited for work had 7.9 GB read for them, and what they held kept all other callers out.
#[test]
fn claims_that_are_not_read_hold_no_more_than_other_answers() {
    const READERS: usize = 12;
    let flows = Flows::start(&[]);
    let api = flows.api();
    large(api, 24, READERS);
    let body = json!({"queues": ["sums"], "worker": "w", "lease": "1h", "wait": "60s"}).to_string();
    let head = format!(
        "POST /v1/jobs/claim HTTP/1.1\r\nhost: {api}\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    flows.ask("POST", "/v1/queues/sums:pause", &[], "");
    let mut readers: Vec<TcpStream> = (0..READERS)
        .map(|_| stalled_with(api, &format!("{head}{body}")))
        .collect();
    flows.ask("POST", "/v1/queues/sums:resume", &[], "");
    let told = readers.iter_mut().map(|reader| {
        let mut start = [0; 12];
        reader.set_read_timeout(Some(LONG)).unwrap();
        reader.read_exact(&mut start).unwrap();
        String::from_utf8_lossy(&start).into_owned()
    });
    let told: Vec<String> = told.collect();
    // Five answers of 24 MiB are what one caller may have.
    let count = |wanted: &str| told.iter().filter(|start| *start == wanted).count();
    assert_eq!(count("HTTP/1.1 200"), 5, "{told:?}");
    assert_eq!(count("HTTP/1.1 503"), READERS - 5, "{told:?}");
    // Nothing is claimed for who cannot be told.
    let claim = |from: IpAddr| claim_from(from, api, "sums");
    // The jobs of the others are written back after these were told, so a claim may come too early.
    let told = "too many bytes of answers that were not read: this caller has";
    await_that("the same caller is refused", || {
        claim(Ipv4Addr::LOCALHOST.into()).contains(told)
    });
    // Small answers of the same caller need no room, and other callers have their own.
    let small = claim_from(Ipv4Addr::LOCALHOST.into(), api, "none");
    assert!(small.starts_with("HTTP/1.1 200"), "{small}");
    await_that("another gets a job", || {
        jobs(&claim(Ipv4Addr::new(127, 0, 0, 2).into())) == 1
    });
    drop(readers);
    let mut claimed = 6;
    await_that(
        "there is room again, and none of the others is lost",
        || {
            claimed += jobs(&claim(Ipv4Addr::LOCALHOST.into()));
            claimed == READERS
        },
    );
}

/// How many jobs an answer has.
fn jobs(answer: &str) -> usize {
    answer.matches(r#""lease":"#).count()
}

/// A connection from an address of this machine.
fn from_address(address: IpAddr, api: SocketAddr) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::new(address, 0).into()).unwrap();
    socket.connect(&api.into()).unwrap();
    socket.into()
}

/// A thousand jobs after 1,400 with long names each: the names alone made an answer of 637 MB.
#[test]
fn names_of_inputs_count_as_a_part_of_an_answer() {
    const PARENTS: usize = 150;
    const CHILDREN: usize = 1_000;
    let flows = Flows::start(&[]);
    let children: Vec<String> = (0..CHILDREN).map(|at| format!("c{at}")).collect();
    // Each takes two bytes in JSON for one in memory.
    let parent = |at: usize| json!({"name": format!("{at:03}{}", "\"".repeat(197)), "handler": "\"".repeat(200), "before": children});
    let child = |name: &String| json!({"name": name, "handler": "h", "queue": "children", "rule": "all_done"});
    let jobs: Vec<Value> = (0..PARENTS)
        .map(parent)
        .chain(children.iter().map(child))
        .collect();
    flows.create(json!({"name": "names", "jobs": jobs}));
    let claimed = flows.claim(PARENTS);
    let reports = claimed
        .iter()
        .map(|job| json!({"lease": job["lease"], "outcome": "succeeded"}));
    flows.post(
        "/v1/jobs/report",
        json!({"reports": reports.collect::<Vec<_>>()}),
    );
    let claim = json!({"queues": ["children"], "worker": "w", "limit": CHILDREN});
    let answer = flows.ask("POST", "/v1/jobs/claim", &[], &claim.to_string());
    assert!(
        (14 << 20..16 << 20).contains(&answer.body.len()),
        "{} bytes",
        answer.body.len()
    );
    assert_eq!(
        found(answer)["jobs"][0]["inputs"].as_array().unwrap().len(),
        PARENTS
    );
}

#[test]
fn one_caller_has_a_part_of_the_event_streams() {
    let flows = Flows::start(&[("TIDEGATE_MAX_EVENT_STREAMS", "8")]);
    let id = flows.create(workflow("w", "a"));
    let path = format!("/v1/workflows/{id}/events");
    let readers: Vec<TcpStream> = (0..2).map(|_| stalled(flows.api(), &path)).collect();
    for reader in &readers {
        reader.set_read_timeout(Some(LONG)).unwrap();
        assert!(reader.peek(&mut [0]).unwrap() > 0, "the stream is open");
    }
    let refused = flows.ask("GET", &path, &[], "");
    assert_eq!(problem(&refused).1, "overloaded");
    assert!(
        refused
            .body
            .contains("too many event streams: this caller has 2 of 2"),
        "{}",
        refused.body
    );
    let debug = flows.server.debug();
    assert_eq!(
        (
            metric(debug, "tidegate_api_event_streams"),
            metric(debug, "tidegate_api_overloaded")
        ),
        (2.0, 1.0)
    );
    drop(readers);
    await_that("their places are free", || {
        let mut reader = stalled(flows.api(), &path);
        reader.set_read_timeout(Some(LONG)).unwrap();
        let mut start = [0; 12];
        std::io::Read::read_exact(&mut reader, &mut start).is_ok() && start == *b"HTTP/1.1 200"
    });
}

#[test]
fn browsers_run_nothing_of_an_answer() {
    let flows = Flows::start(&[]);
    let id = flows.create(workflow("w", "a"));
    for path in [
        "",
        "/graph.svg",
        "/graph.txt",
        "/events?x=1",
        "/jobs",
        "/nothing",
    ] {
        let answer = flows.ask("GET", &format!("/v1/workflows/{id}{path}"), &[], "");
        assert_eq!(
            answer.header("x-content-type-options"),
            Some("nosniff"),
            "{path}"
        );
        let policy = answer.header("content-security-policy").unwrap();
        assert!(
            policy.starts_with("default-src 'none'; ") && policy.ends_with("; sandbox"),
            "{path}: {policy}"
        );
    }
}
