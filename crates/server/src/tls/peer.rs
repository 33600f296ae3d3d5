//! TLS towards another server: trusted authorities, and the client certificate.

use std::sync::Arc;

use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::named_file::{CertificateFileError, NamedFile, Pair};

/// TLS towards another server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerTls {
    /// Authorities that are trusted besides the system's.
    pub authorities: Option<NamedFile>,
    /// The client certificate. `None` if the server needs none.
    pub pair: Option<Pair>,
    /// The name that the server's certificate must contain. `None` for the host that is called.
    pub name: Option<ServerName<'static>>,
    /// The protocol over TLS, by its name in ALPN.
    pub protocol: &'static [u8],
}

impl PeerTls {
    /// Reads the files. Call it for each connection, because files may have changed.
    ///
    /// # Errors
    /// All errors of the files.
    pub(crate) fn load(&self) -> Result<Arc<ClientConfig>, Vec<CertificateFileError>> {
        let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .expect("the provider has the usual versions");
        let chain_and_key = self
            .pair
            .as_ref()
            .map(|pair| (pair.chain.certificates(), pair.key.key()));
        let (roots, shown) = match (self.roots(), chain_and_key) {
            (Ok(roots), None) => (roots, None),
            (Ok(roots), Some((Ok(chain), Ok(key)))) => (roots, Some((chain, key))),
            (roots, pair) => {
                let (chain, key) = pair
                    .map(|(chain, key)| (chain.err(), key.err()))
                    .unwrap_or_default();
                return Err([roots.err(), chain, key].into_iter().flatten().collect());
            }
        };
        let builder = builder.with_root_certificates(roots);
        let mut config = match (shown, &self.pair) {
            (Some((chain, key)), Some(pair)) => {
                builder.with_client_auth_cert(chain, key).map_err(|error| {
                    vec![
                        pair.key
                            .flaw(format!("it cannot be used with its certificate: {error}")),
                    ]
                })?
            }
            _ => builder.with_no_client_auth(),
        };
        config.alpn_protocols = vec![self.protocol.to_vec()];
        Ok(Arc::new(config))
    }

    fn roots(&self) -> Result<RootCertStore, CertificateFileError> {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        if let Some(file) = &self.authorities {
            for certificate in file.certificates()? {
                roots
                    .add(certificate)
                    .map_err(|error| file.flaw(format!("it has no usable authority: {error}")))?;
            }
        }
        Ok(roots)
    }
}
