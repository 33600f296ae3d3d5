//! Bulk actions: one action on many workflows.

use serde::{Deserialize, Serialize};
use tidegate_workflow::{
    Action, Condition, Filter, ListedWorkflow, Order, Status, Timestamp, WorkflowId,
};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
#[cfg(test)]
use utoipa::ToSchema;

use super::act::{condition, time_field};
use super::definition::RetentionBody;
use super::list::MAX_PAGE_ITEMS;
use super::selection::{PagePosition, Selection, ids_from, latest, range_from, text_from};
use crate::http::body::{self, NameList};
use crate::http::json::{self, Id};
use crate::http::problem::{self, Problem};
use crate::http::query::status;

use crate::http::time;
use crate::state::app_state::{HandlerResult, RequestContext};
use crate::state::error_log;
use crate::views::incomplete::Incomplete;

/// Most concurrent actions of one call: enough to share writes, few enough to leave capacity for
/// workers.
const MAX_CONCURRENT_ACTIONS: usize = 64;
/// Most jobs of the workflows that all calls act on at a time, unless one workflow has more. It
/// bounds the states in memory.
const MAX_JOBS_IN_MEMORY: u32 = 32_768;
static JOB_PERMITS: Semaphore = Semaphore::const_new(MAX_JOBS_IN_MEMORY as usize);

/// Action, and the workflows to apply it to.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(ToSchema), schema(as = Bulk))]
pub(crate) struct BulkBody {
    #[serde(deserialize_with = "body::word")]
    action: ActionWord,
    #[serde(deserialize_with = "body::object")]
    filter: FilterBody,
    /// How long to keep them after their end: with `expire`, and only then.
    after: Option<RetentionBody>,
    /// With `retry`: only jobs that ended by then. With it, the call can be sent twice.
    #[cfg_attr(test, schema(format = DateTime))]
    as_of: Option<String>,
    /// How many at most, the oldest first; 1000 if left out.
    #[cfg_attr(test, schema(minimum = 1, maximum = 1000))]
    limit: Option<usize>,
    /// The `next_cursor` of the call before.
    cursor: Option<String>,
}

/// Action on each workflow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(test, derive(ToSchema), schema(as = BulkAction))]
enum ActionWord {
    Cancel,
    Retry,
    Pause,
    Resume,
    Delete,
    Start,
    Expire,
}

/// Which workflows: those to which all of this applies.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(ToSchema), schema(as = BulkFilter))]
pub(crate) struct FilterBody {
    /// With one of these statuses; with any if this is left out. At least one.
    status: Option<NameList>,
    /// Of this name.
    name: Option<String>,
    /// With this tag.
    tag: Option<String>,
    /// With a failed job that has this kind of error; only with the status `failed`.
    error: Option<String>,
    /// With a failed job of this handler, and of that `error` if there is one; only with the status `failed`.
    handler: Option<String>,
    /// Created then or later.
    #[cfg_attr(test, schema(format = DateTime))]
    created_after: Option<String>,
    /// Created before then.
    #[cfg_attr(test, schema(format = DateTime))]
    created_before: Option<String>,
    /// Created at most so long ago, such as `15m`.
    range: Option<String>,
    /// One of these; at most 1,000, and at least one.
    #[cfg_attr(test, schema(max_items = 1000))]
    ids: Option<NameList>,
    /// With this text, as in the list: the call acts on those that it finds. `next_cursor` leads to those that it has not read.
    q: Option<String>,
}

/// How many workflows matched, and which of them refused.
#[derive(Serialize)]
#[cfg_attr(test, derive(ToSchema))]
pub(crate) struct BulkResult<'a> {
    matched: usize,
    done: usize,
    failed: Vec<BulkFailure<'a>>,
    /// Whether there are more that match, or with `q` that may match.
    more: bool,
    /// Leads to those after these; null when there are none.
    #[cfg_attr(test, schema(required))]
    next_cursor: Option<String>,
    /// Where workflows may match that were left alone, because a part of the store does not answer. Left out when there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    incomplete: Option<Incomplete>,
    /// With `error`, `handler` or `q`: how many failed workflows were left alone, because they are too large to read here. Left out when none was.
    #[serde(skip_serializing_if = "Option::is_none")]
    unread: Option<usize>,
}

/// A workflow to which it could not be done.
#[derive(Serialize)]
#[cfg_attr(test, derive(ToSchema))]
struct BulkFailure<'a> {
    id: Id,
    /// The status that a single call would have got.
    status: u16,
    error: problem::ProblemBody<'a>,
}

