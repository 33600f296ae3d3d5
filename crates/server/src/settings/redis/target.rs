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

/// Reads an address in any of its forms; `socket` is `tcp`, `unix` or empty.
pub(super) fn target(url: &str, socket: &str) -> Result<Target, String> {
    let plain = |address| Target { address, credentials: None, database: 0, tls: false };
    if url.is_empty() {
        return Err("it is set but empty; unset it to count in memory".to_owned());
    }
    let tls = url.starts_with("rediss://");
    let Some(rest) = url.strip_prefix("redis://").or_else(|| url.strip_prefix("rediss://")) else {
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
    let address = host.parse().map_err(|_| "expected host:port after the //".to_owned())?;
    let credentials = user.map(|user| match user.split_once(':') {
        Some((name, password)) => {
            Credentials { username: Some(decoded(name)).filter(|name| !name.is_empty()), password: decoded(password) }
        }
        None => Credentials { username: None, password: decoded(user) },
    });
    Ok(Target { address, credentials, database, tls })
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
