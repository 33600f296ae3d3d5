//! The table of all variables, with a row for each.

pub(crate) mod problem;
pub(crate) mod show;
pub(crate) mod value;

use self::value::VariableKind;
use self::value::VariableKind::{
    Boolean, Bytes, Choice, Duration, Float, Headers, Integer, List, Map, Path, Retention, Secret,
    Text, Url,
};

/// One variable.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Variable {
    pub(crate) name: &'static str,
    pub(crate) kind: VariableKind,
    /// Value of an unset variable. Empty if there is none.
    pub(crate) default: &'static str,
    /// Description of an unset variable, if the default alone does not explain it.
    pub(crate) unset: Option<&'static str>,
    pub(crate) doc: &'static str,
    pub(crate) support: Support,
}

/// Support of a variable in this version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Support {
    /// The variable works.
    Full,
    /// The server refuses to start with any value except `but`, for the reason `why`.
    Refused {
        but: &'static str,
        why: &'static str,
    },
    /// The server logs that the value has no effect, for the reason `why`.
    Warned { why: &'static str },
}

/// Rows of the table under one heading.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Section {
    pub(crate) title: &'static str,
    pub(crate) rows: &'static [Variable],
}

/// All variables, in the order of the documentation.
pub(crate) fn variables() -> impl Iterator<Item = &'static Variable> {
    SECTIONS.iter().flat_map(|section| section.rows)
}

const fn row(
    name: &'static str,
    kind: VariableKind,
    default: &'static str,
    doc: &'static str,
) -> Variable {
    Variable {
        name,
        kind,
        default,
        unset: None,
        doc,
        support: Support::Full,
    }
}

impl Variable {
    const fn unset(self, unset: &'static str) -> Self {
        Self {
            unset: Some(unset),
            ..self
        }
    }
    const fn refused(self, but: &'static str, why: &'static str) -> Self {
        Self {
            support: Support::Refused { but, why },
            ..self
        }
    }
    const fn warned(self, why: &'static str) -> Self {
        Self {
            support: Support::Warned { why },
            ..self
        }
    }
}

const LEVELS: VariableKind = Choice(&[
    "panic", "fatal", "error", "warn", "warning", "info", "debug", "trace",
]);
const REDIS_TYPES: VariableKind = Choice(&["single", "cluster", "sentinel"]);
const SOCKETS: VariableKind = Choice(&["", "tcp", "unix"]);
const POOL_UNSET: &str = "4 for each core";
const TIMEOUT_UNSET: &str = "1s for a connection, 10s for an answer";
const SHARED_WRITES: &str = "concurrent calls share writes without waiting";
const OLD_LIMIT: &str =
    "it is deprecated, in envoyproxy/ratelimit as well; the size of writes is not limited";
const SHARED_LINKS: &str = "the calls of a core share one connection to each server";
const ON_EMPTY: &str = "calls share connections, so none is created or refused when all are busy";

pub(crate) const SECTIONS: &[Section] = &[
    Section {
        title: "Tidegate",
        rows: TIDEGATE,
    },
    Section {
        title: "Workflows",
        rows: WORKFLOWS,
    },
    Section {
        title: "Command line",
        rows: COMMAND_LINE,
    },
    Section {
        title: "Listeners and gRPC",
        rows: LISTENERS,
    },
    Section {
        title: "Logging",
        rows: LOGGING,
    },
    Section {
        title: "Configuration",
        rows: CONFIGURATION,
    },
    Section {
        title: "Metrics",
        rows: METRICS,
    },
    Section {
        title: "Counting",
        rows: COUNTING,
    },
    Section {
        title: "Answers, modes and health",
        rows: ANSWERS,
    },
    Section {
        title: "Redis",
        rows: REDIS,
    },
    Section {
        title: "Second Redis, for limits per second",
        rows: REDIS_PER_SECOND,
    },
    Section {
        title: "Memcached",
        rows: MEMCACHE,
    },
    Section {
        title: "Tracing",
        rows: TRACING,
    },
];

