//! Calls that are not finished, not read, or reset; and frames that no client sends.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use bytes::Bytes;
use h2::client::{ResponseFuture, SendRequest};
use h2::{Reason, SendStream};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::{LONG, assert_answers, grown, grown_by, until_closed};
use crate::operate::metrics::metric;
use crate::operate::process::Process;
use crate::support::{LIMITS, Limits, Server};

pub(crate) const PATH: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
/// The domain `shop` and the descriptor `free: x`, framed.
pub(crate) const CALL: Bytes =
    Bytes::from_static(b"\0\0\0\0\x13\x0a\x04shop\x12\x0b\x0a\x09\x0a\x04free\x12\x01x");

/// A connection whose streams may receive `window` bytes each; it lives as long as the tasks.
pub(super) async fn connect(address: SocketAddr, window: u32) -> (SendRequest<Bytes>, JoinSet<()>) {
    greet(
        tokio::net::TcpStream::connect(address).await.unwrap(),
        window,
    )
    .await
    .unwrap()
}

/// As above, of a socket that is connected.
pub(super) async fn greet(
    socket: tokio::net::TcpStream,
    window: u32,
) -> Result<(SendRequest<Bytes>, JoinSet<()>), h2::Error> {
    let mut builder = h2::client::Builder::new();
    builder
        .initial_window_size(window)
        .initial_max_send_streams(1_000);
    let (sender, connection) = builder.handshake(socket).await?;
    let mut tasks = JoinSet::new();
    tasks.spawn(async move { drop(connection.await) });
    Ok((sender, tasks))
}

pub(super) fn call(sender: &mut SendRequest<Bytes>) -> (ResponseFuture, SendStream<Bytes>) {
    call_of(sender, PATH)
}

pub(super) fn call_of(
    sender: &mut SendRequest<Bytes>,
    path: &str,
) -> (ResponseFuture, SendStream<Bytes>) {
    try_call_of(sender, path).unwrap()
}

/// As above, on a connection that the server may end at any moment.
fn try_call_of(
    sender: &mut SendRequest<Bytes>,
    path: &str,
) -> Result<(ResponseFuture, SendStream<Bytes>), h2::Error> {
    let request =
        http::Request::post(format!("http://x{path}")).header("content-type", "application/grpc");
    sender.send_request(request.header("te", "trailers").body(()).unwrap(), false)
}

/// The gRPC status of an answer without a message.
pub(super) async fn status(answer: ResponseFuture) -> Option<String> {
    let answer = timeout(LONG, answer)
        .await
        .expect("it is answered or reset")
        .ok()?;
    answer
        .headers()
        .get("grpc-status")
        .map(|status| status.to_str().unwrap().to_owned())
}

/// A hundred messages of 4 MiB that stopped before their end held 415 MB, for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_that_stop_hold_little_and_not_for_long() {
    let limits = Limits::new(LIMITS);
    let server = Process::start(&[("RUNTIME_ROOT", limits.root())]);
    let grpc = server.address("gRPC");
    assert_answers(grpc).await;
    let attack = async {
        let (sender, _tasks) = connect(grpc, 65_535).await;
        let mut calls = Vec::new();
        for _ in 0..100 {
            let mut sender = sender.clone().ready().await.unwrap();
            let (answer, mut body) = call(&mut sender);
            let mut part = vec![0, 0, 0x40, 0, 0];
            part.resize(3 << 20, 0);
            // It may have been refused already.
            let _ = body.send_data(part.into(), false);
            calls.push((answer, body));
        }
        assert_answers(grpc).await;
        let mut told = Vec::new();
        for (answer, _body) in calls {
            told.extend(status(answer).await);
        }
        assert!(
            told.iter().all(|status| status == "8" || status == "4"),
            "{told:?}"
        );
        assert!(
            told.iter().filter(|status| *status == "8").count() >= 90,
            "{told:?}"
        );
        assert!(
            told.contains(&"4".to_owned()),
            "those that were let in are waited for 10 s: {told:?}"
        );
    };
    let grown = grown_by(&server, attack).await;
    assert!(grown < 100, "{grown} MiB");
    let refused =
        |reason| format!(r#"tidegate_bodies_refused_total{{port="grpc",reason="{reason}"}}"#);
    assert!(metric(server.address("debug"), &refused("room")) >= 90.0);
    assert!(metric(server.address("debug"), &refused("slow")) >= 1.0);
}

/// A message that came a byte at a time was waited for as long as it took.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_that_come_in_drops_are_not_waited_for() {
    let server = Server::start(&[]);
    let mut slow = JoinSet::new();
    for _ in 0..50 {
        let (sender, tasks) = connect(server.grpc(), 65_535).await;
        slow.spawn(async move {
            let (answer, mut body) = call(&mut sender.ready().await.unwrap());
            let mut drops = tokio::time::interval(Duration::from_secs(1));
            let dripping = async {
                for at in 0..CALL.len() {
                    drops.tick().await;
                    if body.send_data(CALL.slice(at..=at), false).is_err() {
                        break;
                    }
                }
                std::future::pending::<()>().await;
            };
            tokio::select! {
                status = status(answer) => (status, tasks),
                () = dripping => unreachable!(),
            }
        });
    }
    assert_answers(server.grpc()).await;
    while let Some(ended) = slow.join_next().await {
        assert_eq!(ended.unwrap().0.as_deref(), Some("4"));
    }
    assert_answers(server.grpc()).await;
}

