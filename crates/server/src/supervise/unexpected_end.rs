//! The unexpected end of a part of the server.

use std::fmt;
use std::sync::Arc;

/// The unexpected end of a part of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnexpectedEnd {
    /// The name of its thread or task.
    pub part: Arc<str>,
    /// The cause of the end.
    pub how: EndCause,
}

/// The cause of an unexpected end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndCause {
    /// It panicked. The panic's message is on standard error.
    Panicked,
    /// It returned.
    Returned,
}

impl fmt::Display for UnexpectedEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let how = match self.how {
            EndCause::Panicked => "panicked",
            EndCause::Returned => "ended unexpectedly",
        };
        write!(f, "the part '{}' of the server {how}", self.part)
    }
}
