//! Errors of reading a text.

use super::node::Position;

/// Reason why a text cannot be read, and its position.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{problem}")]
pub struct Error {
    /// Position that has to be changed.
    pub at: Position,
    /// Reason of the error.
    pub problem: Problem,
}

/// Reasons of errors. The messages are those of yaml.v2, where it has one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// The text is not YAML.
    #[error("{0}")]
    Syntax(&'static str),
    /// A quote is not closed. `last_line` is the number of the line after the last line break.
    #[error("found unexpected end of stream")]
    OpenQuote {
        /// Number of the line, from 1.
        last_line: u32,
    },
    /// The text is neither UTF-8 nor UTF-16.
    #[error("invalid UTF-8")]
    NotUtf8,
    /// A character that YAML does not allow outside of quotes and escapes.
    #[error("control characters are not allowed")]
    ControlCharacter,
    /// An alias without an anchor before it.
    #[error("unknown anchor '{0}' referenced")]
    UnknownAnchor(String),
    /// An alias within the value of its anchor.
    #[error("anchor '{0}' value contains itself")]
    AnchorInItself(String),
    /// A list or a map as a key.
    #[error("invalid map key: a list or map")]
    KeyIsNoScalar,
    /// A merge key with another value than a map or a list of maps.
    #[error("map merge requires map or sequence of maps as the value")]
    Merge,
    /// The text has too many bytes.
    #[error("the file has more than {max} bytes")]
    TooLong {
        /// The bound.
        max: usize,
    },
    /// Lists and maps are nested too deeply.
    #[error("lists and maps are nested more than {max} deep")]
    TooDeep {
        /// The bound.
        max: usize,
    },
    /// The text has too many values.
    #[error("the file has more than {max} values")]
    TooMany {
        /// The bound.
        max: usize,
    },
    /// Aliases stand for too many values.
    #[error("aliases stand for more than {max} values")]
    TooManyAliased {
        /// The bound.
        max: usize,
    },
    /// The schema refuses a scalar or a tag.
    #[error("{0}")]
    Schema(String),
}
