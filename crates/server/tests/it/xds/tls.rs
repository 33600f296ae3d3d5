//! Management servers behind TLS that ask for certificates.

use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use tempfile::TempDir;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};

use super::management::{Management, limits};
use super::{await_limit, start_at};
use crate::support::await_that;

/// An authority, and the files of a client that trusts it.
pub(super) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
    pem: String,
    folder: TempDir,
}

impl Authority {
    pub(super) fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).unwrap();
        let (pem, certificate) = (certificate.pem(), certificate.der().clone());
        let authority =
            Self { issuer: Issuer::new(params, key), certificate, pem, folder: tempfile::tempdir().unwrap() };
        authority.write("ca.pem", &authority.pem);
        authority.show(&authority);
        authority
    }

    pub(super) fn path(&self, file: &str) -> String {
        self.folder.path().join(file).display().to_string()
    }

    fn write(&self, file: &str, text: &str) {
        std::fs::write(self.path(file), text).unwrap();
    }

    /// Gives the client a certificate of `by`.
    fn show(&self, by: &Self) {
        let (chain, key) = by.signed("client");
        self.write("client.pem", &chain);
        self.write("client.key", &key);
    }

    fn signed(&self, name: &str) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        // A certificate with the name of its issuer would look self-signed.
        params.distinguished_name.push(DnType::CommonName, name);
        (params.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem())
    }

    /// A management server with a certificate for `name`, which asks for certificates of this authority.
    pub(super) fn management(&self, name: &str) -> Management {
        let (chain, key) = self.signed(name);
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.clone()).unwrap();
        let provider = Arc::new(default_provider());
        let clients = WebPkiClientVerifier::builder_with_provider(roots.into(), provider.clone()).build().unwrap();
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(clients)
            .with_single_cert(
                vec![CertificateDer::from_pem_slice(chain.as_bytes()).unwrap()],
                PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap(),
            )
            .unwrap();
        config.alpn_protocols = vec![b"h2".to_vec()];
        Management::start_at("127.0.0.1:0".parse().unwrap(), Some(TlsAcceptor::from(Arc::new(config))))
    }

    /// The settings of a client.
    pub(super) fn settings(&self) -> Vec<(&'static str, String)> {
        vec![
            ("CONFIG_GRPC_XDS_SERVER_USE_TLS", "true".to_owned()),
            ("CONFIG_GRPC_XDS_CLIENT_TLS_CERT", self.path("client.pem")),
            ("CONFIG_GRPC_XDS_CLIENT_TLS_KEY", self.path("client.key")),
            ("CONFIG_GRPC_XDS_SERVER_TLS_CACERT", self.path("ca.pem")),
            ("FORCE_START_WITHOUT_INITIAL_CONFIG", "true".to_owned()),
        ]
    }
}

fn check(authority: &Authority, management: &Management, more: &[(&str, &str)], repair: impl FnOnce()) {
    management.publish("v1", &[limits(1)]);
    let settings = authority.settings();
    let settings: Vec<_> = settings.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let server = start_at(management, &[&settings, more].concat());
    repair();
    await_limit(&server, 1);
    management.await_acknowledged("v1");
}

#[test]
fn both_sides_show_certificates() {
    let authority = Authority::new();
    check(&authority, &authority.management("127.0.0.1"), &[], || {});
}

#[test]
fn the_name_in_the_certificate_may_be_another_than_the_host() {
    let authority = Authority::new();
    let name = [("CONFIG_GRPC_XDS_SERVER_TLS_SAN", "management.example")];
    check(&authority, &authority.management("management.example"), &name, || {});
}

/// Every wrong certificate is refused, and each file is read again for the next attempt.
#[test]
fn a_wrong_certificate_is_refused_until_the_files_are_right() {
    let (authority, other) = (Authority::new(), Authority::new());
    // The client trusts somebody else.
    let management = authority.management("127.0.0.1");
    authority.write("ca.pem", &other.pem);
    check(&authority, &management, &[], || {
        await_refused(&management);
        authority.write("ca.pem", &authority.pem);
    });
    // The client shows what somebody else signed.
    let management = authority.management("127.0.0.1");
    authority.show(&other);
    check(&authority, &management, &[], || {
        await_refused(&management);
        authority.show(&authority);
    });
}

/// Waits for some attempts; none becomes a stream.
#[track_caller]
fn await_refused(management: &Management) {
    await_that("attempts to connect", || management.connections() > 3);
    assert!(management.headers().is_empty(), "a stream was opened");
}

#[test]
fn a_server_with_another_name_is_refused() {
    let authority = Authority::new();
    let management = authority.management("elsewhere.example");
    management.publish("v1", &[limits(1)]);
    let settings = authority.settings();
    let settings: Vec<_> = settings.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let _server = start_at(&management, &settings);
    await_refused(&management);
}
