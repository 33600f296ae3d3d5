//! The bounds of a definition, and what is wrong with one that is refused.

use std::time::Duration;

use thiserror::Error;

use super::policies::PolicyTarget;

/// A workflow of so many jobs takes some 80 MiB of memory while it is worked on.
pub const MAX_JOBS: usize = 131_072;
/// Longest name of a workflow, job, handler, queue or tag, in bytes; and longest idempotency key.
pub const MAX_NAME: usize = 200;
/// Most tags of a workflow: each costs an index row.
pub const MAX_TAGS: usize = 16;
/// Most retries of a job after failures, and most lost leases in a row that are tried again. One
/// less than what the counter of attempts holds: with more, the number of attempts would never be
/// above it.
pub const MAX_RETRIES: u16 = u16::MAX - 1;
/// Most limits of one job.
pub const MAX_LIMITS: usize = 4;
/// Most entries of one limit.
pub const MAX_LIMIT_ENTRIES: usize = 8;
/// Longest domain, key or value of a limit, in bytes.
pub const MAX_LIMIT_TEXT: usize = 256;
/// Most bytes of the limit key of a job: it is in each of the job's ready rows.
pub const MAX_LIMIT_KEY: usize = 1_024;
/// Most units of a limit that one attempt takes.
pub const MAX_HITS: u32 = 1_000_000;
/// Highest number of jobs of a limit of those that run at the same time.
pub const MAX_CONCURRENCY: u32 = 100_000;
/// Most weights of one queue.
pub const MAX_WEIGHTS: usize = 1_000;
/// Highest weight of a key.
pub const MAX_WEIGHT: u32 = 1_000;

/// Most bytes of the params of a job and the globals of its workflow together: each claim carries
/// both.
pub const MAX_PARAMS: usize = 256 * 1024;
/// Most bytes of the output of a job.
pub const MAX_OUTPUT: usize = 1024 * 1024;
/// How deep arrays and objects in JSON may be nested, so that every worker can read them: parsers
/// with a stack stop at 128 and more.
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
    /// A name is empty, too long, `.` or `..`, or has a control character in it.
    #[error(
        "{path}: a name must have 1 to {MAX_NAME} bytes and no control characters, and not be '.' or '..', but this is {found}"
    )]
    InvalidName {
        /// Where it is, such as `jobs[3].queue`.
        path: String,
        /// What was found instead.
        found: String,
    },
    /// Two jobs have one name.
    #[error(
        "jobs[{second}].name: '{name}' is the name of jobs[{first}] too: give each job a name of its own"
    )]
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
    #[error(
        "{path}: an attempt that may take no time cannot succeed: leave the timeout out if it may take any"
    )]
    NoTime {
        /// Where, such as `jobs[3].timeout`.
        path: String,
    },
    /// The pause before the first retry of a job is longer than the longest pause.
    #[error(
        "{path}: {backoff:?} is longer than backoff_max, {most:?}, the longest pause before a retry"
    )]
    Backoff {
        /// Where, such as `jobs[3].backoff`.
        path: String,
        /// The pause before the first retry.
        backoff: Duration,
        /// The longest pause.
        most: Duration,
    },
    /// A job would be tried again without an end.
    #[error("{path}: {given} is more than {MAX_RETRIES}, which would never end")]
    TooManyRetries {
        /// Where, such as `jobs[3].retries`.
        path: String,
        /// The number that it has.
        given: u16,
    },
    /// A limit of a job cannot be kept.
    #[error("{path}: {wrong}")]
    Limit {
        /// Where, such as `jobs[3].limits[0].entries[1]`.
        path: String,
        /// What is wrong with it.
        wrong: WrongLimit,
    },
    /// A limit of a queue or a handler cannot be kept for one of its jobs.
    #[error("{path}: {given}")]
    Terms {
        /// Which job, such as `jobs[3]`.
        path: String,
        /// Which limit, and what is wrong with it.
        given: Box<InvalidPolicy>,
    },
    /// A weight cannot be one.
    #[error("{path}: {wrong}")]
    Weight {
        /// Where, such as `weights[3].weight`.
        path: String,
        /// What is wrong with it.
        wrong: WrongWeight,
    },
    /// There are too many tags.
    #[error("tags: {count} of them, more than {MAX_TAGS}")]
    TooManyTags {
        /// How many.
        count: usize,
    },
}

