//! Authentication and authorization of requests.

use std::borrow::Cow;
use std::sync::Arc;

use axum::http::{HeaderMap, HeaderValue, Method, header};
use percent_encoding::percent_decode_str;

use super::problem::{Code, Problem};
use super::route::{Route, StoreRequirement};
use super::tokens::{Role, Tokens};

/// Cookie in which a browser keeps its token.
pub(crate) const TOKEN_COOKIE: &str = "tidegate";
/// The reason for refusals of a server without workflows.
const LIMITS_ONLY: &str =
    "this server shows limits only (TIDEGATE_STORE_URL=off, the default of `ratelimit`)";
/// Header that marks a request of this server's own page. Pages of other sites cannot send it.
const PAGE_HEADER: &str = "tidegate-page";

/// The parts of the API that a server offers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Scope {
    /// Limits and workflows.
    #[default]
    Full,
    /// The limits, which can only be read. There is no store of workflows.
    LimitsReadOnly,
}

/// Rules for access to the API, and limits for one request.
#[derive(Debug, Clone)]
pub struct Access {
    /// Tokens that may use the API. `None` if every client may.
    pub tokens: Option<Tokens>,
    /// Whether to serve clients of any address without tokens.
    pub anonymous: bool,
    /// The parts of the API that are offered.
    pub scope: Scope,
    /// Largest body, in bytes.
    pub max_body: usize,
    /// Most event streams at a time. One caller has at most a quarter of them.
    pub max_streams: usize,
}

/// Checks the token of a request and its role. Returns the name of the token, if one was needed.
pub(crate) fn check(
    access: &Access,
    headers: &HeaderMap,
    route: &Route,
) -> Result<Option<Arc<str>>, Problem> {
    let Some(needed) = route.role else {
        return Ok(None);
    };
    check_scope(access, route, needed)?;
    check_browser(access, headers)?;
    let Some(tokens) = &access.tokens else {
        return Ok(None);
    };
    let unauthorized = |detail| Problem::new(Code::Unauthorized, detail);
    let missing = || unauthorized("the header `Authorization: Bearer <token>` is required");
    let secret = secret(headers).ok_or_else(missing)?;
    if secret.by_cookie && route.method != Method::GET {
        check_page(headers)?;
    }
    match tokens.find(&secret.text) {
        None => Err(unauthorized("the token is not known to this server")),
        Some((role, name)) if role < needed => Err(forbidden(&name, role, needed)),
        Some((_, name)) => Ok(Some(name)),
    }
}

/// Refuses calls that the server does not offer: without workflows, also those that change limits.
fn check_scope(access: &Access, route: &Route, needed: Role) -> Result<(), Problem> {
    if route.needs == StoreRequirement::Engine {
        check_workflows(access)?;
    }
    if access.scope == Scope::LimitsReadOnly && needed > Role::Read {
        let detail = format!("{LIMITS_ONLY}, and changes none of them");
        return Err(Problem::new(Code::Forbidden, detail));
    }
    Ok(())
}

/// Refuses a call about workflows where there are none.
///
/// # Errors
/// The server shows limits only.
pub(crate) fn check_workflows(access: &Access) -> Result<(), Problem> {
    match access.scope {
        Scope::Full => Ok(()),
        Scope::LimitsReadOnly => {
            let detail = format!("{LIMITS_ONLY}: it has no workflows");
            Err(Problem::new(Code::NotFound, detail))
        }
    }
}

fn forbidden(name: &str, role: Role, needed: Role) -> Problem {
    let role = role.word();
    let needed = needed.word();
    let detail =
        format!("the token of {name} has the role {role}; this call needs the role {needed}");
    Problem::new(Code::Forbidden, detail)
}

/// Returns the role and name of the caller, by token or cookie.
pub(crate) fn identify(access: &Access, headers: &HeaderMap) -> Option<(Role, Arc<str>)> {
    access.tokens.as_ref()?.find(&secret(headers)?.text)
}

/// Requires the page's header. A browser adds its cookie to the requests of any page, but only the
/// page of this server can add the header.
///
/// # Errors
/// The header is missing.
pub(crate) fn check_page(headers: &HeaderMap) -> Result<(), Problem> {
    if headers.contains_key(PAGE_HEADER) {
        return Ok(());
    }
    let detail = format!("this call needs the header `{PAGE_HEADER}: 1`");
    Err(Problem::new(Code::Forbidden, detail))
}

/// Token of a request, and how it was sent.
struct PresentedToken<'a> {
    text: Cow<'a, str>,
    by_cookie: bool,
}

/// Returns the token of a request. An Authorization header hides the cookie, even if it holds no
/// bearer token.
fn secret(headers: &HeaderMap) -> Option<PresentedToken<'_>> {
    if headers.contains_key(header::AUTHORIZATION) {
        return bearer(headers).map(|token| PresentedToken {
            text: token.into(),
            by_cookie: false,
        });
    }
    let cookies = headers
        .get_all(header::COOKIE)
        .iter()
        .filter_map(|cookies| cookies.to_str().ok());
    let mut pairs = cookies
        .flat_map(|cookies| cookies.split(';'))
        .filter_map(|pair| pair.trim().split_once('='));
    let (_, value) = pairs.find(|(name, _)| *name == TOKEN_COOKIE)?;
    let text = percent_decode_str(value).decode_utf8().ok()?;
    Some(PresentedToken {
        text,
        by_cookie: true,
    })
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let text = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = text.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// Refuses requests from pages of other sites. Without tokens, any process of this machine may call
/// the API, and a browser runs pages of strangers. Such a page sends its own site as the origin, or
/// as the host if the site's name resolves to this machine.
pub(crate) fn check_browser(access: &Access, headers: &HeaderMap) -> Result<(), Problem> {
    if access.tokens.is_some() {
        return Ok(());
    }
    let host = host(headers);
    let is_host = |origin: &HeaderValue| {
        let origin = origin.to_str().unwrap_or_default();
        let authority = origin.split_once("://").map_or(origin, |(_, rest)| rest);
        host.is_some_and(|host| authority.eq_ignore_ascii_case(host))
    };
    if headers
        .get(header::ORIGIN)
        .is_some_and(|origin| !is_host(origin))
    {
        return Err(Problem::new(
            Code::Forbidden,
            "pages of other sites cannot use this API unless the server requires tokens",
        ));
    }
    if !access.anonymous && !host.is_some_and(is_local) {
        let detail = "the header Host must be localhost or an IP address; set TIDEGATE_TOKENS_FILE to allow other names";
        return Err(Problem::new(Code::Forbidden, detail));
    }
    Ok(())
}

/// Returns the host that a request names. `None` if it names no host or several: a proxy may read
/// another one than the server.
fn host(headers: &HeaderMap) -> Option<&str> {
    let mut hosts = headers.get_all(header::HOST).iter();
    let host = hosts.next()?.to_str().ok()?;
    hosts.next().is_none().then_some(host)
}

/// Whether a host is an IP address or localhost.
fn is_local(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let bare = name.trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost") || bare.parse::<std::net::IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_numbers_and_localhost_are_local() {
        for host in [
            "localhost",
            "LOCALHOST:7070",
            "127.0.0.1:80",
            "[::1]:7070",
            "[::1]",
            "10.0.0.7",
        ] {
            assert!(is_local(host), "{host}");
        }
        for host in [
            "",
            ":7070",
            "evil.example",
            "evil.example:7070",
            "localhost.evil.example",
            "127.0.0.1.evil.example:1",
        ] {
            assert!(!is_local(host), "{host}");
        }
    }
}
