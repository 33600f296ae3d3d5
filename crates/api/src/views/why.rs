//! Reason for which a job does not run, as a word for programs and a sentence for people.

use std::fmt::Write as _;

use serde::Serialize;
use tidegate_workflow::{
    ExhaustedLimit, Graph, GraphJob, JobIndex, JobState, Limit, PermitHolder, Snapshot, WaitReason,
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
    /// The pause of that limit. Only in the answer for a single job.
    #[serde(skip_serializing_if = "Option::is_none")]
    paused: Option<PausedBy<'a>>,
    /// The reason as a sentence for people.
    text: String,
}

/// Author of the pause of a limit.
#[derive(Serialize)]
#[cfg_attr(test, derive(ToSchema))]
pub(crate) struct PausedBy<'a> {
    pub(crate) by: &'a str,
    /// When it ends; left out when it holds until it is removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) until: Option<Rfc3339>,
    pub(crate) reason: &'a str,
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
        match reason {
            WaitReason::NotStarted => Self::new("not_started", "the workflow was not started"),
            WaitReason::WorkflowPaused => Self::new("workflow_paused", "the workflow is paused"),
            WaitReason::WaitsFor(jobs) => {
                Self::because_of(names(graph, jobs), "waits_for", |jobs| {
                    format!("waits for {jobs}")
                })
            }
            WaitReason::Unreachable { by, waits_for } => {
                let waits_for = list_names(&names(graph, waits_for));
                Self::because_of(names(graph, by), "doomed", |jobs| {
                    format!("cannot run because of {jobs}, and waits for {waits_for} to end")
                })
            }
            WaitReason::BlockedBy(jobs) => {
                Self::because_of(names(graph, jobs), "blocked_by", |jobs| {
                    format!("blocked by {jobs}: retry what failed, or skip this job")
                })
            }
            WaitReason::Until(due) => Self::until(Rfc3339(*due)),
            WaitReason::LimitReached(full) => Self::exhausted_limit(full),
            WaitReason::QueuePaused
            | WaitReason::NoWorker
            | WaitReason::NoHandler
            | WaitReason::InQueue => Self::in_queue(&graph.jobs[index.index()], reason),
        }
    }

    fn until(due: Rfc3339) -> Self {
        Self {
            until: Some(due),
            ..Self::new("until", format!("waits until {due}"))
        }
    }

    /// Returns the reason for which a job stays in its queue.
    fn in_queue(job: &GraphJob, reason: &WaitReason) -> Self {
        let GraphJob { queue, handler, .. } = job;
        let (word, text) = match reason {
            WaitReason::QueuePaused => ("queue_paused", format!("the queue '{queue}' is paused")),
            WaitReason::NoWorker => (
                "no_worker",
                format!("no worker of this server asks for the queue '{queue}'"),
            ),
            WaitReason::NoHandler => (
                "no_handler",
                format!(
                    "no worker that takes jobs of the queue '{queue}' from this server has the handler '{handler}'"
                ),
            ),
            _ => (
                "in_queue",
                format!("waits in the queue '{queue}' for a worker"),
            ),
        };
        Self::new(word, text)
    }

    fn new(reason: &'static str, text: impl Into<String>) -> Self {
        Self {
            reason,
            jobs: None,
            until: None,
            limit: None,
            holders: None,
            paused: None,
            text: text.into(),
        }
    }

    /// Makes the reason that other jobs are. `text` makes the sentence from their names.
    fn because_of(
        jobs: Vec<&'a str>,
        reason: &'static str,
        text: impl FnOnce(String) -> String,
    ) -> Self {
        Self {
            jobs: Some(jobs.clone()),
            ..Self::new(reason, text(list_names(&jobs)))
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

impl<'a> WhyNotRunning<'a> {
    /// Adds the pause of the limit that has no room for the job.
    pub(crate) fn add_pause(&mut self, pause: PausedBy<'a>) {
        let _ = write!(self.text, "; paused by {}", pause.by);
        if let Some(until) = &pause.until {
            let _ = write!(self.text, " until {until}");
        }
        if !pause.reason.is_empty() {
            let _ = write!(self.text, ": {}", pause.reason);
        }
        self.paused = Some(pause);
    }

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
        let until = Rfc3339(full.until);
        let mut holders = None;
        let text = match &full.limit {
            Limit::Units {
                domain, entries, ..
            } => {
                let entries = entries.iter().map(|(key, value)| format!("{key}={value}"));
                let entries = entries.collect::<Vec<_>>().join(", ");
                format!(
                    "waits for room under the limit '{domain}' of {entries}, at least until {until}"
                )
            }
            Limit::Concurrency { most, .. } => {
                holders = Some(full.holders.iter().map(Holder::from_holding).collect());
                let running = format!("{} of at most {most}", full.running);
                let names = holder_names(full);
                format!("waits for a place: {running} run under this limit{names}")
            }
        };
        Self {
            until: Some(until),
            limit: Some(LimitShown::from_definition(full.limit.definition())),
            holders,
            ..Self::new("limit", text)
        }
    }
}

fn names<'a>(graph: &'a Graph, jobs: &[JobIndex]) -> Vec<&'a str> {
    let name = |job: &JobIndex| graph.jobs[job.index()].name.as_str();
    jobs.iter().map(name).collect()
}

/// Lists the jobs that run under a limit, after a colon. Empty if their names are not known.
fn holder_names(full: &ExhaustedLimit) -> String {
    let holders = full.holders.iter();
    let names: Vec<&str> = holders.filter_map(|holder| holder.job.as_deref()).collect();
    if names.is_empty() {
        return String::new();
    }
    let all = usize::try_from(full.running).unwrap_or(usize::MAX);
    format!(": {}", list_first_names(&names, all))
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