/// Action, and the workflows to apply it to, as checked.
struct BulkCall {
    action: Action,
    condition: Condition,
    selection: Selection,
    from: PagePosition,
    limit: usize,
}

impl FilterBody {
    fn resolve(self, now: Timestamp) -> Result<Selection, Problem> {
        refuse_empty(self.status.as_ref(), "filter.status")?;
        refuse_empty(self.ids.as_ref(), "filter.ids")?;
        if self.q.as_ref().is_some_and(|text| text.trim().is_empty()) {
            let expected = "expected a text; leave it out for all workflows";
            return Err(Problem::field("filter.q", expected));
        }
        let ids = self.ids.as_ref().map(|ids| ids.0.iter());
        let ids = ids.map(|ids| ids_from(ids.map(String::as_str), "filter.ids"));
        let after = time_field(self.created_after, "filter.created_after", time::parse)?;
        let range = range_from(self.range, "filter.range")?;
        let text = text_from(self.q, "filter.q")?;
        let filter = Filter {
            statuses: statuses_from(&self.status.unwrap_or_default())?,
            name: self.name,
            tag: self.tag,
            created_from: latest(after, range, now),
            created_to: time_field(self.created_before, "filter.created_before", time::parse)?,
            id_prefix: None,
            ids: ids.transpose()?,
        };
        Selection::new(filter, text, self.error, self.handler)
            .map_err(|problem| problem.under_prefix("filter."))
    }
}

fn statuses_from(words: &NameList) -> Result<Vec<Status>, Problem> {
    let words = words.0.iter().enumerate();
    words
        .map(|(at, word)| status(word, &format!("filter.status[{at}]")))
        .collect()
}

/// Refuses an empty list: a program whose list came out empty does not mean all workflows.
fn refuse_empty(list: Option<&NameList>, path: &str) -> Result<(), Problem> {
    if list.is_some_and(|list| list.0.is_empty()) {
        let expected = "expected at least one; leave it out for all of them";
        return Err(Problem::field(path, expected));
    }
    Ok(())
}

impl BulkBody {
    /// Checks the body of a call at `now`.
    fn resolve(self, now: Timestamp) -> Result<BulkCall, Problem> {
        let limit = self.limit.unwrap_or(MAX_PAGE_ITEMS);
        if !(1..=MAX_PAGE_ITEMS).contains(&limit) {
            return Err(Problem::field(
                "limit",
                format!("expected a number from 1 to {MAX_PAGE_ITEMS}"),
            ));
        }
        let selection = self.filter.resolve(now)?;
        let from = selection.position(self.cursor);
        let from = from.map_err(|problem| problem.at("cursor"))?;
        if self.action != ActionWord::Retry && self.as_of.is_some() {
            return Err(Problem::field(
                "as_of",
                "only the action retry takes this field",
            ));
        }
        let mut condition = condition(self.as_of)?;
        if self.action == ActionWord::Retry {
            condition.as_of = condition.as_of.or(selection.read_at(now));
        }
        // The list may be outdated when the action is applied.
        condition.statuses.clone_from(&selection.filter.statuses);
        Ok(BulkCall {
            action: action(self.action, self.after)?,
            condition,
            selection,
            from,
            limit,
        })
    }
}

fn action(word: ActionWord, after: Option<RetentionBody>) -> Result<Action, Problem> {
    if word != ActionWord::Expire && after.is_some() {
        return Err(Problem::field(
            "after",
            "only the action expire takes this field",
        ));
    }
    Ok(match word {
        ActionWord::Cancel => Action::Cancel,
        ActionWord::Retry => Action::RetryFailed,
        ActionWord::Pause => Action::Pause,
        ActionWord::Resume => Action::Resume,
        ActionWord::Start => Action::Start,
        ActionWord::Delete => Action::Delete,
        ActionWord::Expire => {
            let missing =
                || Problem::field("after", "the action expire needs a time span or forever");
            Action::Keep(after.ok_or_else(missing)?.0)
        }
    })
}

impl<'a> BulkFailure<'a> {
    fn new(id: WorkflowId, problem: &'a Problem, request: &'a RequestContext<'_>) -> Self {
        Self {
            id: Id(id),
            status: problem.status().as_u16(),
            error: problem.body(request.id),
        }
    }
}

