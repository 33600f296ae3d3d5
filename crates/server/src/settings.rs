//! Settings: the only reader of the environment.
//!
//! One table (settings/table.rs) has a row for each variable. `read` parses texts into values, and
//! a file for each subject builds settings from the values. All mistakes are reported together, and
//! no secret is printed.

mod files;
mod limiter;
mod listen;
mod log;
mod memcache;
mod metrics;
mod program;
pub(crate) mod read;
mod redis;
pub(crate) mod table;
mod traces;
mod workflows;

use std::collections::HashMap;
use std::num::NonZero;
use std::path::PathBuf;
use std::time::Duration;

use tidegate_ratelimit::MemoryBounds;

pub use crate::tls::{
    CertificateAndKey, ClientAuth, NamedFile, PeerTls, PortTls, StoreTls, StoreTlsFiles,
};
pub(crate) use files::xds::host_and_port;
pub use files::xds::{GrpcPeer, Retries, Xds};
pub use files::{DotFiles, FileScope, Files, FirstLoad, MissingRoot};
pub use listen::{ConnectionAge, Endpoint, GrpcEndpoint};
pub use log::{LogFormat, LogSettings};
pub use memcache::{Memcache, Source as MemcacheSource, Srv};
pub use metrics::{
    Dialect, GlobChoice, MappedKind, Mapping, MetricsSettings, Mogrifier, Observer, Pattern,
    ResponseTime, Rule, Statsd, Template, Transport,
};
pub use program::Program;
pub use redis::{HealthCheck, Redis, RedisServer, SettingsOrigin};
pub use table::describe::describe;
pub use table::problem::{Problem, SettingsError};
pub use table::show::{effective, given, markdown};
pub(crate) use table::value::go_boolean;
pub use traces::{CollectorSettings, TraceProtocol, TraceSettings};
pub use workflows::{TokensFile, WorkflowSettings};

use read::{Values, environment};
use table::variables;

const MAX_CONNECTIONS: &str = "TIDEGATE_MAX_CONNECTIONS";

/// Settings of the server.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The HTTP port.
    pub http: Endpoint,
    /// The debug port.
    pub debug: Endpoint,
    /// The gRPC port or socket.
    pub grpc: GrpcEndpoint,
    /// TLS of that port or socket. None for plaintext.
    pub grpc_tls: Option<PortTls>,
    /// Maximum age of a gRPC connection.
    pub connection_age: ConnectionAge,
    /// Level and format of the log.
    pub log: LogSettings,
    /// Location of the configuration files, and options of the loader.
    pub files: Files,
    /// Whether to use the built-in limits of the demo instead of files or a management server.
    pub demo: bool,
    /// Management server of the configuration. None if it comes from files.
    pub xds: Option<Xds>,
    /// Export of metrics.
    pub metrics: MetricsSettings,
    /// Sampling and export of traces. None if traces are off.
    pub traces: Option<TraceSettings>,
    /// Options of the rate limiter.
    pub limiter: tidegate_ratelimit::Options,
    /// Names of the three response headers: limit, remaining, reset.
    pub header_names: [String; 3],
    /// Redis for the counters. None if they are in memcached or in memory.
    pub redis: Option<Redis>,
    /// Memcached for the counters. None if they are in Redis or in memory.
    pub memcache: Option<Memcache>,
    /// TLS to the servers of counters and workflows, with an entry for each kind of server that
    /// uses it.
    pub stores_tls: Vec<StoreTls>,
    /// The API and its workflows. None if neither is served.
    pub workflows: Option<WorkflowSettings>,
    /// Limits of the counters in memory.
    pub counters: MemoryBounds,
    /// Limit of descriptors in a request, at least 1.
    pub max_descriptors: usize,
    /// Limit of connections to each port that serves many clients.
    pub max_connections: usize,
    /// Whether `max_connections` was set explicitly.
    pub max_connections_given: bool,
    /// Number of threads that serve calls, at least 1.
    pub cores: usize,
    /// Timeout of a call of the store.
    pub call_timeout: Duration,
    /// Drain of the server.
    pub drain: Drain,
    /// Socket of the service manager, if there is one.
    pub notify: Option<PathBuf>,
    /// Whether the server is unhealthy while no domain is configured.
    pub health_needs_domain: bool,
    /// Warnings for the operator, a sentence each: settings without effect, and names that look
    /// misspelt.
    pub warnings: Vec<String>,
}

