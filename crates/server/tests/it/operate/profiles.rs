//! `/debug/pprof` and `/debug/threads` on the debug port.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Instant;

use flate2::read::GzDecoder;
use prost::Message;

use crate::support::{PATIENCE, Server, ask, await_that, get, request};

/// What `go tool pprof` reads of a profile, and this test needs.
#[derive(Clone, PartialEq, Message)]
struct Profile {
    #[prost(message, repeated, tag = "1")]
    sample_type: Vec<ValueType>,
    #[prost(message, repeated, tag = "2")]
    sample: Vec<Sample>,
    #[prost(message, repeated, tag = "4")]
    location: Vec<Location>,
    #[prost(message, repeated, tag = "5")]
    function: Vec<Function>,
    #[prost(string, repeated, tag = "6")]
    string_table: Vec<String>,
    #[prost(int64, tag = "10")]
    duration_nanos: i64,
}

#[derive(Clone, PartialEq, Message)]
struct ValueType {
    #[prost(int64, tag = "1")]
    kind: i64,
    #[prost(int64, tag = "2")]
    unit: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Sample {
    #[prost(uint64, repeated, tag = "1")]
    location_id: Vec<u64>,
    #[prost(int64, repeated, tag = "2")]
    value: Vec<i64>,
}

#[derive(Clone, PartialEq, Message)]
struct Location {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(message, repeated, tag = "4")]
    line: Vec<Line>,
}

#[derive(Clone, PartialEq, Message)]
struct Line {
    #[prost(uint64, tag = "1")]
    function_id: u64,
}

#[derive(Clone, PartialEq, Message)]
struct Function {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(int64, tag = "2")]
    name: i64,
}

impl Profile {
    fn text(&self, at: i64) -> &str {
        &self.string_table[at as usize]
    }

    /// The names of a stack, the outermost first.
    fn stack(&self, sample: &Sample) -> Vec<&str> {
        let name = |id: &u64| {
            let location = self
                .location
                .iter()
                .find(|location| location.id == *id)
                .unwrap();
            let function = self
                .function
                .iter()
                .find(|function| function.id == location.line[0].function_id)
                .unwrap();
            self.text(function.name)
        };
        sample.location_id.iter().rev().map(name).collect()
    }
}

