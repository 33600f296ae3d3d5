//! Encrypts sockets by the settings of [`Tls`].

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::client::WebPkiServerVerifier;
use tokio_rustls::rustls::client::danger::{
    HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier,
};
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio_rustls::rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error as RustlsError, RootCertStore,
    SignatureScheme,
};

use super::{Tls, TlsError, Verification};

/// Encrypts sockets. Clones share certificates, keys and their replacements.
#[derive(Clone)]
pub struct Connector {
    tls: Arc<Mutex<TlsConnector>>,
    server_name: Option<ServerName<'static>>,
}

impl Connector {
    /// Reads certificates and keys.
    ///
    /// # Errors
    /// The certificates or keys cannot be used.
    pub fn new(tls: &Tls) -> Result<Self, TlsError> {
        Ok(Self {
            tls: Arc::new(Mutex::new(connector(tls)?)),
            server_name: None,
        })
    }

    /// Returns a clone that expects this name in the certificate of every server, and sends it to
    /// the servers (SNI). A name from DNS may end with a dot.
    ///
    /// # Errors
    /// The text is neither a name nor an address.
    pub fn with_server_name(&self, name: &str) -> Result<Self, TlsError> {
        let server_name = name_in_certificate(name);
        let server_name =
            server_name.ok_or_else(|| TlsError::Unusable(format!("{name:?} is no server name")))?;
        Ok(Self {
            server_name: Some(server_name),
            ..self.clone()
        })
    }

    /// Returns the name that the certificate of a server at `host` must have. `None` if there is no
    /// valid name.
    pub(crate) fn name_of(&self, host: &str) -> Option<ServerName<'static>> {
        self.server_name
            .clone()
            .or_else(|| name_in_certificate(host))
    }

    /// Replaces certificates and keys by those of `other`. Open sockets stay as they are.
    pub fn replace(&self, other: &Self) {
        let new = other.current();
        *self.tls.lock().unwrap_or_else(PoisonError::into_inner) = new;
    }

    /// Returns the connector for one new socket.
    pub(crate) fn current(&self) -> TlsConnector {
        self.tls
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

/// Parses a server name. Names from DNS end with a dot, those in certificates do not.
fn name_in_certificate(host: &str) -> Option<ServerName<'static>> {
    ServerName::try_from(host.strip_suffix('.').unwrap_or(host).to_owned()).ok()
}

fn connector(tls: &Tls) -> Result<TlsConnector, TlsError> {
    let provider = Arc::new(default_provider());
    let roots = Arc::new(roots(tls)?);
    let verifier = WebPkiServerVerifier::builder_with_provider(roots, provider.clone())
        .build()
        .map_err(|error| TlsError::Unusable(error.to_string()))?;
    let verifier = Arc::new(Verifier {
        inner: verifier,
        verification: tls.verification,
    });
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| TlsError::Unusable(error.to_string()))?
        .dangerous()
        .with_custom_certificate_verifier(verifier);
    let config = match &tls.client {
        None => builder.with_no_client_auth(),
        Some(client) => {
            let chain = certificates("client certificate", &client.chain)?;
            let key = PrivateKeyDer::from_pem_slice(&client.key).map_err(|error| {
                TlsError::Unreadable {
                    what: "client key",
                    reason: error.to_string(),
                }
            })?;
            builder
                .with_client_auth_cert(chain, key)
                .map_err(|error| TlsError::Unusable(error.to_string()))?
        }
    };
    Ok(TlsConnector::from(Arc::new(config)))
}

fn roots(tls: &Tls) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if let Some(authorities) = &tls.authorities {
        for certificate in certificates("certificate authorities", authorities)? {
            roots
                .add(certificate)
                .map_err(|error| TlsError::Unusable(error.to_string()))?;
        }
    }
    Ok(roots)
}

fn certificates(what: &'static str, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let unreadable = |reason: String| TlsError::Unreadable { what, reason };
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let certificates = certificates.map_err(|error| unreadable(error.to_string()))?;
    if certificates.is_empty() {
        Err(unreadable("no certificate in it".to_owned()))
    } else {
        Ok(certificates)
    }
}

/// Verifies as rustls does, but may ignore a wrong name.
#[derive(Debug)]
struct Verifier {
    inner: Arc<WebPkiServerVerifier>,
    verification: Verification,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, RustlsError> {
        let verified = self.inner.verify_server_cert(
            end_entity,
            intermediates,
            server_name,
            ocsp_response,
            now,
        );
        match (verified, self.verification) {
            // The chain is checked before the name, so it is good when only the name is wrong.
            (
                Err(RustlsError::InvalidCertificate(
                    CertificateError::NotValidForName
                    | CertificateError::NotValidForNameContext { .. },
                )),
                Verification::WithoutName,
            ) => Ok(ServerCertVerified::assertion()),
            (verified, _) => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, RustlsError> {
        self.inner
            .verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, RustlsError> {
        self.inner
            .verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connector").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_names_a_host_without_the_dot_at_its_end() {
        let connector = Connector::new(&Tls::default()).unwrap();
        for (host, name) in [
            ("cache.example.", "cache.example"),
            ("cache.example", "cache.example"),
            ("::1", "::1"),
        ] {
            assert_eq!(
                connector.name_of(host),
                Some(ServerName::try_from(name).unwrap())
            );
        }
        assert!(
            [".", ""]
                .iter()
                .all(|host| connector.name_of(host).is_none())
        );
    }

    #[test]
    fn a_given_name_holds_for_every_host() {
        let connector = Connector::new(&Tls::default()).unwrap();
        let named = connector.with_server_name("cache.example.").unwrap();
        assert_eq!(
            named.name_of("10.0.0.1"),
            Some(ServerName::try_from("cache.example").unwrap())
        );
        assert_eq!(
            connector.name_of("10.0.0.1"),
            Some(ServerName::try_from("10.0.0.1").unwrap())
        );
        assert!(connector.with_server_name("not a name").is_err());
    }
}
