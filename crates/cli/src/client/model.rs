//! Answers of the server: the fields that the command line shows.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::output::counted::counted;
use crate::output::exit::{CommandResult, Exit, Failure};
use crate::output::moment::Moment;
use crate::output::printable::printable;

/// Statuses of a workflow.
pub(crate) const STATUSES: [&str; 6] = [
    "pending",
    "running",
    "paused",
    "succeeded",
    "failed",
    "cancelled",
];
/// States of a job.
pub(crate) const STATES: [&str; 8] = [
    "waiting",
    "scheduled",
    "ready",
    "running",
    "succeeded",
    "failed",
    "cancelled",
    "skipped",
];

/// States of a job with the finer words that lists of jobs can be filtered by.
pub(crate) const LISTED_STATES: [&str; 11] = [
    "waiting",
    "blocked",
    "scheduled",
    "retrying",
    "ready",
    "limited",
    "running",
    "succeeded",
    "failed",
    "cancelled",
    "skipped",
];

/// Partitions that are missing in an answer because they did not answer the server.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Incomplete {
    partitions: Vec<u16>,
    reason: String,
}

impl Incomplete {
    /// The failure of a command that showed or changed the rest.
    pub(crate) fn failure(&self) -> Failure {
        let partitions = counted(self.partitions.len() as u64, "partition");
        let reason = printable(&self.reason);
        Failure::unavailable(format!(
            "this is not all: {partitions} of the store did not answer: {reason}"
        ))
    }

    /// Succeeds if nothing is missing; otherwise returns [`Incomplete::failure`].
    pub(crate) fn exit(incomplete: Option<&Self>) -> CommandResult {
        incomplete.map_or(Ok(Exit::Done), |incomplete| Err(incomplete.failure()))
    }
}

/// A workflow in a list, or a workflow that is shown alone.
#[derive(Debug, Deserialize)]
pub(crate) struct WorkflowSummary {
    pub(crate) id: String,
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) tags: Vec<String>,
    pub(crate) status: String,
    pub(crate) created_at: Moment,
    pub(crate) started_at: Option<Moment>,
    pub(crate) finished_at: Option<Moment>,
    pub(crate) expires_at: Option<Moment>,
    pub(crate) job_counts: JobCounts,
    /// The failure of the job that failed first, in short lists.
    pub(crate) error: Option<FirstFailure>,
    /// Present only if the request asked for jobs.
    #[serde(default)]
    pub(crate) jobs: Vec<Job>,
}

/// The job that failed first, with its last error.
#[derive(Debug, Deserialize)]
pub(crate) struct FirstFailure {
    pub(crate) job: String,
    #[serde(flatten)]
    pub(crate) error: ErrorSummary,
}

/// The error of a failed job in lists.
#[derive(Debug, Deserialize)]
pub(crate) struct ErrorSummary {
    kind: Option<String>,
    message: Option<String>,
}

/// The error in one line, such as `CardDeclined: the bank declined the card`.
impl fmt::Display for ErrorSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [&self.kind, &self.message];
        let parts: Vec<&str> = parts.into_iter().flatten().map(String::as_str).collect();
        let text = parts.join(": ");
        f.write_str(&printable(text.lines().next().unwrap_or_default()))
    }
}

/// Jobs by state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub(crate) struct JobCounts {
    pub(crate) total: u64,
    pub(crate) waiting: u64,
    /// Waiting jobs that cannot run because of a failure, if the server reports them.
    pub(crate) blocked: Option<u64>,
    pub(crate) scheduled: u64,
    pub(crate) ready: u64,
    pub(crate) running: u64,
    pub(crate) succeeded: u64,
    pub(crate) failed: u64,
    pub(crate) cancelled: u64,
    pub(crate) skipped: u64,
}

/// One job.
#[derive(Debug, Deserialize)]
pub(crate) struct Job {
    pub(crate) name: String,
    pub(crate) handler: String,
    pub(crate) queue: String,
    pub(crate) state: String,
    pub(crate) attempt: u64,
    #[serde(default)]
    pub(crate) lost: u64,
    #[serde(default)]
    pub(crate) max_lost: u64,
    #[serde(default)]
    pub(crate) lost_total: u64,
    #[serde(default)]
    pub(crate) retries: u64,
    #[serde(default)]
    pub(crate) after: Vec<String>,
    pub(crate) ready_at: Option<Moment>,
    pub(crate) started_at: Option<Moment>,
    pub(crate) finished_at: Option<Moment>,
    pub(crate) worker: Option<String>,
    pub(crate) why_not_running: Option<WaitReason>,
    /// The last error of a failed job, in lists.
    pub(crate) error: Option<ErrorSummary>,
    #[serde(default)]
    pub(crate) limits: Vec<JobLimit>,
    // The next fields are sent only for a single job.
    pub(crate) params: Option<Box<RawValue>>,
    pub(crate) output: Option<Box<RawValue>>,
    #[serde(default)]
    pub(crate) errors: Vec<AttemptError>,
    pub(crate) progress: Option<Progress>,
}

