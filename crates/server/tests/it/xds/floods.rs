//! Management servers that send without an end.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};

use http_body_util::Empty;
use hyper::server::conn::http2::Builder;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};

use super::management::{Management, limits, mistaken};
use crate::operate::process::Process;
use crate::support::{PATIENCE, await_that, get};

/// A process that asks at `address`, and starts without an answer.
fn start(address: std::net::SocketAddr) -> Process {
    Process::start(&[
        ("CONFIG_TYPE", "GRPC_XDS_SOTW"),
        ("CONFIG_GRPC_XDS_SERVER_URL", &address.to_string()),
        ("FORCE_START_WITHOUT_INITIAL_CONFIG", "true"),
        ("XDS_CLIENT_BACKOFF_INITIAL_INTERVAL", "20ms"),
        ("XDS_CLIENT_BACKOFF_MAX_INTERVAL", "20ms"),
    ])
}

/// The log of a process, once it has ended.
fn log(process: Process) -> String {
    process.signal("TERM");
    process.end().1
}

fn refused(process: &Process) -> u64 {
    let stats = get(process.address("debug"), "/stats").body;
    let errors = stats
        .lines()
        .find_map(|line| line.strip_prefix("ratelimit.service.config_load_error: "));
    errors.unwrap().parse().unwrap()
}

/// 13,310 lines in 8 s.
#[test]
fn a_mistake_that_comes_again_and_again_is_logged_once() {
    let management = Management::start();
    let process = start(management.address);
    for version in 1..=100 {
        management.publish(&format!("v{version}"), &[mistaken()]);
        await_that("it is refused", || management.requests().len() > version);
    }
    assert_eq!(refused(&process), 100, "each is counted");
    let log = log(process);
    assert_eq!(
        log.matches("invalid rate limit unit 'UNKNOWN'").count(),
        1,
        "{log}"
    );
    assert_eq!(
        log.matches("the configuration of the management server is refused")
            .count(),
        1,
        "{log}"
    );
}

#[test]
fn mistakes_that_differ_are_few_in_the_log() {
    let management = Management::start();
    let process = start(management.address);
    for version in 1..=100 {
        let mut config = mistaken();
        config.name = format!("{version}{}\n", "x".repeat(100_000));
        management.publish(&format!("v{version}"), &[config]);
        await_that("it is refused", || management.requests().len() > version);
    }
    let answers = management.requests();
    let longest = answers
        .iter()
        .filter_map(|answer| Some(answer.error_detail.as_ref()?.message.len()))
        .max();
    assert!(longest.unwrap() < 2_000, "{longest:?} bytes are told");
    let log = log(process);
    assert_eq!(
        log.matches("the configuration of the management server is refused")
            .count(),
        10,
        "{log}"
    );
    assert!(log.len() < 30_000, "{} bytes", log.len());
}

/// A mistake that was corrected and is made again is news.
#[test]
fn a_mistake_that_returns_is_logged_again() {
    let management = Management::start();
    let process = start(management.address);
    for (at, config) in [mistaken(), limits(1), mistaken()].into_iter().enumerate() {
        management.publish(&format!("v{at}"), &[config]);
        await_that("an answer", || management.requests().len() > at + 1);
    }
    let log = log(process);
    assert_eq!(
        log.matches("invalid rate limit unit 'UNKNOWN'").count(),
        2,
        "{log}"
    );
}

/// A server of its own, whose answer to each call is an error with this text.
async fn refuse_all(listener: tokio::net::TcpListener, text: String) {
    loop {
        let (socket, _) = listener.accept().await.unwrap();
        let service = service_fn(|_| {
            let answer = http::Response::builder()
                .header("content-type", "application/grpc")
                .header("grpc-status", "14");
            let answer = answer
                .header("grpc-message", &text)
                .body(Empty::<bytes::Bytes>::new());
            async { Ok::<_, std::convert::Infallible>(answer.unwrap()) }
        });
        // The client leaves without a word.
        let _ = Builder::new(TokioExecutor::new())
            .serve_connection(TokioIo::new(socket), service)
            .await;
    }
}

/// 13 KB of a server's words were one line of the log.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_server_says_is_cut_in_the_log() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = tokio::spawn(refuse_all(
        listener,
        format!("over%0A{}", "load ".repeat(2_500)),
    ));
    let mut process = start(address);
    process.await_log("has ended");
    let log = log(process);
    let line = log.lines().find(|line| line.contains("has ended")).unwrap();
    assert!(
        line.contains(r"over\\nload load ") && line.contains("lo.."),
        "{line}"
    );
    assert!(line.len() < 800, "{} bytes", line.len());
    server.abort();
}

/// A frame without a stream.
fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
    let length = u8::try_from(payload.len()).unwrap();
    [&[0, 0, length, kind, 0, 0, 0, 0, 0], payload].concat()
}

/// Sends the same bytes without a pause until the other side closes; says how many there were.
fn flood(stream: &mut TcpStream, frame: &[u8]) -> usize {
    const ENOUGH: usize = 256 << 20;
    let piece = frame.repeat(4_096);
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    let mut answers = stream.try_clone().unwrap();
    let reader = std::thread::spawn(move || {
        let mut bytes = [0; 65_536];
        while let Ok(1..) = answers.read(&mut bytes) {}
    });
    let mut sent = 0;
    while sent < ENOUGH && stream.write_all(&piece).is_ok() {
        sent += piece.len();
    }
    let _ = stream.shutdown(Shutdown::Both);
    reader.join().unwrap();
    sent
}

/// They took most of a core.
#[test]
fn a_server_that_floods_with_frames_is_left_and_asked_anew() {
    const SETTINGS: u8 = 4;
    for frame in [
        frame(6, &[0; 8]),
        frame(SETTINGS, &[]),
        frame(SETTINGS, &[0, 4, 0, 1, 0, 0]),
        frame(0xfa, &[0; 100]),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let process = start(listener.local_addr().unwrap());
        for _ in 0..2 {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(&self::frame(SETTINGS, &[])).unwrap();
            let sent = flood(&mut stream, &frame);
            assert!(sent < 64 << 20, "{sent} bytes of {frame:?}");
        }
        drop(listener);
        let log = log(process);
        assert!(
            log.contains("it sends too much that is no message: more than "),
            "{log}"
        );
    }
}
