//! TLS of a port: its certificate, and the certificates that clients must have.

use std::fmt;
use std::sync::{Arc, Mutex};

use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::server::danger::ClientCertVerifier;
use tokio_rustls::rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use tokio_rustls::rustls::{Error as TlsError, InconsistentKeys, RootCertStore, ServerConfig};

use super::named_client::NamedClientVerifier;
use super::named_file::{CertificateAndKey, CertificateFileError, FileResult, NamedFile, both};
use super::validity::Validity;
use crate::base::sync::lock;

/// TLS of a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortTls {
    /// The certificate and key of the port.
    pub pair: CertificateAndKey,
    /// The verification of client certificates. `None` if clients need none.
    pub clients: Option<ClientAuth>,
    /// The protocol over TLS, by its name in ALPN.
    pub protocol: &'static [u8],
}

/// The client certificates that a port accepts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientAuth {
    /// Authorities that may have issued them, besides the system's.
    pub authorities: NamedFile,
    /// The name that they must contain. `None` for any name.
    pub name: Option<ServerName<'static>>,
}

/// The TLS configuration that was made from the files.
#[derive(Debug)]
pub(crate) struct LoadedPortTls {
    config: Arc<ServerConfig>,
    /// `None` if it cannot be read.
    pub(crate) validity: Option<Validity>,
}

/// The TLS configuration of new connections to a port. Clones share it.
#[derive(Clone)]
pub(crate) struct PortIdentity(Arc<Mutex<Arc<ServerConfig>>>);

impl PortTls {
    /// Reads the files.
    ///
    /// # Errors
    /// All errors of the files.
    pub(crate) fn load(&self) -> FileResult<LoadedPortTls> {
        let verifier = self.clients.as_ref().map_or_else(
            || Ok(WebPkiClientVerifier::no_client_auth()),
            ClientAuth::verifier,
        );
        let ((chain, key), verifier) = both(self.pair.load(), verifier)?;
        let validity = Validity::from_chain(&chain);
        let mut config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .expect("the provider has the usual versions")
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain, key)
            .map_err(|error| pair_error(&self.pair, error))?;
        config.alpn_protocols = vec![self.protocol.to_vec()];
        // Every connection verifies the client certificate: one that has expired, or whose
        // authority was removed, must not resume a session.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(LoadedPortTls {
            config: Arc::new(config),
            validity,
        })
    }

    /// Returns all files.
    pub(crate) fn files(&self) -> Vec<NamedFile> {
        let authorities = self
            .clients
            .as_ref()
            .map(|clients| clients.authorities.clone());
        [self.pair.chain.clone(), self.pair.key.clone()]
            .into_iter()
            .chain(authorities)
            .collect()
    }
}

/// The error of a certificate and key that cannot be used together.
fn pair_error(pair: &CertificateAndKey, error: TlsError) -> CertificateFileError {
    let CertificateAndKey { chain, key } = pair;
    match error {
        TlsError::InconsistentKeys(InconsistentKeys::KeyMismatch) => key.file_error(format!(
            "it is not the key of the first certificate in {} ({})",
            chain.path.display(),
            chain.variable
        )),
        TlsError::InvalidCertificate(error) => {
            chain.file_error(format!("its first certificate is broken: {error}"))
        }
        error => key.file_error(format!("the key cannot be used: {error}")),
    }
}

impl ClientAuth {
    /// Reads the authorities.
    pub(crate) fn verifier(&self) -> Result<Arc<dyn ClientCertVerifier>, CertificateFileError> {
        let mut roots = RootCertStore::empty();
        for certificate in self.authorities.certificates()? {
            roots.add(certificate).map_err(|error| {
                self.authorities
                    .file_error(format!("a certificate in it is broken: {error}"))
            })?;
        }
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        let inner = WebPkiClientVerifier::builder_with_provider(
            Arc::new(roots),
            Arc::new(default_provider()),
        )
        // The names of all authorities of a system take 16 KiB in every handshake. Without them,
        // clients send the certificate that they have.
        .clear_root_hint_subjects()
        .build()
        .map_err(|error| self.authorities.file_error(error.to_string()))?;
        Ok(match self.name.clone() {
            Some(name) => Arc::new(NamedClientVerifier { inner, name }),
            None => inner,
        })
    }
}

impl PortIdentity {
    pub(crate) fn new(loaded: LoadedPortTls) -> Self {
        Self(Arc::new(Mutex::new(loaded.config)))
    }

    /// Creates the acceptor of one connection.
    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        lock(&self.0).clone().into()
    }

    /// Replaces the configuration of new connections.
    pub(crate) fn replace(&self, loaded: LoadedPortTls) {
        *lock(&self.0) = loaded.config;
    }
}

impl fmt::Debug for PortIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity").finish_non_exhaustive()
    }
}
