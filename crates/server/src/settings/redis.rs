//! Settings of Redis: builds the configuration of the client from the variables of the reference.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use tidegate_api::Scope;
use tidegate_pipeline::{Config, Connector, CredentialsProvider, Parallelism, Servers};

use super::memcache;
use super::read::Values;

use crate::base::file;

mod address_map;
mod deployment;
mod target;
pub(crate) mod tls;

use address_map::address_map;
use deployment::{Deployment, deployment};
use target::{Login, RedisTarget};

/// The main Redis, and an optional one for limits per second.
#[derive(Debug, Clone)]
pub struct Redis {
    /// Redis for the counters of all limits, or of all but those per second.
    pub main: RedisServer,
    /// Redis for the counters of limits per second.
    pub per_second: Option<RedisServer>,
    /// Wait after the first attempt to connect at start.
    pub startup_initial: Duration,
    /// Longest wait between two attempts to connect at start.
    pub startup_max: Duration,
    /// Time after which the start fails. None for no limit.
    pub startup_give_up: Option<Duration>,
    /// Dependency of health on Redis.
    pub health: HealthCheck,
}

impl Redis {
    /// Raises the silence timeouts to the call timeout, so that a pause of a server fails no call
    /// that has time left.
    pub(super) fn with_call_timeout(self, call_timeout: Duration) -> Self {
        let with_timeout = |server: RedisServer| {
            let wait = call_timeout.min(server.timeout);
            server.with_silence_timeout(wait)
        };
        Self {
            main: with_timeout(self.main),
            per_second: self.per_second.map(with_timeout),
            ..self
        }
    }
}

/// Dependency of health on Redis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HealthCheck {
    /// At start only: healthy after the first answer.
    AtStart,
    /// Always: healthy while Redis answers.
    Always,
}

/// Settings of one Redis deployment.
#[derive(Debug, Clone)]
pub struct RedisServer {
    /// Configuration of the client. Its limits are per core.
    pub config: Config,
    /// The address without credentials, for people and logs.
    pub shown: String,
    /// Names of the settings, for messages.
    pub origin: SettingsOrigin,
    /// Timeout of an answer.
    pub timeout: Duration,
}

/// Names of the settings of one deployment, for messages.
#[derive(Debug, Clone)]
pub struct SettingsOrigin {
    /// Setting with the address.
    pub url: &'static str,
    /// Setting with the kind of deployment.
    pub kind: &'static str,
    /// Origin of user and password.
    pub auth: String,
    /// Setting with user and password for sentinels.
    pub sentinel_auth: &'static str,
}

impl RedisServer {
    /// Raises the timeouts for a server without answers to at least `wait`.
    fn with_silence_timeout(mut self, wait: Duration) -> Self {
        let config = &mut self.config;
        config.silence_timeout = config.silence_timeout.max(wait);
        config.stall_timeout = config.stall_timeout.max(wait);
        self
    }
}

impl fmt::Display for Redis {
    /// The location of the counters, without credentials.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "redis at {}", self.main.shown)?;
        match &self.per_second {
            Some(second) => write!(f, ", limits per second at {}", second.shown),
            None => Ok(()),
        }
    }
}

/// Names of the variables of one deployment.
struct RedisVariables {
    url: &'static str,
    kind: &'static str,
    sentinel_auth: &'static str,
    tls: &'static str,
    /// Name in the certificates, if they do not contain the addresses.
    server_name: &'static str,
    address_map: &'static str,
    auth: &'static str,
    /// File with credentials that change at run time.
    auth_file: Option<&'static str>,
    timeout: &'static str,
    /// Form of the address, if the URL does not determine it.
    socket: Option<&'static str>,
    /// Connections and parallelism. None if the defaults apply.
    load: Option<PoolVariables>,
}

struct PoolVariables {
    pool: &'static str,
    parallelism: &'static str,
}

/// Variables with a prefix for those of the reference, and a prefix for those of Tidegate.
macro_rules! redis_variables {
    ($prefix:literal, $own_prefix:literal) => {
        RedisVariables {
            url: concat!($prefix, "URL"),
            kind: concat!($prefix, "TYPE"),
            sentinel_auth: concat!($prefix, "SENTINEL_AUTH"),
            tls: concat!($prefix, "TLS"),
            server_name: concat!($own_prefix, "TLS_SERVER_NAME"),
            address_map: concat!($own_prefix, "ADDRESS_MAP"),
            auth: concat!($prefix, "AUTH"),
            auth_file: Some(concat!($own_prefix, "AUTH_FILE")),
            timeout: concat!($prefix, "TIMEOUT"),
            socket: Some(concat!($prefix, "SOCKET_TYPE")),
            load: Some(PoolVariables {
                pool: concat!($prefix, "POOL_SIZE"),
                parallelism: concat!($prefix, "CLUSTER_PIPELINE_PARALLELISM"),
            }),
        }
    };
}

