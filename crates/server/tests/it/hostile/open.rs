//! Calls whose answers have no end: watches of health, and reflection.

use bytes::Bytes;
use tokio::time::timeout;

use super::grpc::{call_of, connect, status};
use super::{LONG, assert_answers, grown_by};
use crate::operate::process::Process;
use crate::support::{LIMITS, Limits, Server};

const WATCH: &str = "/grpc.health.v1.Health/Watch";
const REFLECTION: &str = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
/// The most of one connection.
const MOST: usize = 16;

/// 1,024 of them held 8 MB of one connection, for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_connection_has_few_calls_without_an_end() {
    let server = Server::start(&[]);
    for (path, message) in [
        (WATCH, &b"\0\0\0\0\0"[..]),
        (REFLECTION, &b"\0\0\0\0\x02\x3a\0"[..]),
    ] {
        let (mut sender, _tasks) = connect(server.grpc(), 65_535).await;
        let mut open = Vec::new();
        for number in 0..MOST + 10 {
            sender = sender.ready().await.unwrap();
            let (answer, mut body) = call_of(&mut sender, path);
            let sent = body.send_data(Bytes::from_static(message), false);
            // A call that is refused may have ended by now.
            assert!(sent.is_ok() || number >= MOST);
            if number < MOST {
                // A watch is answered when its message has ended.
                if path == WATCH {
                    body.send_data(Bytes::new(), true).unwrap();
                }
                let answer = timeout(LONG, answer).await.unwrap().unwrap();
                assert_eq!(answer.headers().get("grpc-status"), None, "{path} {number}");
                open.push((answer, body));
            } else {
                assert_eq!(
                    status(answer).await.as_deref(),
                    Some("8"),
                    "{path} {number}"
                );
            }
        }
        assert_answers(server.grpc()).await;
        drop(open);
        sender = sender.ready().await.unwrap();
        loop {
            let (answer, mut body) = call_of(&mut sender, WATCH);
            body.send_data(Bytes::from_static(b"\0\0\0\0\0"), true)
                .unwrap();
            // The server may not have heard yet that the others have gone.
            if timeout(LONG, answer)
                .await
                .unwrap()
                .unwrap()
                .headers()
                .get("grpc-status")
                .is_none()
            {
                break;
            }
        }
    }
}

/// 200 watches of a service with a name of 4 MB held 800 MB, for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn long_names_are_refused_unread() {
    let limits = Limits::new(LIMITS);
    let server = Process::start(&[("RUNTIME_ROOT", limits.root())]);
    let grpc = server.address("gRPC");
    assert_answers(grpc).await;
    let attack = async {
        let (mut sender, _tasks) = connect(grpc, 65_535).await;
        for path in [WATCH, "/grpc.health.v1.Health/Check"].repeat(50) {
            sender = sender.ready().await.unwrap();
            let (answer, mut body) = call_of(&mut sender, path);
            let mut message = vec![0, 0, 0x30, 0, 0];
            message.resize(5 + (3 << 20), 0);
            body.send_data(message.into(), true).unwrap();
            assert_eq!(status(answer).await.as_deref(), Some("11"));
        }
    };
    let grown = grown_by(&server, attack).await;
    assert!(grown < 32, "{grown} MiB");
}

/// Answers of reflection were waited for without an end.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn streams_of_answers_that_are_not_taken_end_their_connection() {
    let server = Server::start(&[]);
    let (sender, mut tasks) = connect(server.grpc(), 0).await;
    let (answer, mut body) = call_of(&mut sender.ready().await.unwrap(), REFLECTION);
    for _ in 0..3 {
        body.send_data(Bytes::from_static(b"\0\0\0\0\x02\x3a\0"), false)
            .unwrap();
    }
    let _answer = timeout(LONG, answer).await.unwrap().unwrap();
    timeout(LONG, tasks.join_next())
        .await
        .expect("the server closes the connection");
}
