//! The description of the API, for programs. A test makes it of the types and the table of routes; the server serves the
//! committed text, so that nothing of the making is in it.

#[cfg(test)]
mod document;
#[cfg(test)]
mod operations;
#[cfg(test)]
mod schemas;

use axum::http::header;
use axum::response::{IntoResponse, Response};

const DOCUMENT: &str = include_str!("../../../docs/openapi.json");

pub(crate) fn page() -> Response {
    ([(header::CONTENT_TYPE, "application/json")], DOCUMENT).into_response()
}
