//! JSON text that was checked once and is passed on as it is.

use std::fmt;

use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

/// One JSON value, as text. The engine never looks inside, so numbers and the order of keys stay as they were sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Json(Box<str>);

impl Json {
    /// Takes a text that is one JSON value.
    ///
    /// # Errors
    /// It is not; the error says where.
    pub fn parse(text: impl Into<Box<str>>) -> Result<Self, serde_json::Error> {
        let text = text.into();
        serde_json::from_str::<IgnoredAny>(&text)?;
        Ok(Self(text))
    }

    /// Takes text of which the caller knows that it is one JSON value, such as one that a parser has cut out.
    #[must_use]
    pub fn from_checked(text: impl Into<Box<str>>) -> Self {
        Self(text.into())
    }

    /// The text.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.0
    }

    /// Whether it is `null`.
    #[must_use]
    pub fn is_null(&self) -> bool {
        self.0.trim() == "null"
    }

    /// Whether it is an object.
    #[must_use]
    pub fn is_object(&self) -> bool {
        self.0.trim_start().starts_with('{')
    }
}

impl fmt::Display for Json {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}
