//! Bodies of requests: JSON of an exact schema. A problem says where the body differs from it.

use std::fmt;
use std::io::{self, ErrorKind};
use std::marker::PhantomData;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, header};
use http_body_util::BodyExt as _;
use serde::Deserialize;
use serde::de::value::{MapAccessDeserializer, StrDeserializer};
use serde::de::{Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use tidegate_workflow::{MAX_DEPTH, MAX_NAME, json_depth, most_similar};
use tokio::time::timeout;
#[cfg(test)]
use utoipa::ToSchema;

use super::duration_text;
use super::problem::{Code, Problem};

/// Time in which a body must arrive. It is enough for the largest body on a slow line, and bounds
/// the time for which a client holds memory.
const RECEIVE_TIMEOUT: Duration = Duration::from_secs(60);
/// Factor of the largest size up to which a too large body is read and dropped, so that its sender
/// can read the answer.
const DRAIN_FACTOR: usize = 8;

/// Receives a body of at most `max_bytes` bytes.
///
/// # Errors
/// The body is larger, is incomplete, or takes too long.
pub(crate) async fn receive(
    max_bytes: usize,
    headers: &HeaderMap,
    body: Body,
) -> Result<Bytes, Problem> {
    let announced_bytes = headers
        .get(header::CONTENT_LENGTH)
        .and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
    // A client that sends `Expect` has sent no body yet.
    if headers.contains_key(header::EXPECT)
        && announced_bytes.is_some_and(|length| length > max_bytes)
    {
        return Err(too_large(max_bytes));
    }
    let timed_out = || {
        Problem::new(
            Code::RequestTimeout,
            format!(
                "the body did not arrive within {} s",
                RECEIVE_TIMEOUT.as_secs()
            ),
        )
    };
    timeout(RECEIVE_TIMEOUT, read_to_end(max_bytes, body))
        .await
        .unwrap_or_else(|_| Err(timed_out()))
}

async fn read_to_end(max_bytes: usize, mut body: Body) -> Result<Bytes, Problem> {
    let mut received = Vec::new();
    let mut length = 0_usize;
    while let Some(frame) = body.frame().await {
        let frame = match frame {
            Ok(frame) => frame,
            Err(_) if length > max_bytes => break,
            Err(error) => return Err(incomplete(error)),
        };
        let Ok(bytes) = frame.into_data() else {
            continue;
        };
        length = length.saturating_add(bytes.len());
        if length <= max_bytes {
            received.extend_from_slice(&bytes);
        } else if length > max_bytes.saturating_mul(DRAIN_FACTOR) {
            break;
        } else {
            received = Vec::new();
        }
    }
    if length > max_bytes {
        Err(too_large(max_bytes))
    } else {
        Ok(received.into())
    }
}

/// Returns the problem of an incomplete body. The server that embeds the API may have limits of
/// its own.
fn incomplete(error: axum::Error) -> Problem {
    let error = error.into_inner();
    let code = match error.downcast_ref::<io::Error>().map(io::Error::kind) {
        Some(ErrorKind::TimedOut) => Code::RequestTimeout,
        Some(ErrorKind::QuotaExceeded) => Code::Overloaded,
        _ => Code::InvalidJson,
    };
    Problem::new(code, error.to_string())
}

fn too_large(max_bytes: usize) -> Problem {
    Problem::new(
        Code::PayloadTooLarge,
        format!("the body has more than {max_bytes} bytes (TIDEGATE_MAX_BODY)"),
    )
}

/// Checks that a name is one that a worker or a queue may have.
pub(crate) fn check_name(name: &str, path: impl FnOnce() -> String) -> Result<(), Problem> {
    if is_valid_name(name) {
        return Ok(());
    }
    Err(Problem::field(
        path(),
        format!(
            "expected a name of 1 to {MAX_NAME} bytes without control characters, and not '.' or '..'"
        ),
    ))
}

/// Whether a text is a valid name that a terminal can show.
fn is_valid_name(text: &str) -> bool {
    (1..=MAX_NAME).contains(&text.len())
        && !text.chars().any(char::is_control)
        && !matches!(text, "." | "..")
}

/// Checks the depth of JSON that is passed on as it is, so that clients can parse it.
///
/// # Errors
/// It is nested too deeply.
pub(crate) fn check_depth(json: Option<&RawValue>, path: impl fmt::Display) -> Result<(), Problem> {
    let too_deep = json.is_some_and(|json| json_depth(json.get()) > MAX_DEPTH);
    let detail = || format!("arrays and objects are nested more than {MAX_DEPTH} levels deep");
    if too_deep {
        Err(Problem::field(path.to_string(), detail()))
    } else {
        Ok(())
    }
}

/// Reads a body.
///
/// # Errors
/// It is not JSON, or does not match the type.
pub(crate) fn read<'de, T: Deserialize<'de>>(body: &'de [u8]) -> Result<T, Problem> {
    decode(body)
        .map(|object| object.0)
        .map_err(|error| describe_error::<T>(body, &error))
}

/// Reads a body that has no mistake.
pub(crate) fn read_correct<'de, T: Deserialize<'de>>(body: &'de [u8]) -> Option<T> {
    decode(body).ok().map(|Object(read)| read)
}

fn decode<'de, T: Deserialize<'de>>(body: &'de [u8]) -> serde_json::Result<Object<T>> {
    // Checking all characters at once is several times faster than checking those of each string.
    match std::str::from_utf8(body) {
        Ok(text) => serde_json::from_str(text),
        Err(_) => serde_json::from_slice(body),
    }
}

/// Checks how many items one call has.
///
/// # Errors
/// There are more than `max_items`.
pub(crate) fn check_number(number: usize, max_items: usize, field: &str) -> Result<(), Problem> {
    let detail = || format!("{number} {field}, more than {max_items}: send them in several calls");
    let too_many = || Problem::new(Code::PayloadTooLarge, detail()).at(field);
    if number > max_items {
        Err(too_many())
    } else {
        Ok(())
    }
}

/// Reads a body of which every field may be left out, and so may the body.
pub(crate) fn read_optional<'de, T: Deserialize<'de>>(body: &'de [u8]) -> Result<T, Problem> {
    read(if body.trim_ascii().is_empty() {
        b"{}"
    } else {
        body
    })
}

/// Parses the body once more to find the place of the error. Only a wrong body pays for it.
fn describe_error<'de, T: Deserialize<'de>>(body: &'de [u8], error: &serde_json::Error) -> Problem {
    if let Some(syntax_error) = not_json(body) {
        return Problem::new(
            Code::InvalidJson,
            format!("the body is not JSON: {syntax_error}"),
        );
    }
    let mut json = serde_json::Deserializer::from_slice(body);
    match serde_path_to_error::deserialize::<_, Object<T>>(&mut json) {
        Err(error) => {
            let path = error.path().to_string();
            let detail = error.into_inner().to_string();
            let path = with_field(if path == "." { "" } else { &path }, &detail);
            Problem::field(path, with_suggestion(without_position(&detail)))
        }
        Ok(_) => Problem::field("", without_position(&error.to_string())),
    }
}

/// Returns why a body is not JSON at all. A typed reader may stop before that error, or report a
/// number in the place of a word as a syntax error.
fn not_json(body: &[u8]) -> Option<String> {
    match std::str::from_utf8(body) {
        Ok(text) => serde_json::from_str::<IgnoredAny>(text)
            .err()
            .map(|error| error.to_string()),
        Err(error) => Some(error.to_string()),
    }
}

/// Names the field that an unknown one is most similar to, in place of all known ones.
fn with_suggestion(detail: &str) -> String {
    let mut names = detail.split('`').skip(1).step_by(2);
    let similar = match (detail.starts_with("unknown field `"), names.next()) {
        (true, Some(unknown)) => most_similar(unknown, names).map(|known| (unknown, known)),
        _ => None,
    };
    match similar {
        Some((unknown, known)) => format!("unknown field `{unknown}`; did you mean `{known}`?"),
        None => detail.to_owned(),
    }
}

/// Removes the position, because the path says where the error is. It may also be relative to an
/// item, which is parsed by itself.
fn without_position(detail: &str) -> &str {
    detail
        .rsplit_once(" at line ")
        .map_or(detail, |(reason, _)| reason)
}

/// Adds the field to the path if it is missing or duplicate: serde's path ends at the object around
/// it.
fn with_field(path: &str, detail: &str) -> String {
    let rest = detail
        .strip_prefix("missing field `")
        .or_else(|| detail.strip_prefix("duplicate field `"));
    match rest.and_then(|rest| rest.split_once('`')) {
        Some((field, _)) if path.is_empty() => field.to_owned(),
        Some((field, _)) if !path.ends_with(field) => format!("{path}.{field}"),
        _ => path.to_owned(),
    }
}

/// JSON object. By itself, serde also reads a struct from the array of its values.
struct Object<T>(T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ObjectVisitor<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectVisitor<T> {
            type Value = Object<T>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(Object)
            }
        }
        deserializer.deserialize_map(ObjectVisitor(PhantomData))
    }
}

