//! Bounds of a definition, and the errors of a definition that violates them.

use std::time::Duration;

use thiserror::Error;

use super::PolicyTarget;

/// Maximum jobs of a workflow. A workflow of this size takes about 80 MiB of memory while it is
/// processed.
pub const MAX_JOBS: usize = 131_072;
/// Maximum bytes of a name of a workflow, job, handler, queue or tag, and of an idempotency key.
pub const MAX_NAME: usize = 200;
/// Maximum tags of a workflow: each costs an index row.
pub const MAX_TAGS: usize = 16;
/// Maximum retries of a job after failures, and maximum of lost leases in a row that are tried
/// again. It is below the maximum of the attempt counter, which could otherwise never exceed it.
pub const MAX_RETRIES: u16 = u16::MAX - 1;
/// Maximum limits of a job.
pub const MAX_LIMITS: usize = 4;
/// Maximum entries of a limit.
pub const MAX_LIMIT_ENTRIES: usize = 8;
/// Maximum bytes of a domain, key or value of a limit.
pub const MAX_LIMIT_TEXT: usize = 256;
/// Maximum bytes of a job's limit key: each ready row of the job contains it.
pub const MAX_LIMIT_KEY: usize = 1_024;
/// Maximum units of a limit per attempt.
pub const MAX_HITS: u32 = 1_000_000;
/// Maximum jobs of a concurrency limit.
pub const MAX_CONCURRENCY: u32 = 100_000;
/// Maximum weights of a queue.
pub const MAX_WEIGHTS: usize = 1_000;
/// Maximum weight of a key.
pub const MAX_WEIGHT: u32 = 1_000;

/// Maximum bytes of the params of a job and the globals of its workflow together: each claim
/// carries both.
pub const MAX_PARAMS: usize = 256 * 1024;
/// Maximum bytes of the output of a job.
pub const MAX_OUTPUT: usize = 1024 * 1024;
/// Maximum nesting of arrays and objects in JSON, so that every worker can parse it: recursive
/// parsers stop at 128 or more.
pub const MAX_DEPTH: usize = 100;

/// The reason why a definition is refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum GraphError {
    /// There is nothing to run.
    #[error("the workflow has no jobs: add at least one")]
    NoJobs,
    /// There are more jobs than a workflow may have.
    #[error("the workflow has {count} jobs, more than {MAX_JOBS}: split it")]
    TooManyJobs {
        /// Number of jobs.
        count: usize,
    },
    /// A name is empty, too long, `.` or `..`, or contains a control character.
    #[error(
        "{path}: a name must have 1 to {MAX_NAME} bytes and no control characters, and not be '.' or '..', but this is {found}"
    )]
    InvalidName {
        /// The path, such as `jobs[3].queue`.
        path: String,
        /// A description of the actual value.
        found: String,
    },
    /// Two jobs have one name.
    #[error(
        "jobs[{second}].name: '{name}' is the name of jobs[{first}] too: give each job a name of its own"
    )]
    DuplicateName {
        /// The name.
        name: String,
        /// Index of the first job.
        first: usize,
        /// Index of the second job.
        second: usize,
    },
    /// A job names an unknown job.
    #[error("{path}: there is no job '{name}'{}", hint(.similar))]
    UnknownJob {
        /// The path, such as `jobs[3].after[0]`.
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
        /// The path.
        path: String,
    },
    /// The timeout of a job is zero.
    #[error(
        "{path}: an attempt that may take no time cannot succeed: leave the timeout out if it may take any"
    )]
    NoTime {
        /// The path, such as `jobs[3].timeout`.
        path: String,
    },
    /// The back-off before the first retry of a job exceeds the maximum back-off.
    #[error(
        "{path}: {backoff:?} is longer than backoff_max, {most:?}, the longest pause before a retry"
    )]
    Backoff {
        /// The path, such as `jobs[3].backoff`.
        path: String,
        /// The back-off before the first retry.
        backoff: Duration,
        /// The maximum back-off.
        most: Duration,
    },
    /// A job has too many retries.
    #[error("{path}: {given} is more than {MAX_RETRIES}, which would never end")]
    TooManyRetries {
        /// The path, such as `jobs[3].retries`.
        path: String,
        /// The number in the definition.
        given: u16,
    },
    /// A limit of a job is invalid.
    #[error("{path}: {wrong}")]
    Limit {
        /// The path, such as `jobs[3].limits[0].entries[1]`.
        path: String,
        /// The error of the limit.
        wrong: LimitError,
    },
    /// A limit of a queue or a handler is invalid for a job.
    #[error("{path}: {given}")]
    Policy {
        /// The path of the job, such as `jobs[3]`.
        path: String,
        /// The limit and its error.
        given: Box<InvalidPolicy>,
    },
    /// A weight is invalid.
    #[error("{path}: {wrong}")]
    Weight {
        /// The path, such as `weights[3].weight`.
        path: String,
        /// The error of the weight.
        wrong: WeightError,
    },
    /// The workflow has too many tags.
    #[error("tags: {count} of them, more than {MAX_TAGS}")]
    TooManyTags {
        /// Number of tags.
        count: usize,
    },
}

