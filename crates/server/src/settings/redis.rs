//! How to reach Redis: the reference's variables as the engine's configuration.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use tidegate_pipeline::{Address, Config, Connector, CredentialsProvider, Parallelism, Servers};

use super::memcache;
use super::problem::Problem;
use super::read::Values;
use super::value::mask_urls;
use crate::regular_file;

mod address_map;
mod target;
pub(super) mod tls;

use address_map::address_map;
use target::{Login, Target, target};

/// The main Redis, and a second one if wanted.
#[derive(Debug, Clone)]
pub struct Redis {
    /// Counts all limits, or all but those per second.
    pub main: RedisServer,
    /// Counts limits per second.
    pub per_second: Option<RedisServer>,
    /// The wait after the first attempt at start.
    pub startup_initial: Duration,
    /// The longest wait between two attempts at start.
    pub startup_max: Duration,
    /// How long the start keeps trying. None: without a bound.
    pub startup_give_up: Option<Duration>,
    /// When health depends on Redis.
    pub health: HealthCheck,
}

impl Redis {
    /// Lets a silent server be waited for as long as calls wait, so that a pause of it fails no call that has time left.
    pub(super) fn with_call_timeout(self, call_timeout: Duration) -> Self {
        let patient = |server: RedisServer| {
            let wait = call_timeout.min(server.timeout);
            server.with_patience(wait)
        };
        Self {
            main: patient(self.main),
            per_second: self.per_second.map(patient),
            ..self
        }
    }
}

/// When health depends on Redis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HealthCheck {
    /// At start only: healthy from the first answer on.
    AtStart,
    /// Always: healthy while Redis answers.
    Always,
}

/// One Redis server.
#[derive(Debug, Clone)]
pub struct RedisServer {
    /// For the engine. Its bounds are per core.
    pub config: Config,
    /// The address without credentials, for people and logs.
    pub shown: String,
    /// The settings that messages about it name.
    pub origin: SettingsOrigin,
    /// The longest wait for an answer.
    pub timeout: Duration,
}

/// The settings of one server, for messages.
#[derive(Debug, Clone)]
pub struct SettingsOrigin {
    /// The setting with its address.
    pub url: &'static str,
    /// The setting that says what kind of deployment it is.
    pub kind: &'static str,
    /// Where user and password come from.
    pub auth: String,
    /// The setting with user and password for sentinels.
    pub sentinel_auth: &'static str,
}

impl RedisServer {
    /// Lets a silent server be waited for as long as calls wait.
    fn with_patience(mut self, wait: Duration) -> Self {
        let config = &mut self.config;
        config.silence_timeout = config.silence_timeout.max(wait);
        config.stall_timeout = config.stall_timeout.max(wait);
        self
    }
}

impl fmt::Display for Redis {
    /// Where counters are, without credentials.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "redis at {}", self.main.shown)?;
        match &self.per_second {
            Some(second) => write!(f, ", limits per second at {}", second.shown),
            None => Ok(()),
        }
    }
}

/// The names of one server's variables.
struct Names {
    url: &'static str,
    kind: &'static str,
    sentinel_auth: &'static str,
    tls: &'static str,
    /// The name in the certificates, where the addresses are not in them.
    server_name: &'static str,
    address_map: &'static str,
    auth: &'static str,
    /// The file with credentials that change.
    auth_file: Option<&'static str>,
    timeout: &'static str,
    /// The form of the address, where the URL alone does not decide.
    socket: Option<&'static str>,
    /// How many connections, and how many nodes at once; None where the defaults count.
    load: Option<Load>,
}

struct Load {
    pool: &'static str,
    parallelism: &'static str,
}

const MAIN: Names = Names {
    url: "REDIS_URL",
    kind: "REDIS_TYPE",
    sentinel_auth: "REDIS_SENTINEL_AUTH",
    tls: "REDIS_TLS",
    server_name: "TIDEGATE_REDIS_TLS_SERVER_NAME",
    address_map: "TIDEGATE_REDIS_ADDRESS_MAP",
    auth: "REDIS_AUTH",
    auth_file: Some("TIDEGATE_REDIS_AUTH_FILE"),
    timeout: "REDIS_TIMEOUT",
    socket: Some("REDIS_SOCKET_TYPE"),
    load: Some(Load {
        pool: "REDIS_POOL_SIZE",
        parallelism: "REDIS_CLUSTER_PIPELINE_PARALLELISM",
    }),
};

