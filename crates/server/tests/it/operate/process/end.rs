//! How it ends.

use super::*;

#[test]
fn every_signal_to_end_ends_it_with_code_0() {
    for signal in ["TERM", "INT"] {
        let server = Process::start(&[("LOG_LEVEL", "info")]);
        server.signal(signal);
        let (code, log) = server.end();
        assert_eq!(code, Some(0), "{signal}: {log}");
        assert!(log.contains("stopped"), "{log}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn calls_in_flight_are_finished_and_new_connections_refused() {
    let redis = tidegate_pipeline::test_util::RedisServer::start().await;
    let limits = Limits::new(crate::support::LIMITS);
    let server = Process::start(&[
        ("RUNTIME_ROOT", limits.root()),
        ("REDIS_URL", &redis.address().to_string()),
        ("TIDEGATE_CALL_TIMEOUT", "10s"),
    ]);
    let grpc = server.address("gRPC");
    let channel = channel(grpc).await;
    ask(&channel, request("shop", &[&[("named", "x")]]))
        .await
        .unwrap();
    redis.pause();
    let call =
        tokio::spawn(async move { ask(&channel, request("shop", &[&[("named", "x")]])).await });
    tokio::task::yield_now().await;
    let debug = server.address("debug");
    // The call is in flight once its commands are written.
    let written = || {
        let stats = get(debug, "/stats").body;
        let value = |name: &str| -> u64 {
            stats
                .lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
                .unwrap()
                .parse()
                .unwrap()
        };
        value("tidegate.redis.commands") > value("tidegate.redis.replies")
    };
    let until = Instant::now() + PATIENCE;
    while !written() {
        assert!(Instant::now() < until, "the call is never in flight");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    server.signal("TERM");
    tokio::task::spawn_blocking(move || {
        await_that("new connections are refused", || {
            TcpStream::connect(grpc).is_err()
        })
    })
    .await
    .unwrap();
    redis.resume();
    assert_eq!(call.await.unwrap().unwrap().statuses[0].limit_remaining, 98);
    assert_eq!(
        tokio::task::spawn_blocking(|| server.end())
            .await
            .unwrap()
            .0,
        Some(0)
    );
}

#[test]
fn connections_without_a_request_do_not_hold_up_the_end() {
    let server = Process::start(&[]);
    let open =
        ["HTTP", "gRPC", "debug"].map(|what| TcpStream::connect(server.address(what)).unwrap());
    // Answered on a later connection, so the earlier ones are accepted.
    get(server.address("HTTP"), "/healthcheck");
    let asked = Instant::now();
    server.signal("TERM");
    assert_eq!(server.end().0, Some(0));
    assert!(
        asked.elapsed() < Duration::from_secs(5),
        "the drain timeout is 10 s"
    );
    drop(open);
}

#[test]
fn the_drain_timeout_bounds_the_end() {
    let server = Process::start(&[("TIDEGATE_DRAIN_TIMEOUT", "100ms")]);
    // A request that never ends.
    let mut open = TcpStream::connect(server.address("HTTP")).unwrap();
    std::io::Write::write_all(
        &mut open,
        b"POST /json HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\n\r\n{",
    )
    .unwrap();
    let asked = Instant::now();
    server.signal("TERM");
    let (code, log) = server.end();
    assert_eq!(code, Some(0), "{log}");
    assert!(asked.elapsed() < Duration::from_secs(5), "{log}");
}