/// A rate limit or a concurrency limit of a job. Of an unknown kind, only the entries are shown.
#[derive(Debug, Deserialize)]
pub(crate) struct JobLimit {
    domain: Option<String>,
    hits: Option<u64>,
    concurrency: Option<u64>,
    of: Option<String>,
    #[serde(default)]
    entries: Vec<(String, String)>,
}

/// Entries in the form in which people write them.
pub(crate) fn entries_text(entries: &[(String, String)]) -> String {
    entries
        .iter()
        .map(|(key, value)| format!("{key}={value}"))
        .collect::<Vec<_>>()
        .join("  ")
}

/// The limit in one line.
impl fmt::Display for JobLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        if let Some(domain) = &self.domain {
            parts.push(format!(
                "{} of {domain}",
                counted(self.hits.unwrap_or(1), "unit")
            ));
        }
        if let Some(max_jobs) = self.concurrency {
            let of = match self.of.as_deref() {
                Some("workflow") => " of the workflow",
                Some("queue") => " of the queue",
                _ => "",
            };
            parts.push(format!(
                "at most {}{of} at a time",
                counted(max_jobs, "job")
            ));
        }
        parts.extend(
            self.entries
                .iter()
                .map(|(key, value)| format!("{key}={value}")),
        );
        f.write_str(&printable(&parts.join("  ")))
    }
}

/// Progress of a job, as its worker reported it last.
#[derive(Debug, Deserialize)]
pub(crate) struct Progress {
    pub(crate) percent: u64,
    #[serde(default)]
    pub(crate) text: String,
    pub(crate) at: Moment,
    pub(crate) attempt: u64,
}

/// A part of a log. Its lines stay JSON text.
#[derive(Debug, Deserialize)]
pub(crate) struct LogPage {
    pub(crate) items: Vec<Box<RawValue>>,
    /// Number of earlier lines that are not kept any more.
    #[serde(default)]
    pub(crate) dropped: u64,
    /// Position after which the next page begins.
    pub(crate) next: String,
}

/// A line of a log.
#[derive(Debug, Deserialize)]
pub(crate) struct LogLine {
    pub(crate) at: Moment,
    pub(crate) attempt: u64,
    pub(crate) text: String,
}

/// Reason why a job is not running.
#[derive(Debug, Deserialize)]
pub(crate) struct WaitReason {
    #[serde(default)]
    reason: String,
    pub(crate) text: String,
}

/// The error of one attempt.
#[derive(Debug, Deserialize)]
pub(crate) struct AttemptError {
    pub(crate) attempt: u64,
    pub(crate) at: Moment,
    pub(crate) worker: Option<String>,
    pub(crate) kind: String,
    pub(crate) message: String,
    pub(crate) trace: Option<String>,
}

/// One page of a list. Its items stay JSON text.
#[derive(Debug, Deserialize)]
pub(crate) struct Page {
    pub(crate) items: Vec<Box<RawValue>>,
    pub(crate) next_cursor: Option<String>,
    pub(crate) incomplete: Option<Incomplete>,
}

/// The answer to an action on a workflow.
#[derive(Debug, Deserialize)]
pub(crate) struct ActionAnswer {
    pub(crate) id: String,
    #[serde(default)]
    pub(crate) name: Option<String>,
    pub(crate) status: String,
    #[serde(default)]
    pub(crate) existing: bool,
    #[serde(default)]
    pub(crate) warnings: Vec<CreationWarning>,
}

/// A part of a workflow that has no effect.
#[derive(Debug, Deserialize)]
pub(crate) struct CreationWarning {
    pub(crate) job: String,
    pub(crate) text: String,
}

/// A queue.
#[derive(Debug, Deserialize)]
pub(crate) struct Queue {
    pub(crate) name: String,
    pub(crate) paused: bool,
    pub(crate) ready: u64,
    pub(crate) oldest_ready_at: Option<Moment>,
    pub(crate) waiting_workers: u64,
}

/// A problem document: the reason why the server did not carry out a request.
#[derive(Debug, Deserialize)]
pub(crate) struct Problem {
    #[serde(default)]
    pub(crate) title: String,
    #[serde(default)]
    pub(crate) detail: String,
    pub(crate) code: Option<String>,
    pub(crate) path: Option<String>,
    pub(crate) request_id: Option<String>,
    /// Whether the server is sure that the request changed nothing.
    #[serde(default)]
    pub(crate) nothing_done: bool,
}

/// A mistake in the configuration of rate limits.
#[derive(Debug, Deserialize)]
pub(crate) struct LimitMistake {
    file: String,
    #[serde(default)]
    line: u64,
    #[serde(default)]
    column: u64,
    text: String,
    #[serde(default)]
    hint: String,
}

