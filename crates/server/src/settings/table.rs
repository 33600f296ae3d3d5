//! Every variable, one row each.

use super::value::Kind;
use super::value::Kind::{Boolean, Choice, Duration, Float, Integer, List, Map, Path, Retention, Secret, Text, Url};

/// One variable.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Variable {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    /// Read when the variable is not set; empty when there is none.
    pub(crate) default: &'static str,
    pub(crate) doc: &'static str,
    pub(crate) support: Support,
}

/// Whether this version does what a variable asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Support {
    /// Yes.
    Full,
    /// Any other value than this stops the start, and this is why.
    Refused { but: &'static str, why: &'static str },
    /// The server starts, and logs that the value has no effect, and this is why.
    Warned { why: &'static str },
    /// Belongs to something this version lacks: its syntax is checked, and that is all.
    Unused,
}

/// Rows under one heading.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Section {
    pub(crate) title: &'static str,
    pub(crate) rows: &'static [Variable],
}

/// Every variable, in the order of the documentation.
pub(crate) fn variables() -> impl Iterator<Item = &'static Variable> {
    SECTIONS.iter().flat_map(|section| section.rows)
}

const fn row(name: &'static str, kind: Kind, default: &'static str, doc: &'static str) -> Variable {
    Variable { name, kind, default, doc, support: Support::Full }
}

impl Variable {
    const fn refused(self, but: &'static str, why: &'static str) -> Self {
        Self { support: Support::Refused { but, why }, ..self }
    }
    const fn warned(self, why: &'static str) -> Self {
        Self { support: Support::Warned { why }, ..self }
    }
    const fn unused(self) -> Self {
        Self { support: Support::Unused, ..self }
    }
}

const NO_TLS: &str = "this version does not speak TLS";
const NO_STATSD: &str = "this version exports metrics to Prometheus only";
const NO_XDS: &str = "this version reads its configuration from files only";
const NO_MEMCACHE: &str = "this version counts in memory or in Redis";
const LEVELS: Kind = Choice(&["panic", "fatal", "error", "warn", "warning", "info", "debug", "trace"]);
const REDIS_TYPES: Kind = Choice(&["single", "cluster", "sentinel"]);
const SOCKETS: Kind = Choice(&["", "tcp", "unix"]);
const ON_EMPTY: &str = "connections are shared, so there is nothing to create or refuse; unset it";

pub(crate) const SECTIONS: &[Section] = &[
    Section { title: "Tidegate", rows: TIDEGATE },
    Section { title: "Workflows", rows: WORKFLOWS },
    Section { title: "Command line", rows: COMMAND_LINE },
    Section { title: "Listeners and gRPC", rows: LISTENERS },
    Section { title: "Logging", rows: LOGGING },
    Section { title: "Configuration", rows: CONFIGURATION },
    Section { title: "Metrics", rows: METRICS },
    Section { title: "Counting", rows: COUNTING },
    Section { title: "Answers, modes and health", rows: ANSWERS },
    Section { title: "Redis", rows: REDIS },
    Section { title: "Second Redis, for limits per second", rows: REDIS_PER_SECOND },
    Section { title: "Memcached", rows: MEMCACHE },
    Section { title: "Tracing", rows: TRACING },
];

#[rustfmt::skip] // one row a line, so that the table reads as one
const TIDEGATE: &[Variable] = &[
    row("TIDEGATE_CORES", Integer("cores"), "0", "Threads that serve calls, each with its own connections. 0 is one per available core."),
    row("TIDEGATE_CALL_TIMEOUT", Duration, "1s", "Longest a call waits for the store. A shorter deadline of the client, or REDIS_TIMEOUT, goes first."),
    row("TIDEGATE_REDIS_AUTH_FILE", Path, "", "File with what REDIS_AUTH would hold, read again at every connect: for passwords and tokens that change. Goes before REDIS_AUTH."),
    row("TIDEGATE_REDIS_GROUPING", Choice(&["node", "slot", "key"]), "node", "For measurements: which keys of a call travel together. Others than node cost round trips."),
    row("TIDEGATE_MAX_KEYS", Integer("keys"), "10000000", "Most counters kept in memory when there is no Redis."),
    row("TIDEGATE_MAX_METRIC_KEYS", Integer("names"), "100000", "Most names of limits in metrics; what comes after is counted under `_overflow`."),
    row("TIDEGATE_DRAIN_DELAY", Duration, "0s", "After a signal, how long connections are still accepted while health says NOT_SERVING."),
    row("TIDEGATE_DRAIN_TIMEOUT", Duration, "10s", "After that delay, how long calls in flight may take to finish."),
];

