//! Parts of a real server that panic: health says so, and the server repairs itself or ends. No half of it looks healthy.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use super::process::Process;
use crate::support::{LIMITS, Limits, PATIENCE, await_that, get};

/// Health has to be off within a second; the rest is the machine's.
const SOON: Duration = Duration::from_secs(5);

/// The status of `/healthcheck`; none when nobody answers.
fn health(address: SocketAddr) -> Option<u16> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    stream
        .write_all(b"GET /healthcheck HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        .ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    text.split(' ').nth(1)?.parse().ok()
}

struct Victim {
    process: Process,
    http: SocketAddr,
    debug: SocketAddr,
    limits: Limits,
    _data: tempfile::TempDir,
}

impl Victim {
    fn start() -> Self {
        Self::with(&[])
    }

    fn with(more: &[(&str, &str)]) -> Self {
        let (limits, data) = (Limits::new(LIMITS), tempfile::tempdir().unwrap());
        let settings = [
            ("RUNTIME_ROOT", limits.root()),
            ("TIDEGATE_HTTP_ADDR", "127.0.0.1:0"),
            ("TIDEGATE_DATA_DIR", data.path().to_str().unwrap()),
            ("LOG_LEVEL", "info"),
        ];
        let process = Process::start(&[&settings[..], more].concat());
        let (http, debug) = (process.address("HTTP"), process.address("debug"));
        assert_eq!(health(http), Some(200));
        Self {
            process,
            http,
            debug,
            limits,
            _data: data,
        }
    }

    /// Makes a part panic, and waits until health is off.
    #[track_caller]
    fn panic(&self, part: &str) {
        get(self.debug, &format!("/panic/{part}"));
        if part == "configure" {
            self.limits.write("more.yaml", "domain: more\n");
        }
        let asked = Instant::now();
        await_that("health is off", || health(self.http) != Some(200));
        assert!(
            asked.elapsed() < SOON,
            "{part}: health was off after {:?}",
            asked.elapsed()
        );
    }
}

#[test]
fn a_part_that_cannot_be_repaired_ends_the_server() {
    let redis = crate::workflows::redis();
    let url = redis.address().to_string();
    let parts = [
        "core-0",
        "core-1",
        "control",
        "accept-grpc",
        "accept-http",
        "accept-debug",
        "purge",
        "give-back",
    ];
    let in_memory = parts.map(|part| (part, vec![]));
    let prometheus = (
        "accept-prometheus",
        vec![
            ("USE_PROMETHEUS", "true"),
            ("PROMETHEUS_ADDR", "127.0.0.1:0"),
        ],
    );
    let on_redis = (
        "redis-health",
        vec![
            ("REDIS_URL", url.as_str()),
            ("REDIS_HEALTH_CHECK_ACTIVE_CONNECTION", "true"),
        ],
    );
    let on_memcached = (
        "memcache",
        vec![
            ("BACKEND_TYPE", "memcache"),
            ("MEMCACHE_HOST_PORT", "127.0.0.1:1"),
        ],
    );
    for (part, settings) in in_memory
        .into_iter()
        .chain([prometheus, on_redis, on_memcached])
    {
        let victim = Victim::with(&settings);
        victim.panic(part);
        let (code, log) = victim.process.end();
        assert_eq!(code, Some(1), "{part}: {log}");
        assert!(
            log.contains(&format!("the part '{part}' of the server panicked")),
            "{part}: {log}"
        );
    }
}

#[test]
fn a_part_that_can_be_repaired_is_and_health_comes_back() {
    // Nobody listens there.
    let traces = [
        ("TRACING_ENABLED", "true"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9"),
    ];
    let parts = [
        ("configure", "configure"),
        ("traces", "traces"),
        ("workflows", "workflows"),
        ("workflows", "workflows-1"),
    ];
    for (part, thread) in parts {
        let victim = Victim::with(&[&[("TIDEGATE_CORES", "2")], &traces[..]].concat());
        victim.panic(thread);
        await_that("health is back", || health(victim.http) == Some(200));
        let (api, debug) = (victim.process.address("API"), victim.debug);
        match part {
            "workflows" => assert_eq!(get(api, "/readyz").status, 200),
            _ => {
                victim.limits.write(
                    "even-more.yaml",
                    "domain: even_more\ndescriptors: [{key: a, rate_limit: {unit: day, requests_per_unit: 1}}]\n",
                );
                await_that("files are read", || {
                    get(debug, "/rlconfig").body.contains("even_more")
                });
            }
        }
        victim.process.signal("TERM");
        let (code, log) = victim.process.end();
        assert_eq!(code, Some(0), "{thread}: {log}");
        assert!(
            log.contains(&format!(
                "the part '{part}' of the server panicked; it is started again"
            )),
            "{log}"
        );
    }
}

#[test]
fn a_part_that_keeps_panicking_ends_the_server() {
    let victim = Victim::start();
    for _ in 0..4 {
        victim.panic("workflows");
        await_that("it is over, or health is back", || {
            health(victim.http) != Some(500)
        });
    }
    let (code, log) = victim.process.end();
    assert_eq!(code, Some(1), "{log}");
    assert!(
        log.contains(
            "the part 'workflows' of the server panicked; the server cannot go on without it"
        ),
        "{log}"
    );
}

/// All of port 8080 was served by one core, where calls of `/json` are decided. Ordered, not timed: health is asked last, and is
/// answered before the calls.
#[test]
fn health_is_answered_while_calls_of_json_take_long() {
    const CALLS: usize = 8;
    let limits = Limits::new(LIMITS);
    let process = Process::start(&[
        ("RUNTIME_ROOT", limits.root()),
        ("TIDEGATE_MAX_DESCRIPTORS", "60000"),
    ]);
    let http = process.address("HTTP");
    let entry = r#"{"entries":[{"key":"some_key","value":"some_value"}]}"#;
    let body = format!(
        r#"{{"domain":"shop","descriptors":[{}]}}"#,
        vec![entry; 60_000].join(",")
    );
    let head = format!(
        "POST /json HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    let mut calls: Vec<_> = (0..CALLS)
        .map(|_| TcpStream::connect(http).unwrap())
        .collect();
    for call in &mut calls {
        call.write_all(head.as_bytes()).unwrap();
        call.write_all(body.as_bytes()).unwrap();
        call.set_nonblocking(true).unwrap();
    }
    let asked = Instant::now();
    assert_eq!(health(http), Some(200));
    let answered = calls
        .iter()
        .filter(|call| call.peek(&mut [0]).is_ok())
        .count();
    println!(
        "health after {:?}, with {answered} of {CALLS} calls answered",
        asked.elapsed()
    );
    assert!(
        answered <= CALLS / 2,
        "{answered} calls were answered before health, after {:?}",
        asked.elapsed()
    );
    assert!(asked.elapsed() < Duration::from_secs(10));
}
