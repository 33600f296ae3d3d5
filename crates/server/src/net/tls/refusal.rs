//! Describes to an operator why a TLS handshake failed.

use std::io;

use tokio_rustls::rustls::{CertificateError, Error as TlsError};

/// The reason why a handshake failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum HandshakeFailure {
    /// The client closed the connection, as probes do that only check whether a port is open.
    ClientClosed,
    Reason(String),
}

pub(super) fn handshake_failure(error: &io::Error) -> HandshakeFailure {
    match error.get_ref().and_then(|error| error.downcast_ref()) {
        Some(error) => HandshakeFailure::Reason(tls_error_text(error)),
        None => HandshakeFailure::ClientClosed,
    }
}

fn tls_error_text(error: &TlsError) -> String {
    let reason = match error {
        TlsError::InvalidMessage(_) => "it does not speak TLS; is it configured without?",
        TlsError::NoCertificatesPresented => "it shows no certificate, and this port asks for one",
        TlsError::InvalidCertificate(error) => {
            return format!(
                "its certificate is not accepted: {}",
                certificate_error_text(error)
            );
        }
        TlsError::NoApplicationProtocol => "it does not offer the protocol of this port (ALPN)",
        TlsError::AlertReceived(alert) => {
            return format!(
                "it does not accept this server or its certificate: it answers with the alert {alert:?}"
            );
        }
        error => return error.to_string(),
    };
    reason.to_owned()
}

fn certificate_error_text(error: &CertificateError) -> String {
    use CertificateError as E;
    match error {
        E::UnknownIssuer => {
            "no known authority has issued it; its authority belongs in the file with client authorities"
        }
        E::Expired | E::ExpiredContext { .. } => "it has expired",
        E::NotValidYet | E::NotValidYetContext { .. } => {
            "it is not valid yet, or the clock of this machine is wrong"
        }
        E::NotValidForName | E::NotValidForNameContext { .. } => {
            "it is not for the name that clients must have"
        }
        E::InvalidPurpose | E::InvalidPurposeContext { .. } => {
            "it is not for clients (extended key usage clientAuth)"
        }
        E::Other(other) if other.to_string() == "CaUsedAsEndEntity" => {
            "it is that of an authority, which may sign certificates but may not be a client's own"
        }
        error => return error.to_string(),
    }
    .to_owned()
}
