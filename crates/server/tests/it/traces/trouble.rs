//! Collectors that are away, slow, or do not want what they get.

use std::time::Instant;

use super::calls::traced;
use super::collector::{Answer, Collector, Protocol};
use crate::operate::process::Process;
use crate::support::{LIMITS, Limits, PATIENCE, Server, ask, await_that, channel, request};

const EXPORTED: &str = "tidegate.traces.exported_spans";
const DROPPED: &str = "tidegate.traces.dropped_spans";

/// Makes `calls` calls, none of which may fail.
async fn call(server: &Server, calls: usize) {
    let channel = server.channel().await;
    for _ in 0..calls {
        ask(&channel, request("shop", &[&[("free", "x")]]))
            .await
            .unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_collector_that_comes_late_gets_everything() {
    for protocol in [Protocol::Http, Protocol::Grpc] {
        let collector = Collector::start(protocol.clone(), Answer::Later);
        let url = collector.url();
        let grpc = if matches!(protocol, Protocol::Grpc) {
            "grpc"
        } else {
            "http"
        };
        let more = [traced(&url), vec![("TRACING_EXPORTER_PROTOCOL", grpc)]].concat();
        let server = Server::start(&more);
        call(&server, 10).await;
        collector.now(Answer::Take);
        {
            assert_eq!(collector.spans(20).len(), 20);
            await_that("they are counted", || server.stat(EXPORTED) == 20);
            assert_eq!(server.stat(DROPPED), 0);
        };
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn what_a_collector_refuses_is_dropped_and_counted() {
    for (answer, expected) in [(Answer::Refuse, 2), (Answer::RejectOne, 1)] {
        for protocol in [Protocol::Http, Protocol::Grpc] {
            let collector = Collector::start(protocol.clone(), answer);
            let url = collector.url();
            let grpc = if matches!(protocol, Protocol::Grpc) {
                "grpc"
            } else {
                "http"
            };
            let more = [traced(&url), vec![("TRACING_EXPORTER_PROTOCOL", grpc)]].concat();
            let server = Server::start(&more);
            call(&server, 1).await;
            await_that("it is counted", || server.stat(DROPPED) == expected);
            assert_eq!(server.stat(EXPORTED), 2 - expected);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_collector_that_is_not_there_costs_no_call_and_no_end() {
    // Nobody listens on port 9 of the loopback address.
    let server = Server::start(&traced("http://127.0.0.1:9"));
    call(&server, 300).await;
    let begun = Instant::now();
    server.stop();
    assert!(begun.elapsed() < PATIENCE, "{:?}", begun.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_collector_that_never_answers_fills_a_queue_that_is_bounded() {
    let collector = Collector::start(Protocol::Http, Answer::Silence);
    let server = Server::start(&traced(&collector.url()));
    let channel = server.channel().await;
    // Each takes about 5 KiB; 8 MiB may wait.
    let value = "x".repeat(8_000);
    for _ in 0..2_500 {
        ask(&channel, request("shop", &[&[("free", &value)]]))
            .await
            .unwrap();
    }
    let begun = Instant::now();
    {
        assert!(server.stat(DROPPED) > 0 && server.stat(EXPORTED) == 0);
        server.stop();
    };
    assert!(begun.elapsed() < PATIENCE, "{:?}", begun.elapsed());
    assert!(collector.has_nothing());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn memory_stays_flat_when_every_call_is_traced_and_nobody_takes_traces() {
    let collector = Collector::start(Protocol::Http, Answer::Silence);
    let limits = Limits::new(LIMITS);
    let url = collector.url();
    let server = Process::start(&[&traced(&url)[..], &[("RUNTIME_ROOT", limits.root())]].concat());
    let channel = channel(server.address("gRPC")).await;
    let value = "x".repeat(8_000);
    let load = async |calls| {
        for _ in 0..calls {
            ask(&channel, request("shop", &[&[("free", &value)]]))
                .await
                .unwrap();
        }
    };
    // The queue is full after some 1,700 calls.
    load(2_500).await;
    let full = server.resident();
    load(5_000).await;
    let grown = server.resident().saturating_sub(full);
    assert!(grown < 4 << 20, "{grown} bytes after {full}");
    server.signal("TERM");
    assert_eq!(server.end().0, Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn what_was_sampled_last_is_sent_before_the_end() {
    let collector = Collector::start(Protocol::Http, Answer::Take);
    let url = collector.url();
    let more = [traced(&url), vec![("OTEL_BSP_SCHEDULE_DELAY", "600000")]].concat();
    // The first of two equal names would count.
    let more: Vec<_> = more
        .into_iter()
        .filter(|pair| *pair != ("OTEL_BSP_SCHEDULE_DELAY", "20"))
        .collect();
    let server = Server::start(&more);
    call(&server, 1).await;
    assert!(collector.has_nothing());
    server.stop();
    assert_eq!(collector.spans(2).len(), 2);
}