/// One exchange, with a body that need not be text.
fn get_bytes(address: SocketAddr, path: &str) -> (String, Vec<u8>) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n"
    )
    .unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let end = answer
        .windows(4)
        .position(|four| four == b"\r\n\r\n")
        .unwrap();
    (
        String::from_utf8(answer[..end].to_vec()).unwrap(),
        answer.split_off(end + 4),
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_profile_shows_which_thread_works_and_go_can_read_it() {
    let server = Server::start(&[]);
    let address = server.debug();
    let profile =
        tokio::task::spawn_blocking(move || get_bytes(address, "/debug/pprof/profile?seconds=1"));
    let channel = server.channel().await;
    while !profile.is_finished() {
        ask(&channel, request("shop", &[&[("free", "x")]]))
            .await
            .unwrap();
    }
    let (head, body) = profile.await.unwrap();
    assert!(
        head.starts_with("HTTP/1.1 200") && head.contains("content-type: application/octet-stream"),
        "{head}"
    );
    let mut plain = Vec::new();
    GzDecoder::new(&*body).read_to_end(&mut plain).unwrap();
    let profile = Profile::decode(&*plain).unwrap();
    assert_eq!(profile.string_table[0], "");
    let types: Vec<_> = profile
        .sample_type
        .iter()
        .map(|of| (profile.text(of.kind), profile.text(of.unit)))
        .collect();
    assert_eq!(types, [("waiting", "nanoseconds"), ("cpu", "nanoseconds")]);
    assert!(
        profile.duration_nanos >= 1_000_000_000,
        "{}",
        profile.duration_nanos
    );
    let works = |sample: &&Sample| {
        let stack = profile.stack(sample);
        let modes = ["user", "kernel"].map(|mode| format!("{} ({mode})", stack[1]));
        stack[0] == "tidegate"
            && stack[1].starts_with("core-")
            && modes.iter().any(|mode| mode == stack[2])
    };
    let cpu: i64 = profile
        .sample
        .iter()
        .filter(works)
        .map(|sample| sample.value[1])
        .sum();
    assert!(cpu > 1_000_000, "{cpu} ns: {profile:?}");
}

#[test]
fn a_profile_as_text_has_a_line_for_each_thread_and_mode() {
    let server = Server::start(&[]);
    let text = get(server.debug(), "/debug/pprof/profile?debug=1&seconds=1").body;
    assert!(!text.is_empty());
    for line in text.lines() {
        let (stack, nanos) = line.rsplit_once(' ').unwrap();
        assert!(
            stack.starts_with("tidegate;") && stack.split(';').count() == 3,
            "{line}"
        );
        assert!(nanos.parse::<u64>().unwrap() > 0, "{line}");
    }
    let refused = get(server.debug(), "/debug/pprof/profile?seconds=61");
    assert_eq!(
        (refused.status, &*refused.body),
        (400, "seconds: expected a whole number from 1 to 60\n")
    );
}

#[test]
fn the_threads_are_listed() {
    let server = Server::start(&[]);
    let threads = get(server.debug(), "/debug/threads").body;
    assert!(
        threads.starts_with("threads: ")
            && threads.contains(" core-0 ")
            && threads.contains(" ran "),
        "{threads}"
    );
}

#[test]
fn the_index_has_the_pages_and_the_words_of_the_reference() {
    let server = Server::start(&[]);
    for path in ["/", "/what"] {
        let index = get(server.debug(), path).body;
        let lines: Vec<_> = index.lines().collect();
        assert!(lines.is_sorted(), "{index}");
        for line in [
            "/debug/pprof/: root of various pprof endpoints. hit for help.",
            "/debug/pprof/profile: CPU profiling endpoint",
            "/rlconfig: print out the currently loaded configuration for debugging",
            "/stats: print out stats",
        ] {
            assert!(lines.contains(&line), "{line} is not in\n{index}");
        }
    }
}

#[test]
fn a_long_profile_does_not_hold_up_the_end() {
    let server = Server::start(&[]);
    let mut stream = TcpStream::connect(server.debug()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let ask = "GET /stats HTTP/1.1\r\nhost: t\r\n\r\nGET /debug/pprof/profile?seconds=60 HTTP/1.1\r\nhost: t\r\n\r\n";
    stream.write_all(ask.as_bytes()).unwrap();
    // Both arrived together: with the first answer, the second request has been read.
    let mut first = [0; 1];
    stream.read_exact(&mut first).unwrap();
    let begun = Instant::now();
    server.stop();
    assert!(begun.elapsed() < PATIENCE, "{:?}", begun.elapsed());
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).unwrap();
    let text = String::from_utf8_lossy(&rest);
    assert!(text.matches("HTTP/1.1 200").count() >= 1, "{text}");
}

/// Each kept a connection for a minute: 64 of them took all places of the port.
#[test]
fn few_profiles_are_in_progress_and_the_other_pages_answer() {
    let server = Server::start(&[]);
    let profile = || {
        let mut stream = TcpStream::connect(server.debug()).unwrap();
        let ask =
            "GET /debug/pprof/profile?seconds=60 HTTP/1.1\r\nhost: t\r\nconnection: close\r\n\r\n";
        stream.write_all(ask.as_bytes()).unwrap();
        stream
    };
    let mut asked: Vec<_> = (0..64).map(|_| profile()).collect();
    asked
        .iter()
        .for_each(|stream| stream.set_nonblocking(true).unwrap());
    let mut refused = Vec::new();
    await_that("all but four are refused", || {
        asked.retain_mut(|stream| {
            let mut answer = vec![0; 4096];
            let Ok(length) = stream.read(&mut answer) else {
                return true;
            };
            refused.push(String::from_utf8_lossy(&answer[..length]).into_owned());
            false
        });
        asked.len() <= 4
    });
    assert_eq!(asked.len(), 4);
    for answer in refused {
        assert!(
            answer.starts_with("HTTP/1.1 429") && answer.contains("ask again when one has ended"),
            "{answer}"
        );
    }
    assert_eq!(get(server.debug(), "/metrics").status, 200);
    // Whoever leaves makes room.
    drop(asked);
    await_that("there is room again", || {
        get(server.debug(), "/debug/pprof/profile?seconds=1&debug=1").status == 200
    });
}
