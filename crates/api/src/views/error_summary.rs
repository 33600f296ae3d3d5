//! JSON views of errors, with the start of their messages.

use serde::Serialize;
use tidegate_workflow::{AttemptError, JobFailure};
#[cfg(test)]
use utoipa::ToSchema;

/// A failed job and its last error.
#[derive(Serialize)]
#[cfg_attr(test, derive(ToSchema))]
pub(crate) struct FirstError<'a> {
    /// Name of the job.
    job: &'a str,
    /// Null when the error is lost.
    #[cfg_attr(test, schema(required))]
    kind: Option<&'a str>,
    /// Cut to 200 characters. Null when the error is lost.
    #[cfg_attr(test, schema(required))]
    message: Option<&'a str>,
}

impl<'a> FirstError<'a> {
    pub(crate) fn new(failure: &'a JobFailure) -> Self {
        let error = failure.error.as_ref();
        Self {
            job: &failure.job,
            kind: error.map(|error| &*error.kind),
            message: error.map(|error| shortened(&error.message)),
        }
    }
}

/// Kind of an error and the start of its message.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(ToSchema))]
pub(crate) struct ErrorSummary {
    kind: String,
    /// Cut to 200 characters.
    message: String,
}

impl ErrorSummary {
    pub(crate) fn new(error: &AttemptError) -> Self {
        Self {
            kind: error.kind.clone(),
            message: shortened(&error.message).to_owned(),
        }
    }
}

/// The start of a message of an error: 200 characters tell most of them apart.
pub(crate) fn shortened(message: &str) -> &str {
    const MAX_CHARACTERS: usize = 200;
    let end = message.char_indices().nth(MAX_CHARACTERS);
    end.map_or(message, |(end, _)| &message[..end])
}
