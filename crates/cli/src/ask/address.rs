//! Where a server is, and how what it is asked for is named.

use std::fmt::{self, Write as _};

use http::Uri;

/// Where a server is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) host: String,
    pub(crate) port: u16,
    /// What comes before the paths of the API.
    pub(crate) prefix: String,
}

impl Target {
    /// Reads a URL, or a host and a port.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let wrong = |reason: &str| format!("the server '{text}': {reason}");
        let whole = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
        let uri: Uri = whole.parse().map_err(|_| wrong("expected an address such as http://127.0.0.1:7070"))?;
        // What the parser takes for no port at all is one that cannot be read.
        let colon =
            uri.authority().is_some_and(|authority| !authority.as_str().ends_with(uri.host().unwrap_or_default()));
        match (uri.scheme_str(), uri.host(), uri.port_u16()) {
            (Some("http"), Some(host), port) if !host.is_empty() && colon == port.is_some() => Ok(Self {
                host: host.to_owned(),
                port: port.unwrap_or(80),
                prefix: uri.path().trim_end_matches('/').to_owned(),
            }),
            (Some("https"), ..) => {
                Err(wrong("this client does not speak TLS; ask through a tunnel or a proxy beside it"))
            }
            _ => Err(wrong("expected an address such as http://127.0.0.1:7070")),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port, prefix } = self;
        write!(f, "http://{host}:{port}{prefix}")
    }
}

/// A name as a part of a path.
pub(crate) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(char::from(byte)),
            _ => write!(out, "%{byte:02X}").expect("a string takes any text"),
        }
    }
    out
}

/// The part of an address after the question mark.
#[derive(Debug, Default, Clone)]
pub(crate) struct Query(String);

impl Query {
    /// Adds a pair, when there is a value.
    pub(crate) fn with(mut self, name: &str, value: Option<impl AsRef<str>>) -> Self {
        if let Some(value) = value {
            let mark = if self.0.is_empty() { '?' } else { '&' };
            write!(self.0, "{mark}{name}={}", escaped(value.as_ref())).expect("a string takes any text");
        }
        self
    }

    /// `path` and the pairs.
    pub(crate) fn of(&self, path: &str) -> String {
        format!("{path}{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_named_by_url_or_by_host_and_port() {
        let check = |text: &str, shown: Option<&str>| {
            assert_eq!(Target::parse(text).map(|target| target.to_string()).ok().as_deref(), shown, "{text}");
        };
        check("http://127.0.0.1:7070", Some("http://127.0.0.1:7070"));
        check("http://[::1]:7070/", Some("http://[::1]:7070"));
        check("box:1", Some("http://box:1"));
        check("http://box/tidegate/", Some("http://box:80/tidegate"));
        for text in ["", "https://box", "redis://box:1", "http://", "http://box:x"] {
            check(text, None);
        }
    }

    #[test]
    fn names_are_escaped_in_addresses() {
        assert_eq!(escaped("a/b c:é%"), "a%2Fb%20c%3A%C3%A9%25");
        let query = Query::default().with("a", Some("1&2")).with("b", None::<&str>).with("c", Some("x"));
        assert_eq!(query.of("/p"), "/p?a=1%262&c=x");
    }
}
