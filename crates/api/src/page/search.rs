//! Search of everything by a text: workflows, their names and tags, limits, queues, workers and
//! handlers.

use std::collections::BTreeSet;

use serde::Serialize;
use tidegate_workflow::{
    ListedWorkflow, MatchRank, Query as ListQuery, Register, SearchPage, WorkflowId,
};
#[cfg(test)]
use utoipa::ToSchema;

use crate::http::auth::Scope;
use crate::http::json::{self, Id};
use crate::http::problem::Problem;
use crate::http::query::Query;
use crate::limits::configuration::{FoundLimit, limits_with};
use crate::state::app_state::{HandlerResult, RequestContext};
use crate::views::incomplete::Incomplete;
use crate::workers::shared_status;
use crate::workflows::selection::text_from;

/// Most results of an answer, and of each kind: they fit a short list, and one kind does not hide
/// the others.
const MAX_RESULTS: usize = 20;
const MAX_OF_KIND: usize = 8;

/// Results with the text, the best first.
#[derive(Default, Serialize)]
#[cfg_attr(test, derive(ToSchema))]
pub(crate) struct SearchResults {
    /// At most 20, and at most eight of a kind.
    #[cfg_attr(test, schema(max_items = 20))]
    items: Vec<FoundItem>,
    /// Whether there are more, or may be.
    more: bool,
    /// Data that is missing, when the store or a part of it does not answer. Left out when nothing is.
    #[serde(skip_serializing_if = "Option::is_none")]
    incomplete: Option<Incomplete>,
}

/// Something that has the text.
#[derive(Serialize)]
#[cfg_attr(test, derive(ToSchema), schema(as = SearchResult))]
struct FoundItem {
    kind: SearchKind,
    /// Its name. Of a limit: its keys and values.
    name: String,
    /// The id of a workflow. Left out of others.
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<Id>,
    /// The status of a workflow. Left out of others.
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<&'static str>,
    /// The path of a limit in the configuration. Left out of others.
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    /// The domain of a limit. Left out of others.
    #[serde(skip_serializing_if = "Option::is_none")]
    domain: Option<String>,
    /// The keys of a limit with their values; an empty value stands for any. Left out of others, and when they are too long to show.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schema(value_type = Option<Vec<Vec<String>>>))]
    entries: Option<Vec<(String, String)>>,
    #[serde(skip)]
    rank: MatchRank,
}

/// Kind of a result. Of equally good results, those of the first kinds come first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(test, derive(ToSchema))]
enum SearchKind {
    Name,
    Workflow,
    Tag,
    Limit,
    Queue,
    Worker,
    Handler,
}

/// Results that are collected.
struct Collector {
    lowercase: String,
    results: SearchResults,
}

impl FoundItem {
    fn new(kind: SearchKind, name: String, rank: MatchRank) -> Self {
        Self {
            kind,
            name,
            id: None,
            status: None,
            path: None,
            domain: None,
            entries: None,
            rank,
        }
    }
}

impl Collector {
    fn rank(&self, text: &str) -> Option<MatchRank> {
        MatchRank::for_name(text, &self.lowercase)
    }

    /// Adds the best of these names that have the text.
    fn add_names(&mut self, kind: SearchKind, names: impl IntoIterator<Item = String>) {
        let names = names.into_iter();
        let found = names.filter_map(|name| Some((self.rank(&name)?, name)));
        let found = found.map(|(rank, name)| FoundItem::new(kind, name, rank));
        let found = found.collect();
        self.add(found);
    }

    /// Adds the best of some results of one kind.
    fn add(&mut self, mut found: Vec<FoundItem>) {
        found.sort_by_key(|result| result.rank);
        self.results.more |= found.len() > MAX_OF_KIND;
        found.truncate(MAX_OF_KIND);
        self.results.items.extend(found);
    }