#[rustfmt::skip] // one row a line, so that the table reads as one
const TIDEGATE: &[Variable] = &[
    row("TIDEGATE_CORES", Integer("cores"), "0", "Threads that serve calls, and as many that serve workflows, each with its own connections to Redis. 0: one per available core. Lower it to leave cores to other programs."),
    row("TIDEGATE_CALL_TIMEOUT", Duration, "1s", "The longest time that a call waits for the store. A shorter deadline of the client takes precedence, and so does a shorter REDIS_TIMEOUT. A single Redis that is silent is waited for as long, at least a second; then calls are refused at once."),
    row("TIDEGATE_REDIS_AUTH_FILE", Path, "", "A file with a value for REDIS_AUTH, read again at every connect. Use it for passwords and tokens that change. Takes precedence over REDIS_AUTH."),
    row("TIDEGATE_REDIS_TLS_SERVER_NAME", Text, "", "The name that certificates of Redis and of its sentinels must have, at every address. Not set: the host that is dialled. Set it where a cluster announces addresses and all its certificates have one name ([tls.md](tls.md)). Holds for REDIS_URL and REDIS_PERSECOND_URL, and has no effect without TLS."),
    row("TIDEGATE_REDIS_ADDRESS_MAP", List, "", "Where servers are dialled whose announced addresses cannot be reached or are not in their certificates: `announced=dialled,..`, each `host:port` or a host alone, which keeps the port. Holds for addresses that nodes of a cluster and sentinels name, not for those in REDIS_URL and REDIS_PERSECOND_URL."),
    row("TIDEGATE_COUNTER_MEMORY", Bytes, "128M", "Memory for counters without Redis. 1M or more. A counter with a key of 40 bytes takes about 90 bytes, so 128M hold about 1,400,000: needed are as many as all limits together have different values in one window. When it is full, some counters are dropped and begin again from zero (docs/limits.md says which), and a warning is logged."),
    row("TIDEGATE_MAX_KEYS", Integer("keys"), "0", "The highest number of counters without Redis. 0: as many as TIDEGATE_COUNTER_MEMORY has room for."),
    row("TIDEGATE_MAX_METRIC_KEYS", Integer("names"), "100000", "The highest number of names of limits in metrics. Further names, and unknown domains beyond this number or 1,000, are counted together under `_overflow`. Limits of the configuration always have their names, and count. 0: no other names."),
    row("TIDEGATE_MAX_DESCRIPTORS", Integer("descriptors"), "1000", "The highest number of descriptors of a request, 1 or more, each with 16 entries on average. A larger request is refused with INVALID_ARGUMENT before it is decoded. Envoy sends a few."),
    row("TIDEGATE_MAX_CONNECTIONS", Integer("connections"), "10000", "The highest number of connections to each of the gRPC port, the HTTP port and the API, from 1 to 1,000,000. 10,000 need about 41,000 open files: gRPC gets half of what the hard limit (`ulimit -H -n`) leaves, the HTTP port and the API a quarter each. Where fewer may be open, it is lower, and a warning says so. When it is reached, connections without a request are closed for new ones."),
    row("TIDEGATE_DRAIN_DELAY", Duration, "10s", "After a signal to stop: how long calls and new connections are still taken while health says NOT_SERVING. It must be longer than your load balancers need to notice ([drain.md](drain.md)). A second signal ends it, and after SIGINT (Ctrl-C) it ends as soon as no client is connected to the gRPC and the HTTP port."),
    row("NOTIFY_SOCKET", Path, "", "Set by systemd for a unit of `Type=notify`, and by no other program: the socket at which the server says that it serves, loads its configuration again, or is about to stop."),
    row("TIDEGATE_DRAIN_TIMEOUT", Duration, "10s", "After that delay: how long calls in flight may take. Connections that are still open then are closed."),
];