/// Word of an enum. By itself, serde also reads it from an object with the word as its only key.
struct EnumWord<T>(T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for EnumWord<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct WordVisitor<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for WordVisitor<T> {
            type Value = EnumWord<T>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a word")
            }
            fn visit_str<E: Error>(self, word: &str) -> Result<Self::Value, E> {
                T::deserialize(StrDeserializer::new(word)).map(EnumWord)
            }
        }
        deserializer.deserialize_str(WordVisitor(PhantomData))
    }
}

/// Reads a field that is an object.
pub(crate) fn object<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    Object::deserialize(deserializer).map(|object| object.0)
}

/// Reads a field that is an object, null, or left out.
pub(crate) fn optional_object<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    Option::deserialize(deserializer).map(|read| read.map(|Object(object)| object))
}

/// Reads a field that is a list of objects.
pub(crate) fn objects<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    Vec::deserialize(deserializer)
        .map(|read| read.into_iter().map(|Object(object)| object).collect())
}

/// Reads a field that is a list of objects, null, or left out.
pub(crate) fn optional_objects<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Option<Vec<T>>, D::Error> {
    let read: Option<Vec<Object<T>>> = Option::deserialize(deserializer)?;
    Ok(read.map(|read| read.into_iter().map(|Object(object)| object).collect()))
}