/// Timing of the drain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Drain {
    /// Time in which connections are still accepted while health reports NOT_SERVING.
    pub delay: Duration,
    /// Time for calls in flight after that.
    pub timeout: Duration,
}

impl Settings {
    /// Reads the environment of the process.
    ///
    /// # Errors
    /// All mistakes in it.
    pub fn from_environment() -> Result<Self, SettingsError> {
        Self::parse_as(Program::started(), environment())
    }

    /// Parses settings like [`Settings::parse`], with the defaults and the rules of `program`.
    ///
    /// # Errors
    /// All mistakes.
    pub fn parse_as(
        program: Program,
        mut given: HashMap<String, String>,
    ) -> Result<Self, SettingsError> {
        program.add_defaults(&mut given);
        let mut settings = Self::parse(&given)?;
        settings.files.missing_root = program.missing_root();
        Ok(settings)
    }

    /// Parses settings from pairs of name and value. Unknown names are ignored, with a warning for
    /// those that look misspelt.
    ///
    /// # Errors
    /// All mistakes.
    pub fn parse(given: &HashMap<String, String>) -> Result<Self, SettingsError> {
        let mut values = Values::read(given);
        let mut settings = Self::build(&mut values);
        let Values {
            mut problems,
            warnings,
            ..
        } = values;
        if problems.is_empty() {
            settings.warnings = warnings;
            return Ok(settings);
        }
        let order =
            |problem: &Problem| variables().position(|variable| variable.name == problem.variable);
        problems.sort_by_key(|problem| order(problem).unwrap_or(usize::MAX));
        Err(SettingsError { problems, warnings })
    }

    fn build(values: &mut Values) -> Self {
        let cores = cores(values);
        let memcache = memcache::build(values);
        let redis = redis::build(values, cores);
        let workflows = workflows::build(values, redis.as_ref().map(|redis| &redis.main), cores);
        // The Redis of workflows may be in use even if counters are not in Redis.
        let redis = redis.filter(|_| !memcache::is_wanted(values));
        let call_timeout = values.positive_duration("TIDEGATE_CALL_TIMEOUT");
        let redis = redis.map(|redis| redis.with_call_timeout(call_timeout));
        Self {
            http: listen::endpoint(values, "HOST", "PORT"),
            debug: listen::endpoint(values, "DEBUG_HOST", "DEBUG_PORT"),
            grpc: listen::grpc(values),
            grpc_tls: listen::tls::grpc(values),
            connection_age: listen::connection_age(values),
            log: log::build(values),
            files: files::build(values),
            demo: false,
            xds: files::xds::build(values),
            metrics: metrics::build(values),
            traces: traces::build(values),
            limiter: limiter::options(values),
            header_names: limiter::header_names(values),
            redis,
            memcache,
            stores_tls: std::mem::take(&mut values.stores_tls),
            workflows,
            counters: limiter::counters(values),
            max_descriptors: values.integer("TIDEGATE_MAX_DESCRIPTORS", 1..=i64::from(u32::MAX))
                as usize,
            max_connections: values.integer(MAX_CONNECTIONS, 1..=1_000_000) as usize,
            max_connections_given: values.given.contains(MAX_CONNECTIONS),
            cores,
            call_timeout,
            drain: Drain {
                delay: values.duration("TIDEGATE_DRAIN_DELAY"),
                timeout: values.duration("TIDEGATE_DRAIN_TIMEOUT"),
            },
            notify: values.filled("NOTIFY_SOCKET").map(PathBuf::from),
            health_needs_domain: values.boolean("HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED"),
            warnings: Vec::new(),
        }
    }
}

fn cores(values: &mut Values) -> usize {
    match values.integer("TIDEGATE_CORES", 0..=1024) as usize {
        0 => std::thread::available_parallelism().map_or(1, NonZero::get),
        cores => cores,
    }
}