/// What is wrong with a limit.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum WrongLimit {
    /// The job has too many.
    #[error("{count} limits{}, more than {MAX_LIMITS}: leave some out", given_by_others(*.given))]
    TooMany {
        /// How many.
        count: usize,
        /// How many of them are of its queue and its handler.
        given: usize,
    },
    /// It takes no units, or too many.
    #[error("{hits} units, expected 1 to {MAX_HITS}")]
    Hits {
        /// How many.
        hits: u32,
    },
    /// It lets no job run, or a number that bounds nothing.
    #[error(
        "{most} jobs at the same time, expected 1 to {MAX_CONCURRENCY}: pause the queue if none is to run"
    )]
    Concurrency {
        /// How many.
        most: u32,
    },
    /// A descriptor without entries is under no rule of the limiter.
    #[error("no entries: write at least one, as in the rule of the domain")]
    NoEntries,
    /// It has too many entries.
    #[error("{count} entries, more than {MAX_LIMIT_ENTRIES}: leave some out")]
    TooManyEntries {
        /// How many.
        count: usize,
    },
    /// A domain, key or value cannot be one.
    #[error(
        "{what} must have 1 to {MAX_LIMIT_TEXT} bytes and no control characters, but {subject} is {found}"
    )]
    Text {
        /// `the domain`, `the key` or `the value`.
        what: &'static str,
        /// `this`, or the path at which it was found.
        subject: String,
        /// What was found.
        found: String,
    },
    /// A path is not one.
    #[error(
        "'{text}' is not a path such as $.tenant or $.order.customer: write '${text}' if it is meant as text"
    )]
    Path {
        /// What it says.
        text: String,
    },
    /// There is nothing at a path.
    #[error(
        "neither the params of the job nor the globals have {at}: give it a value there, or write one here"
    )]
    Missing {
        /// The path.
        at: String,
    },
    /// A value in the params or globals is none that a limit can have.
    #[error("{at} is {found}, expected a text, a number, true or false")]
    Value {
        /// The path.
        at: String,
        /// What it is.
        found: &'static str,
    },
    /// Together they are too long.
    #[error(
        "the limits of the job have {bytes} bytes together, more than {MAX_LIMIT_KEY}: use shorter values"
    )]
    TooLong {
        /// How many.
        bytes: usize,
    },
}

/// A limit of a queue or a handler that cannot be kept for a job.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("the {subject} gives its jobs limits, and limits{at} cannot be kept: {wrong}")]
pub struct InvalidPolicy {
    /// Which queue or handler.
    pub subject: PolicyTarget,
    /// Which of its limits, such as `[0].entries[1]`.
    pub at: String,
    /// What is wrong with it.
    pub wrong: WrongLimit,
}

/// What is wrong with a weight.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum WrongWeight {
    /// The queue has too many.
    #[error("{count} weights, more than {MAX_WEIGHTS}: leave some out")]
    TooMany {
        /// How many.
        count: usize,
    },
    /// It is none that a key can have.
    #[error("a weight of {weight}, expected 1 to {MAX_WEIGHT}")]
    Weight {
        /// What it is.
        weight: u32,
    },
    /// It does not say for which keys it is, or names too much.
    #[error("{count} entries, expected 1 to {MAX_LIMIT_ENTRIES}")]
    Entries {
        /// How many.
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

/// A cycle may have as many jobs as a graph. A message names only the first and the last of them.
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
