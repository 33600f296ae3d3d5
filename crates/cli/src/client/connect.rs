//! The HTTP client with TLS, and the messages for a server that cannot be reached.

use std::error::Error;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::{Client, Error as ClientError};
use hyper_util::rt::TokioExecutor;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::{
    CertificateError, ClientConfig, Error as TlsError, OtherError, RootCertStore,
};

use crate::client::address::ServerAddress;
use crate::output::exit::{CommandResult, Failure};

/// Timeout of a connection attempt, with DNS and without TLS.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Time that an unused connection stays in the pool. After a stream was silent for longer, the
/// pooled connections may be dead as well.
const IDLE_TIMEOUT: Duration = Duration::from_secs(20);

pub(crate) type Connections = Client<HttpsConnector<HttpConnector>, Full<Bytes>>;

/// A client that trusts the certificate authorities of the system, and those in the PEM file
/// `extra_authorities`.
pub(crate) fn connections(
    target: &ServerAddress,
    extra_authorities: Option<&Path>,
) -> CommandResult<Connections> {
    let tls = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .expect("the provider has the usual versions")
        .with_root_certificates(root_certificates(target, extra_authorities)?)
        .with_no_client_auth();
    let mut sockets = HttpConnector::new();
    sockets.enforce_http(false);
    sockets.set_nodelay(true);
    sockets.set_connect_timeout(Some(CONNECT_TIMEOUT));
    let connector = HttpsConnectorBuilder::new()
        .with_tls_config(tls)
        .https_or_http()
        .enable_http1();
    let mut client = Client::builder(TokioExecutor::new());
    Ok(client
        .pool_idle_timeout(IDLE_TIMEOUT)
        .build(connector.wrap_connector(sockets)))
}

/// The certificate authorities of the system, and those in the PEM file `extra_authorities`.
fn root_certificates(
    target: &ServerAddress,
    extra_authorities: Option<&Path>,
) -> CommandResult<RootCertStore> {
    let mut roots = RootCertStore::empty();
    // Reading the system's authorities takes time, so plain HTTP does without.
    if target.is_encrypted() {
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    }
    if let Some(file) = extra_authorities {
        let wrong =
            |reason: String| Failure::usage(format!("{} cannot be read: {reason}", file.display()));
        let text = std::fs::read(file).map_err(|error| wrong(error.to_string()))?;
        let certificates: Vec<_> = CertificateDer::pem_slice_iter(&text)
            .filter_map(Result::ok)
            .collect();
        if roots.add_parsable_certificates(certificates).0 == 0 {
            return Err(wrong("it has no certificate in PEM form".to_owned()));
        }
    }
    Ok(roots)
}

/// Explains why the server at `target` did not answer.
pub(crate) fn explain_failure(target: &ServerAddress, error: &ClientError) -> String {
    let causes: Vec<_> = causes(error).collect();
    if let Some(error) = causes.iter().find_map(|cause| cause.downcast_ref()) {
        return explain_tls_error(target, error);
    }
    if causes
        .iter()
        .any(|cause| cause.downcast_ref().is_some_and(is_other_protocol))
    {
        let hint = if target.is_encrypted() {
            ""
        } else {
            "; if it speaks TLS, write https://"
        };
        return format!("what answers at {target} is not the HTTP API of Tidegate{hint}");
    }
    if !error.is_connect() {
        return format!("the connection to {target} was lost: {}", reason(error));
    }
    if causes.iter().any(|cause| is_end(*cause)) {
        let hint = "is it an https:// server? If it does not speak TLS, write http://";
        return format!(
            "what answers at {target} closed the connection before TLS was agreed on; {hint}"
        );
    }
    format!(
        "no server answers at {target}. Is it running? `tidegate` starts one\n  ({})",
        reason(error)
    )
}

/// The cause of an error in plain words. For a connection that ended without notice, the libraries
/// have a text for programmers, with a link.
pub(crate) fn reason(error: &(dyn Error + 'static)) -> String {
    let causes: Vec<_> = causes(error).collect();
    match causes.last() {
        Some(_) if causes.iter().any(|cause| is_end(*cause)) => {
            "the other end closed it without notice".to_owned()
        }
        Some(cause) => cause.to_string(),
        None => String::new(),
    }
}

/// Whether the other end closed the connection in the middle of something.
fn is_end(error: &(dyn Error + 'static)) -> bool {
    error
        .downcast_ref()
        .is_some_and(|error: &io::Error| error.kind() == io::ErrorKind::UnexpectedEof)
}

/// Whether the other end sent what is not HTTP/1, or spoke first as HTTP/2 servers do. hyper has no
/// name for the latter: it is the error without a cause that is none of the others.
fn is_other_protocol(error: &hyper::Error) -> bool {
    let is_loss = error.is_closed()
        || error.is_canceled()
        || error.is_incomplete_message()
        || error.is_timeout();
    error.is_parse() || (!is_loss && error.source().is_none())
}

/// `error` and its causes. An I/O error does not list the error that it wraps as its source, so
/// this looks inside.
fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(
        Some(error),
        |&error: &&'a (dyn Error + 'static)| match error.downcast_ref().and_then(io::Error::get_ref)
        {
            Some(inner) => Some(inner as &(dyn Error + 'static)),
            None => error.source(),
        },
    )
}

fn explain_tls_error(target: &ServerAddress, error: &TlsError) -> String {
    let reason = match error {
        TlsError::InvalidCertificate(CertificateError::Other(other)) if is_authority(other) => {
            Some(
                "it is that of an authority, which may sign certificates but may not be a server's own. Give the server another one: \
             signed by this authority, or self-signed with basicConstraints=CA:FALSE",
            )
        }
        TlsError::InvalidCertificate(error) => certificate_reason(error),
        TlsError::InvalidMessage(_) => {
            return format!("what answers at {target} does not speak TLS; write http://");
        }
        _ => None,
    };
    match reason {
        Some(reason) => format!("the certificate of {target} is refused: {reason}"),
        None => format!("TLS with {target} failed: {error}"),
    }
}

/// Why a certificate is refused, in plain words. None if there are no better ones than those of the
/// library.
fn certificate_reason(error: &CertificateError) -> Option<&'static str> {
    use CertificateError as E;
    Some(match error {
        E::UnknownIssuer => {
            "it is signed by an authority that is not trusted here. If it is yours, name the authority's certificate with \
             --cacert FILE or TIDEGATE_CACERT"
        }
        E::NotValidForName | E::NotValidForNameContext { .. } => "it is for another name",
        E::Expired | E::ExpiredContext { .. } => "it has expired",
        E::NotValidYet | E::NotValidYetContext { .. } => {
            "it is not valid yet, or the clock of this machine is wrong"
        }
        _ => return None,
    })
}

/// Whether a certificate was refused because it is that of an authority. rustls has no word of its
/// own for it, and passes on what the library says that checks certificates.
fn is_authority(error: &OtherError) -> bool {
    error.to_string() == "CaUsedAsEndEntity"
}