#[rustfmt::skip] // as above
const WORKFLOWS: &[Variable] = &[
    row("TIDEGATE_HTTP_ADDR", Text, "127.0.0.1:7070", "Address and port of the HTTP API under `/v1`. Port 0 lets the system choose. Set but empty: no API and no workflows."),
    row("TIDEGATE_DATA_DIR", Path, "./tidegate-data", "Folder of the workflows when there is no Redis; made when it is not there. One server at a time."),
    row("TIDEGATE_PARTITIONS", Integer("partitions"), "16", "Parts of a new store of workflows, a power of two from 1 to 256: the most nodes of a cluster that share the work. A store keeps what it was made with."),
    row("TIDEGATE_RETENTION", Retention, "succeeded=7d,failed=30d", "How long workflows are kept after their end unless they say so themselves; cancelled ones as failed ones. One time span holds for all; `forever` keeps them."),
    row("TIDEGATE_TOKENS_FILE", Path, "", "File with who may use the API, one `role name token` a line; roles are read, work and admin. Read once at start."),
    row("TIDEGATE_ALLOW_ANONYMOUS", Boolean, "false", "Serve the API without tokens on addresses that other machines reach: everybody there may do everything."),
    row("TIDEGATE_MAX_BODY", Integer("bytes"), "8388608", "Largest body of a request to the API."),
    row("TIDEGATE_WORKFLOW_MEMORY", Integer("bytes"), "268435456", "Memory for the states of workflows that were used last."),
];

#[rustfmt::skip] // as above
const COMMAND_LINE: &[Variable] = &[
    row("TIDEGATE_SERVER", Text, tidegate_cli::DEFAULT_SERVER, "Server that commands such as `tidegate workflow list` ask. `--server` goes before."),
    row("TIDEGATE_TOKEN", Secret, "", "Token that these commands show to the server. `--token-file` goes before."),
    row("NO_COLOR", Text, "", "Set to anything: no colours in a terminal."),
];

#[rustfmt::skip] // as above
const LISTENERS: &[Variable] = &[
    row("HOST", Text, "0.0.0.0", "Address of the HTTP port."),
    row("PORT", Integer("port"), "8080", "HTTP port: `/json` and `/healthcheck`. 0 lets the system choose."),
    row("DEBUG_HOST", Text, "0.0.0.0", "Address of the debug port."),
    row("DEBUG_PORT", Integer("port"), "6070", "Debug port: `/rlconfig`, `/stats`, `/metrics`."),
    row("GRPC_UDS", Path, "", "Serve gRPC on this Unix socket instead of a port."),
    row("GRPC_HOST", Text, "0.0.0.0", "Address of the gRPC port."),
    row("GRPC_PORT", Integer("port"), "8081", "gRPC port."),
    row("GRPC_MAX_CONNECTION_AGE", Duration, "24h", "Age at which a connection is asked to go away, give or take 10 %. 0 is never."),
    row("GRPC_MAX_CONNECTION_AGE_GRACE", Duration, "1h", "How long after that its calls may still run. 0 is for ever."),
    row("GRPC_SERVER_USE_TLS", Boolean, "false", "TLS on the gRPC port.").refused("false", NO_TLS),
    row("GRPC_SERVER_TLS_CERT", Path, "", "Certificate chain of the gRPC port.").unused(),
    row("GRPC_SERVER_TLS_KEY", Path, "", "Key of the gRPC port.").unused(),
    row("GRPC_CLIENT_TLS_CACERT", Path, "", "Authority that client certificates must come from.").refused("", NO_TLS),
    row("GRPC_CLIENT_TLS_SAN", Text, "", "Name that client certificates must carry.").refused("", NO_TLS),
];

#[rustfmt::skip] // as above
const LOGGING: &[Variable] = &[
    row("LOG_LEVEL", LEVELS, "WARN", "Least severe level that is logged, to standard error."),
    row("LOG_FORMAT", Text, "text", "`json` writes one object a line with `@timestamp`, `@message` and `level`."),
];

