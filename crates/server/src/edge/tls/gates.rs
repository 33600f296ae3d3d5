//! The ways through TLS to the ports that have it, and their certificates.

use std::sync::Arc;

use super::{Gate, Handshakes};
use crate::certificates::{Followed, Identity, PortTls, follow};
use crate::error::ServeError;
use crate::operate::metrics::Metrics;
use crate::settings::Settings;
use crate::supervise::Supervisor;

/// The ways to the ports. None: the port speaks plaintext.
#[derive(Debug)]
pub(crate) struct Gates {
    pub(crate) grpc: Option<Gate>,
    pub(crate) api: Option<Gate>,
}

impl Gates {
    /// Reads the certificates, follows their files, and starts the thread of handshakes if a port needs it.
    ///
    /// # Errors
    /// A file cannot be used any more, or the system refuses a thread.
    pub(crate) fn open(
        settings: &Settings,
        metrics: &Arc<Metrics>,
        supervisor: &Supervisor,
    ) -> Result<Self, ServeError> {
        let (mut handshakes, mut followed) = (None, Vec::new());
        let mut gate = |port, of, tls: Option<&PortTls>| -> Result<Option<Gate>, ServeError> {
            let Some(tls) = tls else { return Ok(None) };
            let identity = identity(tls)?;
            followed.push(follow_port(of, tls.clone(), identity.clone()));
            let handshakes = match &handshakes {
                Some(handshakes) => handshakes,
                None => handshakes.insert(Handshakes::start(supervisor)?),
            };
            Ok(Some(handshakes.gate(port, identity)))
        };
        let api = settings.workflows.as_ref().and_then(|workflows| workflows.tls.as_ref());
        let gates = Self { grpc: gate("gRPC", "grpc", settings.grpc_tls.as_ref())?, api: gate("API", "api", api)? };
        follow(followed, metrics.clone(), supervisor)?;
        Ok(gates)
    }
}

fn identity(tls: &PortTls) -> Result<Identity, ServeError> {
    tls.load().map(Identity::new).map_err(|flaws| {
        let reasons: Vec<_> = flaws.iter().map(ToString::to_string).collect();
        ServeError::Certificates { reasons: reasons.join("; ") }
    })
}

fn follow_port(of: &'static str, tls: PortTls, identity: Identity) -> Followed {
    Followed::new(of, tls.files(), move || {
        let loaded = tls.load()?;
        let validity = loaded.validity;
        identity.replace(loaded);
        Ok(validity)
    })
}
