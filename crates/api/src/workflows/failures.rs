//! Failures of the latest failed workflows, grouped by handler and kind of error.

use std::time::Duration;

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use serde::Serialize;
use tidegate_workflow::{
    Engine, FailurePage, FailureScan, Filter, JobFailure, ListedWorkflow, Order,
    Query as ListQuery, Status, Timestamp, WorkflowId,
};
#[cfg(test)]
use utoipa::ToSchema;

use crate::http::json::{self, Id};
use crate::http::problem::Problem;
use crate::http::query::Query;
use crate::http::time::Rfc3339;
use crate::state::app_state::{HandlerResult, RequestContext};
use crate::state::history::HistoryRange;
use crate::views::error_summary::shortened;
use crate::views::incomplete::Incomplete;

/// Most groups of an answer. With the longest names and messages they stay below 256 KiB.
const MAX_GROUPS: usize = 50;
/// Most groups while failures are read. Failures of further ones are left out.
const MAX_KEPT_GROUPS: usize = 1_000;
/// Points of a group: a small chart has no room for more.
const POINTS: usize = 24;

/// Failed jobs by handler and kind of error.
#[derive(Serialize)]
#[cfg_attr(test, derive(ToSchema))]
pub(crate) struct Failures {
    /// The time between two numbers of `points`, in milliseconds.
    step_ms: u64,
    /// The end of the range.
    until: Rfc3339,
    /// The groups, those with the latest failures first; at most 50.
    #[cfg_attr(test, schema(max_items = 50))]
    items: Vec<FailureGroup>,
    /// How many groups there are.
    groups: usize,
    /// How many failed workflows were looked at, those that were created last; at most 1,000.
    workflows: usize,
    /// Whether there are more failed workflows.
    more: bool,
    /// How many of those that were looked at are too large to read here: they are in no group.
    unread: usize,
    /// How many failed jobs are in no group, because their workflow has more than 1,000 of them.
    unread_jobs: usize,
    /// Data that is missing, when a part of the store does not answer. Left out when nothing is.
    #[serde(skip_serializing_if = "Option::is_none")]
    incomplete: Option<Incomplete>,
}

/// Failures of one handler with one kind of error.
#[derive(Serialize)]
#[cfg_attr(test, derive(ToSchema))]
struct FailureGroup {
    handler: String,
    /// Null when the errors are lost.
    #[cfg_attr(test, schema(required))]
    kind: Option<String>,
    /// The message of the latest error, cut to 200 characters; null when it is lost.
    #[cfg_attr(test, schema(required))]
    message: Option<String>,
    /// How many jobs failed so in the range.
    jobs: u64,
    /// How many workflows these jobs are of.
    workflows: u64,
    first_at: Rfc3339,
    last_at: Rfc3339,
    /// Numbers of failures in steps of the range, the oldest first.
    #[cfg_attr(test, schema(min_items = 24, max_items = 24))]
    points: [u32; POINTS],
    sample: FailureSample,
    /// The workflow that was counted last.
    #[serde(skip)]
    counted: Option<WorkflowId>,
}

/// The latest failure of a group.
#[derive(Serialize)]
#[cfg_attr(test, derive(ToSchema))]
struct FailureSample {
    workflow: Id,
    /// The name of the workflow.
    name: String,
    /// The name of the job.
    job: String,
}

/// A failed job of a workflow.
struct Failed<'f> {
    workflow: WorkflowId,
    name: &'f str,
    at: Timestamp,
    failure: &'f JobFailure,
}

/// Groups of the failures in a range.
struct FailureGroups {
    from: Timestamp,
    step: Duration,
    groups: HashMap<(String, Option<String>), FailureGroup>,
    /// Whether there are more groups than are kept.
    is_cut: bool,
}

impl FailureGroups {
    fn new(until: Timestamp, span: Duration) -> Self {
        Self {
            from: until.before(span),
            step: span / POINTS as u32,
            groups: HashMap::new(),
            is_cut: false,
        }
    }