#[rustfmt::skip] // as above
const CONFIGURATION: &[Variable] = &[
    row("CONFIG_TYPE", Choice(&["FILE", "GRPC_XDS_SOTW"]), "FILE", "Where the configuration comes from.").refused("FILE", NO_XDS),
    row("FORCE_START_WITHOUT_INITIAL_CONFIG", Boolean, "false", "Open the ports before the configuration is loaded."),
    row("RUNTIME_ROOT", Path, "/srv/runtime_data/current", "Folder, or symbolic link to one, that the next two are in. When it is not set and the default does not exist, a built-in sample is served."),
    row("RUNTIME_SUBDIRECTORY", Path, "", "Folder under RUNTIME_ROOT. Empty is RUNTIME_ROOT itself."),
    row("RUNTIME_APPDIRECTORY", Path, "config", "Folder with the configuration files under RUNTIME_SUBDIRECTORY."),
    row("RUNTIME_IGNOREDOTFILES", Boolean, "false", "Skip files and folders whose name starts with a dot. Those that start with two are always skipped."),
    row("RUNTIME_WATCH_ROOT", Boolean, "true", "Read all of RUNTIME_SUBDIRECTORY and use files whose path starts with RUNTIME_APPDIRECTORY; otherwise read RUNTIME_APPDIRECTORY alone. It decides how files are named in messages (`config.basic.yaml` or `basic.yaml`); both are watched."),
    row("MERGE_DOMAIN_CONFIG", Boolean, "false", "Allow several files for one domain."),
    row("CONFIG_GRPC_XDS_NODE_ID", Text, "default", "Node id for xDS.").unused(),
    row("CONFIG_GRPC_XDS_NODE_METADATA", Text, "", "Node metadata for xDS.").unused(),
    row("CONFIG_GRPC_XDS_SERVER_URL", Text, "localhost:18000", "Management server.").unused(),
    row("CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL", Duration, "3s", "Wait between connects to it.").unused(),
    row("CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS", Map, "", "Metadata sent to it.").unused(),
    row("CONFIG_GRPC_XDS_SERVER_USE_TLS", Boolean, "false", "TLS to it.").unused(),
    row("CONFIG_GRPC_XDS_CLIENT_TLS_CERT", Path, "", "Client certificate for it.").unused(),
    row("CONFIG_GRPC_XDS_CLIENT_TLS_KEY", Path, "", "Key of that certificate, PEM."),
    row("CONFIG_GRPC_XDS_SERVER_TLS_CACERT", Path, "", "Authority of its certificate.").unused(),
    row("CONFIG_GRPC_XDS_SERVER_TLS_SAN", Text, "", "Name its certificate must carry.").unused(),
    row("XDS_CLIENT_BACKOFF_INITIAL_INTERVAL", Duration, "10s", "First wait after a lost stream.").unused(),
    row("XDS_CLIENT_BACKOFF_MAX_INTERVAL", Duration, "60s", "Longest wait.").unused(),
    row("XDS_CLIENT_BACKOFF_RANDOM_FACTOR", Float, "0.5", "Factor of the wait.").unused(),
    row("XDS_CLIENT_BACKOFF_JITTER", Boolean, "true", "Vary the wait.").unused(),
    row("XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES", Integer("bytes"), "0", "Largest message taken from it.").unused(),
];

#[rustfmt::skip] // as above
const METRICS: &[Variable] = &[
    row("USE_PROMETHEUS", Boolean, "false", "Open a port for Prometheus. The debug port serves the same metrics without it."),
    row("PROMETHEUS_ADDR", Text, ":9090", "Address and port for Prometheus."),
    row("PROMETHEUS_PATH", Text, "/metrics", "Path for Prometheus."),
    row("PROMETHEUS_MAPPER_YAML", Path, "", "Own mapping of names to labels; the built-in mapping is always used.").warned("the built-in mapping is always used"),
    row("PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS", Boolean, "false", "Observe response times in milliseconds, under the same name and bounds."),
    row("EXTRA_TAGS", Map, "", "Labels on every metric."),
    row("DISABLE_STATS", Boolean, "false", "Do not open the port for Prometheus."),
    row("USE_STATSD", Boolean, "false", "Send metrics to statsd.").warned(NO_STATSD),
    row("STATSD_HOST", Text, "localhost", "Host of statsd.").unused(),
    row("STATSD_PORT", Integer("port"), "8125", "Port of statsd.").unused(),
    row("STATSD_PROTOCOL", Text, "tcp", "Protocol of statsd.").unused(),
    row("STATS_FLUSH_INTERVAL", Duration, "10s", "Wait between two sends to statsd.").unused(),
    row("USE_DOG_STATSD", Boolean, "false", "Send metrics to DogStatsD.").warned(NO_STATSD),
    row("USE_DOG_STATSD_MOGRIFIERS", List, "", "Names of mogrifiers.").unused(),
];

