//! Large heads of calls.

use std::io::Write as _;
use std::net::TcpStream;

use bytes::Bytes;

use super::grpc::{PATH, PREFACE, connect, field, frame};
use super::{assert_answers, highest};
use crate::operate::process::Process;
use crate::support::{LIMITS, Limits, Server};

/// The heads of 1,024 calls that wait for their message, with so many fields each that take a byte.
fn many_fields(fields: usize) -> Vec<u8> {
    let mut sent = PREFACE.to_vec();
    for number in 0..1_024 {
        // `:method POST` and `:scheme http`.
        let mut head = vec![0x83, 0x86];
        head.extend(field(0, ":path", PATH));
        head.extend(field(0, ":authority", "x"));
        if number == 0 {
            head.extend(field(0x40, "a", ""));
        }
        head.extend(std::iter::repeat_n(0xbe, fields));
        sent.extend(frame(1, 4, 2 * number + 1, &head));
    }
    sent
}

/// Sixty connections that sent 36 MB held 2.7 GB.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heads_are_not_held_while_messages_are_waited_for() {
    let limits = Limits::new(LIMITS);
    let server = Process::start(&[("RUNTIME_ROOT", limits.root())]);
    let grpc = server.address("gRPC");
    // Nearly as many as a head may have, 33 bytes each as HTTP/2 counts them.
    let sent = many_fields(7_500);
    let runtime = tokio::runtime::Handle::current();
    // Not `grown`: the allocator keeps what a thread has freed until that thread has work again.
    let grown = tokio::task::block_in_place(|| {
        highest(&server, || {
            let attack = || {
                let mut stream = TcpStream::connect(grpc).unwrap();
                stream.write_all(&sent).unwrap();
                stream
            };
            let attackers: Vec<TcpStream> = (0..20).map(|_| attack()).collect();
            for _ in 0..20 {
                runtime.block_on(assert_answers(grpc));
            }
            drop(attackers);
        })
    });
    assert!(grown < 200, "{grown} MiB");
}

/// Envoy passes on what its clients send to be traced. Who was over a limit sent much of it, and Envoy let calls pass that failed.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn large_headers_of_clients_are_no_way_around_limits() {
    let server = Server::start(&[]);
    let (sender, _tasks) = connect(server.grpc(), 65_535).await;
    let mut sender = sender.ready().await.unwrap();
    for size in [10, 17_000, 60_000, 96_000, 250_000] {
        let request = http::Request::post(format!("http://x{PATH}"))
            .header("tracestate", "a=b,".repeat(size / 4));
        let (answer, mut body) = sender
            .send_request(request.body(()).unwrap(), false)
            .unwrap();
        body.send_data(super::grpc::CALL, true).unwrap();
        let answer = answer.await.unwrap();
        assert_eq!(answer.status(), 200, "{size}");
        let mut answer = answer.into_body();
        assert!(
            answer
                .data()
                .await
                .is_some_and(|data: Result<Bytes, _>| data.is_ok()),
            "{size}"
        );
    }
}

/// A refusal repeated the name of the compression, and took sixty times what was sent.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn refusals_do_not_repeat_what_is_long() {
    let server = Server::start(&[]);
    let (sender, _tasks) = connect(server.grpc(), 65_535).await;
    let mut sender = sender.ready().await.unwrap();
    for (encoding, told) in [
        ("snappy".to_owned(), "snappy"),
        ("x".repeat(10_000), "unknown"),
    ] {
        let request =
            http::Request::post(format!("http://x{PATH}")).header("grpc-encoding", encoding);
        let (answer, _body) = sender
            .send_request(request.body(()).unwrap(), false)
            .unwrap();
        let answer = answer.await.unwrap();
        let message = answer.headers()["grpc-message"].to_str().unwrap();
        assert_eq!(answer.headers()["grpc-status"], "12", "{message}");
        assert!(message.contains(told) && message.len() < 100, "{message}");
    }
    let (answer, mut body) = {
        let request =
            http::Request::post(format!("http://x{PATH}")).header("grpc-encoding", "identity");
        sender
            .send_request(request.body(()).unwrap(), false)
            .unwrap()
    };
    body.send_data(super::grpc::CALL, true).unwrap();
    let mut answer = answer.await.unwrap().into_body();
    assert!(
        answer
            .data()
            .await
            .is_some_and(|data: Result<Bytes, _>| data.is_ok())
    );
}