    /// Adds everything that is in the store of workflows. What cannot be read is left out.
    async fn add_stored(&mut self, request: &RequestContext<'_>, text: &str) {
        let (api, engine) = (request.api, request.engine());
        let query = ListQuery {
            limit: MAX_OF_KIND,
            ..ListQuery::default()
        };
        let (workflows, queues, workers) = tokio::join!(
            engine.suggest(&query, text),
            engine.names_with(Register::Queues, text),
            shared_status::workers(&api.worker_registry, engine, api.now()),
        );
        if let Some(found) = self.read(workflows) {
            self.add_workflows(found);
            self.add_names(SearchKind::Tag, engine.tags_with(text));
        }
        let queues = self.read(queues).unwrap_or_default();
        self.add_names(SearchKind::Queue, queues);
        let workers = self.read(workers).unwrap_or_default();
        let mut handlers = counted_handlers(request);
        let claimed = workers
            .values()
            .filter_map(|worker| worker.handlers.clone());
        handlers.extend(claimed.flatten());
        self.add_names(SearchKind::Worker, workers.into_keys());
        self.add_names(SearchKind::Handler, handlers);
    }

    /// Returns what was read, or notes that it is missing.
    fn read<T>(&mut self, read: Result<T, impl Into<Problem>>) -> Option<T> {
        let failed = |error: Problem| {
            let missing = || Incomplete::from_problem(&error);
            self.results.incomplete.get_or_insert_with(missing);
        };
        read.map_err(Into::into).map_err(failed).ok()
    }

    /// The rank of a workflow by its key, its id or its name.
    fn workflow_rank(&self, item: &ListedWorkflow, by_key: Option<WorkflowId>) -> MatchRank {
        let by_key = (by_key == Some(item.workflow)).then_some(MatchRank::Whole);
        let by_id = self.rank(&item.workflow.to_string());
        let by_id = by_id.filter(|rank| *rank < MatchRank::Inside);
        let ranks = [by_key, by_id, self.rank(&item.label.name)];
        ranks
            .into_iter()
            .flatten()
            .min()
            .unwrap_or(MatchRank::Other)
    }

    /// Adds workflows and their names.
    fn add_workflows(&mut self, found: SearchPage) {
        let by_key = found.by_key;
        let result = |item: ListedWorkflow| {
            let rank = self.workflow_rank(&item, by_key);
            FoundItem {
                id: Some(Id(item.workflow)),
                status: Some(item.meta.status.word()),
                ..FoundItem::new(SearchKind::Workflow, item.label.name, rank)
            }
        };
        let workflows = found.page.items.into_iter().map(result).collect();
        self.results.more |= found.next.is_some();
        if self.results.incomplete.is_none() {
            self.results.incomplete = Incomplete::from_missing(&found.page.missing);
        }
        self.add(workflows);
        self.add_names(SearchKind::Name, found.names);
    }

    fn add_limits(&mut self, request: &RequestContext<'_>) {
        let configuration = request.api.hooks.limits.limiter.configuration();
        let Some(configuration) = configuration.as_deref() else {
            return;
        };
        let found = limits_with(configuration, &self.lowercase, MAX_OF_KIND + 1);
        let result = |limit: FoundLimit| FoundItem {
            path: Some(limit.rule),
            domain: Some(limit.domain),
            entries: limit.entries,
            ..FoundItem::new(SearchKind::Limit, limit.name, limit.rank)
        };
        let found = found.into_iter().map(result).collect();
        self.add(found);
    }

    /// Returns the best results.
    fn into_results(mut self) -> SearchResults {
        let SearchResults { items, more, .. } = &mut self.results;
        items.sort_by_key(|item| (item.rank, item.kind));
        *more |= items.len() > MAX_RESULTS;
        items.truncate(MAX_RESULTS);
        self.results
    }
}

/// The handlers whose attempts this server has counted.
fn counted_handlers(request: &RequestContext<'_>) -> BTreeSet<String> {
    let counts = request.api.metrics.attempt_counts();
    let counted = counts.iter().flat_map(|counts| counts.handlers());
    counted.map(|times| times.handler).collect()
}

pub(crate) async fn show(request: &RequestContext<'_>) -> HandlerResult {
    let mut query = Query::new(request.query)?;
    let text = text_from(query.remove("q"), "q")?;
    let text = text.ok_or_else(|| Problem::field("q", "expected a text"))?;
    query.finish()?;
    let mut collector = Collector {
        lowercase: text.to_lowercase(),
        results: SearchResults::default(),
    };
    collector.add_limits(request);
    let api = request.api;
    if api.access.scope == Scope::Full {
        let open = api.store_gate.wait_until_open(&api.hooks.drain).await;
        if collector.read(open).is_some() {
            collector.add_stored(request, &text).await;
        }
    }
    Ok(json::ok(&collector.into_results()))
}
