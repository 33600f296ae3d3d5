//! Failures of the latest failed workflows, grouped by handler and kind of error.

use std::time::Duration;

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use serde::Serialize;
use tidegate_workflow::{
    Cursor, Engine, Filter, JobFailure, MissingPartitions, Order, Query as ListQuery, Status,
    Timestamp, WorkflowId,
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

/// Most failed workflows that a call looks at.
const MAX_WORKFLOWS: usize = 1_000;
/// Workflows that are read at a time: as many as the longest list that shows errors.
const PAGE_ITEMS: usize = 100;
/// Most groups of an answer. With the longest names and messages they stay below 256 KiB.
const MAX_GROUPS: usize = 50;
/// Points of a group: a small chart has no room for more.
const POINTS: usize = 24;

/// Failures at the jobs that failed first, by handler and kind of error.
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
    /// How many of those that were looked at are in no group, because they are too large to read here, or no job of them failed.
    unread: usize,
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
    /// How many workflows failed so in the range.
    count: u64,
    first_at: Rfc3339,
    last_at: Rfc3339,
    /// Numbers of failures in steps of the range, the oldest first.
    #[cfg_attr(test, schema(min_items = 24, max_items = 24))]
    points: [u32; POINTS],
    sample: FailureSample,
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

/// A failed workflow, and the failure of its first failed job.
struct Failed<'f> {
    workflow: WorkflowId,
    name: &'f str,
    failure: &'f JobFailure,
}

/// Groups of the failures in a range.
struct FailureGroups {
    from: Timestamp,
    step: Duration,
    groups: HashMap<(String, Option<String>), FailureGroup>,
}

impl FailureGroups {
    fn new(until: Timestamp, span: Duration) -> Self {
        Self {
            from: until.before(span),
            step: span / POINTS as u32,
            groups: HashMap::new(),
        }
    }

    /// Adds a failure, unless it is older than the range.
    fn add(&mut self, failed: &Failed<'_>) {
        let failure = failed.failure;
        let Some(at) = failure.finished_at.filter(|at| *at >= self.from) else {
            return;
        };
        let kind = failure.error.as_ref().map(|error| error.kind.clone());
        let group = match self.groups.entry((failure.handler.clone(), kind)) {
            Entry::Occupied(entry) => {
                let group = entry.into_mut();
                if at > group.last_at.0 {
                    group.show_latest(at, failed);
                }
                group
            }
            Entry::Vacant(entry) => {
                let group = FailureGroup::new(entry.key(), at, failed);
                entry.insert(group)
            }
        };
        group.count += 1;
        group.first_at = Rfc3339(group.first_at.0.min(at));
        let step = at.since(self.from).as_micros() / self.step.as_micros();
        let step = usize::try_from(step).unwrap_or(POINTS).min(POINTS - 1);
        group.points[step] += 1;
    }

    /// Returns the groups, those with the latest failures first.
    fn into_sorted(self) -> Vec<FailureGroup> {
        let mut groups: Vec<FailureGroup> = self.groups.into_values().collect();
        groups.sort_by(|a, b| {
            let key = |group: &FailureGroup| (group.handler.clone(), group.kind.clone());
            b.last_at
                .0
                .cmp(&a.last_at.0)
                .then_with(|| key(a).cmp(&key(b)))
        });
        groups
    }
}

impl FailureGroup {
    fn new(key: &(String, Option<String>), at: Timestamp, failed: &Failed<'_>) -> Self {
        let (handler, kind) = key.clone();
        Self {
            handler,
            kind,
            message: failed.message(),
            count: 0,
            first_at: Rfc3339(at),
            last_at: Rfc3339(at),
            points: [0; POINTS],
            sample: failed.sample(),
        }
    }

    fn show_latest(&mut self, at: Timestamp, failed: &Failed<'_>) {
        self.last_at = Rfc3339(at);
        self.message = failed.message();
        self.sample = failed.sample();
    }
}

