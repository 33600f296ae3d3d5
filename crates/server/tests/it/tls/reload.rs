//! Certificates that change while the server runs.

use std::fs;
use std::os::unix::fs::symlink;

use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;

use super::authority::borrowed;
use super::{Authority, Folder, Issued, ask, connect, is_served};
use crate::operate::process::Process;
use crate::support::{LIMITS, Limits, PATIENCE, Server, get};

/// Waits until the gRPC port shows this certificate.
async fn shows(server: &Server, authority: &Authority, expected: &Issued) {
    let expected = CertificateDer::from_pem_slice(expected.chain.as_bytes()).unwrap();
    until(async || {
        let stream = connect(server.grpc(), authority, None).await.unwrap();
        stream.get_ref().1.peer_certificates().unwrap()[0] == expected
    })
    .await;
}

/// Asks until it is so.
async fn until(mut condition: impl AsyncFnMut() -> bool) {
    let asking = async {
        while !condition().await {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, asking)
        .await
        .expect("it comes");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn every_way_to_replace_a_pair_is_followed() {
    let (authority, folder) = (Authority::new("ours"), Folder::new());
    let pairs: Vec<Issued> = (0..4).map(|_| authority.issue("127.0.0.1")).collect();
    // As Kubernetes has it: files under a link that is swapped. The key is in another folder.
    for (version, pair) in [("v0", &pairs[0]), ("v3", &pairs[3])] {
        fs::create_dir(folder.path(version)).unwrap();
        folder.write(&format!("{version}/tls.crt"), &pair.chain);
        folder.write(&format!("{version}/tls.key"), &pair.key);
    }
    symlink("v0", folder.path("..data")).unwrap();
    symlink("..data/tls.crt", folder.path("server.pem")).unwrap();
    fs::create_dir(folder.path("keys")).unwrap();
    symlink("../..data/tls.key", folder.path("keys/server.key")).unwrap();
    let mut settings = folder.grpc().to_vec();
    settings[2].1 = folder.text("keys/server.key");
    let server = Server::start(&borrowed(&settings));
    shows(&server, &authority, &pairs[0]).await;
    let old = connect(server.grpc(), &authority, None).await.unwrap();
    let (mut old, connection) = h2::client::handshake(old).await.unwrap();
    let connection = tokio::spawn(connection);

    symlink("v3", folder.path("..data_tmp")).unwrap();
    fs::rename(folder.path("..data_tmp"), folder.path("..data")).unwrap();
    shows(&server, &authority, &pairs[3]).await;

    for (path, text) in [
        ("server.pem", &pairs[1].chain),
        ("keys/server.key", &pairs[1].key),
    ] {
        folder.write("new", text);
        fs::rename(folder.path("new"), folder.path(path)).unwrap();
    }
    shows(&server, &authority, &pairs[1]).await;

    folder.write("server.pem", &pairs[2].chain);
    folder.write("keys/server.key", &pairs[2].key);
    shows(&server, &authority, &pairs[2]).await;

    assert_eq!(
        ask(&mut old).await.unwrap(),
        "0",
        "a connection that is there stays"
    );
    assert!(server.stat("certs.load_attempts") >= 4);
    connection.abort();
}

/// Half a pair keeps the old one, and says what is wrong, once.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn half_a_pair_changes_nothing_and_is_told() {
    let (authority, folder, limits) = (Authority::new("ours"), Folder::new(), Limits::new(LIMITS));
    let (first, second) = (authority.issue("127.0.0.1"), authority.issue("127.0.0.1"));
    folder.put(&first);
    let mut settings = folder.grpc().to_vec();
    settings.push(("RUNTIME_ROOT", limits.root().to_owned()));
    let server = Process::start(&borrowed(&settings));
    let (grpc, debug) = (server.address("gRPC"), server.address("debug"));
    let stat = |name: &str| -> u64 {
        let stats = get(debug, "/stats").body;
        stats
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
            .unwrap_or("0")
            .parse()
            .unwrap()
    };
    folder.write("server.pem", &second.chain);
    until(async || stat("certs.load_failures") == 1).await;
    assert!(is_served(grpc, &authority, None).await, "with the old pair");
    folder.write("server.key", "");
    until(async || stat("certs.load_failures") == 2).await;
    assert!(is_served(grpc, &authority, None).await, "with the old pair");
    fs::remove_file(folder.path("server.key")).unwrap();
    until(async || stat("certs.load_failures") == 3).await;
    let before = stat("certs.load_attempts");
    folder.write("server.key", &second.key);
    until(async || stat("certs.load_attempts") > before).await;
    let expected = CertificateDer::from_pem_slice(second.chain.as_bytes()).unwrap();
    until(async || {
        let stream = connect(grpc, &authority, None).await.unwrap();
        stream.get_ref().1.peer_certificates().unwrap()[0] == expected
    })
    .await;
    assert_eq!(stat("certs.load_failures"), 3);
    server.signal("INT");
    let (_, log) = server.end();
    for reason in [
        "it is not the key of the first certificate in /",
        "it has no private key in PEM form",
        "cannot read",
    ] {
        assert_eq!(log.matches(reason).count(), 1, "{reason}: {log}");
    }
    assert!(
        log.contains(
            "changed certificates cannot be used, and the old ones stay: GRPC_SERVER_TLS_KEY='/"
        ),
        "{log}"
    );
}

/// A backup that is put in the place of the pair would end the port.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_pair_that_has_expired_does_not_replace_one_that_is_valid() {
    let (authority, folder) = (Authority::new("ours"), Folder::new());
    let (first, last) = (authority.issue("127.0.0.1"), authority.issue("127.0.0.1"));
    folder.put(&first);
    let server = Server::start(&borrowed(&folder.grpc()));
    folder.put(&authority.expired("127.0.0.1"));
    until(async || server.stat("certs.load_failures") == 1).await;
    shows(&server, &authority, &first).await;
    folder.put(&last);
    shows(&server, &authority, &last).await;
}