    /// Adds a failure, unless it is older than the range.
    fn add(&mut self, failed: &Failed<'_>) {
        let Failed { at, failure, .. } = *failed;
        if at < self.from {
            return;
        }
        let kind = failure.error.as_ref().map(|error| error.kind.clone());
        let is_full = self.groups.len() >= MAX_KEPT_GROUPS;
        let group = match self.groups.entry((failure.handler.clone(), kind)) {
            Entry::Vacant(_) if is_full => {
                self.is_cut = true;
                return;
            }
            Entry::Occupied(entry) => {
                let group = entry.into_mut();
                if at > group.last_at.0 {
                    group.show_latest(failed);
                }
                group
            }
            Entry::Vacant(entry) => {
                let group = FailureGroup::new(entry.key(), failed);
                entry.insert(group)
            }
        };
        group.count(failed.workflow);
        group.first_at = Rfc3339(group.first_at.0.min(at));
        let step = at.since(self.from).as_micros() / self.step.as_micros();
        group.count_point(step);
    }

    /// Returns the groups, those with the latest failures first.
    fn into_sorted(self) -> Vec<FailureGroup> {
        let mut groups: Vec<FailureGroup> = self.groups.into_values().collect();
        groups.sort_by(|a, b| {
            let latest = b.last_at.0.cmp(&a.last_at.0);
            latest.then_with(|| (&a.handler, &a.kind).cmp(&(&b.handler, &b.kind)))
        });
        groups
    }
}

impl FailureGroup {
    fn new(key: &(String, Option<String>), failed: &Failed<'_>) -> Self {
        let (handler, kind) = key.clone();
        let at = failed.at;
        Self {
            handler,
            kind,
            message: failed.message(),
            jobs: 0,
            workflows: 0,
            first_at: Rfc3339(at),
            last_at: Rfc3339(at),
            points: [0; POINTS],
            sample: failed.sample(),
            counted: None,
        }
    }

    /// Counts a job of a workflow. Jobs of one workflow come one after the other.
    fn count(&mut self, workflow: WorkflowId) {
        self.jobs += 1;
        if self.counted.replace(workflow) != Some(workflow) {
            self.workflows += 1;
        }
    }

    fn count_point(&mut self, step: u128) {
        let step = usize::try_from(step).unwrap_or(POINTS).min(POINTS - 1);
        self.points[step] += 1;
    }

    fn show_latest(&mut self, failed: &Failed<'_>) {
        self.last_at = Rfc3339(failed.at);
        self.message = failed.message();
        self.sample = failed.sample();
    }
}

impl<'f> Failed<'f> {
    fn new(item: &'f ListedWorkflow, failure: &'f JobFailure) -> Self {
        let ended = failure.finished_at.or(item.meta.finished_at);
        Self {
            workflow: item.workflow,
            name: &item.label.name,
            at: ended.unwrap_or(item.meta.created_at),
            failure,
        }
    }

    fn message(&self) -> Option<String> {
        let error = self.failure.error.as_ref()?;
        Some(shortened(&error.message).to_owned())
    }

    fn sample(&self) -> FailureSample {
        FailureSample {
            workflow: Id(self.workflow),
            name: self.name.to_owned(),
            job: self.failure.job.clone(),
        }
    }
}

/// Reads the failed workflows that were created last.
async fn read(engine: &Engine, groups: &mut FailureGroups) -> Result<FailureScan, Problem> {
    let filter = Filter {
        statuses: vec![Status::Failed],
        ..Filter::default()
    };
    let mut scan = FailureScan::new(&ListQuery {
        filter,
        order: Order::NewestFirst,
        ..ListQuery::default()
    });
    while let Some(FailurePage { page, failures }) = engine.next_failures(&mut scan).await? {
        for item in &page.items {
            for failure in &failures[&item.workflow] {
                groups.add(&Failed::new(item, failure));
            }
        }
    }
    Ok(scan)
}

