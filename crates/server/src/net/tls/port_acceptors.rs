//! The TLS acceptors of the ports, and their certificates.

use super::{Handshakes, PortTlsAcceptor};
use crate::error::ServeError;
use crate::settings::Settings;
use crate::supervise::Supervisor;
use crate::tls::{Identity, PortTls, ReloadedFiles, WatchedFiles};

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
        let mut followed = Vec::new();
        let mut gate =
            |port, of, tls: Option<&PortTls>| -> Result<Option<PortTlsAcceptor>, ServeError> {
                let Some(tls) = tls else { return Ok(None) };
                let identity = identity(tls)?;
                followed.push(follow_port(of, tls.clone(), identity.clone()));
                let handshakes = match &handshakes {
                    Some(handshakes) => handshakes,
                    None => handshakes.insert(Handshakes::start(supervisor)?),
                };
                Ok(Some(handshakes.gate(port, identity)))
            };
        let api = settings
            .workflows
            .as_ref()
            .and_then(|workflows| workflows.tls.as_ref());
        let gates = Self {
            grpc: gate("gRPC", "grpc", settings.grpc_tls.as_ref())?,
            api: gate("API", "api", api)?,
        };
        Ok((gates, followed))
    }
}

fn identity(tls: &PortTls) -> Result<Identity, ServeError> {
    tls.load().map(Identity::new).map_err(|flaws| {
        let reasons: Vec<_> = flaws.iter().map(ToString::to_string).collect();
        ServeError::Certificates {
            reasons: reasons.join("; "),
        }
    })
}

fn follow_port(of: &'static str, tls: PortTls, identity: Identity) -> WatchedFiles {
    WatchedFiles::new(of, tls.files(), move || {
        let loaded = tls.load()?;
        let identity = identity.clone();
        Ok(ReloadedFiles::new(loaded.validity, move || {
            identity.replace(loaded)
        }))
    })
}
