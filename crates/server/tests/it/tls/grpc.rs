//! Calls over TLS: who is let in, and how connections end.

use std::time::Duration;

use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;

use super::authority::borrowed;
use super::{Authority, Folder, Issued, ask, client, connect, decide, is_served, secure};
use crate::operate::process::Process;
use crate::support::{LIMITS, Limits, PATIENCE, Server};

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn calls_are_answered_over_tls_and_not_over_plaintext() {
    let (authority, folder) = (Authority::new("ours"), Folder::new());
    folder.put(&authority.issue("127.0.0.1"));
    let server = Server::start(&borrowed(&folder.grpc()));
    let stream = connect(server.grpc(), &authority, None).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    assert_eq!(decide(stream).await.unwrap(), "0");
    assert!(
        decide(TcpStream::connect(server.grpc()).await.unwrap())
            .await
            .is_err(),
        "plaintext"
    );
    let other = secure(
        TcpStream::connect(server.grpc()).await.unwrap(),
        &client(&authority, None, b"http/1.1"),
    )
    .await;
    assert!(other.is_err(), "another protocol");
    assert!(
        server.started.to_string().contains("TLS\n"),
        "{}",
        server.started
    );
}

/// Everything that a client can show, to a port that asks for a name.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn clients_are_let_in_by_authority_usage_time_and_name() {
    let (authority, clients, foreign) = (
        Authority::new("ours"),
        Authority::new("clients"),
        Authority::new("foreign"),
    );
    let (folder, limits) = (Folder::new(), Limits::new(LIMITS));
    folder.put(&authority.issue("127.0.0.1"));
    folder.write("clients.pem", &clients.pem);
    let mut settings = folder.grpc().to_vec();
    settings.push(("GRPC_CLIENT_TLS_CACERT", folder.text("clients.pem")));
    settings.push(("GRPC_CLIENT_TLS_SAN", "envoy.example".to_owned()));
    settings.push(("RUNTIME_ROOT", limits.root().to_owned()));
    let right = clients.issue("envoy.example");
    for (shown, reason) in [
        (None, "it shows no certificate"),
        (
            Some(foreign.issue("envoy.example")),
            "no known authority has issued it",
        ),
        (Some(clients.expired("envoy.example")), "it has expired"),
        (
            Some(clients.issue("other.example")),
            "it is not for the name that clients must have",
        ),
        (
            Some(clients.of_a_server("envoy.example")),
            "it is not for clients (extended key usage clientAuth)",
        ),
    ] {
        // One server for each: it logs refused clients now and then only.
        let server = Process::start(&borrowed(&settings));
        let grpc = server.address("gRPC");
        assert!(
            server.banner.contains("TLS, clients show a certificate"),
            "{}",
            server.banner
        );
        assert!(
            !is_served(grpc, &authority, shown.as_ref()).await,
            "{reason}"
        );
        assert!(
            is_served(grpc, &authority, Some(&right)).await,
            "after: {reason}"
        );
        server.signal("INT");
        let (code, log) = server.end();
        assert_eq!(code, Some(0), "{log}");
        assert!(
            log.contains("a client is refused in its TLS handshake") && log.contains(reason),
            "{reason}: {log}"
        );
    }
}

/// A name with a wildcard is for all names under it, as in every other place where names are checked.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_wildcard_is_for_the_name_that_clients_must_have() {
    let (authority, folder) = (Authority::new("ours"), Folder::new());
    folder.put(&authority.issue("127.0.0.1"));
    folder.write("clients.pem", &authority.pem);
    let mut settings = folder.grpc().to_vec();
    settings.push(("GRPC_CLIENT_TLS_CACERT", folder.text("clients.pem")));
    settings.push(("GRPC_CLIENT_TLS_SAN", "envoy.mesh.example".to_owned()));
    let server = Server::start(&borrowed(&settings));
    let served = async |shown: Issued| is_served(server.grpc(), &authority, Some(&shown)).await;
    assert!(served(authority.issue("*.mesh.example")).await);
    assert!(!served(authority.issue("*.envoy.mesh.example")).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn an_old_connection_is_told_to_go_and_a_new_one_is_served() {
    let (authority, folder) = (Authority::new("ours"), Folder::new());
    folder.put(&authority.issue("127.0.0.1"));
    let mut settings = folder.grpc().to_vec();
    settings.push(("GRPC_MAX_CONNECTION_AGE", "3s".to_owned()));
    settings.push(("GRPC_MAX_CONNECTION_AGE_GRACE", "1s".to_owned()));
    let server = Server::start(&borrowed(&settings));
    let stream = connect(server.grpc(), &authority, None).await.unwrap();
    let (mut sender, connection) = h2::client::handshake(stream).await.unwrap();
    let connection = tokio::spawn(connection);
    assert_eq!(ask(&mut sender).await.unwrap(), "0");
    drop(timeout(PATIENCE, connection).await.expect("GOAWAY comes"));
    assert!(is_served(server.grpc(), &authority, None).await);
}

/// A call without an end, after the age of its connection and the grace: the connection ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn grace_bounds_calls_over_tls() {
    let (authority, folder) = (Authority::new("ours"), Folder::new());
    folder.put(&authority.issue("127.0.0.1"));
    let mut settings = folder.grpc().to_vec();
    settings.push(("GRPC_MAX_CONNECTION_AGE", "500ms".to_owned()));
    settings.push(("GRPC_MAX_CONNECTION_AGE_GRACE", "500ms".to_owned()));
    let server = Server::start(&borrowed(&settings));
    let stream = connect(server.grpc(), &authority, None).await.unwrap();
    let (mut sender, connection) = h2::client::handshake(stream).await.unwrap();
    let connection = tokio::spawn(connection);
    let watch = http::Request::post("https://x/grpc.health.v1.Health/Watch")
        .header("content-type", "application/grpc");
    let (answer, mut body) = sender
        .send_request(watch.header("te", "trailers").body(()).unwrap(), false)
        .unwrap();
    body.send_data(bytes::Bytes::from_static(b"\0\0\0\0\0"), true)
        .unwrap();
    let mut watched = answer.await.unwrap().into_body();
    assert!(watched.data().await.unwrap().is_ok(), "the first status");
    let last = timeout(PATIENCE, watched.data())
        .await
        .expect("the watch does not hold the connection");
    assert!(last.is_none_or(|last| last.is_err()));
    drop(timeout(PATIENCE, connection).await.expect("it ends"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_unix_socket_speaks_tls_as_well() {
    let (authority, folder) = (Authority::new("ours"), Folder::new());
    folder.put(&authority.issue("127.0.0.1"));
    let mut settings = folder.grpc().to_vec();
    settings.push(("GRPC_UDS", folder.text("grpc.sock")));
    let _server = Server::start(&borrowed(&settings));
    let dial = async || UnixStream::connect(folder.path("grpc.sock")).await.unwrap();
    let secured = secure(dial().await, &client(&authority, None, b"h2"))
        .await
        .unwrap();
    assert_eq!(decide(secured).await.unwrap(), "0");
    let plain = timeout(Duration::from_secs(20), decide(dial().await))
        .await
        .unwrap();
    assert!(plain.is_err());
}