pub(crate) async fn bulk(request: &RequestContext<'_>) -> HandlerResult {
    let call = body::read::<BulkBody>(request.body)?.resolve(request.now())?;
    let (engine, order) = (request.engine(), Order::OldestFirst);
    let found = call.selection.read(engine, call.from, order, call.limit);
    let found = found.await?;
    let page = &found.page;
    let matched = page.items.len();
    let failed = act_on_each(request, &page.items, &call.action, &call.condition).await;
    error_log::log_item_problems(request, failed.iter().map(|(_, problem)| problem));
    let failures = failed.iter();
    let failures = failures.map(|(id, problem)| BulkFailure::new(*id, problem, request));
    Ok(json::ok(&BulkResult {
        matched,
        done: matched - failed.len(),
        failed: failures.collect(),
        more: found.next_cursor.is_some(),
        incomplete: Incomplete::from_missing(&page.missing),
        unread: found.unread(),
        next_cursor: found.next_cursor,
    }))
}

/// Applies the action to each workflow. Returns those that were refused or failed, sorted.
async fn act_on_each(
    request: &RequestContext<'_>,
    listed: &[ListedWorkflow],
    action: &Action,
    condition: &Condition,
) -> Vec<(WorkflowId, Problem)> {
    let now = request.now();
    let workflows = listed.iter();
    let workflows = workflows.map(|item| (item.workflow, item.meta.counts.total()));
    let results = run_for_each(workflows.collect(), |id| {
        let engine = request.engine().clone();
        let (action, condition) = (action.clone(), condition.clone());
        async move { (id, engine.act_if(id, action, condition, now).await) }
    });
    let results = results.await.into_iter();
    let mut failed: Vec<_> = results
        .filter_map(|(id, acted)| Some((id, acted.err()?.into())))
        .collect();
    failed.sort_by_key(|(id, _)| *id);
    failed
}

/// Runs work for each workflow, with the given number of jobs, within the bounds of concurrency.
/// Returns the results in any order.
async fn run_for_each<T: Send + 'static, W: Future<Output = T> + Send + 'static>(
    workflows: Vec<(WorkflowId, usize)>,
    work: impl Fn(WorkflowId) -> W,
) -> Vec<T> {
    let mut results = Vec::new();
    let mut tasks = JoinSet::new();
    for (id, jobs) in workflows {
        if tasks.len() >= MAX_CONCURRENT_ACTIONS {
            results.extend(tasks.join_next().await.into_iter().flatten());
        }
        let jobs = u32::try_from(jobs)
            .unwrap_or(MAX_JOBS_IN_MEMORY)
            .clamp(1, MAX_JOBS_IN_MEMORY);
        let permit = JOB_PERMITS
            .acquire_many(jobs)
            .await
            .expect("nobody closes it");
        let work = work(id);
        tasks.spawn(async move {
            let _permit = permit;
            work.await
        });
    }
    while let Some(result) = tasks.join_next().await {
        results.extend(result);
    }
    results
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use tidegate_workflow::{Partition, Timestamp};

    use super::*;

    /// An action on 64 workflows of 131,072 jobs took 3 GB, and delayed claims by seven seconds.
    #[tokio::test]
    async fn concurrent_actions_have_a_bounded_number_of_jobs() {
        const LARGE: usize = 131_072;
        let at_work = Arc::new((AtomicUsize::new(0), AtomicUsize::new(0)));
        let run = async |jobs: usize| {
            let each = (0..200).map(|at| {
                (
                    WorkflowId::new(Timestamp::default(), Partition(0), at),
                    jobs,
                )
            });
            let worked = run_for_each(each.collect(), |_| {
                let at_work = Arc::clone(&at_work);
                async move {
                    let now = at_work.0.fetch_add(jobs, Relaxed) + jobs;
                    at_work.1.fetch_max(now, Relaxed);
                    for _ in 0..10 {
                        tokio::task::yield_now().await;
                    }
                    at_work.0.fetch_sub(jobs, Relaxed);
                }
            });
            assert_eq!(worked.await.len(), 200);
            at_work.1.swap(0, Relaxed)
        };
        assert_eq!(
            run(1).await,
            MAX_CONCURRENT_ACTIONS,
            "small ones share writes"
        );
        assert_eq!(run(10_000).await, 30_000);
        assert_eq!(run(LARGE).await, LARGE);
        let (few, many) = tokio::join!(run(10_000), run(10_000));
        assert_eq!(few.max(many), 30_000, "of all calls together");
    }
}
