//! The address of one server, in any of its forms.

use tidegate_pipeline::{Address, Credentials};

#[derive(Debug, PartialEq)]
pub(super) struct Target {
    pub(super) address: Address,
    pub(super) credentials: Option<Credentials>,
    pub(super) database: u32,
    /// `rediss://`: over TLS, whatever else is set.
    pub(super) tls: bool,
}

/// Reads an address in any of its forms. `socket` is `tcp`, `unix` or empty.
pub(super) fn target(url: &str, socket: &str) -> Result<Target, String> {
    if url.is_empty() {
        return Err("it is set but empty; unset it, or name a server".to_owned());
    }
    let tls = url.starts_with("rediss://");
    match url.strip_prefix("redis://").or_else(|| url.strip_prefix("rediss://")) {
        Some(rest) => uri(rest, tls),
        None => bare(url, socket),
    }
}

/// Reads `host:port` or a path.
fn bare(text: &str, socket: &str) -> Result<Target, String> {
    let address = match socket {
        "unix" => Address::Unix(text.into()),
        _ => text.parse().map_err(|_| {
            "expected host:port, redis://[user:password@]host:port[/database] or the path of a Unix socket".to_owned()
        })?,
    };
    if socket == "tcp" && matches!(address, Address::Unix(_)) {
        return Err("it is a path, but the socket type is tcp; expected host:port".to_owned());
    }
    Ok(Target { address, credentials: None, database: 0, tls: false })
}

/// Reads what follows the `//`: `[user:password@]host[:port][/database]`.
fn uri(text: &str, tls: bool) -> Result<Target, String> {
    let (user, rest) = text.rsplit_once('@').map_or((None, text), |(user, rest)| (Some(user), rest));
    let (host, database) = rest.split_once('/').unwrap_or((rest, ""));
    let database = match database.split('?').next() {
        None | Some("") => 0,
        Some(number) => number.parse().map_err(|_| "expected the number of a database after the /".to_owned())?,
    };
    let has_port = host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    let host = if has_port { host.to_owned() } else { format!("{host}:6379") };
    let address = host.parse().map_err(|_| "expected host:port after the //".to_owned())?;
    Ok(Target { address, credentials: user.map(credentials), database, tls })
}

fn credentials(user: &str) -> Credentials {
    match user.split_once(':') {
        Some((name, password)) => {
            Credentials { username: Some(decoded(name)).filter(|name| !name.is_empty()), password: decoded(password) }
        }
        None => Credentials { username: None, password: decoded(user) },
    }
}

/// Undoes percent coding. What is not a triple such as `%41` stays as it is.
fn decoded(text: &str) -> String {
    percent_encoding::percent_decode_str(text).decode_utf8_lossy().into_owned()
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
            tls: url.starts_with("rediss"),
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
        check("rediss://redis:1", "", "redis:1", None, 0);
        check("redis://:p@ss@redis:1", "", "redis:1", Some((None, "p@ss")), 0);
        for (url, socket) in [("", ""), ("redis", ""), ("/run/x", "tcp"), ("redis://redis:1/x", ""), ("a:b:c", "")] {
            assert!(target(url, socket).is_err(), "{url}");
        }
    }
}
