//! Management servers behind TLS that ask for certificates.

use std::sync::Arc;

use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};

use super::management::{Management, limits};
use super::{await_limit, start_at};
use crate::support::await_that;
use crate::tls::authority::{Authority, Folder, borrowed};

/// A management server with a certificate for `name`, which asks for certificates of the same authority.
pub(crate) fn guarded(authority: &Authority, name: &str) -> Management {
    let issued = authority.issue(name);
    let certificate = |pem: &str| CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(certificate(&authority.pem)).unwrap();
    let provider = Arc::new(default_provider());
    let clients = WebPkiClientVerifier::builder_with_provider(roots.into(), provider.clone())
        .build()
        .unwrap();
    let key = PrivateKeyDer::from_pem_slice(issued.key.as_bytes()).unwrap();
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(clients)
        .with_single_cert(vec![certificate(&issued.chain)], key)
        .unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    Management::start_at(
        "127.0.0.1:0".parse().unwrap(),
        Some(TlsAcceptor::from(Arc::new(config))),
    )
}

/// The files of a client that trusts `authority` and shows what `by` issued.
pub(super) fn put(folder: &Folder, authority: &Authority, by: &Authority) {
    folder.write("ca.pem", &authority.pem);
    folder.put(&by.issue("client"));
}

/// The settings of a client with these files, which starts without waiting.
pub(super) fn settings(folder: &Folder) -> Vec<(&'static str, String)> {
    vec![
        ("CONFIG_GRPC_XDS_SERVER_USE_TLS", "true".to_owned()),
        ("CONFIG_GRPC_XDS_CLIENT_TLS_CERT", folder.text("server.pem")),
        ("CONFIG_GRPC_XDS_CLIENT_TLS_KEY", folder.text("server.key")),
        ("CONFIG_GRPC_XDS_SERVER_TLS_CACERT", folder.text("ca.pem")),
        ("FORCE_START_WITHOUT_INITIAL_CONFIG", "true".to_owned()),
    ]
}

/// A client with these files reaches the server, after the repair.
fn check(folder: &Folder, management: &Management, more: &[(&str, &str)], repair: impl FnOnce()) {
    management.publish("v1", &[limits(1)]);
    let server = start_at(management, &[&borrowed(&settings(folder)), more].concat());
    repair();
    await_limit(&server, 1);
    management.await_acknowledged("v1");
}

#[test]
fn both_sides_show_certificates() {
    let (authority, folder) = (Authority::new("ours"), Folder::new());
    put(&folder, &authority, &authority);
    check(&folder, &guarded(&authority, "127.0.0.1"), &[], || {});
}

#[test]
fn the_name_in_the_certificate_may_be_another_than_the_host() {
    let (authority, folder) = (Authority::new("ours"), Folder::new());
    put(&folder, &authority, &authority);
    let name = [("CONFIG_GRPC_XDS_SERVER_TLS_SAN", "management.example")];
    check(
        &folder,
        &guarded(&authority, "management.example"),
        &name,
        || {},
    );
}

/// Every wrong certificate is refused, and each file is read again for the next attempt.
#[test]
fn a_wrong_certificate_is_refused_until_the_files_are_right() {
    let (authority, other, folder) = (
        Authority::new("ours"),
        Authority::new("other"),
        Folder::new(),
    );
    // The client trusts somebody else, or shows what somebody else issued.
    for (trusted, by) in [(&other, &authority), (&authority, &other)] {
        put(&folder, trusted, by);
        let management = guarded(&authority, "127.0.0.1");
        check(&folder, &management, &[], || {
            await_refused(&management);
            put(&folder, &authority, &authority);
        });
    }
}

/// Waits for some attempts; none becomes a stream.
#[track_caller]
fn await_refused(management: &Management) {
    await_that("attempts to connect", || management.connections() > 3);
    assert!(management.headers().is_empty(), "a stream was opened");
}

#[test]
fn a_server_with_another_name_is_refused() {
    let (authority, folder) = (Authority::new("ours"), Folder::new());
    put(&folder, &authority, &authority);
    let management = guarded(&authority, "elsewhere.example");
    management.publish("v1", &[limits(1)]);
    let _server = start_at(&management, &borrowed(&settings(&folder)));
    await_refused(&management);
}