/// One connection that sent such frames without a pause held up all others of its core for up to two seconds, for as long as it liked.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frames_that_are_no_calls_end_their_connection() {
    let server = Server::start(&[("TIDEGATE_CORES", "1")]);
    // PRIORITY of stream 1, a WINDOW_UPDATE of the connection, SETTINGS without a setting, and a frame of no known type.
    let frames: [&[u8]; 4] = [
        b"\0\0\x05\x02\0\0\0\0\x01\0\0\0\0\x10",
        b"\0\0\x04\x08\0\0\0\0\0\0\0\0\x01",
        b"\0\0\0\x04\0\0\0\0\0",
        b"\0\0\x01\x4d\0\0\0\0\0x",
    ];
    for frame in frames {
        let grpc = server.grpc();
        let flood = tokio::task::spawn_blocking(move || {
            let mut stream = TcpStream::connect(grpc).unwrap();
            stream.set_write_timeout(Some(LONG)).unwrap();
            stream.write_all(PREFACE).unwrap();
            let frames = frame.repeat(2_000);
            let sent = (0..1_000)
                .take_while(|_| stream.write_all(&frames).is_ok())
                .count();
            assert!(sent < 1_000, "{frame:?}: it stays open");
        });
        assert_answers(server.grpc()).await;
        flood.await.unwrap();
        assert_answers(server.grpc()).await;
    }
}

