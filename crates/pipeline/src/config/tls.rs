//! Certificates and checks of encrypted connections.

use std::fmt;

use thiserror::Error;

/// Settings of encryption. Certificates and keys are PEM.
#[derive(Clone, Default)]
#[non_exhaustive]
pub struct Tls {
    /// Certificate authorities trusted besides the system's.
    pub authorities: Option<Vec<u8>>,
    /// Certificate for servers that request one.
    pub client: Option<ClientCertificate>,
    /// Checks of the server's certificate.
    pub verification: Verification,
}

/// A certificate chain and its key, as PEM.
#[derive(Clone)]
pub struct ClientCertificate {
    /// The chain, leaf first.
    pub chain: Vec<u8>,
    /// The key.
    pub key: Vec<u8>,
}

/// Checks of a server's certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Verification {
    /// The chain is valid, and the certificate names the server.
    #[default]
    Full,
    /// The chain is valid.
    WithoutName,
}

/// Errors of certificates or keys.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum TlsError {
    /// The text is not PEM, or lacks a required part.
    #[error("the {what} cannot be read: {reason}")]
    Unreadable {
        /// Certificate authorities, client certificate or client key.
        what: &'static str,
        /// The reason.
        reason: String,
    },
    /// Certificate and key do not match, or there is no authority.
    #[error("the TLS settings cannot be used: {0}")]
    Unusable(String),
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls")
            .field("verification", &self.verification)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for ClientCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientCertificate").finish_non_exhaustive()
    }
}