/// The mistake in one line, such as `shop.yaml:4:25: invalid rate limit unit 'minuet'; did you mean
/// 'minute'?`.
impl fmt::Display for LimitMistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        if !self.file.is_empty() {
            parts.push(self.file.clone());
        }
        for place in [self.line, self.column] {
            if place > 0 {
                parts.push(place.to_string());
            }
        }
        let place = parts.join(":");
        let gap = if place.is_empty() { "" } else { ": " };
        let hint = if self.hint.is_empty() { "" } else { "; " };
        let Self {
            text, hint: advice, ..
        } = self;
        f.write_str(&printable(&format!("{place}{gap}{text}{hint}{advice}")))
    }
}

impl WorkflowSummary {
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.status.as_str(), "succeeded" | "failed" | "cancelled")
    }

    /// Numbers of jobs by state, such as `, 1 failed, 2 running`, for the states that `wanted`
    /// accepts.
    pub(crate) fn listed(&self, wanted: impl Fn(&str) -> bool) -> String {
        self.states_with_jobs()
            .filter(|(word, _)| wanted(word))
            .map(|(word, number)| format!(", {number} {word}"))
            .collect()
    }

    /// Names and counts of the states that have jobs, the most important first. A blocked job does
    /// not run unless a person acts.
    pub(crate) fn states_with_jobs(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let counts = &self.job_counts;
        let blocked = counts
            .blocked
            .unwrap_or(if self.is_over() { counts.waiting } else { 0 });
        let states = [
            ("failed", counts.failed),
            ("running", counts.running),
            ("ready", counts.ready),
            ("scheduled", counts.scheduled),
            ("blocked", blocked),
            ("waiting", counts.waiting.saturating_sub(blocked)),
            ("cancelled", counts.cancelled),
            ("skipped", counts.skipped),
            ("succeeded", counts.succeeded),
        ];
        states.into_iter().filter(|&(_, number)| number > 0)
    }

    /// Progress in words, such as `42%  2/7 succeeded, 1 failed, 3 running, 1 waiting`.
    pub(crate) fn progress(&self) -> String {
        let states = self.listed(|word| word != "succeeded");
        let JobCounts {
            succeeded, total, ..
        } = self.job_counts;
        format!(
            "{}%  {succeeded}/{total} succeeded{states}",
            self.job_counts.percent()
        )
    }

    /// Time that the workflow ran, or has run by `now`.
    pub(crate) fn duration(&self, now: Moment) -> Option<std::time::Duration> {
        Some(self.finished_at.unwrap_or(now).since(self.started_at?))
    }
}

impl JobCounts {
    /// Jobs that ended, in any state.
    fn over(&self) -> u64 {
        // A server may send any number; a sum that overflows must not end the program.
        [self.failed, self.cancelled, self.skipped]
            .into_iter()
            .fold(self.succeeded, u64::saturating_add)
    }

    /// Percentage of the jobs that are over; below 100 until all are.
    pub(crate) fn percent(&self) -> u64 {
        self.over()
            .saturating_mul(100)
            .checked_div(self.total)
            .unwrap_or(100)
            .min(100)
    }
}

impl Job {
    /// The state in the words of lists: blocked, limited and retrying jobs have words of their own.
    pub(crate) fn word(&self) -> &str {
        let reason = self.why_not_running.as_ref().map(|why| why.reason.as_str());
        match (self.state.as_str(), reason) {
            ("waiting", Some("blocked_by" | "doomed")) => "blocked",
            ("ready", Some("limit")) => "limited",
            ("scheduled", _) if self.attempt > 0 => "retrying",
            (state, _) => state,
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        matches!(
            self.state.as_str(),
            "succeeded" | "failed" | "cancelled" | "skipped"
        )
    }

    /// Time that the latest attempt took, or has taken by `now`.
    pub(crate) fn duration(&self, now: Moment) -> Option<std::time::Duration> {
        let end = match self.state.as_str() {
            "running" => now,
            _ => self.finished_at?,
        };
        Some(end.since(self.started_at?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_any_size_have_a_percentage() {
        let check = |succeeded: u64, failed: u64, total: u64, over: u64, percent: u64| {
            let counts = JobCounts {
                succeeded,
                failed,
                total,
                ..JobCounts::default()
            };
            assert_eq!(
                (counts.over(), counts.percent()),
                (over, percent),
                "{counts:?}"
            );
        };
        check(0, 0, 0, 0, 100);
        check(2, 1, 7, 3, 42);
        check(9, 0, 3, 9, 100);
        check(u64::MAX, u64::MAX, 1, u64::MAX, 100);
        check(u64::MAX, 0, u64::MAX, u64::MAX, 1);
    }
}
