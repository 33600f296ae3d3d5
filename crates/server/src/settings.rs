//! Settings: the only reader of the environment.
//!
//! One table (settings/table.rs) has a row for each variable. `read` turns texts into values, and a file for each subject turns
//! values into settings. All mistakes are reported together, and no secret is printed.

mod demo;
mod files;
mod limiter;
mod listen;
mod log;
mod memcache;
mod metrics;
mod problem;
mod program;
mod read;
mod redis;
mod show;
mod table;
mod traces;
mod value;
mod workflows;
mod xds;

use std::collections::HashMap;
use std::num::NonZero;
use std::path::PathBuf;
use std::time::Duration;

use tidegate_ratelimit::MemoryBounds;

pub use crate::net::dial::Peer;
pub use crate::tls::{Clients, NamedFile, Pair, PeerTls, PortTls, StoreFiles, StoreTls};
pub use files::{DotFiles, Files, FirstLoad, MissingRoot, Scope};
pub use listen::{ConnectionAge, Endpoint, GrpcEndpoint};
pub use log::{Log, LogFormat};
pub use memcache::{Memcache, Source as MemcacheSource, Srv};
pub use metrics::{
    Choice, Dialect, MappedKind, Mapping, Metrics, Mogrifier, Observer, Pattern, ResponseTime,
    Rule, Statsd, Template, Transport,
};
pub use problem::{Problem, SettingsError};
pub use program::Program;
pub use redis::{HealthCheck, Redis, RedisServer, SettingsOrigin};
pub use show::{effective, markdown};
pub use traces::{Collector, TraceProtocol, Traces};
pub(crate) use value::go_boolean;
pub use workflows::{TokensFile, Workflows};
pub use xds::{Retries, Xds};

use read::{Values, environment};
use table::variables;

const MAX_CONNECTIONS: &str = "TIDEGATE_MAX_CONNECTIONS";

/// Everything that the server is told at start.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The HTTP port.
    pub http: Endpoint,
    /// The debug port.
    pub debug: Endpoint,
    /// The gRPC port or socket.
    pub grpc: GrpcEndpoint,
    /// TLS on that port or socket. None: it speaks plaintext.
    pub grpc_tls: Option<PortTls>,
    /// How long a gRPC connection may live.
    pub connection_age: ConnectionAge,
    /// What is logged, and in which form.
    pub log: Log,
    /// Where files with the configuration are, and how configuration is read.
    pub files: Files,
    /// Serve the limits of the demo, from neither files nor a management server.
    pub demo: bool,
    /// The management server that the configuration comes from. None: it comes from files.
    pub xds: Option<Xds>,
    /// How metrics are exported.
    pub metrics: Metrics,
    /// Which calls are traced, and where traces go. None: none are.
    pub traces: Option<Traces>,
    /// How to count and answer.
    pub limiter: tidegate_ratelimit::Options,
    /// The names of the three response headers: limit, remaining, reset.
    pub header_names: [String; 3],
    /// The Redis of the counters. None: they are in memcached or in memory.
    pub redis: Option<Redis>,
    /// The memcached of the counters. None: they are in Redis or in memory.
    pub memcache: Option<Memcache>,
    /// What connections to these, and to the Redis of workflows, are encrypted with: an entry for each kind that is.
    pub stores_tls: Vec<StoreTls>,
    /// The API and its workflows. None: neither is served.
    pub workflows: Option<Workflows>,
    /// The most that counters in memory may take.
    pub counters: MemoryBounds,
    /// The highest number of descriptors of a request, at least 1.
    pub max_descriptors: usize,
    /// The highest number of connections to each port for many clients.
    pub max_connections: usize,
    /// Whether that was asked for, or is the default.
    pub max_connections_given: bool,
    /// Threads that serve calls, at least 1.
    pub cores: usize,
    /// The longest time that a call waits for the store.
    pub call_timeout: Duration,
    /// How the server stops.
    pub drain: Drain,
    /// Where the service manager listens, if one does.
    pub notify: Option<PathBuf>,
    /// Whether the server is unhealthy while no domain is configured.
    pub health_needs_domain: bool,
    /// What an operator should know, a sentence each: settings without effect, and names that look misspelt.
    pub warnings: Vec<String>,
}

/// How the server stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Drain {
    /// How long connections are still accepted while health says NOT_SERVING.
    pub delay: Duration,
    /// How long calls in flight may take after that.
    pub timeout: Duration,
}

impl Settings {
    /// Reads the process's environment.
    ///
    /// # Errors
    /// Every mistake in it.
    pub fn from_environment() -> Result<Self, SettingsError> {
        Self::parse_as(Program::started(), environment())
    }

    /// As [`Settings::parse`], with the defaults of `program` and what else differs there.
    ///
    /// # Errors
    /// Every mistake.
    pub fn parse_as(
        program: Program,
        mut given: HashMap<String, String>,
    ) -> Result<Self, SettingsError> {
        program.complete(&mut given);
        let mut settings = Self::parse(&given)?;
        settings.files.missing_root = program.missing_root();
        Ok(settings)
    }

    /// Reads settings from pairs of name and value. Other names are ignored, but for a warning when they look misspelt.
    ///
    /// # Errors
    /// Every mistake.
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
        // Workflows are in Redis also when counters are not.
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
            xds: xds::build(values),
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
            notify: Some(values.text("NOTIFY_SOCKET"))
                .filter(|path| !path.is_empty())
                .map(PathBuf::from),
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
