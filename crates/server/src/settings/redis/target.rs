//! Parser of the address of one Redis server, in all of its forms.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;
use tidegate_pipeline::{Address, Credentials};

/// Address of one server in a setting. Every form that radix v4.1 accepts has its meaning there.
#[derive(Debug, PartialEq)]
pub(super) struct Target {
    pub(super) address: Address,
    pub(super) login: Login,
    pub(super) database: u32,
    /// Whether the scheme is `rediss://`, which always uses TLS.
    pub(super) tls: bool,
    /// Whether the query of the URL has fields without effect.
    pub(super) has_unknown_fields: bool,
}

/// A user and a password, which may come from different settings. Empty if there is none.
#[derive(Clone, Default, PartialEq, Eq)]
pub(super) struct Login {
    username: String,
    password: String,
}

impl std::fmt::Debug for Login {
    // Tests print it when a comparison fails, and must not print a password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Login")
            .field("username", &self.username)
            .finish_non_exhaustive()
    }
}

impl Login {
    /// Parses `password` or `user:password`.
    pub(super) fn from_setting(text: &str) -> Self {
        let (username, password) = text.split_once(':').unwrap_or(("", text));
        Self {
            username: username.to_owned(),
            password: password.to_owned(),
        }
    }

    /// Fills missing parts from `other`.
    pub(super) fn or(self, other: Self) -> Self {
        let either = |here: String, there: String| if here.is_empty() { there } else { here };
        Self {
            username: either(self.username, other.username),
            password: either(self.password, other.password),
        }
    }

    /// Credentials for AUTH. A user without a password has an empty one, which suits a user with
    /// `nopass`.
    pub(super) fn credentials(self) -> Option<Credentials> {
        let Self { username, password } = self;
        let is_given = !(username.is_empty() && password.is_empty());
        is_given.then(|| Credentials {
            username: Some(username).filter(|name| !name.is_empty()),
            password,
        })
    }
}

const FORMS: &str =
    "expected host:port, redis://[user:password@]host:port[/database] or the path of a Unix socket";
const ESCAPES: &str =
    "write / ? # % and other signs of a user or password as % and two digits, such as %2F for /";

/// Parses an address in any of its forms. `socket` is `tcp`, `unix` or empty.
///
/// # Errors
/// The text completes "REDIS_URL='..': ..". It contains no part of the address, which may contain a
/// password anywhere.
pub(super) fn target(url: &str, socket: &str) -> Result<Target, String> {
    if url.is_empty() {
        return Err("it is set but empty; unset it, or name a server".to_owned());
    }
    let tls = url.starts_with("rediss://");
    match url
        .strip_prefix("redis://")
        .or_else(|| url.strip_prefix("rediss://"))
    {
        Some(rest) => Ok(Target { tls, ..uri(rest)? }),
        None => bare(url, socket),
    }
}

/// Parses `host:port` or a path.
fn bare(text: &str, socket: &str) -> Result<Target, String> {
    let address = match socket {
        "unix" => Address::Unix(text.into()),
        _ => tcp_or_path(text).ok_or_else(|| FORMS.to_owned())?,
    };
    if socket == "tcp" && matches!(address, Address::Unix(_)) {
        return Err("it is a path, but the socket type is tcp; expected host:port".to_owned());
    }
    Ok(Target {
        address,
        login: Login::default(),
        database: 0,
        tls: false,
        has_unknown_fields: false,
    })
}

/// Parses the text after `//` by the rules of Go:
/// `[user:password@]host[:port][/database][?username=..&password=..&db=..]`.
fn uri(text: &str) -> Result<Target, String> {
    let text = text.split_once('#').map_or(text, |(before, _)| before);
    let (text, query) = text.split_once('?').unwrap_or((text, ""));
    let (authority, path) = text.split_once('/').unwrap_or((text, ""));
    let (user, host) = authority.rsplit_once('@').unwrap_or(("", authority));
    let address =
        host_and_port(host).ok_or_else(|| format!("expected host:port after the //; {ESCAPES}"))?;
    let query = Query::read(query)?;
    let path = decode(path)
        .ok_or_else(|| "the database after the / has a % without two digits".to_owned())?;
    let from_query = Login {
        username: query.username.unwrap_or_default(),
        password: query.password.unwrap_or_default(),
    };
    let in_query = query.database.unwrap_or_default();
    Ok(Target {
        address,
        login: userinfo(user)?.or(from_query),
        database: database(if path.is_empty() { &in_query } else { &path })?,
        tls: false,
        has_unknown_fields: query.has_unknown_fields,
    })
}

