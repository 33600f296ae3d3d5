//! JSON answers, and the parts of writing JSON that serde does not offer.

mod object;

use std::borrow::Cow;
use std::io;

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::ser::{Serialize, SerializeStruct as _, Serializer};
use tidegate_workflow::WorkflowId;
#[cfg(test)]
use utoipa::ToSchema;

pub(crate) use self::object::ObjectText;

/// The JSON text of an answer, or of a part of one.
pub(crate) fn text(body: &impl Serialize) -> Vec<u8> {
    large_text(256, body)
}

/// Writes JSON text whose expected size is `capacity`.
pub(crate) fn large_text(capacity: usize, body: &impl Serialize) -> Vec<u8> {
    let mut out = Vec::with_capacity(capacity);
    append(&mut out, body);
    out
}

/// Appends the JSON text of a value.
pub(crate) fn append(out: &mut Vec<u8>, part: &impl Serialize) {
    serde_json::to_writer(out, part).expect("keys are texts, and a buffer takes any text");
}

/// Returns the JSON text if it has at most `max_bytes` bytes. Writing stops at the limit.
pub(crate) fn text_within(max_bytes: usize, body: &impl Serialize) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(256);
    append_within(&mut out, max_bytes, body).then_some(out)
}

/// Appends the JSON text of a value if the whole text then has at most `max_bytes` bytes. Otherwise
/// nothing is appended.
pub(crate) fn append_within(out: &mut Vec<u8>, max_bytes: usize, part: &impl Serialize) -> bool {
    let start = out.len();
    let fits = serde_json::to_writer(LimitedWriter { out, max_bytes }, part).is_ok();
    if !fits {
        out.truncate(start);
    }
    fits
}

/// Writes a list of the items that `append` adds to the text, up to the first that it does not add.
/// Returns the list and the number of its items.
pub(crate) fn list_while<T>(
    items: impl IntoIterator<Item = T>,
    mut append: impl FnMut(&mut Vec<u8>, T) -> bool,
) -> (Vec<u8>, usize) {
    let mut text = vec![b'['];
    let mut number = 0;
    for item in items {
        let end = text.len();
        text.extend((number > 0).then_some(b','));
        if !append(&mut text, item) {
            text.truncate(end);
            break;
        }
        number += 1;
    }
    text.push(b']');
    (text, number)
}

/// Writer that fails when the text would exceed its limit.
struct LimitedWriter<'a> {
    out: &'a mut Vec<u8>,
    max_bytes: usize,
}

impl io::Write for LimitedWriter<'_> {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        if self.out.len() + text.len() > self.max_bytes {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.out.extend_from_slice(text);
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

pub(crate) fn answer(status: StatusCode, body: &impl Serialize) -> Response {
    (status, ok(body)).into_response()
}

/// Answers with JSON text.
pub(crate) fn answer_text(text: Vec<u8>) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], text).into_response()
}

pub(crate) fn ok(body: &impl Serialize) -> Response {
    answer_text(text(body))
}

/// JSON text that was checked before and is copied as it is.
#[derive(Debug, Clone)]
pub(crate) struct Verbatim<'a>(pub(crate) Cow<'a, str>);

impl<'a> Verbatim<'a> {
    pub(crate) const NULL: Verbatim<'static> = Verbatim(Cow::Borrowed("null"));

    pub(crate) fn from_bytes(text: &'a [u8]) -> Self {
        Self(String::from_utf8_lossy(text))
    }
}

impl Serialize for Verbatim<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // This is the struct that serde_json's RawValue writes. RawValue itself can only be made by
        // parsing the text again, which would cost more than the rest of an answer to a worker.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_long_is_not_written_to_its_end() {
        /// Counts how often it is written.
        struct CountedPart<'a>(&'a std::cell::Cell<usize>);

        impl Serialize for CountedPart<'_> {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                self.0.set(self.0.get() + 1);
                serializer.serialize_str("123")
            }
        }

        let written = std::cell::Cell::new(0);
        let parts: Vec<_> = (0..1_000).map(|_| CountedPart(&written)).collect();
        assert_eq!(text_within(7, &&parts[..1]).unwrap(), br#"["123"]"#);
        assert!(text_within(6, &&parts[..1]).is_none());
        written.set(0);
        assert!(text_within(60, &parts).is_none());
        assert!(written.get() < 13, "{}", written.get());
        let mut out = b"so far".to_vec();
        assert!(!append_within(&mut out, 9, &"1234") && append_within(&mut out, 9, &1));
        assert_eq!(out, b"so far1");
    }

    #[test]
    fn json_text_is_copied_and_other_text_is_escaped() {
        let value = |json: &'static str| Verbatim(Cow::Borrowed(json));
        let body = (
            value(r#"{"x": 1.10, "e":1e400}"#),
            "a\"b",
            [value("[ ]"), Verbatim::NULL],
        );
        assert_eq!(
            String::from_utf8(text(&body)).unwrap(),
            r#"[{"x": 1.10, "e":1e400},"a\"b",[[ ],null]]"#
        );
    }
}
