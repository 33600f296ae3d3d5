//! The server with counters in memcached.

mod names;
mod srv;

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use tidegate::proto::envoy::service::ratelimit::v3::rate_limit_response::Code;
use tidegate_memcache::test_util::MemcachedServer;
use tonic::transport::Channel;

use crate::support::{Server, ask, await_that, get, request};

/// A server with counters there.
fn start(servers: &[&MemcachedServer], more: &[(&str, &str)]) -> Server {
    let list: Vec<String> = servers
        .iter()
        .map(|server| server.address().to_string())
        .collect();
    let list = list.join(",");
    Server::start(
        &[
            &[
                ("BACKEND_TYPE", "memcache"),
                ("MEMCACHE_HOST_PORT", list.as_str()),
            ],
            more,
        ]
        .concat(),
    )
}

/// The remaining hits of a user of `named`, of which there are 100 a day.
async fn remaining(channel: &Channel, user: &str) -> u32 {
    ask(channel, request("shop", &[&[("named", user)]]))
        .await
        .unwrap()
        .statuses[0]
        .limit_remaining
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn counters_are_in_memcached_under_the_references_names() {
    let memcached = MemcachedServer::start();
    let server = start(&[&memcached], &[("CACHE_KEY_PREFIX", "edge:")]);
    assert!(
        server.started.store.starts_with("memcached at 127.0.0.1:"),
        "{}",
        server.started.store
    );
    let channel = server.channel().await;
    for (code, left) in [
        (Code::Ok, 2),
        (Code::Ok, 1),
        (Code::Ok, 0),
        (Code::OverLimit, 0),
    ] {
        let answer = ask(&channel, request("shop", &[&[("user", "ada")]]))
            .await
            .unwrap();
        assert_eq!(
            (answer.overall_code(), answer.statuses[0].limit_remaining),
            (code, left)
        );
    }
    await_that("all four are charged", || {
        server.stat("ratelimit.memcache.increment.__code=success") == 4
    });
    let keys = memcached.keys();
    assert!(
        keys.len() == 1 && keys[0].0.starts_with("edge:shop_user_ada_"),
        "{keys:?}"
    );
    for (name, expected) in [
        ("ratelimit.memcache.multiget.__code=success", 4),
        ("ratelimit.memcache.multiget.__code=error", 0),
        ("ratelimit.memcache.increment.__code=miss", 0),
        ("ratelimit.memcache.increment.__code=error", 0),
        ("ratelimit.memcache.add.__code=success", 1),
        ("ratelimit.memcache.add.__code=not_stored", 0),
        ("ratelimit.memcache.add.__code=error", 0),
        ("ratelimit.memcache.keys_requested", 4),
        ("ratelimit.memcache.keys_found", 3),
        ("tidegate.memcache.connections", 1),
    ] {
        assert_eq!(server.stat(name), expected, "{name}");
    }
    let page = get(server.debug(), "/metrics").body;
    // The name under which the reference's exporter shows a counter with this tag.
    assert!(
        page.contains("\nratelimit_memcache_multiget___code_success 4\n"),
        "{page}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn every_core_counts_on_the_same_servers() {
    let memcached: Vec<_> = (0..3).map(|_| MemcachedServer::start()).collect();
    let server = start(
        &memcached.iter().collect::<Vec<_>>(),
        &[("TIDEGATE_CORES", "3")],
    );
    for used in 1..=9 {
        let channel = server.channel().await;
        assert_eq!(remaining(&channel, "x").await, 100 - used);
        await_that("the hit is charged", || {
            server.stat("ratelimit.memcache.increment.__code=success") == u64::from(used)
        });
    }
}

/// The reference is never healthy with memcached: only its client of Redis says that it is.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_server_is_healthy_with_memcached_and_without_it() {
    let mut memcached = MemcachedServer::start();
    memcached.kill();
    let server = start(&[&memcached], &[]);
    assert_eq!(get(server.http(), "/healthcheck").status, 200);
    let channel = server.channel().await;
    for _ in 0..5 {
        let answer = ask(&channel, request("shop", &[&[("user", "ada")]]))
            .await
            .unwrap();
        assert_eq!(
            (answer.overall_code(), answer.statuses[0].limit_remaining),
            (Code::Ok, 2),
            "calls pass"
        );
    }
    assert_eq!(
        server.stat("ratelimit.service.call.should_rate_limit.redis_error"),
        0
    );
    assert!(server.stat("ratelimit.memcache.multiget.__code=error") >= 5);

    memcached.restart();
    let mut refused = false;
    for _ in 0..1_000 {
        refused |= ask(&channel, request("shop", &[&[("user", "ada")]]))
            .await
            .unwrap()
            .overall_code()
            == Code::OverLimit;
        if refused {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(refused, "it counts when memcached is there");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memcached_is_killed_and_restarted_under_load_and_no_call_fails() {
    let mut memcached = [MemcachedServer::start(), MemcachedServer::start()];
    let server = start(&[&memcached[0], &memcached[1]], &[("TIDEGATE_CORES", "1")]);
    let (stop, calls) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicU64::new(0)),
    );
    let mut load = tokio::task::JoinSet::new();
    for user in 0..20 {
        let (channel, stop, calls) = (server.channel().await, stop.clone(), calls.clone());
        load.spawn(async move {
            while !stop.load(SeqCst) {
                ask(
                    &channel,
                    request("shop", &[&[("named", &format!("user-{user}"))]]),
                )
                .await
                .expect("an answer");
                calls.fetch_add(1, SeqCst);
            }
        });
    }
    let more = |calls: &AtomicU64| {
        let from = calls.load(SeqCst);
        await_that("calls go on", || calls.load(SeqCst) > from + 200);
    };
    for _ in 0..3 {
        more(&calls);
        memcached[0].kill();
        more(&calls);
        memcached[0].restart();
        let failures = || server.stat("ratelimit.memcache.multiget.__code=error");
        await_that("the server is used again", || {
            let before = failures();
            more(&calls);
            failures() == before
        });
    }
    stop.store(true, SeqCst);
    while let Some(ended) = load.join_next().await {
        ended.unwrap();
    }
}

/// Answers a read at once, and its charge when nobody accepts connections at `port` any more: when the server is about to end.
fn slow_to_charge(port: mpsc::Receiver<SocketAddr>, charged: Arc<AtomicBool>) -> SocketAddr {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
        assert!(lines.next().unwrap().unwrap().starts_with("get "));
        stream.write_all(b"END\r\n").unwrap();
        // `add`, its value, and `incr`.
        assert_eq!(
            lines
                .by_ref()
                .take(3)
                .map(Result::unwrap)
                .filter(|line| !line.is_empty())
                .count(),
            3
        );
        let port = port.recv().unwrap();
        await_that("the server drains", || TcpStream::connect(port).is_err());
        // Long enough for a server that does not wait to be gone.
        std::thread::park_timeout(Duration::from_millis(50));
        charged.store(true, SeqCst);
        stream.write_all(b"STORED\r\n1\r\n").unwrap();
        let _ = lines.next();
    });
    address
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_server_that_ends_waits_for_what_it_charged() {
    let (tell, port) = mpsc::channel();
    let charged = Arc::new(AtomicBool::new(false));
    let peer = slow_to_charge(port, charged.clone()).to_string();
    let server = Server::start(&[
        ("BACKEND_TYPE", "memcache"),
        ("MEMCACHE_HOST_PORT", &peer),
        ("TIDEGATE_CORES", "1"),
    ]);
    let channel = server.channel().await;
    assert_eq!(remaining(&channel, "x").await, 99);
    drop(channel);
    tell.send(server.grpc()).unwrap();
    tokio::task::spawn_blocking(move || server.stop())
        .await
        .unwrap();
    assert!(charged.load(SeqCst));
}
