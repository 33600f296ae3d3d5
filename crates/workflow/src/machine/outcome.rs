//! The outcome of an attempt, as its worker reports it.

use std::fmt;
use std::time::Duration;

use crate::model::Json;

/// The outcome of an attempt.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// The attempt succeeded.
    Succeeded {
        /// The output.
        output: Option<Json>,
    },
    /// The attempt failed.
    Failed {
        /// The error.
        failure: Failure,
        /// The retry that the worker wants.
        retry: RetryWish,
    },
    /// The worker returns the job without an attempt. No attempt is counted.
    Returned {
        /// Delay until workers may claim the job again.
        pause: Duration,
    },
    /// The worker claimed the job and never started it. The job returns to its position in the
    /// queue, no attempt is counted, and units of rate limits are refunded.
    NotBegun,
    /// The worker returns the job because the service behind its rate limits refuses calls. No job
    /// under these limits is claimed during the pause.
    Throttled {
        /// Duration of the pause.
        pause: Duration,
    },
    /// The process that ran the job has died, as its parent reports. No attempt is counted.
    Crashed(Crash),
}

/// The death of a process that ran a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Crash {
    /// The kind of death.
    pub death: Death,
    /// Whether the process ran no other job.
    pub alone: bool,
}

/// The kind of a process's death.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Death {
    /// A signal with this number.
    Signal(u8),
    /// An exit with this code.
    Exit(i32),
}

impl fmt::Display for Death {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Signal(signal) => write!(formatter, "died of signal {signal}"),
            Self::Exit(code) => write!(formatter, "ended with code {code}"),
        }
    }
}

/// The error that a worker reports.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Failure {
    /// The kind of the error, such as its class.
    pub kind: String,
    /// The message of the error.
    pub message: String,
    /// The stack trace of the error.
    pub trace: Option<String>,
}

/// The retry that a worker wants after a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RetryWish {
    /// A retry by the policy of the definition.
    #[default]
    ByPolicy,
    /// A retry after this delay, as often as the definition allows.
    After(Duration),
    /// No retry.
    Never,
}