impl Failed<'_> {
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

/// Failed workflows that were looked at, those that were created last.
struct FailureScan {
    groups: FailureGroups,
    workflows: usize,
    /// Number of workflows whose failure was not read.
    unread: usize,
    missing: MissingPartitions,
    cursor: Option<Cursor>,
}

impl FailureScan {
    /// Looks at the newest failed workflows, at most `MAX_WORKFLOWS`.
    async fn read(engine: &Engine, groups: FailureGroups) -> Result<Self, Problem> {
        let mut scan = Self {
            groups,
            workflows: 0,
            unread: 0,
            missing: MissingPartitions::default(),
            cursor: None,
        };
        loop {
            scan.read_page(engine).await?;
            if scan.cursor.is_none() || scan.workflows >= MAX_WORKFLOWS {
                return Ok(scan);
            }
        }
    }

    /// Looks at the next page.
    async fn read_page(&mut self, engine: &Engine) -> Result<(), Problem> {
        let filter = Filter {
            statuses: vec![Status::Failed],
            ..Filter::default()
        };
        let query = ListQuery {
            filter,
            order: Order::NewestFirst,
            limit: PAGE_ITEMS,
            after: self.cursor.take(),
        };
        let page = engine.list(&query).await?;
        let highlights = engine.highlights(&page).await?;
        self.workflows += page.items.len();
        for item in &page.items {
            let found = highlights.get(&item.workflow);
            match found.and_then(|highlights| highlights.failure.as_ref()) {
                Some(failure) => self.groups.add(&Failed {
                    workflow: item.workflow,
                    name: &item.label.name,
                    failure,
                }),
                None => self.unread += 1,
            }
        }
        self.missing.0.extend(page.missing.0);
        self.cursor = page.next;
        Ok(())
    }
}

pub(crate) async fn show(request: &RequestContext<'_>) -> HandlerResult {
    let mut query = Query::new(request.query)?;
    let span = HistoryRange::from_query(&mut query)?.span();
    query.finish()?;
    let until = request.now();
    let scan = FailureScan::read(request.engine(), FailureGroups::new(until, span)).await?;
    let step_ms = u64::try_from(scan.groups.step.as_millis()).unwrap_or(u64::MAX);
    let mut items = scan.groups.into_sorted();
    let groups = items.len();
    items.truncate(MAX_GROUPS);
    Ok(json::ok(&Failures {
        step_ms,
        until: Rfc3339(until),
        items,
        groups,
        workflows: scan.workflows,
        more: scan.cursor.is_some(),
        unread: scan.unread,
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

    fn groups(failures: &[JobFailure]) -> Vec<FailureGroup> {
        let mut groups = FailureGroups::new(UNTIL, 24 * MINUTE);
        for failure in failures {
            groups.add(&Failed {
                workflow: "01M7Z85C8H08RJZ5Q5JGPKMY04".parse().unwrap(),
                name: "order",
                failure,
            });
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
            .map(|group| (group.kind.as_deref(), group.message.as_deref(), group.count))
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
        assert_eq!(declined.first_at.0, UNTIL.before(20 * MINUTE));
        assert_eq!(declined.last_at.0, UNTIL.before(MINUTE));
        let at: Vec<usize> = (0..POINTS).filter(|at| declined.points[*at] > 0).collect();
        assert_eq!(at, [4, 21, 23], "a point is of one minute");
        assert_eq!(found[0].points[POINTS - 1], 1, "the end of the range");
    }

    #[test]
    fn a_failure_after_the_range_is_in_its_last_step() {
        let mut early = FailureGroups::new(UNTIL.before(5 * MINUTE), 24 * MINUTE);
        early.add(&Failed {
            workflow: "01M7Z85C8H08RJZ5Q5JGPKMY04".parse().unwrap(),
            name: "order",
            failure: &failure("Timeout", 0),
        });
        assert_eq!(early.into_sorted()[0].points[POINTS - 1], 1);
    }
}
