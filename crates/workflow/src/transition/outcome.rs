//! How an attempt ended, as its worker says.

use std::time::Duration;

use crate::graph::json::Json;

/// How an attempt ended.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// Well.
    Succeeded {
        /// What it returned.
        output: Option<Json>,
    },
    /// Not well.
    Failed {
        /// What went wrong.
        failure: Failure,
        /// Whether to try again.
        retry: RetryWish,
    },
    /// It did not take place: the job is given back, and no attempt is counted.
    GivenBack {
        /// How long no worker should get it.
        pause: Duration,
    },
}

/// What a worker says of a failure.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Failure {
    /// Kind of the error, such as its class.
    pub kind: String,
    /// What it says.
    pub message: String,
    /// Where it came from.
    pub trace: Option<String>,
}

/// What a worker thinks of another attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RetryWish {
    /// As the definition says.
    #[default]
    ByPolicy,
    /// As often as the definition says, after this pause.
    After(Duration),
    /// It is of no use.
    Never,
}
