//! Outcome of an attempt, as a worker reports it.

use std::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;
use tidegate_workflow::{Crash, Death, Failure, Json, MAX_OUTPUT, Outcome, Report, RetryWish};
#[cfg(test)]
use utoipa::ToSchema;

use super::leases::parse_lease;
use crate::http::body::{self, TimeSpan};
use crate::http::problem::{Code, Problem};

/// Most bytes that are stored of a message and of a trace.
const MAX_TEXT_BYTES: usize = 16 * 1024;
/// Most bytes that are stored of a kind.
const MAX_KIND_BYTES: usize = 200;

/// How an attempt ended.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(ToSchema), schema(as = Report))]
pub(crate) struct ReportBody<'a> {
    /// The lease that the claim gave.
    lease: String,
    #[serde(deserialize_with = "body::word")]
    outcome: OutcomeWord,
    /// With `succeeded`: any JSON of at most 1 MiB.
    #[serde(borrow)]
    #[cfg_attr(test, schema(value_type = Option<serde_json::Value>))]
    output: Option<&'a RawValue>,
    /// With `failed`, and then required.
    #[serde(default, deserialize_with = "body::optional_object")]
    error: Option<ErrorBody>,
    /// With `failed`: whether another attempt may follow; `policy` if left out.
    #[serde(default, deserialize_with = "body::optional_word")]
    retry: Option<RetryWord>,
    /// With `failed`: the pause before the next attempt. With `throttled`, and then required: for how long no job is handed out that has the
    /// same rate limits.
    retry_after: Option<TimeSpan>,
    /// With `given_back`: the time for which no worker should get it.
    pause: Option<TimeSpan>,
    /// With `crashed`, this or `exit`: the signal that ended the process.
    signal: Option<u8>,
    /// With `crashed`, this or `signal`: the code with which the process ended.
    exit: Option<i32>,
    /// With `crashed`: whether the process ran no other job; false if left out.
    alone: Option<bool>,
}

/// How an attempt ended; `not_begun` when the worker never started it: the job keeps its place in
/// the queue, and its hits under rate limits are refunded; `given_back` when the worker broke it
/// off, `throttled` when the service behind a rate limit of the job refused it, `crashed` when the
/// process that ran it has died, as its parent reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(test, derive(ToSchema), schema(as = Outcome))]
enum OutcomeWord {
    Succeeded,
    Failed,
    GivenBack,
    NotBegun,
    Throttled,
    Crashed,
}

/// Whether another attempt may follow: as the definition says, or never.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(test, derive(ToSchema), schema(as = RetryWish))]
enum RetryWord {
    Policy,
    Never,
}

/// Error of a failed attempt.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(ToSchema), schema(as = ReportError))]
pub(crate) struct ErrorBody {
    /// Such as the class of the error; cut to 200 bytes.
    kind: String,
    /// Cut to 16 KiB.
    message: String,
    /// Cut to 16 KiB.
    trace: Option<String>,
}

impl OutcomeWord {
    const fn text(self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::GivenBack => "given_back",
            Self::NotBegun => "not_begun",
            Self::Throttled => "throttled",
            Self::Crashed => "crashed",
        }
    }
}

