//! Many connections, and connections that say nothing.

use std::io::Write as _;
use std::net::TcpStream;
use std::process::{Command, Stdio};

use super::grpc::{CALL, PATH, greet};
use super::{assert_answers, assert_answers_json, is_closed, until_closed};
use crate::operate::process::Process;
use crate::support::{LIMITS, Limits, Server, await_that, get, variables};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn connections_without_a_request_make_room() {
    let server = Server::start(&[("TIDEGATE_MAX_CONNECTIONS", "8")]);
    for port in [server.grpc(), server.http()] {
        let mut idle: Vec<TcpStream> = (0..40).map(|_| TcpStream::connect(port).unwrap()).collect();
        await_that("all but eight are closed", || {
            idle.iter_mut()
                .filter_map(|stream| (!is_closed(stream)).then_some(()))
                .count()
                <= 8
        });
        assert!(is_closed(&mut idle[0]), "the oldest goes first");
        assert_answers(server.grpc()).await;
        assert_answers_json(server.http());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn connections_at_work_stay() {
    let server = Server::start(&[("TIDEGATE_MAX_CONNECTIONS", "4")]);
    let channel = server.channel().await;
    let working = async || {
        crate::support::ask(
            &channel,
            crate::support::request("shop", &[&[("free", "x")]]),
        )
        .await
    };
    working().await.unwrap();
    let idle: Vec<TcpStream> = (0..40)
        .map(|_| TcpStream::connect(server.grpc()).unwrap())
        .collect();
    working().await.unwrap();
    drop(idle);
}

/// One address with a call in each of its connections had all places for ever, and health checks were refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn one_address_does_not_take_the_places_of_others() {
    let server = Server::start(&[("TIDEGATE_MAX_CONNECTIONS", "8")]);
    let quiet = server.channel().await;
    let decide = async || {
        crate::support::ask(&quiet, crate::support::request("shop", &[&[("free", "x")]])).await
    };
    decide().await.unwrap();
    let working = async || {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
        let socket = socket.connect(server.grpc()).await.ok()?;
        let (sender, tasks) = greet(socket, 65_535).await.ok()?;
        let mut sender = sender.ready().await.ok()?;
        // One that was refused may not know it yet.
        let request = http::Request::post(format!("http://x{PATH}"))
            .header("content-type", "application/grpc");
        let (answer, mut body) = sender.send_request(request.body(()).ok()?, false).ok()?;
        body.send_data(CALL, true).ok()?;
        answer.await.ok()?;
        Some((sender, tasks))
    };
    let mut attackers = Vec::new();
    for _ in 0..40 {
        attackers.extend(working().await);
    }
    assert!(attackers.len() >= 7, "{} are let in", attackers.len());
    for _ in 0..3 {
        assert_answers(server.grpc()).await;
        attackers.extend(working().await);
    }
    decide().await.unwrap();
}

/// Sixty bodies that stopped held the HTTP port for ever, and with it the health check.
#[test]
fn a_health_check_finds_room_among_bodies_that_stopped() {
    let server = Server::start(&[("TIDEGATE_MAX_CONNECTIONS", "8")]);
    let stopped: Vec<TcpStream> = (0..8)
        .map(|_| {
            let mut stream = TcpStream::connect(server.http()).unwrap();
            stream
                .write_all(b"POST /json HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{")
                .unwrap();
            stream
        })
        .collect();
    await_that("the check is answered", || {
        // For a moment, all may look as if they were at work.
        let check = std::panic::AssertUnwindSafe(|| get(server.http(), "/healthcheck"));
        std::panic::catch_unwind(check).is_ok_and(|answer| answer.status == 200)
    });
    drop(stopped);
}

/// A process that may open so many files.
fn with_files(soft: u32, hard: u32) -> Command {
    let mut command = Command::new("sh");
    command.args([
        "-c",
        &format!("ulimit -S -n {soft}; ulimit -H -n {hard}; exec \"$0\""),
        env!("CARGO_BIN_EXE_tidegate"),
    ]);
    command
}

/// 1,100 idle connections to the API took every descriptor, and the other ports went deaf.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn one_port_does_not_take_the_descriptors_of_others() {
    ports_do_not_take_descriptors_of_others("2").await;
}

/// What cores open for themselves was not reserved, so with many cores clients took it.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn clients_do_not_take_the_descriptors_of_cores() {
    ports_do_not_take_descriptors_of_others("32").await;
}

async fn ports_do_not_take_descriptors_of_others(cores: &str) {
    let limits = Limits::new(LIMITS);
    let data = tempfile::tempdir().unwrap();
    let server = Process::start_by(
        with_files(64, 256),
        &[
            ("TIDEGATE_CORES", cores),
            ("RUNTIME_ROOT", limits.root()),
            ("TIDEGATE_HTTP_ADDR", "127.0.0.1:0"),
            ("TIDEGATE_DATA_DIR", data.path().to_str().unwrap()),
        ],
    );
    let (grpc, http, api) = (
        server.address("gRPC"),
        server.address("HTTP"),
        server.address("API"),
    );
    let mut idle = Vec::new();
    for port in [api, grpc, http] {
        idle.extend((0..300).map(|_| TcpStream::connect(port).unwrap()));
    }
    assert_answers(grpc).await;
    assert_answers_json(http);
    assert_eq!(get(http, "/healthcheck").status, 200);
    assert_eq!(get(server.address("debug"), "/stats").status, 200);
    assert_eq!(get(api, "/healthz").status, 200);
    server.signal("TERM");
    let (code, log) = server.end();
    assert_eq!(code, Some(0));
    assert!(!log.contains("Too many open files"), "{log}");
    assert!(
        log.contains("are closed; raise the hard limit on open files (ulimit -H -n)"),
        "{log}"
    );
    assert!(
        log.contains("TIDEGATE_MAX_CONNECTIONS=10000 needs 40640 open files, 256 are allowed"),
        "{log}"
    );
}

/// The ports were open and nobody was answered.
#[test]
fn without_files_for_clients_there_is_no_start() {
    let mut command = with_files(40, 40);
    command
        .env_clear()
        .envs(variables(&[("TIDEGATE_CORES", "4")]))
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let output = command.spawn().unwrap().wait_with_output().unwrap();
    let log = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{log}");
    assert!(
        log.contains("open files are allowed, and this server needs at least"),
        "{log}"
    );
    assert!(
        log.contains("raise the hard limit on open files (ulimit -H -n), or lower TIDEGATE_CORES"),
        "{log}"
    );
}

/// Connections without the preface of HTTP/2, without a request, or with half a head stayed open for ever, or two minutes.
#[test]
fn connections_that_say_nothing_are_closed() {
    let server = Server::start(&[]);
    let said = |address, bytes: &[u8]| {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(bytes).unwrap();
        stream
    };
    let mut closed = [
        said(server.grpc(), b""),
        said(server.grpc(), &PREFACE[..20]),
        said(server.http(), b""),
        said(server.http(), b"GET /healthcheck HTTP/1.1\r\nhost:"),
        said(server.debug(), b"GET"),
    ];
    let mut early = said(server.grpc(), PREFACE);
    for stream in &mut closed {
        until_closed(stream);
    }
    let mut settings = [0; 9];
    std::io::Read::read_exact(&mut early, &mut settings).unwrap();
    assert!(
        !is_closed(&mut early),
        "a client may connect before it has a call"
    );
}
