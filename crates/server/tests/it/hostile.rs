//! Callers that want to hurt: what they can hold is bounded in number, in bytes and in time, and others are answered meanwhile.

mod api;
mod connections;
mod counted;
mod floods;
pub(crate) mod grpc;
mod heads;
mod http;
mod open;

use std::io::{ErrorKind, Read};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use crate::operate::process::Process;
use crate::support::{ask, await_that, channel, post, request};

/// Longer than any bound in time.
const LONG: Duration = Duration::from_secs(90);
/// A decision, and the answer that shows that the server is well.
const DECISION: &str =
    r#"{"domain":"shop","descriptors":[{"entries":[{"key":"free","value":"x"}]}]}"#;

/// Waits until the other side closes the connection; returns what it said before.
#[track_caller]
pub(crate) fn until_closed(stream: &mut TcpStream) -> Vec<u8> {
    stream.set_read_timeout(Some(LONG)).unwrap();
    let mut said = Vec::new();
    match stream.read_to_end(&mut said) {
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
            panic!("it stays open")
        }
        _ => said,
    }
}

/// Whether the other side has closed the connection by now.
pub(crate) fn is_closed(stream: &mut TcpStream) -> bool {
    stream
        .set_read_timeout(Some(Duration::from_millis(1)))
        .unwrap();
    let mut byte = [0];
    match stream.read(&mut byte) {
        Ok(length) => length == 0,
        Err(error) => !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
    }
}

async fn assert_answers(grpc: SocketAddr) {
    let answer = ask(&channel(grpc).await, request("shop", &[&[("free", "x")]])).await;
    assert!(answer.is_ok(), "{answer:?}");
}

fn assert_answers_json(http: SocketAddr) {
    let answer = post(http, "/json", DECISION);
    assert_eq!(answer.status, 200, "{answer:?}");
}

/// What a server may have more than before an attack, in bytes: counters, names, and what the allocator keeps.
const LEFT: u64 = 32 << 20;

/// As [`highest`], and waits until memory is given back.
#[track_caller]
pub(crate) fn grown(server: &Process, attack: impl FnOnce() + Send) -> u64 {
    let before = server.resident();
    let highest = highest(server, attack);
    await_that("memory is given back", || server.resident() < before + LEFT);
    highest
}

/// [`grown`] for an attack that waits; in a runtime of several threads.
async fn grown_by(server: &Process, attack: impl Future<Output = ()> + Send) -> u64 {
    let runtime = tokio::runtime::Handle::current();
    tokio::task::block_in_place(|| grown(server, || runtime.block_on(attack)))
}

/// The highest resident memory while `attack` goes on, above what it was before, in MiB.
fn highest(server: &Process, attack: impl FnOnce() + Send) -> u64 {
    let before = server.resident();
    let highest = std::thread::scope(|scope| {
        let attacking = scope.spawn(attack);
        let mut highest = before;
        let begun = Instant::now();
        while !attacking.is_finished() && begun.elapsed() < LONG {
            highest = highest.max(server.resident());
            std::thread::park_timeout(Duration::from_millis(10));
        }
        attacking.join().unwrap();
        highest
    });
    (highest - before) >> 20
}