/// The error of a limit.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum LimitError {
    /// The job has too many limits.
    #[error("{count} limits{}, more than {MAX_LIMITS}: leave some out", given_by_others(*.given))]
    TooMany {
        /// Number of limits.
        count: usize,
        /// Number of these that come from the queue and the handler.
        given: usize,
    },
    /// The units per attempt are zero or too many.
    #[error("{hits} units, expected 1 to {MAX_HITS}")]
    Hits {
        /// Number of units.
        hits: u32,
    },
    /// The maximum of running jobs is zero or too high.
    #[error(
        "{most} jobs at the same time, expected 1 to {MAX_CONCURRENCY}: pause the queue if none is to run"
    )]
    Concurrency {
        /// The maximum in the definition.
        most: u32,
    },
    /// The descriptor has no entries, so no rule of the limiter matches it.
    #[error("no entries: write at least one, as in the rule of the domain")]
    NoEntries,
    /// The limit has too many entries.
    #[error("{count} entries, more than {MAX_LIMIT_ENTRIES}: leave some out")]
    TooManyEntries {
        /// Number of entries.
        count: usize,
    },
    /// A domain, key or value is invalid.
    #[error(
        "{what} must have 1 to {MAX_LIMIT_TEXT} bytes and no control characters, but {subject} is {found}"
    )]
    Text {
        /// `the domain`, `the key` or `the value`.
        what: &'static str,
        /// `this`, or the path at which it was found.
        subject: String,
        /// A description of the actual value.
        found: String,
    },
    /// A path is invalid.
    #[error(
        "'{text}' is not a path such as $.tenant or $.order.customer: write '${text}' if it is meant as text"
    )]
    Path {
        /// The text of the path.
        text: String,
    },
    /// No value exists at a path.
    #[error(
        "neither the params of the job nor the globals have {at}: set a value there, or write one here"
    )]
    Missing {
        /// The path.
        at: String,
    },
    /// The value at a path cannot be part of a limit.
    #[error("{at} is {found}, expected a text, a number, true or false")]
    Value {
        /// The path.
        at: String,
        /// The type of the value.
        found: &'static str,
    },
    /// The limits of a job are too long together.
    #[error(
        "the limits of the job have {bytes} bytes together, more than {MAX_LIMIT_KEY}: use shorter values"
    )]
    TooLong {
        /// Bytes of the limit key.
        bytes: usize,
    },
}

/// A limit of a queue or a handler that is invalid for a job.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("the {subject} gives its jobs limits, and limits{at} cannot be kept: {wrong}")]
pub struct InvalidPolicy {
    /// The queue or handler.
    pub subject: PolicyTarget,
    /// The limit, such as `[0].entries[1]`.
    pub at: String,
    /// The error of the limit.
    pub wrong: LimitError,
}

/// The error of a weight.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum WeightError {
    /// The queue has too many weights.
    #[error("{count} weights, more than {MAX_WEIGHTS}: leave some out")]
    TooMany {
        /// Number of weights.
        count: usize,
    },
    /// The weight is out of range.
    #[error("a weight of {weight}, expected 1 to {MAX_WEIGHT}")]
    Weight {
        /// The weight in the request.
        weight: u32,
    },
    /// The weight has no entries, or too many.
    #[error("{count} entries, expected 1 to {MAX_LIMIT_ENTRIES}")]
    Entries {
        /// Number of entries.
        count: usize,
    },
}

fn given_by_others(given: usize) -> String {
    if given == 0 {
        String::new()
    } else {
        format!(", {given} of them given by its queue and its handler")
    }
}

fn hint(similar: &Option<String>) -> String {
    similar
        .as_ref()
        .map_or_else(String::new, |name| format!(" (is '{name}' meant?)"))
}

/// Shortens a cycle for a message to its first and last jobs, because it may contain all jobs of a
/// graph.
fn shortened(cycle: &[String]) -> String {
    const ENDS: usize = 8;
    if cycle.len() <= 2 * ENDS + 1 {
        return cycle.join(" -> ");
    }
    let head = &cycle[..ENDS];
    let tail = &cycle[cycle.len() - ENDS..];
    format!(
        "{} -> .. {} more .. -> {}",
        head.join(" -> "),
        cycle.len() - 2 * ENDS,
        tail.join(" -> ")
    )
}