/// Parses a host with an optional port. A `%` is only allowed before the zone of an address, as
/// `%25`.
fn host_and_port(text: &str) -> Option<Address> {
    let zoned = if text.starts_with('[') {
        text.replacen("%25", "\0", 1)
    } else {
        text.to_owned()
    };
    if text.is_empty() || zoned.contains('%') {
        return None;
    }
    let has_port = zoned.rsplit_once(':').is_some_and(|(before, port)| {
        let is_within_brackets = before.starts_with('[') && !before.ends_with(']');
        !is_within_brackets && port.bytes().all(|byte| byte.is_ascii_digit())
    });
    let text = zoned.replace('\0', "%");
    if has_port {
        tcp_or_path(&text)
    } else {
        tcp_or_path(&format!("{text}:6379"))
    }
}

/// Parses `host:port` or a path. As in Go, a port without a host is on this machine.
fn tcp_or_path(text: &str) -> Option<Address> {
    let local = text.starts_with(':').then(|| format!("localhost{text}"));
    let address = local.as_deref().unwrap_or(text).parse().ok()?;
    let is_named = |c: char| c.is_alphanumeric() || !c.is_ascii() || "-_.~:%".contains(c);
    match &address {
        Address::Tcp { host, port } if *port == 0 || !host.chars().all(is_named) => None,
        _ => Some(address),
    }
}

fn userinfo(text: &str) -> Result<Login, String> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:~!$&'()*+,;=%@".contains(&byte);
    let (username, password) = text.split_once(':').unwrap_or((text, ""));
    let decoded = text
        .bytes()
        .all(is_plain)
        .then(|| Some((decode(username)?, decode(password)?)))
        .flatten();
    let (username, password) = decoded.ok_or_else(|| ESCAPES.to_owned())?;
    Ok(Login {
        username: username.into_owned(),
        password: password.into_owned(),
    })
}

/// The fields of a query that have an effect. Of a repeated field, the first counts.
#[derive(Default)]
struct Query {
    username: Option<String>,
    password: Option<String>,
    database: Option<String>,
    has_unknown_fields: bool,
}

impl Query {
    fn read(text: &str) -> Result<Self, String> {
        let mut query = Self::default();
        for field in text.split('&').filter(|field| !field.is_empty()) {
            let (name, value) = field.split_once('=').unwrap_or((field, ""));
            let (Some(name), Some(value), false) =
                (form_decoded(name), form_decoded(value), field.contains(';'))
            else {
                return Err(
                    "the query after the ? has a ; or a % without two digits; write them as %3B and %25".to_owned()
                );
            };
            let slot = match &*name {
                "username" => &mut query.username,
                "password" => &mut query.password,
                "db" => &mut query.database,
                _ => {
                    query.has_unknown_fields = true;
                    continue;
                }
            };
            slot.get_or_insert(value);
        }
        Ok(query)
    }
}

/// Parses a database number as Redis does for SELECT: digits without a leading zero.
fn database(text: &str) -> Result<u32, String> {
    let is_number =
        text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    match text {
        "" => Ok(0),
        _ => text.parse().ok().filter(|_| is_number).ok_or_else(|| {
            "expected the number of a database after the / or in ?db=; write a / in a password as %2F".to_owned()
        }),
    }
}

/// Decodes a part of a query, in which + is a space.
fn form_decoded(text: &str) -> Option<String> {
    decode(&text.replace('+', " ")).map(Cow::into_owned)
}

/// Percent-decodes a text. None if a % is not followed by two hexadecimal digits, or if the bytes
/// are not UTF-8.
fn decode(text: &str) -> Option<Cow<'_, str>> {
    let is_coded =
        |tail: &str| tail.len() >= 2 && tail.bytes().take(2).all(|byte| byte.is_ascii_hexdigit());
    text.split('%')
        .skip(1)
        .all(is_coded)
        .then(|| percent_decode_str(text).decode_utf8().ok())
        .flatten()
}

#[cfg(test)]
mod tests;