#[rustfmt::skip] // as above
const COUNTING: &[Variable] = &[
    row("BACKEND_TYPE", Choice(&["redis", "", "memcache"]), "redis", "Kind of store. Without REDIS_URL, counters are kept in memory.").refused("redis", NO_MEMCACHE),
    row("EXPIRATION_JITTER_MAX_SECONDS", Integer("seconds"), "300", "Upper bound, exclusive, of what is added to the expiry of a counter at random. 0 adds nothing."),
    row("LOCAL_CACHE_SIZE_IN_BYTES", Integer("bytes"), "0", "Size of the cache of exhausted limits, which saves asking Redis. 0 is off."),
    row("NEAR_LIMIT_RATIO", Float, "0.8", "Share of a limit above which hits count as near it."),
    row("CACHE_KEY_PREFIX", Text, "", "Put before every counter key."),
    row("STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT", Boolean, "false", "When one limit refuses a call, do not charge its others."),
];

#[rustfmt::skip] // as above
const ANSWERS: &[Variable] = &[
    row("LIMIT_RESPONSE_HEADERS_ENABLED", Boolean, "false", "Answer with headers that tell the limit."),
    row("LIMIT_LIMIT_HEADER", Text, "RateLimit-Limit", "Name of the header with the limit."),
    row("LIMIT_REMAINING_HEADER", Text, "RateLimit-Remaining", "Name of the header with what is left."),
    row("LIMIT_RESET_HEADER", Text, "RateLimit-Reset", "Name of the header with the seconds to the end of the window."),
    row("RESPONSE_DYNAMIC_METADATA", Boolean, "false", "Answer with dynamic metadata."),
    row("SHADOW_MODE", Boolean, "false", "Count, and let every call pass."),
    row("QUOTA_MODE", Boolean, "false", "Refuse only calls whose every limit is exceeded."),
    row("HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED", Boolean, "false", "Be healthy only with at least one domain."),
];

#[rustfmt::skip] // as above
const REDIS: &[Variable] = &[
    row("REDIS_URL", Url, "", "`host:port`, `redis://[user:password@]host:port[/database]` or the path of a socket. Not set: counters are kept in memory."),
    row("REDIS_SOCKET_TYPE", SOCKETS, "", "Not set: told from REDIS_URL."),
    row("REDIS_TYPE", REDIS_TYPES, "single", "Kind of deployment. REDIS_URL of a cluster is `host:port,host:port,..`; with sentinels it is `master name,host:port,..`."),
    row("REDIS_AUTH", Secret, "", "`password` or `user:password`."),
    row("REDIS_POOL_SIZE", Integer("connections"), "10", "Most connections to Redis, shared out among the cores, at least one each. Not set: at most 4 per core."),
    row("REDIS_TIMEOUT", Duration, "10s", "Longest wait for a connection, and for an answer. Not set: 1s for a connection."),
    row("REDIS_HEALTH_CHECK_ACTIVE_CONNECTION", Boolean, "false", "Be unhealthy while Redis does not answer."),
    row("REDIS_STARTUP_INITIAL_INTERVAL", Duration, "1s", "First wait between two tries at start."),
    row("REDIS_STARTUP_MAX_INTERVAL", Duration, "30s", "Longest wait between two tries at start."),
    row("REDIS_STARTUP_MAX_ELAPSED_TIME", Duration, "0", "Give up the start after this long. 0 is never."),
    row("REDIS_POOL_ON_EMPTY_BEHAVIOR", Choice(&["WAIT", "CREATE", "ERROR"]), "WAIT", "What to do when every connection is busy.").refused("WAIT", ON_EMPTY),
    row("REDIS_PIPELINE_WINDOW", Duration, "0", "Commands of concurrent calls share writes without waiting.").unused(),
    row("REDIS_PIPELINE_LIMIT", Integer("commands"), "0", "As above.").unused(),
    row("REDIS_CLUSTER_PIPELINE_PARALLELISM", Integer("nodes"), "1", "Nodes of a cluster that one call talks to at a time. 1: one after the other, until one fails. 0: REDIS_POOL_SIZE, which is also the most."),
    row("REDIS_SENTINEL_AUTH", Secret, "", "`password` or `user:password` for the sentinels."),
    row("REDIS_TLS", Boolean, "false", "TLS to Redis and to sentinels. Also on for rediss:// URLs."),
    row("REDIS_TLS_CLIENT_CERT", Path, "", "Client certificate, PEM; used with its key only."),
    row("REDIS_TLS_CLIENT_KEY", Path, "", "Key of that certificate, PEM."),
    row("REDIS_TLS_CACERT", Path, "", "Authorities trusted besides the system's, PEM."),
    row("REDIS_TLS_SKIP_HOSTNAME_VERIFICATION", Boolean, "false", "Accept a certificate of another name; its chain is checked all the same."),
];

