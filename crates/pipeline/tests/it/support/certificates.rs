//! Certificates for servers of tests, and what clients and servers make of them.

use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use tempfile::TempDir;
use tidegate_pipeline::test_util::{RedisServer, free_port};
use tidegate_pipeline::{Address, ClientCertificate, Connector, Tls};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// A certificate authority, a server certificate for `name`, and a client certificate, as PEM files.
pub(crate) struct Certificates {
    folder: TempDir,
    pub(crate) authority: Vec<u8>,
    pub(crate) client: ClientCertificate,
}

impl Certificates {
    pub(crate) fn new(name: &str) -> Self {
        let mut authority = CertificateParams::new(Vec::new()).unwrap();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority_key = KeyPair::generate().unwrap();
        let authority_pem = authority.self_signed(&authority_key).unwrap().pem();
        let issuer = Issuer::new(authority, authority_key);
        let signed = |name: &str| {
            let key = KeyPair::generate().unwrap();
            let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
            // A certificate with the name of its issuer would look self-signed.
            params.distinguished_name.push(DnType::CommonName, name);
            (
                params.signed_by(&key, &issuer).unwrap().pem(),
                key.serialize_pem(),
            )
        };
        let folder = tempfile::tempdir().unwrap();
        let (chain, key) = signed(name);
        for (file, pem) in [
            ("ca.pem", &authority_pem),
            ("server.pem", &chain),
            ("server.key", &key),
        ] {
            std::fs::write(folder.path().join(file), pem).unwrap();
        }
        let (chain, key) = signed("client");
        let client = ClientCertificate {
            chain: chain.into(),
            key: key.into(),
        };
        Self {
            folder,
            authority: authority_pem.into(),
            client,
        }
    }

    fn path(&self, file: &str) -> String {
        self.folder.path().join(file).display().to_string()
    }

    /// What a server in this process accepts connections with.
    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        let chain = CertificateDer::pem_file_iter(self.path("server.pem"))
            .unwrap()
            .collect::<Result<_, _>>()
            .unwrap();
        let key = PrivateKeyDer::from_pem_file(self.path("server.key")).unwrap();
        let builder = ServerConfig::builder_with_provider(Arc::new(default_provider()));
        let builder = builder
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth();
        TlsAcceptor::from(Arc::new(builder.with_single_cert(chain, key).unwrap()))
    }

    /// What a client connects with.
    pub(crate) fn connector(&self) -> Connector {
        Connector::new(&trusting(Some(&self.authority))).unwrap()
    }

    /// A server that speaks TLS on the returned port, besides the plain one.
    pub(crate) async fn server(&self, ask_clients: &str) -> (RedisServer, Address) {
        self.server_with(ask_clients, &[]).await
    }

    /// As [`Certificates::server`], with more arguments for redis-server.
    pub(crate) async fn server_with(
        &self,
        ask_clients: &str,
        more: &[&str],
    ) -> (RedisServer, Address) {
        let port = free_port();
        let (port_text, files) = (
            port.to_string(),
            ["server.pem", "server.key", "ca.pem"].map(|file| self.path(file)),
        );
        let arguments = [
            "--tls-port",
            &port_text,
            "--tls-cert-file",
            &files[0],
            "--tls-key-file",
            &files[1],
            "--tls-ca-cert-file",
            &files[2],
            "--tls-auth-clients",
            ask_clients,
        ];
        let server = RedisServer::start_with(&[&arguments, more].concat()).await;
        (
            server,
            Address::Tcp {
                host: "127.0.0.1".to_owned(),
                port,
            },
        )
    }
}

pub(crate) fn trusting(authority: Option<&[u8]>) -> Tls {
    let mut tls = Tls::default();
    tls.authorities = authority.map(<[u8]>::to_vec);
    tls
}
