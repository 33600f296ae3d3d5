//! What a person sees at start: where everything is, and one line to try.

use std::fmt;
use std::net::SocketAddr;

use crate::{GrpcAddress, Started};

impl fmt::Display for Started {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let addresses = &self.addresses;
        writeln!(f, "tidegate {}", env!("CARGO_PKG_VERSION"))?;
        writeln!(f, "  store          {}", self.store)?;
        if let Some(workflows) = &self.workflows {
            writeln!(f, "  workflows      {workflows}")?;
        }
        writeln!(f, "  configuration  {}", self.configuration)?;
        match &addresses.grpc {
            GrpcAddress::Tcp(address) => writeln!(f, "  gRPC           {address}")?,
            GrpcAddress::Unix(path) => writeln!(f, "  gRPC           {}", path.display())?,
        }
        writeln!(f, "  HTTP           {}  /json /healthcheck", addresses.http)?;
        if let Some(debug) = addresses.debug {
            writeln!(f, "  debug          {debug}  /rlconfig /stats /metrics")?;
        }
        if let Some(prometheus) = addresses.prometheus {
            writeln!(f, "  Prometheus     {prometheus}")?;
        }
        if let Some(api) = addresses.api {
            writeln!(f, "  API            {api}  /v1 (workflows; /v1/openapi.json describes it)")?;
        }
        writeln!(f, "Try it:")?;
        writeln!(f, "  curl -s {}/json -d '{}'", reachable(addresses.http), QUESTION)
    }
}

/// Asks what the built-in sample limits to five a minute.
const QUESTION: &str = r#"{"domain":"sample","descriptors":[{"entries":[{"key":"client","value":"me"}]}]}"#;

/// The address as a client on this machine writes it.
fn reachable(address: SocketAddr) -> String {
    if address.ip().is_unspecified() { format!("localhost:{}", address.port()) } else { address.to_string() }
}