#[rustfmt::skip] // as above
const REDIS_PER_SECOND: &[Variable] = &[
    row("REDIS_PERSECOND", Boolean, "false", "Count limits per second in another Redis."),
    row("REDIS_PERSECOND_URL", Url, "", "As REDIS_URL."),
    row("REDIS_PERSECOND_SOCKET_TYPE", SOCKETS, "", "As REDIS_SOCKET_TYPE."),
    row("REDIS_PERSECOND_TYPE", REDIS_TYPES, "single", "As REDIS_TYPE."),
    row("REDIS_PERSECOND_AUTH", Secret, "", "As REDIS_AUTH."),
    row("REDIS_PERSECOND_POOL_SIZE", Integer("connections"), "10", "As REDIS_POOL_SIZE."),
    row("REDIS_PERSECOND_TIMEOUT", Duration, "10s", "As REDIS_TIMEOUT."),
    row("REDIS_PERSECOND_POOL_ON_EMPTY_BEHAVIOR", Choice(&["WAIT", "CREATE", "ERROR"]), "WAIT", "As REDIS_POOL_ON_EMPTY_BEHAVIOR.").refused("WAIT", ON_EMPTY),
    row("REDIS_PERSECOND_PIPELINE_WINDOW", Duration, "0", "As REDIS_PIPELINE_WINDOW.").unused(),
    row("REDIS_PERSECOND_PIPELINE_LIMIT", Integer("commands"), "0", "As REDIS_PIPELINE_LIMIT.").unused(),
    row("REDIS_PERSECOND_CLUSTER_PIPELINE_PARALLELISM", Integer("nodes"), "1", "As REDIS_CLUSTER_PIPELINE_PARALLELISM."),
    row("REDIS_PERSECOND_SENTINEL_AUTH", Secret, "", "As REDIS_SENTINEL_AUTH."),
    row("REDIS_PERSECOND_TLS", Boolean, "false", "As REDIS_TLS, with the same certificates."),
];

#[rustfmt::skip] // as above
const MEMCACHE: &[Variable] = &[
    row("MEMCACHE_HOST_PORT", List, "", "Servers.").unused(),
    row("MEMCACHE_SRV", Text, "", "Name to find servers by.").unused(),
    row("MEMCACHE_SRV_REFRESH", Duration, "0", "Wait between two look-ups.").unused(),
    row("MEMCACHE_MAX_IDLE_CONNS", Integer("connections"), "2", "Idle connections kept per server.").unused(),
    row("MEMCACHE_TLS", Boolean, "false", "TLS to the servers.").unused(),
    row("MEMCACHE_TLS_CLIENT_CERT", Path, "", "Client certificate.").unused(),
    row("MEMCACHE_TLS_CLIENT_KEY", Path, "", "Key of that certificate, PEM."),
    row("MEMCACHE_TLS_CACERT", Path, "", "Authority of their certificates.").unused(),
    row("MEMCACHE_TLS_SKIP_HOSTNAME_VERIFICATION", Boolean, "false", "Accept a certificate of another name.").unused(),
];

#[rustfmt::skip] // as above
const TRACING: &[Variable] = &[
    row("TRACING_ENABLED", Boolean, "false", "Export traces.").warned("this version exports no traces"),
    row("TRACING_SERVICE_NAME", Text, "RateLimit", "Name of the service in traces.").unused(),
    row("TRACING_SERVICE_NAMESPACE", Text, "", "Namespace of the service in traces.").unused(),
    row("TRACING_SERVICE_INSTANCE_ID", Text, "", "Instance of the service in traces.").unused(),
    row("TRACING_EXPORTER_PROTOCOL", Choice(&["http", "grpc"]), "http", "How traces are exported.").unused(),
    row("TRACING_SAMPLING_RATE", Float, "1", "Share of calls that is traced.").unused(),
];
