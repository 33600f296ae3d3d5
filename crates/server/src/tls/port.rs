//! What a port shows its clients, and what it asks of them.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::server::danger::ClientCertVerifier;
use tokio_rustls::rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use tokio_rustls::rustls::{Error as TlsError, InconsistentKeys, RootCertStore, ServerConfig};

use super::named_client::NamedClient;
use super::named_file::{CertificateFileError, NamedFile, Pair};
use super::validity::Validity;

/// TLS of a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortTls {
    /// What it shows.
    pub pair: Pair,
    /// What it asks of clients. None: nothing.
    pub clients: Option<Clients>,
    /// The protocol that is spoken over TLS, by its name in ALPN.
    pub protocol: &'static [u8],
}

/// Which clients are let in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Clients {
    /// Authorities that may have issued their certificates, besides the system's.
    pub authorities: NamedFile,
    /// The name that their certificates must contain. None: any.
    pub name: Option<ServerName<'static>>,
}

/// What was made of the files.
#[derive(Debug)]
pub(crate) struct Loaded {
    config: Arc<ServerConfig>,
    /// None: it cannot be read.
    pub(crate) validity: Option<Validity>,
}

/// What handshakes of a port begin with, from now on. Clones are the same.
#[derive(Clone)]
pub(crate) struct Identity(Arc<Mutex<Arc<ServerConfig>>>);

impl PortTls {
    /// Reads the files.
    ///
    /// # Errors
    /// Everything that is wrong with them.
    pub(crate) fn load(&self) -> Result<Loaded, Vec<CertificateFileError>> {
        let Self {
            pair,
            clients,
            protocol,
        } = self;
        let verifier = clients.as_ref().map_or_else(
            || Ok(WebPkiClientVerifier::no_client_auth()),
            Clients::verifier,
        );
        match (pair.chain.certificates(), pair.key.key(), verifier) {
            (Ok(chain), Ok(key), Ok(verifier)) => {
                let validity = Validity::of(&chain);
                let config = Arc::new(
                    self.config(chain, key, verifier, protocol)
                        .map_err(|flaw| vec![flaw])?,
                );
                Ok(Loaded { config, validity })
            }
            (chain, key, verifier) => Err([chain.err(), key.err(), verifier.err()]
                .into_iter()
                .flatten()
                .collect()),
        }
    }

    fn config(
        &self,
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
        verifier: Arc<dyn ClientCertVerifier>,
        protocol: &[u8],
    ) -> Result<ServerConfig, CertificateFileError> {
        let Pair {
            chain: chain_file,
            key: key_file,
        } = &self.pair;
        let mut config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .expect("the provider has the usual versions")
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain, key)
            .map_err(|error| match error {
                TlsError::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
                    key_file.flaw(format!(
                        "it is not the key of the first certificate in {} ({})",
                        chain_file.path.display(),
                        chain_file.variable
                    ))
                }
                TlsError::InvalidCertificate(error) => {
                    chain_file.flaw(format!("its first certificate is broken: {error}"))
                }
                error => key_file.flaw(format!("the key cannot be used: {error}")),
            })?;
        config.alpn_protocols = vec![protocol.to_vec()];
        // Every connection shows its certificate: one that has expired, or whose authority was taken away, is of no use any more.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(config)
    }

    /// All files.
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

impl Clients {
    /// Reads the authorities.
    pub(crate) fn verifier(&self) -> Result<Arc<dyn ClientCertVerifier>, CertificateFileError> {
        let mut roots = RootCertStore::empty();
        for certificate in self.authorities.certificates()? {
            roots.add(certificate).map_err(|error| {
                self.authorities
                    .flaw(format!("a certificate in it is broken: {error}"))
            })?;
        }
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        let inner = WebPkiClientVerifier::builder_with_provider(
            Arc::new(roots),
            Arc::new(default_provider()),
        )
        // The names of all authorities of a system have 16 KiB, in every handshake; without them, clients show what they have.
        .clear_root_hint_subjects()
        .build()
        .map_err(|error| self.authorities.flaw(error.to_string()))?;
        Ok(match self.name.clone() {
            Some(name) => Arc::new(NamedClient { inner, name }),
            None => inner,
        })
    }
}

impl Identity {
    pub(crate) fn new(loaded: Loaded) -> Self {
        Self(Arc::new(Mutex::new(loaded.config)))
    }

    /// For one connection.
    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
            .into()
    }

    /// From now on, connections begin with this.
    pub(crate) fn replace(&self, loaded: Loaded) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = loaded.config;
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity").finish_non_exhaustive()
    }
}