const PER_SECOND: Names = Names {
    url: "REDIS_PERSECOND_URL",
    kind: "REDIS_PERSECOND_TYPE",
    sentinel_auth: "REDIS_PERSECOND_SENTINEL_AUTH",
    tls: "REDIS_PERSECOND_TLS",
    server_name: "TIDEGATE_REDIS_TLS_SERVER_NAME",
    address_map: "TIDEGATE_REDIS_ADDRESS_MAP",
    auth: "REDIS_PERSECOND_AUTH",
    auth_file: None,
    timeout: "REDIS_PERSECOND_TIMEOUT",
    socket: Some("REDIS_PERSECOND_SOCKET_TYPE"),
    load: Some(Load {
        pool: "REDIS_PERSECOND_POOL_SIZE",
        parallelism: "REDIS_PERSECOND_CLUSTER_PIPELINE_PARALLELISM",
    }),
};

const STORE: Names = Names {
    url: "TIDEGATE_STORE_URL",
    kind: "TIDEGATE_STORE_TYPE",
    sentinel_auth: "TIDEGATE_STORE_SENTINEL_AUTH",
    tls: "TIDEGATE_STORE_TLS",
    server_name: "TIDEGATE_STORE_TLS_SERVER_NAME",
    address_map: "TIDEGATE_STORE_ADDRESS_MAP",
    auth: "TIDEGATE_STORE_AUTH",
    auth_file: Some("TIDEGATE_STORE_AUTH_FILE"),
    timeout: "TIDEGATE_STORE_TIMEOUT",
    socket: None,
    load: None,
};
/// The most bytes of a file with credentials: tokens of clouds have a few KiB.
const CREDENTIALS_BYTES: u64 = 64 * 1024;
/// In place of the address of a Redis: workflows are in a file.
const FILE: &str = "file";
/// In place of it: workflows are in this process.
const MEMORY: &str = "memory";

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
    let give_up = values.duration("REDIS_STARTUP_MAX_ELAPSED_TIME");
    let health = if values.boolean("REDIS_HEALTH_CHECK_ACTIVE_CONNECTION") {
        HealthCheck::Always
    } else {
        HealthCheck::AtStart
    };
    Some(Redis {
        main,
        per_second,
        startup_initial: values.positive_duration("REDIS_STARTUP_INITIAL_INTERVAL"),
        startup_max: values.positive_duration("REDIS_STARTUP_MAX_INTERVAL"),
        startup_give_up: Some(give_up).filter(|time| !time.is_zero()),
        health,
    })
}

/// Whether workflows are in this process, and lost with it.
pub(super) fn is_memory(values: &Values) -> bool {
    values.text(STORE.url) == MEMORY
}

/// The Redis of the workflows, which is the one of the counters unless they have their own. None: they are in a file or in memory.
///
/// Calls of workflows wait for an answer as long as its timeout says, whatever calls of limits do, and a pause that is shorter
/// fails none of them.
pub(super) fn store(
    values: &mut Values,
    counters: Option<&RedisServer>,
    cores: usize,
) -> Option<RedisServer> {
    let server = store_server(values, counters, cores)?;
    let wait = server.timeout;
    Some(server.with_patience(wait))
}

fn store_server(
    values: &mut Values,
    counters: Option<&RedisServer>,
    cores: usize,
) -> Option<RedisServer> {
    let (given, url) = (values.given.contains(STORE.url), values.text(STORE.url));
    if given && url != FILE && url != MEMORY {
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
            values.problems.push(Problem {
                variable: name.to_owned(),
                value: None,
                reason,
            });
        }
    }
    counters.filter(|_| !given).cloned()
}

/// Refuses what makes no sense without REDIS_URL.
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

