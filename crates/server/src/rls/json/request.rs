//! Parses a request in protobuf's JSON: two names for each field, and several forms of a value.
//!
//! By the mapping, a repeated field is an error, and null means an absent field.

use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error, MapAccess, Visitor};

use crate::rls::proto::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use crate::rls::proto::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::{
    Entry as DescriptorEntry, RateLimitOverride,
};
use crate::rls::proto::envoy::service::ratelimit::v3::RateLimitRequest;
use crate::rls::proto::envoy::r#type::v3::RateLimitUnit;

/// Parses a request. Returns `None` if `body` is invalid JSON, or not a request.
pub(super) fn parse(body: &[u8]) -> Option<RateLimitRequest> {
    let mut json = serde_json::Deserializer::from_slice(body);
    let Object(request) = Object::<Request>::deserialize(&mut json).ok()?;
    json.end().ok()?;
    Some(request.into())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Request {
    domain: Option<String>,
    descriptors: Option<Vec<Object<Descriptor>>>,
    #[serde(rename = "hitsAddend", alias = "hits_addend")]
    hits: Option<Whole<u32>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Descriptor {
    entries: Option<Vec<Object<Entry>>>,
    limit: Option<Object<Limit>>,
    #[serde(rename = "hitsAddend", alias = "hits_addend")]
    hits: Option<Whole<u64>>,
    #[serde(rename = "isNegativeHits", alias = "is_negative_hits")]
    is_refund: Option<bool>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    key: Option<String>,
    value: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Limit {
    #[serde(rename = "requestsPerUnit", alias = "requests_per_unit")]
    requests: Option<Whole<u32>>,
    unit: Option<Unit>,
}

impl From<Request> for RateLimitRequest {
    fn from(
        Request {
            domain,
            descriptors,
            hits,
        }: Request,
    ) -> Self {
        Self {
            domain: domain.unwrap_or_default(),
            descriptors: descriptors
                .into_iter()
                .flatten()
                .map(|Object(descriptor)| descriptor.into())
                .collect(),
            hits_addend: hits.map(|Whole(hits)| hits).unwrap_or_default(),
        }
    }
}

impl From<Descriptor> for RateLimitDescriptor {
    fn from(
        Descriptor {
            entries,
            limit,
            hits,
            is_refund,
        }: Descriptor,
    ) -> Self {
        let entry = |Object(Entry { key, value }): Object<Entry>| DescriptorEntry {
            key: key.unwrap_or_default(),
            value: value.unwrap_or_default(),
        };
        let limit = limit.map(|Object(Limit { requests, unit })| RateLimitOverride {
            requests_per_unit: requests.map(|Whole(requests)| requests).unwrap_or_default(),
            unit: unit.map(|Unit(unit)| unit).unwrap_or_default(),
        });
        Self {
            entries: entries.into_iter().flatten().map(entry).collect(),
            limit,
            hits_addend: hits.map(|Whole(hits)| hits),
            is_negative_hits: is_refund.unwrap_or_default(),
        }
    }
}

/// A message, which must be an object: serde would also take the fields from a list.
struct Object<T>(T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(json: D) -> Result<Self, D::Error> {
        json.deserialize_map(Fields(PhantomData)).map(Self)
    }
}

struct Fields<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for Fields<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<T, A::Error> {
        T::deserialize(MapAccessDeserializer::new(fields))
    }
}

/// A whole number, also as `1.0` or `1e0`, or any of these as text.
struct Whole<T>(T);

impl<'de, T: TryFrom<i128>> Deserialize<'de> for Whole<T> {
    fn deserialize<D: Deserializer<'de>>(json: D) -> Result<Self, D::Error> {
        let number = json.deserialize_any(Number { of_text: number_in })?;
        T::try_from(number)
            .map(Self)
            .map_err(|_| D::Error::custom("the number is out of range"))
    }
}

/// A unit by its name or its number, even a number without a name.
struct Unit(i32);

impl<'de> Deserialize<'de> for Unit {
    fn deserialize<D: Deserializer<'de>>(json: D) -> Result<Self, D::Error> {
        let of_text = |name: &str| RateLimitUnit::from_str_name(name).map(|unit| unit as i128);
        let number = json.deserialize_any(Number { of_text })?;
        i32::try_from(number)
            .map(Self)
            .map_err(|_| D::Error::custom("the number is out of range"))
    }
}

/// Parses a number in a text by the rules of JSON.
fn number_in(text: &str) -> Option<i128> {
    // JSON allows blanks around a number, this text does not.
    if text.trim().len() != text.len() {
        return None;
    }
    let mut json = serde_json::Deserializer::from_str(text);
    let number = json.deserialize_any(Number { of_text: |_| None }).ok()?;
    json.end().ok()?;
    Some(number)
}

/// Reads a whole number, and passes text to `of_text`.
struct Number {
    of_text: fn(&str) -> Option<i128>,
}