/// Calls whose answers nobody has read yet.
async fn fifty_calls(sender: &mut SendRequest<Bytes>) -> Vec<ResponseFuture> {
    let mut calls = Vec::new();
    for _ in 0..50 {
        let mut sender = sender.clone().ready().await.unwrap();
        let (answer, mut body) = call(&mut sender);
        body.send_data(CALL, true).unwrap();
        calls.push(answer);
    }
    calls
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn answers_that_are_not_taken_end_their_connection() {
    let server = Server::start(&[]);
    let (mut sender, mut tasks) = connect(server.grpc(), 0).await;
    let _calls = fifty_calls(&mut sender).await;
    assert_answers(server.grpc()).await;
    timeout(LONG, tasks.join_next())
        .await
        .expect("the server closes the connection");
    assert_eq!(
        metric(
            server.debug(),
            r#"tidegate_connections_closed_total{port="grpc",reason="unread"}"#
        ),
        1.0
    );
}

/// A thousand answers waited for as long as another one was taken now and then.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn taking_an_answer_now_and_then_keeps_no_others() {
    let server = Server::start(&[]);
    let (mut sender, mut tasks) = connect(server.grpc(), 0).await;
    let _calls = fifty_calls(&mut sender).await;
    let mut pauses = tokio::time::interval(Duration::from_secs(1));
    let now_and_then = async {
        loop {
            pauses.tick().await;
            let Ok(ready) = sender.ready().await else {
                return;
            };
            sender = ready;
            // A refusal needs no room of the peer.
            let Ok((answer, _body)) = try_call_of(&mut sender, "/unknown") else {
                return;
            };
            let _ = answer.await;
        }
    };
    timeout(LONG, now_and_then)
        .await
        .expect("the server closes the connection");
    timeout(LONG, tasks.join_next())
        .await
        .expect("nothing of it is left");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn calls_that_are_reset_at_once_hurt_nobody() {
    let server = Server::start(&[]);
    let mut attackers = JoinSet::new();
    for _ in 0..8 {
        let (mut sender, tasks) = connect(server.grpc(), 65_535).await;
        attackers.spawn(async move {
            for _ in 0..1_000 {
                // The server may have ended the connection.
                let Ok(ready) = sender.ready().await else {
                    break;
                };
                sender = ready;
                let Ok((_answer, mut body)) = try_call_of(&mut sender, PATH) else {
                    break;
                };
                if body.send_data(CALL, true).is_err() {
                    break;
                }
                body.send_reset(Reason::CANCEL);
            }
            drop(tasks);
        });
    }
    for _ in 0..20 {
        assert_answers(server.grpc()).await;
    }
    while attackers.join_next().await.is_some() {}
    assert_answers(server.grpc()).await;
}

/// A call as callers send it: its head and its message.
fn whole_call(stream: u32) -> Vec<u8> {
    // `:method POST` and `:scheme http`, as HPACK's static table has them.
    let fields = [
        field(0, ":path", PATH),
        field(0, "content-type", "application/grpc"),
        field(0, "te", "trailers"),
    ];
    let head = [&[0x83, 0x86][..], &fields.concat()].concat();
    [frame(1, 4, stream, &head), frame(0, 1, stream, &CALL)].concat()
}

/// Reads frames until the answer to a call has ended.
fn await_answer(socket: &mut TcpStream, stream: u32) -> std::io::Result<()> {
    loop {
        let mut head = [0; 9];
        socket.read_exact(&mut head)?;
        let [high, middle, low, _, flags, number @ ..] = head;
        std::io::copy(
            &mut socket.take(u32::from_be_bytes([0, high, middle, low]).into()),
            &mut std::io::sink(),
        )?;
        if u32::from_be_bytes(number) == stream && flags & 1 == 1 {
            return Ok(());
        }
    }
}

/// Callers with a timeout of 20 ms gave up while the server did not run for 60 ms; 21 of them ended the connection of all others.
#[test]
fn a_thousand_callers_that_gave_up_during_a_stall_do_not_end_their_connection() {
    let limits = Limits::new(LIMITS);
    let server = Process::start(&[("RUNTIME_ROOT", limits.root())]);
    let mut socket = TcpStream::connect(server.address("gRPC")).unwrap();
    socket.set_read_timeout(Some(LONG)).unwrap();
    socket.write_all(PREFACE).unwrap();
    let mut streams = (1..).step_by(2);
    for stall in 0..3 {
        server.signal("STOP");
        for stream in streams.by_ref().take(1_000) {
            let given_up = [
                whole_call(stream),
                frame(3, 0, stream, &8_u32.to_be_bytes()),
            ]
            .concat();
            socket.write_all(&given_up).unwrap();
        }
        let stream = streams.next().unwrap();
        socket.write_all(&whole_call(stream)).unwrap();
        server.signal("CONT");
        let answered = await_answer(&mut socket, stream);
        assert!(answered.is_ok(), "stall {stall}: {answered:?}");
    }
}

/// A frame of HTTP/2.
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// A header as HPACK has it: not indexed (0) or indexed (0x40).
pub(crate) fn field(indexed: u8, name: &str, value: &str) -> Vec<u8> {
    let (name_length, value_length) = (name.len() as u8, value.len() as u8);
    assert!(
        name_length < 127 && value_length < 127,
        "longer ones have another form"
    );
    [
        &[indexed, name_length],
        name.as_bytes(),
        &[value_length],
        value.as_bytes(),
    ]
    .concat()
}

/// Writes frames until the server has had enough, and returns what it said.
fn flood(address: SocketAddr, mut next: impl FnMut(u32) -> Vec<u8>) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(PREFACE).unwrap();
    for number in 0..1_000_000 {
        if stream.write_all(&next(number)).is_err() {
            break;
        }
    }
    until_closed(&mut stream)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn floods_of_frames_end_their_own_connection() {
    const HEADERS: u8 = 1;
    const RESET: u8 = 3;
    const CONTINUATION: u8 = 9;
    // `:method POST`, `:scheme http`, `:path /`, as HPACK's static table has them.
    const HEAD: &[u8] = &[0x83, 0x86, 0x84];
    let limits = Limits::new(LIMITS);
    let server = Process::start(&[("RUNTIME_ROOT", limits.root())]);
    let grpc = server.address("gRPC");
    // A header without a name in the table, of 4 KiB, again and again.
    let field = [&[0x40, 0x01, b'x', 0x7f, 0x81, 0x1f][..], &[b'y'; 4096]].concat();
    let grown = grown(&server, || {
        flood(grpc, |number| match number {
            0 => frame(HEADERS, 0, 1, HEAD),
            _ => frame(CONTINUATION, 0, 1, &field),
        });
        flood(grpc, |number| {
            let stream = 2 * number + 1;
            [
                frame(HEADERS, 4, stream, HEAD),
                frame(RESET, 0, stream, &8_u32.to_be_bytes()),
            ]
            .concat()
        });
    });
    assert!(grown < 64, "{grown} MiB");
    assert_answers(grpc).await;
    let closed = metric(
        server.address("debug"),
        r#"tidegate_connections_closed_total{port="grpc",reason="resets"}"#,
    );
    assert_eq!(closed, 1.0, "the second flood");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn compressed_messages_are_refused_before_they_are_unpacked() {
    let server = Server::start(&[]);
    let (sender, _tasks) = connect(server.grpc(), 65_535).await;
    let mut sender = sender.ready().await.unwrap();
    let request =
        http::Request::post(format!("http://x{PATH}")).header("content-type", "application/grpc");
    let request = request
        .header("grpc-encoding", "gzip")
        .header("te", "trailers")
        .body(())
        .unwrap();
    let (answer, mut body) = sender.send_request(request, false).unwrap();
    // The headers alone may have been answered by now.
    let _sent = body.send_data(Bytes::from_static(b"\x01\0\0\0\x04bomb"), true);
    assert_eq!(status(answer).await.as_deref(), Some("12"));
    assert_answers(server.grpc()).await;
}
