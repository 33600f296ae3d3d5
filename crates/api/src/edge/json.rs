//! Writes JSON into one buffer. What is JSON text already is copied as it is.

use std::io::Write as _;

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use tidegate_workflow::Timestamp;

use super::time;

/// JSON text that grows. Keys and values follow each other in the order of the calls; commas come by themselves.
#[derive(Debug, Default)]
pub(crate) struct Json {
    out: Vec<u8>,
    /// Something stands before the next entry of the innermost object or array.
    comma: bool,
}

impl Json {
    /// An object that `fill` writes the entries of.
    pub(crate) fn of(fill: impl FnOnce(&mut Self)) -> Self {
        let mut json = Self { out: Vec::with_capacity(256), comma: false };
        json.object(fill);
        json
    }

    /// The text.
    pub(crate) fn text(self) -> Vec<u8> {
        self.out
    }

    pub(crate) fn answer(self, status: StatusCode) -> Response {
        (status, [(header::CONTENT_TYPE, "application/json")], self.out).into_response()
    }

    pub(crate) fn ok(self) -> Response {
        self.answer(StatusCode::OK)
    }

    fn before(&mut self) {
        if std::mem::replace(&mut self.comma, true) {
            self.out.push(b',');
        }
    }

    /// The name of the entry that comes next.
    pub(crate) fn key(&mut self, name: &str) -> &mut Self {
        self.string(name);
        self.out.push(b':');
        self.comma = false;
        self
    }

    pub(crate) fn object(&mut self, fill: impl FnOnce(&mut Self)) {
        self.nested((b'{', b'}'), fill);
    }

    pub(crate) fn array<T>(&mut self, items: impl IntoIterator<Item = T>, mut each: impl FnMut(&mut Self, T)) {
        self.nested((b'[', b']'), |json| items.into_iter().for_each(|item| each(json, item)));
    }

    pub(crate) fn strings<'t>(&mut self, texts: impl IntoIterator<Item = &'t str>) {
        self.array(texts, Self::string);
    }

    fn nested(&mut self, (open, close): (u8, u8), fill: impl FnOnce(&mut Self)) {
        self.before();
        self.out.push(open);
        self.comma = false;
        fill(self);
        self.out.push(close);
        self.comma = true;
    }

    pub(crate) fn string(&mut self, text: &str) {
        self.before();
        serde_json::to_writer(&mut self.out, text).expect("a buffer takes any text");
    }

    /// JSON text that was checked before.
    pub(crate) fn raw(&mut self, text: &[u8]) {
        self.before();
        self.out.extend_from_slice(text);
    }

    pub(crate) fn number(&mut self, number: impl Into<u64>) {
        self.display(number.into());
    }

    pub(crate) fn boolean(&mut self, value: bool) {
        self.display(value);
    }

    pub(crate) fn null(&mut self) {
        self.raw(b"null");
    }

    fn display(&mut self, value: impl std::fmt::Display) {
        self.before();
        write!(self.out, "{value}").expect("a buffer takes any text");
    }

    /// A text that needs no escapes, such as an id.
    pub(crate) fn plain(&mut self, value: impl std::fmt::Display) {
        self.before();
        write!(self.out, "\"{value}\"").expect("a buffer takes any text");
    }

    pub(crate) fn time(&mut self, moment: Timestamp) {
        self.plain(time::Rfc3339(moment));
    }

    pub(crate) fn maybe<T>(&mut self, value: Option<T>, write: impl FnOnce(&mut Self, T)) {
        match value {
            Some(value) => write(self, value),
            None => self.null(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commas_stand_between_entries_and_nowhere_else() {
        let json = Json::of(|json| {
            json.key("a").array([1_u64, 2], Json::number);
            json.key("b\"").object(|_| {});
            json.key("c").array([Some("é\n"), None], |json, text| json.maybe(text, Json::string));
            json.key("d").raw(b"{\"x\":[]}");
            json.key("e").object(|json| json.key("f").boolean(true));
        });
        let text = String::from_utf8(json.text()).unwrap();
        assert_eq!(text, r#"{"a":[1,2],"b\"":{},"c":["é\n",null],"d":{"x":[]},"e":{"f":true}}"#);
    }
}
