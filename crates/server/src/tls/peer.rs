//! TLS towards another server: trusted authorities, and the client certificate.

use std::sync::Arc;

use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::named_file::{CertificateAndKey, CertificateFileError, FileResult, NamedFile, both};

/// TLS towards another server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerTls {
    /// Authorities that are trusted besides the system's.
    pub authorities: Option<NamedFile>,
    /// The client certificate. `None` if the server needs none.
    pub pair: Option<CertificateAndKey>,
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
    pub(crate) fn load(&self) -> FileResult<Arc<ClientConfig>> {
        let pair = self.pair.as_ref().map(CertificateAndKey::load).transpose();
        let (roots, pair) = both(self.roots(), pair)?;
        let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .expect("the provider has the usual versions")
            .with_root_certificates(roots);
        let mut config = match (pair, &self.pair) {
            (Some((chain, key)), Some(CertificateAndKey { key: file, .. })) => {
                builder.with_client_auth_cert(chain, key).map_err(|error| {
                    file.file_error(format!("it cannot be used with its certificate: {error}"))
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
                roots.add(certificate).map_err(|error| {
                    file.file_error(format!("it has no usable authority: {error}"))
                })?;
            }
        }
        Ok(roots)
    }
}
