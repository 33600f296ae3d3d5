//! The TLS acceptors of the ports, and their certificates.

use super::{Handshakes, PortTlsAcceptor};
use crate::settings::Settings;
use crate::supervise::Supervisor;
use crate::supervise::error::ServeError;
use crate::tls::{PortIdentity, PortTls, ReloadedFiles, WatchedFiles};

/// The acceptor of each port. `None` if the port speaks plaintext.
#[derive(Debug)]
pub(crate) struct PortTlsAcceptors {
    pub(crate) grpc: Option<PortTlsAcceptor>,
    pub(crate) api: Option<PortTlsAcceptor>,
}

impl PortTlsAcceptors {
    /// Reads the certificates, and starts the thread of handshakes if a port needs it. Also returns
    /// the files to watch.
    ///
    /// # Errors
    /// A file cannot be used any more, or the system refuses a thread.
    pub(crate) fn open(
        settings: &Settings,
        supervisor: &Supervisor,
    ) -> Result<(Self, Vec<WatchedFiles>), ServeError> {
        let mut handshakes = None;
        let mut watched_files = Vec::new();
        let mut acceptor =
            |port, name, tls: Option<&PortTls>| -> Result<Option<PortTlsAcceptor>, ServeError> {
                let Some(tls) = tls else { return Ok(None) };
                let identity = load_identity(tls)?;
                watched_files.push(watch_port(name, tls, &identity));
                let handshakes = match &handshakes {
                    Some(handshakes) => handshakes,
                    None => handshakes.insert(Handshakes::start(supervisor)?),
                };
                Ok(Some(handshakes.acceptor(port, identity)))
            };
        let api = settings
            .workflows
            .as_ref()
            .and_then(|workflows| workflows.tls.as_ref());
        let acceptors = Self {
            grpc: acceptor("gRPC", "grpc", settings.grpc_tls.as_ref())?,
            api: acceptor("API", "api", api)?,
        };
        Ok((acceptors, watched_files))
    }
}

fn load_identity(tls: &PortTls) -> Result<PortIdentity, ServeError> {
    tls.load().map(PortIdentity::new).map_err(|flaws| {
        let reasons: Vec<_> = flaws.iter().map(ToString::to_string).collect();
        ServeError::Certificates {
            reasons: reasons.join("; "),
        }
    })
}

fn watch_port(name: &'static str, tls: &PortTls, identity: &PortIdentity) -> WatchedFiles {
    let tls = tls.clone();
    let identity = identity.clone();
    WatchedFiles::new(name, tls.files(), move || {
        let loaded = tls.load()?;
        let identity = identity.clone();
        Ok(ReloadedFiles::new(loaded.validity, move || {
            identity.replace(loaded)
        }))
    })
}
