//! The bounds of a definition, and what is wrong with one that is refused.

use std::time::Duration;

use thiserror::Error;

/// A workflow of so many jobs takes some 80 MiB of memory while it is worked on.
pub const MAX_JOBS: usize = 131_072;
/// Longest name of a workflow, job, handler, queue or tag, in bytes; and longest idempotency key.
pub const MAX_NAME: usize = 200;
/// Most tags of a workflow: each costs an index row.
pub const MAX_TAGS: usize = 16;

/// Most bytes of the params of a job and the globals of its workflow together: each claim carries both.
pub const MAX_PARAMS: usize = 256 * 1024;
/// Most bytes of the output of a job.
pub const MAX_OUTPUT: usize = 1024 * 1024;
/// How deep arrays and objects in JSON may be nested, so that every worker can read them: parsers with a stack stop at 128 and more.
pub const MAX_DEPTH: usize = 100;

/// Why a definition is refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum GraphError {
    /// There is nothing to run.
    #[error("the workflow has no jobs: add at least one")]
    NoJobs,
    /// There are more jobs than a workflow may have.
    #[error("the workflow has {count} jobs, more than {MAX_JOBS}: split it")]
    TooManyJobs {
        /// How many.
        count: usize,
    },
    /// A name is empty, too long, or has a control character in it.
    #[error("{path}: a name must have 1 to {MAX_NAME} bytes and no control characters, but this is {found}")]
    InvalidName {
        /// Where it is, such as `jobs[3].queue`.
        path: String,
        /// What was found instead.
        found: String,
    },
    /// Two jobs have one name.
    #[error("jobs[{second}].name: '{name}' is the name of jobs[{first}] too: give each job a name of its own")]
    DuplicateName {
        /// The name.
        name: String,
        /// Place of the first job.
        first: usize,
        /// Place of the second one.
        second: usize,
    },
    /// A job names a job that does not exist.
    #[error("{path}: there is no job '{name}'{}", hint(.similar))]
    UnknownJob {
        /// Where it is named, such as `jobs[3].after[0]`.
        path: String,
        /// The name.
        name: String,
        /// A job with a similar name.
        similar: Option<String>,
    },
    /// There is a cycle: jobs wait for each other.
    #[error("these jobs wait for each other: {}", shortened(.cycle))]
    Cycle {
        /// Names of jobs, each before the next; the first is also the last.
        cycle: Vec<String>,
    },
    /// Globals or params are something other than a JSON object.
    #[error("{path}: expected a JSON object")]
    NotAnObject {
        /// Where.
        path: String,
    },
    /// An attempt of a job may take no time at all.
    #[error("{path}: an attempt that may take no time cannot succeed: leave the timeout out if it may take any")]
    NoTime {
        /// Where, such as `jobs[3].timeout`.
        path: String,
    },
    /// The pause before the first retry of a job is longer than the longest pause.
    #[error("{path}: {backoff:?} is longer than backoff_max, {most:?}, the longest pause before a retry")]
    Backoff {
        /// Where, such as `jobs[3].backoff`.
        path: String,
        /// The pause before the first retry.
        backoff: Duration,
        /// The longest pause.
        most: Duration,
    },
    /// There are too many tags.
    #[error("tags: {count} of them, more than {MAX_TAGS}")]
    TooManyTags {
        /// How many.
        count: usize,
    },
}

fn hint(similar: &Option<String>) -> String {
    similar.as_ref().map_or_else(String::new, |name| format!(" (is '{name}' meant?)"))
}

/// A cycle may have as many jobs as a graph. A message names only the first and the last of them.
fn shortened(cycle: &[String]) -> String {
    const ENDS: usize = 8;
    if cycle.len() <= 2 * ENDS + 1 {
        return cycle.join(" -> ");
    }
    let (head, tail) = (&cycle[..ENDS], &cycle[cycle.len() - ENDS..]);
    format!("{} -> .. {} more .. -> {}", head.join(" -> "), cycle.len() - 2 * ENDS, tail.join(" -> "))
}
