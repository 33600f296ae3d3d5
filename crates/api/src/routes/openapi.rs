//! OpenAPI description of the API. A test generates it from the types and the table of routes. The
//! server serves the committed text, so the generator is not part of it.

#[cfg(test)]
mod document;
#[cfg(test)]
pub(crate) mod operations;
#[cfg(test)]
pub(crate) mod parameters;
#[cfg(test)]
mod schemas;

use axum::http::header;
use axum::response::IntoResponse as _;

use crate::state::app_state::{HandlerResult, RequestContext};

const DOCUMENT: &str = include_str!("../../../../docs/openapi.json");

pub(crate) async fn page(_request: &RequestContext<'_>) -> HandlerResult {
    let kind = [(header::CONTENT_TYPE, "application/json")];
    Ok((kind, DOCUMENT).into_response())
}