fn server(values: &mut Values, names: &Names, cores: usize) -> Option<RedisServer> {
    let url = values.text(names.url);
    let found = match deployment(values, names, &url) {
        Ok(found) => found,
        Err(reason) => {
            let more = if names.url == STORE.url {
                "; or file, for a file in TIDEGATE_DATA_DIR; or memory, for tests"
            } else {
                ""
            };
            values.problem(names.url, &url, reason + more);
            return None;
        }
    };
    if found.has_unknown_fields {
        let name = names.url;
        values.warnings.push(format!(
            "the query of {name} has fields that have no effect: only username, password and db have one"
        ));
    }
    let mut config = Config::single(found.first);
    config.servers = found.servers;
    config.database = found.database;
    config.credentials = Login::from_setting(&values.text(names.auth))
        .or(found.login)
        .credentials();
    let auth = auth(values, names, config.credentials.is_some());
    config.credentials_provider = names.auth_file.and_then(|name| provider(values, name));
    if values.boolean(names.tls) || found.tls {
        config.tls = tls::build(values, &tls::REDIS)
            .and_then(|connector| with_server_name(values, names, connector));
    }
    config.address_map = address_map(&values.list(names.address_map)).unwrap_or_else(|reason| {
        values.problem(
            names.address_map,
            &values.list(names.address_map).join(","),
            reason,
        );
        None
    });
    if let Some(load) = &names.load {
        connections(values, load, cores, &mut config);
    }
    let timeout = values.positive_duration(names.timeout);
    config.connect_timeout = if values.given.contains(names.timeout) {
        timeout
    } else {
        timeout.min(config.connect_timeout)
    };
    let origin = SettingsOrigin {
        url: names.url,
        kind: names.kind,
        auth,
        sentinel_auth: names.sentinel_auth,
    };
    Some(RedisServer {
        config,
        shown: found.shown,
        origin,
        timeout,
    })
}

/// Expects the server name of the settings in certificates, if there is one.
fn with_server_name(values: &mut Values, names: &Names, connector: Connector) -> Option<Connector> {
    let name = values.text(names.server_name);
    if name.is_empty() {
        return Some(connector);
    }
    match connector.with_server_name(&name) {
        Ok(named) => Some(named),
        Err(_) => {
            values.problem(
                names.server_name,
                &name,
                "expected a host name or an address, without a port".to_owned(),
            );
            None
        }
    }
}

/// Where user and password come from.
fn auth(values: &Values, names: &Names, given: bool) -> String {
    if let Some(name) = names.auth_file.filter(|name| !values.text(name).is_empty()) {
        return format!("the file that {name} names");
    }
    match (values.text(names.auth).is_empty(), given) {
        (false, _) => names.auth.to_owned(),
        (true, true) => format!("the user and password in {}", names.url),
        (true, false) => format!("{}, which is not set", names.auth),
    }
}

/// How many connections there are, and how many nodes a call talks to at a time.
fn connections(values: &mut Values, names: &Load, cores: usize, config: &mut Config) {
    // The reference's number is for the whole process; ours is per core.
    let pool = values.integer(names.pool, 1..=65_536) as usize;
    if values.given.contains(names.pool) {
        config.max_connections = pool.div_ceil(cores);
    }
    let parallelism = values.integer(names.parallelism, i64::MIN..=i64::MAX);
    match Parallelism::new(parallelism, pool) {
        Ok(parallelism) => config.parallelism = parallelism,
        Err(error) => values.problem(
            names.parallelism,
            &parallelism.to_string(),
            error.to_string(),
        ),
    }
}

/// What the URLs of a deployment say.
struct Deployment {
    servers: Servers,
    first: Address,
    /// The login at the servers that have the data.
    login: Login,
    database: u32,
    tls: bool,
    has_unknown_fields: bool,
    shown: String,
}