impl ReportBody<'_> {
    /// Validates the report. The path of a problem is relative to the report.
    pub(super) fn resolve(self) -> Result<Report, Problem> {
        let lease = parse_lease(&self.lease, "lease")?;
        self.check_fields()?;
        let outcome = match self.outcome {
            OutcomeWord::Succeeded => {
                check_output(self.output)?;
                Outcome::Succeeded {
                    output: self.output.map(|output| Json::from_checked(output.get())),
                }
            }
            OutcomeWord::Failed => self.failed()?,
            OutcomeWord::Throttled => self.throttled()?,
            OutcomeWord::NotBegun => Outcome::NotBegun,
            OutcomeWord::GivenBack => Outcome::Returned {
                pause: self.pause.map_or(Duration::ZERO, |pause| pause.0),
            },
            OutcomeWord::Crashed => {
                let alone = self.alone.unwrap_or_default();
                let death = self.death()?;
                Outcome::Crashed(Crash { death, alone })
            }
        };
        Ok(Report { lease, outcome })
    }

    fn failed(self) -> Result<Outcome, Problem> {
        let retry = self.retry_wish()?;
        let missing = || Problem::field("error", "the outcome failed needs an error");
        let failure = self.error.ok_or_else(missing)?.resolve();
        Ok(Outcome::Failed { failure, retry })
    }

    fn throttled(&self) -> Result<Outcome, Problem> {
        let missing = || Problem::field("retry_after", "the outcome throttled needs retry_after");
        let pause = self.retry_after.ok_or_else(missing)?.0;
        Ok(Outcome::Throttled { pause })
    }

    /// Returns what the worker wishes for the next attempt.
    fn retry_wish(&self) -> Result<RetryWish, Problem> {
        match (self.retry, self.retry_after) {
            (Some(RetryWord::Never), Some(_)) => Err(Problem::field(
                "retry_after",
                "cannot be combined with \"retry\": \"never\"",
            )),
            (Some(RetryWord::Never), None) => Ok(RetryWish::Never),
            (_, Some(pause)) => Ok(RetryWish::After(pause.0)),
            _ => Ok(RetryWish::ByPolicy),
        }
    }

    /// Returns how the process of a crashed attempt ended.
    fn death(&self) -> Result<Death, Problem> {
        match (self.signal, self.exit) {
            (Some(signal), None) => Ok(Death::Signal(signal)),
            (None, Some(code)) => Ok(Death::Exit(code)),
            (None, None) => Err(Problem::field(
                "signal",
                "the outcome crashed needs signal or exit",
            )),
            (Some(_), Some(_)) => Err(Problem::field("exit", "cannot be combined with signal")),
        }
    }

    /// Checks that each field belongs to the outcome.
    fn check_fields(&self) -> Result<(), Problem> {
        let fields = [
            (OutcomeWord::Succeeded, self.output.is_some(), "output"),
            (OutcomeWord::Failed, self.error.is_some(), "error"),
            (OutcomeWord::Failed, self.retry.is_some(), "retry"),
            (
                OutcomeWord::Failed,
                self.retry_after.is_some() && self.outcome != OutcomeWord::Throttled,
                "retry_after",
            ),
            (OutcomeWord::GivenBack, self.pause.is_some(), "pause"),
            (OutcomeWord::Crashed, self.signal.is_some(), "signal"),
            (OutcomeWord::Crashed, self.exit.is_some(), "exit"),
            (OutcomeWord::Crashed, self.alone.is_some(), "alone"),
        ];
        for (outcome, given, field) in fields {
            if given && outcome != self.outcome {
                let word = outcome.text();
                return Err(Problem::field(
                    field,
                    format!("only the outcome {word} has this field"),
                ));
            }
        }
        Ok(())
    }
}

impl ErrorBody {
    fn resolve(self) -> Failure {
        Failure {
            kind: truncate(self.kind, MAX_KIND_BYTES),
            message: truncate(self.message, MAX_TEXT_BYTES),
            trace: self.trace.map(|trace| truncate(trace, MAX_TEXT_BYTES)),
        }
    }
}

/// Checks the size of an output, and its depth, so that every worker can parse it.
pub(crate) fn check_output(output: Option<&RawValue>) -> Result<(), Problem> {
    if output.is_some_and(|output| output.get().len() > MAX_OUTPUT) {
        let detail =
            format!("the output has more than {MAX_OUTPUT} bytes; return a reference instead");
        return Err(Problem::new(Code::PayloadTooLarge, detail).at("output"));
    }
    body::check_depth(output, "output")
}

/// Truncates a text to at most `max_bytes` bytes.
fn truncate(mut text: String, max_bytes: usize) -> String {
    if text.len() > max_bytes {
        text.truncate(
            (0..=max_bytes)
                .rev()
                .find(|&at| text.is_char_boundary(at))
                .unwrap_or(0),
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_between_characters() {
        assert_eq!(truncate("aéb".to_owned(), 2), "a");
        assert_eq!(truncate("aéb".to_owned(), 3), "aé");
        assert_eq!(truncate("aéb".to_owned(), 4), "aéb");
    }
}
