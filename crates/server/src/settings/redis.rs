//! How to reach Redis: the reference's variables as the engine's configuration.

use std::time::Duration;

use tidegate_pipeline::{Address, Config, Credentials};

use super::read::Values;
use super::value::mask_urls;

/// The main Redis, and perhaps one more.
#[derive(Debug, Clone)]
pub struct Redis {
    /// For every limit, or all but those per second.
    pub main: RedisServer,
    /// For limits per second.
    pub per_second: Option<RedisServer>,
    /// First wait between two tries at start.
    pub startup_initial: Duration,
    /// Longest wait between two tries at start.
    pub startup_max: Duration,
    /// When the start is given up; none is never.
    pub startup_give_up: Option<Duration>,
    /// Whether health follows the connection, or only the start.
    pub health: HealthCheck,
}

/// What health says about Redis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HealthCheck {
    /// Healthy once it answered at start.
    AtStart,
    /// Healthy while it answers.
    Always,
}

/// One Redis server.
#[derive(Debug, Clone)]
pub struct RedisServer {
    /// For the engine; its bounds are per core.
    pub config: Config,
    /// The address as it may be shown.
    pub shown: String,
    /// Longest wait for an answer.
    pub timeout: Duration,
}

/// The names of one server's variables.
struct Names {
    url: &'static str,
    socket: &'static str,
    auth: &'static str,
    pool: &'static str,
    timeout: &'static str,
}

const MAIN: Names = Names {
    url: "REDIS_URL",
    socket: "REDIS_SOCKET_TYPE",
    auth: "REDIS_AUTH",
    pool: "REDIS_POOL_SIZE",
    timeout: "REDIS_TIMEOUT",
};

const PER_SECOND: Names = Names {
    url: "REDIS_PERSECOND_URL",
    socket: "REDIS_PERSECOND_SOCKET_TYPE",
    auth: "REDIS_PERSECOND_AUTH",
    pool: "REDIS_PERSECOND_POOL_SIZE",
    timeout: "REDIS_PERSECOND_TIMEOUT",
};

pub(super) fn build(values: &mut Values, cores: usize) -> Option<Redis> {
    let second = values.boolean("REDIS_PERSECOND");
    if !values.given.contains(MAIN.url) {
        if second {
            let reason = "limits per second cannot have a Redis of their own without REDIS_URL".to_owned();
            values.problem("REDIS_PERSECOND", "true", reason);
        }
        return None;
    }
    let main = server(values, &MAIN, cores)?;
    let per_second = if second { Some(server(values, &PER_SECOND, cores)?) } else { None };
    let give_up = values.duration("REDIS_STARTUP_MAX_ELAPSED_TIME");
    let health =
        if values.boolean("REDIS_HEALTH_CHECK_ACTIVE_CONNECTION") { HealthCheck::Always } else { HealthCheck::AtStart };
    Some(Redis {
        main,
        per_second,
        startup_initial: values.positive_duration("REDIS_STARTUP_INITIAL_INTERVAL"),
        startup_max: values.positive_duration("REDIS_STARTUP_MAX_INTERVAL"),
        startup_give_up: Some(give_up).filter(|time| !time.is_zero()),
        health,
    })
}

fn server(values: &mut Values, names: &Names, cores: usize) -> Option<RedisServer> {
    let url = values.text(names.url);
    let socket = values.text(names.socket);
    let target = match target(&url, &socket) {
        Ok(target) => target,
        Err(reason) => {
            values.problem(names.url, &url, reason);
            return None;
        }
    };
    let shown = mask_urls(&target.address.to_string());
    let mut config = Config::single(target.address);
    config.database = target.database;
    config.credentials = credentials(&values.text(names.auth)).or(target.credentials);
    // The reference's number is for the whole process; ours is per core.
    let pool = values.integer(names.pool, 1..=65_536) as usize;
    if values.given.contains(names.pool) {
        config.max_connections = pool.div_ceil(cores);
    }
    let timeout = values.positive_duration(names.timeout);
    config.connect_timeout =
        if values.given.contains(names.timeout) { timeout } else { timeout.min(config.connect_timeout) };
    Some(RedisServer { config, shown, timeout })
}

#[derive(Debug, PartialEq)]
struct Target {
    address: Address,
    credentials: Option<Credentials>,
    database: u32,
}