#[rustfmt::skip] // as above
const WORKFLOWS: &[Variable] = &[
    row("TIDEGATE_HTTP_ADDR", Text, "127.0.0.1:7070", "Address and port of the HTTP API under `/v1`. Port 0 lets the system choose. An empty value turns the API and workflows off. When the default is taken, that is a warning, and workflows are off until it is free. An address given here is shared while an old process drains, as the other ports are, if workflows are in Redis; when it is taken, it ends the start."),
    row("TIDEGATE_STORE_URL", Url, "", "The Redis of the workflows, written as REDIS_URL, or `file` for a file in TIDEGATE_DATA_DIR, or `memory` for this process, which loses them when it ends ([testing.md](testing.md)). Set it to keep counters in a Redis that may lose them, and workflows in one that keeps them.").unset("the Redis of REDIS_URL, else `file`"),
    row("TIDEGATE_TEST_CLOCK", Boolean, "false", "A clock that tests move, for workflows and counters ([testing.md](testing.md)). A mistake unless both are in memory and TIDEGATE_HTTP_ADDR is an address of this machine alone."),
    row("TIDEGATE_STORE_TYPE", REDIS_TYPES, "single", "As REDIS_TYPE, for TIDEGATE_STORE_URL. This variable and those up to TIDEGATE_STORE_TIMEOUT are mistakes without a Redis in TIDEGATE_STORE_URL: then those of REDIS_URL count."),
    row("TIDEGATE_STORE_AUTH", Secret, "", "As REDIS_AUTH."),
    row("TIDEGATE_STORE_AUTH_FILE", Path, "", "As TIDEGATE_REDIS_AUTH_FILE."),
    row("TIDEGATE_STORE_SENTINEL_AUTH", Secret, "", "As REDIS_SENTINEL_AUTH."),
    row("TIDEGATE_STORE_TLS", Boolean, "false", "As REDIS_TLS, with the same certificates."),
    row("TIDEGATE_STORE_TLS_SERVER_NAME", Text, "", "As TIDEGATE_REDIS_TLS_SERVER_NAME."),
    row("TIDEGATE_STORE_ADDRESS_MAP", List, "", "As TIDEGATE_REDIS_ADDRESS_MAP."),
    row("TIDEGATE_STORE_TIMEOUT", Duration, "10s", "As REDIS_TIMEOUT.").unset(TIMEOUT_UNSET),
    row("TIDEGATE_STORE_PREFIX", Text, "tg:", "What the names of all keys of workflows in Redis begin with: 1 to 64 ASCII letters, digits and `: . _ - /`. Give each environment its own when several share one Redis. A store keeps its keys: with another prefix, it is not found."),
    row("TIDEGATE_DATA_DIR", Path, "./tidegate-data", "Folder for workflows when they are in a file. The first call of the API creates it. Only one server may use it at a time; while it cannot be used, limits are served and calls of the API are answered with 503."),
    row("TIDEGATE_PARTITIONS", Integer("partitions"), "16", "Number of partitions of a new store of workflows: a power of two from 1 to 256. At most this many nodes of a cluster share the work, and at most this many threads of a server. An existing store keeps its number.")
        .unset("`16` in Redis, `4` in a file"),
    row("TIDEGATE_ACKNOWLEDGED_BY", Text, "primary", "When a call of the API that writes to Redis is acknowledged. `primary`: when the primary has it; a failover may lose it. `replicas:N`, N from 1 to 16: when N replicas have it, too. When fewer answer in time, the call is answered with 503: it may have taken place, and can be repeated with the same key or lease. A call takes longer by a round trip between primary and replica. Has no effect on a file."),
    row("TIDEGATE_RETENTION", Retention, "succeeded=7d,failed=30d", "How long ended workflows are kept, unless they say so themselves. Cancelled workflows count as failed. One time span holds for both; `forever` keeps them."),
    row("TIDEGATE_TOKENS_FILE", Path, "", "File with the tokens of the API: one `role name token` a line. Roles are `read`, `work` and `admin`. Read again when it changes. Needed on addresses that other machines can reach."),
    row("TIDEGATE_TLS_CERT", Path, "", "File with the certificate chain of the API, PEM, its own certificate first. With it and TIDEGATE_TLS_KEY, the API speaks `https` only. These files are read again within 2 s when they change."),
    row("TIDEGATE_TLS_KEY", Path, "", "File with the key of that certificate, PEM, without a passphrase."),
    row("TIDEGATE_TLS_CLIENT_CACERT", Path, "", "File with authorities, PEM. When set, clients of the API must show a certificate that one of them, or an authority of the system, has issued. The commands of `tidegate` show none."),
    row("TIDEGATE_ALLOW_ANONYMOUS", Boolean, "false", "Serve the API without tokens on addresses that other machines can reach. Everybody who can reach the port may then do everything."),
    row("TIDEGATE_MAX_BODY", Bytes, "8M", "The largest body of a request to the API: from 1k to 1G."),
    row("TIDEGATE_MAX_EVENT_STREAMS", Integer("streams"), "1024", "The highest number of open event streams of the API, from 4 to 1,000,000. One token, or one address when no tokens are needed, has at most a quarter of them."),
    row("TIDEGATE_WORKFLOW_MEMORY", Bytes, "256M", "Memory for the states of recently used workflows, 1M or more. Raise it when many large workflows run at the same time."),
];

#[rustfmt::skip] // as above
const COMMAND_LINE: &[Variable] = &[
    row("TIDEGATE_SERVER", Url, tidegate_cli::DEFAULT_SERVER, "Address of the server for commands such as `tidegate workflow list`. The option `--server` takes precedence."),
    row("TIDEGATE_TOKEN", Secret, "", "Token for these commands. The option `--token-file` takes precedence."),
    row("TIDEGATE_CACERT", Path, "", "File with certificate authorities that these commands trust in addition to the system's, PEM. The option `--cacert` takes precedence."),
    row("NO_COLOR", Text, "", "Any value turns colours in the terminal off."),
];

