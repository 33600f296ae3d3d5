//! Bodies of the HTTP port.

use std::io::Write as _;
use std::net::TcpStream;

use super::{assert_answers_json, highest, until_closed};
use crate::operate::process::Process;
use crate::support::{LIMITS, Limits, Server, get};

/// The start of a request whose body stops before its end.
pub(super) fn stopped(address: std::net::SocketAddr, length: usize, sent: usize) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream
        .write_all(
            format!("POST /json HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n\r\n")
                .as_bytes(),
        )
        .unwrap();
    // The server may have refused it already.
    let _ = stream.write_all(&vec![b' '; sent]);
    stream
}

/// Sixty bodies of `/json` that stopped held 254 MB for ever.
#[test]
fn bodies_that_stop_hold_little_and_not_for_long() {
    let limits = Limits::new(LIMITS);
    let server = Process::start(&[("RUNTIME_ROOT", limits.root())]);
    let http = server.address("HTTP");
    assert_answers_json(http);
    // Not `grown`: the allocator keeps what a thread has freed until that thread has work again.
    let grown = highest(&server, || {
        let mut bodies: Vec<TcpStream> = (0..60)
            .map(|_| stopped(http, 4 << 20, (4 << 20) - 1))
            .collect();
        assert_answers_json(http);
        assert_eq!(get(http, "/healthcheck").status, 200);
        for body in &mut bodies {
            let said = String::from_utf8(until_closed(body)).unwrap();
            let told =
                said.starts_with("HTTP/1.1 408") && said.ends_with("or longer than a minute\n");
            let no_room = said.starts_with("HTTP/1.1 503")
                && said.ends_with("too many bytes of unfinished bodies\n");
            assert!(said.is_empty() || told || no_room, "{said}");
        }
    });
    assert!(grown < 160, "{grown} MiB");
    assert_answers_json(http);
}

/// Each byte that was counted took forty.
#[test]
fn chunks_of_a_byte_take_what_is_counted() {
    let limits = Limits::new(LIMITS);
    let server = Process::start(&[("RUNTIME_ROOT", limits.root())]);
    let http = server.address("HTTP");
    assert_answers_json(http);
    let mut sent = b"POST /json HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n".to_vec();
    sent.extend(b"1\r\n \r\n".repeat(250_000));
    let grown = highest(&server, || {
        let attack = || {
            let mut stream = TcpStream::connect(http).unwrap();
            stream.write_all(&sent).unwrap();
            stream
        };
        let attackers: Vec<TcpStream> = (0..10).map(|_| attack()).collect();
        assert_answers_json(http);
        for mut stream in attackers {
            // What has arrived is answered when the body ends: it was read.
            stream.write_all(b"0\r\n\r\n").unwrap();
            stream.shutdown(std::net::Shutdown::Write).unwrap();
            until_closed(&mut stream);
        }
    });
    assert!(grown < 40, "{grown} MiB");
}

#[test]
fn heads_are_bounded() {
    let server = Server::start(&[]);
    let mut stream = TcpStream::connect(server.http()).unwrap();
    let _ = stream
        .write_all(format!("GET / HTTP/1.1\r\nx: {}\r\n\r\n", "x".repeat(1 << 20)).as_bytes());
    let said = String::from_utf8(until_closed(&mut stream)).unwrap();
    assert!(
        said.is_empty() || said.starts_with("HTTP/1.1 431"),
        "{said}"
    );
    assert_answers_json(server.http());
}