const MAIN: RedisVariables = redis_variables!("REDIS_", "TIDEGATE_REDIS_");
const PER_SECOND: RedisVariables = RedisVariables {
    auth_file: None,
    ..redis_variables!("REDIS_PERSECOND_", "TIDEGATE_REDIS_")
};
const STORE: RedisVariables = RedisVariables {
    socket: None,
    load: None,
    ..redis_variables!("TIDEGATE_STORE_", "TIDEGATE_STORE_")
};
/// Size limit of a file with credentials in bytes. Tokens of cloud providers have a few KiB.
const MAX_CREDENTIALS_BYTES: u64 = 64 * 1024;
/// Value that stands for a SQLite file instead of Redis.
const FILE: &str = "file";
/// Value that stands for a store in the memory of this process.
const MEMORY: &str = "memory";
/// Value of the variable for no workflows.
const OFF: &str = "off";

pub(super) fn build(values: &mut Values, cores: usize) -> Option<Redis> {
    let second = values.boolean("REDIS_PERSECOND") && !memcache::is_wanted(values);
    if !values.given.contains(MAIN.url) {
        check_without_url(values, second);
        return None;
    }
    let main = server(values, &MAIN, cores)?;
    let per_second = if second {
        Some(server(values, &PER_SECOND, cores)?)
    } else {
        None
    };
    Some(Redis {
        main,
        per_second,
        startup_initial: values.positive_duration("REDIS_STARTUP_INITIAL_INTERVAL"),
        startup_max: values.positive_duration("REDIS_STARTUP_MAX_INTERVAL"),
        startup_give_up: values.duration_unless_zero("REDIS_STARTUP_MAX_ELAPSED_TIME"),
        health: values.either(
            "REDIS_HEALTH_CHECK_ACTIVE_CONNECTION",
            HealthCheck::Always,
            HealthCheck::AtStart,
        ),
    })
}

/// Whether workflows are stored in this process, and end with it.
pub(super) fn is_memory(values: &Values) -> bool {
    values.text(STORE.url) == MEMORY
}

/// The parts of the API that are offered: with the store `off`, limits alone.
pub(super) fn scope(values: &Values) -> Scope {
    if values.text(STORE.url) == OFF {
        Scope::LimitsReadOnly
    } else {
        Scope::Full
    }
}

/// The Redis of the workflows, which is that of the counters unless workflows have their own. None
/// if workflows are in a file or in memory.
///
/// Calls of workflows wait for an answer up to the timeout of this Redis, independent of rate
/// limits. A shorter pause fails none of them.
pub(super) fn store(
    values: &mut Values,
    counters: Option<&RedisServer>,
    cores: usize,
) -> Option<RedisServer> {
    let server = store_server(values, counters, cores)?;
    let wait = server.timeout;
    Some(server.with_silence_timeout(wait))
}

fn store_server(
    values: &mut Values,
    counters: Option<&RedisServer>,
    cores: usize,
) -> Option<RedisServer> {
    let given = values.given.contains(STORE.url);
    let url = values.text(STORE.url);
    if given && ![FILE, MEMORY, OFF].contains(&url.as_str()) {
        return server(values, &STORE, cores);
    }
    let names = [
        STORE.kind,
        STORE.auth,
        STORE.sentinel_auth,
        STORE.tls,
        STORE.timeout,
    ];
    let of_servers = [STORE.server_name, STORE.address_map];
    for name in names.into_iter().chain(of_servers).chain(STORE.auth_file) {
        if !values.is_default(name) {
            let reason = format!("it belongs to the Redis of {}, which names none", STORE.url);
            values.problem_of(name, None, reason);
        }
    }
    counters.filter(|_| !given).cloned()
}

/// Reports settings that need REDIS_URL.
fn check_without_url(values: &mut Values, second: bool) {
    if second {
        let reason = "a Redis for limits per second needs REDIS_URL as well".to_owned();
        values.problem("REDIS_PERSECOND", "true", reason);
    }
    let kind = values.text(MAIN.kind);
    if !kind.eq_ignore_ascii_case("single") {
        values.problem(
            MAIN.kind,
            &kind,
            format!("set {} to the addresses of its servers", MAIN.url),
        );
    }
}