#[rustfmt::skip] // as above
const LISTENERS: &[Variable] = &[
    row("HOST", Text, "0.0.0.0", "Address of the HTTP port."),
    row("PORT", Integer("port"), "8080", "HTTP port, with `/json` and `/healthcheck`. 0 lets the system choose."),
    row("DEBUG_HOST", Text, "0.0.0.0", "Address of the debug port."),
    row("DEBUG_PORT", Integer("port"), "6070", "Debug port, with `/rlconfig`, `/stats` and `/metrics`. 0 lets the system choose. When it is taken, that is a warning, and the server goes on without these pages."),
    row("GRPC_UDS", Path, "", "Path of a Unix socket. When set, gRPC is served there instead of on a port. A lock beside it, in `PATH.lock`, keeps two servers from using it."),
    row("GRPC_HOST", Text, "0.0.0.0", "Address of the gRPC port."),
    row("GRPC_PORT", Integer("port"), "8081", "gRPC port. 0 lets the system choose."),
    row("GRPC_MAX_CONNECTION_AGE", Duration, "24h", "Age at which a connection gets GOAWAY, varied by 10 %. 0: never. Lower it to spread clients over new servers sooner."),
    row("GRPC_MAX_CONNECTION_AGE_GRACE", Duration, "1h", "How long calls may still run after GOAWAY. 0: without a bound."),
    row("GRPC_SERVER_USE_TLS", Boolean, "false", "Use TLS on the gRPC port or socket, with HTTP/2 (ALPN `h2`), versions 1.2 and 1.3. Needs a certificate and its key."),
    row("GRPC_SERVER_TLS_CERT", Path, "", "File with the certificate chain of the gRPC port, PEM, its own certificate first. It and the files below are read again within 2 s when they change; files that do not fit together are a warning, and the old ones stay. They may be in different folders."),
    row("GRPC_SERVER_TLS_KEY", Path, "", "File with the key of that certificate, PEM, without a passphrase."),
    row("GRPC_CLIENT_TLS_CACERT", Path, "", "File with authorities, PEM. When set, clients must show a certificate that one of them, or an authority of the system, has issued."),
    row("GRPC_CLIENT_TLS_SAN", Text, "", "DNS name (or IP address) that client certificates must contain as a subject alternative name. Needs GRPC_CLIENT_TLS_CACERT."),
];

#[rustfmt::skip] // as above
const LOGGING: &[Variable] = &[
    row("LOG_LEVEL", LEVELS, "WARN", "The least severe level that is logged. Logs go to standard error. `debug` includes a line for each decision, with the keys of its descriptors and without their values; `trace` adds a line for each frame of HTTP/2."),
    row("LOG_FORMAT", Text, "text", "`json` writes one JSON object a line, with `@timestamp`, `@message` and `level`, and nothing to standard output. Every other value writes plain text. Mistakes in settings, which end the start, are plain text in any case."),
];

