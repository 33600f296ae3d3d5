//! Banner at start: addresses, stores, and a command to try.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use tidegate_ratelimit::{Configuration, Entry};
use tracing::info;

use crate::net::listen::Addresses;
use crate::tls::PortTls;

/// State of a server that has started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Started {
    /// Addresses that the server listens on.
    pub addresses: Addresses,
    /// TLS of the gRPC port.
    pub grpc_encryption: Encryption,
    /// TLS of the API.
    pub api_encryption: Encryption,
    /// Location of the counters, without credentials.
    pub store: String,
    /// Location of the workflows, without credentials. None if workflows are off.
    pub workflows: Option<String>,
    /// Source of the limits.
    pub configuration: String,
    /// Result of the first load of the configuration.
    pub loaded: LoadResult,
}

/// Encryption of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encryption {
    /// Plaintext.
    Off,
    /// TLS.
    Tls,
    /// TLS with client certificates.
    Mutual,
}

/// Result of the first load of the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LoadResult {
    /// Limits were loaded.
    Limits {
        /// A body for `/json` that the first limit applies to.
        example: String,
    },
    /// The configuration has no limits.
    NoLimits {
        /// Folder for files with limits.
        folder: PathBuf,
    },
    /// The configuration has mistakes.
    Mistakes {
        /// Folder with the files.
        folder: PathBuf,
    },
    /// The configuration is not loaded yet, because the ports were opened first.
    NotYetLoaded,
    /// The management server sent no limits, or no valid ones.
    NoneSent,
}

impl Started {
    /// Logs the state as one line, for log collectors that read JSON.
    pub(crate) fn log(&self) {
        let addresses = &self.addresses;
        let shown = |address: Option<SocketAddr>| address.map(|address| address.to_string());
        let pages = shown(addresses.debug);
        let prometheus = shown(addresses.prometheus);
        let api = shown(addresses.api);
        info!(
            version = crate::VERSION,
            store = self.store,
            workflows = self.workflows,
            configuration = self.configuration,
            grpc = %addresses.grpc,
            grpc_tls = ?self.grpc_encryption,
            http = %addresses.http,
            debug = pages,
            prometheus,
            api,
            api_tls = ?self.api_encryption,
            "started"
        );
    }
}

impl fmt::Display for Started {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "tidegate {}", crate::VERSION)?;
        // The Makefile sets it for builds with the profile `quick`.
        if option_env!("QUICK_BUILD").is_some() {
            writeln!(
                f,
                "  build          for a first look; `make install` builds a faster one"
            )?;
        }
        if let Some(api) = self.addresses.api {
            writeln!(
                f,
                "  page           {}/  open it in a browser",
                self.page(api)
            )?;
        }
        writeln!(f, "  store          {}", self.store)?;
        if let Some(workflows) = &self.workflows {
            writeln!(f, "  workflows      {workflows}")?;
        }
        writeln!(f, "  configuration  {}", self.configuration)?;
        self.write_ports(f)?;
        match &self.loaded {
            LoadResult::Limits { example } => {
                let http = reachable(self.addresses.http);
                writeln!(f, "Try it:\n  curl -s {http}/json -d '{example}'")
            }
            other => writeln!(f, "{other}"),
        }
    }
}

impl Started {
    /// Writes a line for each open port.
    fn write_ports(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let addresses = &self.addresses;
        write!(f, "  gRPC           {}", addresses.grpc)?;
        f.write_str(match self.grpc_encryption {
            Encryption::Off => "\n",
            Encryption::Tls => "  TLS\n",
            Encryption::Mutual => "  TLS, clients show a certificate\n",
        })?;
        writeln!(f, "  HTTP           {}  /json /healthcheck", addresses.http)?;
        if let Some(debug) = addresses.debug {
            writeln!(f, "  debug          {debug}  /rlconfig /stats /metrics")?;
        }
        if let Some(prometheus) = addresses.prometheus {
            writeln!(f, "  Prometheus     {prometheus}")?;
        }
        if let Some(api) = addresses.api {
            let base = self.api_encryption.path_prefix(api);
            writeln!(
                f,
                "  API            {api}  {base}/v1 (described by /v1/openapi.json)"
            )?;
        }
        Ok(())
    }

    /// Base address of the page for a browser on this machine, without a trailing slash.
    fn page(&self, api: SocketAddr) -> String {
        let scheme = if self.api_encryption == Encryption::Off {
            "http"
        } else {
            "https"
        };
        format!("{scheme}://{}", reachable(api))
    }
}

impl Encryption {
    /// Encryption of a port with these settings.
    pub(crate) fn for_port(tls: Option<&PortTls>) -> Self {
        match tls {
            None => Self::Off,
            Some(tls) if tls.clients.is_none() => Self::Tls,
            Some(_) => Self::Mutual,
        }
    }

    /// Prefix for paths of the API at `address`. Empty for plaintext, which is the default of
    /// clients.
    fn path_prefix(self, address: SocketAddr) -> String {
        match self {
            Self::Off => String::new(),
            Self::Tls | Self::Mutual => format!("https://{address}"),
        }
    }
}

impl fmt::Display for LoadResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Limits { example } => f.write_str(example),
            Self::NoLimits { folder } => write!(
                f,
                "No limits are loaded. Write them to YAML files in {}, or set RUNTIME_ROOT to use another folder.",
                folder.display()
            ),
            Self::Mistakes { folder } => write!(
                f,
                "No limits are loaded: the configuration has mistakes; see the error above. `tidegate check {}` shows all of them.",
                folder.display()
            ),
            Self::NoneSent => f.write_str(
                "No limits are loaded: the management server has sent none that can be used. The log says more.",
            ),
            Self::NotYetLoaded => f.write_str("The configuration is not loaded yet. The log names the mistakes in it."),
        }
    }
}

/// Body of a request that the first limit of `configuration` applies to. None if there is no limit.
pub(crate) fn example(configuration: &Configuration) -> Option<String> {
    let (domain, entries) = configuration.example()?;
    let entry = |entry: &Entry| {
        format!(
            r#"{{"key":{},"value":{}}}"#,
            quoted(&entry.key),
            quoted(&entry.value)
        )
    };
    let entries: Vec<_> = entries.iter().map(entry).collect();
    Some(format!(
        r#"{{"domain":{},"descriptors":[{{"entries":[{}]}}]}}"#,
        quoted(&domain),
        entries.join(",")
    ))
}

/// `text` as JSON that can be put between single quotes in a shell.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text)
        .to_string()
        .replace('\'', "\\u0027")
}

/// The address for a client on this machine.
fn reachable(address: SocketAddr) -> String {
    if address.ip().is_unspecified() {
        format!("localhost:{}", address.port())
    } else {
        address.to_string()
    }
}
