//! Sign-in: a browser keeps its token in a cookie that scripts cannot read, because an event stream
//! can send no other header.

use std::sync::Arc;

use axum::http::header::{ORIGIN, SET_COOKIE};
use axum::http::{HeaderMap, StatusCode};
use axum::response::IntoResponse as _;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::{Deserialize, Serialize};
#[cfg(test)]
use utoipa::ToSchema;

use crate::http::auth::{self, COOKIE};
use crate::http::body;
use crate::http::json;
use crate::http::problem::{Code, Problem};
use crate::http::request::{Answer, RequestContext};
use crate::http::tokens::Role;

/// Token to sign in with.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(ToSchema), schema(as = SignIn))]
pub(crate) struct SignInBody {
    /// A token of TIDEGATE_TOKENS_FILE.
    token: String,
}

/// Name and role of the caller.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(ToSchema))]
pub(crate) struct Session {
    /// Whether this server asks for tokens.
    sign_in: bool,
    /// `read`, `work` or `admin`; null for a caller without a role.
    #[cfg_attr(test, schema(required))]
    role: Option<&'static str>,
    /// The name of the token; null without one.
    #[cfg_attr(test, schema(required))]
    name: Option<String>,
    /// Version of the server; null for a caller without a role.
    #[cfg_attr(test, schema(required))]
    version: Option<&'static str>,
}

pub(crate) async fn show(ask: &RequestContext<'_>) -> Answer {
    auth::check_browser(&ask.api.access, ask.headers)?;
    Ok(json::ok(&session(
        ask,
        auth::who(&ask.api.access, ask.headers),
    )))
}

pub(crate) async fn sign_in(ask: &RequestContext<'_>) -> Answer {
    auth::check_browser(&ask.api.access, ask.headers)?;
    auth::check_page(ask.headers)?;
    let SignInBody { token } = body::read(ask.body)?;
    let token = token.trim();
    let Some(tokens) = &ask.api.access.tokens else {
        return Ok(json::ok(&session(ask, None)));
    };
    let unknown = || Problem::new(Code::Unauthorized, "the token is not known to this server");
    let found = tokens.find(token).ok_or_else(unknown)?;
    let value = utf8_percent_encode(token, NON_ALPHANUMERIC).to_string();
    Ok((
        [(SET_COOKIE, cookie(&value, "", ask.headers))],
        json::ok(&session(ask, Some(found))),
    )
        .into_response())
}

pub(crate) async fn sign_out(ask: &RequestContext<'_>) -> Answer {
    auth::check_browser(&ask.api.access, ask.headers)?;
    auth::check_page(ask.headers)?;
    Ok((
        StatusCode::NO_CONTENT,
        [(SET_COOKIE, cookie("", "; Max-Age=0", ask.headers))],
    )
        .into_response())
}

fn session(ask: &RequestContext<'_>, found: Option<(Role, Arc<str>)>) -> Session {
    let sign_in = ask.api.access.tokens.is_some();
    let role = if sign_in {
        found.as_ref().map(|(role, _)| *role)
    } else {
        Some(Role::Admin)
    };
    let version = role.map(|_| ask.api.host.version);
    Session {
        sign_in,
        role: role.map(Role::word),
        name: found.map(|(_, name)| name.to_string()),
        version,
    }
}

/// The cookie has no path: a browser sends it to the folder of the call that set it. That works
/// behind a proxy that adds a path, too. A page that came over TLS, by its origin, limits its
/// cookie to TLS.
fn cookie(value: &str, more: &str, headers: &HeaderMap) -> String {
    let over_tls = headers
        .get(ORIGIN)
        .is_some_and(|origin| origin.as_bytes().starts_with(b"https://"));
    let secure = if over_tls { "; Secure" } else { "" };
    format!("{COOKIE}={value}; HttpOnly; SameSite=Strict{secure}{more}")
}