/// Reads an address in any of its forms; `socket` is `tcp`, `unix` or empty.
fn target(url: &str, socket: &str) -> Result<Target, String> {
    let plain = |address| Target { address, credentials: None, database: 0 };
    if url.is_empty() {
        return Err("it is set but empty; unset it to count in memory".to_owned());
    }
    if url.starts_with("rediss://") {
        return Err("this version does not speak TLS; expected redis://".to_owned());
    }
    let Some(rest) = url.strip_prefix("redis://") else {
        if socket == "unix" {
            return Ok(plain(Address::Unix(url.into())));
        }
        let address: Address = url.parse().map_err(|_| {
            "expected host:port, redis://[user:password@]host:port[/database] or the path of a unix socket".to_owned()
        })?;
        if socket == "tcp" && matches!(address, Address::Unix(_)) {
            return Err("it is a path, and the socket type is tcp; expected host:port".to_owned());
        }
        return Ok(plain(address));
    };
    let (user, rest) = rest.rsplit_once('@').map_or((None, rest), |(user, rest)| (Some(user), rest));
    let (host, database) = rest.split_once('/').unwrap_or((rest, ""));
    let database = match database.split('?').next() {
        None | Some("") => 0,
        Some(number) => number.parse().map_err(|_| "expected the number of a database after the /".to_owned())?,
    };
    let has_port = host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    let host = if has_port { host.to_owned() } else { format!("{host}:6379") };
    let address = host.parse().map_err(|_| "expected host:port after redis://".to_owned())?;
    let credentials = user.map(|user| match user.split_once(':') {
        Some((name, password)) => {
            Credentials { username: Some(decoded(name)).filter(|name| !name.is_empty()), password: decoded(password) }
        }
        None => Credentials { username: None, password: decoded(user) },
    });
    Ok(Target { address, credentials, database })
}

/// `password` or `user:password`.
fn credentials(text: &str) -> Option<Credentials> {
    let (username, password) =
        text.split_once(':').map_or((None, text), |(name, password)| (Some(name.to_owned()), password));
    (!text.is_empty()).then(|| Credentials { username, password: password.to_owned() })
}

/// Replaces `%41` by `A`; what is not such a triple stays.
fn decoded(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.as_bytes();
    while let [first, rest @ ..] = bytes {
        let hex = rest.get(..2).and_then(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok());
        match (first, hex) {
            (b'%', Some(byte)) => {
                out.push(byte);
                bytes = &rest[2..];
            }
            _ => {
                out.push(*first);
                bytes = rest;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(url: &str, socket: &str, address: &str, login: Option<(Option<&str>, &str)>, database: u32) {
        let expected = Target {
            address: address.parse().unwrap(),
            credentials: login.map(|(username, password)| Credentials {
                username: username.map(str::to_owned),
                password: password.to_owned(),
            }),
            database,
        };
        assert_eq!(target(url, socket), Ok(expected), "{url}");
    }

    #[test]
    fn urls_are_read_in_every_form() {
        check("redis:6379", "tcp", "redis:6379", None, 0);
        check("redis:6379", "", "redis:6379", None, 0);
        check("/run/redis.sock", "", "/run/redis.sock", None, 0);
        check("/run/redis.sock", "unix", "/run/redis.sock", None, 0);
        check("redis://redis", "", "redis:6379", None, 0);
        check("redis://[::1]:7/2", "unix", "[::1]:7", None, 2);
        check("redis://ada:p%40ss@redis:1/3?x=y", "", "redis:1", Some((Some("ada"), "p@ss")), 3);
        check("redis://:p@ss@redis:1", "", "redis:1", Some((None, "p@ss")), 0);
        for (url, socket) in [
            ("", ""),
            ("redis", ""),
            ("rediss://redis:1", ""),
            ("/run/x", "tcp"),
            ("redis://redis:1/x", ""),
            ("a:b:c", ""),
        ] {
            assert!(target(url, socket).is_err(), "{url}");
        }
    }

    #[test]
    fn auth_splits_at_the_first_colon() {
        assert_eq!(credentials(""), None);
        assert_eq!(credentials("p").unwrap().password, "p");
        let login = credentials("ada:p:q").unwrap();
        assert_eq!((login.username.as_deref(), login.password.as_str()), (Some("ada"), "p:q"));
    }
}