/// Reads a URL by the kind of deployment.
fn deployment(values: &Values, names: &Names, url: &str) -> Result<Deployment, String> {
    let socket = names
        .socket
        .map(|name| values.text(name))
        .unwrap_or_default();
    let kind = values.text(names.kind).to_lowercase();
    if kind == "single" {
        let host = url.rsplit('@').next().unwrap_or_default();
        if host.contains(',') && !host.starts_with('/') && socket != "unix" {
            let kind = names.kind;
            return Err(format!(
                "it names several servers, which need {kind}=cluster, or {kind}=sentinel after the name of a master"
            ));
        }
        let Target {
            address,
            login,
            database,
            tls,
            has_unknown_fields,
        } = target(url, &socket)?;
        let (servers, shown) = (
            Servers::Single(address.clone()),
            mask_urls(&address.to_string()),
        );
        return Ok(Deployment {
            servers,
            first: address,
            login,
            database,
            tls,
            has_unknown_fields,
            shown,
        });
    }
    let mut parts = url.split(',').map(str::trim).collect::<Vec<_>>();
    let master = if kind == "sentinel" {
        Some(parts.remove(0).to_owned())
    } else {
        None
    };
    if parts.is_empty() || master.as_deref() == Some("") {
        return Err(NO_SENTINELS.to_owned());
    }
    // Nodes of a cluster and sentinels are reached over TCP only.
    let targets = parts
        .into_iter()
        .map(|part| target(part, "tcp"))
        .collect::<Result<Vec<_>, _>>()?;
    let addresses: Vec<Address> = targets
        .iter()
        .map(|target| target.address.clone())
        .collect();
    let list = addresses
        .iter()
        .map(|address| mask_urls(&address.to_string()))
        .collect::<Vec<_>>()
        .join(",");
    let has_unknown_fields = targets.iter().any(|target| target.has_unknown_fields);
    let Target {
        address: first,
        login,
        tls,
        ..
    } = merge_targets(targets)?;
    let (servers, login, shown) = match master {
        None => (
            Servers::Cluster(addresses),
            login,
            format!("cluster {list}"),
        ),
        Some(master) => {
            let shown = format!("{master} by sentinels {list}");
            // The URLs are those of sentinels, and so are their users. As in radix, the servers that they name have others.
            let credentials = Login::from_setting(&values.text(names.sentinel_auth))
                .or(login)
                .credentials();
            (
                Servers::Sentinel {
                    master,
                    sentinels: addresses,
                    credentials,
                },
                Login::default(),
                shown,
            )
        }
    };
    Ok(Deployment {
        servers,
        first,
        login,
        database: 0,
        tls,
        has_unknown_fields,
        shown,
    })
}

/// Merges the URLs of several servers. The user, the password and TLS of one of them hold for all.
fn merge_targets(targets: Vec<Target>) -> Result<Target, String> {
    if targets.iter().any(|target| target.database != 0) {
        return Err(
            "servers of a cluster, and sentinels, have no other database than 0".to_owned(),
        );
    }
    let merge = |one: Target, other: Target| {
        let is_same = other.login == Login::default()
            || one.login == Login::default()
            || one.login == other.login;
        let login = one.login.or(other.login);
        is_same.then_some(Target {
            login,
            tls: one.tls || other.tls,
            ..one
        })
    };
    let mut targets = targets.into_iter();
    let first = targets.next().ok_or_else(|| NO_SENTINELS.to_owned())?;
    targets.try_fold(first, merge).ok_or_else(|| {
        "its addresses have different users or passwords; one login holds for all".to_owned()
    })
}

const NO_SENTINELS: &str = "Expected master name and a list of urls for the sentinels, in the format: <redis master name>,<sentinel1>,...,<sentineln>";

/// Reads the file with credentials: once now, to report a mistake at start, and again at every connect.
fn provider(values: &mut Values, name: &'static str) -> Option<CredentialsProvider> {
    let path = values.text(name);
    if path.is_empty() {
        return None;
    }
    let file = path.clone();
    let read = move || match regular_file::read_text(Path::new(&file), CREDENTIALS_BYTES) {
        Ok(text) => Login::from_setting(text.trim())
            .credentials()
            .ok_or_else(|| format!("{file} is empty")),
        Err(error) => Err(format!("cannot read {file}: {error}")),
    };
    if let Err(reason) = read() {
        values.problem(name, &path, reason);
    }
    Some(CredentialsProvider::new(read))
}
