//! Settings: the only reader of the environment.
//!
//! One table (settings/table.rs) holds a row per variable; every mistake is reported at once; nothing secret is printed.

mod build;
mod read;
mod redis;
mod show;
mod table;
mod value;
mod workflows;

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use read::Values;
pub use redis::{HealthCheck, Redis, RedisServer};
pub use show::{effective, markdown};
use table::variables;
pub use workflows::Workflows;

/// Everything the server is told at start.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The HTTP port.
    pub http: Endpoint,
    /// The debug port.
    pub debug: Endpoint,
    /// The gRPC port or socket.
    pub grpc: GrpcEndpoint,
    /// Bounds of a gRPC connection's life.
    pub connection_age: ConnectionAge,
    /// What is logged, and how.
    pub log: Log,
    /// Where the configuration comes from.
    pub files: Files,
    /// How metrics are exported.
    pub metrics: Metrics,
    /// How to count and answer.
    pub limiter: tidegate_ratelimit::Options,
    /// Names of the three response headers: limit, remaining, reset.
    pub header_names: [String; 3],
    /// Redis; without it, counters are in memory.
    pub redis: Option<Redis>,
    /// The API and its workflows; none when they are not wanted.
    pub workflows: Option<Workflows>,
    /// Most counters in memory.
    pub max_keys: usize,
    /// Threads that serve calls, at least 1.
    pub cores: usize,
    /// Longest a call waits for the store.
    pub call_timeout: Duration,
    /// How the server stops.
    pub drain: Drain,
    /// Whether a configuration without domains is unhealthy.
    pub health_needs_domain: bool,
    /// What was asked for and has no effect, a sentence each.
    pub warnings: Vec<String>,
}

/// A host and a port to listen on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// The address.
    pub host: IpAddr,
    /// The port; 0 lets the system choose.
    pub port: u16,
}

/// Where gRPC listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GrpcEndpoint {
    /// A port.
    Tcp(Endpoint),
    /// A Unix socket.
    Unix(PathBuf),
}

/// Bounds of a gRPC connection's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionAge {
    /// When it is asked to go away; none is never.
    pub limit: Option<Duration>,
    /// How much longer its calls may run; none is for ever.
    pub grace: Option<Duration>,
}

/// What is logged, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Log {
    /// The least severe level.
    pub level: tracing::Level,
    /// The form of a line.
    pub format: LogFormat,
}

/// The form of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One object a line.
    Json,
}

/// Where configuration files are, and how they are read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Files {
    /// A folder, or a symbolic link to one.
    pub root: PathBuf,
    /// Whether the root was asked for, or is the default.
    pub root_given: bool,
    /// Under the root.
    pub subdirectory: PathBuf,
    /// Under the subdirectory.
    pub app_directory: PathBuf,
    /// What is read, and how it is named.
    pub scope: Scope,
    /// What to do with names that start with a dot.
    pub dot_files: DotFiles,
    /// What to do with a second file of the same domain.
    pub same_domain: tidegate_ratelimit::SameDomain,
    /// When the ports open.
    pub first_load: FirstLoad,
}

/// What is read, and how it is named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// The subdirectory; files are named from there, and used when the name starts with the app directory's.
    Subdirectory,
    /// The app directory; files are named from there.
    AppDirectory,
}

/// What to do with names that start with a dot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DotFiles {
    /// Read them.
    Read,
    /// Skip them.
    Skip,
}

/// When the ports open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FirstLoad {
    /// After the first load, whatever became of it.
    BeforePorts,
    /// At once.
    AfterPorts,
}

/// How metrics are exported.
#[derive(Debug, Clone, PartialEq)]
pub struct Metrics {
    /// A port of its own for Prometheus, and the path there.
    pub prometheus: Option<(Endpoint, String)>,
    /// Labels on every metric.
    pub labels: Vec<(String, String)>,
    /// The unit in which response times are observed.
    pub response_time: ResponseTime,
    /// Most names of limits.
    pub max_names: usize,
}

/// The unit in which response times are observed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResponseTime {
    /// As the metric's name says.
    Seconds,
    /// As old dashboards expect.
    Milliseconds,
}

/// How the server stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Drain {
    /// How long connections are accepted while health says NOT_SERVING.
    pub delay: Duration,
    /// How long calls in flight may take after that.
    pub timeout: Duration,
}

/// One mistake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The variable.
    pub variable: String,
    /// Its value, masked when it is secret.
    pub value: String,
    /// What is wrong with it, or what is expected.
    pub reason: String,
}

/// Every mistake in the settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettingsError {
    /// At least one, in the order of the table.
    pub problems: Vec<Problem>,
}

impl std::error::Error for SettingsError {}

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.problems.len();
        write!(f, "{count} setting{} wrong", if count == 1 { " is" } else { "s are" })?;
        for Problem { variable, value, reason } in &self.problems {
            write!(f, "\n  {variable}='{value}': {reason}")?;
        }
        Ok(())
    }
}

impl Settings {
    /// Reads the process's environment.
    ///
    /// # Errors
    /// Every mistake in it.
    pub fn from_environment() -> Result<Self, SettingsError> {
        Self::parse(&environment())
    }

    /// Reads settings from pairs of name and value. Names that are not ours are ignored.
    ///
    /// # Errors
    /// Every mistake.
    pub fn parse(given: &HashMap<String, String>) -> Result<Self, SettingsError> {
        let mut values = Values::read(given);
        let settings = build::build(&mut values);
        if values.problems.is_empty() {
            return Ok(settings);
        }
        let order = |problem: &Problem| variables().position(|variable| variable.name == problem.variable);
        values.problems.sort_by_key(|problem| order(problem).unwrap_or(usize::MAX));
        Err(SettingsError { problems: values.problems })
    }
}

/// The process's environment; text that is not Unicode has its bad bytes replaced.
pub(crate) fn environment() -> HashMap<String, String> {
    let text = |os: std::ffi::OsString| os.to_string_lossy().into_owned();
    #[expect(clippy::disallowed_methods, reason = "the one reader of the environment")]
    std::env::vars_os().map(|(name, value)| (text(name), text(value))).collect()
}
