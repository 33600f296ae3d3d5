//! Clients that begin a handshake and mean harm.

use std::io::Write as _;
use std::net::{SocketAddr, TcpStream};

use tokio::io::AsyncWriteExt as _;

use super::authority::borrowed;
use super::{Authority, Folder, client, decide, is_served, secure};
use crate::hostile::{grown, is_closed, until_closed};
use crate::operate::metrics::metric;
use crate::operate::process::Process;
use crate::support::{LIMITS, Limits, PATIENCE, await_that};

struct Target {
    authority: Authority,
    server: Process,
    _folder: Folder,
    _limits: Limits,
}

impl Target {
    fn start() -> Self {
        let (authority, folder, limits) =
            (Authority::new("ours"), Folder::new(), Limits::new(LIMITS));
        folder.put(&authority.issue("127.0.0.1"));
        let mut settings = folder.grpc().to_vec();
        settings.push(("RUNTIME_ROOT", limits.root().to_owned()));
        let server = Process::start(&borrowed(&settings));
        Self {
            authority,
            server,
            _folder: folder,
            _limits: limits,
        }
    }

    fn grpc(&self) -> SocketAddr {
        self.server.address("gRPC")
    }

    async fn serves(&self) -> bool {
        is_served(self.grpc(), &self.authority, None).await
    }

    fn closed(&self, reason: &str) -> u64 {
        let name = format!(r#"tidegate_connections_closed_total{{port="grpc",reason="{reason}"}}"#);
        metric(self.server.address("debug"), &name) as u64
    }
}

/// The head of a handshake record that promises 16 KiB, and part of it.
fn half_a_hello() -> Vec<u8> {
    let mut bytes = vec![22, 3, 1, 0x3f, 0xff, 1, 0, 0x3f, 0xfb];
    bytes.resize(9_000, 0);
    bytes
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn plaintext_and_garbage_are_refused_and_logged_now_and_then() {
    let target = Target::start();
    let said: [&[u8]; 4] = [
        crate::hostile::grpc::PREFACE,
        b"GET / HTTP/1.1\r\n\r\n",
        &[0xff; 3_000],
        &[22, 3, 1, 0, 4, 99, 0, 0, 0],
    ];
    for round in 0..50 {
        let mut stream = TcpStream::connect(target.grpc()).unwrap();
        stream.write_all(said[round % said.len()]).unwrap();
        until_closed(&mut stream);
    }
    assert!(target.serves().await);
    assert!(target.closed("handshake") >= 50);
    target.server.signal("INT");
    let (_, log) = target.server.end();
    assert!(
        log.contains("it does not speak TLS; is it configured without?"),
        "{log}"
    );
    assert!(log.lines().count() < 10, "{log}");
}

/// Probes of ports connect and leave. They are no news.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn clients_that_leave_are_not_logged() {
    let target = Target::start();
    for _ in 0..10 {
        drop(TcpStream::connect(target.grpc()).unwrap());
    }
    await_that("all are noticed", || target.closed("handshake") >= 10);
    assert!(target.serves().await);
    target.server.signal("INT");
    let (_, log) = target.server.end();
    let told: Vec<&str> = log
        .lines()
        .filter(|line| !line.contains(" INFO "))
        .collect();
    assert!(told.is_empty(), "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn silent_handshakes_end() {
    let target = Target::start();
    let hello = half_a_hello();
    let mut silent = [&b""[..], &hello[..3], &hello].map(|bytes| {
        let mut stream = TcpStream::connect(target.grpc()).unwrap();
        stream.write_all(bytes).unwrap();
        stream
    });
    assert!(target.serves().await);
    for stream in &mut silent {
        until_closed(stream);
    }
    assert!(target.closed("silent") >= 3);
}

/// Two thousand handshakes that stop half way: others are served meanwhile, and memory is bounded.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn half_open_handshakes_make_room_for_others() {
    let target = Target::start();
    assert!(target.serves().await);
    let runtime = tokio::runtime::Handle::current();
    let attack = || {
        let hello = half_a_hello();
        let mut open: Vec<TcpStream> = (0..2_000)
            .map(|_| {
                let mut stream = TcpStream::connect(target.grpc()).unwrap();
                // It may have been closed already.
                let _ = stream.write_all(&hello);
                stream
            })
            .collect();
        let begun = std::time::Instant::now();
        assert!(runtime.block_on(target.serves()), "among two thousand");
        assert!(begun.elapsed() < PATIENCE);
        let left = open
            .iter_mut()
            .filter_map(|stream| (!is_closed(stream)).then_some(()))
            .count();
        assert!(left <= 1_024, "{left} stay open");
    };
    let grown = tokio::task::block_in_place(|| grown(&target.server, attack));
    assert!(grown < 100, "{grown} MiB more");
    assert!(target.closed("room") >= 900, "{}", target.closed("room"));
}

/// Half of the clients that took long for their handshake were closed, whoever began the others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_clients_are_let_in_while_another_address_floods() {
    let target = Target::start();
    let hello = half_a_hello();
    let mut slow = Vec::new();
    for _ in 0..8 {
        slow.push(tokio::net::TcpStream::connect(target.grpc()).await.unwrap());
    }
    let mut flood = Vec::new();
    for _ in 0..1_200 {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
        let mut socket = socket.connect(target.grpc()).await.unwrap();
        // It may have been closed already.
        let _ = socket.write_all(&hello).await;
        flood.push(socket);
    }
    await_that("some of the flood make room", || {
        target.closed("room") >= 100
    });
    for socket in slow {
        let stream = secure(socket, &client(&target.authority, None, b"h2"))
            .await
            .expect("a slow client is let in");
        assert_eq!(decide(stream).await.unwrap(), "0");
    }
    drop(flood);
}
