//! Addresses of a server, and percent-encoding of paths and queries.

use std::fmt;

use http::Uri;
use http::uri::{Authority, Scheme};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// All bytes except those that RFC 3986 calls unreserved.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// The address of a server.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ServerAddress {
    scheme: Scheme,
    authority: Authority,
    /// Part of the path before the paths of the API, without a slash at its end.
    prefix: String,
}

impl ServerAddress {
    /// Reads a URL, or a host and a port.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        refuse_other_parts(text)?;
        let wrong =
            || format!("the server '{text}': expected an address such as http://127.0.0.1:7070");
        let whole = if text.contains("://") {
            text.to_owned()
        } else {
            format!("http://{text}")
        };
        let uri: Uri = whole.parse().map_err(|_| wrong())?;
        let prefix = uri.path().trim_end_matches('/').to_owned();
        let parts = uri.into_parts();
        match (parts.scheme, parts.authority) {
            (Some(scheme), Some(authority)) if has_host(&authority) && is_web(&scheme) => {
                Ok(Self {
                    scheme,
                    authority,
                    prefix,
                })
            }
            _ => Err(wrong()),
        }
    }

    /// Whether requests are encrypted.
    pub(crate) fn is_encrypted(&self) -> bool {
        self.scheme == Scheme::HTTPS
    }
}

/// Refuses an address with a user, a query or a fragment.
fn refuse_other_parts(text: &str) -> Result<(), String> {
    // The text before the @ may be a password, so no part of the address is shown.
    if text.contains('@') {
        return Err("the server's address has a user or a password in it; give a token with TIDEGATE_TOKEN or \
                    --token-file instead"
            .to_owned());
    }
    if text.contains(['?', '#']) {
        return Err(format!(
            "the server '{text}': an address with ? or # is not understood"
        ));
    }
    Ok(())
}

fn is_web(scheme: &Scheme) -> bool {
    *scheme == Scheme::HTTP || *scheme == Scheme::HTTPS
}

/// Whether the authority has a host, and a port that is a number. `Uri` accepts other ports and
/// then reports none.
fn has_host(authority: &Authority) -> bool {
    let port_is_read =
        authority.as_str().ends_with(authority.host()) || authority.port_u16().is_some();
    !authority.host().is_empty() && port_is_read
}

impl fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}{}", self.scheme, self.authority, self.prefix)
    }
}

/// `text`, percent-encoded as one segment of a path or one value of a query.
pub(crate) fn escaped(text: &str) -> String {
    utf8_percent_encode(text, RESERVED).to_string()
}

/// The part of an address after the question mark.
#[derive(Debug, Default, Clone)]
pub(crate) struct Query(String);

impl Query {
    /// Adds the pair `name` and `value`. Without a value the query stays as it is.
    pub(crate) fn with(mut self, name: &str, value: Option<impl ToString>) -> Self {
        if let Some(value) = value {
            let mark = if self.0.is_empty() { "?" } else { "&" };
            self.0 += &[mark, name, "=", &escaped(&value.to_string())].concat();
        }
        self
    }

    /// `path` followed by the pairs.
    pub(crate) fn append_to(&self, path: &str) -> String {
        format!("{path}{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_named_by_url_or_by_host_and_port() {
        let check = |text: &str, shown: Option<&str>| {
            assert_eq!(
                ServerAddress::parse(text)
                    .map(|target| target.to_string())
                    .ok()
                    .as_deref(),
                shown,
                "{text}"
            );
        };
        check("http://127.0.0.1:7070", Some("http://127.0.0.1:7070"));
        check("http://[::1]:7070/", Some("http://[::1]:7070"));
        check("box:1", Some("http://box:1"));
        check("http://box/tidegate/", Some("http://box/tidegate"));
        check("https://box", Some("https://box"));
        for text in [
            "",
            "redis://box:1",
            "http://",
            "http://box:x",
            "https://:1",
            "http://box?a=1",
            "box#a",
            "u:p@box",
        ] {
            check(text, None);
        }
    }

    #[test]
    fn a_password_is_not_shown() {
        for text in [
            "http://user:secret@box",
            "user:secret@box:1",
            "http://user:secret@box:x",
            "http://user:sec/secret@box",
        ] {
            let reason = ServerAddress::parse(text).unwrap_err();
            assert!(
                reason.contains("a user or a password") && !reason.contains("secret"),
                "{reason}"
            );
        }
    }

    #[test]
    fn names_are_escaped_in_addresses() {
        assert_eq!(escaped("a/b c:é%"), "a%2Fb%20c%3A%C3%A9%25");
        let query = Query::default()
            .with("a", Some("1&2"))
            .with("b", None::<&str>)
            .with("c", Some("x"));
        assert_eq!(query.append_to("/p"), "/p?a=1%262&c=x");
    }
}
