//! Counts descriptors and entries in JSON without keeping them.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::{Bounds, Size};

/// Counts while it reads, and ends with an error if there are too many.
pub(super) struct Counter<'s> {
    pub(super) bounds: Bounds,
    pub(super) size: &'s mut Size,
    pub(super) level: Level,
}

/// The position of the counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Level {
    Request,
    Descriptors,
    Descriptor,
    Entries,
    Entry,
}

impl Level {
    /// The name and level of the member that is counted, if this level has one.
    fn member(self) -> Option<(&'static str, Self)> {
        match self {
            Self::Request => Some(("descriptors", Self::Descriptors)),
            Self::Descriptor => Some(("entries", Self::Entries)),
            _ => None,
        }
    }
}

impl Counter<'_> {
    fn at(&mut self, level: Level) -> Counter<'_> {
        Counter {
            bounds: self.bounds,
            size: self.size,
            level,
        }
    }
}

impl<'de> DeserializeSeed<'de> for Counter<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Counter<'_> {
    type Value = ();

    // A value of another type is an error here, as it is for the mapping, which reads it later.
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object or an array")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut members: A) -> Result<(), A::Error> {
        let member = self.level.member();
        while let Some(is_wanted) = members.next_key_seed(Name(member.map(|(name, _)| name)))? {
            match member {
                Some((_, level)) if is_wanted => members.next_value_seed(self.at(level))?,
                _ => _ = members.next_value::<IgnoredAny>()?,
            }
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut elements: A) -> Result<(), A::Error> {
        let level = match self.level {
            Level::Descriptors => Level::Descriptor,
            Level::Entries => Level::Entry,
            _ => return Err(A::Error::custom("not an object")),
        };
        while elements.next_element_seed(self.at(level))?.is_some() {
            match level {
                Level::Descriptor => self.size.descriptors += 1,
                _ => self.size.entries += 1,
            }
            self.bounds.check(self.size).map_err(A::Error::custom)?;
        }
        Ok(())
    }
}

/// Whether a key has this name.
struct Name(Option<&'static str>);

impl<'de> DeserializeSeed<'de> for Name {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, key: D) -> Result<bool, D::Error> {
        key.deserialize_identifier(self)
    }
}

impl Visitor<'_> for Name {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E>(self, key: &str) -> Result<bool, E> {
        Ok(self.0 == Some(key))
    }
}
