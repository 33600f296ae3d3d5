//! What receivers of statsd and DogStatsD get. They are sockets of the test.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::{Arc, Mutex};

use tonic::transport::Channel;

use crate::operate::process::Process;
use crate::support::{Limits, Server, ask, await_that, channel, get, request};

const HITS: &str = "ratelimit.service.rate_limit.shop.user.total_hits";

/// What a receiver got, in pieces as they came.
#[derive(Clone, Default)]
struct Got(Arc<Mutex<Vec<String>>>);

impl Got {
    fn push(&self, text: &[u8]) {
        self.0
            .lock()
            .unwrap()
            .push(String::from_utf8(text.to_vec()).unwrap());
    }

    fn pieces(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    fn lines(&self) -> Vec<String> {
        self.pieces().concat().lines().map(str::to_owned).collect()
    }

    /// The sum of a counter.
    fn sum(&self, name: &str) -> u64 {
        let value = |line: String| {
            line.strip_prefix(name)?
                .strip_prefix(':')?
                .split_once("|c")?
                .0
                .parse::<u64>()
                .ok()
        };
        self.lines().into_iter().filter_map(value).sum()
    }
}

/// A receiver of datagrams, which lives as long as the process.
fn datagrams() -> (SocketAddr, Got) {
    let (socket, got) = (UdpSocket::bind("127.0.0.1:0").unwrap(), Got::default());
    let (address, sink) = (socket.local_addr().unwrap(), got.clone());
    std::thread::spawn(move || {
        let mut piece = [0; 65_536];
        while let Ok(length) = socket.recv(&mut piece) {
            sink.push(&piece[..length]);
        }
    });
    (address, got)
}

/// A receiver of connections, which hands each of them over.
fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// Reads a connection to its end.
fn read(mut stream: TcpStream) -> Got {
    let got = Got::default();
    let sink = got.clone();
    std::thread::spawn(move || {
        let mut piece = [0; 65_536];
        while let Ok(length @ 1..) = stream.read(&mut piece) {
            sink.push(&piece[..length]);
        }
    });
    got
}

fn start(switch: &str, address: SocketAddr, more: &[(&str, &str)]) -> Server {
    let port = address.port().to_string();
    let to = [
        (switch, "true"),
        ("STATSD_HOST", "127.0.0.1"),
        ("STATSD_PORT", port.as_str()),
    ];
    let limits = if more.iter().any(|(name, _)| *name == "RUNTIME_ROOT") {
        Server::start_bare
    } else {
        Server::start
    };
    limits(&[&to[..], &[("STATS_FLUSH_INTERVAL", "50ms")], more].concat())
}

async fn hit(channel: &Channel, times: usize) {
    for _ in 0..times {
        ask(channel, request("shop", &[&[("user", "ada")]]))
            .await
            .unwrap();
    }
}

/// One call with a descriptor for each key.
async fn hit_all(channel: &Channel, keys: &[String]) {
    let pairs: Vec<[(&str, &str); 1]> = keys.iter().map(|key| [(key.as_str(), "x")]).collect();
    let descriptors: Vec<&[(&str, &str)]> = pairs.iter().map(|pair| &pair[..]).collect();
    ask(channel, request("shop", &descriptors)).await.unwrap();
}

/// How many calls the lines of a timer weigh. Each of them took a time that makes sense.
fn timed_calls(lines: &[String], timer: &str) -> u64 {
    let weights = lines.iter().filter_map(|line| {
        let (millis, rate) = line.strip_prefix(timer)?.split_once("|ms").unwrap();
        let millis: f64 = millis.parse().unwrap();
        assert!((0.001..20_000.0).contains(&millis), "{line}");
        let weight = |rate: &str| (1.0 / rate.parse::<f64>().unwrap()) as u64;
        Some(rate.strip_prefix("|@").map_or(1, weight))
    });
    weights.sum()
}

const TAGS: &str = ".__app=x.__zone=eu_1";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn statsd_gets_increases_gauges_and_timers_under_the_references_names() {
    let (listener, address) = listener();
    let more = [
        ("EXTRA_TAGS", "zone:eu.1,app:x"),
        ("LOCAL_CACHE_SIZE_IN_BYTES", "1000000"),
    ];
    let server = start("USE_STATSD", address, &more);
    let got = read(listener.accept().unwrap().0);
    let channel = server.channel().await;
    hit(&channel, 5).await;
    let other = request("other", &[&[("user", "ada")]]);
    ask(&channel, other).await.unwrap();
    ask(&channel, request("", &[])).await.unwrap_err();
    let sum = |name: &str| got.sum(&format!("{name}{TAGS}"));
    let total = "ratelimit_server.ShouldRateLimit.total_requests";
    await_that("all calls are told", || sum(total) == 7);
    hit(&channel, 2).await;
    // The last flush is sent while the server ends.
    server.stop();
    await_that("all is told", || sum(total) == 9);
    for (name, expected) in [
        ("rate_limit.shop.user.total_hits", 7),
        ("rate_limit.shop.user.over_limit", 4),
        ("rate_limit.shop.user.near_limit", 1),
        ("rate_limit.shop.user.within_limit", 3),
        ("rate_limit.shop.user.over_limit_with_local_cache", 3),
        ("rate_limit.other.domain_not_found", 1),
        ("call.should_rate_limit.service_error", 1),
        ("config_load_success", 1),
    ] {
        let name = format!("ratelimit.service.{name}");
        assert_eq!(sum(&name), expected, "{name}");
    }
    let lines = got.lines();
    let unchanged = lines.iter().find(|line| line.contains(":0|c"));
    assert_eq!(unchanged, None, "a counter that did not change is not sent");
    let error = lines.iter().find(|line| line.contains("config_load_error"));
    assert_eq!(error, None);
    let gauge = format!("runtime.num_values{TAGS}:1|g");
    let gauges = lines.iter().filter(|line| **line == gauge);
    assert!(gauges.count() > 1, "a gauge is sent each time: {lines:?}");
    let timer = format!("ratelimit_server.ShouldRateLimit.response_time{TAGS}:");
    assert_eq!(timed_calls(&lines, &timer), 9);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn datagrams_have_whole_lines_and_fit_a_frame() {
    let (address, got) = datagrams();
    let server = start("USE_STATSD", address, &[("STATSD_PROTOCOL", "udp")]);
    let channel = server.channel().await;
    for number in 0..300 {
        ask(
            &channel,
            request(
                &format!("domain-{number}:|\n\u{e9}{}", "x".repeat(100)),
                &[&[("k", "v")]],
            ),
        )
        .await
        .unwrap();
    }
    hit(&channel, 3).await;
    await_that("all is told", || {
        got.sum("ratelimit_server.ShouldRateLimit.total_requests") == 303
    });
    assert_eq!(got.sum(HITS), 3);
    let pieces = got.pieces();
    for piece in &pieces {
        assert!(
            piece.len() <= 1_432 && piece.ends_with('\n'),
            "{} bytes",
            piece.len()
        );
        for line in piece.lines() {
            let (_, rest) = line.split_once(':').unwrap();
            let (value, kind) = rest.split_once('|').unwrap();
            assert!(
                value.parse::<f64>().is_ok()
                    && ["c", "g", "ms"].contains(&kind.split('|').next().unwrap()),
                "{line}"
            );
        }
    }
    assert_eq!(
        pieces.concat().matches("domain_not_found:1|c\n").count(),
        300
    );
}

const MOGRIFIER: [(&str, &str); 5] = [
    ("EXTRA_TAGS", "app:x"),
    ("USE_DOG_STATSD_MOGRIFIERS", "limit"),
    (
        "DOG_STATSD_MOGRIFIER_LIMIT_PATTERN",
        r"^ratelimit\.service\.rate_limit\.([^.]+)\.(.+)\.([^.]+)$",
    ),
    ("DOG_STATSD_MOGRIFIER_LIMIT_NAME", "limits.$3"),
    ("DOG_STATSD_MOGRIFIER_LIMIT_TAGS", "domain:$1,key:$2"),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dogstatsd_gets_tags_new_names_and_events() {
    let (address, got) = datagrams();
    let files = Limits::new(crate::support::LIMITS);
    let more = [&[("RUNTIME_ROOT", files.root())], &MOGRIFIER[..]].concat();
    let server = start("USE_DOG_STATSD", address, &more);
    hit(&server.channel().await, 4).await;
    let told = |start: &str, end: &str| {
        let is_told = |line: &String| line.starts_with(start) && line.ends_with(end);
        got.lines().iter().any(is_told)
    };
    let value = |line: String| {
        line.split([':', '|'])
            .nth(1)
            .unwrap()
            .parse::<u64>()
            .unwrap()
    };
    await_that("the hits are told", || {
        let mut lines = got.lines();
        lines.retain(|line| line.starts_with("limits.total_hits:"));
        lines.into_iter().map(value).sum::<u64>() == 4
    });
    for (start, end) in [
        ("limits.total_hits:", "|c|#app:x,domain:shop,key:user"),
        (
            "ratelimit_server.ShouldRateLimit.total_requests:",
            "|c|#app:x",
        ),
        ("runtime.num_values:1", "|g|#app:x"),
    ] {
        assert!(told(start, end), "{start}: {:?}", got.lines());
    }
    let success = "Tidegate loaded its configuration|It is in force.|t:success|#app:x";
    await_that("an event", || told("_e{", success));
    files.write("limits.yaml", "domain: [");
    await_that("another event", || told("_e{", "|t:error|#app:x"));
    let mut events = got.lines();
    events.retain(|line| line.starts_with("_e{"));
    assert_eq!(events.len(), 2, "{events:?}");
}

/// Hits that a receiver missed because it was away come with the next connection: none is told twice, and few are lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_closed_connection_did_not_take_is_told_on_the_next_one() {
    let (listener, address) = listener();
    let server = start("USE_STATSD", address, &[]);
    let channel = server.channel().await;
    let (stream, _) = listener.accept().unwrap();
    let first = read(stream.try_clone().unwrap());
    hit(&channel, 3).await;
    await_that("the first hits are told", || first.sum(HITS) == 3);
    stream.shutdown(std::net::Shutdown::Both).unwrap();
    drop(listener);
    hit(&channel, 50).await;
    await_that("a failure is noticed", || {
        server.stat("tidegate.statsd.sent_lines") > 0 && TcpStream::connect(address).is_err()
    });
    hit(&channel, 50).await;
    let listener = rebound(address);
    let second = read(listener.accept().unwrap().0);
    hit(&channel, 1).await;
    await_that("the other hits are told", || second.sum(HITS) > 0);
    server.stop();
    // The flush under way when the connection ended may be lost, but no other.
    await_that("all hits are told", || {
        (51..=101).contains(&second.sum(HITS))
    });
}

/// The port again, which an ended connection may still hold for a moment.
fn rebound(address: SocketAddr) -> TcpListener {
    let mut listener = None;
    await_that("the port is free again", || {
        listener = TcpListener::bind(address).ok();
        listener.is_some()
    });
    listener.unwrap()
}

/// A receiver that takes the connection and never reads: calls go on, nothing is gathered for it, and the server ends in time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_that_never_reads_disturbs_nobody() {
    // Each of these names takes more than a hundred bytes twice: together more than a system holds for a connection.
    let keys: Vec<String> = (0..30_000)
        .map(|number| format!("{number:0>100}"))
        .collect();
    let limit = |key: &String| {
        format!("  - {{key: '{key}', rate_limit: {{unit: day, requests_per_unit: 1000000}}}}\n")
    };
    let files = Limits::new(&format!(
        "domain: shop\ndescriptors:\n{}",
        keys.iter().map(limit).collect::<String>()
    ));
    let (listener, address) = listener();
    let server = start("USE_STATSD", address, &[("RUNTIME_ROOT", files.root())]);
    let (stream, _) = listener.accept().unwrap();
    let channel = server.channel().await;
    for keys in keys.chunks(500) {
        hit_all(&channel, keys).await;
    }
    await_that("the connection is given up", || {
        server.stat("tidegate.statsd.lost_lines") > 0
    });
    hit_all(&channel, &keys[..500]).await;
    assert_eq!(
        server.stat("ratelimit_server.ShouldRateLimit.total_requests"),
        61
    );
    assert_eq!(get(server.http(), "/healthcheck").status, 200);
    server.stop();
    drop(stream);
}

/// With 100,000 names and a flush each second, health answers, and every hit is told once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_thousand_names_are_told_beside_calls() {
    const NAMES: usize = 100_000;
    let limit = |number| {
        format!(
            "  - {{key: limit-{number}, rate_limit: {{unit: day, requests_per_unit: 1000000}}}}\n"
        )
    };
    let files = Limits::new(&format!(
        "domain: shop\ndescriptors:\n{}",
        (0..NAMES).map(limit).collect::<String>()
    ));
    let (listener, address) = listener();
    let server = start(
        "USE_STATSD",
        address,
        &[
            ("RUNTIME_ROOT", files.root()),
            ("STATS_FLUSH_INTERVAL", "1s"),
        ],
    );
    let got = read(listener.accept().unwrap().0);
    let channel = server.channel().await;
    let keys: Vec<String> = (0..NAMES).map(|number| format!("limit-{number}")).collect();
    for keys in keys.chunks(500) {
        hit_all(&channel, keys).await;
        assert_eq!(get(server.http(), "/healthcheck").status, 200);
    }
    let calls = "ratelimit_server.ShouldRateLimit.total_requests";
    await_that("all calls are told", || {
        got.sum(calls) == (NAMES / 500) as u64
    });
    server.stop();
    let mut hits = BTreeMap::<String, u64>::new();
    for line in got
        .lines()
        .iter()
        .filter(|line| line.contains(".total_hits:"))
    {
        let (name, value) = line.split_once(':').unwrap();
        *hits.entry(name.to_owned()).or_default() +=
            value.split_once('|').unwrap().0.parse::<u64>().unwrap();
    }
    assert_eq!(hits.len(), NAMES);
    assert!(hits.values().all(|hits| *hits == 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_line_that_fits_no_datagram_is_counted_and_not_sent() {
    let (address, got) = datagrams();
    let key = "k".repeat(2_000);
    let files = Limits::new(&format!(
        "domain: shop\ndescriptors:\n  - {{key: user, rate_limit: {{unit: day, requests_per_unit: 9}}}}\n  - {{key: {key}, rate_limit: {{unit: day, requests_per_unit: 9}}}}\n"
    ));
    let server = start(
        "USE_STATSD",
        address,
        &[("STATSD_PROTOCOL", "udp"), ("RUNTIME_ROOT", files.root())],
    );
    ask(
        &server.channel().await,
        request("shop", &[&[("user", "ada")], &[(&key, "x")]]),
    )
    .await
    .unwrap();
    await_that("the line is counted", || {
        server.stat("tidegate.statsd.too_long_lines") == 2
    });
    await_that("others are told", || got.sum(HITS) == 1);
    assert!(got.pieces().iter().all(|piece| piece.len() <= 1_432));
}

/// With 2,000 rules for names, the last flush was not ended by its deadline, and the end waited for it in vain.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_rules_for_names_do_not_hold_up_the_end() {
    let keys: Vec<String> = (0..3_000)
        .map(|number| format!("a_name_that_is_not_short_{number}"))
        .collect();
    let limit = |key: &String| {
        format!("  - {{key: '{key}', rate_limit: {{unit: day, requests_per_unit: 1000000}}}}\n")
    };
    let files = Limits::new(&format!(
        "domain: shop\ndescriptors:\n{}",
        keys.iter().map(limit).collect::<String>()
    ));
    let (address, _got) = datagrams();
    let (host, port) = (address.ip().to_string(), address.port().to_string());
    let mut settings: Vec<(String, String)> = [
        ("RUNTIME_ROOT", files.root()),
        ("USE_DOG_STATSD", "true"),
        ("STATSD_HOST", &host),
        ("STATSD_PORT", &port),
        // Only the last flush is made.
        ("STATS_FLUSH_INTERVAL", "1h"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .into();
    let rules: Vec<String> = (0..2_000).map(|number| format!("R{number}")).collect();
    for rule in &rules {
        settings.push((
            format!("DOG_STATSD_MOGRIFIER_{rule}_PATTERN"),
            format!("([a-z]+)_([0-9]+)_{rule}$"),
        ));
        settings.push((
            format!("DOG_STATSD_MOGRIFIER_{rule}_NAME"),
            "never".to_owned(),
        ));
    }
    settings.push(("USE_DOG_STATSD_MOGRIFIERS".to_owned(), rules.join(",")));
    let settings: Vec<_> = settings
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    let process = Process::start(&settings);
    let channel = channel(process.address("gRPC")).await;
    for keys in keys.chunks(500) {
        hit_all(&channel, keys).await;
    }
    process.signal("TERM");
    let (code, log) = process.end();
    assert_eq!(code, Some(0), "{log}");
    assert!(log.contains("making the lines takes too long"), "{log}");
    assert!(!log.contains("a thread does not end"), "{log}");
}
