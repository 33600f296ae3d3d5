//! The table of all variables, with a row for each.

pub(crate) mod describe;
pub(crate) mod problem;
pub(crate) mod show;
pub(crate) mod value;

use tidegate_cli::DEFAULT_SERVER;

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

/// Defines the sections. A row is the name of a variable, its kind and its default. The doc comment of
/// a row is its description in the documentation.
macro_rules! sections {
    ($($title:literal {
        $(#[doc = $doc:literal] $name:ident: $kind:expr, $default:tt $(.$change:ident($($argument:expr),+))*;)+
    })+) => {
        /// All variables, in the order of the documentation.
        pub(crate) const SECTIONS: &[Section] = &[$(Section {
            title: $title,
            rows: &[$(row(stringify!($name), $kind, $default, $doc.trim_ascii_start())$(.$change($($argument),+))*),+],
        }),+];
    };
}

sections! {
    "Tidegate" {
        /// Threads that serve calls, and as many that serve workflows, each with its own connections to Redis. 0: one per available core. Lower it to leave cores to other programs.
        TIDEGATE_CORES: Integer("cores"), "0";
        /// Maximum time that a call waits for the store. A shorter deadline of the client or a shorter REDIS_TIMEOUT takes precedence. Calls wait as long for a silent single Redis, at least a second; after that they are refused at once.
        TIDEGATE_CALL_TIMEOUT: Duration, "1s";
        /// A file with a value for REDIS_AUTH, read again at every connect. Use it for passwords and tokens that change. Takes precedence over REDIS_AUTH.
        TIDEGATE_REDIS_AUTH_FILE: Path, "";
        /// Name that certificates of Redis and its sentinels must have, at every address. Not set: the host of the connection. Set it if a cluster announces addresses and its certificates have one name ([deploy.md](deploy.md#security)). Has no effect without TLS.
        TIDEGATE_REDIS_TLS_SERVER_NAME: Text, "";
        /// Other addresses for servers that a cluster or a sentinel announces: `announced=connect,..`, each `host:port` or a host alone, which keeps the port. Does not apply to REDIS_URL and REDIS_PERSECOND_URL themselves.
        TIDEGATE_REDIS_ADDRESS_MAP: List, "";
        /// Memory for counters without Redis, 1M or more. A counter with a key of 40 bytes takes about 90 bytes: 128M hold about 1,400,000. When it is full, some counters begin again from zero (docs/guarantees.md), and a warning is logged.
        TIDEGATE_COUNTER_MEMORY: Bytes, "128M";
        /// The highest number of counters without Redis. 0: as many as TIDEGATE_COUNTER_MEMORY has room for.
        TIDEGATE_MAX_KEYS: Integer("keys"), "0";
        /// Maximum number of names of limits in metrics. Other names, and unknown domains beyond this number or 1,000, are counted together as `_overflow`. Limits of the configuration always have their names. 0: no other names.
        TIDEGATE_MAX_METRIC_KEYS: Integer("names"), "100000";
        /// The highest number of descriptors of a request, 1 or more, each with 16 entries on average. A larger request is refused with INVALID_ARGUMENT before it is decoded. Envoy sends a few.
        TIDEGATE_MAX_DESCRIPTORS: Integer("descriptors"), "1000";
        /// Maximum number of connections to each of the gRPC port, the HTTP port and the API, from 1 to 1,000,000. 10,000 need about 41,000 open files; if the hard limit (`ulimit -H -n`) allows fewer, the number is lower, and a warning says so. At the maximum, connections without a request are closed for new ones.
        TIDEGATE_MAX_CONNECTIONS: Integer("connections"), "10000";
        /// Time after a signal to stop in which calls and new connections are still served while health says NOT_SERVING. It must be longer than your load balancers need to notice ([deploy.md](deploy.md#graceful-shutdown)). A second signal ends it. After SIGINT (Ctrl-C) it also ends when no client is connected.
        TIDEGATE_DRAIN_DELAY: Duration, "10s";
        /// Set by systemd for a unit of `Type=notify`, and by no other program: the socket at which the server says that it serves, loads its configuration again, or is about to stop.
        NOTIFY_SOCKET: Path, "";
        /// After that delay: how long calls in flight may take. Connections that are still open then are closed.
        TIDEGATE_DRAIN_TIMEOUT: Duration, "10s";
    }
    "Workflows" {
        /// Address and port of the HTTP API under `/v1`. Port 0: the system chooses. Empty: no API and no workflows. If the default is taken, the server warns, and waits for it. An address given here is shared with a draining process if workflows are in Redis; otherwise a taken address ends the start.
        TIDEGATE_HTTP_ADDR: Text, "127.0.0.1:7070";
        /// Redis of the workflows, written as REDIS_URL, `file` for a file in TIDEGATE_DATA_DIR, `memory` for this process, which loses them at its end ([python.md](python.md#tests)), or `off`: no workflows, and the API and the page show limits without changing them. Started as `ratelimit`, the default is `off`. Set it if the Redis of the counters is not durable.
        TIDEGATE_STORE_URL: Url, "".unset("the Redis of REDIS_URL, else `file`");
        /// A clock that tests move, for workflows and counters ([python.md](python.md#tests)). A mistake unless both are in memory and TIDEGATE_HTTP_ADDR is an address of this machine alone.
        TIDEGATE_TEST_CLOCK: Boolean, "false";
        /// As REDIS_TYPE, for TIDEGATE_STORE_URL. This variable and those up to TIDEGATE_STORE_TIMEOUT are mistakes without a Redis in TIDEGATE_STORE_URL: then those of REDIS_URL count.
        TIDEGATE_STORE_TYPE: REDIS_TYPES, "single";
        /// As REDIS_AUTH.
        TIDEGATE_STORE_AUTH: Secret, "";
        /// As TIDEGATE_REDIS_AUTH_FILE.
        TIDEGATE_STORE_AUTH_FILE: Path, "";
        /// As REDIS_SENTINEL_AUTH.
        TIDEGATE_STORE_SENTINEL_AUTH: Secret, "";
        /// As REDIS_TLS, with the same certificates.
        TIDEGATE_STORE_TLS: Boolean, "false";
        /// As TIDEGATE_REDIS_TLS_SERVER_NAME.
        TIDEGATE_STORE_TLS_SERVER_NAME: Text, "";
        /// As TIDEGATE_REDIS_ADDRESS_MAP.
        TIDEGATE_STORE_ADDRESS_MAP: List, "";
        /// As REDIS_TIMEOUT.
        TIDEGATE_STORE_TIMEOUT: Duration, "10s".unset(TIMEOUT_UNSET);
        #[doc = "What the names of all keys of workflows in Redis begin with: 1 to 64 ASCII letters, digits and `: . _ - /`. Give each environment its own when several share one Redis. A store keeps its keys: with another prefix, it is not found."]
        TIDEGATE_STORE_PREFIX: Text, "tg:";
        /// Folder of the workflows' file. The first call of the API creates it. Only one server can use it at a time. If it cannot be used, calls of the API get 503, and limits are served.
        TIDEGATE_DATA_DIR: Path, "./tidegate-data";
        /// Number of partitions of a new store of workflows: a power of two from 1 to 256. It limits the nodes of a cluster and the threads of a server that share the work. An existing store keeps its number.
        TIDEGATE_PARTITIONS: Integer("partitions"), "16".unset("`16` in Redis, `4` in a file");
        /// When a change through the API is acknowledged. `primary`: when the primary has it; a failover may lose it. `replicas:N`, N from 1 to 16: when N replicas have it. If fewer answer in time, the answer is 503: the change may have taken place, and can be repeated with the same key or lease. Costs a round trip to the replicas. Has no effect on a file.
        TIDEGATE_ACKNOWLEDGED_BY: Text, "primary";
        /// How long ended workflows are kept, unless they say so themselves. Cancelled workflows count as failed. One time span holds for both; `forever` keeps them.
        TIDEGATE_RETENTION: Retention, "succeeded=7d,failed=30d";
        /// File with the tokens of the API: one `role name token` a line. Roles are `read`, `work` and `admin`. Read again when it changes. Needed on addresses that other machines can reach.
        TIDEGATE_TOKENS_FILE: Path, "";
        /// File with the certificate chain of the API, PEM, its own certificate first. With it and TIDEGATE_TLS_KEY, the API speaks `https` only. These files are read again within 2 s when they change.
        TIDEGATE_TLS_CERT: Path, "";
        /// File with the key of that certificate, PEM, without a passphrase.
        TIDEGATE_TLS_KEY: Path, "";
        /// File with authorities, PEM. When set, clients of the API must show a certificate that one of them, or an authority of the system, has issued. The commands of `tidegate` show none.
        TIDEGATE_TLS_CLIENT_CACERT: Path, "";
        /// Serve the API without tokens on addresses that other machines can reach. Everybody who can reach the port may then do everything.
        TIDEGATE_ALLOW_ANONYMOUS: Boolean, "false";
        /// The largest body of a request to the API: from 1k to 1G.
        TIDEGATE_MAX_BODY: Bytes, "8M";
        /// The highest number of open event streams of the API, from 4 to 1,000,000. One token, or one address when no tokens are needed, has at most a quarter of them.
        TIDEGATE_MAX_EVENT_STREAMS: Integer("streams"), "1024";
        /// Memory for the states of recently used workflows, 1M or more. Raise it when many large workflows run at the same time.
        TIDEGATE_WORKFLOW_MEMORY: Bytes, "256M";
    }
    "Command line" {
        /// Address of the server for commands such as `tidegate workflow list`. The option `--server` takes precedence.
        TIDEGATE_SERVER: Url, DEFAULT_SERVER;
        /// Token for these commands. The option `--token-file` takes precedence, and a context of `tidegate context` has its own.
        TIDEGATE_TOKEN: Secret, "";
        /// File with certificate authorities that these commands trust in addition to the system's, PEM. The option `--cacert` takes precedence.
        TIDEGATE_CACERT: Path, "";
        /// Any value turns colours in the terminal off.
        NO_COLOR: Text, "";
    }
    "Listeners and gRPC" {
        /// Address of the HTTP port.
        HOST: Text, "0.0.0.0";
        /// HTTP port, with `/json` and `/healthcheck`. 0 lets the system choose.
        PORT: Integer("port"), "8080";
        /// Address of the debug port.
        DEBUG_HOST: Text, "0.0.0.0";
        /// Debug port, with `/rlconfig`, `/stats` and `/metrics`. 0 lets the system choose. When it is taken, that is a warning, and the server goes on without these pages.
        DEBUG_PORT: Integer("port"), "6070";
        /// Path of a Unix socket. When set, gRPC is served there instead of on a port. A lock beside it, in `PATH.lock`, keeps two servers from using it.
        GRPC_UDS: Path, "";
        /// Address of the gRPC port.
        GRPC_HOST: Text, "0.0.0.0";
        /// gRPC port. 0 lets the system choose.
        GRPC_PORT: Integer("port"), "8081";
        /// Age at which a connection gets GOAWAY, varied by 10 %. 0: never. Lower it to spread clients over new servers sooner.
        GRPC_MAX_CONNECTION_AGE: Duration, "24h";
        /// How long calls may still run after GOAWAY. 0: without a bound.
        GRPC_MAX_CONNECTION_AGE_GRACE: Duration, "1h";
        /// Use TLS on the gRPC port or socket, with HTTP/2 (ALPN `h2`), versions 1.2 and 1.3. Needs a certificate and its key.
        GRPC_SERVER_USE_TLS: Boolean, "false";
        /// File with the certificate chain of the gRPC port, PEM, its own certificate first. Changed files are read again within 2 s. If they do not fit together, a warning is logged, and the old ones stay.
        GRPC_SERVER_TLS_CERT: Path, "";
        /// File with the key of that certificate, PEM, without a passphrase.
        GRPC_SERVER_TLS_KEY: Path, "";
        /// File with authorities, PEM. When set, clients must show a certificate that one of them, or an authority of the system, has issued.
        GRPC_CLIENT_TLS_CACERT: Path, "";
        /// DNS name (or IP address) that client certificates must contain as a subject alternative name. Needs GRPC_CLIENT_TLS_CACERT.
        GRPC_CLIENT_TLS_SAN: Text, "";
    }
    "Logging" {
        /// Lowest level that is logged, on standard error. `debug` adds a line for each decision, with the keys of its descriptors and without values; `trace` a line for each HTTP/2 frame. `warn` also shows when limits are loaded, and when the server drains and stops.
        LOG_LEVEL: LEVELS, "WARN";
        /// `json` writes one JSON object a line, with `@timestamp`, `@message` and `level`. Every other value writes plain text. Mistakes in settings, which end the start, are plain text in any case.
        LOG_FORMAT: Text, "text";
    }
    "Configuration" {
        /// Where the configuration comes from: files, or a management server over xDS (docs/rate-limits.md). The rows from CONFIG_GRPC_XDS_NODE_ID on belong to the latter.
        CONFIG_TYPE: Choice(&["FILE", "GRPC_XDS_SOTW"]), "FILE";
        /// Open the ports before the configuration is loaded. Until then, calls fail.
        FORCE_START_WITHOUT_INITIAL_CONFIG: Boolean, "false";
        /// Folder, or symbolic link to a folder, that contains RUNTIME_SUBDIRECTORY/RUNTIME_APPDIRECTORY. When it is not set and the default does not exist, a built-in sample is served.
        RUNTIME_ROOT: Path, "/srv/runtime_data/current";
        /// Folder under RUNTIME_ROOT. Empty: RUNTIME_ROOT itself.
        RUNTIME_SUBDIRECTORY: Path, "";
        /// Folder with the configuration files, under RUNTIME_SUBDIRECTORY.
        RUNTIME_APPDIRECTORY: Path, "config";
        /// Skip files and folders whose name begins with a dot. Names that begin with two dots are always skipped.
        RUNTIME_IGNOREDOTFILES: Boolean, "false";
        /// True: read everything under RUNTIME_SUBDIRECTORY, and use files whose path begins with RUNTIME_APPDIRECTORY. False: read RUNTIME_APPDIRECTORY only. This changes the names of files in messages (`config.basic.yaml` or `basic.yaml`). Both folders are watched in both cases.
        RUNTIME_WATCH_ROOT: Boolean, "true";
        /// Allow several files for one domain.
        MERGE_DOMAIN_CONFIG: Boolean, "false";
        #[doc = "What this server is called at the management server."]
        CONFIG_GRPC_XDS_NODE_ID: Text, "default";
        /// Metadata of this server for the management server: `name=value,other=value`. Items without `=` are left out.
        CONFIG_GRPC_XDS_NODE_METADATA: Text, "";
        /// `host:port` of the management server. The name is looked up at each connect.
        CONFIG_GRPC_XDS_SERVER_URL: Url, "localhost:18000";
        /// Wait after an attempt to connect, varied as XDS_CLIENT_BACKOFF_JITTER says. More than 0.
        CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL: Duration, "3s";
        /// Headers that are sent to the management server. They are not shown.
        CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS: Headers, "";
        /// Use TLS to the management server. Certificates are read again at each connect.
        CONFIG_GRPC_XDS_SERVER_USE_TLS: Boolean, "false";
        /// File with the certificate chain that is shown to the management server, PEM. Used only together with its key.
        CONFIG_GRPC_XDS_CLIENT_TLS_CERT: Path, "";
        /// File with the key of that certificate, PEM.
        CONFIG_GRPC_XDS_CLIENT_TLS_KEY: Path, "";
        /// File with authorities that are trusted in addition to the system's, PEM.
        CONFIG_GRPC_XDS_SERVER_TLS_CACERT: Path, "";
        /// Name that the management server's certificate must contain. Empty: the host in CONFIG_GRPC_XDS_SERVER_URL.
        CONFIG_GRPC_XDS_SERVER_TLS_SAN: Text, "";
        /// Wait after a lost stream. It doubles with each stream that brought no configuration that was taken. More than 0.
        XDS_CLIENT_BACKOFF_INITIAL_INTERVAL: Duration, "10s";
        /// Longest wait after a lost stream.
        XDS_CLIENT_BACKOFF_MAX_INTERVAL: Duration, "60s";
        /// The part by which waits are longer or shorter, from 0 to 1.
        XDS_CLIENT_BACKOFF_RANDOM_FACTOR: Float, "0.5";
        /// Vary the waits. False: XDS_CLIENT_BACKOFF_RANDOM_FACTOR has no effect.
        XDS_CLIENT_BACKOFF_JITTER: Boolean, "true";
        /// The largest message that is taken from the management server. 0: 4 MiB.
        XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES: Integer("bytes"), "0";
        /// Silence after which the management server gets an HTTP/2 ping. Without an answer for 20 s, or for this time if it is less, the connection is closed. Servers in Go close connections with more than one ping in 5 minutes by default. 0: no pings; TCP notices a lost host after about a minute.
        TIDEGATE_XDS_PING: Duration, "5m10s";
    }
    "Metrics" {
        /// Open a port for Prometheus. The debug port serves the same metrics in any case.
        USE_PROMETHEUS: Boolean, "false";
        /// Address and port for Prometheus.
        PROMETHEUS_ADDR: Text, ":9090";
        /// Path for Prometheus. It is checked only when USE_PROMETHEUS is true.
        PROMETHEUS_PATH: Text, "/metrics";
        /// File that maps names of `/stats` to names and labels of Prometheus, as statsd_exporter does ([metrics.md](metrics.md#a-mapping-file)). Read once at start if USE_PROMETHEUS is true. Not set: names and labels of envoyproxy/ratelimit.
        PROMETHEUS_MAPPER_YAML: Path, "";
        /// Observe response times in milliseconds, under the same name and bounds. For old dashboards.
        PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS: Boolean, "false";
        /// Labels, or tags, that are added to every metric.
        EXTRA_TAGS: Map, "";
        /// Send metrics nowhere and do not open the port for Prometheus, whatever the other settings say.
        DISABLE_STATS: Boolean, "false";
        /// Send metrics to statsd. One of USE_STATSD, USE_DOG_STATSD and USE_PROMETHEUS may be true. Started as `ratelimit`, true is the default.
        USE_STATSD: Boolean, "false";
        /// Host of statsd or DogStatsD: a name, which is looked up again at each connect, or an address.
        STATSD_HOST: Text, "localhost";
        /// Port of statsd or DogStatsD.
        STATSD_PORT: Integer("port"), "8125";
        /// Protocol of statsd. DogStatsD is always reached over UDP.
        STATSD_PROTOCOL: Choice(&["tcp", "udp"]), "tcp";
        /// Wait between two transmissions to statsd or DogStatsD.
        STATS_FLUSH_INTERVAL: Duration, "10s";
        /// Send metrics to DogStatsD, with tags and events ([metrics.md](metrics.md#statsd-and-dogstatsd)).
        USE_DOG_STATSD: Boolean, "false";
        /// Names of the rules that rename metrics for DogStatsD, in the order in which they are tried. The rule `x` is in `DOG_STATSD_MOGRIFIER_X_PATTERN` (regular expression), `DOG_STATSD_MOGRIFIER_X_NAME` (new name) and `DOG_STATSD_MOGRIFIER_X_TAGS` (map); `$1` is the first group.
        USE_DOG_STATSD_MOGRIFIERS: List, "";
        #[doc = "The same under a deprecated name."]
        DOG_STATSD_MOGRIFIERS: List, "";
    }
    "Counting" {
        /// Where counters are. `redis`, or nothing: in Redis; without REDIS_URL, in memory. `memcache`: in memcached, which counts approximately (docs/rate-limits.md); workflows are where they would be otherwise.
        BACKEND_TYPE: Choice(&["redis", "", "memcache"]), "redis";
        /// A random number of seconds below this is added to the expiry of each counter, so that counters do not expire together. 0 adds nothing.
        EXPIRATION_JITTER_MAX_SECONDS: Integer("seconds"), "300";
        /// Size of the cache of exhausted limits. Calls for a limit in it are refused without asking Redis, for 10 s at a time. 0: no cache.
        LOCAL_CACHE_SIZE_IN_BYTES: Integer("bytes"), "0";
        /// Hits above this share of a limit are counted as near the limit.
        NEAR_LIMIT_RATIO: Float, "0.8";
        /// Text in front of every counter key. Set it when several deployments share one Redis.
        CACHE_KEY_PREFIX: Text, "";
        /// When one limit of a call is exceeded, do not charge the other limits.
        STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT: Boolean, "false";
    }
    "Answers, modes and health" {
        /// Add headers with the limit, the remaining hits and the reset time to answers.
        LIMIT_RESPONSE_HEADERS_ENABLED: Boolean, "false";
        /// Name of the header with the limit.
        LIMIT_LIMIT_HEADER: Text, "RateLimit-Limit";
        /// Name of the header with the remaining hits.
        LIMIT_REMAINING_HEADER: Text, "RateLimit-Remaining";
        /// Name of the header with the seconds until the window ends.
        LIMIT_RESET_HEADER: Text, "RateLimit-Reset";
        /// Add dynamic metadata to answers.
        RESPONSE_DYNAMIC_METADATA: Boolean, "false";
        /// Count as usual, but allow every call. Use it to try limits on real traffic.
        SHADOW_MODE: Boolean, "false";
        /// Refuse a call only when all of its limits are exceeded.
        QUOTA_MODE: Boolean, "false";
        /// Be unhealthy while no domain is configured.
        HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED: Boolean, "false";
    }
    "Redis" {
        /// `host:port`, `redis://[user:password@]host:port[/database]`, or the path of a Unix socket. User, password and database may also be in the query, as `?username=..&password=..&db=..`. Not set: counters are kept in memory.
        REDIS_URL: Url, "";
        /// `tcp` or `unix`. Not set: decided by the form of REDIS_URL.
        REDIS_SOCKET_TYPE: SOCKETS, "";
        /// Kind of deployment. For a cluster, REDIS_URL is `host:port,host:port,..`; with sentinels, it is `master name,host:port,..`, with the addresses of the sentinels.
        REDIS_TYPE: REDIS_TYPES, "single";
        /// `password` or `user:password`.
        REDIS_AUTH: Secret, "";
        /// The highest number of connections to each Redis server, divided among the cores, at least one for each core.
        REDIS_POOL_SIZE: Integer("connections"), "10".unset(POOL_UNSET);
        /// The longest wait for a connection and for an answer. Workflows wait as long for a single Redis that is silent, at least a second.
        REDIS_TIMEOUT: Duration, "10s".unset(TIMEOUT_UNSET);
        /// Report unhealthy while Redis does not answer: about 5 to 9 s after Redis stopped.
        REDIS_HEALTH_CHECK_ACTIVE_CONNECTION: Boolean, "false";
        /// Connect again when Redis answers that it is a replica (READONLY), so that an address that follows the primary leads to it. Tidegate always does so, and sends the command again.
        REDIS_CLOSE_CONNECTION_ON_READONLY_ERROR: Boolean, "false";
        /// Wait after the first attempt at start. It doubles with each attempt.
        REDIS_STARTUP_INITIAL_INTERVAL: Duration, "1s";
        /// Longest wait between two attempts at start.
        REDIS_STARTUP_MAX_INTERVAL: Duration, "30s";
        /// End the start with an error after this time without an answer. 0: keep trying.
        REDIS_STARTUP_MAX_ELAPSED_TIME: Duration, "0";
        #[doc = "What to do when every connection is busy."]
        REDIS_POOL_ON_EMPTY_BEHAVIOR: Choice(&["WAIT", "CREATE", "ERROR"]), "WAIT".refused("WAIT", ON_EMPTY);
        /// Has no effect: concurrent calls share writes without waiting.
        REDIS_PIPELINE_WINDOW: Duration, "0".warned(SHARED_WRITES);
        /// Deprecated, in envoyproxy/ratelimit as well, and has no effect: the size of writes is not limited.
        REDIS_PIPELINE_LIMIT: Integer("commands"), "0".warned(OLD_LIMIT);
        /// How many nodes of a cluster a call asks at once. 1: one by one; stops at the first that fails. 0: REDIS_POOL_SIZE, or 10 if that is not set. Never more than that.
        REDIS_CLUSTER_PIPELINE_PARALLELISM: Integer("nodes"), "1";
        /// `password` or `user:password` for the sentinels. Not set: what stands in the first address of a sentinel in REDIS_URL that has some, as in `mymaster,redis://:password@host:26379`.
        REDIS_SENTINEL_AUTH: Secret, "";
        /// Use TLS to Redis and to sentinels. A URL that begins with `rediss://` has the same effect.
        REDIS_TLS: Boolean, "false";
        /// File with the client certificate, PEM. Used only together with its key. Renewed files are used by the next connections, here and in the two rows below.
        REDIS_TLS_CLIENT_CERT: Path, "";
        /// File with the key of the client certificate, PEM.
        REDIS_TLS_CLIENT_KEY: Path, "";
        /// File with authorities that are trusted in addition to the system's, PEM.
        REDIS_TLS_CACERT: Path, "";
        /// Accept certificates of another host name. The chain is still verified.
        REDIS_TLS_SKIP_HOSTNAME_VERIFICATION: Boolean, "false";
    }
    "Second Redis, for limits per second" {
        /// Count limits per second in another Redis.
        REDIS_PERSECOND: Boolean, "false";
        /// As REDIS_URL.
        REDIS_PERSECOND_URL: Url, "";
        /// As REDIS_SOCKET_TYPE.
        REDIS_PERSECOND_SOCKET_TYPE: SOCKETS, "";
        /// As REDIS_TYPE.
        REDIS_PERSECOND_TYPE: REDIS_TYPES, "single";
        /// As REDIS_AUTH.
        REDIS_PERSECOND_AUTH: Secret, "";
        /// As REDIS_POOL_SIZE.
        REDIS_PERSECOND_POOL_SIZE: Integer("connections"), "10".unset(POOL_UNSET);
        /// As REDIS_TIMEOUT.
        REDIS_PERSECOND_TIMEOUT: Duration, "10s".unset(TIMEOUT_UNSET);
        /// As REDIS_POOL_ON_EMPTY_BEHAVIOR.
        REDIS_PERSECOND_POOL_ON_EMPTY_BEHAVIOR: Choice(&["WAIT", "CREATE", "ERROR"]), "WAIT".refused("WAIT", ON_EMPTY);
        /// Has no effect, as REDIS_PIPELINE_WINDOW.
        REDIS_PERSECOND_PIPELINE_WINDOW: Duration, "0".warned(SHARED_WRITES);
        /// Deprecated, and has no effect, as REDIS_PIPELINE_LIMIT.
        REDIS_PERSECOND_PIPELINE_LIMIT: Integer("commands"), "0".warned(OLD_LIMIT);
        /// As REDIS_CLUSTER_PIPELINE_PARALLELISM.
        REDIS_PERSECOND_CLUSTER_PIPELINE_PARALLELISM: Integer("nodes"), "1";
        /// As REDIS_SENTINEL_AUTH.
        REDIS_PERSECOND_SENTINEL_AUTH: Secret, "";
        /// As REDIS_TLS, with the same certificates.
        REDIS_PERSECOND_TLS: Boolean, "false";
    }
    "Memcached" {
        /// Addresses of the servers, `host:port,host:port,..`, or paths of Unix sockets. Their order decides where counters are, so it is the same for all that share them.
        MEMCACHE_HOST_PORT: List, "";
        /// Instead of addresses: a DNS name `_service._proto.name` with an SRV record for each server, used in the order of names and ports. The start fails if DNS does not know the name.
        MEMCACHE_SRV: Text, "";
        /// Wait between two look-ups of that name. A look-up that fails changes nothing. 0: it is looked up at start only.
        MEMCACHE_SRV_REFRESH: Duration, "0";
        /// Servers of DNS that are asked for MEMCACHE_SRV, `address:port,..`. Not set: those of /etc/resolv.conf, whose domains and options hold in both cases.
        TIDEGATE_DNS_SERVERS: List, "";
        /// Has no effect: the calls of a core share one connection to each server.
        MEMCACHE_MAX_IDLE_CONNS: Integer("connections"), "2".warned(SHARED_LINKS);
        /// Use TLS to the servers.
        MEMCACHE_TLS: Boolean, "false";
        /// File with the client certificate, PEM. Used only together with its key. Renewed files are used by the next connections, here and in the two rows below.
        MEMCACHE_TLS_CLIENT_CERT: Path, "";
        /// File with the key of the client certificate, PEM.
        MEMCACHE_TLS_CLIENT_KEY: Path, "";
        /// File with authorities that are trusted in addition to the system's, PEM.
        MEMCACHE_TLS_CACERT: Path, "";
        /// Accept certificates of another host name. The chain is still verified.
        MEMCACHE_TLS_SKIP_HOSTNAME_VERIFICATION: Boolean, "false";
    }
    "Tracing" {
        /// Send traces to a collector of OpenTelemetry: of calls of rate limits, of calls that create workflows, and of the attempts of their jobs. The variables below have no effect without it.
        TRACING_ENABLED: Boolean, "false";
        /// `service.name` of the traces.
        TRACING_SERVICE_NAME: Text, "RateLimit";
        /// `service.namespace` of the traces.
        TRACING_SERVICE_NAMESPACE: Text, "";
        /// `service.instance.id` of the traces.
        TRACING_SERVICE_INSTANCE_ID: Text, "".unset("a random UUID");
        /// How traces are sent: as protobuf over HTTP/1.1, or by gRPC.
        TRACING_EXPORTER_PROTOCOL: Choice(&["http", "grpc"]), "http";
        /// Share of calls that are traced, from 0 to 1. If the headers of a call (`traceparent`, `b3`, `x-b3-*`) decide, they count. A traced call costs about twice as much. Attempts of jobs are traced if the creation of their workflow was.
        TRACING_SAMPLING_RATE: Float, "1";
        /// Address of the collector, such as `http://collector:4318` or `https://collector:4317`. For HTTP, `/v1/traces` is put after its path. For gRPC it may be `host:port`, which is with TLS unless OTEL_EXPORTER_OTLP_INSECURE is true.
        OTEL_EXPORTER_OTLP_ENDPOINT: Url, "".unset("`http://localhost:4318`, or `http://localhost:4317` for gRPC");
        /// Headers sent with traces: `name=value,other=value`, with values encoded as in URLs.
        OTEL_EXPORTER_OTLP_HEADERS: Secret, "";
        /// Milliseconds that one attempt to send may take.
        OTEL_EXPORTER_OTLP_TIMEOUT: Text, "10000";
        /// `gzip` compresses what is sent.
        OTEL_EXPORTER_OTLP_COMPRESSION: Text, "none";
        /// File with authorities that are trusted in addition to the system's, PEM. This file and those of the client certificate are read at each connection.
        OTEL_EXPORTER_OTLP_CERTIFICATE: Path, "";
        /// File with the client certificate, PEM.
        OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE: Path, "";
        /// File with the key of the client certificate, PEM.
        OTEL_EXPORTER_OTLP_CLIENT_KEY: Path, "";
        /// Whether a gRPC endpoint that is written without `http://` or `https://` is without TLS.
        OTEL_EXPORTER_OTLP_INSECURE: Text, "false";
        /// As OTEL_EXPORTER_OTLP_ENDPOINT, and takes precedence; nothing is put after its path. The same holds for each of the following: it takes precedence over its namesake without `TRACES`.
        OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: Url, "";
        /// As OTEL_EXPORTER_OTLP_HEADERS.
        OTEL_EXPORTER_OTLP_TRACES_HEADERS: Secret, "";
        /// As OTEL_EXPORTER_OTLP_TIMEOUT.
        OTEL_EXPORTER_OTLP_TRACES_TIMEOUT: Text, "";
        /// As OTEL_EXPORTER_OTLP_COMPRESSION.
        OTEL_EXPORTER_OTLP_TRACES_COMPRESSION: Text, "";
        /// As OTEL_EXPORTER_OTLP_CERTIFICATE.
        OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE: Path, "";
        /// As OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE.
        OTEL_EXPORTER_OTLP_TRACES_CLIENT_CERTIFICATE: Path, "";
        /// As OTEL_EXPORTER_OTLP_CLIENT_KEY.
        OTEL_EXPORTER_OTLP_TRACES_CLIENT_KEY: Path, "";
        /// As OTEL_EXPORTER_OTLP_INSECURE.
        OTEL_EXPORTER_OTLP_TRACES_INSECURE: Text, "";
        /// Milliseconds that a traced call may wait for others that are sent with it.
        OTEL_BSP_SCHEDULE_DELAY: Text, "5000";
    }
}