impl Visitor<'_> for Number {
    type Value = i128;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a whole number")
    }

    fn visit_u64<E>(self, number: u64) -> Result<i128, E> {
        Ok(number.into())
    }

    fn visit_i64<E>(self, number: i64) -> Result<i128, E> {
        Ok(number.into())
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<i128, E> {
        // No field can hold a number of 2^64 or more.
        if number.fract() == 0.0 && number.abs() < 2e19 {
            Ok(number as i128)
        } else {
            Err(E::custom("not a whole number"))
        }
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<i128, E> {
        (self.of_text)(text).ok_or_else(|| E::custom("not a whole number"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: &str = r#"{"domain":"d","descriptors":[{"entries":[{"key":"k","value":"v"}]}]}"#;

    fn check_same(text: &str, plain: &str) {
        let expected = parse(plain.as_bytes());
        assert!(expected.is_some(), "{plain}");
        assert_eq!(parse(text.as_bytes()), expected, "{text}");
    }

    #[test]
    fn null_is_no_field_and_both_names_are_known() {
        check_same(
            r#"{"domain":"d","descriptors":null,"hitsAddend":null}"#,
            r#"{"domain":"d"}"#,
        );
        check_same(
            r#"{"domain":"d","descriptors":[{"entries":null,"limit":null}]}"#,
            r#"{"domain":"d","descriptors":[{}]}"#,
        );
        let request = r#"{"hits_addend":2,"descriptors":[{"hits_addend":"3","is_negative_hits":true,"limit":{"requests_per_unit":4}}]}"#;
        let same = r#"{"hitsAddend":2,"descriptors":[{"hitsAddend":3,"isNegativeHits":true,"limit":{"requestsPerUnit":4}}]}"#;
        check_same(request, same);
        check_same("{\"d\\u006fmain\":\"d\"} ", r#"{"domain":"d"}"#);
    }

    #[test]
    fn a_field_that_is_there_twice_is_a_mistake() {
        for text in [
            r#"{"domain":"d","domain":"d"}"#,
            r#"{"domain":null,"domain":"d"}"#,
            r#"{"hitsAddend":1,"hits_addend":1}"#,
            r#"{"descriptors":[],"descriptors":[]}"#,
            r#"{"descriptors":[{"entries":[{"key":"a","key":"a"}]}]}"#,
            r#"{"descriptors":[{"limit":{"unit":1,"unit":1}}]}"#,
            r#"{"descriptors":[{"limit":{},"limit":{}}]}"#,
        ] {
            assert_eq!(parse(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn whole_numbers_have_every_form() {
        let with = |number: &str| format!(r#"{{"domain":"d","hitsAddend":{number}}}"#);
        for number in [
            "2",
            "2.0",
            "2e0",
            "20e-1",
            "0.2e1",
            r#""2""#,
            r#""2.0""#,
            r#""2e0""#,
            r#""0.02E2""#,
        ] {
            check_same(&with(number), &with("2"));
        }
        for number in [
            "2.5",
            "-1",
            "4294967296",
            "1e10",
            "1e400",
            "+2",
            "02",
            "true",
            "[2]",
            "{}",
            r#""""#,
            r#"" 2""#,
            r#""2 ""#,
            r#""+2""#,
            r#""02""#,
            r#""2x""#,
            r#""2 2""#,
            r#""-1""#,
            r#""0x2""#,
            r#""null""#,
            r#""\"2\"""#,
            r#""NaN""#,
        ] {
            assert_eq!(parse(with(number).as_bytes()), None, "{number}");
        }
        let hits = |number: &str| {
            let text = format!(r#"{{"descriptors":[{{"hitsAddend":{number}}}]}}"#);
            parse(text.as_bytes()).map(|request| request.descriptors[0].hits_addend)
        };
        assert_eq!(hits(r#""18446744073709551615""#), Some(Some(u64::MAX)));
        assert_eq!(
            (hits("18446744073709551616"), hits("0"), hits("null")),
            (None, Some(Some(0)), Some(None))
        );
    }

    #[test]
    fn units_have_names_and_numbers() {
        let unit = |unit: &str| {
            let text = format!(r#"{{"descriptors":[{{"limit":{{"unit":{unit}}}}}]}}"#);
            parse(text.as_bytes())
                .map(|request| request.descriptors[0].limit.map(|limit| limit.unit))
        };
        for (text, number) in [
            (r#""DAY""#, 4),
            ("4", 4),
            ("4.0", 4),
            ("7", 7),
            ("-1", -1),
            ("null", 0),
        ] {
            assert_eq!(unit(text), Some(Some(number)), "{text}");
        }
        for text in [r#""day""#, r#""4""#, "4.5", "2147483648", "{}"] {
            assert_eq!(unit(text), None, "{text}");
        }
    }

    #[test]
    fn a_list_is_no_message_and_nothing_follows() {
        for text in [
            "",
            "null",
            "[]",
            r#"["d",[]]"#,
            r#"{"descriptors":[["k"]]}"#,
            r#"{"descriptors":[null]}"#,
        ] {
            assert_eq!(parse(text.as_bytes()), None, "{text}");
        }
        for text in [
            format!("{PLAIN}{{}}"),
            PLAIN.replace("\"v\"", "1"),
            PLAIN.replace("key", "Key"),
        ] {
            assert_eq!(parse(text.as_bytes()), None, "{text}");
        }
        assert!(parse(PLAIN.as_bytes()).is_some());
    }
}
