//! More of everything than there is room for: keys, descriptors, names.

use std::net::SocketAddr;

use tidegate::proto::envoy::service::ratelimit::v3::rate_limit_response::Code;
use tonic::transport::Channel;

use super::{assert_answers, grown};
use crate::operate::process::Process;
use crate::support::{Limits, ask, channel, get, request};

const FLOODED: &str = "\
domain: shop
descriptors:
  - key: free
    rate_limit: {unlimited: true}
  - key: hour
    rate_limit: {unit: hour, requests_per_unit: 5}
  - key: day
    rate_limit: {unit: day, requests_per_unit: 5}
  - key: first
    rate_limit: {name: first, unit: hour, requests_per_unit: 5}
  - key: second
    rate_limit: {name: second, unit: hour, requests_per_unit: 5, replaces: [{name: first}]}
";

/// The most descriptors of a request.
const EACH: usize = 1_000;

/// Sends hits to a thousand keys, and returns how many are over their limit.
async fn over_limit(channel: &Channel, key: &str, who: &str, hits: u32) -> usize {
    let values: Vec<String> = (0..EACH).map(|number| format!("{who}-{number}")).collect();
    let pairs: Vec<[(&str, &str); 1]> =
        values.iter().map(|value| [(key, value.as_str())]).collect();
    let descriptors: Vec<&[(&str, &str)]> = pairs.iter().map(|pair| &pair[..]).collect();
    let mut request = request("shop", &descriptors);
    request.hits_addend = hits;
    let answer = ask(channel, request).await.unwrap();
    answer
        .statuses
        .iter()
        .filter(|status| status.code() == Code::OverLimit)
        .count()
}

fn stat(debug: SocketAddr, name: &str) -> u64 {
    let stats = get(debug, "/stats").body;
    stats
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
        .unwrap()
        .parse()
        .unwrap()
}

/// A flood of keys of a day switched off every limit of a minute: what ended soonest was dropped first.
#[test]
fn limits_that_are_used_up_survive_a_flood_of_keys() {
    for flooding in ["day", "hour"] {
        let limits = Limits::new(FLOODED);
        let server = Process::start(&[
            ("RUNTIME_ROOT", limits.root()),
            ("TIDEGATE_MAX_KEYS", "10000"),
        ]);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let channel = runtime.block_on(channel(server.address("gRPC")));
        runtime.block_on(over_limit(&channel, "hour", "guarded", 5));
        let grown = grown(&server, || {
            for batch in 0..100 {
                runtime.block_on(over_limit(&channel, flooding, &format!("flood-{batch}"), 1));
            }
        });
        let enforced = runtime.block_on(over_limit(&channel, "hour", "guarded", 1));
        assert!(
            enforced >= EACH * 99 / 100,
            "beside keys of a {flooding}, {enforced} of {EACH} are enforced"
        );
        assert!(stat(server.address("debug"), "tidegate.memory.keys") <= 10_000);
        assert!(grown < 32, "{grown} MiB");
    }
}

/// Memory has a bound of its own, whatever the number of keys.
#[test]
fn a_flood_of_keys_keeps_to_its_memory() {
    let limits = Limits::new(FLOODED);
    let server = Process::start(&[
        ("RUNTIME_ROOT", limits.root()),
        ("TIDEGATE_COUNTER_MEMORY", "4M"),
    ]);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let channel = runtime.block_on(channel(server.address("gRPC")));
    let long = "x".repeat(200);
    let grown = grown(&server, || {
        for batch in 0..100 {
            runtime.block_on(over_limit(&channel, "day", &format!("{long}-{batch}"), 1));
        }
    });
    let debug = server.address("debug");
    assert!(stat(debug, "tidegate.memory.bytes") <= 4 << 20);
    assert!(stat(debug, "tidegate.memory.evictions") > 50_000);
    assert!(grown < 32, "{grown} MiB");
}

/// 20,000 descriptors held all callers of a core for 2.3 s.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_of_four_mebibytes_are_refused_and_others_are_answered() {
    let limits = Limits::new(FLOODED);
    let server = Process::start(&[("RUNTIME_ROOT", limits.root()), ("TIDEGATE_CORES", "1")]);
    let grpc = server.address("gRPC");
    let runtime = tokio::runtime::Handle::current();
    for keys in [&["hour"][..], &["first", "second"]] {
        let values: Vec<String> = (0..190_000).map(|number| format!("{number:06}")).collect();
        let pairs: Vec<[(&str, &str); 1]> = values
            .iter()
            .enumerate()
            .map(|(at, value)| [(keys[at % keys.len()], value.as_str())])
            .collect();
        let descriptors: Vec<&[(&str, &str)]> = pairs.iter().map(|pair| &pair[..]).collect();
        let large = request("shop", &descriptors);
        let few = request("shop", &descriptors[..EACH]);
        let attacker = channel(grpc).await;
        let grown = tokio::task::block_in_place(|| {
            grown(&server, || {
                for _ in 0..10 {
                    let refusal = runtime.block_on(ask(&attacker, large.clone())).unwrap_err();
                    assert_eq!(refusal.code(), tonic::Code::InvalidArgument, "{refusal:?}");
                    runtime.block_on(assert_answers(grpc));
                }
            })
        });
        assert!(grown < 64, "{grown} MiB");
        // What is within the bound is decided, also where limits replace limits.
        assert_eq!(ask(&attacker, few).await.unwrap().statuses.len(), EACH);
    }
    assert_eq!(
        stat(
            server.address("debug"),
            "ratelimit.service.rate_limit.shop.hour.total_hits"
        ),
        EACH as u64
    );
}

/// 300 unknown domains of 1 MB held 600 MB, and /metrics had all of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unknown_domains_take_little_also_while_metrics_are_read() {
    let limits = Limits::new(FLOODED);
    let server = Process::start(&[("RUNTIME_ROOT", limits.root())]);
    let (grpc, debug) = (server.address("gRPC"), server.address("debug"));
    let channel = channel(grpc).await;
    let runtime = tokio::runtime::Handle::current();
    let long = "d".repeat(100_000);
    let flood = || {
        for number in 0..1_000 {
            runtime
                .block_on(ask(
                    &channel,
                    request(&format!("{number}{long}"), &[&[("a", "b")]]),
                ))
                .unwrap();
        }
    };
    let flood_and_scrape = || {
        std::thread::scope(|scope| {
            let flooding = scope.spawn(flood);
            while !flooding.is_finished() {
                let page = get(debug, "/metrics").body;
                assert!(page.len() < 1_000_000, "{} bytes", page.len());
            }
        });
    };
    let grown = tokio::task::block_in_place(|| grown(&server, flood_and_scrape));
    assert!(grown < 50, "{grown} MiB");
    assert_eq!(
        stat(
            debug,
            "ratelimit.service.rate_limit._overflow.domain_not_found"
        ),
        1_000
    );
    assert_answers(grpc).await;
}
