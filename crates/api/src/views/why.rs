//! Reason for which a job does not run, as a word for programs and a sentence for people.

use std::fmt::Write as _;

use serde::Serialize;
use tidegate_workflow::{
    ExhaustedLimit, JobIndex, JobState, Limit, PermitHolder, Snapshot, WaitReason,
};
#[cfg(test)]
use utoipa::ToSchema;

use crate::http::time::Rfc3339;
use crate::views::workflow_limits::LimitShown;

/// Names that a sentence lists. Further names are only counted.
const MAX_LISTED_NAMES: usize = 3;

/// Why a job does not run.
#[derive(Serialize)]
#[cfg_attr(test, derive(ToSchema))]
pub(crate) struct WhyNotRunning<'a> {
    reason: &'static str,
    /// The jobs that it waits for, or because of which it cannot run.
    #[serde(skip_serializing_if = "Option::is_none")]
    jobs: Option<Vec<&'a str>>,
    /// Until when it waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    until: Option<Rfc3339>,
    /// The limit that has no room for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<LimitShown>,
    /// Which jobs run under that limit, if it is one of jobs that run at the same time: at most 100.
    #[serde(skip_serializing_if = "Option::is_none")]
    holders: Option<Vec<Holder>>,
    /// The reason as a sentence for people.
    text: String,
}

/// A job that runs under a limit.
#[derive(Serialize)]
#[cfg_attr(test, derive(ToSchema))]
pub(crate) struct Holder {
    workflow: String,
    /// Its name; left out when the jobs are of many workflows.
    #[serde(skip_serializing_if = "Option::is_none")]
    job: Option<String>,
    /// Its place in the definition of that workflow, from 0.
    index: u32,
    /// When its place is free, unless its lease is extended.
    until: Rfc3339,
}

impl<'a> WhyNotRunning<'a> {
    /// Returns the reason for which a job does not run. `None` if it runs, or has ended.
    pub(crate) fn find(snapshot: &'a Snapshot, index: JobIndex) -> Option<Self> {
        let reason = snapshot.why_not_running(index)?;
        let why = Self::from_reason(snapshot, index, &reason);
        let job = snapshot.job(index);
        Some(if job.state == JobState::Ready {
            why.after_losses(job, snapshot.graph().jobs[index.index()].max_lost)
        } else {
            why
        })
    }

    fn from_reason(snapshot: &'a Snapshot, index: JobIndex, reason: &WaitReason) -> Self {
        let graph = snapshot.graph();
        let definition = &graph.jobs[index.index()];
        let queue = &definition.queue;
        let names = |jobs: &[JobIndex]| -> Vec<&'a str> {
            jobs.iter()
                .map(|job| graph.jobs[job.index()].name.as_str())
                .collect()
        };
        match reason {
            WaitReason::NotStarted => Self::new("not_started", "the workflow was not started"),
            WaitReason::WorkflowPaused => Self::new("workflow_paused", "the workflow is paused"),
            WaitReason::WaitsFor(jobs) => {
                let jobs = names(jobs);
                Self::new("waits_for", format!("waits for {}", list_names(&jobs))).with_jobs(jobs)
            }
            WaitReason::Unreachable { by, waits_for } => {
                let by = names(by);
                let text = format!(
                    "cannot run because of {}, and waits for {} to end",
                    list_names(&by),
                    list_names(&names(waits_for))
                );
                Self::new("doomed", text).with_jobs(by)
            }
            WaitReason::BlockedBy(jobs) => {
                let jobs = names(jobs);
                let by = list_names(&jobs);
                let text = format!("blocked by {by}: retry what failed, or skip this job");
                Self::new("blocked_by", text).with_jobs(jobs)
            }
            WaitReason::Until(due) => {
                let due = Rfc3339(*due);
                Self {
                    until: Some(due),
                    ..Self::new("until", format!("waits until {due}"))
                }
            }
            WaitReason::LimitReached(full) => Self::exhausted_limit(full),
            WaitReason::QueuePaused => {
                Self::new("queue_paused", format!("the queue '{queue}' is paused"))
            }
            WaitReason::NoWorker => {
                let text = format!("no worker of this server asks for the queue '{queue}'");
                Self::new("no_worker", text)
            }
            WaitReason::NoHandler => {
                let text = format!(
                    "no worker that takes jobs of the queue '{queue}' from this server has the handler '{}'",
                    definition.handler
                );
                Self::new("no_handler", text)
            }
            WaitReason::InQueue => {
                let text = format!("waits in the queue '{queue}' for a worker");
                Self::new("in_queue", text)
            }
        }
    }

    fn new(reason: &'static str, text: impl Into<String>) -> Self {
        Self {
            reason,
            jobs: None,
            until: None,
            limit: None,
            holders: None,
            text: text.into(),
        }
    }

    fn with_jobs(self, jobs: Vec<&'a str>) -> Self {
        Self {
            jobs: Some(jobs),
            ..self
        }
    }
}

impl Holder {
    pub(crate) fn from_holding(PermitHolder { lease, until, job }: &PermitHolder) -> Self {
        Self {
            workflow: lease.workflow.to_string(),
            job: job.clone(),
            index: lease.job.0,
            until: Rfc3339(*until),
        }
    }
}

impl WhyNotRunning<'_> {
    /// Adds the number of lost and crashed attempts to the sentence.
    fn after_losses(mut self, job: &tidegate_workflow::Job, max_lost: u16) -> Self {
        if job.lost > 0 {
            let _ = write!(self.text, "; lost {} of {max_lost} in a row", job.lost);
        }
        if job.crashed > 0 {
            let _ = write!(self.text, "; crashed {} in a row", job.crashed);
        }
        if job.is_suspect() {
            self.text.push_str("; runs alone next");
        }
        self
    }

    fn exhausted_limit(full: &ExhaustedLimit) -> Self {
        let ExhaustedLimit {
            limit,
            until,
            running,
            holders,
        } = full;
        let until = Rfc3339(*until);
        let text = match limit {
            Limit::Units {
                domain, entries, ..
            } => {
                let entries: Vec<String> = entries
                    .iter()
                    .map(|(key, value)| format!("{key}={value}"))
                    .collect();
                format!(
                    "waits for room under the limit '{domain}' of {}, at least until {until}",
                    entries.join(", ")
                )
            }
            Limit::Concurrency { most, .. } => {
                let names: Vec<&str> = holders
                    .iter()
                    .filter_map(|holder| holder.job.as_deref())
                    .collect();
                let all = usize::try_from(*running).unwrap_or(usize::MAX);
                let names = if names.is_empty() {
                    String::new()
                } else {
                    format!(": {}", list_first_names(&names, all))
                };
                format!(
                    "waits for a place: {running} of at most {most} run under this limit{names}"
                )
            }
        };
        let holders = matches!(limit, Limit::Concurrency { .. })
            .then(|| holders.iter().map(Holder::from_holding).collect());
        Self {
            until: Some(until),
            limit: Some(LimitShown::from_definition(limit.definition())),
            holders,
            ..Self::new("limit", text)
        }
    }
}

/// Lists the first names, and the number of further ones.
fn list_names(names: &[&str]) -> String {
    list_first_names(names, names.len())
}

/// Lists the first of `names`, and the number of further ones up to `total`.
fn list_first_names(names: &[&str], total: usize) -> String {
    let first = &names[..names.len().min(MAX_LISTED_NAMES)];
    let named = first.join(", ");
    match total.saturating_sub(first.len()) {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}
