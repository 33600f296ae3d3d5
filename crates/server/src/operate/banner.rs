//! What a person sees at start: where everything is, and a command to try.

use std::fmt;
use std::net::SocketAddr;

use tidegate_ratelimit::{Configuration, Entry};

use crate::edge::listen::{Addresses, GrpcAddress};

/// Printed in place of a command to try.
const NO_LIMITS: &str = "\
No limits are loaded. Write them to YAML files in the folder above, or use the files of another folder: set RUNTIME_ROOT,
RUNTIME_SUBDIRECTORY and RUNTIME_APPDIRECTORY. `tidegate check FILE` reports the mistakes in a file.
";

/// What a server reports once it has started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Started {
    /// Where it listens.
    pub addresses: Addresses,
    /// Where counters are, without credentials.
    pub store: String,
    /// Where workflows are, without credentials. None: workflows are off.
    pub workflows: Option<String>,
    /// Where limits come from.
    pub configuration: String,
    /// A body for `/json` that the first limit applies to. None: no limit is loaded.
    pub example: Option<String>,
}

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
            writeln!(f, "  API            {api}  /v1 (workflows; described by /v1/openapi.json)")?;
        }
        match &self.example {
            Some(body) => writeln!(f, "Try it:\n  curl -s {}/json -d '{body}'", reachable(addresses.http)),
            None => f.write_str(NO_LIMITS),
        }
    }
}

/// The body of a request that the first limit of `configuration` applies to; none when there is no limit.
pub(crate) fn example(configuration: &Configuration) -> Option<String> {
    let (domain, entries) = configuration.example()?;
    let entry = |entry: &Entry| format!(r#"{{"key":{},"value":{}}}"#, quoted(&entry.key), quoted(&entry.value));
    let entries: Vec<_> = entries.iter().map(entry).collect();
    Some(format!(r#"{{"domain":{},"descriptors":[{{"entries":[{}]}}]}}"#, quoted(&domain), entries.join(",")))
}

/// `text` as JSON that may stand between single quotes in a shell.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string().replace('\'', "\\u0027")
}

/// The address as a client on this machine writes it.
fn reachable(address: SocketAddr) -> String {
    if address.ip().is_unspecified() { format!("localhost:{}", address.port()) } else { address.to_string() }
}
