//! Encrypted connections to a memcached that was started with TLS.

use std::path::Path;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use tempfile::TempDir;
use tidegate_memcache::CounterRead::{Count, Missing, Unknown};
use tidegate_memcache::test_util::MemcachedServer;
use tidegate_memcache::{Client, Config, Servers};
use tidegate_pipeline::{Address, ClientCertificate, Connector, Tls, Verification};

use crate::peer::{PATIENCE, add, read};

/// An authority with a certificate for this name, in files.
struct Authority {
    folder: TempDir,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        // OpenSSL takes a certificate for self-signed when it has the name of its issuer.
        params
            .distinguished_name
            .push(DnType::CommonName, "authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("ca.pem"), issuer.pem()).unwrap();
        Self { folder, issuer }
    }

    fn pair(&self, name: &str) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(vec![name.to_owned()])
            .unwrap()
            .signed_by(&key, &self.issuer)
            .unwrap();
        (certificate.pem(), key.serialize_pem())
    }

    fn serve(&self, name: &str, more: &str) -> MemcachedServer {
        let (chain, key) = self.pair(name);
        let path = |file: &str| self.folder.path().join(file);
        std::fs::write(path("server.pem"), chain).unwrap();
        std::fs::write(path("server.key"), key).unwrap();
        let shown = |path: &Path| path.display().to_string();
        let options = format!(
            "ssl_chain_cert={},ssl_key={},ssl_ca_cert={}{more}",
            shown(&path("server.pem")),
            shown(&path("server.key")),
            shown(&path("ca.pem"))
        );
        MemcachedServer::start_with(&["-Z", "-o", &options])
    }

    fn trusted(&self) -> Tls {
        let mut tls = Tls::default();
        tls.authorities = Some(self.issuer.pem().into_bytes());
        tls
    }
}

fn client(host: &str, server: &MemcachedServer, tls: Tls) -> Client {
    let mut config = Config::default();
    (config.tls, config.timeout) = (Some(Connector::new(&tls).unwrap()), PATIENCE);
    let address = Address::Tcp {
        host: host.to_owned(),
        port: server.port(),
    };
    Client::new(config, Servers::new(vec![address]))
}

#[tokio::test]
async fn counters_are_kept_over_tls() {
    let authority = Authority::new();
    let server = authority.serve("localhost", "");
    let client = client("localhost", &server, authority.trusted());
    for before in [Missing, Count(2), Count(4)] {
        assert_eq!(add(&client, "a", 2).await, before);
    }
}

#[tokio::test]
async fn another_name_or_authority_is_refused() {
    let authority = Authority::new();
    let server = authority.serve("memcached.example", "");
    assert_eq!(
        read(&client("localhost", &server, authority.trusted()), &["a"]).await,
        [Unknown]
    );
    let mut nameless = authority.trusted();
    nameless.verification = Verification::WithoutName;
    assert_eq!(
        read(&client("localhost", &server, nameless), &["a"]).await,
        [Missing]
    );
    let mut stranger = Authority::new().trusted();
    stranger.verification = Verification::WithoutName;
    assert_eq!(
        read(&client("localhost", &server, stranger), &["a"]).await,
        [Unknown]
    );
}

#[tokio::test]
async fn a_server_may_ask_for_a_certificate() {
    let authority = Authority::new();
    let server = authority.serve("localhost", ",ssl_verify_mode=2");
    let mut tls = authority.trusted();
    let (chain, key) = authority.pair("tidegate");
    tls.client = Some(ClientCertificate {
        chain: chain.into_bytes(),
        key: key.into_bytes(),
    });
    assert_eq!(
        read(&client("localhost", &server, tls), &["a"]).await,
        [Missing]
    );
    assert_eq!(
        read(&client("localhost", &server, authority.trusted()), &["a"]).await,
        [Unknown]
    );
}