#[rustfmt::skip] // as above
const CONFIGURATION: &[Variable] = &[
    row("CONFIG_TYPE", Choice(&["FILE", "GRPC_XDS_SOTW"]), "FILE", "Where the configuration comes from: files, or a management server over xDS (docs/xds.md). The rows from CONFIG_GRPC_XDS_NODE_ID on belong to the latter."),
    row("FORCE_START_WITHOUT_INITIAL_CONFIG", Boolean, "false", "Open the ports before the configuration is loaded. Until then, calls fail."),
    row("RUNTIME_ROOT", Path, "/srv/runtime_data/current", "Folder, or symbolic link to a folder, that contains RUNTIME_SUBDIRECTORY/RUNTIME_APPDIRECTORY. When it is not set and the default does not exist, a built-in sample is served."),
    row("RUNTIME_SUBDIRECTORY", Path, "", "Folder under RUNTIME_ROOT. Empty: RUNTIME_ROOT itself."),
    row("RUNTIME_APPDIRECTORY", Path, "config", "Folder with the configuration files, under RUNTIME_SUBDIRECTORY."),
    row("RUNTIME_IGNOREDOTFILES", Boolean, "false", "Skip files and folders whose name begins with a dot. Names that begin with two dots are always skipped."),
    row("RUNTIME_WATCH_ROOT", Boolean, "true", "True: read everything under RUNTIME_SUBDIRECTORY, and use files whose path begins with RUNTIME_APPDIRECTORY. False: read RUNTIME_APPDIRECTORY only. This changes the names of files in messages (`config.basic.yaml` or `basic.yaml`). Both folders are watched in both cases."),
    row("MERGE_DOMAIN_CONFIG", Boolean, "false", "Allow several files for one domain."),
    row("CONFIG_GRPC_XDS_NODE_ID", Text, "default", "What this server is called at the management server."),
    row("CONFIG_GRPC_XDS_NODE_METADATA", Text, "", "Metadata of this server for the management server: `name=value,other=value`. Items without `=` are left out."),
    row("CONFIG_GRPC_XDS_SERVER_URL", Url, "localhost:18000", "`host:port` of the management server. The name is looked up at each connect."),
    row("CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL", Duration, "3s", "Wait after an attempt to connect, varied as XDS_CLIENT_BACKOFF_JITTER says. More than 0."),
    row("CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS", Headers, "", "Headers that are sent to the management server. They are not shown."),
    row("CONFIG_GRPC_XDS_SERVER_USE_TLS", Boolean, "false", "Use TLS to the management server. Certificates are read again at each connect."),
    row("CONFIG_GRPC_XDS_CLIENT_TLS_CERT", Path, "", "File with the certificate chain that is shown to the management server, PEM. Used only together with its key."),
    row("CONFIG_GRPC_XDS_CLIENT_TLS_KEY", Path, "", "File with the key of that certificate, PEM."),
    row("CONFIG_GRPC_XDS_SERVER_TLS_CACERT", Path, "", "File with authorities that are trusted in addition to the system's, PEM."),
    row("CONFIG_GRPC_XDS_SERVER_TLS_SAN", Text, "", "Name that the management server's certificate must contain. Empty: the host in CONFIG_GRPC_XDS_SERVER_URL."),
    row("XDS_CLIENT_BACKOFF_INITIAL_INTERVAL", Duration, "10s", "Wait after a lost stream. It doubles with each stream that brought no configuration that was taken. More than 0."),
    row("XDS_CLIENT_BACKOFF_MAX_INTERVAL", Duration, "60s", "Longest wait after a lost stream."),
    row("XDS_CLIENT_BACKOFF_RANDOM_FACTOR", Float, "0.5", "The part by which waits are longer or shorter, from 0 to 1."),
    row("XDS_CLIENT_BACKOFF_JITTER", Boolean, "true", "Vary the waits. False: XDS_CLIENT_BACKOFF_RANDOM_FACTOR has no effect."),
    row("XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES", Integer("bytes"), "0", "The largest message that is taken from the management server. 0: 4 MiB."),
    row("TIDEGATE_XDS_PING", Duration, "5m10s", "After how long a silence the management server is asked whether it is there, by a ping of HTTP/2. Without an answer for 20 s, or as long as this if that is less, the connection is given up. Servers in Go close connections with more than one ping in 5 minutes, unless they are configured otherwise. 0: never. A host that is gone is noticed after about a minute in any case, by TCP."),
];

#[rustfmt::skip] // as above
const METRICS: &[Variable] = &[
    row("USE_PROMETHEUS", Boolean, "false", "Open a port for Prometheus. The debug port serves the same metrics in any case."),
    row("PROMETHEUS_ADDR", Text, ":9090", "Address and port for Prometheus."),
    row("PROMETHEUS_PATH", Text, "/metrics", "Path for Prometheus. It is checked only when USE_PROMETHEUS is true."),
    row("PROMETHEUS_MAPPER_YAML", Path, "", "File that maps the names of `/stats` to names and labels of Prometheus, in the form of statsd_exporter ([metrics.md](metrics.md#a-mapping-file)). Read once at start, when USE_PROMETHEUS is true. Not set: the names and labels of envoyproxy/ratelimit."),
    row("PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS", Boolean, "false", "Observe response times in milliseconds, under the same name and bounds. For old dashboards."),
    row("EXTRA_TAGS", Map, "", "Labels, or tags, that are added to every metric."),
    row("DISABLE_STATS", Boolean, "false", "Send metrics nowhere and do not open the port for Prometheus, whatever the other settings say."),
    row("USE_STATSD", Boolean, "false", "Send metrics to statsd. One of USE_STATSD, USE_DOG_STATSD and USE_PROMETHEUS may be true. Started as `ratelimit`, true is the default."),
    row("STATSD_HOST", Text, "localhost", "Host of statsd or DogStatsD: a name, which is looked up again at each connect, or an address."),
    row("STATSD_PORT", Integer("port"), "8125", "Port of statsd or DogStatsD."),
    row("STATSD_PROTOCOL", Choice(&["tcp", "udp"]), "tcp", "Protocol of statsd. DogStatsD is always reached over UDP."),
    row("STATS_FLUSH_INTERVAL", Duration, "10s", "Wait between two transmissions to statsd or DogStatsD."),
    row("USE_DOG_STATSD", Boolean, "false", "Send metrics to DogStatsD, with tags and events ([metrics.md](metrics.md#statsd-and-dogstatsd))."),
    row("USE_DOG_STATSD_MOGRIFIERS", List, "", "Names of rules that change names for DogStatsD, in the order in which they are tried. The rule `x` is in `DOG_STATSD_MOGRIFIER_X_PATTERN` (a regular expression), `DOG_STATSD_MOGRIFIER_X_NAME` (the new name) and `DOG_STATSD_MOGRIFIER_X_TAGS` (a map); `$1` is what the first group matched."),
    row("DOG_STATSD_MOGRIFIERS", List, "", "The same under a deprecated name."),
];

