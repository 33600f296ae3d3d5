//! How an attempt ended, as its worker reports.

use std::fmt;
use std::time::Duration;

use crate::graph::json::Json;

/// How an attempt ended.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// It succeeded.
    Succeeded {
        /// The output.
        output: Option<Json>,
    },
    /// It failed.
    Failed {
        /// The error.
        failure: Failure,
        /// Whether to try again.
        retry: RetryWish,
    },
    /// The worker gives the job back without an attempt. No attempt is counted.
    GivenBack {
        /// How long no worker should get it.
        pause: Duration,
    },
    /// The worker took the job and never started it. It goes back to its place in the queue, no
    /// attempt is counted, and what was taken for it under rate limits is given back.
    NotBegun,
    /// As given back, because the service behind its rate limits refuses calls for a while: no job
    /// under them is handed out.
    Throttled {
        /// How long.
        pause: Duration,
    },
    /// The process that ran it has died, as its parent reports. No attempt is counted.
    Crashed(Crash),
}

/// The death of a process that ran a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Crash {
    /// How it died.
    pub death: Death,
    /// Whether it ran no other job.
    pub alone: bool,
}

/// How a process died.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Death {
    /// By a signal with this number.
    Signal(u8),
    /// It ended with this code.
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
    /// Kind of the error, such as its class.
    pub kind: String,
    /// Its message.
    pub message: String,
    /// Its stack trace.
    pub trace: Option<String>,
}

/// Whether the job should run again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RetryWish {
    /// As the definition says.
    #[default]
    ByPolicy,
    /// As often as the definition says, after this pause.
    After(Duration),
    /// Never.
    Never,
}