/// Reads a field that is a word.
pub(crate) fn word<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    EnumWord::deserialize(deserializer).map(|word| word.0)
}

/// Reads a field that is a word, null, or left out.
pub(crate) fn optional_word<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    Option::deserialize(deserializer).map(|read| read.map(|EnumWord(word)| word))
}

/// A time span: numbers with units such as `500ms`, `30s`, `1h30m` or `7d`, of at most 36500 days. A bare number is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(test, derive(ToSchema), schema(as = Span, value_type = String))]
pub(crate) struct TimeSpan(pub(crate) Duration);

impl<'de> Deserialize<'de> for TimeSpan {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let expected = "a time span such as \"30s\", \"1h30m\" or \"500ms\", of at most 36500 days";
        deserializer
            .deserialize_any(TimeSpanVisitor {
                read: duration_text::parse,
                expected,
            })
            .map(Self)
    }
}

/// Reads a duration from a text. A number is refused, because it may mean seconds or milliseconds.
pub(crate) struct TimeSpanVisitor<T> {
    pub(crate) read: fn(&str) -> Option<T>,
    pub(crate) expected: &'static str,
}

impl<T> TimeSpanVisitor<T> {
    fn refused<E: Error>(&self, number: impl fmt::Display) -> E {
        E::custom(format_args!(
            "the number {number} has no unit: expected {}",
            self.expected
        ))
    }
}

impl<T> Visitor<'_> for TimeSpanVisitor<T> {
    type Value = T;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.expected)
    }
    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        (self.read)(text).ok_or_else(|| E::invalid_value(serde::de::Unexpected::Str(text), &self))
    }
    fn visit_u64<E: Error>(self, number: u64) -> Result<T, E> {
        Err(self.refused(number))
    }
    fn visit_i64<E: Error>(self, number: i64) -> Result<T, E> {
        Err(self.refused(number))
    }
    fn visit_f64<E: Error>(self, number: f64) -> Result<T, E> {
        Err(self.refused(number))
    }
}

/// Nothing, or an empty object.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NoBody {}

/// One name, or a list of them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[cfg_attr(test, derive(ToSchema), schema(as = Names, value_type = Vec<String>))]
pub(crate) struct NameList(pub(crate) Vec<String>);