#[rustfmt::skip] // as above
const COUNTING: &[Variable] = &[
    row("BACKEND_TYPE", Choice(&["redis", "", "memcache"]), "redis", "Where counters are. `redis`, or nothing: in Redis; without REDIS_URL, in memory. `memcache`: in memcached, which counts approximately (docs/memcached.md); workflows are where they would be otherwise."),
    row("EXPIRATION_JITTER_MAX_SECONDS", Integer("seconds"), "300", "A random number of seconds below this is added to the expiry of each counter, so that counters do not expire together. 0 adds nothing."),
    row("LOCAL_CACHE_SIZE_IN_BYTES", Integer("bytes"), "0", "Size of the cache of exhausted limits. Calls for a limit in it are refused without asking Redis, for 10 s at a time. 0: no cache."),
    row("NEAR_LIMIT_RATIO", Float, "0.8", "Hits above this share of a limit are counted as near the limit."),
    row("CACHE_KEY_PREFIX", Text, "", "Text in front of every counter key. Set it when several deployments share one Redis."),
    row("STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT", Boolean, "false", "When one limit of a call is exceeded, do not charge the other limits."),
];

#[rustfmt::skip] // as above
const ANSWERS: &[Variable] = &[
    row("LIMIT_RESPONSE_HEADERS_ENABLED", Boolean, "false", "Add headers with the limit, the remaining hits and the reset time to answers."),
    row("LIMIT_LIMIT_HEADER", Text, "RateLimit-Limit", "Name of the header with the limit."),
    row("LIMIT_REMAINING_HEADER", Text, "RateLimit-Remaining", "Name of the header with the remaining hits."),
    row("LIMIT_RESET_HEADER", Text, "RateLimit-Reset", "Name of the header with the seconds until the window ends."),
    row("RESPONSE_DYNAMIC_METADATA", Boolean, "false", "Add dynamic metadata to answers."),
    row("SHADOW_MODE", Boolean, "false", "Count as usual, but allow every call. Use it to try limits on real traffic."),
    row("QUOTA_MODE", Boolean, "false", "Refuse a call only when all of its limits are exceeded."),
    row("HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED", Boolean, "false", "Be unhealthy while no domain is configured."),
];

#[rustfmt::skip] // as above
const REDIS: &[Variable] = &[
    row("REDIS_URL", Url, "", "`host:port`, `redis://[user:password@]host:port[/database]`, or the path of a Unix socket. User, password and database may also be in the query, as `?username=..&password=..&db=..`. Not set: counters are kept in memory."),
    row("REDIS_SOCKET_TYPE", SOCKETS, "", "`tcp` or `unix`. Not set: decided by the form of REDIS_URL."),
    row("REDIS_TYPE", REDIS_TYPES, "single", "Kind of deployment. For a cluster, REDIS_URL is `host:port,host:port,..`; with sentinels, it is `master name,host:port,..`, with the addresses of the sentinels."),
    row("REDIS_AUTH", Secret, "", "`password` or `user:password`."),
    row("REDIS_POOL_SIZE", Integer("connections"), "10", "The highest number of connections to each Redis server, divided among the cores, at least one for each core.").unset(POOL_UNSET),
    row("REDIS_TIMEOUT", Duration, "10s", "The longest wait for a connection and for an answer. Workflows wait as long for a single Redis that is silent, at least a second.").unset(TIMEOUT_UNSET),
    row("REDIS_HEALTH_CHECK_ACTIVE_CONNECTION", Boolean, "false", "Be unhealthy while Redis does not answer: when no PING was answered for 3 to 6 s after the first that failed, which is about 5 to 9 s after Redis stopped. Each server chooses its own time."),
    row("REDIS_CLOSE_CONNECTION_ON_READONLY_ERROR", Boolean, "false", "Connect anew when Redis answers that it is a replica (READONLY), so that an address that follows the primary leads to it. Tidegate does so whatever is set, also for limits per second, and sends the command again."),
    row("REDIS_STARTUP_INITIAL_INTERVAL", Duration, "1s", "Wait after the first attempt at start. It doubles with each attempt."),
    row("REDIS_STARTUP_MAX_INTERVAL", Duration, "30s", "Longest wait between two attempts at start."),
    row("REDIS_STARTUP_MAX_ELAPSED_TIME", Duration, "0", "End the start with an error after this time without an answer. 0: keep trying."),
    row("REDIS_POOL_ON_EMPTY_BEHAVIOR", Choice(&["WAIT", "CREATE", "ERROR"]), "WAIT", "What to do when every connection is busy.").refused("WAIT", ON_EMPTY),
    row("REDIS_PIPELINE_WINDOW", Duration, "0", "Has no effect: concurrent calls share writes without waiting.").warned(SHARED_WRITES),
    row("REDIS_PIPELINE_LIMIT", Integer("commands"), "0", "Deprecated, in envoyproxy/ratelimit as well, and has no effect: the size of writes is not limited.").warned(OLD_LIMIT),
    row("REDIS_CLUSTER_PIPELINE_PARALLELISM", Integer("nodes"), "1", "How many nodes of a cluster a call asks at once. 1: one by one; stops at the first that fails. 0: REDIS_POOL_SIZE, or 10 if that is not set. Never more than that."),
    row("REDIS_SENTINEL_AUTH", Secret, "", "`password` or `user:password` for the sentinels. Not set: what stands in the first address of a sentinel in REDIS_URL that has some, as in `mymaster,redis://:password@host:26379`."),
    row("REDIS_TLS", Boolean, "false", "Use TLS to Redis and to sentinels. A URL that begins with `rediss://` has the same effect."),
    row("REDIS_TLS_CLIENT_CERT", Path, "", "File with the client certificate, PEM. Used only together with its key. Renewed files are used by the next connections, here and in the two rows below."),
    row("REDIS_TLS_CLIENT_KEY", Path, "", "File with the key of the client certificate, PEM."),
    row("REDIS_TLS_CACERT", Path, "", "File with authorities that are trusted in addition to the system's, PEM."),
    row("REDIS_TLS_SKIP_HOSTNAME_VERIFICATION", Boolean, "false", "Accept certificates of another host name. The chain is still verified."),
];