/// A client whose authority was taken away is refused, also when it was let in before; the other way round, too.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn authorities_of_clients_are_followed() {
    let (authority, old, new) = (
        Authority::new("ours"),
        Authority::new("old"),
        Authority::new("new"),
    );
    let folder = Folder::new();
    folder.put(&authority.issue("127.0.0.1"));
    folder.write("clients.pem", &old.pem);
    let mut settings = folder.grpc().to_vec();
    settings.push(("GRPC_CLIENT_TLS_CACERT", folder.text("clients.pem")));
    let server = Server::start(&borrowed(&settings));
    let served = async |client: &Issued| is_served(server.grpc(), &authority, Some(client)).await;
    let (of_old, of_new) = (old.issue("envoy"), new.issue("envoy"));
    assert!(served(&of_old).await && !served(&of_new).await);
    folder.write("clients.pem", &format!("{}{}", old.pem, new.pem));
    until(async || served(&of_new).await).await;
    assert!(served(&of_old).await, "both, while clients change theirs");
    folder.write("clients.pem", &new.pem);
    until(async || !served(&of_old).await).await;
    assert!(served(&of_new).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_end_of_a_certificate_is_told_before_it_comes() {
    let (authority, folder) = (Authority::new("ours"), Folder::new());
    let soon = authority.issue_as("127.0.0.1", |params| {
        let now = std::time::UNIX_EPOCH + std::time::UNIX_EPOCH.elapsed().unwrap();
        params.not_before = (now - std::time::Duration::from_secs(3600 * 99)).into();
        params.not_after = (now + std::time::Duration::from_secs(3600)).into();
    });
    for (pair, told) in [
        (soon, "valid for a short time only"),
        (authority.expired("127.0.0.1"), "has expired"),
    ] {
        folder.put(&pair);
        let server = Process::start(&borrowed(&folder.grpc()));
        let left = || -> Option<u64> {
            let stats = get(server.address("debug"), "/stats").body;
            let name = "tidegate.certificates.seconds_left: ";
            stats
                .lines()
                .find_map(|line| line.strip_prefix(name))
                .map(|left| left.parse().unwrap())
        };
        assert!(
            left().is_some_and(|left| left <= 3600),
            "on the first page: {:?}",
            left()
        );
        server.signal("INT");
        let (_, log) = server.end();
        assert!(log.contains(told), "{log}");
    }
}
