//! What a connection trusts and shows when it is encrypted.

use std::fmt;

use thiserror::Error;

/// How connections are encrypted. Certificates and keys are PEM.
#[derive(Clone, Default)]
#[non_exhaustive]
pub struct Tls {
    /// Certificate authorities trusted besides the system's.
    pub authorities: Option<Vec<u8>>,
    /// Shown to a server that asks for one.
    pub client: Option<ClientCertificate>,
    /// What of the server's certificate is checked.
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

/// What of a server's certificate is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Verification {
    /// The chain, and that it names the server.
    #[default]
    Full,
    /// The chain only.
    WithoutName,
}

/// What is wrong with certificates or keys.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum TlsError {
    /// Not PEM, or PEM without what is needed.
    #[error("the {what} cannot be read: {reason}")]
    Unreadable {
        /// Certificate authorities, client certificate or client key.
        what: &'static str,
        /// Why.
        reason: String,
    },
    /// Certificate and key do not go together, or there is no authority at all.
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
