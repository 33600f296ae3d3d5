//! Answers as JSON. Serde writes them; this is what it cannot know by itself.

use std::borrow::Cow;

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::ser::{Serialize, SerializeStruct as _, Serializer};
use tidegate_workflow::{LeaseRef, WorkflowId};
#[cfg(test)]
use utoipa::ToSchema;

/// The JSON text of an answer, or of a part of one.
pub(crate) fn text(body: &impl Serialize) -> Vec<u8> {
    let mut out = Vec::with_capacity(256);
    serde_json::to_writer(&mut out, body).expect("keys are texts, and a buffer takes any text");
    out
}

pub(crate) fn answer(status: StatusCode, body: &impl Serialize) -> Response {
    (status, [(header::CONTENT_TYPE, "application/json")], text(body)).into_response()
}

pub(crate) fn ok(body: &impl Serialize) -> Response {
    answer(StatusCode::OK, body)
}

/// JSON text that was checked before; it is copied as it is.
#[derive(Debug, Clone)]
pub(crate) struct Verbatim<'a>(pub(crate) Cow<'a, str>);

impl<'a> Verbatim<'a> {
    pub(crate) const NULL: Verbatim<'static> = Verbatim(Cow::Borrowed("null"));

    pub(crate) fn of(text: &'a [u8]) -> Self {
        Self(String::from_utf8_lossy(text))
    }
}

impl Serialize for Verbatim<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // What serde_json's RawValue writes. RawValue itself can only be made by reading the text again, which would cost more
        // than all the rest of an answer to a worker.
        const RAW: &str = "$serde_json::private::RawValue";
        let mut raw = serializer.serialize_struct(RAW, 1)?;
        raw.serialize_field(RAW, &*self.0)?;
        raw.end()
    }
}

/// 26 characters that name a workflow. Ids sort by the time of creation.
#[derive(Debug, Clone, Copy)]
#[cfg_attr(test, derive(ToSchema), schema(as = WorkflowId, value_type = String))]
pub(crate) struct Id(pub(crate) WorkflowId);

impl Serialize for Id {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0.to_string())
    }
}

/// Writes a lease as the text that workers send back.
pub(crate) fn lease<S: Serializer>(lease: &LeaseRef, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&lease.text())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_text_is_copied_and_other_text_is_escaped() {
        let value = |json: &'static str| Verbatim(Cow::Borrowed(json));
        let body = (value(r#"{"x": 1.10, "e":1e400}"#), "a\"b", [value("[ ]"), Verbatim::NULL]);
        assert_eq!(String::from_utf8(text(&body)).unwrap(), r#"[{"x": 1.10, "e":1e400},"a\"b",[[ ],null]]"#);
    }
}