#[rustfmt::skip] // as above
const REDIS_PER_SECOND: &[Variable] = &[
    row("REDIS_PERSECOND", Boolean, "false", "Count limits per second in another Redis."),
    row("REDIS_PERSECOND_URL", Url, "", "As REDIS_URL."),
    row("REDIS_PERSECOND_SOCKET_TYPE", SOCKETS, "", "As REDIS_SOCKET_TYPE."),
    row("REDIS_PERSECOND_TYPE", REDIS_TYPES, "single", "As REDIS_TYPE."),
    row("REDIS_PERSECOND_AUTH", Secret, "", "As REDIS_AUTH."),
    row("REDIS_PERSECOND_POOL_SIZE", Integer("connections"), "10", "As REDIS_POOL_SIZE.").unset(POOL_UNSET),
    row("REDIS_PERSECOND_TIMEOUT", Duration, "10s", "As REDIS_TIMEOUT.").unset(TIMEOUT_UNSET),
    row("REDIS_PERSECOND_POOL_ON_EMPTY_BEHAVIOR", Choice(&["WAIT", "CREATE", "ERROR"]), "WAIT", "As REDIS_POOL_ON_EMPTY_BEHAVIOR.").refused("WAIT", ON_EMPTY),
    row("REDIS_PERSECOND_PIPELINE_WINDOW", Duration, "0", "Has no effect, as REDIS_PIPELINE_WINDOW.").warned(SHARED_WRITES),
    row("REDIS_PERSECOND_PIPELINE_LIMIT", Integer("commands"), "0", "Deprecated, and has no effect, as REDIS_PIPELINE_LIMIT.").warned(OLD_LIMIT),
    row("REDIS_PERSECOND_CLUSTER_PIPELINE_PARALLELISM", Integer("nodes"), "1", "As REDIS_CLUSTER_PIPELINE_PARALLELISM."),
    row("REDIS_PERSECOND_SENTINEL_AUTH", Secret, "", "As REDIS_SENTINEL_AUTH."),
    row("REDIS_PERSECOND_TLS", Boolean, "false", "As REDIS_TLS, with the same certificates."),
];

#[rustfmt::skip] // as above
const MEMCACHE: &[Variable] = &[
    row("MEMCACHE_HOST_PORT", List, "", "Addresses of the servers, `host:port,host:port,..`, or paths of Unix sockets. Their order decides where counters are, so it is the same for all that share them."),
    row("MEMCACHE_SRV", Text, "", "In place of these, a name in DNS, `_service._proto.name`, that has a SRV record for each server. They are used in the order of their names and ports. The start fails when DNS does not know the name."),
    row("MEMCACHE_SRV_REFRESH", Duration, "0", "Wait between two look-ups of that name. A look-up that fails changes nothing. 0: it is looked up at start only."),
    row("TIDEGATE_DNS_SERVERS", List, "", "Servers of DNS that are asked for MEMCACHE_SRV, `address:port,..`. Not set: those of /etc/resolv.conf, whose domains and options hold in both cases."),
    row("MEMCACHE_MAX_IDLE_CONNS", Integer("connections"), "2", "Has no effect: the calls of a core share one connection to each server.").warned(SHARED_LINKS),
    row("MEMCACHE_TLS", Boolean, "false", "Use TLS to the servers."),
    row("MEMCACHE_TLS_CLIENT_CERT", Path, "", "File with the client certificate, PEM. Used only together with its key. Renewed files are used by the next connections, here and in the two rows below."),
    row("MEMCACHE_TLS_CLIENT_KEY", Path, "", "File with the key of the client certificate, PEM."),
    row("MEMCACHE_TLS_CACERT", Path, "", "File with authorities that are trusted in addition to the system's, PEM."),
    row("MEMCACHE_TLS_SKIP_HOSTNAME_VERIFICATION", Boolean, "false", "Accept certificates of another host name. The chain is still verified."),
];