impl<'de> Deserialize<'de> for NameList {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NameListVisitor;
        impl<'de> Visitor<'de> for NameListVisitor {
            type Value = NameList;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a name or a list of names")
            }
            fn visit_str<E: Error>(self, name: &str) -> Result<NameList, E> {
                Ok(NameList(vec![name.to_owned()]))
            }
            fn visit_unit<E: Error>(self) -> Result<NameList, E> {
                Ok(NameList::default())
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<NameList, A::Error> {
                let mut names = Vec::new();
                while let Some(name) = items.next_element()? {
                    names.push(name);
                }
                Ok(NameList(names))
            }
        }
        deserializer.deserialize_any(NameListVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "snake_case")]
    enum WordBody {
        Succeeded,
        GivenBack,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only read")]
    struct Named {
        kind: String,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only read")]
    struct Everything {
        byte: Option<u8>,
        short: Option<u16>,
        size: Option<usize>,
        flag: Option<bool>,
        text: Option<String>,
        list: Option<Vec<String>>,
        #[serde(default, deserialize_with = "optional_word")]
        word: Option<WordBody>,
        #[serde(default, deserialize_with = "optional_object")]
        named: Option<Named>,
        span: Option<TimeSpan>,
        names: Option<NameList>,
    }

    #[test]
    fn mistakes_have_the_path_of_the_value() {
        let table = r#"
{"byte":300} | byte | invalid value: integer `300`, expected u8
{"byte":0.5} | byte | invalid type: floating point `0.5`, expected u8
{"byte":true} | byte | invalid type: boolean `true`, expected u8
{"short":-1} | short | invalid value: integer `-1`, expected u16
{"size":"a at line b"} | size | invalid type: string "a at line b", expected usize
{"flag":[]} | flag | invalid type: sequence, expected a boolean
{"text":{}} | text | invalid type: map, expected a string
{"text":"\ud800"} | text | unexpected end of hex escape
{"list":{}} | list | invalid type: map, expected a sequence
{"list":[null]} | list[0] | invalid type: null, expected a string
{"word":"succeded"} | word | unknown variant `succeded`, expected `succeeded` or `given_back`
{"word":5} | word | invalid type: integer `5`, expected a word
{"word":{"succeeded":1}} | word | invalid type: map, expected a word
{"named":"x"} | named | invalid type: string "x", expected an object
{"named":[]} | named | invalid type: sequence, expected an object
{"named":{}} | named.kind | missing field `kind`
{"named":{"kind":"a","kind":"b"}} | named.kind | duplicate field `kind`
{"named":{"kin":"a"}} | named.kin | unknown field `kin`; did you mean `kind`?
{"span":"soon"} | span | invalid value: string "soon", expected a time span such as "30s", "1h30m" or "500ms", of at most 36500 days
{"names":{}} | names | invalid type: map, expected a name or a list of names
[] | | invalid type: sequence, expected an object
7 | | invalid type: integer `7`, expected an object"#;
        for row in table.trim().lines() {
            let mut columns = row.split('|').map(str::trim);
            let problem = read::<Everything>(columns.next().unwrap().as_bytes()).unwrap_err();
            assert_eq!(problem.word(), "invalid_field", "{row}");
            assert_eq!(problem.path(), columns.next(), "{row}");
            assert_eq!(Some(problem.detail()), columns.next(), "{row}");
        }
        let none = read::<NoBody>(br#"{"for":1}"#).unwrap_err();
        assert_eq!(none.detail(), "unknown field `for`, there are no fields");
    }

    #[test]
    fn a_body_that_is_not_json_has_the_place_of_the_mistake() {
        let table = r#"
 | EOF while parsing a value at line 1 column 0
not | expected ident at line 1 column 2
{ | EOF while parsing an object at line 1 column 1
{} 1 | trailing characters at line 1 column 4
{'a': 1} | key must be a string at line 1 column 2
{"other": 01} | invalid number at line 1 column 12
{"word":} | expected value at line 1 column 9"#;
        for (json, reason) in table.lines().filter_map(|row| row.split_once(" | ")) {
            let problem = read::<Everything>(json.as_bytes()).unwrap_err();
            assert_eq!(problem.word(), "invalid_json", "{json}");
            assert_eq!(problem.path(), None, "{json}");
            assert_eq!(problem.detail(), format!("the body is not JSON: {reason}"));
        }
    }
}
