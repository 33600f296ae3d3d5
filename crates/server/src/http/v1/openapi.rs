//! The description of the API, for programs.

use axum::http::header;
use axum::response::{IntoResponse, Response};

/// Written by hand, and tested against the routes: generated from types it would say less than the types' own documentation.
const DOCUMENT: &str = include_str!("../../../../../docs/openapi.json");

pub(super) fn page() -> Response {
    ([(header::CONTENT_TYPE, "application/json")], DOCUMENT).into_response()
}
