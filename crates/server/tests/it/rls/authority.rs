//! Names of the server that are no names of hosts: those of clusters of Envoy, and paths of sockets.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;

use super::envoy::{OnOutage, front_of, get};
use crate::hostile::grpc::{CALL, PATH, PREFACE, field, frame};
use crate::support::{LIMITS, Limits, PATIENCE, Server};

/// Types and flags of frames.
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RESET: u8 = 3;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// Envoy sends the cluster's name when it is told no other. Here it refuses requests when a call fails.
#[test]
fn envoy_may_name_its_cluster_as_it_likes() {
    let limits = Limits::new(
        "domain: example\ndescriptors:\n  - key: user\n    rate_limit: { unit: hour, requests_per_unit: 1 }\n",
    );
    let server = Server::start(&[("RUNTIME_ROOT", limits.root())]);
    for cluster in [
        "outbound|8081||ratelimit.default.svc.cluster.local",
        "extension/contour/ratelimit",
        "a:b:c",
        "100%",
    ] {
        let (_envoy, front) = front_of(cluster, server.grpc().port(), OnOutage::Refuse);
        assert_eq!(get(front, Some(cluster)), Some(200), "{cluster}");
        assert_eq!(get(front, Some(cluster)), Some(429), "{cluster}");
    }
}

/// Some clients write the name of the field in full and others its number, and either may put it into the table of the connection and refer to it later.
#[test]
fn calls_of_one_connection_may_have_any_names_in_every_form() {
    let names = [
        "outbound|8081||a",
        "tidegate:8081",
        "%2Frun%2Fa.sock",
        "/run/a.sock",
        "extension/a/b",
    ];
    let (mut sent, calls) = (PREFACE.to_vec(), 200);
    for (call, name) in (0..calls).step_by(2).zip(names.iter().cycle()) {
        let value = [&[name.len() as u8], name.as_bytes()].concat();
        let forms = [
            field(0x40, ":authority", name),
            [&[0x41], &value[..]].concat(),
        ];
        // The latest entry of the table is the name.
        for (call, authority) in [
            (call, forms[call as usize / 2 % 2].as_slice()),
            (call + 1, &[0xbe]),
        ] {
            let head = [
                &[0x83, 0x86],
                field(0, ":path", PATH).as_slice(),
                authority,
                &field(0, "te", "trailers"),
            ]
            .concat();
            sent.extend(frame(HEADERS, END_HEADERS, 2 * call + 1, &head));
            sent.extend(frame(DATA, END_STREAM, 2 * call + 1, &CALL));
        }
    }
    let limits = Limits::new(LIMITS);
    let server = Server::start(&[("RUNTIME_ROOT", limits.root())]);
    assert_answered(TcpStream::connect(server.grpc()).unwrap(), &sent, calls);

    let path = limits.folder().join("grpc.sock");
    let _server = Server::start(&[
        ("RUNTIME_ROOT", limits.root()),
        ("GRPC_UDS", path.to_str().unwrap()),
    ]);
    let socket = UnixStream::connect(path).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_answered(socket, &sent, calls);
}

/// Sends calls and waits for the end of each.
#[track_caller]
fn assert_answered(mut socket: impl Read + Write, sent: &[u8], calls: u32) {
    socket.write_all(sent).unwrap();
    let mut answered = 0;
    while answered < calls {
        let mut begun = [0; 9];
        socket.read_exact(&mut begun).unwrap();
        let [high, middle, low, kind, flags, ..] = begun;
        let mut payload = vec![0; u32::from_be_bytes([0, high, middle, low]) as usize];
        socket.read_exact(&mut payload).unwrap();
        assert_ne!(kind, RESET, "after {answered}: {payload:?}");
        answered += u32::from(kind == HEADERS && flags & END_STREAM != 0);
    }
}