fn server(values: &mut Values, names: &RedisVariables, cores: usize) -> Option<RedisServer> {
    let Deployment {
        servers,
        first,
        shown,
    } = reported_deployment(values, names)?;
    let mut config = client_config(values, names, servers, first);
    let dialled = values.list(names.address_map);
    let map = address_map(&dialled);
    config.address_map = values
        .reported(names.address_map, &dialled.join(","), map)
        .flatten();
    if let Some(load) = &names.load {
        connections(values, load, cores, &mut config);
    }
    let timeout = values.positive_duration(names.timeout);
    config.connect_timeout = if values.given.contains(names.timeout) {
        timeout
    } else {
        timeout.min(config.connect_timeout)
    };
    Some(RedisServer {
        origin: SettingsOrigin {
            url: names.url,
            kind: names.kind,
            auth: auth(values, names, config.credentials.is_some()),
            sentinel_auth: names.sentinel_auth,
        },
        config,
        shown,
        timeout,
    })
}

/// The deployment that the URL describes. A mistake in the URL is reported.
fn reported_deployment(values: &mut Values, names: &RedisVariables) -> Option<Deployment> {
    let url = values.text(names.url);
    let more = if names.url == STORE.url {
        "; or file, for a file in TIDEGATE_DATA_DIR; or memory, for tests"
    } else {
        ""
    };
    let deployment = deployment(values, names, &url).map_err(|reason| reason + more);
    let deployment = values.reported(names.url, &url, deployment)?;
    if deployment.first.has_unknown_fields {
        values.warnings.push(format!(
            "the query of {} has fields that have no effect: only username, password and db have one",
            names.url
        ));
    }
    Some(deployment)
}

/// Configuration of a client of these servers, with credentials, database and TLS.
fn client_config(
    values: &mut Values,
    names: &RedisVariables,
    servers: Servers,
    first: RedisTarget,
) -> Config {
    let mut config = Config::single(first.address);
    config.servers = servers;
    config.database = first.database;
    config.credentials = Login::from_setting(&values.text(names.auth))
        .or(first.login)
        .credentials();
    config.credentials_provider = names.auth_file.and_then(|name| provider(values, name));
    if values.boolean(names.tls) || first.tls {
        config.tls = connector(values, names);
    }
    config
}

/// TLS to the servers, whose certificates are verified against the server name of the settings, if
/// there is one.
fn connector(values: &mut Values, names: &RedisVariables) -> Option<Connector> {
    let connector = tls::build(values, &tls::REDIS)?;
    let Some(name) = values.filled(names.server_name) else {
        return Some(connector);
    };
    let named = connector.with_server_name(&name);
    let expected = "expected a host name or an address, without a port";
    values.reported(names.server_name, &name, named.map_err(|_| expected))
}

/// Origin of user and password, for messages.
fn auth(values: &Values, names: &RedisVariables, given: bool) -> String {
    if let Some(name) = names.auth_file.filter(|name| !values.text(name).is_empty()) {
        return format!("the file that {name} names");
    }
    match (values.text(names.auth).is_empty(), given) {
        (false, _) => names.auth.to_owned(),
        (true, true) => format!("the user and password in {}", names.url),
        (true, false) => format!("{}, which is not set", names.auth),
    }
}

/// Sets the number of connections, and the number of nodes that a call uses in parallel.
fn connections(values: &mut Values, names: &PoolVariables, cores: usize, config: &mut Config) {
    // The limit of the reference is for the whole process; that of the client is per core.
    let pool = values.integer(names.pool, 1..=65_536) as usize;
    if values.given.contains(names.pool) {
        config.max_connections = pool.div_ceil(cores);
    }
    let parallelism = values.integer(names.parallelism, i64::MIN..=i64::MAX);
    let parsed = Parallelism::new(parallelism, pool).map_err(|error| error.to_string());
    if let Some(parsed) = values.reported(names.parallelism, &parallelism.to_string(), parsed) {
        config.parallelism = parsed;
    }
}

/// Provider that reads the file with credentials at each connect. The file is also read now, to
/// report a mistake at start.
fn provider(values: &mut Values, name: &'static str) -> Option<CredentialsProvider> {
    let path = values.filled(name)?;
    let file = path.clone();
    let read = move || match file::read_text(Path::new(&file), MAX_CREDENTIALS_BYTES) {
        Ok(text) => Login::from_setting(text.trim())
            .credentials()
            .ok_or_else(|| format!("{file} is empty")),
        Err(error) => Err(format!("cannot read {file}: {error}")),
    };
    values.reported(name, &path, read());
    Some(CredentialsProvider::new(read))
}
