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

use crate::http::auth::{self, Scope, TOKEN_COOKIE};
use crate::http::body;
use crate::http::json;
use crate::http::problem::{Code, Problem};
use crate::http::tokens::Role;
use crate::state::app_state::{HandlerResult, RequestContext};

/// Token to sign in with.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(ToSchema), schema(as = SignIn))]
pub(crate) struct SignInBody {
    /// A token of TIDEGATE_TOKENS_FILE.
    token: String,
}

/// Name and role of the caller.
#[derive(Serialize)]
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

pub(crate) async fn show(request: &RequestContext<'_>) -> HandlerResult {
    auth::check_browser(&request.api.access, request.headers)?;
    Ok(json::ok(&session(
        request,
        auth::identify(&request.api.access, request.headers),
    )))
}

pub(crate) async fn sign_in(request: &RequestContext<'_>) -> HandlerResult {
    auth::check_browser(&request.api.access, request.headers)?;
    auth::check_page(request.headers)?;
    let SignInBody { token } = body::read(request.body)?;
    let token = token.trim();
    let Some(tokens) = &request.api.access.tokens else {
        return Ok(json::ok(&session(request, None)));
    };
    let unknown = || Problem::new(Code::Unauthorized, "the token is not known to this server");
    let found = tokens.find(token).ok_or_else(unknown)?;
    let value = utf8_percent_encode(token, NON_ALPHANUMERIC).to_string();
    Ok((
        [(SET_COOKIE, cookie(&value, "", request.headers))],
        json::ok(&session(request, Some(found))),
    )
        .into_response())
}

pub(crate) async fn sign_out(request: &RequestContext<'_>) -> HandlerResult {
    auth::check_browser(&request.api.access, request.headers)?;
    auth::check_page(request.headers)?;
    Ok((
        StatusCode::NO_CONTENT,
        [(SET_COOKIE, cookie("", "; Max-Age=0", request.headers))],
    )
        .into_response())
}

fn session(request: &RequestContext<'_>, found: Option<(Role, Arc<str>)>) -> Session {
    let sign_in = request.api.access.tokens.is_some();
    let role = if sign_in {
        found.as_ref().map(|(role, _)| *role)
    } else if request.api.access.scope == Scope::LimitsReadOnly {
        Some(Role::Read)
    } else {
        Some(Role::Admin)
    };
    let version = role.map(|_| request.api.hooks.version);
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
    format!("{TOKEN_COOKIE}={value}; HttpOnly; SameSite=Strict{secure}{more}")
}
