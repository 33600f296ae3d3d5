//! JSON view of a workflow: in lists, by itself, in events.

use serde::{Serialize, Serializer};
use tidegate_workflow::{
    Counts, Highlights, JobIndex, JobResult, JobState, Label, ListedWorkflow, Meta, Retention,
    Snapshot, WorkflowId, WorkflowSummary,
};
#[cfg(test)]
use utoipa::ToSchema;

use super::error_summary::FirstError;
use super::job::Job;
use crate::http::enum_text::{OnFailureWord, StatusWord};
use crate::http::json::{Id, Verbatim};
use crate::http::time::Rfc3339;

/// A workflow. Lists, `view=summary` and events leave out `on_failure` and what follows it.
#[derive(Serialize)]
#[cfg_attr(test, derive(ToSchema))]
pub(crate) struct Workflow<'a> {
    id: Id,
    name: &'a str,
    tags: &'a [String],
    status: StatusWord,
    created_at: Rfc3339,
    #[cfg_attr(test, schema(required))]
    started_at: Option<Rfc3339>,
    #[cfg_attr(test, schema(required))]
    finished_at: Option<Rfc3339>,
    /// When it is removed; null while it is not over, and when it is kept for ever.
    #[cfg_attr(test, schema(required))]
    expires_at: Option<Rfc3339>,
    job_counts: JobCounts,
    /// The job that failed first. Only lists of at most 100 have it; left out when none has failed, or when it would take too long to find.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<FirstError<'a>>,
    /// Names of jobs that run, at most three. Only lists of at most 100 have it; left out when none runs, or when it would take too long to find.
    #[serde(skip_serializing_if = "Option::is_none")]
    running: Option<&'a [String]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    on_failure: Option<OnFailureWord>,
    /// Globals of all jobs, which the params of a job override, when there are any.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schema(value_type = Option<Object>))]
    globals: Option<Verbatim<'a>>,
    /// How long it is kept after its end; left out when the server decides, or when it is kept for ever.
    #[serde(skip_serializing_if = "Option::is_none")]
    retention_ms: Option<u64>,
    /// Whether it is never removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    keep_forever: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schema(value_type = Option<Vec<Job>>))]
    jobs: Option<JobViews<'a>>,
}

/// List of all jobs. Each view is made when it is written, because all views at once take more
/// memory than their text.
#[derive(Debug)]
struct JobViews<'a> {
    snapshot: &'a Snapshot,
    results: Option<&'a [JobResult]>,
}

impl Serialize for JobViews<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let result = |at: usize| self.results.map(|results| &results[at]);
        let job = |at: usize| Job::new(self.snapshot, JobIndex(at as u32), result(at));
        serializer.collect_seq((0..self.snapshot.jobs().len()).map(job))
    }
}

/// Jobs by what they are doing.
#[derive(Serialize)]
#[cfg_attr(test, derive(ToSchema))]
struct JobCounts {
    total: usize,
    /// Those that are blocked are among them.
    waiting: u32,
    /// Those of the waiting that cannot run because of a failure. Lists leave it out while the workflow is not over.
    #[serde(skip_serializing_if = "Option::is_none")]
    blocked: Option<u32>,
    scheduled: u32,
    ready: u32,
    running: u32,
    succeeded: u32,
    failed: u32,
    cancelled: u32,
    skipped: u32,
}

impl From<&Counts> for JobCounts {
    fn from(counts: &Counts) -> Self {
        // In the order of `JobState::WORDS`.
        const { assert!(JobState::WORDS.len() == 8) };
        let mut numbers = counts.entries().map(|(_, number)| number);
        let mut next = || numbers.next().unwrap_or_default();
        Self {
            total: counts.total(),
            waiting: next(),
            blocked: None,
            scheduled: next(),
            ready: next(),
            running: next(),
            succeeded: next(),
            failed: next(),
            cancelled: next(),
            skipped: next(),
        }
    }
}

impl<'a> Workflow<'a> {
    /// Makes the view for lists.
    pub(crate) fn summary(id: WorkflowId, label: &'a Label, meta: &Meta) -> Self {
        Self {
            id: Id(id),
            name: &label.name,
            tags: &label.tags,
            status: meta.status.into(),
            created_at: Rfc3339(meta.created_at),
            started_at: meta.started_at.map(Rfc3339),
            finished_at: meta.finished_at.map(Rfc3339),
            expires_at: meta.expires_at.map(Rfc3339),
            // In a workflow that is over, no waiting job will run by itself.
            job_counts: JobCounts {
                blocked: meta
                    .status
                    .is_over()
                    .then(|| meta.counts.count_by_word("waiting")),
                ..(&meta.counts).into()
            },
            error: None,
            running: None,
            on_failure: None,
            globals: None,
            retention_ms: None,
            keep_forever: None,
            jobs: None,
        }
    }

    /// Adds what failed and what runs.
    pub(crate) fn with_highlights(self, highlights: &'a Highlights) -> Self {
        let running = Some(&*highlights.running);
        Self {
            error: highlights.failure.as_ref().map(FirstError::new),
            running: running.filter(|names| !names.is_empty()),
            ..self
        }
    }

    /// Makes the view for lists from a snapshot, which knows the blocked jobs.
    pub(crate) fn from_snapshot(snapshot: &'a Snapshot) -> Self {
        Self::summary(snapshot.id(), &snapshot.graph().label, snapshot.meta())
            .with_blocked(snapshot.blocked())
    }

    /// Makes the view for lists from a summary, which knows the blocked jobs.
    pub(crate) fn from_summary(outline: &'a WorkflowSummary) -> Self {
        let ListedWorkflow {
            workflow,
            label,
            meta,
        } = &outline.listed;
        Self::summary(*workflow, label, meta).with_blocked(outline.blocked)
    }

    fn with_blocked(mut self, blocked: u32) -> Self {
        self.job_counts.blocked = Some(blocked);
        self
    }

    /// Makes the view with all jobs, and with their results if there are any.
    pub(crate) fn with_jobs(snapshot: &'a Snapshot, results: Option<&'a [JobResult]>) -> Self {
        let graph = snapshot.graph();
        let retention = snapshot.meta().retention;
        Self {
            on_failure: Some(graph.on_failure.into()),
            globals: graph
                .globals
                .as_ref()
                .map(|globals| Verbatim(globals.text().into())),
            retention_ms: match retention {
                Some(Retention::For(span)) => Some(span.as_millis() as u64),
                Some(Retention::Forever) | None => None,
            },
            keep_forever: Some(retention == Some(Retention::Forever)),
            jobs: Some(JobViews { snapshot, results }),
            ..Self::from_snapshot(snapshot)
        }
    }
}