#[rustfmt::skip] // as above
const TRACING: &[Variable] = &[
    row("TRACING_ENABLED", Boolean, "false", "Send traces to a collector of OpenTelemetry: of calls of rate limits, of calls that create workflows, and of the attempts of their jobs. The variables below have no effect without it."),
    row("TRACING_SERVICE_NAME", Text, "RateLimit", "`service.name` of the traces."),
    row("TRACING_SERVICE_NAMESPACE", Text, "", "`service.namespace` of the traces."),
    row("TRACING_SERVICE_INSTANCE_ID", Text, "", "`service.instance.id` of the traces.").unset("a random UUID"),
    row("TRACING_EXPORTER_PROTOCOL", Choice(&["http", "grpc"]), "http", "How traces are sent: as protobuf over HTTP/1.1, or by gRPC."),
    row("TRACING_SAMPLING_RATE", Float, "1", "Share of calls that are traced, from 0 to 1, when their caller has not decided. Where the headers of a call say whether it is sampled (`traceparent`, `b3` or `x-b3-*`), that holds. Each traced call costs about as much as a decision more: use a small share under load. Attempts of jobs are traced when the creation of their workflow was."),
    row("OTEL_EXPORTER_OTLP_ENDPOINT", Url, "", "Address of the collector, such as `http://collector:4318` or `https://collector:4317`. For HTTP, `/v1/traces` is put after its path. For gRPC it may be `host:port`, which is with TLS unless OTEL_EXPORTER_OTLP_INSECURE is true.").unset("`http://localhost:4318`, or `http://localhost:4317` for gRPC"),
    row("OTEL_EXPORTER_OTLP_HEADERS", Secret, "", "Headers sent with traces: `name=value,other=value`, with values encoded as in URLs."),
    row("OTEL_EXPORTER_OTLP_TIMEOUT", Text, "10000", "Milliseconds that one attempt to send may take."),
    row("OTEL_EXPORTER_OTLP_COMPRESSION", Text, "none", "`gzip` compresses what is sent."),
    row("OTEL_EXPORTER_OTLP_CERTIFICATE", Path, "", "File with authorities that are trusted in addition to the system's, PEM. This file and those of the client certificate are read at each connection."),
    row("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", Path, "", "File with the client certificate, PEM."),
    row("OTEL_EXPORTER_OTLP_CLIENT_KEY", Path, "", "File with the key of the client certificate, PEM."),
    row("OTEL_EXPORTER_OTLP_INSECURE", Text, "false", "Whether a gRPC endpoint that is written without `http://` or `https://` is without TLS."),
    row("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", Url, "", "As OTEL_EXPORTER_OTLP_ENDPOINT, and takes precedence; nothing is put after its path. The same holds for each of the following: it takes precedence over its namesake without `TRACES`."),
    row("OTEL_EXPORTER_OTLP_TRACES_HEADERS", Secret, "", "As OTEL_EXPORTER_OTLP_HEADERS."),
    row("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", Text, "", "As OTEL_EXPORTER_OTLP_TIMEOUT."),
    row("OTEL_EXPORTER_OTLP_TRACES_COMPRESSION", Text, "", "As OTEL_EXPORTER_OTLP_COMPRESSION."),
    row("OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE", Path, "", "As OTEL_EXPORTER_OTLP_CERTIFICATE."),
    row("OTEL_EXPORTER_OTLP_TRACES_CLIENT_CERTIFICATE", Path, "", "As OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE."),
    row("OTEL_EXPORTER_OTLP_TRACES_CLIENT_KEY", Path, "", "As OTEL_EXPORTER_OTLP_CLIENT_KEY."),
    row("OTEL_EXPORTER_OTLP_TRACES_INSECURE", Text, "", "As OTEL_EXPORTER_OTLP_INSECURE."),
    row("OTEL_BSP_SCHEDULE_DELAY", Text, "5000", "Milliseconds that a traced call may wait for others that are sent with it."),
];