pub(crate) async fn show(request: &RequestContext<'_>) -> HandlerResult {
    let mut query = Query::new(request.query)?;
    let span = HistoryRange::from_query(&mut query)?.span();
    query.finish()?;
    let until = request.now();
    let mut groups = FailureGroups::new(until, span);
    let scan = read(request.engine(), &mut groups).await?;
    let step_ms = u64::try_from(groups.step.as_millis()).unwrap_or(u64::MAX);
    let is_cut = groups.is_cut;
    let mut items = groups.into_sorted();
    let groups = items.len();
    items.truncate(MAX_GROUPS);
    Ok(json::ok(&Failures {
        step_ms,
        until: Rfc3339(until),
        items,
        groups,
        workflows: scan.workflows,
        more: scan.next.is_some() || is_cut,
        unread: scan.unread(),
        unread_jobs: scan.unread_jobs,
        incomplete: Incomplete::from_missing(&scan.missing),
    }))
}

#[cfg(test)]
mod tests {
    use tidegate_workflow::AttemptError;

    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);
    const UNTIL: Timestamp = Timestamp::from_micros(10_000_000_000);

    fn failure(kind: &str, minutes_ago: u32) -> JobFailure {
        let at = UNTIL.before(minutes_ago * MINUTE);
        let error = AttemptError {
            attempt: 1,
            at,
            worker: None,
            kind: kind.to_owned(),
            message: format!("{minutes_ago} minutes ago"),
            trace: None,
        };
        JobFailure {
            job: "charge".to_owned(),
            handler: "bank.charge".to_owned(),
            finished_at: Some(at),
            error: Some(error).filter(|_| !kind.is_empty()),
        }
    }

    fn failed(failure: &JobFailure) -> Failed<'_> {
        Failed {
            workflow: "01M7Z85C8H08RJZ5Q5JGPKMY04".parse().unwrap(),
            name: "order",
            at: failure.finished_at.unwrap(),
            failure,
        }
    }

    fn groups(failures: &[JobFailure]) -> Vec<FailureGroup> {
        let mut groups = FailureGroups::new(UNTIL, 24 * MINUTE);
        for failure in failures {
            groups.add(&failed(failure));
        }
        groups.into_sorted()
    }

    #[test]
    fn failures_of_one_handler_and_kind_are_one_group() {
        let found = groups(&[
            failure("CardDeclined", 3),
            failure("CardDeclined", 1),
            failure("CardDeclined", 20),
            failure("Timeout", 2),
            failure("Timeout", 30),
            failure("", 0),
        ]);
        let shown: Vec<_> = found
            .iter()
            .map(|group| (group.kind.as_deref(), group.message.as_deref(), group.jobs))
            .collect();
        assert_eq!(
            shown,
            [
                (None, None, 1),
                (Some("CardDeclined"), Some("1 minutes ago"), 3),
                (Some("Timeout"), Some("2 minutes ago"), 1),
            ]
        );
        let declined = &found[1];
        assert_eq!(declined.workflows, 1, "all are of one workflow");
        assert_eq!(declined.first_at.0, UNTIL.before(20 * MINUTE));
        assert_eq!(declined.last_at.0, UNTIL.before(MINUTE));
        let at: Vec<usize> = (0..POINTS).filter(|at| declined.points[*at] > 0).collect();
        assert_eq!(at, [4, 21, 23], "a point is of one minute");
        assert_eq!(found[0].points[POINTS - 1], 1, "the end of the range");
    }

    #[test]
    fn a_failure_after_the_range_is_in_its_last_step() {
        let mut early = FailureGroups::new(UNTIL.before(5 * MINUTE), 24 * MINUTE);
        early.add(&failed(&failure("Timeout", 0)));
        assert_eq!(early.into_sorted()[0].points[POINTS - 1], 1);
    }
}
