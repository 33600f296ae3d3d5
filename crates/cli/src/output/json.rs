//! The fields of an object in JSON text. Nothing is copied.

use std::fmt;

use serde::de::{Deserializer as _, MapAccess, Visitor};
use serde_json::value::RawValue;

/// A name with its quotes, and its value.
pub(crate) type JsonField<'a> = (&'a RawValue, &'a RawValue);

/// The fields of an object in their order.
pub(crate) fn pairs(json: &str) -> Result<Vec<JsonField<'_>>, serde_json::Error> {
    let mut pairs = Vec::new();
    read(json, |pair| pairs.push(pair)).map(|()| pairs)
}

/// The name of a field.
pub(crate) fn name(raw: &RawValue) -> Result<String, serde_json::Error> {
    serde_json::from_str(raw.get())
}

/// Calls `on_field` for every field of an object.
pub(crate) fn read<'a>(
    json: &'a str,
    on_field: impl FnMut(JsonField<'a>),
) -> Result<(), serde_json::Error> {
    let mut reader = serde_json::Deserializer::from_str(json);
    reader.deserialize_map(FieldsVisitor(on_field))?;
    reader.end()
}

struct FieldsVisitor<F>(F);

impl<'de, F: FnMut(JsonField<'de>)> Visitor<'de> for FieldsVisitor<F> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
        while let Some(pair) = map.next_entry()? {
            (self.0)(pair);
        }
        Ok(())
    }
}
